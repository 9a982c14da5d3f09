/** Asks a service about all texts of a subject, in as few calls as it allows, and makes one judgement of its answers. */
import type { Judgement, Replacement, Subject, TextPart } from '../../check.ts';
import { reported } from '../../detect.ts';
import { type Finding, paced } from '../support.ts';
import type { Ask } from './service.ts';
import { calls, type Limits, MAX_CALLS, type Piece } from './texts.ts';

/** What a service says of the pieces of one call. */
export interface Answer {
  /** Names of what speaks against them and cannot be masked. */
  readonly blocked: readonly string[];
  /** Names of what can be masked. */
  readonly masked: readonly string[];
  /** Where the latter is, for services that say where. */
  readonly findings?: readonly (Finding & { readonly piece: number })[];
  /** The pieces with it masked, for services that send texts back; null where several pieces came back as one. */
  readonly texts?: readonly string[] | null;
}

interface Asked {
  readonly pieces: readonly Piece[];
  readonly answer: Answer;
}

/** Calls under way at once for one judgement. */
const AT_ONCE = 6;

/** Asks about each; what was answered before a call failed counts, so that a fault does not hide a finding. */
async function askAll(
  list: readonly (readonly Piece[])[],
  ask: (pieces: readonly Piece[]) => Promise<Answer>,
): Promise<{ readonly asked: Asked[]; readonly fault: { readonly error: unknown } | null }> {
  const asked: (Asked | undefined)[] = [];
  let fault: { readonly error: unknown } | null = null;
  let next = 0;
  const worker = async (): Promise<void> => {
    while (fault === null) {
      const at = next++;
      const pieces = list[at];
      if (pieces === undefined) return;
      try {
        asked[at] = { pieces, answer: await ask(pieces) };
      } catch (error) {
        fault ??= { error };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, list.length) }, worker));
  return { asked: asked.filter((one) => one !== undefined), fault };
}

const MAX_NAMES = 50;
const unique = (names: readonly string[]): string[] => [...new Set(names)].slice(0, MAX_NAMES);

function failed(explanation: string, found: readonly string[] = []): Judgement {
  return { verdict: false, data: { explanation, ...(found.length === 0 ? null : { found }) } };
}

/**
 * Findings by text, in order, without overlaps: pieces overlap, and services find things inside of others. Null where one
 * is not in the texts.
 */
function findingsOf(asked: readonly Asked[]): Map<TextPart, Finding[]> | null {
  const out = new Map<TextPart, Finding[]>();
  for (const { pieces, answer } of asked)
    for (const { piece, start, end, kind } of answer.findings ?? []) {
      const at = pieces[piece];
      if (at === undefined || !(start >= 0 && start < end && end <= at.text.length)) return null;
      const known = out.get(at.part) ?? [];
      known.push({ kind, start: at.start + start, end: at.start + end });
      out.set(at.part, known);
    }
  for (const [part, findings] of out) out.set(part, merged(findings));
  return out;
}

function merged(findings: Finding[]): Finding[] {
  findings.sort((a, b) => a.start - b.start || b.end - a.end);
  const out: Finding[] = [];
  for (const finding of findings) {
    const last = out.at(-1);
    if (last === undefined || finding.start >= last.end) out.push(finding);
    else if (finding.end > last.end) out[out.length - 1] = { ...last, end: finding.end };
  }
  return out;
}

export interface Consultation {
  readonly ask: Ask;
  readonly subject: Pick<Subject, 'texts'>;
  readonly limits: Limits;
  /** Whether what can be masked is replaced and passes. */
  readonly redact?: boolean;
  about(pieces: readonly Piece[]): Promise<Answer>;
  /** Replaces findings in another way than by placeholders; null: there are too many. */
  anonymize?(found: ReadonlyMap<TextPart, readonly Finding[]>): Promise<Replacement[] | null>;
}

/** One judgement over all texts. Fails on what cannot be masked, and on a text that needs more calls than are made. */
export async function consult(given: Consultation): Promise<Judgement> {
  const { ask, subject, limits, redact = false, about } = given;
  const list = calls(subject.texts, limits);
  if (list === null) return failed(`The text is longer than ${ask.service} can be asked about in ${MAX_CALLS} calls.`);
  if (list.length === 0) return { verdict: true, data: { explanation: 'There is no text to judge.' } };
  const { asked, fault } = await askAll(list, about);
  const blocked = unique(asked.flatMap(({ answer }) => answer.blocked));
  const masked = unique(asked.flatMap(({ answer }) => answer.masked));
  const found = unique([...blocked, ...masked]);
  if (blocked.length === 0 && (masked.length === 0 || redact)) {
    if (fault !== null) throw fault.error;
    if (masked.length === 0) return { verdict: true, data: { explanation: `${ask.service} has found nothing.` } };
    return masks(given, asked, list.length, found);
  }
  const places = findingsOf(asked);
  const told = failed(`${ask.service} has found ${found.join(', ')}.`, found);
  if (places === null || places.size === 0) return told;
  return { ...told, excerpts: (await paced(reported(places, false, ''))).excerpts ?? [] };
}

/** The judgement that passes with everything masked. */
async function masks(
  given: Consultation,
  asked: readonly Asked[],
  made: number,
  found: readonly string[],
): Promise<Judgement> {
  const { service } = given.ask;
  const hit = asked.filter(({ answer }) => answer.masked.length > 0);
  const unable = failed(
    `${service} has found ${found.join(', ')} and does not say where: it cannot be redacted.`,
    found,
  );
  if (hit.every(({ answer }) => (answer.findings?.length ?? 0) > 0)) {
    const places = findingsOf(hit);
    if (places === null) return unable;
    const judgement = await paced(reported(places, true, ''));
    if (given.anonymize === undefined) return judgement;
    const replacements = await given.anonymize(places);
    return replacements === null
      ? failed(`Too many texts must be redacted by ${service}.`, found)
      : { ...judgement, replacements };
  }
  const texts = new Map<Piece, string>();
  const again: (readonly Piece[])[] = [];
  for (const { pieces, answer } of hit) {
    if (answer.texts === undefined) return unable;
    if (answer.texts === null) again.push(pieces);
    else pieces.forEach((piece, i) => void texts.set(piece, answer.texts?.[i] ?? piece.text));
  }
  const single = again.flatMap((pieces) => pieces.map((piece) => [piece]));
  if (made + single.length > MAX_CALLS) return failed(`Too many texts must be redacted by ${service}.`, found);
  const second = await askAll(single, given.about);
  const blocked = unique(second.asked.flatMap(({ answer }) => answer.blocked));
  if (blocked.length > 0) return failed(`${service} has found ${blocked.join(', ')}.`, blocked);
  if (second.fault !== null) throw second.fault.error;
  for (const { pieces, answer } of second.asked) {
    const [piece] = pieces;
    if (piece === undefined || answer.masked.length === 0) continue;
    const text = answer.texts?.[0];
    if (text === undefined) return unable;
    texts.set(piece, text);
  }
  // A finding in several texts together must be found in one of them.
  if (again.some((pieces) => !pieces.some((piece) => texts.has(piece)))) return unable;
  return {
    verdict: true,
    data: { explanation: `${service} has found ${found.join(', ')}; redacted.`, found },
    replacements: rebuilt(asked, texts),
  };
}

/** Texts of which a piece was masked, whole. */
function rebuilt(asked: readonly Asked[], texts: ReadonlyMap<Piece, string>): Replacement[] {
  const parts = new Map<TextPart, Piece[]>();
  for (const piece of asked.flatMap(({ pieces }) => pieces)) {
    const known = parts.get(piece.part) ?? [];
    known.push(piece);
    parts.set(piece.part, known);
  }
  return [...parts]
    .filter(([, pieces]) => pieces.some((piece) => texts.has(piece)))
    .map(([{ path }, pieces]) => ({
      path,
      text: pieces
        .sort((a, b) => a.start - b.start)
        .map((piece) => texts.get(piece) ?? piece.text)
        .join(''),
    }));
}

/** Two judgements of which one that fails is enough, whatever becomes of the other. */
export async function both(one: Promise<Judgement>, other: Promise<Judgement>): Promise<Judgement> {
  const done = await Promise.allSettled([one, other]);
  for (const each of done) if (each.status === 'fulfilled' && !each.value.verdict) return each.value;
  for (const each of done) if (each.status === 'rejected') throw each.reason;
  return one;
}
