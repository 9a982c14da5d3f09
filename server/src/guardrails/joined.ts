/**
 * Texts of one message that follow each other. A model reads two text parts as one text, so a word that is split over them must be
 * found, too. A message with one text part has none and costs nothing.
 */
import type { Subject, TextPart } from './check.ts';

/** A stretch of one part. */
export interface Stretch {
  readonly part: TextPart;
  readonly start: number;
  readonly end: number;
}

/** Two or more text parts as one text. */
export interface JoinedText {
  readonly text: string;
  /** The stretches of the parts that hold a place of `text`, in order. */
  stretches(start: number, end: number): readonly Stretch[];
}

const NONE: readonly JoinedText[] = [];
const LISTED = /^(.+)\[(\d+)\]\.text$/;
/** Several checks judge one subject. */
const MADE = new WeakMap<readonly TextPart[], readonly JoinedText[]>();

/** Adjacent text parts of each message or answer, joined. Windows of streams are of one part. */
export function joinedTexts({ texts, window }: Subject): readonly JoinedText[] {
  if (texts.length < 2 || window !== null) return NONE;
  let made = MADE.get(texts);
  if (made === undefined) {
    made = runsOf(texts).map(joined);
    MADE.set(texts, made);
  }
  return made;
}

function runsOf(texts: readonly TextPart[]): readonly (readonly TextPart[])[] {
  const open = new Map<string, { next: number; readonly parts: TextPart[] }>();
  const runs: TextPart[][] = [];
  for (const part of texts) {
    const [, list, at] = part.path.endsWith('].text') ? (LISTED.exec(part.path) ?? []) : [];
    if (list === undefined) continue;
    const index = Number(at);
    const run = open.get(list);
    if (run !== undefined && run.next === index) {
      if (run.parts.length === 1) runs.push(run.parts);
      run.parts.push(part);
      run.next += 1;
    } else open.set(list, { next: index + 1, parts: [part] });
  }
  return runs;
}

function joined(parts: readonly TextPart[]): JoinedText {
  const ends: number[] = [];
  let length = 0;
  for (const { text } of parts) {
    length += text.length;
    ends.push(length);
  }
  return {
    text: parts.map(({ text }) => text).join(''),
    stretches(start, end) {
      let low = 0;
      for (let high = ends.length - 1; low < high; ) {
        const middle = (low + high) >> 1;
        if ((ends[middle] ?? 0) > start) high = middle;
        else low = middle + 1;
      }
      const out: Stretch[] = [];
      for (let i = low; i < parts.length; i++) {
        const part = parts[i];
        const from = i === 0 ? 0 : (ends[i - 1] ?? 0);
        if (part === undefined || from >= end) break;
        if (part.text !== '')
          out.push({ part, start: Math.max(0, start - from), end: Math.min(end - from, part.text.length) });
      }
      return out;
    },
  };
}
