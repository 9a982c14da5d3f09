import { expect, it } from 'vitest';
import { accountWith, callerWith, ownAdmission, targetWith, workspaceWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import type { Admission } from '../../limits/rate-limits.ts';
import { limitedEntity } from '../../limits/rate-limits.ts';
import { beginTargetLimits } from '../routing/target-limits.ts';
import { appliedLimits, SharedLimits } from '../state/limits.ts';
import { admit, admitTarget } from './admit.ts';

const rpm = (value: number) => [{ type: 'requests', unit: 'rpm', value }] as const;

/** A request of a key with a limit to an account with one; `several`: that account is one of several targets. */
function request(admission: Admission, { key = 10, account = 10, several = false, dryRun = false } = {}) {
  const x = testExchange({}, { admission });
  const limited = limitedEntity('provider', 'p', 'sb', rpm(account));
  const target = targetWith('config', accountWith({ rateLimits: limited === null ? [] : [limited] }));
  x.request.principal = callerWith({ rateLimits: rpm(key) });
  x.request.snapshot = workspaceWith();
  x.request.dryRun = dryRun;
  x.attempt.target = target;
  if (several) x.limits.shared = new SharedLimits();
  return { x, target };
}

const left = ({ x }: ReturnType<typeof request>) => x.limits.quota?.requests?.remaining;

it('an answer tells what is left of the tightest limit', async () => {
  const asked = request(ownAdmission(), { key: 10, account: 3 });
  await admit(asked.x);
  expect(left(asked)).toBe(2);
});

it('a request that one limit refuses counts under none of the others', async () => {
  const admission = ownAdmission();
  await admit(request(admission, { account: 1 }).x);
  const refused = request(admission, { account: 1 });
  await expect(Promise.resolve(admit(refused.x))).rejects.toMatchObject({
    kind: 'rate_limit_exceeded',
    by: { kind: 'provider', id: 'p' },
  });
  expect(refused.x.limits.rateReservation).toBeNull();
  const after = request(admission, { several: true });
  await admit(after.x);
  expect(left(after)).toBe(8);
});

it('a dry run counts nowhere, and its record names the limits all the same', async () => {
  const admission = ownAdmission();
  const dry = request(admission, { dryRun: true });
  await admit(dry.x);
  expect([dry.x.limits.rateReservation, appliedLimits(dry.x.limits)]).toEqual([
    null,
    ['rate_limit key:key-1', 'rate_limit provider:p'],
  ]);
  const next = request(admission);
  await admit(next.x);
  expect(left(next)).toBe(9);
});

it('of several targets each one’s own limit is asked when it is tried, and not before', async () => {
  const { x, target } = request(ownAdmission(), { key: 10, account: 3, several: true });
  await admit(x);
  expect([x.limits.quota?.requests?.remaining, appliedLimits(x.limits)]).toEqual([9, ['rate_limit key:key-1']]);
  beginTargetLimits(x, target);
  await admitTarget(x);
  expect(x.limits.quota?.requests?.remaining).toBe(2);
  expect(appliedLimits(x.limits)).toEqual(['rate_limit key:key-1', 'rate_limit provider:p']);
});

it('the record of the next target does not name limits of the one before', async () => {
  const { x, target } = request(ownAdmission(), { several: true });
  await admit(x);
  beginTargetLimits(x, target);
  await admitTarget(x);
  x.limits.turnToTarget();
  expect(appliedLimits(x.limits)).toEqual(['rate_limit key:key-1']);
});

it('a request that nothing limits makes nobody wait', () => {
  const { x } = request(ownAdmission());
  x.request.principal = callerWith();
  x.attempt.target = targetWith();
  expect([admit(x), x.limits.facts]).toEqual([undefined, null]);
});
