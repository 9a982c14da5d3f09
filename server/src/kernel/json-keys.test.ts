import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { JsonScanError, KeyIndex } from './json-keys.ts';

/** Whether the keys, each given to one of two objects, hold a duplicate according to the index. */
function duplicate(keys: readonly (readonly [string, number, boolean])[], budget?: number): boolean {
  const written = keys.map(([key, , escaped]) => {
    if (!escaped) return JSON.stringify(key).slice(1, -1);
    return [...key]
      .flatMap((char) => [...char.split('')].map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`))
      .join('');
  });
  const body = Buffer.from(written.join(''));
  const index = new KeyIndex(Buffer.concat([body, Buffer.alloc(keys.length * 5)]), 20_000, budget);
  let at = 0;
  try {
    keys.forEach(([key, owner], k) => {
      const text = written[k] ?? '';
      const end = at + Buffer.byteLength(text);
      if (text.includes('\\')) expect(index.addEscaped(owner, at, end).toString()).toBe(key);
      else index.add(owner, at, end);
      at = end;
    });
    index.finish();
    return false;
  } catch (error) {
    if (error instanceof JsonScanError && error.reason === 'duplicate_key') return true;
    throw error;
  }
}

const entries = fc.array(
  fc.tuple(
    fc.oneof(fc.stringMatching(/^[a-d]{0,3}$/), fc.constantFrom('é', '😀', '\u0000', '\b\f\n\r\t"\\/', '\uffff')),
    fc.constantFrom(0, 1),
    fc.boolean(),
  ),
  { maxLength: 40 },
);

describe('KeyIndex', () => {
  it('finds duplicates by table and, past its probe budget, by sorting, with the same verdict', () => {
    fc.assert(
      fc.property(entries, (keys) => {
        const expected = new Set(keys.map(([key, owner]) => `${owner} ${key}`)).size < keys.length;
        expect(duplicate(keys)).toBe(expected);
        expect(duplicate(keys, -1)).toBe(expected);
        expect(duplicate(keys, 0)).toBe(expected);
      }),
      { numRuns: 5000 },
    );
  });

  it('bounds the cost of sorting 20,000 keys with a long common prefix', () => {
    const prefix = 'p'.repeat(1000);
    const keys = Array.from({ length: 20_000 }, (_, k) => [`${prefix}${k}`, 0, false] as const);
    // CPU time and the best of three: the machine may be busy with other things.
    const spent = Array.from({ length: 3 }, () => {
      const fresh = [...keys];
      const before = process.cpuUsage();
      expect(duplicate(fresh, -1)).toBe(false);
      return process.cpuUsage(before).user / 1000;
    });
    expect(Math.min(...spent)).toBeLessThan(1_500);
  });
});
