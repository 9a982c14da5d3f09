import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseExact, parseJson } from './json-exact.ts';

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

describe.each([
  ['parseExact', parseExact],
  ['parseJson', parseJson],
])('%s and nesting', (_name, parse) => {
  const nested = (depth: number, open = '[', close = ']') => open.repeat(depth) + close.repeat(depth);

  it('reads 1024 levels, and refuses more without reading them', () => {
    expect(JSON.stringify(parse(`${nested(1024)}${' '.repeat(2048)}`))).toBe(nested(1024));
    for (const depth of [1025, 3_000_000]) expect(() => parse(nested(depth))).toThrow('nested deeper');
    expect(() => parse(`{"a":${'{"a":'.repeat(1500)}1${'}'.repeat(1500)}}`)).toThrow('nested deeper');
    expect(() => parse(`{"n":12345678901234567890,"a":${nested(100_000)}}`)).toThrow('nested deeper');
  });

  it('counts no brackets in strings, and none that are closed again', () => {
    for (const text of [
      JSON.stringify({ a: '[{'.repeat(5000) }),
      JSON.stringify({ a: `"[\\`.repeat(5000), b: '\\' }),
      JSON.stringify(Array.from({ length: 5000 }, () => [{}])),
    ])
      expect(JSON.stringify(parse(text))).toBe(text);
  });

  it('refuses what is no JSON, however long', () => {
    for (const text of ['"'.repeat(5001), ']'.repeat(5000), `["${'\\'.repeat(5001)}"`, '{'.repeat(5000)])
      expect(() => parse(text)).toThrow(SyntaxError);
  });
});
