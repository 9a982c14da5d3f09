import type { Charge, Hold, Used } from '../../limits/ledger/ledger.ts';
import type { Terms } from '../../limits/ledger/terms.ts';
import { stamp } from '../../limits/stamp.ts';
import { type TokenUsage, totalUsage, wholeUsage } from '../../operations/usage.ts';
import { type Cost, costMicros, sumOfCosts } from '../../pricing/cost.ts';
import type { Price } from '../../pricing/price.ts';
import { isFree, modelKey } from '../estimate.ts';
import type { Exchange } from '../exchange.ts';
import { unpricedRate } from './reserve.ts';

const NOTHING: Used = { cost: 0, carry: 0, tokens: 0, requests: 0, unpriced: 0 };

/**
 * Prices what was used and books it: by the answer, and by attempts before it that were broken off. A refused request used
 * nothing; a known usage of an unknown price stays null in the record, whatever a limit was charged for it.
 */
export function settle(x: Exchange): void | Promise<void> {
  try {
    return book(x);
  } catch (error) {
    // Whatever could not be understood, nothing stays reserved.
    x.held?.settle({ ...NOTHING, requests: x.tries > 0 ? 1 : 0 }, () => {});
    x.held = null;
    throw error;
  }
}

function book(x: Exchange): void | Promise<void> {
  x.control = null;
  if (x.dryRun) return;
  const parts = usageParts(x);
  const usage = parts.length > 1 ? totalUsage(parts) : (parts[0] ?? null);
  x.usage = usage;
  const cost = price(x, parts);
  const accepted = x.tries > 0 || x.caching?.hit != null || (x.operation.family === 'J' && x.outcome === 'ok');
  if (usage !== null && x.target !== null) x.reservation?.settle(usage.input + usage.output);
  else if (!accepted && x.outcome === 'refused' && x.operation.family !== 'J') x.reservation?.release();
  const { held, limits } = x;
  if (limits !== null && limits.refused === undefined) limits.ended_at = stamp(x.services.storeClock.now());
  if (held === null) return;
  if (usage !== null && usage.output > 0) x.services.outputs.learn(modelKey(x), usage.output);
  const unpriced =
    accepted && x.costMicros === null && (!isFree(x) || x.uncounted) && (usage !== null || x.outcome === 'ok');
  const used: Used = {
    cost: cost?.micros ?? 0,
    carry: cost?.carry ?? 0,
    tokens: usage === null ? 0 : usage.input + usage.output,
    requests: accepted ? 1 : 0,
    unpriced: unpriced ? 1 : 0,
  };
  if (limits !== null) limits.used = used;
  x.held = null;
  if (unpriced && usage !== null) return bookAtSetPrices(x, held, used, parts);
  // The client sees the end of its answer only when what it used will be counted, whatever kills the process.
  return new Promise((resolve) => held.settle(used, resolve));
}

/** One for each attempt that used anything, each made of whole numbers. */
function usageParts({ usage, spent }: Exchange): readonly TokenUsage[] {
  if (spent === null) return usage === null ? [] : [wholeUsage(usage)];
  return (usage === null ? spent : [...spent, usage]).map(wholeUsage);
}

function price(x: Exchange, parts: readonly TokenUsage[]): Cost | null {
  const { target } = x;
  if (parts.length === 0) {
    // Files, batches and jobs are free to ask for: what a job or batch used is told when it is known.
    if ((target !== null && x.attempts.length === 0) || (x.operation.family === 'J' && !x.uncounted)) x.costMicros = 0;
    return null;
  }
  if (target === null) return null;
  const known = x.services.pricer.price(target.provider.id, x.modelAnswered, x.model, target.stored, x.time);
  if (known === null) return null;
  const cost = costOf(known, parts);
  x.costMicros = cost.micros;
  x.price = { source: known.source, rates: cost.rates };
  return cost;
}

function costOf(price: Price, parts: readonly TokenUsage[]): Cost {
  const [first, ...rest] = parts.map((usage) => costMicros(price, usage));
  return first === undefined ? { micros: 0, carry: 0, rates: price.rates } : sumOfCosts(first, rest);
}

/** Where no price is known, a limit on cost is charged by the price that it sets, and the record names the first of them. */
function bookAtSetPrices(x: Exchange, held: Hold, used: Used, parts: readonly TokenUsage[]): Promise<void> {
  const charge = (terms: Terms): Charge => {
    const set = unpricedRate(x, terms);
    if (set === null) return used;
    const { micros: cost, carry, rates } = costOf(set, parts);
    if (x.price === null && x.limits !== null) x.limits.used = { ...used, cost, carry, unpriced: 0 };
    x.price ??= { source: set.source, rates };
    return { cost, carry, unpriced: 0 };
  };
  return new Promise((resolve) => held.settle({ ...used, charge }, resolve));
}
