/** What one target of several is counted in by itself: limits of its provider, and of policies that ask for it. */
import type { Reservation } from '../../limits/admission.ts';
import type { Hold } from '../../limits/ledger/ledger.ts';
import type { Exchange } from '../exchange.ts';
import { bookUse, partsOf, usedUnder } from '../settle-use.ts';
import type { Target } from '../target.ts';
import type { Walk } from './walk.ts';

export interface Leg {
  readonly target: Target;
  reservation: Reservation | null;
  held: Hold | null;
  /** Counters of policies that this target counts the request in. */
  readonly counts: string[];
  /** How much of `Exchange.spent`, and how many calls, there were before it. */
  readonly spentBefore: number;
  readonly triesBefore: number;
}

export function beginLeg(x: Exchange, target: Target): Leg {
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
export function endLeg(x: Exchange, walk: Walk, answered: boolean): void {
  const {
    limits: { leg },
  } = x;
  if (leg === null) return;
  x.limits.leg = null;
  const tried = x.outcome.attemptCount > leg.triesBefore || x.attempt.caching?.hit != null;
  if (tried) for (const id of leg.counts) walk.counted.add(id);
  const booked = bookUse(x, partsOf(x).slice(leg.spentBefore), tried, answered);
  const { cost, tokens } = booked.used;
  walk.used = { cost: walk.used.cost + cost, tokens: walk.used.tokens + tokens };
  if (tried) leg.reservation?.settle(tokens);
  else leg.reservation?.release();
  const { held } = leg;
  if (held !== null) walk.settling.push(new Promise((resolve) => held.settle(usedUnder(booked), resolve)));
}
