import type { Uses } from '../exchange.ts';
import { bookUse, partsOf, usedUnder } from '../price-usage.ts';
import type { Leg } from '../state/limits.ts';
import type { Target } from '../target.ts';

export function beginLeg(x: Uses<'limits' | 'outcome'>, target: Target): Leg {
  const leg: Leg = {
    target,
    reservation: null,
    held: null,
    counts: [],
    spentBefore: x.outcome.spent?.length ?? 0,
    triesBefore: x.outcome.attemptCount,
  };
  x.limits.leg = leg;
  return leg;
}

/**
 * The target is done with: what it used is booked where only it is counted, and nothing stays reserved.
 *
 * @param answered whether the caller gets its answer
 */
export function endLeg(
  x: Uses<'attempt' | 'limits' | 'outcome' | 'request', 'pricer' | 'unpriced'>,
  answered: boolean,
): void {
  const {
    limits: { leg, shared },
  } = x;
  if (leg === null || shared === null) return;
  x.limits.leg = null;
  const tried = x.outcome.attemptCount > leg.triesBefore || x.attempt.caching?.hit != null;
  if (tried) for (const id of leg.counts) shared.counted.add(id);
  const booked = bookUse(x, partsOf(x).slice(leg.spentBefore), tried, answered);
  const { cost, tokens } = booked.used;
  shared.used.cost += cost;
  shared.used.tokens += tokens;
  if (tried) leg.reservation?.settle(tokens);
  else leg.reservation?.release();
  const { held } = leg;
  if (held !== null) shared.settling.push(new Promise((resolve) => held.settle(usedUnder(booked), resolve)));
}
