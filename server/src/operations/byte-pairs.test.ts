import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { brotliCompressSync, brotliDecompressSync, constants } from 'node:zlib';
import fc from 'fast-check';
import { encode as reference } from 'gpt-tokenizer/encoding/o200k_base';
import { expect, it } from 'vitest';
import { loadBytePairs, RANKS_FILE } from './byte-pairs.ts';

const PLAIN = { disallowedSpecial: new Set<string>() };
const PUBLISHED = join(
  dirname(createRequire(import.meta.url).resolve('gpt-tokenizer/package.json')),
  'data/o200k_base.tiktoken',
);

/** Each token in order of its rank, after its length in one byte. */
function published(): Buffer {
  const parts: Buffer[] = [];
  for (const [rank, line] of readFileSync(PUBLISHED, 'utf8').trim().split('\n').entries()) {
    const [text = '', number] = line.split(' ');
    const bytes = Buffer.from(text, 'base64');
    if (Number(number) !== rank || bytes.length === 0 || bytes.length > 255) throw new Error(`line ${rank}: ${line}`);
    parts.push(Buffer.of(bytes.length), bytes);
  }
  return Buffer.concat(parts);
}

it('the file of ranks is the published one (SLUICE_WRITE_RANKS=1 writes it)', () => {
  expect(existsSync(PUBLISHED)).toBe(true);
  const expected = published();
  if (process.env.SLUICE_WRITE_RANKS === '1') {
    const params = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
    writeFileSync(RANKS_FILE, brotliCompressSync(expected, { params }));
  }
  expect(brotliDecompressSync(readFileSync(RANKS_FILE)).equals(expected)).toBe(true);
});

it('every text has the tokens that gpt-tokenizer gives it', async () => {
  const { count, encode } = await loadBytePairs();
  const part = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 12 }),
    fc.string({ unit: 'grapheme', maxLength: 12 }),
    fc.string({ unit: 'grapheme-ascii', maxLength: 20 }),
    fc.constantFrom(
      'the ',
      "DON'T",
      '’ve',
      '你好世界',
      '\r\n',
      '   ',
      '12345',
      '👩‍👩‍👧',
      '<|endoftext|>',
      '\ud800',
      '//\n',
    ),
  );
  fc.assert(
    fc.property(fc.array(part, { maxLength: 12 }), (parts) => {
      const text = parts.join('');
      const expected = reference(text, PLAIN);
      expect(encode(text)).toEqual(expected);
      expect(count(text)).toBe(expected.length);
    }),
    { numRuns: 3_000 },
  );
});

it('the bytes of the tokens are those of the text', async () => {
  const { encode, bytesOf } = await loadBytePairs();
  for (const text of ['', 'plain words', 'naïve 日本語 🎉👩‍👩‍👧', '\u0000\ufeff', 'x'.repeat(2_000)]) {
    expect(Buffer.concat(encode(text).map(bytesOf)).toString()).toBe(text);
  }
});
