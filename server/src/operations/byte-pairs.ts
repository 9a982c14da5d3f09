import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { brotliDecompress } from 'node:zlib';

/**
 * The byte-pair encoding `o200k_base` of OpenAI (MIT). Its 199,998 tokens are a file of 0.9 MB and take 6 MB when loaded.
 * Text is cut into words by a pattern. A word that is a token is one. Of any other, the neighbours that together are the
 * token of the lowest rank are joined, again and again, until none are a token.
 */
export interface BytePairs {
  /** Tokens of `text`, special tokens as the plain text they are. */
  count(text: string): number;
  /** Numbers of the tokens of `text`. */
  encode(text: string): number[];
  /** The bytes of a token, which may be a part of a character. */
  bytesOf(token: number): Uint8Array;
}

/** Each token, by its rank, after its length in one byte. `server/src/operations/byte-pairs.test.ts` writes it. */
export const RANKS_FILE = new URL('o200k_base.ranks.br', import.meta.url);
/** Words as the encoding defines them. */
const WORD =
  /[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?:'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD]))?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?:'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD]))?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+/gu;
/** Words whose tokens are remembered, and the characters of the longest one. */
const REMEMBERED = 20_000;
const LONGEST = 64;
/** No token at this place of the table. */
const FREE = -1;
const NONE = 0x7fffffff;

/** Reads the file and makes the table: about 20 ms. */
export async function loadBytePairs(): Promise<BytePairs> {
  const file = await promisify(brotliDecompress)(await readFile(RANKS_FILE));
  return bytePairs(file);
}

/** The encoding of a file of ranks. */
function bytePairs(file: Uint8Array): BytePairs {
  let tokens = 0;
  for (let at = 0; at < file.length; at += 1 + (file[at] as number)) tokens++;
  const starts = new Uint32Array(tokens);
  const bits = Math.ceil(Math.log2(tokens * 2));
  const mask = 2 ** bits - 1;
  const table = new Int32Array(mask + 1).fill(FREE);
  for (let at = 0, rank = 0; rank < tokens; rank++) {
    const length = file[at] as number;
    starts[rank] = at + 1;
    let slot = hash(file, at + 1, at + 1 + length) & mask;
    while (table[slot] !== FREE) slot = (slot + 1) & mask;
    table[slot] = rank;
    at += 1 + length;
  }

  /** The token of these bytes, or NONE. */
  function find(bytes: Uint8Array, from: number, to: number): number {
    const length = to - from;
    for (let slot = hash(bytes, from, to) & mask; ; slot = (slot + 1) & mask) {
      const rank = table[slot] as number;
      if (rank === FREE) return NONE;
      const start = starts[rank] as number;
      if (file[start - 1] !== length) continue;
      let i = 0;
      while (i < length && file[start + i] === bytes[from + i]) i++;
      if (i === length) return rank;
    }
  }

  /** Tokens of a word that is none itself. */
  function merge(bytes: Uint8Array, length: number): number[] {
    // Parts of the word: where each begins, and the rank of it joined with the one behind it.
    const parts = new Int32Array(length + 1);
    const ranks = new Int32Array(length + 1).fill(NONE);
    let count = length;
    for (let i = 0; i <= length; i++) parts[i] = i;
    for (let i = 0; i + 1 < length; i++) ranks[i] = find(bytes, i, i + 2);
    for (;;) {
      let best = NONE;
      let at = 0;
      for (let i = 0; i + 1 < count; i++) {
        const rank = ranks[i] as number;
        if (rank < best) {
          best = rank;
          at = i;
        }
      }
      if (best === NONE) break;
      parts.copyWithin(at + 1, at + 2, count + 1);
      ranks.copyWithin(at, at + 1, count);
      count--;
      const joined = (i: number) => (i + 1 < count ? find(bytes, parts[i] as number, parts[i + 2] as number) : NONE);
      ranks[at] = joined(at);
      if (at > 0) ranks[at - 1] = joined(at - 1);
    }
    const out = new Array<number>(count);
    for (let i = 0; i < count; i++) out[i] = find(bytes, parts[i] as number, parts[i + 1] as number);
    return out;
  }

  const remembered = new Map<string, number | readonly number[]>();
  let buffer = Buffer.allocUnsafe(1024);

  /** The token of a word, or its tokens. */
  function tokensOf(word: string): number | readonly number[] {
    const known = remembered.get(word);
    if (known !== undefined) return known;
    if (buffer.length < word.length * 3) buffer = Buffer.allocUnsafe(word.length * 3);
    const length = buffer.write(word);
    const whole = length < 256 ? find(buffer, 0, length) : NONE;
    const found = whole === NONE ? merge(buffer, length) : whole;
    if (word.length <= LONGEST) {
      if (remembered.size >= REMEMBERED) remembered.clear();
      remembered.set(word, found);
    }
    return found;
  }

  return {
    count(text) {
      let sum = 0;
      for (const word of text.match(WORD) ?? []) {
        const found = tokensOf(word);
        sum += typeof found === 'number' ? 1 : found.length;
      }
      return sum;
    },
    encode(text) {
      const out: number[] = [];
      for (const word of text.match(WORD) ?? []) {
        const found = tokensOf(word);
        if (typeof found === 'number') out.push(found);
        else for (const token of found) out.push(token);
      }
      return out;
    },
    bytesOf(token) {
      const start = starts[token] ?? 0;
      return file.subarray(start, start + (file[start - 1] ?? 0));
    },
  };
}

/** FNV-1a, with its high bits mixed in. */
function hash(bytes: Uint8Array, from: number, to: number): number {
  let value = 0x811c9dc5;
  for (let i = from; i < to; i++) value = Math.imul(value ^ (bytes[i] as number), 0x01000193);
  return value ^ (value >>> 15);
}
