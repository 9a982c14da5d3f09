/** What a node may still give away of a lease while the store is asked. */
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import {
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
import type { Tables } from '../../store/ports.ts';
import type { LimitSpec } from './limit-spec.ts';

let open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.reverse()) await one.close();
  open = [];
});

/** A node whose reservations and shipments can be held up: each waits for its gate before it reaches the store. */
async function world() {
  const clock = new TestClock(Date.UTC(2026, 4, 5, 23, 59));
  const tables = await booksStore('sqlite', clock);
  const gates = { reserve: Promise.resolve(), ship: Promise.resolve() };
  let answered = 0;
  const gated = Object.assign(Object.create(tables) as Tables, {
    write: (async (tenant, run, options) => {
      await gates.reserve;
      const result = await tables.write(tenant, run, options);
      answered += 1;
      return result;
    }) satisfies Tables['write'],
    systemRead: tables.systemRead,
    systemWrite: (async (run, options) => {
      await gates.ship;
      return tables.systemWrite(run, options);
    }) satisfies Tables['systemWrite'],
  });
  const node = await ledgerNode(gated, { clock, leaseMs: 600_000 });
  open = [tables, node];
  const close = (gate: keyof typeof gates) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    gates[gate] = promise;
    return () => {
      gates[gate] = Promise.resolve();
      resolve();
    };
  };
  return { clock, tables, node, close, answered: () => answered };
}
const reserve = ({ ledger }: LedgerNode, ...charges: [spec: LimitSpec, amount: number][]) =>
  ledger.reserve(
    systemTenant(ORGANISATION, WORKSPACE),
    WORKSPACE,
    charges.map(([spec, amount]) => ({ spec, amount, bounded: true })),
  );

it('what comes free of yesterday’s lease while the store grants one of today is not given away again', async () => {
  const { clock, tables, node, close } = await world();
  // 100 are drawn ahead.
  const daily = limitSpecWith({ type: 'tokens', limit: 25_600, period: 'days:1' });
  await reserve(node, [daily, 1]);
  const early = await reserve(node, [daily, 60]);
  const release = close('reserve');
  const asking = reserve(node, [daily, 200]);
  await turn();
  early.settle(NOTHING, () => {});
  clock.jump(120_000);
  release();
  await asking;
  for (const amount of [100, 60]) await reserve(node, [daily, amount]);
  const [bucket] = await buckets(tables);
  expect(bucket?.window_no).toBe(2);
  expect(bucket?.reserved).toBeGreaterThanOrEqual(200 + 100 + 60);
});

it('a request that waits for one limit to come back leaves the other limit to requests that need it alone', async () => {
  const { node, close, answered } = await world();
  // One is drawn ahead.
  const far = limitSpecWith({ ownerId: 'far', limit: 256 });
  const near = limitSpecWith({ ownerId: 'near', limit: 2 });
  await reserve(node, [far, 1]);
  const ended = await reserve(node, [near, 1]);
  const running = await reserve(node, [near, 1]);
  const release = close('ship');
  ended.settle({ ...NOTHING, requests: 1 }, () => {});
  const before = answered();
  const waiting = Promise.resolve(reserve(node, [far, 1], [near, 1]));
  const refused = expect(waiting).rejects.toMatchObject({ kind: 'usage_limit_exceeded' });
  while (answered() === before) await turn();
  await turn();
  // From memory, while the first still waits: the store is not asked.
  const beside = reserve(node, [far, 1]);
  expect(beside).not.toBeInstanceOf(Promise);
  release();
  await refused;
  for (const hold of [await beside, running]) hold.settle({ ...NOTHING, requests: 1 }, () => {});
});
