import { readdirSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { everything, type FleetNode, type LogFleet, startLogFleet } from '../../test/support/log-fleet.ts';

let fleet: LogFleet;
beforeEach(async () => {
  fleet = await startLogFleet();
});
afterEach(() => fleet.close());

const SECOND = 1_000;
const count = (node: FleetNode, organisation?: string) => node.queries.count(everything(organisation), 1_000_000);
const newest = { columns: ['id', 'time', 'model'], order: 'newest', limit: 200, behind: null } as const;
const page = (node: FleetNode) => node.queries.page(everything(), newest);
const byModel = (node: FleetNode) =>
  node.queries.groups(everything(), {
    by: [{ column: 'model' }],
    measures: [
      { as: 'n', of: 'count' },
      { as: 'distinct', of: 'distinct', column: 'seq' },
      { as: 'p50', of: 'quantile', column: 'latency_us', q: 0.5 },
    ],
  });
const some = (node: FleetNode, n: number, more: Record<string, unknown> = {}) =>
  Array.from({ length: n }, (_, i) => node.record({ model: `m${i % 3}`, ...more }));

/** What the processes of the nodes do each second. */
async function seconds(n: number, ...nodes: readonly FleetNode[]): Promise<void> {
  for (let second = 0; second < n; second++) {
    await fleet.clock.advance(SECOND);
    for (const node of nodes) await node.work();
  }
}

it('a node answers at once about its own requests, and after five seconds both answer the same about all', async () => {
  const [a, b] = [await fleet.start('a'), await fleet.start('b')];
  await seconds(1, a, b);
  await a.write(...some(a, 30));
  await b.write(...some(b, 20));
  expect([await count(a), await count(b)]).toEqual([30, 20]);
  await seconds(5, a, b);
  expect([await count(a), await count(b)]).toEqual([50, 50]);
  expect((await page(a)).rows).toEqual((await page(b)).rows);
  expect((await byModel(a)).groups).toEqual((await byModel(b)).groups);
  expect([(await page(a)).incomplete, (await byModel(b)).incomplete]).toEqual([[], []]);
  expect(await count(b, 'org-b')).toBe(0);
});

it('says up to when an answer has the records of all, and names a node that is away', async () => {
  const [a, b] = [await fleet.start('a'), await fleet.start('b')];
  await seconds(2, a, b);
  await b.write(...some(b, 5));
  const written = fleet.clock.now();
  await seconds(1, a);
  expect((await page(a)).completeTo).toBeLessThanOrEqual(written);
  expect((await page(a)).incomplete).toEqual([]);
  await seconds(20, a);
  const { completeTo, incomplete } = await page(a);
  expect(completeTo).toBe(fleet.clock.now());
  expect(incomplete).toEqual([{ from: expect.any(Number), to: fleet.clock.now(), node: 'b' }]);
  expect(incomplete[0]?.from).toBeLessThanOrEqual(written);
  const summed = await byModel(a);
  expect(summed.incomplete).toEqual(incomplete);
  await seconds(6, a, b);
  expect([(await page(a)).incomplete, await count(a)]).toEqual([[], 5]);
});

it('a request of another node that is not there yet is not found for five seconds, and unavailable while its node is away', async () => {
  const [a, b] = [await fleet.start('a'), await fleet.start('b')];
  await seconds(3, a, b);
  const record = b.record();
  await b.write(record);
  const find = (node: FleetNode) => node.queries.find(everything().scope, String(record.id));
  expect(await find(b)).toMatchObject({ id: record.id });
  await expect(find(a)).rejects.toMatchObject({ kind: 'not_found', retryAfter: 5 });
  await seconds(5, a, b);
  expect(await find(a)).toMatchObject({ id: record.id });
  const missing = b.record();
  await seconds(5, a, b);
  expect(await a.queries.find(everything().scope, String(missing.id))).toBeNull();
  const kept = b.record();
  await b.write(kept);
  await seconds(20, a);
  await expect(a.queries.find(everything().scope, String(kept.id))).rejects.toMatchObject({ kind: 'unavailable' });
});

it('no record is lost or doubled by a kill between the upload of a file and its row, on either side', async () => {
  let broken: 'before' | 'after' | null = 'before';
  fleet.faults.wrap = (shared, node) => ({
    ...shared,
    upload: async (id, path) => {
      if (node !== 'a') return shared.upload(id, path);
      if (broken === 'before') throw new Error('killed');
      await shared.upload(id, path);
      if (broken === 'after') throw new Error('killed');
    },
  });
  const [a, b] = [await fleet.start('a'), await fleet.start('b')];
  for (const next of ['before', 'after', null] as const) {
    broken = next;
    await a.write(...some(a, 10));
    await seconds(6, a, b);
    await a.restart();
    await seconds(6, a, b);
  }
  for (const node of [a, b]) {
    const { summary } = await byModel(node);
    expect([summary.n, summary.distinct]).toEqual([30, 30]);
  }
  expect((await page(b)).incomplete).toEqual([]);
  const rows = await fleet.tables.systemRead((tx) => tx.list('log_files', {}));
  expect(rows.map(({ place }) => place)).toEqual(['store', 'store', 'store']);
});

it('eight files become one, made by one node; what it replaces goes after ten minutes and not before', async () => {
  const [a, b] = [await fleet.start('a'), await fleet.start('b')];
  for (let i = 0; i < 4; i++) {
    await a.write(...some(a, 3));
    await b.write(...some(b, 2));
    await seconds(5, a, b);
  }
  await seconds(3, a, b);
  const live = () => fleet.tables.systemRead((tx) => tx.list('log_files', { where: { remove_at: 0 } }));
  expect((await live()).map(({ records, level }) => [records, level])).toEqual([[20, 1]]);
  expect([await count(a), await count(b)]).toEqual([20, 20]);
  expect(fleet.objects()).toHaveLength(9);
  await fleet.clock.advance(9 * 60_000);
  await fleet.removeReplaced();
  expect(fleet.objects()).toHaveLength(9);
  await fleet.clock.advance(2 * 60_000);
  await fleet.removeReplaced();
  expect(fleet.objects()).toEqual([`log-files/${(await live())[0]?.id}.parquet`]);
  await seconds(2, a, b);
  expect([await count(a), await count(b)]).toEqual([20, 20]);
  expect(readdirSync(join(b.dir, 'logs')).filter((name) => name.endsWith('.parquet'))).toHaveLength(1);
});

it('a merge that is killed before its file is in the list leaves the files that it was made of, and goes itself', async () => {
  let killed = false;
  fleet.faults.wrap = (shared) => ({
    ...shared,
    prepare: async (file, path) => {
      await shared.prepare(file, path);
      if (!killed) throw new Error('killed');
    },
  });
  const a = await fleet.start('a');
  for (let i = 0; i < 8; i++) {
    await a.write(...some(a, 2));
    await seconds(5, a);
  }
  await seconds(1, a);
  killed = true;
  await a.restart();
  expect(await count(a)).toBe(16);
  await seconds(3, a);
  expect(await count(a)).toBe(16);
  await fleet.clock.advance(2 * 3_600_000);
  await fleet.removeReplaced();
  expect(fleet.objects()).toHaveLength(1);
  await seconds(2, a);
  expect(await count(a)).toBe(16);
});

it('while the object store is away each node answers from what it has and names what is missing; all is there when it returns', async () => {
  const [a, b] = [await fleet.start('a'), await fleet.start('b')];
  await a.write(...some(a, 4));
  await seconds(6, a, b);
  expect(await count(b)).toBe(4);
  fleet.s3.fail = () => ({ status: 403, code: 'AccessDenied' });
  await a.write(...some(a, 3));
  await seconds(6, a, b);
  expect([await count(a), await count(b)]).toEqual([7, 4]);
  expect((await page(b)).incomplete).toEqual([{ from: expect.any(Number), to: expect.any(Number), node: 'a' }]);
  expect((await page(a)).incomplete).toEqual([]);
  await a.restart();
  expect(await count(a)).toBe(7);
  fleet.s3.fail = () => null;
  await seconds(12, a, b);
  expect([await count(a), await count(b)]).toEqual([7, 7]);
  expect((await page(b)).incomplete).toEqual([]);
});

it('while the control store is away records stay in the journal, and both nodes have them when it returns', async () => {
  let away = false;
  fleet.faults.wrap = (shared) => ({
    ...shared,
    news: async (since) => (away ? Promise.reject(new Error('away')) : shared.news(since)),
    announce: async (to) => (away ? Promise.reject(new Error('away')) : shared.announce(to)),
  });
  const [a, b] = [await fleet.start('a'), await fleet.start('b')];
  await seconds(2, a, b);
  away = true;
  await b.write(...some(b, 4));
  await seconds(30, a, b);
  expect((await page(a)).incomplete).toEqual([expect.objectContaining({ node: 'b', to: fleet.clock.now() })]);
  expect(await count(b)).toBe(4);
  away = false;
  await seconds(6, a, b);
  expect([await count(a), (await page(a)).incomplete]).toEqual([4, []]);
});

it('the disk has no more of the files of others than it may, and a copy that cannot be read is brought again', async () => {
  const a = await fleet.start('a');
  for (let i = 0; i < 3; i++) {
    await a.write(...some(a, 50));
    await seconds(5, a);
  }
  const sizes = (await fleet.tables.systemRead((tx) => tx.list('log_files', {}))).map(({ bytes }) => bytes);
  const room = Math.max(...sizes) * 2 + 10;
  const b = await fleet.start('b', { cacheBytes: room });
  const files = () => readdirSync(join(b.dir, 'logs')).filter((name) => name.endsWith('.parquet'));
  const first = await page(b);
  expect([first.rows.length, first.incomplete.length, files().length]).toEqual([100, 1, 2]);
  const [name = ''] = files().sort();
  truncateSync(join(b.dir, 'logs', name), 30);
  expect((await page(b)).rows).toHaveLength(100);
  const rows = await fleet.tables.systemRead((tx) => tx.list('log_files', {}));
  expect(rows.map(({ status }) => status)).toEqual(['live', 'live', 'live']);
});

it('a record that another node records again after a kill is kept once', async () => {
  const [a, b] = [await fleet.start('a'), await fleet.start('b')];
  const deed = { node: 'job-7', seq: 1, id: '01940000-0000-7000-8000-000000000007' };
  await a.write(a.record(deed));
  await seconds(6, a, b);
  await b.write(b.record(deed));
  await seconds(6, a, b);
  expect([await count(a), await count(b)]).toEqual([1, 1]);
});

it('a file of another node that holds requests of two organisations shows each only its own', async () => {
  const [a, b] = [await fleet.start('a'), await fleet.start('b')];
  await b.write(...some(b, 3), ...some(b, 2, { organisation_id: 'org-b', workspace_id: 'ws-b1' }));
  await seconds(6, a, b);
  expect([await count(a), await count(a, 'org-b'), await count(a, 'org-c')]).toEqual([3, 2, 0]);
  const { rows } = await a.queries.page(everything('org-b'), { ...newest, columns: ['organisation_id'] });
  expect(rows).toEqual([{ organisation_id: 'org-b' }, { organisation_id: 'org-b' }]);
});

it('files of which every record is old go for all nodes', async () => {
  const [a, b] = [await fleet.start('a'), await fleet.start('b')];
  await a.write(...some(a, 4));
  await seconds(6, a, b);
  expect(await count(b)).toBe(4);
  expect(await b.keeper.forgetBefore(fleet.clock.now())).toBe(4);
  await seconds(2, a, b);
  expect([await count(a), await count(b)]).toEqual([0, 0]);
  await fleet.clock.advance(11 * 60_000);
  await fleet.removeReplaced();
  expect(fleet.objects()).toEqual([]);
});
