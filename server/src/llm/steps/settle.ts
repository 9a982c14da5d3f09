import type { Used } from '../../limits/ledger/ledger.ts';
import { stamp } from '../../limits/stamp.ts';
import { type Cost, costMicros } from '../../pricing/cost.ts';
import { modelKey } from '../estimate.ts';
import type { Exchange } from '../exchange.ts';

/** Prices what was used and books it. A refused request used nothing; a known usage of an unknown price stays null. */
export function settle(x: Exchange): void | Promise<void> {
  x.control = null;
  if (x.dryRun) return;
  const cost = price(x);
  const { usage } = x;
  if (usage !== null && x.target !== null) x.reservation?.settle(usage.input + usage.output);
  const { held, limits } = x;
  if (limits !== null && limits.refused === undefined) limits.ended_at = stamp(x.services.storeClock.now());
  if (held === null) return;
  x.held = null;
  if (usage !== null && usage.output > 0) x.services.outputs.learn(modelKey(x), usage.output);
  const accepted = x.tries > 0 || (x.operation.family === 'J' && x.outcome === 'ok');
  const used: Used = {
    cost: cost?.micros ?? 0,
    carry: cost?.carry ?? 0,
    tokens: usage === null ? 0 : usage.input + usage.output,
    requests: accepted ? 1 : 0,
    unpriced: accepted && x.costMicros === null && (usage !== null || x.outcome === 'ok') ? 1 : 0,
  };
  if (limits !== null) limits.used = used;
  // The client sees the end of its answer only when what it used will be counted, whatever kills the process.
  return new Promise((resolve) => held.settle(used, resolve));
}

function price(x: Exchange): Cost | null {
  const { usage, target } = x;
  if (usage === null) {
    // Files, batches and jobs are free to ask for: what a job or batch used is told when it is known.
    if ((target !== null && x.attempts.length === 0) || x.operation.family === 'J') x.costMicros = 0;
    return null;
  }
  if (target === null) return null;
  const known = x.services.pricer.price(target.provider.id, x.modelAnswered, x.model, target.stored, x.time);
  if (known === null) return null;
  const cost = costMicros(known, usage);
  x.costMicros = cost.micros;
  x.price = { source: known.source, rates: cost.rates };
  return cost;
}
