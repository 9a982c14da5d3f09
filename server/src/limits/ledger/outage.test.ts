import { afterEach, describe, expect, it } from 'vitest';
import {
  audited,
  booksStore,
  buckets,
  type LedgerNode,
  ledgerNode,
  limitSpecWith,
  NOTHING,
  ORGANISATION,
  WORKSPACE,
} from '../../../test/support/ledger-node.ts';
import { systemTenant } from '../../auth/tenant.ts';
import { TestClock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { organisationRow, workspaceRow } from '../../store/conformance/rows.ts';
import type { Tables } from '../../store/ports.ts';
import type { ActualUse, LimitCharge, UsageReservation } from './held-reservation.ts';
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

/** A store that can be taken away: nothing is read or written meanwhile. */
function fragile(tables: Tables) {
  const state = { away: false, calls: 0 };
  const guard =
    <A extends unknown[], R>(call: (...args: A) => Promise<R>) =>
    (...args: A): Promise<R> => {
      state.calls += 1;
      return state.away ? Promise.reject(new SluiceError('unavailable', 'away')) : call(...args);
    };
  const guarded = Object.assign(Object.create(tables) as Tables, {
    close: () => tables.close(),
    read: guard(tables.read.bind(tables)),
    write: guard(tables.write.bind(tables)),
    systemRead: guard(tables.systemRead.bind(tables)),
    systemWrite: guard(tables.systemWrite.bind(tables)),
  }) as Tables;
  return { tables: guarded, state };
}

const hold = (node: LedgerNode, charges: readonly LimitCharge[]): UsageReservation | Promise<UsageReservation> =>
  node.ledger.reserve(systemTenant(ORGANISATION, WORKSPACE), WORKSPACE, charges);
const end = (held: UsageReservation, used: ActualUse) => new Promise<void>((resolve) => held.settle(used, resolve));
const used = (tokens: number): ActualUse => ({ ...NOTHING, tokens, requests: 1 });

describe.each(['sqlite', 'postgres'] as const)('the ledger without its books on %s', (engine) => {
  async function world() {
    const clock = new TestClock(Date.UTC(2026, 4, 5, 23, 59));
    const { tables, state } = fragile(await booksStore(engine, clock));
    own(tables);
    await tables.systemWrite((tx) =>
      tx.insert('usage_policies', {
        id: 'policy-1',
        organisation_id: ORGANISATION,
        workspace_id: WORKSPACE,
        name: 'team budget',
        description: null,
        conditions: [{ key: 'api_key', value: '*' }],
        group_by: [{ key: 'api_key' }],
        type: 'tokens',
        credit_limit: 10_000,
        alert_threshold: null,
        periodic_reset: null,
        periodic_reset_days: null,
        next_usage_reset_at: null,
        last_reset_at: null,
        unpriced: null,
        on_outage: 'serve',
        alert_emails: null,
        alert_webhook_url: null,
        status: 'active',
        created_at: 1,
        last_updated_at: 1,
      }),
    );
    const node = own(await ledgerNode(tables, { clock }));
    return { clock, tables, state, node };
  }
  const soft = (more: object = {}): LimitCharge => ({
    spec: limitSpecWith({ type: 'tokens', limit: 10_000, onOutage: 'serve', ...more }),
    amount: 100,
    bounded: true,
  });

  it('what the store refuses of one workspace takes the store away from no other', async () => {
    const { tables, node } = await world();
    const other = { organisation: 'org-2', workspace: 'ws-2' };
    await tables.systemWrite(async (tx) => {
      await tx.insert('organisations', organisationRow(other.organisation));
      await tx.insert('workspaces', workspaceRow(other.organisation, other.workspace));
    });
    const refused = hold(node, [soft({ label: 'poisoned \u0000', onOutage: 'refuse' })]);
    await expect(refused).rejects.toMatchObject({ kind: 'out_of_service' });
    const tenant = systemTenant(other.organisation, other.workspace);
    const own = [soft({ ownerId: 'policy-2', onOutage: 'refuse' })];
    await end(await node.ledger.reserve(tenant, other.workspace, own), used(70));
  });

  it('a limit that serves is passed and counted once when the store is back, in the window of its request', async () => {
    const { clock, tables, state, node } = await world();
    const daily = soft({ period: 'days:1' });
    state.away = true;
    const first = await hold(node, [daily]);
    const late = await hold(node, [daily]);
    await end(first, used(70));
    // Midnight passes while the store is away, and before the second request ends.
    clock.jump(120_000);
    await end(late, used(5));
    await end(await hold(node, [daily]), used(9));
    state.away = false;
    await node.drain();
    expect(await buckets(tables)).toMatchObject([{ used: 9, reserved: 0, window_no: 2 }]);
    const entries = await tables.systemRead((tx) => tx.list('ledger_entries', { where: { kind: 'settle' } }));
    const requests = (window: number) =>
      entries.filter((entry) => entry.window_no === window).reduce((sum, entry) => sum + entry.requests, 0);
    expect([requests(1), requests(2)]).toEqual([2, 1]);
    for (const { counters, entries: rebuilt } of await audited(tables)) expect(rebuilt).toEqual(counters);
  });

  it('a lease is spent first; then one limit that refuses is enough', async () => {
    const { state, node, tables, clock } = await world();
    const strict = { ...soft({ bucketKey: 'strict', onOutage: 'refuse', limit: 102_400 }), amount: 150 };
    await end(await hold(node, [strict]), used(150));
    state.away = true;
    // 1/256 of the limit was drawn ahead: two more requests.
    const spent = [await hold(node, [strict, soft()]), await hold(node, [strict, soft()])];
    await expect((async () => hold(node, [strict]))()).rejects.toMatchObject({ kind: 'out_of_service' });
    await expect((async () => hold(node, [soft(), strict]))()).rejects.toMatchObject({ kind: 'out_of_service' });
    for (const one of spent) await end(one, used(150));
    state.away = false;
    clock.jump(31_000);
    await node.drain();
    await sweepBuckets({ tables, clock });
    const rows = (await buckets(tables)).map(({ bucket_key, used: sum, reserved }) => [bucket_key, sum, reserved]);
    expect(rows.sort()).toEqual([
      ['all', 300, 0],
      ['strict', 450, 0],
    ]);
    for (const { counters, entries } of await audited(tables)) expect(entries).toEqual(counters);
    await end(await hold(node, [strict]), used(1));
  });

  it('what was used up when the store was last seen stays refused, and what no owner has any more is not counted', async () => {
    const { state, node, tables, clock } = await world();
    const full = soft({ bucketKey: 'full', limit: 50 });
    await end(await hold(node, [full]), used(50));
    await node.drain();
    await expect((async () => hold(node, [full]))()).rejects.toMatchObject({ kind: 'usage_limit_exceeded' });
    state.away = true;
    clock.jump(5_000);
    await expect((async () => hold(node, [full]))()).rejects.toMatchObject({ kind: 'usage_limit_exceeded' });
    await end(await hold(node, [soft({ ownerId: 'policy-gone' })]), used(3));
    state.away = false;
    await node.drain();
    expect((await buckets(tables)).map(({ owner_id, used: sum }) => [owner_id, sum])).toEqual([['policy-1', 50]]);
  });

  it('books that hang hold a request that may pass for a second, and what they grant then goes back', async () => {
    const { clock, tables, node } = await world();
    let release = () => {};
    const hung = new Promise<void>((resolve) => {
      release = resolve;
    });
    const write = tables.write.bind(tables);
    Object.assign(tables, {
      write: async (...args: Parameters<Tables['write']>) => {
        await hung;
        return write(...args);
      },
    });
    const waiting = hold(node, [soft()]);
    await new Promise((resolve) => setImmediate(resolve));
    await clock.advance(1_000);
    await end(await waiting, used(40));
    release();
    await node.ledger.close();
    await node.drain();
    expect(await buckets(tables)).toMatchObject([{ used: 40, reserved: 0 }]);
  });

  it('a running request grows: from the lease without the store, else by it, and its end releases all of it', async () => {
    const { state, node, tables } = await world();
    const far = { ...soft({ limit: 256_000 }), amount: 10 };
    const near = { ...soft({ bucketKey: 'near', limit: 600 }), amount: 100 };
    const one = await hold(node, [far, near]);
    state.calls = 0;
    one.grow({ cost: 0, tokens: 60 });
    expect(one.states.map(({ free }) => free)).toEqual([256_000 - 60, 500]);
    one.grow({ cost: 0, tokens: 20 });
    expect(state.calls).toBe(0);
    one.grow({ cost: 0, tokens: 450 });
    one.grow({ cost: 0, tokens: 480 });
    const left = () => one.states[1]?.free;
    while (left() !== 120) await new Promise((resolve) => setImmediate(resolve));
    expect(state.calls).toBeGreaterThan(0);
    // Beyond the limit too: it is used already.
    one.grow({ cost: 0, tokens: 700 });
    while (left() !== 0) await new Promise((resolve) => setImmediate(resolve));
    await expect((async () => hold(node, [near]))()).rejects.toMatchObject({ kind: 'usage_limit_exceeded' });
    await end(one, used(710));
    await node.drain();
    await node.ledger.close();
    expect((await buckets(tables)).map(({ used: sum, reserved }) => [sum, reserved])).toEqual([
      [710, 0],
      [710, 0],
    ]);
    for (const { counters, entries } of await audited(tables)) expect(entries).toEqual(counters);
  });

  it('far from the limit a request asks nobody, and closing gives back what is unspent but not what still runs', async () => {
    const { state, node, tables } = await world();
    const far = { ...soft({ limit: 256_000 }), amount: 10 };
    await end(await hold(node, [far]), used(10));
    await node.drain();
    state.calls = 0;
    const running = [];
    for (let i = 0; i < 50; i++) {
      const held = hold(node, [far]);
      expect(held).not.toBeInstanceOf(Promise);
      running.push(held as UsageReservation);
    }
    expect(state.calls).toBe(0);
    await node.ledger.close();
    expect(await buckets(tables)).toMatchObject([{ used: 10, reserved: 500 }]);
    expect(() => hold(node, [far])).toThrow(/shutting down/);
    for (const held of running) await end(held, used(4));
    await node.drain();
    expect(await buckets(tables)).toMatchObject([{ used: 210, reserved: 0 }]);
  });
});
