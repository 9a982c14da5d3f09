/** A JSON list of objects as the bytes of its items, which are then read one by one. */
import type { Steps } from './turns.ts';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const OPEN = 0x7b;
const CLOSE = 0x7d;
/** Bytes of one step: a millisecond. */
const STEP_BYTES = 1 << 18;

/** Bytes `[start, end)` of one item. */
export interface ItemRange {
  readonly start: number;
  readonly end: number;
}

/** The offset at which the text is no list of objects. */
export class NoListError extends Error {
  readonly offset: number;

  constructor(offset: number) {
    super('not a list of objects');
    this.offset = offset;
  }
}

const isSpace = (byte: number | undefined): boolean => byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;

/** Whether the first byte that is no white space begins a list. */
export const beginsList = (body: Buffer): boolean => /^[\t\n\r ]*\[/.test(body.subarray(0, 1_024).toString('latin1'));

/**
 * Where the items of a list are. It looks at brackets and quotes only: whether an item is JSON is for whoever reads it to say.
 * At most `most` and one more items are found. Throws `NoListError`.
 */
export function* itemsOfList(body: Buffer, most: number): Steps<ItemRange[]> {
  const items: ItemRange[] = [];
  let at = 0;
  const skipSpace = () => {
    while (isSpace(body[at])) at++;
  };
  skipSpace();
  if (body[at++] !== OPEN_LIST) throw new NoListError(at - 1);
  skipSpace();
  let begun = at;
  if (body[at] !== CLOSE_LIST) {
    for (;;) {
      if (body[at] !== OPEN) throw new NoListError(at);
      const start = at;
      for (let depth = 0; ; ) {
        const byte = body[at];
        if (byte === undefined) throw new NoListError(at);
        if (byte === QUOTE) at = endOfText(body, at);
        else at++;
        if (byte === OPEN || byte === OPEN_LIST) depth++;
        else if ((byte === CLOSE || byte === CLOSE_LIST) && --depth === 0) break;
        if (at - begun >= STEP_BYTES) {
          begun = at;
          yield;
        }
      }
      items.push({ start, end: at });
      if (items.length > most) return items;
      skipSpace();
      if (body[at] !== COMMA) break;
      at++;
      skipSpace();
    }
  }
  if (body[at++] !== CLOSE_LIST) throw new NoListError(at - 1);
  skipSpace();
  if (at !== body.length) throw new NoListError(at);
  return items;
}

/** Just behind the quote that ends the text that begins at `start`. */
function endOfText(body: Buffer, start: number): number {
  for (let at = start; ; ) {
    at = body.indexOf(QUOTE, at + 1);
    if (at < 0) throw new NoListError(body.length);
    let before = at;
    while (body[before - 1] === BACKSLASH) before--;
    if ((at - before) % 2 === 0) return at + 1;
  }
}
