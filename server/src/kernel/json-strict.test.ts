import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { leastCost } from '../../test/support/cost.ts';
import { parseStrictObject } from './json-strict.ts';

const parse = (text: string) => parseStrictObject(Buffer.from(text));

describe('strict JSON', () => {
  it('is what JSON.parse makes of any object without a repeated name', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 5 })), (value) => {
        const text = JSON.stringify(value);
        expect(parse(text)).toEqual(JSON.parse(text));
      }),
      { numRuns: 300 },
    );
  });

  it('has no name twice in one object, wherever it is and however it is written', () => {
    const escaped = (name: string) =>
      [...name].map((char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
    const name = fc.string({ unit: 'binary-ascii', minLength: 1, maxLength: 6 });
    const wrap = fc.array(fc.constantFrom<[string, string]>(['[', ']'], ['{"x":', '}'], ['[{"y":1},', ']']), {
      maxLength: 6,
    });
    fc.assert(
      fc.property(name, fc.jsonValue(), wrap, fc.boolean(), (twice, value, around, plain) => {
        const second = plain ? JSON.stringify(twice) : `"${escaped(twice)}"`;
        const inner = `{${JSON.stringify(twice)}:${JSON.stringify(value)},"other":{},${second}:1}`;
        const text = around.reduce((made, [open, close]) => open + made + close, inner);
        expect(parse(`{"outer":${text}}`)).toBeNull();
      }),
      { numRuns: 300 },
    );
  });

  it('is read or refused, and never throws, whatever the bytes are', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        const found = parseStrictObject(bytes);
        expect(found === null || typeof found === 'object').toBe(true);
      }),
      { numRuns: 1_000 },
    );
    for (const text of [
      '',
      '[]',
      'null',
      '1',
      '"a"',
      '{"a":1}x',
      '{"a":1,}',
      '\uFEFF{}',
      `{"a":${'['.repeat(40)}${']'.repeat(40)}}`,
    ])
      expect(parse(text)).toBeNull();
    expect(parse('{"a":"\\"a\\":1","b":[{"a":1},{"a":2}]}')).toEqual({ a: '"a":1', b: [{ a: 1 }, { a: 2 }] });
    expect(Object.hasOwn(parse('{"__proto__":{"x":1}}') ?? {}, '__proto__')).toBe(true);
    expect(({} as { x?: unknown }).x).toBeUndefined();
  });

  it('takes no more than 3 ms for the worst 16 KB: work that grew with the square would take a hundred', () => {
    const length = 16_000;
    for (const text of [
      `{${Array.from({ length: length / 8 }, (_, i) => `"${String(i).padStart(4, '0')}":1`).join()}}`,
      `{"a":"${'\\"'.repeat(length / 2)}"}`,
      `{${Array.from({ length: length / 16 }, (_, i) => `"\\u0061${String(i).padStart(5, '0')}":1`).join()}}`,
      `{"a":[${'{},'.repeat(length / 3)}{}]}`,
      `{"a":${'['.repeat(length)}`,
    ]) {
      const bytes = Buffer.from(text);
      expect(leastCost(() => parseStrictObject(bytes), { least: 3_000, rounds: 20, calls: 5 })).toBeLessThan(3_000);
    }
  });
});
