/** Whether, and how, another attempt may take the place of one that failed. */

import { SluiceError } from '../../kernel/errors.ts';
import { prefillOf } from '../../providers/binding.ts';
import type { Uses } from '../exchange.ts';
import type { AttemptResult } from '../state/attempt-result.ts';
import type { LlmOutcome } from '../state/outcome.ts';
import type { Target } from '../target.ts';
import { DeliveredPrefix } from './delivered-prefix.ts';

/**
 * Of one request, all targets, retries and hedged calls together. A config may have thousands of targets, and one request
 * must not become as many calls of a provider that is down, or of a host that never asked for them.
 */
export const MAX_ATTEMPTS = 200;

/**
 * Whether an attempt at this target may follow: the caller has seen nothing yet, or the target takes what was seen as the
 * beginning of its answer.
 */
export function mayFollow(x: Uses<'clientGone' | 'outcome' | 'request'>, target: Target): boolean {
  if (!x.outcome.headSent) return true;
  if (x.outcome.deliveredPrefix === null || !x.outcome.deliveredPrefix.continuable || x.clientGone) return false;
  const model = target.sends(x.request.model);
  return prefillOf(target.bind(x.request.operation.id, model).binding, model, target.credentials) !== null;
}

/** What the next attempt goes on from; null: it begins. */
export function resumablePrefix(outcome: LlmOutcome): DeliveredPrefix | null {
  return outcome.headSent ? outcome.deliveredPrefix : null;
}

/** Follows what the caller sees, where the config wants a break to be gone on from, something can, and nothing judges it. */
export function followDelivered(x: Uses<'attempt' | 'guard' | 'outcome' | 'request'>, target: Target): void {
  if (x.outcome.deliveredPrefix !== null || x.outcome.headSent || target.onBreak?.onBreak !== 'continue') return;
  if (!x.attempt.mayBeFollowed || (x.guard?.output.length ?? 0) > 0) return;
  x.outcome.deliveredPrefix = new DeliveredPrefix(x.request.operation.wire.resume);
}

/** The error of a stream that no target continues: what broke it. */
export function brokenStream({ deliveredPrefix }: LlmOutcome): SluiceError {
  return deliveredPrefix?.broken ?? new SluiceError('upstream_cut', 'The stream broke, and no target can continue it.');
}

/** An attempt has failed. Remembers what broke a stream that was begun: the caller gets this error in the end. */
export function noteBreak(outcome: LlmOutcome, result: AttemptResult): void {
  if (outcome.deliveredPrefix !== null && outcome.headSent && result.kind === 'failed')
    outcome.deliveredPrefix.broken ??= result.error;
}
