/** The canonical form, where a single answer shows it; `canonical.long.test.ts` draws texts. */
import { describe, expect, it } from 'vitest';
import { canonicalTail } from './canonical.ts';

describe('the tail of a text', () => {
  it.each([
    ['plain letters', 'hello world', 5, 'world'],
    ['letters with accents of their own', 'ab e\u0301e\u0301', 2, 'e\u0301e\u0301'],
    ['characters of two units', 'ab\u{1f600}\u{1f601}', 1, '\u{1f601}'],
    ['a text that is shorter', 'abc', 5, 'abc'],
    ['a shorter one with accents', 'e\u0301', 5, 'e\u0301'],
    ['no text', '', 5, ''],
  ])('has as many characters as were asked for: %s', (_what, text, length, tail) => {
    expect(text.slice(canonicalTail(text, length))).toBe(tail);
  });
});
