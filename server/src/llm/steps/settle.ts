import { costMicros } from '../../pricing/cost.ts';
import type { Exchange } from '../exchange.ts';

/** Prices what was used and books it. A refused request used nothing; a known usage of an unknown price stays null. */
export function settle(x: Exchange): void {
  x.control = null;
  const { usage, target } = x;
  if (x.dryRun) return;
  if (usage === null) {
    // Files, batches and jobs are free to ask for: what a job or batch used is told when it is known.
    if ((target !== null && x.attempts.length === 0) || x.operation.family === 'J') x.costMicros = 0;
    return;
  }
  if (target === null) return;
  const price = x.services.pricer.price(target.provider.id, x.modelAnswered, x.model, target.stored, x.time);
  if (price !== null) {
    const cost = costMicros(price, usage);
    x.costMicros = cost.micros;
    x.price = { source: price.source, rates: cost.rates };
  }
  x.reservation?.settle(usage.input + usage.output);
}
