/** Erasure where records are in ClickHouse: hidden at once, then removed there, with their bodies in the blob store. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Answer } from '../support/admin.ts';
import { FakeClickHouse } from '../support/clickhouse-fake.ts';
import { type ErasuresUnderTest, startErasures } from '../support/log-erasures.ts';

let fake: FakeClickHouse;
let under: ErasuresUnderTest;
beforeEach(async () => {
  fake = await new FakeClickHouse().start();
});
afterEach(async () => {
  await under.close();
  await fake.close();
  expect(fake.faults).toEqual([]);
});

const call = (method: string, path: string, body?: unknown, key?: string): Promise<Answer> =>
  under.admin.call(method, path, { ...(body === undefined ? {} : { body }), ...(key === undefined ? {} : { key }) });

async function ok(...asked: Parameters<typeof call>) {
  const answer = await call(...asked);
  expect(answer.status, answer.text).toBe(200);
  return answer.body;
}

const row = (id: string) => under.tables.systemRead((tx) => tx.find('log_erasures', { id }));
const stored = (text: string) => fake.rows.filter((each) => JSON.stringify(each).includes(text)).length;
const removals = () => fake.asked.filter(({ sql }) => sql.includes(' DELETE '));

it.each([
  ['sqlite', ['node'], false],
  ['postgres', ['a', 'b'], true],
] as const)(
  'on %s leaves no record there, no body and no name, of one organisation alone',
  async (engine, names, bucket) => {
    under = await startErasures(engine, { names, place: 'elsewhere', store: fake.address, bucket });
    const { b: theirs } = under.admin;
    const of = { organisation_id: theirs.organisation_id, workspace_id: theirs.workspace_id };
    const canary = 'canary-elsewhere';
    const user = { metadata: { _user: canary } };
    for (const node of under.nodes) {
      for (let n = 0; n < 2; n++) await under.write(`ours ${canary}`, user, node);
      await under.write('stays', { metadata: { _user: 'grace' } }, node);
    }
    await under.write(`theirs ${canary}`, { ...user, ...of });
    const made = await ok('POST', '/v1/logs/erase', { end_user: canary });
    expect(made).toMatchObject({ status: 'pending', records: 0 });
    fake.oldParts = 1;
    under.work();
    const ours = 2 * names.length;
    await expect.poll(async () => (await row(made.id))?.rewritten_at ?? null, { timeout: 60_000 }).not.toBeNull();
    expect(stored(canary)).toBe(1);
    expect(stored('grace')).toBe(names.length);
    // Parts of before are on its disk for some minutes.
    expect((await row(made.id))?.status).toBe('pending');
    fake.oldParts = 0;
    const over = await under.done(made.id);
    expect(over).toMatchObject({ records: ours, bodies: ours, damaged_files: 0 });
    expect([...over.nodes].sort()).toEqual([...names]);
    expect(await under.placesOf(`ours ${canary}`)).toEqual([]);
    expect((await under.placesOf(`theirs ${canary}`)).length).toBeGreaterThan(0);
    // The text of a removal is kept there.
    expect(JSON.stringify(removals())).not.toContain(canary);
    expect(removals()).toHaveLength(1);
  },
  180_000,
);

it('goes on when the keeper is killed, when ClickHouse breaks, and when a row is still there after a removal', async () => {
  under = await startErasures('sqlite', { place: 'elsewhere', store: fake.address });
  const canary = 'canary-elsewhere-kills';
  for (let n = 0; n < 3; n++) await under.write(`${canary} ${n}`, { trace_id: canary });
  await under.write('stays', { trace_id: 'stays' });
  const made = await ok('POST', '/v1/logs/erase', { trace_id: canary });
  under.killAt('before chunk', 'after chunk', 'before feedback');
  let breaks = 0;
  fake.removing = async (when) => {
    breaks += 1;
    if (breaks === 1 && when === 'before') throw new Error('a replica is away');
    if (breaks > 3) return;
    const { pid } = under.keeper;
    if (when === 'after' && pid !== null) process.kill(pid, 'SIGKILL');
  };
  under.work();
  await under.done(made.id);
  expect(under.deaths).toEqual([]);
  expect(breaks).toBeGreaterThan(3);
  expect(fake.faults.splice(0)).toEqual([expect.stringContaining('a replica is away')]);
  expect([stored(canary), stored('stays')]).toEqual([0, 1]);
  expect(await under.placesOf(canary)).toEqual([]);
}, 180_000);

it('waits for a node that died before it sent its records', async () => {
  under = await startErasures('postgres', { names: ['a', 'b'], place: 'elsewhere', store: fake.address });
  const [a, b] = under.nodes;
  if (a === undefined || b === undefined) throw new Error('there are two');
  const canary = 'canary-elsewhere-journal';
  await b.kill();
  const dead = await under.restart(b);
  await under.write(canary, { metadata: { _user: canary } }, dead);
  await dead.kill();
  const made = await ok('POST', '/v1/logs/erase', { end_user: canary });
  a.work();
  await expect.poll(async () => (await row(made.id))?.nodes.a?.filed, { timeout: 30_000 }).toBe(true);
  expect((await row(made.id))?.rewritten_at).toBeNull();
  (await under.restart(dead)).work();
  const over = await under.done(made.id);
  expect(over.records).toBe(1);
  expect(stored(canary)).toBe(0);
}, 180_000);
