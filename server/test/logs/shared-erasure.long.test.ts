/** Erasure where several nodes share their log files: hidden on all at once, and then in no file, copy or chunk of any. */
import { rm } from 'node:fs/promises';
import { afterEach, expect, it } from 'vitest';
import { giveUpNode } from '../../src/cli/nodes.ts';
import type { Answer } from '../support/admin.ts';
import { plainVault } from '../support/admin.ts';
import type { ErasingNode } from '../support/erasing-node.ts';
import { type ErasuresUnderTest, startErasures } from '../support/log-erasures.ts';

let under: ErasuresUnderTest;
afterEach(() => under.close());

const MINUTES = 60_000;

async function start(): Promise<[ErasingNode, ErasingNode]> {
  under = await startErasures('postgres', { names: ['a', 'b'], place: 'files' });
  return under.nodes as [ErasingNode, ErasingNode];
}

const call = (method: string, path: string, body?: unknown, key?: string): Promise<Answer> =>
  under.admin.call(method, path, { ...(body === undefined ? {} : { body }), ...(key === undefined ? {} : { key }) });

async function ok(...asked: Parameters<typeof call>) {
  const answer = await call(...asked);
  expect(answer.status, answer.text).toBe(200);
  return answer.body;
}

const pending = async (id: string) => expect((await ok('GET', `/v1/logs/erasures/${id}`)).status).toBe('pending');

/** Everything that the journals of all nodes have is in files that all read. */
async function filed(): Promise<void> {
  for (const { keeper } of under.nodes) await keeper.flush();
}

const listed = async () =>
  (await ok('GET', '/v1/logs?limit=200')).data.map(({ trace_id }: { trace_id: string }) => trace_id).sort();

/** A node reads what the others filed a moment later than they did. */
const lists = (traces: readonly string[]) => expect.poll(listed, { timeout: 20_000 }).toEqual(traces);

const row = (id: string) => under.tables.systemRead((tx) => tx.find('log_erasures', { id }));

/** Waits until no listed file has what is erased, and then until the files of before are gone. */
async function done(id: string) {
  await expect.poll(async () => (await row(id))?.rewritten_at, { timeout: 60_000, interval: 20 }).not.toBeNull();
  await pending(id);
  await under.pass(11 * MINUTES);
  return under.done(id);
}

it('leaves nothing of an end user on any node or in the object store, and everything of others', async () => {
  const [, b] = await start();
  const { b: theirs } = under.admin;
  const of = { organisation_id: theirs.organisation_id, workspace_id: theirs.workspace_id };
  const canary = 'canary-shared-ada';
  const user = { metadata: { _user: canary } };
  for (const node of under.nodes) {
    for (let n = 0; n < 2; n++) {
      await under.write(`says ${canary}`, { ...user, trace_id: `${canary}-${node.name}${n}` }, node);
    }
    await under.write('says nothing', { trace_id: `stays-${node.name}` }, node);
  }
  const foreign = await under.write(`says ${canary}`, { ...of, ...user, trace_id: 'theirs' }, b);
  await filed();
  // What is asked is copied to the disk of the node that answers.
  await expect.poll(listed, { timeout: 20_000 }).toHaveLength(6);
  const made = await ok('POST', '/v1/logs/erase', { end_user: canary });
  await lists(['stays-a', 'stays-b']);
  expect((await under.placesOf(`${canary}-b1`)).length).toBeGreaterThan(0);
  under.work();
  const over = await done(made.id);
  expect(over).toMatchObject({ records: 4, bodies: 4, damaged_files: 0 });
  expect([...over.nodes].sort()).toEqual(['a', 'b']);
  await lists(['stays-a', 'stays-b']);
  for (const node of ['a', 'b']) expect(await under.placesOf(`${canary}-${node}`)).toEqual([]);
  const read = await ok('GET', `/v1/logs/${foreign.id}`, undefined, theirs.admin_api_key);
  expect(read.request.body).toEqual({ text: `says ${canary}` });
  // Only their records and bodies have it now; then none.
  const other = await ok('POST', '/v1/logs/erase', { end_user: canary }, theirs.admin_api_key);
  await expect.poll(async () => (await row(other.id))?.rewritten_at, { timeout: 60_000 }).not.toBeNull();
  await under.pass(11 * MINUTES);
  await expect.poll(async () => (await row(other.id))?.status, { timeout: 30_000 }).toBe('done');
  expect(await under.placesOf(canary)).toEqual([]);
  await lists(['stays-a', 'stays-b']);
}, 180_000);

it('goes on wherever keepers are killed, loses nothing else, and nothing comes back', async () => {
  const [a, b] = await start();
  const canary = 'canary-shared-trace';
  for (const node of [a, b]) {
    for (let n = 0; n < 3; n++) await under.write(`${canary} ${n}`, { trace_id: canary }, node);
    await under.write(`stays ${node.name}`, { trace_id: `stays-${node.name}` }, node);
  }
  await filed();
  const made = await ok('POST', '/v1/logs/erase', { trace_id: canary });
  // Whichever of them rewrites.
  for (const node of [a, b]) node.killAt('before chunk', 'after chunk', 'before feedback', 'prepared', 'files');
  under.work();
  await expect.poll(async () => (await row(made.id))?.rewritten_at, { timeout: 120_000 }).not.toBeNull();
  // At each place one of the two that took turns was killed.
  expect(a.deaths.filter((place) => b.deaths.includes(place))).toEqual([]);
  await under.pass(2 * 60 * MINUTES);
  await under.done(made.id);
  expect(await under.placesOf(canary)).toEqual([]);
  await lists(['stays-a', 'stays-b']);
}, 180_000);

it('is carried out by another node when the one that rewrites dies', async () => {
  const [a, b] = await start();
  const canary = 'canary-shared-leader';
  for (const node of [a, b]) await under.write(canary, { metadata: { _user: canary } }, node);
  await under.write('stays', { trace_id: 'stays' }, b);
  await filed();
  const made = await ok('POST', '/v1/logs/erase', { end_user: canary });
  for (const node of [a, b]) node.killAt('prepared');
  under.work();
  const died = () => [a, b].find(({ deaths }) => deaths.length === 0);
  await expect.poll(died, { timeout: 60_000, interval: 5 }).toBeDefined();
  const dead = died() ?? a;
  await dead.kill();
  await expect.poll(async () => (await row(made.id))?.rewritten_at, { timeout: 60_000 }).not.toBeNull();
  await under.pass(2 * 60 * MINUTES);
  // Its disk may have copies.
  await pending(made.id);
  (await under.restart(dead)).work();
  await under.done(made.id);
  expect(await under.placesOf(canary)).toEqual([]);
}, 180_000);

it('waits for a node that died with records on its disk, and takes these too when it is back', async () => {
  const [a, b] = await start();
  const canary = 'canary-shared-journal';
  await under.write(canary, { metadata: { _user: canary } }, a);
  await filed();
  // Its keeper never sees this one.
  await b.kill();
  const dead = await under.restart(b);
  await under.write(canary, { metadata: { _user: canary } }, dead);
  await dead.kill();
  const made = await ok('POST', '/v1/logs/erase', { end_user: canary });
  a.work();
  await expect.poll(async () => (await row(made.id))?.nodes.a?.filed, { timeout: 30_000 }).toBe(true);
  await under.pass(24 * 60 * MINUTES);
  expect((await row(made.id))?.rewritten_at).toBeNull();
  await pending(made.id);
  const back = await under.restart(dead);
  back.work();
  const over = await done(made.id);
  expect(over.records).toBe(2);
  await lists([]);
  expect(await under.placesOf(canary)).toEqual([]);
}, 180_000);

it('waits no more for a node that was given up, which is refused while it may run and told to every organisation', async () => {
  const [a, b] = await start();
  const canary = 'canary-shared-given-up';
  await under.write(canary, { metadata: { _user: canary } }, a);
  await under.write('stays', { trace_id: 'stays' }, a);
  await filed();
  await b.kill();
  // A file that it had not given to the others yet.
  const now = Date.now();
  const left = { id: 'only-on-b', node: 'b', day: 0, level: 0, min_time: now, max_time: now, records: 7, bytes: 1 };
  const state = { version: 1, status: 'live', created_at: now, place: 'disk', remove_at: 0, changed_at: now } as const;
  await under.tables.systemWrite((tx) => tx.insert('log_files', { ...left, ...state }));
  const made = await ok('POST', '/v1/logs/erase', { end_user: canary });
  a.work();
  await expect.poll(async () => (await row(made.id))?.nodes.a?.filed, { timeout: 30_000 }).toBe(true);
  const giveUp = (node: string) => giveUpNode(under.tables, plainVault, node, true);
  await expect(giveUp('c')).rejects.toThrow('no node c');
  await expect(giveUp('b')).rejects.toThrow('may be running');
  await pending(made.id);
  const silent = { seen_at: now - 11 * MINUTES };
  await under.tables.systemWrite((tx) => tx.update('log_nodes', { node: 'b' }, silent));
  expect(await giveUp('b')).toMatchObject({ files: 1, records: 7 });
  await rm(b.dir, { recursive: true });
  under.nodes.splice(under.nodes.indexOf(b), 1);
  expect((await done(made.id)).records).toBe(1);
  await lists(['stays']);
  expect(await under.placesOf(canary)).toEqual([]);
  expect(await under.tables.systemRead((tx) => tx.count('log_files', { where: { node: 'b', place: 'disk' } }))).toBe(0);
  for (const { organisation_id } of [under.admin.a, under.admin.b]) {
    const rows = await under.tables.systemRead((tx) => tx.list('audit_log', { where: { organisation_id } }));
    expect(
      rows.filter(({ resource_type, resource_id }) => resource_type === 'nodes' && resource_id === 'b').length,
    ).toBe(1);
  }
}, 180_000);

it('a node that was given up and starts again adds what its journal alone had, and no record twice', async () => {
  const [a, b] = await start();
  await under.write('given', { trace_id: 'given-b' }, b);
  await under.write('stays', { trace_id: 'stays-a' }, a);
  await filed();
  await b.kill();
  // Its keeper never sees this one.
  let back = await under.restart(b);
  await under.write('late', { trace_id: 'late-b' }, back);
  await back.kill();
  const silent = { seen_at: Date.now() - 11 * MINUTES };
  await under.tables.systemWrite((tx) => tx.update('log_nodes', { node: 'b' }, silent));
  expect(await giveUpNode(under.tables, plainVault, 'b', true)).toMatchObject({ files: 0, records: 0 });
  await lists(['given-b', 'stays-a']);
  for (let starts = 0; starts < 2; starts++) {
    back = await under.restart(back);
    await back.keeper.flush();
    await lists(['given-b', 'late-b', 'stays-a']);
    // It is waited for like any other node again.
    expect(await under.tables.systemRead((tx) => tx.count('log_nodes', { where: { node: 'b' } }))).toBe(1);
    await back.kill();
  }
}, 180_000);
