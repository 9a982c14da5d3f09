import type { ActualUse } from '../../limits/ledger/ledger.ts';
import { orderingTimestamp } from '../../limits/ordering-timestamp.ts';
import { modelKey } from '../estimate.ts';
import type { Uses } from '../exchange.ts';
import { type PricedUsage, partsOf, priceUsage, usedUnder } from '../price-usage.ts';
import { endTargetLimits } from '../routing/target-limits.ts';

const NOTHING: ActualUse = { cost: 0, carry: 0, tokens: 0, requests: 0, unpriced: 0 };

/**
 * Prices what was used and books it: by the answer, and by attempts before it that were broken off. A refused request used
 * nothing; a known usage of an unknown price stays null in the record, whatever a limit was charged for it.
 */
export function settle(
  x: Uses<'attempt' | 'limits' | 'outcome' | 'request', 'outputEstimator' | 'pricer' | 'storeClock' | 'unpriced'>,
): void | Promise<void> {
  try {
    return book(x);
  } catch (error) {
    // Whatever could not be understood, nothing stays reserved.
    const used = { ...NOTHING, requests: x.outcome.attemptCount > 0 ? 1 : 0 };
    x.limits.targetLimits?.usageReservation?.settle(used, () => {});
    x.limits.usageReservation?.settle(used, () => {});
    x.limits.usageReservation = null;
    throw error;
  }
}

function book(
  x: Uses<'attempt' | 'limits' | 'outcome' | 'request', 'outputEstimator' | 'pricer' | 'storeClock' | 'unpriced'>,
): void | Promise<void> {
  x.attempt.control = null;
  if (x.request.dryRun) return;
  const parts = partsOf(x);
  // Files, batches and jobs are free to ask for: the use of a job or batch is recorded when it is known.
  const objects = x.request.operation.family === 'job';
  const cached = x.attempt.caching?.hit != null;
  if (
    parts.length === 0 &&
    (cached || (x.attempt.target !== null && x.outcome.attempts.length === 0) || (objects && !x.outcome.uncounted))
  )
    x.outcome.costMicros = 0;
  const accepted = x.outcome.attemptCount > 0 || cached || (objects && x.outcome.result === 'ok');
  const booked = priceUsage(x, parts, accepted, x.outcome.result === 'ok');
  const { usage, used, cost, price } = booked;
  const last = x.outcome.answer.usage;
  if (x.limits.targetLimits !== null) endTargetLimits(x, x.outcome.result === 'ok');
  x.outcome.usage = usage;
  x.outcome.unpriced = used.unpriced > 0;
  if (cost !== null) {
    x.outcome.costMicros = cost.micros;
    x.outcome.costCarry = cost.carry;
    if (price !== null) x.outcome.price = { source: price.source, rates: cost.rates };
  }
  if (usage !== null && x.attempt.target !== null) x.limits.rateReservation?.settle(used.tokens);
  else if (!accepted && (x.outcome.result === 'refused' || x.limits.shared !== null) && !objects)
    x.limits.rateReservation?.release();
  const {
    limits: { usageReservation: held, facts: limits },
  } = x;
  if (limits !== null && limits.refused === undefined) limits.ended_at = orderingTimestamp(x.services.storeClock.now());
  if (held !== null && last !== null && last.output > 0)
    x.services.outputEstimator.learn(modelKey(x, x.outcome.asked(x.request)), last.output);
  if (held !== null && limits !== null) limits.used = used;
  x.limits.usageReservation = null;
  const { shared } = x.limits;
  if (shared === null) {
    if (held === null) return;
    // The client sees the end of its answer only when what it used will be counted, whatever kills the process.
    return new Promise((resolve) => held.settle(tellingPrice(x, booked), resolve));
  }
  const { settling } = shared;
  if (held !== null) settling.push(new Promise((resolve) => held.settle(tellingPrice(x, booked), resolve)));
  if (settling.length > 0) return Promise.all(settling).then(() => {});
}

/** Where no price is known, a limit on cost is charged by the price that it sets, and the record names the first of them. */
function tellingPrice(x: Uses<'limits' | 'outcome'>, booked: PricedUsage): ActualUse {
  const { used, chargeAt } = booked;
  const under = usedUnder(booked);
  if (under.charge === undefined) return used;
  return {
    ...used,
    charge(spec) {
      const set = chargeAt(spec);
      if (set === null) return used;
      const { micros: cost, carry, rates } = set.cost;
      if (x.outcome.price === null && x.limits.facts !== null)
        x.limits.facts.used = { ...used, cost, carry, unpriced: 0 };
      x.outcome.price ??= { source: set.price.source, rates };
      return { cost, carry, unpriced: 0 };
    },
  };
}
