import { setImmediate as turn } from 'node:timers/promises';
import { countTokens, loadTokenizer, type Piece } from '../../operations/tokens.ts';
import { LOREM_CYCLE, loremPieces, loremText } from './lorem.ts';

/** A text to answer with, which may be far larger than what should be held in memory. */
export interface Text {
  readonly tokens: number;
  /** Null when the text is only made while it is read. */
  readonly whole: string | null;
  /** It was cut at the token limit. */
  readonly truncated: boolean;
  /** The stop text that ended it, which is not part of it. */
  readonly stop: string | null;
  pieces(group: number): Iterable<Piece>;
}

/** Token limit and stop texts of a request. */
export interface Bounds {
  readonly limit: number | null;
  readonly stops: readonly string[];
}

export const UNBOUND: Bounds = { limit: null, stops: [] };

/** Tokens that are cut off one by one before others get a turn: some milliseconds. */
const TOKENS_OF_TURN = 8_192;
/** Lorem answers above this many tokens are not held in memory. */
const LAZY_TOKENS = 16_384;

function firstStop(text: string, stops: readonly string[]): { at: number; stop: string } | null {
  let best: { at: number; stop: string } | null = null;
  for (const stop of stops) {
    const at = stop === '' ? -1 : text.indexOf(stop);
    if (at !== -1 && (best === null || at < best.at)) best = { at, stop };
  }
  return best;
}

/** `text` within `bounds`. */
export async function textOf(text: string, bounds: Bounds): Promise<Text> {
  const found = firstStop(text, bounds.stops);
  const whole = found === null ? text : text.slice(0, found.at);
  const { pieces } = await loadTokenizer();
  if (bounds.limit !== null) {
    let kept = '';
    let tokens = 0;
    for (const piece of pieces(whole, 1)) {
      // A character that would only fit in part is left out, though its tokens were spent.
      if (tokens + piece.tokens > bounds.limit) return fixed(kept, bounds.limit, true, null);
      kept += piece.text;
      tokens += piece.tokens;
      if (tokens % TOKENS_OF_TURN < piece.tokens) await turn();
    }
    return fixed(whole, tokens, false, found?.stop ?? null);
  }
  return fixed(whole, await countTokens(whole), false, found?.stop ?? null);

  function fixed(kept: string, tokens: number, truncated: boolean, stop: string | null): Text {
    return { tokens, whole: kept, truncated, stop, pieces: (group) => pieces(kept, group) };
  }
}

/** Filler of `tokens` tokens within `bounds`. */
export async function loremOf(tokens: number, bounds: Bounds): Promise<Text> {
  if (bounds.stops.length > 0) {
    // The text repeats itself: what does not occur in the first cycles never occurs.
    const longest = Math.max(...bounds.stops.map((stop) => stop.length));
    const head = loremText(Math.min(tokens, LOREM_CYCLE + longest));
    const found = firstStop(head, bounds.stops);
    if (found !== null) return textOf(head, bounds);
  }
  const truncated = bounds.limit !== null && bounds.limit < tokens;
  const count = truncated ? (bounds.limit ?? tokens) : tokens;
  return {
    tokens: count,
    whole: count > LAZY_TOKENS ? null : loremText(count),
    truncated,
    stop: null,
    pieces: (group) => loremPieces(count, group),
  };
}
