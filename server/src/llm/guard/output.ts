/** Guardrails over answers in one piece: what of them is judged, and what is sent in their place. */

import { isUtf8 } from 'node:buffer';
import { type GuardrailState, hookResults, withoutChange } from '../../gateway/guardrail-state.ts';
import type { Phase, Subject, TextPart } from '../../guardrails/check.ts';
import type { Guardrail, GuardrailResult, Outcome } from '../../guardrails/guardrail.ts';
import { type Change, runGuardrails } from '../../guardrails/run.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import type { Operation } from '../../operations/operation.ts';
import type { Uses } from '../exchange.ts';
import { headerOf, isJson } from '../relay/response-inspection.ts';
import type { RequestBody } from '../state/body.ts';
import type { JudgedRequest } from './judged-request.ts';
import {
  answerCallsTools,
  answerTexts,
  applyReplacements,
  hasTwins,
  latestAnswerText,
  ReplacementError,
  type SaidPart,
} from './texts.ts';

export { denial } from '../../gateway/guardrail-denial.ts';

/** Largest answer that is judged; the bound of answers that are converted. */
export const JUDGED_BYTES = 64 * 1024 * 1024;

/**
 * Whether all that an answer of the operation says is judged. Where it is not, a guardrail that denies must refuse before
 * the call. Speech says something that nobody here can read; files and batches leave by another way.
 */
export function outputCovered({ gives }: Operation, stream: boolean): boolean {
  return gives === 'text' || (!stream && (gives === 'whole' || gives === 'nothing'));
}

/** What of the answer's guardrails may change it: they must not be passed by any more than those that deny. */
export function mayReplace({ checks }: Guardrail): boolean {
  return checks.some(
    (check) => check.mutates && check.phases.includes('output') && (check.judge?.lookBehind ?? null) === null,
  );
}

/** Whether an answer that cannot be judged by the guardrail must not be given. */
export const insists = (guardrail: Guardrail): boolean =>
  !guardrail.actions.async && (guardrail.actions.deny || mayReplace(guardrail));

/** The subject of an answer. `texts` may be a window of it. */
export function outputSubject(
  request: JudgedRequest,
  parts: {
    readonly texts: readonly TextPart[];
    readonly window: Subject['window'];
    readonly callsTools: () => boolean;
    readonly transformed: boolean;
    readonly status: number;
    readonly answer: () => unknown;
    /** Absent: all texts. */
    readonly latest?: () => string;
  },
): Subject {
  const phase: Phase = 'output';
  let sent: { readonly json: unknown } | null = null;
  const { texts } = parts;
  return {
    phase,
    window: parts.window,
    texts,
    latest: parts.latest ?? (() => texts.map(({ text }) => text).join('\n')),
    request() {
      sent ??= { json: jsonIn(request.body) };
      return sent.json;
    },
    answer: parts.answer,
    get callsTools() {
      return parts.callsTools();
    },
    model: request.model === '' ? null : request.model,
    provider: request.target.provider,
    requestType: request.operation.requestType,
    streams: request.streams,
    transformed: parts.transformed,
    status: parts.status,
    metadata: request.metadata,
    header: request.header,
  };
}

function jsonIn(body: RequestBody): unknown {
  if (body.bytes.length === 0) return undefined;
  try {
    return body.value();
  } catch {
    return undefined;
  }
}

function jsonOf(bytes: Buffer): unknown {
  if (bytes.length === 0) return undefined;
  try {
    return parseExact(bytes.toString('utf8'));
  } catch {
    return undefined;
  }
}

/** An answer as the caller would get it. */
export interface Answer {
  readonly status: number;
  /** Of the upstream. */
  readonly headers: readonly string[];
  readonly body: Buffer;
  /** No fields may be added to it. */
  readonly strict: boolean;
}

/** The body to send, or null for a refusal; results are on the exchange. */
export type Judged = Buffer | null;

/** What the judging of an answer reads of the guardrails of its request, and what it leaves there. */
export type AnswerGuard = Pick<
  GuardrailState,
  'output' | 'before' | 'after' | 'failed' | 'soft' | 'outside' | 'onAsync'
> & { readonly onBeside?: () => void };

/** Judges an answer in one piece. What nothing changed keeps its bytes. */
export function judgeWholeAnswer(request: JudgedRequest, guard: AnswerGuard, answer: Answer): Judged | Promise<Judged> {
  const read = readAnswer(request.operation, answer);
  const list = guard.output;
  if (list.length === 0) return withResults(guard, answer, read?.json, answer.body);
  if (read === null || !outputCovered(request.operation, false)) {
    const refused = notJudged(request, guard, list, 'The answer is in a form that cannot be read.');
    return refused ? null : answer.body;
  }
  const { json } = read;
  const { texts, outcome, changed } = judgeWhole(request, guard, list, json, answer.status);
  if (outcome === null) {
    notJudged(request, guard, list, unreadable(texts));
    return null;
  }
  const take = (said: Outcome): Judged => {
    takeOutcome(guard, said, said.results);
    if (said.denied) return null;
    const untouched = said.replaced === undefined && said.replacements.length === 0;
    let out: unknown;
    try {
      out = untouched ? json : changed(said);
    } catch (error) {
      if (!(error instanceof ReplacementError)) throw error;
      guard.after = withoutChange(said.results, error.message);
      return null;
    }
    const body = untouched ? answer.body : Buffer.isBuffer(out) ? out : Buffer.from(JSON.stringify(out));
    return withResults(guard, answer, out, body);
  };
  return outcome instanceof Promise ? outcome.then(take) : take(outcome);
}

interface WholeRun {
  readonly texts: readonly SaidPart[];
  /** Null where the answer has a text that cannot be read and some guardrail insists. */
  readonly outcome: Outcome | Promise<Outcome> | null;
  /** The answer after what an outcome changes. */
  readonly changed: (change: Change) => unknown;
}

/** Runs guardrails over a whole answer. */
export function judgeWhole(
  request: JudgedRequest,
  guard: Pick<AnswerGuard, 'outside' | 'onAsync' | 'onBeside'>,
  list: readonly Guardrail[],
  said: unknown,
  status: number,
): WholeRun {
  const { operation } = request;
  const changed = ({ replaced, replacements }: Change): unknown => {
    if (replaced !== undefined && Buffer.isBuffer(said))
      throw new ReplacementError('The answer is no JSON that another could replace.');
    const base = replaced ?? said;
    return replacements.length === 0 ? base : applyReplacements(operation, base, replacements);
  };
  const texts = answerTexts(operation, said);
  if (texts.some((part) => part.unreadable !== undefined) && list.some(insists))
    return { texts, outcome: null, changed };
  const subjectOf = (answer: unknown, parts: readonly TextPart[], transformed: boolean): Subject =>
    outputSubject(request, {
      texts: parts,
      window: null,
      callsTools: () => answerCallsTools(operation, answer),
      transformed,
      status,
      answer: () => answer,
      latest: () => latestAnswerText(operation, answer),
    });
  const given = subjectOf(said, texts, false);
  const outcome = runGuardrails(list, given, {
    outside: guard.outside,
    clock: request.services.clock,
    onAsync: guard.onAsync,
    ...(guard.onBeside === undefined ? null : { onBeside: guard.onBeside }),
    view(_messages, change) {
      if (change === null) return given;
      const answer = changed(change);
      return subjectOf(answer, answerTexts(operation, answer), true);
    },
  });
  return { texts, outcome, changed };
}

export function unreadable(texts: readonly SaidPart[]): string {
  const path = texts.find((part) => part.unreadable !== undefined)?.path ?? '';
  return `The answer holds a text that cannot be read, at ${path}.`;
}

/** Puts what the guardrails of the answer said where answers and records find it. */
export function takeOutcome(
  guard: Pick<AnswerGuard, 'after' | 'failed' | 'soft'>,
  outcome: Pick<Outcome, 'failed' | 'soft'>,
  results: readonly GuardrailResult[],
): void {
  guard.after = results;
  guard.failed ||= outcome.failed;
  // Of this answer: one before it may have been refused otherwise.
  guard.soft = outcome.soft;
}

/** Whether the bytes of an answer are not what they stand for. */
export function isEncoded(headers: readonly string[]): boolean {
  return (headerOf(headers, 'content-encoding')?.toLowerCase() ?? 'identity') !== 'identity';
}

/** JSON parsed, where it may be something else as bytes; null for what it should not be. */
function readAnswer({ wire }: Operation, { headers, body }: Answer): { readonly json: unknown } | null {
  if (isEncoded(headers)) return null;
  if (isJson(headers)) {
    // An answer without a body says nothing.
    if (body.length === 0) return { json: null };
    const json = jsonOf(body);
    // What readers may find different texts in is read by nobody here.
    return json === undefined || !isUtf8(body) || hasTwins(body.toString('utf8')) ? null : { json };
  }
  return wire.answersPlainly ? { json: body } : null;
}

/**
 * Results of guardrails that could not judge: those that insist fail, others are skipped. True when one denies or would
 * have had to change what it could not.
 */
export function notJudged(
  x: Uses<never, 'clock'>,
  guard: Pick<AnswerGuard, 'after' | 'onAsync'>,
  list: readonly Guardrail[],
  why: string,
): boolean {
  const created_at = new Date(x.services.clock.now()).toISOString();
  let refused = false;
  const results: GuardrailResult[] = [];
  for (const guardrail of list) {
    const { actions, slug, type, checks } = guardrail;
    const fails: boolean = insists(guardrail) && !refused;
    refused ||= fails;
    const result: GuardrailResult = {
      verdict: !fails,
      id: slug,
      transformed: false,
      checks: fails
        ? checks.map(({ id, common }) => ({
            id,
            verdict: false,
            data: null,
            excerpts: [],
            execution_time: 0,
            transformed: false,
            created_at,
            log: null,
            error: { name: 'NotJudged', message: why },
            fail_on_error: common.failOnError,
          }))
        : [],
      feedback: null,
      execution_time: 0,
      async: actions.async,
      deny: actions.deny,
      skipped: !fails,
      type,
      created_at,
    };
    if (actions.async) guard.onAsync(result);
    else results.push(result);
  }
  guard.after = results;
  return refused;
}

const OPEN = 123;
const CLOSE = 125;

/** The body with `hook_results` beside what it says, where fields may be added; its other bytes stay. */
function withResults(
  guard: Pick<AnswerGuard, 'before' | 'after'>,
  { strict }: Answer,
  json: unknown,
  body: Buffer,
): Buffer {
  if (strict || !isObject(json) || guard.before.length + guard.after.length === 0) return body;
  if ('hook_results' in json) {
    const all: JsonObject = { ...json, hook_results: hookResults(guard) };
    return Buffer.from(JSON.stringify(all));
  }
  const end = body.lastIndexOf(CLOSE);
  if (end < 0 || body.indexOf(OPEN) < 0) return body;
  const comma = Object.keys(json).length === 0 ? '' : ',';
  const field = `${comma}"hook_results":${JSON.stringify(hookResults(guard))}`;
  return Buffer.concat([body.subarray(0, end), Buffer.from(field), body.subarray(end)]);
}
