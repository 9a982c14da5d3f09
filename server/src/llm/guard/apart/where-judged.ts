/** Where guardrails judge: small requests, answers and streams in the event loop, large ones in the thread. Size decides, once. */

import type { GuardrailState } from '../../../gateway/guardrail-state.ts';
import { sourceOf } from '../../../guardrails/compile.ts';
import type { Guardrail, GuardrailResult, Outcome } from '../../../guardrails/guardrail.ts';
import { parseExact } from '../../../kernel/json-exact.ts';
import { scanOf } from '../../../kernel/json-scan.ts';
import type { Uses } from '../../exchange.ts';
import { type Handed, nothing, SharedPieces, sent } from '../../large/calls.ts';
import { bufferOf } from '../../large/jobs.ts';
import { bytesIn, joined } from '../../relay/response-inspection.ts';
import { judgeRequest, type RequestVerdict } from '../judge-request.ts';
import {
  type HeldEvents,
  judgeStreamWindow,
  judgeWholeStream,
  type StreamVerdict,
  type StreamWindow,
} from '../judge-stream.ts';
import { judgedFacts, judgedRequest } from '../judged-exchange.ts';
import type { InputView, JudgedRequest } from '../judged-request.ts';
import { type Answer, judgeWholeAnswer, mayReplace, notJudged } from '../output.ts';
import { shownAnswer } from '../shown-answer.ts';
import { ReplacementError } from '../texts.ts';
import { splitAnswer } from './long-texts.ts';
import type { StreamJudged, StreamOrder, WindowOrder } from './messages.ts';
import type { Posted, RunHost } from './thread.ts';

/** Bytes from which on the thread judges: less is read, walked and written again in a few milliseconds. */
const LARGE = 128 * 1024;
/** The same for what the scan weighed: every value is walked. */
const HEAVY = 10_000;

const isLarge = ({ body: { bytes, scan } }: Judging['attempt']): boolean =>
  bytes.length > LARGE || (scan !== null && scan.weight > HEAVY);

type Judging = Uses<'attempt' | 'clientGone' | 'request', 'clock' | 'guardrails' | 'bodies' | 'log'>;

/** Judges what would be sent by guardrails that may. Null for a dry run. */
export function judgeInput(
  x: Judging,
  guarded: GuardrailState,
  list: readonly Guardrail[],
  view: InputView,
): RequestVerdict | null | Promise<RequestVerdict | null> {
  const { dryRun } = x.request;
  if (isLarge(x.attempt)) return judgeInputApart(x, guarded, list, view, dryRun);
  const { outside, onAsync } = guarded;
  const { clock } = x.services;
  return judgeRequest({ request: judgedRequest(x), list, view, dryRun }, { outside, clock, onAsync });
}

const hostOf = ({ outside, onAsync }: GuardrailState, over: () => boolean): RunHost => ({ outside, onAsync, over });

async function judgeInputApart(
  x: Judging,
  guarded: GuardrailState,
  list: readonly Guardrail[],
  view: InputView,
  dryRun: boolean,
): Promise<RequestVerdict | null> {
  const handed = nothing();
  const order = {
    of: 'request',
    request: judgedFacts(x),
    body: sent(x.attempt.body.bytes, handed),
    guardrails: list.map(sourceOf),
    view,
    dryRun,
  } as const;
  const host = hostOf(guarded, () => x.clientGone);
  const { outcome, changed, refused } = await x.services.guardrails.run(
    x.request.organisationId,
    { order, ...handed },
    host,
  );
  if (outcome === null) return null;
  const said = outcomeOf(outcome);
  if (refused !== null) return { outcome: said, changed: new ReplacementError(refused) };
  if (changed === null) return { outcome: said, changed: null };
  const { bytes, json, scan } = changed;
  return { outcome: said, changed: { bytes: bufferOf(bytes), json, scan: scan === null ? null : scanOf(scan) } };
}

/** An answer in the parts in which it came. */
export type CameAnswer = Omit<Answer, 'body'> & {
  readonly body: readonly Buffer[];
  /** What is taken out of it where it tells of an error. */
  readonly secrets: readonly string[];
};

/** Judges an answer in one piece: gives the body to send, or null for a refusal; results are on the exchange. */
export function judgeAnswer(
  x: Judging,
  guard: GuardrailState,
  answer: CameAnswer,
): readonly Buffer[] | null | Promise<readonly Buffer[] | null> {
  const { body: parts } = answer;
  if (guard.output.length + guard.before.length === 0) return parts;
  if (bytesIn(parts) > LARGE || (guard.output.length > 0 && isLarge(x.attempt)))
    return judgeAnswerApart(x, guard, answer);
  const came = joined(parts);
  const sent = (body: Buffer | null) => (body === null ? null : body === came ? parts : [body]);
  const judged = judgeWholeAnswer(judgedRequest(x), guard, { ...answer, body: shownAnswer(came, answer) });
  return judged instanceof Promise ? judged.then(sent) : sent(judged);
}

async function judgeAnswerApart(
  x: Judging,
  guard: GuardrailState,
  answer: CameAnswer,
): Promise<readonly Buffer[] | null> {
  const handed = nothing();
  const request = judgedFacts(x);
  const asked = sent(x.attempt.body.bytes, handed);
  const order = {
    of: 'answer',
    request,
    body: asked,
    guardrails: guard.output.map(sourceOf),
    answer: { ...answer, body: await inShared(x, answer.body, handed) },
    before: JSON.stringify(guard.before),
  } as const;
  const host = hostOf(guard, () => false);
  const judged = await x.services.guardrails.run(x.request.organisationId, { order, ...handed }, host);
  guard.after = parseExact(judged.after) as unknown as readonly GuardrailResult[];
  guard.failed ||= judged.failed;
  guard.soft = judged.soft;
  if (judged.body === 'same') return answer.body;
  return judged.body === null ? null : [bufferOf(judged.body)];
}

/** A stream that has ended. */
export interface EndedStream {
  readonly request: JudgedRequest;
  /** Characters of its texts. */
  readonly textBytes: number;
  /** As an answer in one piece would be. */
  readonly answer: () => unknown;
  /** Events that nobody has seen; null: they were sent. */
  readonly held: (HeldEvents & { readonly bytes: number }) | null;
}

/** Judges a stream at its end. */
export function judgeStream(
  x: Judging,
  guard: GuardrailState,
  list: readonly Guardrail[],
  ended: EndedStream,
): StreamVerdict | Promise<StreamVerdict> {
  const { textBytes, held } = ended;
  // Events are read again only to change them.
  const rewrites = held !== null && held.bytes > LARGE && list.some(mayReplace);
  if (textBytes > LARGE || rewrites || isLarge(x.attempt)) return judgeStreamApart(x, guard, list, ended);
  return judgeWholeStream(ended.request, guard, list, ended.answer(), held);
}

async function judgeStreamApart(
  x: Judging,
  guard: GuardrailState,
  list: readonly Guardrail[],
  { answer, held }: EndedStream,
): Promise<StreamVerdict> {
  const handed = nothing();
  const common = streamFacts(x, list, handed);
  const said = held === null ? await sentAnswer(x, answer, handed) : await heldEvents(x, held, handed);
  const order: StreamOrder = { of: 'stream', ...common, said };
  const judged = await runStreamApart(x, guard, { order, ...handed });
  const { outcome, unreadable, changed, refused } = judged;
  const verdict = { outcome: outcome === null ? null : outcomeOf(outcome), unreadable };
  if (refused !== null) return { ...verdict, changed: new ReplacementError(refused) };
  if (changed === null) return { ...verdict, changed: null };
  return { ...verdict, changed: { events: [bufferOf(changed.events)], tail: changed.tail.map(bufferOf) } };
}

/** Judges what of a stream follows what was judged before. */
export function judgeWindow(
  x: Judging,
  guard: GuardrailState,
  list: readonly Guardrail[],
  given: StreamWindow,
): Outcome | Promise<Outcome> {
  if ((given.texts[0]?.text.length ?? 0) <= LARGE) return judgeStreamWindow(list, given);
  return judgeWindowApart(x, guard, list, given);
}

async function judgeWindowApart(
  x: Judging,
  guard: GuardrailState,
  list: readonly Guardrail[],
  { texts, window, callsTools }: StreamWindow,
): Promise<Outcome> {
  const handed = nothing();
  const facts = streamFacts(x, list, handed);
  const order: WindowOrder = { of: 'window', ...facts, texts, window, callsTools: callsTools() };
  // The event with so much text was parsed in this turn.
  await x.services.bodies.turns.wait(x.request.organisationId);
  const { outcome } = await runStreamApart(x, guard, { order, ...handed });
  return outcomeOf(outcome ?? '');
}

/** What the thread gets of the request of a stream. */
const streamFacts = (x: Judging, list: readonly Guardrail[], handed: Handed) => ({
  request: judgedFacts(x),
  body: sent(x.attempt.body.bytes, handed),
  guardrails: list.map(sourceOf),
});

function runStreamApart(
  x: Judging,
  guard: GuardrailState,
  posted: Posted<StreamOrder | WindowOrder>,
): Promise<StreamJudged> {
  const host = hostOf(guard, () => x.clientGone);
  return x.services.guardrails.run(x.request.organisationId, posted, host);
}

const outcomeOf = (told: string): Outcome => parseExact(told) as unknown as Outcome;

/** An answer whose events were sent, copied in turns of the organisation. */
async function sentAnswer(
  x: Uses<'request', 'bodies'>,
  answer: () => unknown,
  { drops }: Handed,
): Promise<StreamOrder['said']> {
  const turn = () => x.services.bodies.turns.wait(x.request.organisationId);
  await turn();
  return { of: 'answer', ...(await splitAnswer(answer(), turn, drops)) };
}

/** Events that are copied in one turn. */
const COPIED_EVENTS = 10_000;

/** Held events in memory that the thread can read, copied in turns of the organisation. */
async function heldEvents(
  x: Uses<'request', 'bodies'>,
  held: HeldEvents,
  handed: Handed,
): Promise<StreamOrder['said']> {
  const pieces = new SharedPieces();
  handed.drops.push(() => pieces.giveBack());
  const all = [...held.events, ...held.tail];
  const lengths = new Uint32Array(all.length);
  let copied = 0;
  let from = 0;
  for (const [i, event] of all.entries()) {
    if (copied > COPIED || i - from > COPIED_EVENTS) {
      await x.services.bodies.turns.wait(x.request.organisationId);
      copied = 0;
      from = i;
    }
    pieces.add(event);
    lengths[i] = event.length;
    copied += event.length;
  }
  handed.memory.push(lengths.buffer);
  return { of: 'events', bytes: pieces.pieces(), lengths, tail: held.tail.length };
}

/** Bytes that are copied in one turn. */
const COPIED = 2 * 1024 * 1024;

/** The parts in memory that the thread can read: as they are, or copied in turns of the organisation. */
async function inShared(
  x: Uses<'request', 'bodies'>,
  parts: readonly Buffer[],
  handed: Handed,
): Promise<readonly Uint8Array[]> {
  if (parts.every(({ buffer }) => buffer instanceof SharedArrayBuffer)) return parts.map((part) => sent(part, handed));
  const pieces = new SharedPieces();
  handed.drops.push(() => pieces.giveBack());
  let copied = 0;
  for (const part of parts)
    for (let at = 0; at < part.length; at += COPIED) {
      if (copied >= COPIED) {
        await x.services.bodies.turns.wait(x.request.organisationId);
        copied = 0;
      }
      pieces.add(part.subarray(at, at + COPIED));
      copied += Math.min(COPIED, part.length - at);
    }
  return pieces.pieces();
}

/** Judges an answer that has passed by guardrails that run beside the request. Null: too much of it to have been kept. */
export function judgeBeside(x: Judging, guard: GuardrailState, answer: CameAnswer | null): void {
  const failed = (error: unknown) =>
    x.services.log.error('guardrails beside a request failed', { request_id: x.request.id, error: String(error) });
  try {
    if (answer === null) {
      notJudged(x, guard, guard.output, 'The answer is too large to be judged after it has passed.');
      return;
    }
    const judged = judgeAnswer(x, guard, answer);
    if (judged instanceof Promise) judged.catch(failed);
  } catch (error) {
    failed(error);
  }
}
