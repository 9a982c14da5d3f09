import { retryHintMs } from '../../kernel/retry-hint.ts';
import { attempt, prepare } from '../attempt.ts';
import { answerDryRun } from '../dry-run.ts';
import type { Exchange, Uses } from '../exchange.ts';
import { gatewayHeaders, retriesOf } from '../gateway-headers.ts';
import { fetchMedia } from '../media.ts';
import { checkOwners } from '../ownership/check.ts';
import { type AttemptResult, outcomeOf } from '../relay/attempt-result.ts';
import { headerOf } from '../relay/response-inspection.ts';
import { goesOnFrom, MAX_ATTEMPTS, mayFollow, noteBreak } from '../relay/retry-eligibility.ts';
import type { Retry } from '../relay/rules.ts';
import { namesStatus } from '../relay/rules.ts';
import type { Prepared } from '../state/prepared.ts';
import type { Target } from '../target.ts';

const DONE: AttemptResult = { kind: 'done' };
/** Of one hint, and of all waits of one request. */
const MAX_WAIT_MS = 60_000;

/** Calls the target, again where the config allows it and nothing reached the client yet. */
export async function dispatch(x: Exchange): Promise<void> {
  const {
    attempt: { target },
  } = x;
  if (target === null || x.outcome.ending !== null) return;
  const fetching = fetchMedia(x, target);
  if (fetching !== undefined) await fetching;
  const made = prepare(x, target);
  const prepared = made instanceof Promise ? await made : made;
  const owners = checkOwners(x, target, prepared);
  if (owners !== undefined) await owners;
  if (x.request.dryRun) return answerDryRun(x, target, prepared);
  const result = await call(x, target, prepared);
  if (result.kind !== 'done') give(x, result);
}

/** Calls one target until its answer is whole or no retry is left; the last result. */
export async function call(x: Exchange, target: Target, prepared: Prepared): Promise<AttemptResult> {
  if (
    target.cache !== null &&
    !x.outcome.headSent &&
    (await x.services.answers.look(x, target, prepared, target.cache))
  )
    return DONE;
  for (let tries = 0; ; tries++) {
    x.attempt.retriesLeft = target.retry !== null && tries < target.retry.attempts ? target.retry : null;
    // Events shown by then belong to what is asked for next.
    const result = await attempt(x, target, goesOnFrom(x.outcome) === null ? prepared : await prepare(x, target));
    if (result.kind === 'done') return result;
    noteBreak(x.outcome, result);
    const wait = mayFollow(x, target) ? retryDelay(x, target.retry, result, tries) : null;
    if (wait === null) return result;
    x.outcome.backoffMs += wait;
    await pause(x, wait);
  }
}

/** Milliseconds until the next try, or null when this result is final. */
function retryDelay(
  x: Uses<'clientGone' | 'outcome', 'clock' | 'random'>,
  retry: Retry | null,
  result: AttemptResult,
  tries: number,
): number | null {
  if (retry === null || tries >= retry.attempts || x.clientGone || x.outcome.attempts.length >= MAX_ATTEMPTS)
    return null;
  if (result.kind === 'done' || !namesStatus(retry.statusCodes, ...outcomeOf(result))) return null;
  // Those that failed together do not come back together: full jitter.
  let wait = x.services.random() * 1000 * 2 ** tries;
  if (result.kind === 'answered' && retry.useRetryAfter && result.status === 429) {
    const { headers } = result;
    const hinted = retryHintMs((name) => headerOf(headers, name), x.services.clock.now());
    if (hinted !== null && hinted > MAX_WAIT_MS) return null;
    wait = hinted ?? wait;
  }
  return x.outcome.backoffMs + wait > MAX_WAIT_MS ? null : wait;
}

function pause(x: Uses<'cancel', 'clock'>, ms: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const cancel = x.services.clock.after(ms, () => {
      x.cancel = null;
      resolve();
    });
    x.cancel = (error) => {
      cancel();
      reject(error);
    };
  });
}

/** The last result becomes the answer. */
export function give(
  x: Uses<'attempt' | 'limits' | 'outcome' | 'request' | 'walk', 'storeClock'>,
  result: Exclude<AttemptResult, { kind: 'done' }>,
): void {
  if (x.outcome.deliveredPrefix !== null && x.outcome.deliveredPrefix.broken !== null)
    throw x.outcome.deliveredPrefix.broken;
  if (result.kind === 'failed') throw result.error;
  const body = Buffer.from(result.body);
  const headers = [...result.headers];
  // The number of attempts is known only now: the head was built with the attempt before.
  for (let i = headers.length - 2; i >= 0; i -= 2) if (headers[i]?.startsWith('x-gateway-')) headers.splice(i, 2);
  gatewayHeaders(x, headers, x.attempt.target?.retry != null && retriesOf(x) >= x.attempt.target.retry.attempts);
  headers.push('content-length', String(body.length));
  x.outcome.status = result.status;
  x.outcome.result = 'failed';
  x.outcome.errorCode = (result.error.code ?? result.error.type).slice(0, 100);
  x.outcome.errorMessage = result.error.message.slice(0, 500);
  x.outcome.ending = { kind: 'whole', status: result.status, headers, body: [body] };
}
