import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ObjectEnd } from './chat-calls.ts';

const fed = (pieces: readonly string[]): boolean => {
  const end = new ObjectEnd();
  for (const piece of pieces) end.feed(piece);
  return end.complete;
};

describe('the arguments of a streamed call', () => {
  it.each(['{"a":"}', '{"a":"}"', '{"a":"\\"}', '{"a":[1,2]', '{"a":{"b":"]}"}', ''])('%j is not complete', (text) => {
    expect(fed([text])).toBe(false);
  });

  it('are complete with the last character of the object and not before, wherever the pieces were cut', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.integer({ min: 1, max: 5 }), (value, size) => {
        const text = JSON.stringify(value);
        const pieces = text.match(new RegExp(`[^]{1,${size}}`, 'g')) ?? [];
        expect(fed(pieces)).toBe(true);
        expect(fed([text.slice(0, -1)])).toBe(false);
      }),
    );
  });
});
