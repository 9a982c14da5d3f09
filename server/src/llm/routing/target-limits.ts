import type { Uses } from '../exchange.ts';
import { partsOf, priceUsage, usedUnder } from '../price-usage.ts';
import type { TargetLimits } from '../state/limits.ts';
import type { Target } from '../target.ts';

export function beginTargetLimits(x: Uses<'limits' | 'outcome'>, target: Target): TargetLimits {
  const targetLimits: TargetLimits = {
    target,
    rateReservation: null,
    usageReservation: null,
    counts: [],
    spentBefore: x.outcome.spent?.length ?? 0,
  };
  x.limits.targetLimits = targetLimits;
  return targetLimits;
}

/**
 * The target is done with: what it used is booked where only it is counted, and nothing stays reserved.
 *
 * @param answered whether the caller gets its answer
 */
export function endTargetLimits(
  x: Uses<'attempt' | 'limits' | 'outcome' | 'request', 'pricer' | 'unpriced'>,
  answered: boolean,
): void {
  const {
    limits: { targetLimits, shared },
  } = x;
  if (targetLimits === null || shared === null) return;
  x.limits.targetLimits = null;
  const tried = x.outcome.attemptCount > x.attempt.callsBefore || x.attempt.caching?.hit != null;
  if (tried) for (const id of targetLimits.counts) shared.counted.add(id);
  const booked = priceUsage(x, partsOf(x).slice(targetLimits.spentBefore), tried, answered);
  const { cost, tokens } = booked.used;
  shared.used.cost += cost;
  shared.used.tokens += tokens;
  if (tried) targetLimits.rateReservation?.settle(tokens);
  else targetLimits.rateReservation?.release();
  const { usageReservation: held } = targetLimits;
  if (held !== null) shared.settling.push(new Promise((resolve) => held.settle(usedUnder(booked), resolve)));
}
