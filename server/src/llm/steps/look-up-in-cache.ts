import type { Exchange } from '../exchange.ts';
import { DONE } from '../state/attempt-result.ts';

/** Answers from the cache of the target, when all that an answer depends on is known: its key is what would be sent. */
export async function lookUpInCache(x: Exchange): Promise<void> {
  const target = x.attempt.requireTarget();
  if (target.cache === null || x.outcome.headSent) return;
  const began = x.request.elapsed();
  const found = await x.services.responseCache.look(x, target, x.attempt.requirePrepared(), target.cache);
  x.outcome.times.askedCache(began, x.request.elapsed(), found);
  if (found) x.attempt.result = DONE;
}
