import { expect, it } from 'vitest';
import { testExchange } from '../../../test/support/exchange.ts';
import { BodyBudget } from '../../http/body-budget.ts';
import { Caching } from '../cache/cache-entry-writer.ts';
import { keepAnswer } from './store-in-cache.ts';

it('an answer goes to the cache that was asked for it, and to none where none was', () => {
  const kept: Caching[] = [];
  const x = testExchange({}, { answers: { keep: (_x, caching) => void kept.push(caching) } });
  keepAnswer(x);
  expect(kept).toEqual([]);
  const key = { place: 'p', secret: Buffer.alloc(32) };
  const caching = new Caching(key, 1000, 'MISS', new BodyBudget(1e6), 'o');
  x.attempt.caching = caching;
  keepAnswer(x);
  expect(kept).toEqual([caching]);
});
