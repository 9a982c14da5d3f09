/**
 * The form in which checks judge texts: Unicode form C (Unicode Standard Annex #15), with ASCII for what is a compatible form
 * of it, without default-ignorable code points (Annex #44), control characters, and marks on ASCII that compose with
 * nothing. A soft hyphen or a zero-width space inside a word hides it from no check, nor do wide, bold or struck-through
 * letters. What a check finds is mapped back to the text as it was sent.
 */
import type { Excerpt, Judge, Judgement, Subject, TextPart } from './check.ts';
import { paced } from './checks/support.ts';

/** What may be other in canonical form; a text without any is canonical. Not letters of Latin-1, nor tab and line ends. */
const BEYOND_LATIN = /[^\t-\r -~\xa1-\xa7\xa9\xab\xac\xae\xb0\xb1\xb6\xb7\xbb\xbf-\xff]/;
/** Ignorable, a control character, or an anchor of annotations: what no reader sees. */
const IGNORABLE = /[\p{Default_Ignorable_Code_Point}\ufff9-\ufffc[\p{Cc}--[\t-\r\x85]]]/v;
const IGNORABLES = /[\p{Default_Ignorable_Code_Point}\ufff9-\ufffc[\p{Cc}--[\t-\r\x85]]]+/gv;
/** Lines and strokes over and under characters, as of text that is struck through. */
const MARKED = /(?<=[!-~])[\p{Mn}\p{Me}]+/gu;
/** Where forms of ASCII stand: wide, bold, circled and raised characters, ligatures, spaces, hyphens, digits of all scripts. */
const FORMS =
  /[\xa0\xaa\xb2\xb3\xb9\xba\u0132\u0133\u017f\u01c7-\u01cc\u01f1-\u01f3\u02b0-\u02e3\u1d2c-\u1dbb\u2000-\u200a\u2010-\u2013\u2024\u202f\u205f\u2070-\u209c\u20a8\u2100-\u217f\u2212\u2460-\u24ea\u2a74-\u2a76\u2c7c\u2c7d\u3000\u3250-\u325f\u32b1-\u32bf\u32cc-\u33ff\ua7f1-\ua7f4\ufb00-\ufb06\ufb29\ufe10-\ufe19\ufe30-\ufe6b\uff01-\uff5e\u{107a5}\u{1ccd6}-\u{1ccf9}\u{1d400}-\u{1d7ff}\u{1f100}-\u{1f190}\u{1fbf0}-\u{1fbf9}[\p{Nd}--[0-9]]]/gv;
/** What such a form is folded to: short, so that no text grows beyond three times its size, and no mere punctuation for a sign. */
const FOLDED = /^(?:[ -~]|(?=.*[0-9A-Za-z])[ -~]{2,3})$/;
/** What may combine with the character before it, or is left out: marks, vowels and finals of Hangul, ignorable ones. */
const JOINS = /[\p{M}\p{Default_Ignorable_Code_Point}\ufff9-\ufffc[\p{Cc}--[\t-\r\x85]]\u1160-\u11ff]/v;
/** Letters that are canonical but for the last one of a run, which may be joined: most of most texts. */
const PLAIN =
  /[\t-\r -~\xbf-\xff\u0400-\u0482\u048a-\u052f\u05d0-\u05ea\u0620-\u064a\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]+/y;
/** UTF-16 units that are made canonical before others get a turn. */
const SLICE = 8_192;
/** Changed pieces of a slice whose places are told apart. */
const MOST_RUNS = 1_024;
/** How much more a unit costs that is looked at by itself. */
const SLOW = 8;

/** Whether a text has compatible forms of ASCII in it, spaces aside. */
export function hasForms(text: string): boolean {
  return text.search(FORMS) >= 0 && text.replace(/\s/g, '').replace(FORMS, fold) !== text.replace(/\s/g, '');
}

/** The canonical form of a short text, such as a parameter; empty where all of it is ignorable. */
export function canonicalText(text: string): string {
  if (!BEYOND_LATIN.test(text)) return text;
  return text.replace(IGNORABLES, '').replace(FORMS, fold).normalize('NFC').replace(MARKED, '');
}

/** Hyphens, short dashes and the minus sign, which people type as one. */
const HYPHENS = '\u2010\u2011\u2012\u2013\u2212';
/** The digits nought of the scripts in use; their other digits follow them. */
const NOUGHTS = '٠۰०০੦૦୦௦౦೦൦๐໐༠၀០᠐';

/** What was folded before; as many as `FORMS` has characters, at most. */
const folds = new Map<string, string>();

function fold(form: string): string {
  let folded = folds.get(form);
  if (folded === undefined) {
    folded = folding(form);
    folds.set(form, folded);
  }
  return folded;
}

function folding(form: string): string {
  if (HYPHENS.includes(form)) return '-';
  const folded = form.normalize('NFKC');
  if (FOLDED.test(folded)) return folded;
  for (let at = 0; at < NOUGHTS.length; at++) {
    const digit = form.charCodeAt(0) - NOUGHTS.charCodeAt(at);
    if (digit >= 0 && digit <= 9) return String(digit);
  }
  return form;
}

/** What a character is: 1 itself, 2 a form of ASCII, 3 one that joins or is left out. 0: not looked at yet. */
const kinds = new Uint8Array(0x10000);
/** Above it: they are few in most texts, and too many for a table. */
const farKinds = new Map<number, number>();
const MAX_FAR = 4_096;

/** As a table, because expressions cost ten times as much for each Chinese character. */
function kindOf(code: number): number {
  const known = (code < 0x10000 ? kinds[code] : farKinds.get(code)) ?? 0;
  if (known !== 0) return known;
  const character = String.fromCodePoint(code);
  const kind = JOINS.test(character) ? 3 : character.search(FORMS) === 0 ? 2 : 1;
  if (code < 0x10000) kinds[code] = kind;
  else if (farKinds.size < MAX_FAR) farKinds.set(code, kind);
  return kind;
}

/** The canonical form of a piece where it has as many units and each is in its place; else null. */
function unitForUnit(piece: string): string | null {
  let folded = '';
  let done = 0;
  for (let at = 0; at < piece.length; at++) {
    let code = piece.charCodeAt(at);
    if (code < 0x7f && code >= 0x20) continue;
    if (code >= 0xd800 && code < 0xdc00) code = piece.codePointAt(at) ?? 0;
    const kind = kindOf(code);
    if (kind === 3) return null;
    if (kind === 2) {
      const form = String.fromCodePoint(code);
      const one = fold(form);
      if (one.length !== form.length) return null;
      folded += piece.slice(done, at) + one;
      done = at + one.length;
    }
    if (code >= 0x10000) at += 1;
  }
  if (done > 0) folded += piece.slice(done);
  else folded = piece;
  return folded.normalize('NFC') === folded ? folded : null;
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
  /** Runs in order, four numbers each: place in `text`, beginning and end in `sent`, and 1 where both go unit for unit. */
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
    // Letters that were composed or put in order belong together.
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
  let written: string[] = [];
  let length = 0;
  /** Numbers of `runs` up to which each changed piece of a slice has its own run: a flood of them is one finding. */
  let bound = 0;
  const put = (piece: string, from: number, to: number, even = false): void => {
    const last = runs.length - 4;
    const same = even || (piece.length === to - from && piece === sent.slice(from, to));
    if (same && runs[last + 3] === 1 && runs[last + 2] === from) runs[last + 2] = to;
    else if (!same && runs[last + 3] === 0 && runs[last + 2] === from && runs.length > bound) runs[last + 2] = to;
    else runs.push(length, from, to, same ? 1 : 0);
    written.push(piece);
    length += piece.length;
  };
  for (let at = 0; at < sent.length; ) {
    let to = Math.min(sent.length, at + SLICE);
    // A cut between two that combine would keep them apart.
    while (to < sent.length && (JOINS.test(charAt(sent, to)) || /[\udc00-\udfff]/.test(sent.charAt(to)))) to += 1;
    const slice = sent.slice(at, to);
    const even = unitForUnit(slice) ?? (canonicalText(slice) === slice ? slice : null);
    if (even !== null) put(even, at, to, true);
    else {
      bound = runs.length + MOST_RUNS * 4;
      for (const [from, end] of clusters(slice)) {
        const sole = end - from === 1 && kindOf(slice.charCodeAt(from)) === 2;
        const cluster = slice.slice(from, end);
        put(sole ? fold(cluster).normalize('NFC') : canonicalText(cluster), at + from, at + end);
      }
      yield SLOW * slice.length;
    }
    // Joined piece by piece: a million of them at once would be one long turn.
    pieces.push(written.join(''));
    written = [];
    yield slice.length;
    at = to;
  }
  const text = pieces.join('');
  return text === sent ? part : new CanonicalPart(part, text, runs);
}

const charAt = (text: string, at: number): string => String.fromCodePoint(text.codePointAt(at) ?? 0);

/** Characters with what combines with them, without ignorable ones before and behind. */
function* clusters(text: string): Generator<readonly [from: number, end: number], void> {
  const to = text.length;
  for (let next = 0; next < to; ) {
    PLAIN.lastIndex = next;
    const plain = next + (PLAIN.exec(text)?.[0].length ?? 0) - 1;
    if (plain > next) {
      yield [next, plain];
      next = plain;
    }
    let from = -1;
    let end = next;
    do {
      const character = charAt(text, next);
      next += character.length;
      if (kindOf(character.codePointAt(0) ?? 0) === 3 && IGNORABLE.test(character)) continue;
      if (from < 0) from = next - character.length;
      end = next;
    } while (next < to && kindOf(text.codePointAt(next) ?? 0) === 3);
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

/** A judge that sees canonical texts. Its excerpts quote the text as it was sent. */
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
