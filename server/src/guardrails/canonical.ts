/**
 * The form in which checks judge texts: Unicode form C (Unicode Standard Annex #15) without default-ignorable code points
 * (Annex #44). A soft hyphen or a zero-width space inside a word hides it from no check. What a check finds is mapped back
 * to the text as it was sent.
 */
import type { Excerpt, Judge, Judgement, Subject, TextPart } from './check.ts';
import { paced } from './checks/support.ts';

/** Characters beyond Latin-1, or the soft hyphen: a text without any is canonical. */
const BEYOND_LATIN = /[\u00ad\u0100-\uffff]/;
const IGNORABLE = /\p{Default_Ignorable_Code_Point}/u;
const IGNORABLES = /\p{Default_Ignorable_Code_Point}+/gu;
/** What may combine with the character before it, or is left out: marks, vowels and finals of Hangul, ignorable ones. */
const JOINS = /[\p{M}\p{Default_Ignorable_Code_Point}\u1160-\u11ff]/u;
/** UTF-16 units that are made canonical before others get a turn. */
const SLICE = 8_192;

/** The canonical form of a short text, such as a parameter; empty where all of it is ignorable. */
export function canonicalText(text: string): string {
  return BEYOND_LATIN.test(text) ? text.replace(IGNORABLES, '').normalize('NFC') : text;
}

/**
 * Where the end of `text` begins that has at least `length` units in canonical form: what combines or is left out does not
 * count. An offset in UTF-16 units, 0 where the whole text is shorter.
 */
export function canonicalTail(text: string, length: number): number {
  let at = text.length;
  if (!BEYOND_LATIN.test(text)) return Math.max(0, at - length);
  for (let left = length; at > 0 && left > 0; ) {
    at -= 1;
    if (at > 0 && /[\udc00-\udfff]/.test(text.charAt(at)) && /[\ud800-\udbff]/.test(text.charAt(at - 1))) at -= 1;
    if (!JOINS.test(String.fromCodePoint(text.codePointAt(at) ?? 0))) left -= 1;
  }
  return at;
}

/** A part in canonical form, with the way back to the text as it was sent. */
class CanonicalPart implements TextPart {
  readonly path: string;
  readonly role: TextPart['role'];
  readonly text: string;
  readonly sent: string;
  /** Runs in order, four numbers each: place in `text`, beginning and end in `sent`, and 1 where both are the same. */
  readonly #runs: readonly number[];

  constructor(part: TextPart, text: string, runs: readonly number[]) {
    this.path = part.path;
    this.role = part.role;
    this.text = text;
    this.sent = part.text;
    this.#runs = runs;
  }

  sentAt(start: number, end: number): { readonly start: number; readonly end: number } {
    return {
      start: this.#place(start, false),
      end: end > start ? this.#place(end - 1, true) : this.#place(start, false),
    };
  }

  /** Beginning or end, in `sent`, of the unit at `offset` of `text`. */
  #place(offset: number, end: boolean): number {
    const runs = this.#runs;
    let low = 0;
    let high = runs.length / 4 - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((runs[middle * 4] ?? 0) <= offset) low = middle;
      else high = middle - 1;
    }
    const from = runs[low * 4 + 1] ?? 0;
    // What was composed or put in order belongs together.
    if (runs[low * 4 + 3] !== 1) return end ? (runs[low * 4 + 2] ?? 0) : from;
    return from + offset - (runs[low * 4] ?? 0) + (end ? 1 : 0);
  }
}

/** Makes one part canonical; itself where it is already. */
function* canonicalPart(part: TextPart): Generator<number, TextPart> {
  const sent = part.text;
  if (!BEYOND_LATIN.test(sent)) return part;
  const pieces: string[] = [];
  const runs: number[] = [];
  let length = 0;
  const put = (piece: string, from: number, to: number): void => {
    const last = runs.length - 4;
    const same = piece.length === to - from && piece === sent.slice(from, to);
    if (same && runs[last + 3] === 1 && runs[last + 2] === from) runs[last + 2] = to;
    else runs.push(length, from, to, same ? 1 : 0);
    pieces.push(piece);
    length += piece.length;
  };
  for (let at = 0; at < sent.length; ) {
    let to = Math.min(sent.length, at + SLICE);
    // A cut between two that combine would keep them apart.
    while (to < sent.length && (JOINS.test(charAt(sent, to)) || /[\udc00-\udfff]/.test(sent.charAt(to)))) to += 1;
    const slice = sent.slice(at, to);
    if (!IGNORABLE.test(slice) && slice.normalize('NFC') === slice) put(slice, at, to);
    else for (const [from, end] of clusters(sent, at, to)) put(canonicalText(sent.slice(from, end)), from, end);
    yield slice.length;
    at = to;
  }
  const text = pieces.join('');
  return text === sent ? part : new CanonicalPart(part, text, runs);
}

const charAt = (text: string, at: number): string => String.fromCodePoint(text.codePointAt(at) ?? 0);

/** Characters with what combines with them, without ignorable ones before and behind. */
function* clusters(text: string, at: number, to: number): Generator<readonly [from: number, end: number], void> {
  for (let next = at; next < to; ) {
    let from = -1;
    let end = next;
    do {
      const character = charAt(text, next);
      next += character.length;
      if (IGNORABLE.test(character)) continue;
      if (from < 0) from = next - character.length;
      end = next;
    } while (next < to && JOINS.test(charAt(text, next)));
    if (from >= 0) yield [from, end];
  }
}

/** Of a part whose `text` is canonical: the text as it was sent, and where a finding is in it. */
export function asSent(part: TextPart): {
  readonly text: string;
  place(start: number, end: number): { readonly start: number; readonly end: number };
} {
  if (!(part instanceof CanonicalPart)) return { text: part.text, place: (start, end) => ({ start, end }) };
  return { text: part.sent, place: (start, end) => part.sentAt(start, end) };
}

/** Several checks judge one subject. */
const MADE = new WeakMap<Subject, Subject | Promise<Subject>>();

/** The subject with canonical texts; itself where all of them are. */
export function canonicalSubject(subject: Subject): Subject | Promise<Subject> {
  if (!subject.texts.some(({ text }) => BEYOND_LATIN.test(text))) return subject;
  const known = MADE.get(subject);
  if (known !== undefined) return known;
  const made = paced(
    (function* (): Generator<number, Subject> {
      const texts: TextPart[] = [];
      for (const part of subject.texts) texts.push(yield* canonicalPart(part));
      if (texts.every((part, i) => part === subject.texts[i])) return subject;
      let latest: string | null = null;
      // Methods and getters of the subject stay its own.
      return Object.create(subject, {
        texts: { value: texts, enumerable: true },
        latest: {
          value: () => {
            latest ??= canonicalText(subject.latest());
            return latest;
          },
        },
      }) as Subject;
    })(),
  );
  MADE.set(subject, made);
  return made;
}

/** A judge that sees canonical texts. Its excerpts are told in the text as it was sent. */
export function canonically(judge: Judge): Judge {
  const judged = (subject: Subject, said: Judgement): Judgement => {
    if (said.excerpts === undefined || said.excerpts.length === 0) return said;
    const parts = new Map<string, TextPart>();
    for (const part of subject.texts) if (part instanceof CanonicalPart) parts.set(part.path, part);
    if (parts.size === 0) return said;
    const excerpts = said.excerpts.map((excerpt): Excerpt => {
      const part = parts.get(excerpt.path);
      return part === undefined ? excerpt : { ...excerpt, ...asSent(part).place(excerpt.start, excerpt.end) };
    });
    return { ...said, excerpts };
  };
  const run: Judge['judge'] = (given, outside) => {
    const over = (subject: Subject): Judgement | Promise<Judgement> => {
      const said = judge.judge(subject, outside);
      if (subject === given) return said;
      return said instanceof Promise ? said.then((value) => judged(subject, value)) : judged(subject, said);
    };
    const subject = canonicalSubject(given);
    return subject instanceof Promise ? subject.then(over) : over(subject);
  };
  return { ...judge, judge: run };
}
