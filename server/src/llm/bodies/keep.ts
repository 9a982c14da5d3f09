/**
 * Keeps the bodies of a request that is over: what the caller sent and what a provider was sent, which still are in memory, and
 * what is left of the answers that were taken as they passed.
 */
import type { BodyPlace } from '../../gateway/body-log.ts';
import { FAILED_ANSWER_BYTES, keptBodies } from '../../gateway/kept-bodies.ts';
import type { Ending } from '../../gateway/outcome.ts';
import type { PartWriter } from '../../gateway/part-writer.ts';
import { keepBuffer } from '../../http/buffer-pool.ts';
import { pathOnly } from '../../kernel/path-only.ts';
import { inTurns, type Steps } from '../../kernel/turns.ts';
import { BODY_FLAGS, type BodyEnd, type BodyPart, type PartFacts } from '../../telemetry/bodies/frame.ts';
import { headerNames, type MaskRules, maskedHeaders } from '../../telemetry/bodies/masked-headers.ts';
import type { Uses } from '../exchange.ts';
import { SECRET_HEADERS } from '../provider-headers.ts';
import type { Prepared } from '../state/prepared.ts';
import { beginCapture, captureOf } from './begin.ts';
import { type BodyCapture, typeIn } from './capture.ts';

/** What this file uses of an exchange. */
type Used = Uses<'attempt' | 'capture' | 'guard' | 'outcome' | 'request', 'bodyLog' | 'clock'>;

/** What the record says of kept bodies. */
export interface KeptReference extends Partial<BodyPlace> {
  readonly flags: number;
}

/** So much is written at once; more in turns of the event loop. */
const AT_ONCE = 64 * 1024;
const STEP_BYTES = 32 * 1024;

interface Whole {
  readonly writer: PartWriter;
  readonly bytes: readonly Buffer[];
}

/** Null where nothing is kept: of most requests a look at two fields says so. */
export function keepBodies(x: Used, ending: Ending): KeptReference | null {
  const { outcome, request, attempt } = x;
  // No target is called for an answer of the cache, nor for what guardrails deny.
  const uncalled = attempt.caching?.hit != null || (x.guard !== null && x.guard.denying().length > 0);
  const capture = x.capture ?? (uncalled ? beginCapture(x) : null);
  if (capture !== null) return keepAll(x, capture, ending);
  if (outcome.result !== 'failed' || request.dryRun) return null;
  if (keptBodies(request, x.services.bodyLog.rule) !== 'failed answer') return null;
  return keepFailed(x, ending);
}

function keepAll(x: Used, capture: BodyCapture, ending: Ending): KeptReference | null {
  const removed = removedBy(x);
  if (removed === 'withheld') return { flags: BODY_FLAGS.withheld };
  const { prepared } = x.attempt;
  const whole: Whole[] = [];
  const parts: Partial<Record<BodyPart, Omit<PartFacts, 'bytes'>>> = {};
  const rules = rulesOf(x, capture);
  const asked = x.attempt.body.bytes;
  const own = asked.length === 0 ? x.request.body.bytes : asked;
  parts.request = requestFacts(x, rules);
  whole.push({ writer: capture.writer('request', x.request.header('content-type')), bytes: [own] });
  if (prepared !== null && x.outcome.attemptCount > 0) {
    const body = sentBody(prepared);
    const same = body.length === 1 && body[0] === own;
    parts.sent = { ...sentFacts(prepared, rules), same: same ? 'request' : undefined };
    if (!same) whole.push({ writer: capture.writer('sent', typeIn(prepared.request.headers)), bytes: body });
  }
  const { came, answer } = capture;
  if (came !== null) {
    parts.came = {
      status: came.status,
      headers: maskedHeaders(pairs(came.headers), rules),
      same: came.writer === null ? 'answer' : undefined,
    };
    if (came.writer !== null) whole.push({ writer: came.writer, bytes: [] });
  }
  const head = ending.kind === 'whole' ? ending : answer;
  if (head !== null) {
    const writer = answer?.writer ?? capture.writer('answer', typeIn(head.headers));
    parts.answer = { status: head.status, headers: maskedHeaders(pairs(head.headers), rules) };
    whole.push({ writer, bytes: ending.kind === 'destroy' ? [] : ending.body });
  }
  return write(x, whole, parts, removed === 'redacted' ? BODY_FLAGS.redacted : 0);
}

function keepFailed(x: Used, ending: Ending): KeptReference | null {
  if (ending.kind !== 'whole' || removedBy(x) !== 'nothing') return null;
  const capture = captureOf(x);
  if (x.attempt.target !== null) capture.begin(x.attempt.target);
  const writer = capture.writer('answer', typeIn(ending.headers), FAILED_ANSWER_BYTES);
  const parts = { answer: { status: ending.status } };
  return write(x, [{ writer, bytes: ending.body }], parts, BODY_FLAGS.answerOnly);
}

/** What guardrails have taken out. A text that one target was not sent must not be kept because another one was. */
function removedBy({ guard, attempt, request }: Used): 'nothing' | 'redacted' | 'withheld' {
  if (guard === null) return 'nothing';
  const denying = guard.denying();
  if (denying.length > 0) {
    return denying.every(({ actions }) => actions.logContent === 'as_sent') && !guard.hasRedacted
      ? 'nothing'
      : 'withheld';
  }
  if (!guard.hasRedacted) return 'nothing';
  const unchanged = attempt.body === request.body;
  return unchanged && guard.hasRedactedInput ? 'withheld' : 'redacted';
}

function write(
  x: Used,
  whole: readonly Whole[],
  parts: Readonly<Partial<Record<BodyPart, Omit<PartFacts, 'bytes'>>>>,
  flags: number,
): KeptReference | null {
  const { bodyLog, clock } = x.services;
  const { id, time, principal } = x.request;
  if (principal?.workspaceId == null) return null;
  let left = 0;
  for (const { bytes } of whole) for (const part of bytes) left += part.length;
  const late = left > AT_ONCE;
  if (whole.some(({ writer }) => writer.lost) || (late && !bodyLog.hold(left)))
    return { flags: flags | BODY_FLAGS.lost };
  let about = 0;
  for (const { writer, bytes } of whole) about += Math.min(bodyLog.maxBytes, writer.bytes + lengthOf(bytes));
  const place = bodyLog.place(principal.workspaceId, about);
  const end = (): boolean => {
    if (whole.some(({ writer }) => writer.lost)) return false;
    return bodyLog.end(id, endOf());
  };
  const endOf = (): BodyEnd => ({
    organisation_id: principal.organisationId,
    workspace_id: principal.workspaceId ?? '',
    ...place,
    time,
    flags,
    parts: facts(parts, whole),
  });
  if (!late) {
    for (const one of whole) for (const _ of writing(one));
    if (!end()) return { flags: flags | BODY_FLAGS.lost };
    return { ...place, flags: flagsOf(flags, whole) };
  }
  const drops = whole.flatMap(({ bytes }) => bytes.map(keepBuffer));
  void inTurns(writingAll(whole), clock)
    .then(end)
    .finally(() => {
      for (const drop of drops) drop();
      bodyLog.release(left);
    });
  return { ...place, flags };
}

function* writingAll(whole: readonly Whole[]): Steps<void> {
  for (const one of whole) yield* writing(one);
}

/** Writes what is at hand of a part, in steps. */
function* writing({ writer, bytes }: Whole): Steps<void> {
  for (const part of bytes) {
    for (let at = 0; at < part.length; at += STEP_BYTES) {
      writer.write(part.subarray(at, at + STEP_BYTES));
      if (at > 0) yield;
    }
  }
  writer.end();
}

function facts(
  parts: Readonly<Partial<Record<BodyPart, Omit<PartFacts, 'bytes'>>>>,
  whole: readonly Whole[],
): BodyEnd['parts'] {
  const out: Partial<Record<BodyPart, PartFacts>> = {};
  for (const [name, known] of Object.entries(parts) as [BodyPart, Omit<PartFacts, 'bytes'>][]) {
    const written = whole.find(({ writer }) => writer.part === (known.same ?? name))?.writer.facts;
    out[name] = { bytes: 0, ...known, ...written };
  }
  return out;
}

function flagsOf(flags: number, whole: readonly Whole[]): number {
  let out = flags;
  for (const { writer } of whole) {
    if (writer.facts.truncated) out |= BODY_FLAGS.truncated;
    if (writer.facts.omitted !== undefined) out |= BODY_FLAGS.omitted;
  }
  return out;
}

function rulesOf({ request, services }: Used, { secrets }: BodyCapture): MaskRules {
  const names = new Set([...SECRET_HEADERS, ...services.bodyLog.maskedHeaders]);
  for (const name of headerNames(request.header('x-gateway-sensitive-headers'))) names.add(name);
  names.add(request.credentialHeader);
  const own = request.callerToken;
  return { names, secrets: own === null ? secrets : [...secrets, own] };
}

function requestFacts({ request }: Used, rules: MaskRules): Omit<PartFacts, 'bytes'> {
  const { incoming } = request;
  const headers = Object.entries(incoming.headers).map(([name, value]) => [name, String(value)] as const);
  return { method: incoming.method, url: pathOnly(incoming.url ?? ''), headers: maskedHeaders(headers, rules) };
}

function sentFacts({ request }: Prepared, rules: MaskRules): Omit<PartFacts, 'bytes'> {
  const { method, origin, path, headers } = request;
  return { method, url: origin + pathOnly(path), headers: maskedHeaders(pairs(headers), rules) };
}

/** Of a request that is made in several calls, all of them. */
function sentBody({ request, fanOut }: Prepared): readonly Buffer[] {
  if (fanOut === null) return request.body ?? [];
  return fanOut.flatMap(({ body }) => (body === null ? [] : [body]));
}

function* pairs(headers: readonly string[]): Generator<readonly [string, string]> {
  for (let i = 0; i + 1 < headers.length; i += 2) yield [headers[i] ?? '', headers[i + 1] ?? ''];
}

function lengthOf(bytes: readonly Buffer[]): number {
  let length = 0;
  for (const part of bytes) length += part.length;
  return length;
}
