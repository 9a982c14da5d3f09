import { expect, it } from 'vitest';
import { testExchange } from '../../../test/support/exchange.ts';
import { BodyBudget } from '../../http/body-budget.ts';
import { CacheEntryWriter } from '../cache/cache-entry-writer.ts';
import { storeInCache } from './store-in-cache.ts';

it('an answer goes to the cache that was asked for it, and to none where none was', () => {
  const kept: CacheEntryWriter[] = [];
  const x = testExchange({}, { responseCache: { keep: (_x, caching) => void kept.push(caching) } });
  storeInCache(x);
  expect(kept).toEqual([]);
  const key = { place: 'p', secret: Buffer.alloc(32) };
  const caching = new CacheEntryWriter(key, 1000, 'MISS', new BodyBudget(1e6), 'o');
  x.attempt.caching = caching;
  storeInCache(x);
  expect(kept).toEqual([caching]);
});
