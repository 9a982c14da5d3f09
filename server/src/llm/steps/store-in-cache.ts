import type { Exchange } from '../exchange.ts';

/** A complete answer goes into the cache that was asked for it, which nobody waits for. */
export function storeInCache(x: Exchange): void {
  if (x.attempt.caching !== null) x.services.responseCache.keep(x, x.attempt.caching);
}
