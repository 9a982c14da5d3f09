import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseExact } from './json-exact.ts';

describe('parseExact', () => {
  it('keeps every digit of an integer no double can hold', () => {
    const text = '{"id":12345678901234567890,"deep":[{"n":-98765432109876543210}],"small":1}';
    expect(JSON.stringify(parseExact(text))).toBe(text);
  });

  it('finds a big integer wherever it stands', () => {
    for (let pad = 0; pad < 40; pad++) {
      const text = `["${'x'.repeat(pad)}",9007199254740993]`;
      expect(JSON.stringify(parseExact(text))).toBe(text);
    }
  });

  it('keeps numbers that would become infinite', () => {
    expect(JSON.stringify(parseExact('{"a":1e999,"b":1234567890123456}'))).toBe('{"a":1e999,"b":1234567890123456}');
  });

  it('answers what JSON.parse answers for every value it can hold', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const text = JSON.stringify(value);
        expect(parseExact(text)).toEqual(JSON.parse(text));
      }),
    );
  });

  it('loses no digit of any integer', () => {
    fc.assert(
      fc.property(fc.bigInt(), (n) => {
        expect(JSON.stringify(parseExact(`{"n":${n}}`))).toBe(`{"n":${n}}`);
      }),
    );
  });

  it('throws SyntaxError for what is no JSON', () => {
    expect(() => parseExact('{')).toThrow(SyntaxError);
    expect(() => parseExact('12345678901234567890 x')).toThrow(SyntaxError);
  });
});
