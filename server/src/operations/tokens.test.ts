// Own process: nothing may have asked for the encoding before.
import fc from 'fast-check';
import { countTokens as reference } from 'gpt-tokenizer/encoding/o200k_base';
import { describe, expect, it } from 'vitest';
import { countTokens, countTokensSync, estimateTokens, loadTokenizer } from './tokens.ts';

const plain = { disallowedSpecial: new Set<string>() };
const truth = (text: string): number => reference(text, plain);

/** Prose of several scripts, long enough to be counted in slices. */
const PROSE =
  'Der Hase läuft — "schnell"! 日本語の文章です。 Ещё раз, don’t stop; 12345.678 units\n\n\t{"key": [1,2,3]} '.repeat(
    700,
  );

describe('token counts', () => {
  it('nothing is counted before the encoding is asked for', () => {
    expect(countTokensSync('hello')).toBeNull();
  });

  it('are those of gpt-tokenizer, special tokens as plain text', async () => {
    for (const text of ['', 'hello world', '<|endoftext|>', '日本語 🎉', 'x'.repeat(3000), PROSE]) {
      expect(await countTokens(text)).toBe(truth(text));
      expect(countTokensSync(text)).toBe(truth(text));
    }
  });

  it('slices add up, whatever the text', async () => {
    const word = fc.oneof(
      fc.string({ unit: 'grapheme', maxLength: 8 }),
      fc.constantFrom('the', "don't", "L'ÉTÉ", '你好', '  ', '\n\n', '...', '٣٤', 'naïve', "'s", '’ve'),
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(word, { minLength: 5, maxLength: 40 }),
        fc.constantFrom(' ', '', '\n'),
        async (words, joint) => {
          const text = `${words.join(joint)} and `.repeat(Math.ceil(40_000 / (words.join(joint).length + 5)));
          expect(await countTokens(text)).toBe(truth(text));
        },
      ),
      { numRuns: 25 },
    );
  });

  it('pieces join to the text, their counts to the total', async () => {
    const { pieces } = await loadTokenizer();
    for (const text of ['', 'hello big world', '👩‍👩‍👧 日本語', PROSE]) {
      for (const group of [1, 3, 1000]) {
        const all = [...pieces(text, group)];
        expect(all.map((piece) => piece.text).join('')).toBe(text);
        expect(all.reduce((sum, piece) => sum + piece.tokens, 0)).toBe(truth(text));
      }
    }
  });

  it('long runs without a word end are counted in time and nearly exactly', async () => {
    const text = '7'.repeat(200_000);
    const counted = await countTokens(text);
    expect(Math.abs(counted - Math.ceil(200_000 / 3))).toBeLessThan(100);
  });

  it('the estimate is four bytes a token', () => {
    expect(estimateTokens(0)).toBe(0);
    expect(estimateTokens(9)).toBe(3);
  });
});
