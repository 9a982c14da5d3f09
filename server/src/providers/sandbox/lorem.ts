import type { Piece } from '../../operations/tokens.ts';

/** Every word, with the space before it, and every full stop is exactly one token of `o200k_base`. */
const SENTENCES =
  'Lorem ipsum dolor sit amet consectetur elit. Sed do tempor ut labore et dolore magna aliqua. Ut enim ad minim veniam quis exercitation laboris nisi. Ex ea commodo consequat aute in reprehenderit voluptate. Velit esse eu fugiat nulla pariatur sint non sunt. Culpa qui officia deserunt anim id est laborum.';

const UNITS: readonly string[] = [' ', ...SENTENCES.split(/(?=[ .])/)]
  .slice(1)
  .map((unit, i) => (i === 0 ? ` ${unit}` : unit));
const CYCLE = UNITS.join('');

const unit = (i: number): string => UNITS[i % UNITS.length] ?? '';

/** Bytes of one cycle of the text; it is ASCII. */
export const LOREM_CYCLE = CYCLE.length;

/** How many whole tokens fit into `bytes`, at least one. */
export function loremTokensIn(bytes: number): number {
  // The first word has no space before it.
  const room = bytes + 1;
  const cycles = Math.floor(room / CYCLE.length);
  let tokens = cycles * UNITS.length;
  let left = room - cycles * CYCLE.length;
  for (let i = 0; i < UNITS.length && left >= unit(i).length; i++) {
    left -= unit(i).length;
    tokens += 1;
  }
  return Math.max(1, tokens);
}

/** The first `tokens` tokens of the text, `group` at a time. */
export function* loremPieces(tokens: number, group: number): Generator<Piece> {
  for (let at = 0; at < tokens; at += group) {
    const count = Math.min(group, tokens - at);
    let text = '';
    for (let i = at; i < at + count; i++) text += unit(i);
    yield { text: at === 0 ? text.slice(1) : text, tokens: count };
  }
}

export function loremText(tokens: number): string {
  let text = '';
  for (const piece of loremPieces(tokens, 1024)) text += piece.text;
  return text;
}
