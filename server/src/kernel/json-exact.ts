import type { JsonValue } from './json.ts';

type Reviver = (key: string, value: unknown, context: { source?: string }) => unknown;
const parseWithSource = JSON.parse as (text: string, reviver: Reviver) => JsonValue;
/** ES2026, in Node.js since 21; absent from the type library in use. */
const { rawJSON } = JSON as unknown as { rawJSON(text: string): JsonValue };

/** Doubles hold every integer of 15 digits; only longer runs of digits can lose precision. */
const LONG = 16;

const isDigit = (code: number): boolean => code >= 48 && code <= 57;

/** A run of 16 digits covers a position that is a multiple of 16, so only every 16th character is looked at. */
function hasLongNumber(text: string): boolean {
  for (let i = LONG - 1; i < text.length; i += LONG) {
    if (!isDigit(text.charCodeAt(i))) continue;
    let from = i;
    let to = i;
    while (from > 0 && isDigit(text.charCodeAt(from - 1))) from--;
    while (to + 1 < text.length && isDigit(text.charCodeAt(to + 1))) to++;
    if (to - from + 1 >= LONG) return true;
  }
  return false;
}

/** A number whose text would change on the way through a double, as a raw JSON value that is written back verbatim. */
const keep: Reviver = (_key, value, context) => {
  if (typeof value !== 'number' || context.source === undefined) return value;
  if (!Number.isFinite(value)) return rawJSON(context.source);
  const plain = !/[.eE]/.test(context.source);
  return plain && String(value) !== context.source && context.source !== '-0' ? rawJSON(context.source) : value;
};

/**
 * As deep as the scanner reads at most. A thousand times the time per byte that any other text takes is what `JSON.parse` needs
 * for brackets within brackets: megabytes of them would stop the process for seconds, and overflow the stack of what walks
 * the value.
 */
const MAX_DEPTH = 1024;
const QUOTE = 34;
const BACKSLASH = 92;

/** Whether brackets stand within more than `MAX_DEPTH` others; of a text that is no JSON, anything. */
function isTooDeep(text: string): boolean {
  if (text.length <= 2 * MAX_DEPTH) return false;
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === QUOTE) {
      i = endOfString(text, i);
      if (i < 0) return false;
      // `{` and `[` differ from `}` and `]` by the same two, and from all else that stands outside of strings.
    } else if ((c | 32) === 123) {
      if (++depth > MAX_DEPTH) return true;
    } else if ((c | 32) === 125) depth--;
  }
  return false;
}

/** Index of the quote that ends the string which begins at `start`; -1 without one. */
function endOfString(text: string, start: number): number {
  let at = start;
  for (;;) {
    at = text.indexOf('"', at + 1);
    if (at < 0) return -1;
    let before = at;
    while (text.charCodeAt(before - 1) === BACKSLASH) before--;
    if ((at - before) % 2 === 0) return at;
  }
}

/** A text that was not read because of its nesting: it may be JSON for others. */
export class TooDeepError extends SyntaxError {
  constructor() {
    super(`The JSON is nested deeper than ${MAX_DEPTH} levels.`);
  }
}

/** `JSON.parse` for what somebody else wrote and nobody has scanned. Throws SyntaxError, also for what is nested too deeply. */
export function parseJson(text: string): JsonValue {
  if (isTooDeep(text)) throw new TooDeepError();
  return JSON.parse(text) as JsonValue;
}

/**
 * `parseJson` that keeps big integers: a number a double cannot hold becomes a raw JSON value, which
 * `JSON.stringify` writes back digit by digit. Costs one pass over the text more than `JSON.parse`; only texts with a
 * run of more than 15 digits pay for the reviver. Throws SyntaxError.
 */
export function parseExact(text: string): JsonValue {
  if (isTooDeep(text)) throw new TooDeepError();
  return hasLongNumber(text) ? parseWithSource(text, keep) : (JSON.parse(text) as JsonValue);
}
