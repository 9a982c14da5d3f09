import type { Exchange } from '../exchange.ts';

/** Puts a complete answer into the cache that was asked for it; the answer does not wait. */
export function storeInCache(x: Exchange): void {
  if (x.attempt.caching !== null) x.services.responseCache.keep(x, x.attempt.caching);
}
