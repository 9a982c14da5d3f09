import { costMicros } from '../../pricing/cost.ts';
import type { Exchange } from '../exchange.ts';

/** Prices what was used and books it. A refused request used nothing; a known usage of an unknown price stays null. */
export function settle(x: Exchange): void {
  x.control = null;
  const { usage, target } = x;
  if (x.dryRun || target === null) return;
  if (usage === null) {
    if (x.attempts.length === 0) x.costMicros = 0;
    return;
  }
  const price = x.services.pricer.price(target.provider.id, x.modelAnswered, x.model, target.stored, x.time);
  if (price !== null) {
    const cost = costMicros(price, usage);
    x.costMicros = cost.micros;
    x.price = { source: price.source, rates: cost.rates };
  }
  x.reservation?.settle(usage.input + usage.output);
}
