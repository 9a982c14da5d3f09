import { afterAll, beforeAll, expect, it } from 'vitest';
import {
  accountWith,
  callerWith,
  ownAdmission,
  ownLedger,
  PRICER,
  targetWith,
  workspaceWith,
} from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { limitSpecWith } from '../../../test/support/ledger-node.ts';
import type { LimitSpec } from '../../limits/ledger/limit-spec.ts';
import { createOutputEstimator } from '../../limits/ledger/output-estimator.ts';
import { beginTargetLimits, endTargetLimits } from '../routing/target-limits.ts';
import { appliedLimits, SharedLimits } from '../state/limits.ts';
import { admit } from './admit.ts';
import { reserve, reserveTarget } from './reserve.ts';
import { settle } from './settle.ts';

const BODY = Buffer.from('{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":10}');
const RPM = [{ type: 'requests', unit: 'rpm', value: 5 }] as const;
let books: Awaited<ReturnType<typeof ownLedger>>;
let owners = 0;

beforeAll(async () => {
  books = await ownLedger();
});
afterAll(() => books.close());

const limitOn = (type: LimitSpec['type'], limit: number) => {
  owners += 1;
  return limitSpecWith({ ownerKind: 'workspace', ownerId: `w-${owners}`, type, limit });
};

/** A request of a key with a rate limit, in a workspace with these usage limits. */
function request(budgets: readonly LimitSpec[], price: () => ReturnType<typeof PRICER.price> = PRICER.price) {
  const pricer = { ...PRICER, price };
  const services = { ledger: books.ledger, admission: ownAdmission(), pricer, outputs: createOutputEstimator() };
  const x = testExchange(
    { body: BODY, scan: ['max_tokens', 'max_completion_tokens'] },
    { ...services, unpriced: 'deny' },
  );
  x.attempt.target = targetWith('config', accountWith());
  x.request.model = 'm';
  x.request.principal = callerWith({ rateLimits: RPM });
  x.request.snapshot = workspaceWith({ usageLimits: budgets });
  return x;
}

const ended = async (x: ReturnType<typeof request>) => {
  await settle(x);
  await books.drain();
};

it('a limit that is used up refuses, and the request gives back its place in the rate limits', async () => {
  const limit = limitOn('requests', 1);
  const first = request([limit]);
  await reserve(first);
  first.outcome.attemptCount = 1;
  await ended(first);
  const refused = request([limit]);
  await admit(refused);
  expect(refused.limits.quota?.requests?.remaining).toBe(4);
  await expect(Promise.resolve(reserve(refused))).rejects.toMatchObject({ kind: 'usage_limit_exceeded' });
  expect(refused.limits.quota?.requests?.remaining).toBe(5);
  expect(refused.limits.exhausted?.spec.ownerId).toBe(limit.ownerId);
});

it('a request reserves what it may use at most: its output, and no less than its input', async () => {
  const x = request([limitOn('tokens', 1000)]);
  await reserve(x);
  const { estimate } = x.limits.facts ?? {};
  expect(estimate).toMatchObject({ bounded: true });
  expect(estimate?.tokens).toBeGreaterThanOrEqual(12);
  // An input token costs one, an output token two.
  expect(estimate?.cost).toBe((estimate?.tokens ?? 0) + 10);
});

it('a refused request gives back what it had reserved', async () => {
  const limit = limitOn('tokens', 1000);
  const x = request([limit]);
  await reserve(x);
  x.outcome.result = 'refused';
  await ended(x);
  const next = request([limit]);
  await reserve(next);
  expect(next.limits.usageReservation?.states[0]?.left).toBe(1000);
});

it('where a limit on cost says so, a model without a price is refused by its name', async () => {
  const x = request([limitOn('cost', 1000)], () => null);
  expect(() => reserve(x)).toThrow(expect.objectContaining({ unpriced: true }));
  expect(x.limits.usageReservation).toBeNull();
});

it('a dry run reserves nothing, and its record names the limits that it would be asked under', () => {
  const limit = limitOn('tokens', 1000);
  const x = request([limit]);
  x.request.dryRun = true;
  expect(reserve(x)).toBeUndefined();
  expect([x.limits.usageReservation, appliedLimits(x.limits)]).toEqual([
    null,
    [`usage_limit workspace:${limit.ownerId}`],
  ]);
});

it('the record lists only the limits that were asked: a rate limit refuses before usage limits are', async () => {
  const limit = limitOn('tokens', 1000);
  const x = request([limit]);
  x.request.principal = callerWith({ rateLimits: [{ type: 'requests', unit: 'rpm', value: 1 }] });
  await admit(x);
  await reserve(x);
  expect(appliedLimits(x.limits)).toEqual(['rate_limit key:key-1', `usage_limit workspace:${limit.ownerId}`]);
  const refused = testExchange({}, x.services);
  refused.request.principal = x.request.principal;
  refused.request.snapshot = x.request.snapshot;
  await expect(Promise.resolve(admit(refused))).rejects.toMatchObject({ kind: 'rate_limit_exceeded' });
  expect(appliedLimits(refused.limits)).toEqual(['rate_limit key:key-1']);
});

/** The next of several targets, whose account has these usage limits. */
function turnTo(x: ReturnType<typeof request>, usageLimits: readonly LimitSpec[]) {
  const target = targetWith('config.targets[0]', accountWith({ usageLimits: [...usageLimits] }));
  x.attempt.target = target;
  return beginTargetLimits(x, target);
}

it('of several targets each reserves under its own limits when it is tried, and gives back what it did not use', async () => {
  const mine = limitOn('tokens', 1000);
  const own = limitOn('tokens', 1000);
  const x = request([mine]);
  x.limits.shared = new SharedLimits();
  await reserve(x);
  expect(appliedLimits(x.limits)).toEqual([`usage_limit workspace:${mine.ownerId}`]);
  const first = turnTo(x, [own]);
  await reserveTarget(x);
  expect(first.usageReservation?.states.map(({ spec }) => spec.ownerId)).toEqual([own.ownerId]);
  expect(appliedLimits(x.limits)).toHaveLength(2);
  endTargetLimits(x, false);
  await Promise.all(x.limits.shared.settling);
  await books.drain();
  const second = turnTo(x, [own]);
  await reserveTarget(x);
  expect(second.usageReservation?.states[0]?.free).toBe(first.usageReservation?.states[0]?.free);
  endTargetLimits(x, false);
  await ended(x);
});

it('a target whose limit is used up refuses, and the limits of the request keep what they hold', async () => {
  const own = limitOn('requests', 1);
  const before = request([own]);
  await reserve(before);
  before.outcome.attemptCount = 1;
  await ended(before);
  const x = request([limitOn('tokens', 1000)]);
  x.limits.shared = new SharedLimits();
  await reserve(x);
  const held = x.limits.usageReservation;
  turnTo(x, [own]);
  const refused = Promise.resolve().then(() => reserveTarget(x));
  await expect(refused).rejects.toMatchObject({ kind: 'usage_limit_exceeded' });
  expect([x.limits.exhausted?.spec.ownerId, x.limits.usageReservation]).toEqual([own.ownerId, held]);
  endTargetLimits(x, false);
  await ended(x);
});
