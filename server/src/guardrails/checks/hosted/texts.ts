/** How texts are cut and put together for services that take so much at a time. */
import type { TextPart } from '../../check.ts';

/** A stretch of a text, short enough for the service. */
export interface Piece {
  readonly part: TextPart;
  /** Where it begins in the text. */
  readonly start: number;
  readonly text: string;
}

/** What one call may hold, in UTF-16 units: never fewer than the service counts, whatever its unit. */
export interface Limits {
  /** Longest piece. */
  readonly piece: number;
  /** All pieces of one call, with what stands between them. */
  readonly call: number;
  /** Pieces of one call. */
  readonly most: number;
  /**
   * How much of a piece the next one of the same text repeats, so that what lies on a cut is seen whole. 0 where the service
   * sends masked texts back: they are put together again.
   */
  readonly overlap: number;
  /** Texts of different groups do not share a call. */
  readonly group?: (part: TextPart) => string;
}

/** Calls for one judgement. A text that needs more fails the check: no caller passes by writing more. */
export const MAX_CALLS = 40;

/** Between texts that are sent as one. */
export const BETWEEN = '\n\n';

export const joined = (pieces: readonly Piece[]): string => pieces.map(({ text }) => text).join(BETWEEN);

/** From the best place to cut to the worst. */
const SEPARATORS = ['\n\n', '\n', '. ', '? ', '! ', '。', ' '];

/** Where to cut `text` between half of the room and all of it; a character is never cut in two. */
function boundary(text: string, start: number, room: number): number {
  const half = start + (room >> 1);
  const window = text.slice(half, start + room);
  for (const separator of SEPARATORS) {
    const at = window.lastIndexOf(separator);
    if (at >= 0) return half + at + separator.length;
  }
  return whole(text, start + room);
}

/** The offset, or the one before it where it would stand inside a surrogate pair. */
function whole(text: string, at: number): number {
  const [before, after] = [text.charCodeAt(at - 1), text.charCodeAt(at)];
  return before >= 0xd800 && before < 0xdc00 && after >= 0xdc00 && after < 0xe000 ? at - 1 : at;
}

function* cut(part: TextPart, { piece, overlap }: Limits): Generator<Piece> {
  const { text } = part;
  let start = 0;
  while (text.length - start > piece) {
    const end = boundary(text, start, piece);
    yield { part, start, text: text.slice(start, end) };
    start = whole(text, Math.max(end - overlap, start + 1));
  }
  yield { part, start, text: start === 0 ? text : text.slice(start) };
}

/** The pieces of each call, in order; null when there would be too many. Texts of white space are not sent. */
export function calls(texts: readonly TextPart[], limits: Limits): Piece[][] | null {
  const out: Piece[][] = [];
  const open = new Map<string, { readonly pieces: Piece[]; length: number }>();
  for (const part of texts) {
    if (part.text.trim() === '') continue;
    const group = limits.group?.(part) ?? '';
    for (const piece of cut(part, limits)) {
      const added = piece.text.length + BETWEEN.length;
      const call = open.get(group);
      if (call !== undefined && call.pieces.length < limits.most && call.length + added <= limits.call) {
        call.pieces.push(piece);
        call.length += added;
        continue;
      }
      if (out.length === MAX_CALLS) return null;
      const pieces = [piece];
      out.push(pieces);
      open.set(group, { pieces, length: piece.text.length });
    }
  }
  return out;
}

/** A place that a service named and that no piece has. */
export const NOWHERE = { piece: -1, start: 0, end: 0 } as const;

/** A stretch of pieces joined to one text, as stretches of the pieces. */
export function placed(
  pieces: readonly Piece[],
  start: number,
  end: number,
): { readonly piece: number; readonly start: number; readonly end: number }[] {
  const out: { piece: number; start: number; end: number }[] = [];
  let at = 0;
  pieces.forEach(({ text }, piece) => {
    const [from, to] = [Math.max(start - at, 0), Math.min(end - at, text.length)];
    if (from < to) out.push({ piece, start: from, end: to });
    at += text.length + BETWEEN.length;
  });
  return out;
}

/** Offsets that count code points as offsets that count UTF-16 units, and back. */
export function codePoints(text: string): { toUnits(at: number): number; toPoints(at: number): number } {
  if (!/[\ud800-\udfff]/.test(text)) return { toUnits: (at) => at, toPoints: (at) => at };
  const units: number[] = [];
  const points: number[] = [];
  let at = 0;
  for (const character of text) {
    for (let i = 0; i < character.length; i++) points.push(units.length);
    units.push(at);
    at += character.length;
  }
  points.push(units.length);
  units.push(at);
  return { toUnits: (point) => units[point] ?? -1, toPoints: (unit) => points[unit] ?? -1 };
}
