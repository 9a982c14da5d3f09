import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import {
  audited,
  booksStore,
  buckets,
  ledgerNode,
  limitSpecWith,
  NOTHING,
  ORGANISATION,
  WORKSPACE,
} from '../../../test/support/ledger-node.ts';
import { systemClock, TestClock } from '../../kernel/clock.ts';
import type { Tables } from '../../store/ports.ts';
import { type DeferredUse, reserveDeferred, settleDeferred } from './job-usage.ts';
import type { LimitSpec } from './limit-spec.ts';
import { sweepBuckets } from './sweep.ts';

let open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.reverse()) await one.close();
  open = [];
});
function own<T extends { close(): Promise<void> }>(one: T): T {
  open.push(one);
  return one;
}

const DAY = 86_400_000;
const used = (more: Partial<DeferredUse>): DeferredUse => ({
  cost: 0,
  carry: 0,
  tokens: 0,
  requests: 0,
  unpriced: 0,
  ...more,
});
const place = (id: string) => ({ organisationId: ORGANISATION, workspaceId: WORKSPACE, id });

async function consistent(tables: Tables) {
  for (const { counters, entries, leased } of await audited(tables)) {
    expect(entries).toEqual(counters);
    expect(leased).toBe(counters.reserved);
  }
}

describe.each(['sqlite', 'postgres'] as const)('usage that is told late, on %s', (engine) => {
  async function world(limits: readonly LimitSpec[], clock = new TestClock(Date.UTC(2027, 4, 30, 12))) {
    const tables = own(await booksStore(engine, clock));
    // The request that begins an object makes the buckets of its limits.
    const first = await ledgerNode(tables, { clock });
    await (await first.reserve(limits.map((spec) => ({ spec, amount: 0, bounded: true }))))(NOTHING);
    await first.close();
    const spec = limits;
    return {
      clock,
      tables,
      hold: (id: string, estimate: Partial<DeferredUse>, ms = DAY) =>
        tables.systemWrite(async (tx) => {
          const now = await tx.now();
          await reserveDeferred(tx, place(id), spec, used(estimate), now + ms, clock, now);
        }),
      book: (id: string, use: Partial<DeferredUse>) =>
        tables.systemWrite(async (tx) => settleDeferred(tx, place(id), spec, used(use), clock, await tx.now())),
      amounts: async () => (await buckets(tables)).map((bucket) => [bucket.type, bucket.used, bucket.reserved]).sort(),
    };
  }
  const three = [
    limitSpecWith({ bucketKey: 'c', type: 'cost', limit: 1_000_000 }),
    limitSpecWith({ bucketKey: 't', type: 'tokens', limit: 1_000 }),
    limitSpecWith({ bucketKey: 'r', type: 'requests', limit: 100 }),
  ];

  it('an estimate is taken up in every limit, and what was used stands in its place in the end', async () => {
    const w = await world(three);
    await w.hold('b1', { cost: 400_000, tokens: 900, requests: 60 });
    await w.hold('b1', { cost: 400_000, tokens: 900, requests: 60 });
    expect(await w.amounts()).toEqual([
      ['cost', 0, 400_000],
      ['requests', 0, 60],
      ['tokens', 0, 900],
    ]);
    await w.book('b1', { cost: 250_000, carry: 400_000, tokens: 1_200, requests: 50 });
    expect(await w.amounts()).toEqual([
      ['cost', 250_000, 0],
      ['requests', 50, 0],
      ['tokens', 1_200, 0],
    ]);
    await consistent(w.tables);
  });

  it('requests and other objects find taken up what one has reserved', async () => {
    const w = await world([limitSpecWith({ type: 'tokens', limit: 1_000 })]);
    await w.hold('b1', { tokens: 1_000 });
    await expect(w.hold('b2', { tokens: 1 })).rejects.toMatchObject({ kind: 'usage_limit_exceeded' });
    const charge = { spec: limitSpecWith({ type: 'tokens', limit: 1_000 }), amount: 1, bounded: true };
    const node = own(await ledgerNode(w.tables, { clock: w.clock }));
    await expect(node.reserve([charge])).rejects.toMatchObject({ kind: 'usage_limit_exceeded' });
    await w.book('b1', {});
    await w.hold('b2', { tokens: 1 });
    await consistent(w.tables);
  });

  it('it is booked in the window it ends in, and a reservation ends with its window or its time', async () => {
    const clock = new TestClock(Date.UTC(2027, 4, 31, 23));
    const limits = [
      limitSpecWith({ bucketKey: 'month', type: 'tokens', period: 'monthly' }),
      limitSpecWith({ bucketKey: 'ever', type: 'tokens' }),
    ];
    const w = await world(limits, clock);
    await w.hold('b1', { tokens: 500 }, DAY);
    clock.jump(2 * 3_600_000);
    await w.book('b1', { tokens: 300 });
    const [ever, month] = (await buckets(w.tables)).sort((a, b) => (a.bucket_key < b.bucket_key ? -1 : 1));
    expect(month).toMatchObject({ used: 300, reserved: 0, window_no: 2 });
    expect(ever).toMatchObject({ used: 300, reserved: 0, window_no: 1 });
    await w.hold('b2', { tokens: 500 }, DAY);
    clock.jump(DAY + 1);
    await sweepBuckets({ tables: w.tables, clock });
    expect((await buckets(w.tables)).map((bucket) => bucket.reserved)).toEqual([0, 0]);
    await w.book('b2', { tokens: 10 });
    await consistent(w.tables);
  });

  it('a limit that was deleted is skipped; one that prices the unknown counts its own price, others mark it', async () => {
    const limits = [
      limitSpecWith({ bucketKey: 'gone', type: 'cost' }),
      limitSpecWith({ bucketKey: 'mark', type: 'cost', limit: 10_000 }),
      limitSpecWith({ bucketKey: 'price', type: 'cost', limit: 10_000, unpriced: { input: 2, output: 3 } }),
    ];
    const w = await world(limits);
    await w.tables.systemWrite((tx) => tx.remove('usage_buckets', { bucket_key: 'gone' }));
    await w.book('b1', { tokens: 1_000, unpriced: 1 });
    const [mark, price] = (await buckets(w.tables)).sort((a, b) => (a.bucket_key < b.bucket_key ? -1 : 1));
    expect(mark).toMatchObject({ used: 0, unpriced: 1, unpriced_alerted: true });
    expect(price).toMatchObject({ used: 3_000, unpriced: 0 });
    await consistent(w.tables);
  });

  it('whatever is reserved, booked, swept and reset, the counters are what the entries say', async () => {
    const step = fc.record({
      act: fc.constantFrom('hold', 'book', 'turn', 'sweep'),
      id: fc.constantFrom('a', 'b', 'c'),
      amount: fc.nat(700),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (steps) => {
        const w = await world([limitSpecWith({ type: 'tokens', limit: 1_000, period: 'days:1' })]);
        let sum = 0;
        for (const { act, id, amount } of steps) {
          if (act === 'hold') await w.hold(id, { tokens: amount }).catch(() => undefined);
          else if (act === 'book') {
            await w.book(id, { tokens: amount });
            sum += amount;
          } else if (act === 'turn') w.clock.jump(DAY / 2);
          else await sweepBuckets({ tables: w.tables, clock: w.clock });
        }
        await consistent(w.tables);
        const settled = await w.tables.systemRead((tx) =>
          tx.list('ledger_entries', { where: { kind: 'settle', to_account: 'used' } }),
        );
        expect(settled.reduce((all, entry) => all + entry.amount, 0)).toBe(sum);
        for (const one of open.splice(0).reverse()) await one.close();
      }),
      { numRuns: engine === 'sqlite' ? 8 : 1 },
    );
  });

  it('two nodes that book beside one guarding row count it once', async () => {
    const clock = systemClock;
    const tables = own(await booksStore(engine));
    const node = await ledgerNode(tables);
    const spec = limitSpecWith({ type: 'tokens' });
    await (await node.reserve([{ spec, amount: 0, bounded: true }]))(NOTHING);
    await node.close();
    await tables.systemWrite(async (tx) => {
      await tx.insert('ledger_positions', { journal: 'guard', segment: 'open', position: 0 });
    });
    const one = () =>
      tables.systemWrite(async (tx) => {
        const guard = await tx.find('ledger_positions', { journal: 'guard' });
        if (guard?.segment !== 'open') return;
        await settleDeferred(tx, place('b'), [spec], used({ tokens: 70 }), clock, await tx.now());
        await tx.update('ledger_positions', { journal: 'guard' }, { segment: 'done' });
      });
    await Promise.all(Array.from({ length: 6 }, one));
    expect(await buckets(tables)).toMatchObject([{ used: 70, reserved: 0 }]);
    await consistent(tables);
  });
});
