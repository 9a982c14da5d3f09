import { expect, it } from 'vitest';
import { accountWith, callerWith, PRICER, targetWith, workspaceWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { limitSpecWith } from '../../../test/support/ledger-node.ts';
import type { ActualUse, UsageReservation } from '../../limits/ledger/ledger.ts';
import { createOutputEstimator } from '../../limits/ledger/output-estimator.ts';
import { NO_TOKENS } from '../../operations/usage.ts';
import type { Price } from '../../pricing/price.ts';
import { passAnswerOver } from '../attempt.ts';
import { routeOf } from '../routing/route.ts';
import { newRouteExecution } from '../routing/route-execution.ts';
import { beginTargetLimits, endTargetLimits } from '../routing/target-limits.ts';
import { Attempt } from '../state/attempt.ts';
import { SharedLimits } from '../state/limits.ts';
import { settle } from './settle.ts';

const tokens = (input: number, output: number) => ({ ...NO_TOKENS, input, output });
const bare = ({ cost, tokens: count, requests, unpriced }: ActualUse) => ({ cost, tokens: count, requests, unpriced });

/** A hold that tells what was booked on it. */
function held(booked: ActualUse[]): UsageReservation {
  return {
    seen: null,
    states: [],
    grow() {},
    settle(used, done) {
      booked.push(used);
      done();
    },
  };
}

/** A request that was sent to a model; an input token costs one micro-dollar, an output token two. */
function request(
  price: () => Price | null = PRICER.price,
  unpriced: 'serve' | { input: number; output: number } = 'serve',
) {
  const booked: ActualUse[] = [];
  const x = testExchange({}, { pricer: { ...PRICER, price }, outputEstimator: createOutputEstimator(), unpriced });
  x.request.principal = callerWith();
  x.request.snapshot = workspaceWith();
  x.request.model = 'm';
  x.attempt.target = targetWith();
  x.limits.usageReservation = held(booked);
  x.limits.facts = {};
  x.outcome.attemptCount = 1;
  return { x, booked };
}

it('an answer is charged at the price of its model, and the record says at which', async () => {
  const { x, booked } = request();
  x.outcome.answer.usage = tokens(10, 5);
  await settle(x);
  expect(booked.map(bare)).toEqual([{ cost: 20, tokens: 15, requests: 1, unpriced: 0 }]);
  expect(x.outcome).toMatchObject({ costMicros: 20, price: { source: 'usage-limit' }, unpriced: false });
  expect(x.limits.facts).toMatchObject({ used: { cost: 20 } });
});

it('what was used by an attempt that failed is still billed', async () => {
  const { x, booked } = request();
  x.outcome.answer.usage = tokens(100, 0);
  passAnswerOver(x);
  x.attempt = Attempt.after(x.attempt, x.request);
  x.attempt.target = targetWith('config.targets[1]');
  x.outcome.attemptCount = 2;
  x.outcome.answer.usage = tokens(10, 5);
  await settle(x);
  expect(booked.map(bare)).toEqual([{ cost: 120, tokens: 115, requests: 1, unpriced: 0 }]);
  expect([x.outcome.costMicros, x.outcome.usage]).toEqual([120, tokens(110, 5)]);
});

it('an account’s own limit is charged for what it used itself, and not for the target before it', async () => {
  const { x } = request();
  const [first, second]: [ActualUse[], ActualUse[]] = [[], []];
  const execution = newRouteExecution(x, routeOf({ targets: [{ provider: '@a' }, { provider: '@b' }] }), 'place');
  x.execution = execution;
  x.limits.shared = new SharedLimits();
  x.outcome.attemptCount = 0;
  beginTargetLimits(x, targetWith()).usageReservation = held(first);
  x.outcome.attemptCount = 1;
  x.outcome.answer.usage = tokens(100, 0);
  passAnswerOver(x);
  endTargetLimits(x, false);
  x.attempt = Attempt.after(x.attempt, x.request);
  x.attempt.target = targetWith('config.targets[1]', accountWith());
  beginTargetLimits(x, x.attempt.target).usageReservation = held(second);
  x.outcome.attemptCount = 2;
  x.outcome.answer.usage = tokens(10, 5);
  await settle(x);
  expect([first.map(bare), second.map(bare)]).toEqual([
    [{ cost: 100, tokens: 100, requests: 1, unpriced: 0 }],
    [{ cost: 20, tokens: 15, requests: 1, unpriced: 0 }],
  ]);
});

it('a refused request has used nothing, no request either', async () => {
  const { x, booked } = request();
  x.outcome.attemptCount = 0;
  x.outcome.result = 'refused';
  await settle(x);
  expect(booked.map(bare)).toEqual([{ cost: 0, tokens: 0, requests: 0, unpriced: 0 }]);
  expect([x.outcome.costMicros, x.limits.usageReservation]).toEqual([0, null]);
});

it('a model without a price has no cost in the record, and is counted as unpriced', async () => {
  const { x, booked } = request(() => null);
  x.outcome.answer.usage = tokens(10, 5);
  await settle(x);
  expect(booked.map(bare)).toEqual([{ cost: 0, tokens: 15, requests: 1, unpriced: 1 }]);
  expect(x.outcome).toMatchObject({ costMicros: null, unpriced: true, price: null });
});

it('where limits set a price for such models they are charged by it, and the record has it', async () => {
  const { x, booked } = request(() => null, { input: 3, output: 0 });
  x.outcome.answer.usage = tokens(10, 5);
  await settle(x);
  const charge = booked[0]?.charge?.(limitSpecWith({ type: 'cost' }));
  expect([charge?.cost, x.outcome.price?.source, x.outcome.costMicros]).toEqual([30, 'usage-limit', null]);
});

it('a dry run books nothing', () => {
  const { x, booked } = request();
  x.request.dryRun = true;
  expect([settle(x), booked]).toEqual([undefined, []]);
});

it('the end of an answer waits until what it used is counted', async () => {
  const { x } = request();
  const journal = { written: () => {} };
  x.limits.usageReservation = { ...held([]), settle: (_used, counted) => Object.assign(journal, { written: counted }) };
  x.outcome.answer.usage = tokens(1, 1);
  let over = false;
  const pending = Promise.resolve(settle(x)).then(() => {
    over = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  expect(over).toBe(false);
  journal.written();
  await pending;
  expect(over).toBe(true);
});

it('nothing stays reserved when what was used cannot be priced', () => {
  const { x, booked } = request(() => {
    throw new Error('broken prices');
  });
  x.outcome.answer.usage = tokens(1, 1);
  expect(() => settle(x)).toThrow('broken prices');
  expect([booked.map(bare), x.limits.usageReservation]).toEqual([
    [{ cost: 0, tokens: 0, requests: 1, unpriced: 0 }],
    null,
  ]);
});
