import { retryHintMs } from '../../kernel/retry-hint.ts';
import { attempt } from '../attempt.ts';
import { beginCapture } from '../bodies/begin.ts';
import type { Exchange, Uses } from '../exchange.ts';
import { outcomeOf } from '../relay/failed-answer.ts';
import { headerOf } from '../relay/response-inspection.ts';
import { MAX_ATTEMPTS, mayFollow, noteBreak, resumablePrefix } from '../relay/retry-eligibility.ts';
import { namesStatus } from '../relay/retry-rules.ts';
import { renewedTarget } from '../renew-credential.ts';
import type { FailedResult } from '../state/attempt-result.ts';
import type { Target } from '../target.ts';
import { buildTargetRequest } from './build-target-request.ts';

/** Of one hint, and of all waits of one request. */
const MAX_WAIT_MS = 60_000;

/** Calls the target, again where the config allows it and nothing reached the client yet; the last result counts. */
export async function callTarget(x: Exchange): Promise<void> {
  let target = x.attempt.requireTarget();
  let renewed: Target | null = null;
  x.capture ??= beginCapture(x);
  // What it is handed may still be read after the request.
  if (x.execution !== null && target.provider.local !== undefined) x.execution.local = true;
  for (let tries = 0; ; tries++) {
    x.attempt.retriesLeft = target.retry !== null && tries < target.retry.attempts ? target.retry : null;
    // Events shown by then belong to what is asked for next.
    if (resumablePrefix(x.outcome) !== null) await buildTargetRequest(x);
    const result = await attempt(x, target, x.attempt.requirePrepared());
    if (renewed === null && result.kind === 'answered' && target.stored?.account.renew !== undefined) {
      renewed = await renewedTarget(x, target, result);
      if (renewed !== null) {
        target = renewed;
        x.attempt.target = target;
        await buildTargetRequest(x);
        tries -= 1;
        continue;
      }
    }
    const wait = result.kind === 'done' ? null : waitAfter(x, target, result, tries);
    if (wait === null) {
      x.attempt.result = result;
      return;
    }
    x.outcome.backoffMs += wait;
    await pause(x, wait);
  }
}

/** Milliseconds until the next try, or null when this result is final. */
function waitAfter(
  x: Uses<'clientGone' | 'outcome' | 'request', 'clock' | 'random'>,
  target: Target,
  result: FailedResult,
  tries: number,
): number | null {
  noteBreak(x.outcome, result);
  const { retry } = target;
  if (retry === null || tries >= retry.attempts || x.clientGone || x.outcome.attempts.length >= MAX_ATTEMPTS)
    return null;
  if (!mayFollow(x, target) || !namesStatus(retry.statusCodes, ...outcomeOf(result))) return null;
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
