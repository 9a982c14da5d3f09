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

describe('parseExact and its numbers', () => {
  const far = 'x'.repeat(3000);

  it('keeps them under any key and at any place, in short texts and long ones', () => {
    for (const pad of ['', far])
      for (const text of [
        `{"p":"${pad}","a b":{"\\u0041\\"":[1,[[],{"__proto__":12345678901234567890}],-98765432109876543210]},"x":3}`,
        `["${pad}",{"a":[],"b":{}},[{"a":1},2,[12345678901234567890]]]`,
        `{"p":"${pad}","":12345678901234567890,"n":1e999}`,
      ]) {
        const kept = pad === '' && !/\d{16}/.test(text) ? JSON.stringify(JSON.parse(text)) : text;
        expect(JSON.stringify(parseExact(text))).toBe(kept.replace('\\u0041', 'A'));
      }
  });

  it('takes the second of two values of one name, as JSON.parse does', () => {
    expect(JSON.stringify(parseExact('{"a":12345678901234567890,"a":1}'))).toBe('{"a":1}');
    expect(JSON.stringify(parseExact('{"a":{"b":12345678901234567890},"a":[1]}'))).toBe('{"a":[1]}');
    expect(JSON.stringify(parseExact('{"a":1,"a":12345678901234567890}'))).toBe('{"a":12345678901234567890}');
  });

  it('loses no digit in any value', () => {
    const number = fc.bigInt().map((n) => `${n}`);
    const { text } = fc.letrec<{ text: string }>((tie) => ({
      text: fc.oneof(
        { maxDepth: 4 },
        number,
        fc.string().map((s) => JSON.stringify(s)),
        fc.array(tie('text')).map((list) => `[${list.join(',')}]`),
        fc.dictionary(fc.string(), tie('text')).map(
          (all) =>
            `{${Object.entries(all)
              .filter(([key]) => !/^\d+$/.test(key))
              .map(([key, value]) => `${JSON.stringify(key)}:${value}`)
              .join(',')}}`,
        ),
      ),
    }));
    fc.assert(
      fc.property(text, (value) => {
        for (const pad of ['', far]) {
          const whole = `{"p":"${pad}","v":${value}}`;
          expect(JSON.stringify(parseExact(whole))).toBe(whole);
        }
      }),
    );
  });
});

describe.each([
  ['parseExact', parseExact],
  ['parseJson', parseJson],
])('%s and weight', (_name, parse) => {
  const list = (value: string, count: number) => `{"a":[${Array(count).fill(value).join(',')}]}`;

  it.each([
    ['numbers', '1', 399_000, 400_500],
    ['empty texts', '""', 399_000, 400_500],
    ['arrays', '[]', 79_000, 81_000],
    ['objects', '{"a":1}', 23_000, 24_000],
  ])('reads many %s, and refuses more without reading them', (_title, value, few, many) => {
    expect(parse(list(value, few))).toEqual(JSON.parse(list(value, few)));
    expect(() => parse(list(value, many))).toThrow('more values');
  });

  it('counts nothing inside of strings', () => {
    const text = JSON.stringify({ a: '[,{:"'.repeat(200_000) });
    expect(JSON.stringify(parse(text))).toBe(text);
  });
});
