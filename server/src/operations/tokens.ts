import { setImmediate as turn } from 'node:timers/promises';
import { type BytePairs, loadBytePairs } from './byte-pairs.ts';

/**
 * True token counts with the encoding `o200k_base`. It takes 7 MB, so nothing here loads it before the first count is
 * asked for.
 */

/** A run of text and how many tokens it stands for; a character split over tokens comes whole with the last of them. */
export interface Piece {
  readonly text: string;
  readonly tokens: number;
}

export interface Tokenizer {
  /** Tokens of `text`, blocking; special tokens such as `<|endoftext|>` count as the plain text they are. */
  count(text: string): number;
  /** `text` in pieces of `group` tokens, encoded slice by slice as they are asked for. */
  pieces(text: string, group: number): Iterable<Piece>;
}

/** Characters encoded in one go: about a millisecond of prose. */
const SLICE = 16_384;
/** Without any boundary the encoding's time grows with the square of the length. */
const HARD_SLICE = 4_096;
const LETTER = /\p{L}/u;
const GOES_ON = /[\p{L}\p{M}'’]/u;

/**
 * Where to cut `text` at or before `from + SLICE` so that the counts of both sides add up: a letter followed by
 * something that no word contains always ends a word of the encoding. Text without such a place (one long run of
 * digits, say) is cut hard, which may miscount by two tokens a cut.
 */
function sliceEnd(text: string, from: number): number {
  if (text.length - from <= HARD_SLICE) return text.length;
  const last = Math.min(text.length - 1, from + SLICE);
  for (let at = last; at > from; at--) {
    if (!GOES_ON.test(text.charAt(at)) && LETTER.test(text.charAt(at - 1))) return at;
  }
  const hard = from + HARD_SLICE;
  const code = text.charCodeAt(hard);
  return code >= 0xdc00 && code <= 0xdfff ? hard - 1 : hard;
}

let loading: Promise<Tokenizer> | null = null;
let loaded: Tokenizer | null = null;

async function load(): Promise<Tokenizer> {
  const encoding = await loadBytePairs();
  loaded = {
    count(text) {
      let sum = 0;
      for (let from = 0; from < text.length; ) {
        const end = sliceEnd(text, from);
        sum += encoding.count(text.slice(from, end));
        from = end;
      }
      return sum;
    },
    *pieces(text, group) {
      for (let from = 0; from < text.length; ) {
        const end = sliceEnd(text, from);
        yield* piecesOf(text.slice(from, end), group, encoding);
        from = end;
      }
    },
  };
  return loaded;
}

function* piecesOf(slice: string, group: number, encoding: BytePairs): Iterable<Piece> {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  let text = '';
  let tokens = 0;
  /** Bytes that the last character still lacks. */
  let lacks = 0;
  for (const token of encoding.encode(slice)) {
    const bytes = encoding.bytesOf(token);
    for (const byte of bytes)
      lacks = lacks > 0 ? lacks - 1 : byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : byte >= 0xc0 ? 1 : 0;
    text += decoder.decode(bytes, { stream: true });
    tokens += 1;
    if (lacks > 0 || tokens < group) continue;
    yield { text, tokens };
    text = '';
    tokens = 0;
  }
  if (tokens > 0) yield { text, tokens };
}

/** Loads the encoding once. */
export function loadTokenizer(): Promise<Tokenizer> {
  loading ??= load();
  return loading;
}

/** The encoding where this thread has loaded it already, else null. */
export const loadedTokenizer = (): Tokenizer | null => loaded;

/** Characters of short texts that were counted since the event loop had a turn. */
let since = 0;

/** Tokens of `text`. Long texts, and many short ones, are counted with turns of the event loop in between. */
export async function countTokens(text: string): Promise<number> {
  const { count } = await loadTokenizer();
  since += text.length;
  if (since > SLICE) {
    since = 0;
    await turn();
  }
  if (text.length <= SLICE) return count(text);
  let sum = 0;
  for (let from = 0; from < text.length; ) {
    const end = sliceEnd(text, from);
    sum += count(text.slice(from, end));
    from = end;
    await turn();
  }
  return sum;
}

/** The same at once, or null while the encoding is not loaded. Blocks about 40 ms for each megabyte of prose. */
export function countTokensSync(text: string): number | null {
  return loaded === null ? null : loaded.count(text);
}

/** A cheap guess for what nobody counted: four bytes a token, the mean of English prose and JSON. */
export function estimateTokens(bytes: number): number {
  return Math.ceil(bytes / 4);
}
