import { afterAll, beforeAll, expect, it } from 'vitest';
import { callerWith, ownAdmission, ownLedger, workspaceWith } from '../../test/support/caller.ts';
import { testExchange } from '../../test/support/exchange.ts';
import { limitSpecWith } from '../../test/support/ledger-node.ts';
import type { Principal } from '../auth/principal.ts';
import { TestClock } from '../kernel/clock.ts';
import type { LimitSpec } from '../limits/ledger/limit-spec.ts';
import { LimitState } from './limit-state.ts';
import { admitCall, type CallEstimate, type CallUse, reserveCall, settleCall } from './non-model-call-limits.ts';

const storeClock = new TestClock();
const admission = ownAdmission(storeClock);
let books: Awaited<ReturnType<typeof ownLedger>>;

beforeAll(async () => {
  books = await ownLedger(storeClock);
});
afterAll(() => books.close());

const estimate = { name: 'echo/say', cost: 4, tokens: 6, bounded: true };
let callers = 0;

/** A call of a caller that no other call has, in a workspace with these usage limits. */
function call(budgets: readonly LimitSpec[], more: Partial<Principal> = {}) {
  const { request } = testExchange();
  callers += 1;
  request.principal = callerWith({ keyId: `key-${callers}`, ...more });
  request.snapshot = workspaceWith({ usageLimits: budgets });
  const services = { admission, ledger: books.ledger, storeClock, unpriced: 'serve' as const };
  const limits = new LimitState();
  return {
    limits,
    admit: () => admitCall(services, request, limits, {}, 'mcpTools'),
    reserve: (given: CallEstimate = estimate, unpriced: 'serve' | 'deny' = 'serve') =>
      reserveCall({ ...services, unpriced }, request, limits, {}, given),
    async settle(use: CallUse | null) {
      await settleCall(services, limits, use);
      await books.drain();
    },
  };
}

const spec = (type: LimitSpec['type'], limit: number) => {
  callers += 1;
  return limitSpecWith({ ownerKind: 'workspace', ownerId: `w-${callers}`, type, limit });
};
const left = ({ limits }: ReturnType<typeof call>) => limits.usageReservation?.states[0]?.left;

it('a call over its rate is refused, and the refusal names the limit in the record', async () => {
  const rateLimits = [{ type: 'requests', unit: 'rpm', value: 1 }] as const;
  const [first, second] = [call([], { keyId: 'one', rateLimits }), call([], { keyId: 'one', rateLimits })];
  await first.admit();
  await expect(second.admit()).rejects.toMatchObject({ kind: 'rate_limit_exceeded', by: { kind: 'key', id: 'one' } });
  expect([second.limits.quota?.requests?.remaining, second.limits.rateReservation]).toEqual([0, null]);
});

it('a call refused by a usage limit gives back its place in the rate limits', async () => {
  const rateLimits = [{ type: 'requests', unit: 'rpm', value: 2 }] as const;
  const shared = spec('tokens', 10);
  const before = call([shared]);
  await before.reserve();
  await before.settle({ cost: 1, tokens: 10 });
  const refused = call([shared], { rateLimits });
  await refused.admit();
  await expect(refused.reserve()).rejects.toMatchObject({ kind: 'usage_limit_exceeded' });
  expect([refused.limits.quota?.requests?.remaining, refused.limits.usageReservation]).toEqual([2, null]);
  expect(refused.limits.exhausted?.spec.type).toBe('tokens');
});

it('a call that used less than was reserved gives back the rest', async () => {
  const shared = spec('tokens', 10);
  const first = call([shared]);
  await first.reserve();
  await first.settle({ cost: 1, tokens: 2 });
  const second = call([shared]);
  await second.reserve();
  expect(left(second)).toBe(8);
  expect(first.limits.facts?.used).toMatchObject({ cost: 1, tokens: 2, requests: 1, unpriced: 0 });
});

it('a call that was refused later has used nothing, no request either', async () => {
  const shared = spec('requests', 1);
  const first = call([shared]);
  await first.reserve();
  await first.settle(null);
  await expect(call([shared]).reserve()).resolves.toBeUndefined();
});

it('what has no known price is refused under a limit on cost that says so, by its name', async () => {
  const unknown = { ...estimate, cost: null };
  const denied = call([spec('cost', 100)]).reserve(unknown, 'deny');
  await expect(denied).rejects.toMatchObject({ unpriced: true, message: expect.stringContaining('echo/say') });
  await expect(call([spec('cost', 100)]).reserve(unknown)).resolves.toBeUndefined();
});

it('a call under no limit asks none', async () => {
  const free = call([]);
  await free.admit();
  await free.reserve();
  await free.settle({ cost: 1, tokens: 1 });
  expect([free.limits.facts, free.limits.usageReservation, free.limits.rateReservation]).toEqual([null, null, null]);
});
