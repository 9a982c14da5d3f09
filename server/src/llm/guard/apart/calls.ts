/** Where guardrails judge: small requests and answers in the event loop, large ones in the thread. Size decides, once. */

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
import { judgedFacts, judgedRequest } from '../judged-exchange.ts';
import type { InputView } from '../judged-request.ts';
import { type Answer, judgeWholeAnswer, notJudged } from '../output.ts';
import { shownAnswer } from '../shown-answer.ts';
import { ReplacementError } from '../texts.ts';
import type { RunHost } from './thread.ts';

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
  const said = parseExact(outcome) as unknown as Outcome;
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
