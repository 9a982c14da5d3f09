/** Kept bodies where nodes share log files or records are in ClickHouse, in a bucket and on a disk: searched, and kept while it is away. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { FakeClickHouse } from '../support/clickhouse-fake.ts';
import { type ErasuresUnderTest, startErasures } from '../support/log-erasures.ts';

let fake: FakeClickHouse | null = null;
let under: ErasuresUnderTest;
afterEach(async () => {
  await under.close();
  await fake?.close();
  expect(fake?.faults ?? []).toEqual([]);
  fake = null;
});

const found = async (q: string, key?: string) => {
  const { workspace_id } = key === undefined ? under.admin.a : under.admin.b;
  const path = `/v1/logs?q=${encodeURIComponent(q)}&workspace_id=${workspace_id}`;
  const { status, body, text } = await under.admin.call('GET', path, key === undefined ? {} : { key });
  expect([200, 503], text).toContain(status);
  if (status === 503) return 'unavailable';
  return { traces: body.data.map((row: { trace_id: string }) => row.trace_id).sort(), search: body.search };
};

/** What the statements of a search ask for: the records with bodies of one organisation. */
async function startFake(): Promise<FakeClickHouse> {
  const made = await new FakeClickHouse().start();
  made.answer = ({ sql, params }) => {
    const [, name = ''] = /"id" IN \{(p\d+):/.exec(sql) ?? [];
    const wanted = params[name];
    return made.rows
      .filter((row) => row.organisation_id === params.p1 && row.body_chunk !== null)
      .filter((row) => wanted === undefined || wanted.includes(`'${row.id}'`))
      .sort((one, other) => Number(other.time) - Number(one.time))
      .map((row) => ({ ...row, proof_organisation: row.organisation_id, proof_workspace: row.workspace_id }));
  };
  return made;
}

it.each([
  ['files that nodes share', 'files', 'a bucket'],
  ['files that nodes share', 'files', 'a disk'],
  ['ClickHouse', 'elsewhere', 'a bucket'],
  ['ClickHouse', 'elsewhere', 'a disk'],
] as const)(
  'a phrase is found in bodies of all nodes with %s (%s) and bodies in %s',
  async (_, place, where) => {
    const bucket = where === 'a bucket';
    if (place === 'elsewhere') fake = await startFake();
    const store = fake === null ? {} : { store: fake.address };
    under = await startErasures('postgres', { names: ['a', 'b'], place, bucket, ...store });
    const [a, b] = under.nodes;
    const { b: theirs } = under.admin;
    const of = { organisation_id: theirs.organisation_id, workspace_id: theirs.workspace_id };
    await under.write('a needle of a', { trace_id: 'of-a' }, a);
    await under.write('a needle of b', { trace_id: 'of-b' }, b);
    await under.write('hay', { trace_id: 'hay' }, b);
    await under.write('a needle of theirs', { ...of, trace_id: 'theirs' }, b);
    for (const { keeper } of under.nodes) await keeper.flush();
    const all = { traces: ['of-a', 'of-b'], search: { complete: true, searched: 3, unread: 0 } };
    await expect.poll(() => found('needle of'), { timeout: 30_000 }).toEqual(all);
    expect(await found('needle of', theirs.admin_api_key)).toMatchObject({ traces: ['theirs'] });
    expect(await found('nobody said this')).toEqual({ traces: [], search: { complete: true, searched: 3, unread: 0 } });

    // The body of one is in the journal of the other node still: the answer says so.
    await under.write('a needle of the journal', { trace_id: 'late' }, b);
    b?.keeper.wake();
    const without = { traces: ['of-a', 'of-b'], search: { complete: true, searched: 4, unread: 1 } };
    await expect.poll(() => found('needle of'), { timeout: 30_000 }).toEqual(without);
    await b?.keeper.flush();
    const late = { traces: ['late', 'of-a', 'of-b'], search: { complete: true, searched: 4, unread: 0 } };
    await expect.poll(() => found('needle of'), { timeout: 30_000 }).toEqual(late);

    // While the bucket is away nothing is said to be searched.
    if (under.s3 === null) return;
    under.s3.fail = ({ key }) => (key?.includes('/logs-') ? { status: 403, code: 'AccessDenied' } : null);
    expect(await found('needle of')).toBe('unavailable');
    under.s3.fail = () => null;
    expect(await found('needle of')).toEqual(late);
  },
  180_000,
);

it('while the bucket is away bodies wait in the journal through kills, and all of them are in chunks when it is back', async () => {
  under = await startErasures('sqlite', { bucket: true });
  const { s3, keeper, nodes } = under;
  const [node] = nodes;
  if (s3 === null || node === undefined) throw new Error('there is a bucket');
  s3.fail = () => ({ status: 403, code: 'AccessDenied' });
  const written = [];
  for (let round = 0; round < 3; round++) {
    for (let n = 0; n < 20; n++) {
      const text = JSON.stringify({ round, n, text: `body ${round}.${n} `.repeat(100) });
      written.push({ text, ...(await under.write(text)) });
    }
    await keeper.flush().catch(() => undefined);
    if (keeper.pid !== null) process.kill(keeper.pid, 'SIGKILL');
  }
  const read = async ({ id, text }: { id: string; text: string }) => {
    const { body } = await under.admin.call('GET', `/v1/logs/${id}`);
    expect([id, body.bodies?.reason, JSON.stringify(body.request?.body)]).toEqual([id, null, text]);
  };
  await expect
    .poll(
      () =>
        keeper.flush().then(
          () => true,
          () => false,
        ),
      { timeout: 20_000 },
    )
    .toBe(true);
  for (const one of written) await read(one);
  expect(s3.keys('blobs')).toEqual([]);
  const segments = async () =>
    (await readdir(join(node.dir, 'spool', 'bodies'))).filter((name) => name.endsWith('.bodies'));
  expect((await segments()).length).toBeGreaterThan(0);

  s3.fail = () => null;
  await keeper.flush();
  const chunks = await under.tables.systemRead((tx) => tx.list('body_chunks', {}));
  expect(chunks.reduce((sum, { records }) => sum + records, 0)).toBe(written.length);
  expect(s3.keys('blobs')).toHaveLength(chunks.length);
  for (const one of written) await read(one);
  // The journal lets go of what is in chunks.
  await expect.poll(async () => (await segments()).length, { timeout: 20_000 }).toBeLessThan(2);
}, 180_000);
