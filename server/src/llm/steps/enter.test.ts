import { expect, it } from 'vitest';
import { callerWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { BodyBudget } from '../../http/body-budget.ts';
import { FairShares } from '../../kernel/fair-shares.ts';
import { enter, leave } from './enter.ts';

const bodies = new BodyBudget(1e6);

function request(concurrency: FairShares, organisationId = 'o') {
  const x = testExchange({}, { concurrency, bodies });
  x.request.principal = callerWith({ organisationId });
  return x;
}

it('an organisation has its share of the requests under way, and another one still gets in', () => {
  const concurrency = new FairShares('requests', 4);
  for (let i = 0; i < 2; i++) enter(request(concurrency));
  const refused = request(concurrency);
  expect(() => enter(refused)).toThrow(expect.objectContaining({ kind: 'out_of_service', retryAfter: 1 }));
  expect(() => enter(refused)).toThrow('Your organisation has 2 requests under way');
  enter(request(concurrency, 'other'));
  expect(concurrency.held).toBe(3);
});

it('the end of a request makes room for one more, once', () => {
  const concurrency = new FairShares('requests', 4);
  const [first, second] = [request(concurrency), request(concurrency)];
  enter(first);
  enter(second);
  leave(first);
  leave(first);
  expect(concurrency.heldBy('o')).toBe(1);
});

it('a refused request gives back nothing that it never had', () => {
  const concurrency = new FairShares('requests', 4);
  enter(request(concurrency));
  enter(request(concurrency));
  const refused = request(concurrency);
  expect(() => enter(refused)).toThrow();
  leave(refused);
  expect(concurrency.held).toBe(2);
});
