import { expect, it } from 'vitest';
import { callerWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { BodyBudget } from '../../http/body-budget.ts';
import { Shares } from '../../kernel/shares.ts';
import { enter, leave } from './enter.ts';

const bodies = new BodyBudget(1e6);

function request(underWay: Shares, organisationId = 'o') {
  const x = testExchange({}, { underWay, bodies });
  x.request.principal = callerWith({ organisationId });
  return x;
}

it('an organisation has its share of the requests under way, and another one still gets in', () => {
  const underWay = new Shares('requests', 4);
  for (let i = 0; i < 2; i++) enter(request(underWay));
  const refused = request(underWay);
  expect(() => enter(refused)).toThrow(expect.objectContaining({ kind: 'out_of_service', retryAfter: 1 }));
  expect(() => enter(refused)).toThrow('Your organisation has 2 requests under way');
  enter(request(underWay, 'other'));
  expect(underWay.held).toBe(3);
});

it('the end of a request makes room for one more, once', () => {
  const underWay = new Shares('requests', 4);
  const [first, second] = [request(underWay), request(underWay)];
  enter(first);
  enter(second);
  leave(first);
  leave(first);
  expect(underWay.heldBy('o')).toBe(1);
});

it('a refused request gives back nothing that it never had', () => {
  const underWay = new Shares('requests', 4);
  enter(request(underWay));
  enter(request(underWay));
  const refused = request(underWay);
  expect(() => enter(refused)).toThrow();
  leave(refused);
  expect(underWay.held).toBe(2);
});
