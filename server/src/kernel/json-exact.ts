import type { JsonValue } from './json.ts';

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

/**
 * As deep as the scanner reads at most. A thousand times the time per byte that any other text takes is what `JSON.parse` needs
 * for brackets within brackets: megabytes of them would stop the process for seconds, and overflow the stack of what walks
 * the value.
 */
const MAX_DEPTH = 1024;
/**
 * What a text may weigh that is parsed in the event loop: about 20 ms of `JSON.parse` at its worst. A value counts 1, an object or
 * array 4, a member 12, an integer that no double holds 50; so 400,000 numbers, or 23,000 objects with one member each.
 */
export const MAX_WEIGHT = 400_000;
export const CONTAINER_WEIGHT = 4;
export const MEMBER_WEIGHT = 12;
export const LONG_WEIGHT = 49;
/** Characters of one number, of one key, and of all that is looked at one by one. */
const MAX_NUMBER = 4096;
const MAX_KEY = 1024 * 1024;
const MAX_BARE = 8 * 1024 * 1024;
/** Shorter texts are neither too deep nor too heavy, whatever they hold. */
const SMALL = 2 * MAX_DEPTH;

const QUOTE = 34;
const BACKSLASH = 92;

/** Characters behind an escaped quote that are looked at one by one: where there is one there are often more. */
const NEAR = 256;

/** Index of the quote that ends the string which begins at `start`; -1 without one. */
function endOfString(text: string, start: number): number {
  let at = start;
  for (;;) {
    at = text.indexOf('"', at + 1);
    if (at < 0) return -1;
    let before = at;
    while (text.charCodeAt(before - 1) === BACKSLASH) before--;
    if ((at - before) % 2 === 0) return at;
    for (const last = at + NEAR; at < last; ) {
      const c = text.charCodeAt(++at);
      if (c === QUOTE) return at;
      if (c === BACKSLASH) at++;
      // Behind the end there is nothing.
      else if (Number.isNaN(c)) return -1;
    }
  }
}

/** A text that was not read because of its nesting or its weight: it may be JSON for others. */
export class UnreadJsonError extends SyntaxError {}

const tooHeavy = () => new UnreadJsonError('The JSON has more values, or more white space, than are read.');

/** An integer no double holds, or a number that would become infinite, with the keys and indexes that lead to it. */
interface Exact {
  readonly source: string;
  readonly path: readonly (string | number)[];
}

const NONE: readonly Exact[] = [];
/** Of the containers that are open: the key's first character in an object, how many commas were seen in an array. */
const opened = new Uint8Array(MAX_DEPTH + 1);
const places = new Int32Array(MAX_DEPTH + 1);

/**
 * Looks at all that stands outside of strings before anything is made of it. Finds the numbers that `JSON.parse` would change;
 * of a text that is no JSON, anything. Throws UnreadJsonError.
 */
function walk(text: string, most: number): readonly Exact[] {
  let exact = NONE as Exact[];
  let depth = 0;
  let weight = 0;
  let bare = 0;
  let lastString = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (++bare > MAX_BARE) throw tooHeavy();
    if (c <= 32) continue;
    if (c === QUOTE) {
      lastString = i;
      i = endOfString(text, i);
      if (i < 0) return NONE;
    } else if (c === 44) {
      weight += 1;
      // Of an object the next key takes its place.
      if (opened[depth] === 91) (places[depth] as number)++;
    } else if (c === 58) {
      if (i - lastString > MAX_KEY) throw tooHeavy();
      places[depth] = lastString;
      weight += MEMBER_WEIGHT;
    } else if ((c | 32) === 123) {
      // `{` and `[` differ from `}` and `]` by the same two, and from all else that stands outside of strings.
      if (++depth > MAX_DEPTH) throw new UnreadJsonError(`The JSON is nested deeper than ${MAX_DEPTH} levels.`);
      opened[depth] = c;
      places[depth] = 0;
      weight += CONTAINER_WEIGHT;
    } else if ((c | 32) === 125) {
      if (--depth < 0) return NONE;
    } else if (c === 45 || isDigit(c)) {
      const from = i;
      let plain = true;
      let grows = false;
      for (;;) {
        const next = text.charCodeAt(i + 1);
        if (next === 46) plain = false;
        else if ((next | 32) === 101) {
          plain = false;
          grows = text.charCodeAt(i + 2) !== 45;
        } else if (!isDigit(next) && next !== 43 && next !== 45) break;
        i++;
        if (i - from > MAX_NUMBER) throw new UnreadJsonError('The JSON has a number that is too long.');
      }
      if (plain ? i - from + 1 < LONG : !grows) continue;
      const source = text.slice(from, i + 1);
      const value = Number(source);
      if (Number.isFinite(value) && (!plain || String(value) === source || source === '-0')) continue;
      weight += LONG_WEIGHT;
      if (exact === NONE) exact = [];
      exact.push({ source, path: pathOf(text, depth) });
    }
    if (weight > most) throw tooHeavy();
  }
  return exact;
}

function pathOf(text: string, depth: number): (string | number)[] {
  const path: (string | number)[] = [];
  for (let level = 1; level <= depth; level++) {
    const place = places[level] as number;
    path.push(opened[level] === 91 ? place : keyAt(text, place));
  }
  return path;
}

function keyAt(text: string, start: number): string {
  const key = text.slice(start, endOfString(text, start) + 1);
  try {
    return JSON.parse(key) as string;
  } catch {
    return '';
  }
}

/** The value with the numbers whose text would change on the way through a double as raw JSON, which is written back verbatim. */
function restored(value: JsonValue, exact: readonly Exact[]): JsonValue {
  const holder: { root: JsonValue } = { root: value };
  for (const { source, path } of exact) {
    let at = holder as unknown as Record<string | number, JsonValue>;
    let last: string | number = 'root';
    for (const key of path) {
      at = at[last] as unknown as Record<string | number, JsonValue>;
      last = key;
      if (typeof at !== 'object' || at === null) break;
    }
    // Of a name that an object has twice the second value counts, which may be another.
    if (typeof at === 'object' && at !== null && at[last] === Number(source)) at[last] = rawJSON(source);
  }
  return holder.root;
}

/** Whether a text is nested too deeply to be read, or weighs more than `most`. */
export function isTooHeavy(text: string, most: number): boolean {
  try {
    walk(text, most);
    return false;
  } catch {
    return true;
  }
}

/**
 * `JSON.parse` for what somebody else wrote and nobody has scanned. Throws SyntaxError, also (`UnreadJsonError`) for what is nested
 * too deeply or weighs more than `most`: a megabyte of empty arrays would hold the event loop for a second.
 */
export function parseJson(text: string, most = MAX_WEIGHT): JsonValue {
  if (text.length > SMALL) walk(text, most);
  return JSON.parse(text) as JsonValue;
}

/**
 * `parseJson` that keeps big integers: a number a double cannot hold becomes a raw JSON value, which
 * `JSON.stringify` writes back digit by digit. Costs one pass over the text more than `JSON.parse`. Throws SyntaxError.
 */
export function parseExact(text: string, most = MAX_WEIGHT): JsonValue {
  if (text.length <= SMALL && !hasLongNumber(text)) return JSON.parse(text) as JsonValue;
  const exact = walk(text, most);
  const value = JSON.parse(text) as JsonValue;
  return exact.length === 0 ? value : restored(value, exact);
}
