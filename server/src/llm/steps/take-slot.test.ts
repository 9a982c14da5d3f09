import { expect, it } from 'vitest';
import { callerWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { BodyBudget } from '../../http/body-budget.ts';
import { FairShares } from '../../kernel/fair-shares.ts';
import { freeSlot, takeSlot } from './take-slot.ts';

const bodies = new BodyBudget(1e6);

function request(concurrency: FairShares, organisationId = 'o') {
  const x = testExchange({}, { concurrency, bodies });
  x.request.principal = callerWith({ organisationId });
  return x;
}

it('an organisation has its share of the requests under way, and another one still gets in', () => {
  const concurrency = new FairShares('requests', 4);
  for (let i = 0; i < 2; i++) takeSlot(request(concurrency));
  const refused = request(concurrency);
  expect(() => takeSlot(refused)).toThrow(expect.objectContaining({ kind: 'out_of_service', retryAfter: 1 }));
  expect(() => takeSlot(refused)).toThrow('Your organisation has 2 requests under way');
  takeSlot(request(concurrency, 'other'));
  expect(concurrency.held).toBe(3);
});

it('the end of a request makes room for one more, once', () => {
  const concurrency = new FairShares('requests', 4);
  const [first, second] = [request(concurrency), request(concurrency)];
  takeSlot(first);
  takeSlot(second);
  freeSlot(first);
  freeSlot(first);
  expect(concurrency.heldBy('o')).toBe(1);
});

it('a refused request gives back nothing that it never had', () => {
  const concurrency = new FairShares('requests', 4);
  takeSlot(request(concurrency));
  takeSlot(request(concurrency));
  const refused = request(concurrency);
  expect(() => takeSlot(refused)).toThrow();
  freeSlot(refused);
  expect(concurrency.held).toBe(2);
});
