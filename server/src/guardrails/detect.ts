/** How detectors of PII and secrets find things in texts, judge streams and redact. */
import { asSent } from './canonical.ts';
import type { Excerpt, Judgement, Replacement, Subject, TextPart } from './check.ts';
import { type Finding, paced, settled } from './checks/support.ts';
import { joinedTexts } from './joined.ts';
import { type Traits, traitsOf } from './traits.ts';

/**
 * A detector of one kind of thing. Whether something at a place is one depends only on the `REACH` characters around it, so
 * that windows of a stream find what the whole text holds.
 */
export interface Detector {
  readonly kind: string;
  /** Whether a text with these traits may have one. */
  mayHave(traits: Traits, text: string): boolean;
  /** Findings in order, not overlapping. A `yield` says how much work was done. */
  find(text: string): Generator<number, readonly Finding[]>;
  /** Where the thing ends when only its beginning is found: what is redacted. */
  extend?(text: string, finding: Finding): number;
}

/** Longest thing that is found, with what stands around it. */
export const REACH = 1_024;

/**
 * A detector of what a pattern finds and `accept` confirms: `accept` gets the match and the text, and may tell another end;
 * false is not one. The pattern must be global, linear, bounded, and look behind and ahead by a few characters only.
 */
export function matcher(
  kind: string,
  mayHave: Detector['mayHave'],
  pattern: RegExp,
  accept: (match: RegExpExecArray, text: string) => boolean | { readonly start: number; readonly end: number } = () =>
    true,
): Detector {
  return {
    kind,
    mayHave,
    *find(text) {
      const out: Finding[] = [];
      // Where to go on is kept here: in a pause another request may use the same pattern.
      let from = 0;
      let candidates = 0;
      for (;;) {
        pattern.lastIndex = from;
        const match = pattern.exec(text);
        if (match === null) break;
        const ok = accept(match, text);
        if (ok === false) from = match.index + 1;
        else {
          const { start, end } = ok === true ? { start: match.index, end: match.index + match[0].length } : ok;
          out.push({ kind, start, end });
          from = Math.max(end, match.index + 1);
        }
        candidates += 1;
        if (candidates % 32 === 0) yield 4_000;
      }
      yield text.length / 4;
      return out;
    },
  };
}

function* detect(
  detectors: readonly Detector[],
  subject: Subject,
  entire: boolean,
): Generator<number, Map<TextPart, Finding[]>> {
  const found = new Map<TextPart, Finding[]>();
  for (const part of subject.texts) {
    const { text } = part;
    if (text === '') continue;
    const traits = yield* traitsOf(text);
    // All that the tests below may search, and what each text costs.
    yield 32 + text.length / 8;
    for (const detector of detectors) {
      if (!detector.mayHave(traits, text)) continue;
      const findings = extended(
        detector,
        text,
        settled(yield* detector.find(text), text.length, subject.window, 32),
        entire,
      );
      if (findings.length === 0) continue;
      const known = found.get(part) ?? [];
      // A place has one kind: the detector that stands first in the list.
      found.set(part, merged(known, findings));
    }
  }
  for (const { text, stretches } of joinedTexts(subject)) {
    const traits = yield* traitsOf(text);
    yield 32 + text.length / 8;
    for (const detector of detectors) {
      if (!detector.mayHave(traits, text)) continue;
      for (const { kind, start, end } of extended(detector, text, yield* detector.find(text), entire)) {
        const pieces = stretches(start, end);
        // What lies in one part was found there.
        if (pieces.length < 2) continue;
        for (const [i, { part, ...place }] of pieces.entries()) {
          const piece = {
            kind,
            ...place,
            whole: text.slice(start, end),
            ...(i === 0 ? null : { continues: true as const }),
          };
          found.set(part, merged(found.get(part) ?? [], [piece]));
        }
      }
    }
  }
  return found;
}

function extended(detector: Detector, text: string, findings: readonly Finding[], entire: boolean): readonly Finding[] {
  if (!entire || detector.extend === undefined) return findings;
  const out: Finding[] = [];
  for (const finding of findings)
    if (finding.start >= (out.at(-1)?.end ?? 0)) out.push({ ...finding, end: detector.extend(text, finding) });
  return out;
}

/** Both lists in order of place; what overlaps the first list is left out. Each is sorted and free of overlaps. */
function merged(first: readonly Finding[], second: readonly Finding[]): Finding[] {
  if (first.length === 0) return [...second];
  const out: Finding[] = [];
  let i = 0;
  for (const finding of second) {
    for (let next = first[i]; next !== undefined && next.end <= finding.start; next = first[++i]) out.push(next);
    const near = first[i];
    if (near === undefined || near.start >= finding.end) out.push(finding);
  }
  for (; i < first.length; i++) out.push(first[i] as Finding);
  return out;
}

/** Excerpts in a record: more say nothing more. */
const MAX_EXCERPTS = 100;

/**
 * Judges the texts by detectors: fails when one finds something, or with `redact` passes with each finding replaced by
 * `{{KIND_1}}`; the same thing has the same number in all texts of the request.
 */
export function detected(
  detectors: readonly Detector[],
  subject: Subject,
  redact: boolean,
  what: string,
): Judgement | Promise<Judgement> {
  return paced(
    (function* (): Generator<number, Judgement> {
      return yield* reported(yield* detect(detectors, subject, redact), redact, what);
    })(),
  );
}

/** The judgement that follows from findings; those of a text are in order and do not overlap. */
export function* reported(
  found: ReadonlyMap<TextPart, readonly Finding[]>,
  redact: boolean,
  what: string,
): Generator<number, Judgement> {
  const excerpts: Excerpt[] = [];
  const counts: Record<string, number> = {};
  for (const [{ path }, findings] of found)
    for (const { start, end, kind, continues } of findings) {
      counts[kind] = (counts[kind] ?? 0) + (continues === true ? 0 : 1);
      if (excerpts.length < MAX_EXCERPTS) excerpts.push({ path, start, end, kind });
    }
  const kinds = Object.keys(counts);
  if (kinds.length === 0) return { verdict: true, data: { explanation: `No ${what} was found.` } };
  const explanation = `${kinds.join(', ')} found${redact ? ' and redacted' : ''}.`;
  const data = { explanation, found: counts };
  if (!redact) return { verdict: false, data, excerpts };
  const replacements = yield* redacted(found);
  return { verdict: true, data, excerpts, replacements };
}

function* redacted(found: ReadonlyMap<TextPart, readonly Finding[]>): Generator<number, Replacement[]> {
  const numbers = new Map<string, Map<string, number>>();
  const out: Replacement[] = [];
  for (const [part, findings] of found) {
    const { path } = part;
    // The text is sent on as it came, but for what is taken out.
    const { text, place } = asSent(part);
    const pieces: string[] = [];
    let at = 0;
    for (const { start: from, end: to, kind, whole } of findings) {
      const { start, end } = place(from, to);
      const known = numbers.get(kind) ?? new Map<string, number>();
      numbers.set(kind, known);
      const value = (whole ?? part.text.slice(from, to)).toLowerCase();
      const number = known.get(value) ?? known.size + 1;
      known.set(value, number);
      pieces.push(text.slice(at, start), `{{${kind}_${number}}}`);
      at = end;
    }
    pieces.push(text.slice(at));
    out.push({ path, text: pieces.join('') });
    yield text.length / 4 + findings.length * 16;
  }
  return out;
}
