import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import {
  audited,
  booksStore,
  buckets,
  emptyBooks,
  type LedgerNode,
  LONG,
  ledgerNode,
  limitSpecWith,
  NOTHING,
  timed,
  WORKSPACE,
} from '../../../test/support/ledger-node.ts';
import { type Clock, systemClock, TestClock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Tables } from '../../store/ports.ts';
import { BucketTransaction } from './bucket-transaction.ts';
import { type ActualUse, bucketQueue, type LimitCharge } from './held-reservation.ts';
import { createOutputEstimator } from './output-estimator.ts';
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

/** The clock of a node that is wrong about the time of day. */
const shifted = (clock: Clock, by: number): Clock => ({
  now: () => clock.now() + by,
  monotonic: () => clock.monotonic(),
  after: (ms, fn) => clock.after(ms, fn),
});

const turn = () => new Promise((resolve) => setImmediate(resolve));

/** One request after another, `until`; what is refused is sent again a little later. */
async function repeated(once: () => Promise<void>, until: () => boolean) {
  while (!until()) {
    try {
      await once();
    } catch (error) {
      if (!(error instanceof SluiceError) || error.kind !== 'usage_limit_exceeded') throw error;
      await new Promise((resolve) => systemClock.after(2, () => resolve(undefined)));
    }
  }
}

/** What was admitted used `used`. */
function caller(
  node: LedgerNode,
  charge: LimitCharge,
  used: ActualUse,
  admitted: { count: number },
  until: () => boolean,
) {
  return repeated(async () => {
    const settle = await node.reserve([charge]);
    admitted.count += 1;
    await turn();
    await settle(used);
  }, until);
}

async function consistent(tables: Tables) {
  for (const { counters, entries, leased } of await audited(tables)) {
    expect(entries).toEqual(counters);
    expect(leased).toBe(counters.reserved);
  }
}

const compactAll = (tables: Tables, clock: Clock) =>
  tables.systemWrite(
    async (tx) => {
      for (const row of await tx.list('usage_buckets')) {
        const book = BucketTransaction.of(row, clock);
        await book.compact(tx);
        await book.close(tx, await tx.now());
      }
    },
    { queue: bucketQueue(WORKSPACE) },
  );

describe.each(['sqlite', 'postgres'] as const)('usage limits on %s', (engine) => {
  const kinds = [
    { type: 'requests', limit: 1000, amount: 1, used: { ...NOTHING, requests: 1 } },
    { type: 'tokens', limit: 100_000, amount: 100, used: { ...NOTHING, requests: 1, tokens: 100 } },
    { type: 'cost', limit: 1_000_000, amount: 1500, used: { ...NOTHING, requests: 1, cost: 1000 } },
  ] as const;

  it.each(kinds)('$type: two nodes with 64 callers each use all of a limit and nothing beyond it', async (kind) => {
    const tables = own(await booksStore(engine));
    const nodes = [own(await ledgerNode(tables, { name: 'a' })), own(await ledgerNode(tables, { name: 'b' }))];
    const spec = limitSpecWith({ type: kind.type, limit: kind.limit });
    const charge = { spec, amount: kind.amount, bounded: true };
    const admitted = { count: 0 };
    let full = false;
    const callers = nodes.flatMap((node) =>
      Array.from({ length: 64 }, () => caller(node, charge, kind.used, admitted, () => full)),
    );
    const deadline = systemClock.monotonic() + 20_000;
    while (systemClock.monotonic() < deadline && (await buckets(tables))[0]?.status !== 'exhausted') {
      await new Promise((resolve) => systemClock.after(50, () => resolve(undefined)));
    }
    full = true;
    await Promise.all(callers);
    for (const node of nodes) await node.drain();
    await consistent(tables);
    const [bucket] = await buckets(tables);
    const one = kind.type === 'cost' ? kind.used.cost : kind.amount;
    expect(bucket?.used).toBe(admitted.count * one);
    expect(bucket?.used).toBe(kind.limit);
    expect(bucket).toMatchObject({ status: 'exhausted', exhausted_alerted: true });
  });

  it('cost without a known maximum: two nodes with 64 callers each go at most one request for each node beyond a limit', async () => {
    const tables = own(await booksStore(engine));
    const limit = 200_000;
    const largest = 400;
    let [admitted, total] = [0, 0];
    let full = false;
    const nodes = [own(await ledgerNode(tables, { name: 'a' })), own(await ledgerNode(tables, { name: 'b' }))];
    const callers = nodes.flatMap((node) => {
      // Each node estimates from the answers that it saw itself.
      const outputs = createOutputEstimator();
      const once = async () => {
        const spec = limitSpecWith({ type: 'cost', limit });
        const settle = await node.reserve([{ spec, amount: outputs.expected('model'), bounded: false }]);
        admitted += 1;
        // One of 33 is longer than the 95 of 100 that estimates go by.
        const cost = admitted % 33 === 0 ? largest : 50 + (admitted % 50);
        await turn();
        total += cost;
        outputs.learn('model', cost);
        await settle({ ...NOTHING, requests: 1, cost });
      };
      return Array.from({ length: 64 }, () => repeated(once, () => full));
    });
    const deadline = systemClock.monotonic() + 20_000;
    while (systemClock.monotonic() < deadline && (await buckets(tables))[0]?.status !== 'exhausted') {
      await new Promise((resolve) => systemClock.after(20, () => resolve(undefined)));
    }
    full = true;
    await Promise.all(callers);
    for (const node of nodes) await node.drain();
    await consistent(tables);
    const [bucket] = await buckets(tables);
    expect(bucket?.used).toBe(total);
    expect(total).toBeGreaterThanOrEqual(limit);
    expect(total).toBeLessThan(limit + 2 * largest);
  }, 60_000);

  it('a request that needs several limits gets all of them or none', async () => {
    const tables = own(await booksStore(engine));
    const node = own(await ledgerNode(tables));
    const wide = { spec: limitSpecWith({ bucketKey: 'wide', limit: 100 }), amount: 1, bounded: true };
    const narrow = {
      spec: limitSpecWith({ bucketKey: 'narrow', limit: 1, label: 'narrow' }),
      amount: 1,
      bounded: true,
    };
    const settle = await node.reserve([wide, narrow]);
    await expect(node.reserve([wide, narrow])).rejects.toMatchObject({
      kind: 'usage_limit_exceeded',
      message: expect.stringMatching(/^Budget "narrow" has no room left for all: 0 of 1 requests are used/),
    });
    await settle(NOTHING);
    await node.drain();
    expect((await buckets(tables)).map(({ used, reserved }) => [used, reserved])).toEqual([
      [0, 0],
      [0, 0],
    ]);
    await consistent(tables);
  });

  it('a value whose requests are all refused leaves nothing in the store; one that is admitted for nothing does', async () => {
    const tables = own(await booksStore(engine));
    const node = own(await ledgerNode(tables));
    const charge = (amount: number, more: object): LimitCharge => ({
      spec: limitSpecWith({ type: 'cost', ...more }),
      amount,
      bounded: true,
    });
    const full = charge(5, { ownerId: 'policy-0', limit: 5 });
    await (await node.reserve([full]))({ ...NOTHING, cost: 5, requests: 1 });
    await node.drain();
    for (let i = 0; i < 5; i++) {
      const value = { bucketKey: `user ${i}`, limit: 1_000_000 };
      await expect(node.reserve([full, charge(5, value)])).rejects.toMatchObject({ kind: 'usage_limit_exceeded' });
      await expect(node.reserve([charge(5, { ...value, limit: 0 })])).rejects.toThrow();
    }
    expect(await buckets(tables)).toHaveLength(1);
    await (await node.reserve([charge(0, { bucketKey: 'free', limit: 10 })]))({ ...NOTHING, requests: 1, unpriced: 1 });
    await node.drain();
    expect(await buckets(tables)).toMatchObject([{ used: 5 }, { bucket_key: 'free', used: 0, unpriced: 1 }]);
    await consistent(tables);
  });

  // On PostgreSQL, where each day takes longer, to the end of March; `npm run test:ledger` goes through the year.
  const year =
    engine === 'sqlite' || LONG
      ? { title: '434 windows over a leap year', days: 367, turns: [13, 53, 367, 1] }
      : { title: '108 windows over the first 91 days of a leap year', days: 91, turns: [3, 13, 91, 1] };
  it(`${year.title} on two nodes whose clocks are an hour off: each turns once, at its midnight`, async () => {
    const clock = new TestClock(Date.UTC(2027, 11, 31, 23, 30));
    const tables = own(await booksStore(engine, clock));
    const nodes = [
      own(await ledgerNode(tables, { name: 'a', clock: shifted(clock, -3_600_000) })),
      own(await ledgerNode(tables, { name: 'b', clock: shifted(clock, 3_600_000) })),
    ];
    const once = Date.UTC(2028, 1, 29);
    const charges = [
      { period: 'monthly', resetsAt: null },
      { period: 'weekly', resetsAt: null },
      { period: 'days:1', resetsAt: null },
      { period: null, resetsAt: once },
    ].map((more, i) => ({
      spec: limitSpecWith({ ...more, bucketKey: String(i), limit: 1_000_000 }),
      amount: 1,
      bounded: true,
    }));
    const due = (at: number) =>
      charges.filter((_, i) =>
        i === 0
          ? new Date(at).getUTCDate() === 1
          : i === 1
            ? new Date(at).getUTCDay() === 1
            : i === 2 || Math.abs(at - once) < 86_400_000,
      );
    const seen = charges.map(() => [] as (number | null)[]);
    let late = 0;
    // Both nodes and the sweeper come at the same moment; what they admit ends in the next window.
    let running = await Promise.all(nodes.map((node) => node.reserve(charges)));
    for (let day = 0; day < year.days; day++) {
      const midnight = Date.UTC(2028, 0, 1) + day * 86_400_000;
      clock.jump(midnight + 1000 - clock.now());
      const [, ...next] = await Promise.all([
        sweepBuckets({ tables, clock }),
        ...nodes.map((node) => node.reserve(due(midnight))),
      ]);
      await Promise.all(running.map((settle) => settle({ ...NOTHING, requests: 1 })));
      await Promise.all(nodes.map((node) => node.drain()));
      running = next;
      const window_no = day + 1;
      const { rows, ended } = await tables.systemRead(async (tx) => {
        const rows = await tx.list('usage_buckets');
        const bucket_id = rows.find((row) => row.bucket_key === '2')?.id ?? '';
        return { rows, ended: await tx.list('ledger_entries', { where: { bucket_id, window_no, kind: 'settle' } }) };
      });
      for (const row of rows) {
        const list = seen[Number(row.bucket_key)];
        if (row.last_reset_at !== null && list?.at(-1) !== row.last_reset_at) list?.push(row.last_reset_at);
      }
      // What ran over midnight is in the window that it was admitted in.
      late += ended.reduce((sum, { requests }) => sum + requests, 0);
    }
    const rows = (await buckets(tables)).sort((a, b) => (a.bucket_key < b.bucket_key ? -1 : 1));
    // 1sts of a month (those of both years), Mondays, every midnight, and the leap day.
    expect(rows.map((row) => row.window_no - 1)).toEqual(year.turns);
    expect(seen.map((list) => list.length)).toEqual(year.turns);
    for (const at of seen.flat()) expect((at ?? 1) % 86_400_000).toBe(0);
    for (const at of seen[0] ?? []) expect(new Date(at ?? 0).getUTCDate()).toBe(1);
    for (const at of seen[1] ?? []) expect(new Date(at ?? 0).getUTCDay()).toBe(1);
    expect(seen[3]).toEqual([once]);
    await consistent(tables);
    expect(late).toBe(year.days * 2);
    // What windows that are long over left behind is gone.
    for (const { id, window_no } of rows) {
      const old = { bucket_id: id, window_no: { lt: window_no - 2 } };
      expect(await tables.systemRead((tx) => tx.list('ledger_entries', { where: old }))).toEqual([]);
    }
  }, 120_000);

  it('very many entries become one for each account, and values that nobody uses are forgotten', async () => {
    const clock = new TestClock(Date.UTC(2026, 4, 5, 12));
    const tables = own(await booksStore(engine, clock));
    const node = own(await ledgerNode(tables, { clock }));
    const charge = (bucketKey: string, period: string | null) => ({
      spec: limitSpecWith({ bucketKey, period, type: 'tokens', limit: 100_000 }),
      amount: 10,
      bounded: true,
    });
    const [busy, rare] = [charge('busy', null), charge('rare', 'days:1')];
    await (await node.reserve([busy, rare]))({ ...NOTHING, requests: 1, tokens: 7 });
    const running = await node.reserve([busy]);
    await node.drain();
    await tables.systemWrite((tx) => tx.update('usage_buckets', { bucket_key: 'busy' }, { entry_count: 1_000 }));
    await (await node.reserve([busy]))({ ...NOTHING, requests: 1, tokens: 9 });
    await node.drain();
    const [bucket] = (await buckets(tables)).filter((row) => row.bucket_key === 'busy');
    const entries = await tables.systemRead((tx) =>
      tx.list('ledger_entries', { where: { bucket_id: bucket?.id ?? '' } }),
    );
    expect(entries.filter(({ kind }) => kind === 'opening').length).toBe(2);
    expect(entries.length).toBeLessThan(6);
    expect(entries.reduce((sum, { requests }) => sum + requests, 0)).toBe(2);
    expect(bucket?.entry_count).toBeLessThan(4);
    await consistent(tables);
    await running({ ...NOTHING, requests: 1, tokens: 10 });
    await node.drain();
    for (let day = 0; day < 10; day++) {
      clock.jump(86_400_000);
      await sweepBuckets({ tables, clock });
    }
    expect((await buckets(tables)).map((row) => [row.bucket_key, row.used])).toEqual([['busy', 26]]);
    await (await node.reserve([rare]))({ ...NOTHING, requests: 1, tokens: 3 });
    await node.drain();
    await consistent(tables);
    expect((await buckets(tables)).find((row) => row.bucket_key === 'rare')).toMatchObject({ used: 3, window_no: 1 });
  });

  it('what a killed node had acknowledged is counted once, and its lease ends', async () => {
    const clock = new TestClock(Date.now());
    const tables = own(await booksStore(engine, clock));
    const node = await ledgerNode(tables, { name: 'a', clock });
    const charge = { spec: limitSpecWith({ type: 'tokens', limit: 10_000 }), amount: 10, bounded: true };
    for (let i = 0; i < 20; i++) await (await node.reserve([charge]))({ ...NOTHING, tokens: 7, requests: 1 });
    for (let i = 0; i < 5; i++) await node.reserve([charge]);
    await node.kill();
    clock.jump(31_000);
    await sweepBuckets({ tables, clock });
    const again = own(await ledgerNode(tables, { name: 'b', clock, dir: node.dir }));
    await again.drain();
    expect(await buckets(tables)).toMatchObject([{ used: 140, reserved: 0 }]);
    await consistent(tables);
  });

  it('a request whose cost rounds to nothing takes nothing away, whatever picodollars stand beside it', async () => {
    const tables = own(await booksStore(engine));
    const node = own(await ledgerNode(tables));
    const charge = { spec: limitSpecWith({ type: 'cost', limit: 500 }), amount: 10, bounded: true };
    for (const carry of [-300_000, -500_000, 400_000]) {
      await (await node.reserve([charge]))({ ...NOTHING, carry, requests: 1 });
    }
    await (await node.reserve([charge]))({ ...NOTHING, cost: 1, carry: -500_000, requests: 1 });
    await node.drain();
    await consistent(tables);
    expect(await buckets(tables)).toMatchObject([{ used: 0, carry: 900_000 }]);
  });

  it('whatever two nodes do in whatever order, the counters are what the entries say', async () => {
    const action = fc.record({
      node: fc.nat(1),
      bucket: fc.nat(1),
      amount: fc.nat(60),
      used: fc.nat(90),
      carry: fc.integer({ min: -500_000, max: 500_000 }),
      next: fc.constantFrom('settle', 'leave', 'sweep', 'maintain', 'day', 'compact'),
    });
    const books = own(await booksStore(engine));
    await fc.assert(
      fc.asyncProperty(fc.array(action, { minLength: 5, maxLength: 30 }), async (actions) => {
        const clock = new TestClock(Date.UTC(2026, 1, 27, 12));
        const tables = timed(books, clock);
        const nodes = [await ledgerNode(tables, { name: 'a', clock }), await ledgerNode(tables, { name: 'b', clock })];
        const open: { settle: (used: ActualUse) => Promise<void>; used: ActualUse }[] = [];
        try {
          for (const { node: at, bucket, amount, used, carry, next } of actions) {
            const node = nodes[at] as LedgerNode;
            const spec = limitSpecWith({
              bucketKey: String(bucket),
              type: 'cost',
              limit: 500 + bucket * 20_000,
              alert: 100,
              period: bucket === 0 ? 'days:1' : null,
            });
            const got = await node.reserve([{ spec, amount, bounded: amount % 2 === 0 }]).catch((error: unknown) => {
              expect(error).toMatchObject({ kind: 'usage_limit_exceeded' });
              return null;
            });
            if (got !== null) open.push({ settle: got, used: { ...NOTHING, cost: used, carry, requests: 1 } });
            if (next === 'settle') for (const { settle, used: spent } of open.splice(0)) await settle(spent);
            if (next === 'sweep') {
              clock.jump(31_000);
              await sweepBuckets({ tables, clock });
            }
            if (next === 'compact') await compactAll(tables, clock);
            if (next === 'maintain') await node.ledger.maintain();
            if (next === 'day') clock.jump(86_400_000);
          }
          for (const { settle, used } of open) await settle(used);
          for (const node of nodes) await node.drain();
          await consistent(tables);
          clock.jump(31_000);
          await sweepBuckets({ tables, clock });
          expect((await buckets(tables)).map(({ reserved }) => reserved).filter((reserved) => reserved > 0)).toEqual(
            [],
          );
          await consistent(tables);
        } finally {
          for (const node of nodes) await node.close();
          await emptyBooks(books);
        }
      }),
      { numRuns: (engine === 'sqlite' ? 15 : 3) * (LONG ? 20 : 1) },
    );
  }, 600_000);
});
