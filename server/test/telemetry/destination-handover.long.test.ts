/** Nodes that are killed and do not come back: others send what they have left to log destinations, and nothing comes twice in the end. */
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { eventually } from '../support/budgets.ts';
import { type LogReceiver, startLogReceiver } from '../support/log-receiver.ts';
import { postgresDatabase } from '../support/postgres.ts';
import { readFirstRun, type ServerProcess, startReady, stopProcess } from '../support/process.ts';
import { S3_KEYS, type S3Server, startS3Server } from '../support/s3-server.ts';

const CHAT = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'hi' }] };
/** More than a batch of a webhook, and than a page of what is stored. */
const MANY = 700;
/** Requests of the node that sends for the other. */
const OWN = 5;

let receiver: LogReceiver;
let objects: S3Server;
let work: string;
let database: pg.Client;
let env: Record<string, string>;
const nodes: { server: ServerProcess; readonly dir: string; readonly id: string }[] = [];
let keys: { readonly admin: string; readonly user: string; readonly workspaceId: string };

beforeAll(async () => {
  receiver = await startLogReceiver();
  objects = await startS3Server({ buckets: ['bucket'] });
  work = await mkdtemp(join(tmpdir(), 'sluice-handover-'));
  const url = await postgresDatabase();
  env = {
    SLUICE_DATABASE_URL: url,
    SLUICE_BLOBS_URL: `s3://bucket/sluice?region=eu-central-1&path_style=true&endpoint=${objects.url}`,
    AWS_ACCESS_KEY_ID: S3_KEYS.accessKeyId,
    AWS_SECRET_ACCESS_KEY: S3_KEYS.secretAccessKey,
    SLUICE_MASTER_KEY: randomBytes(32).toString('base64'),
    SLUICE_TRUSTED_HOSTS: receiver.host,
  };
  for (const name of ['a', 'b']) {
    const dir = join(work, name);
    await mkdir(dir);
    const server = await startReady(dir, env);
    nodes.push({ server, dir, id: (await readFile(join(dir, 'node-id'), 'utf8')).trim() });
  }
  database = new pg.Client({ connectionString: url });
  await database.connect();
  const first = await readFirstRun(join(work, 'a'));
  keys = {
    admin: first.admin_api_key,
    user: first.workspace_api_key,
    workspaceId: first.workspace_id,
  };
}, 180_000);

afterAll(async () => {
  for (const { server } of nodes) await stopProcess(server, 'SIGKILL');
  await database?.end();
  await receiver.close();
  await objects.stop();
  await rm(work, { recursive: true, force: true });
}, 120_000);

const node = (at: number) => {
  const found = nodes[at];
  if (found === undefined) throw new Error('there is no such node');
  return found;
};

async function call(at: number, path: string, body?: object) {
  const answer = await fetch(`${node(at).server.url}/v1${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: {
      'x-gateway-api-key': path.startsWith('/chat') ? keys.user : keys.admin,
      'content-type': 'application/json',
      connection: 'close',
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  expect(answer.status, text).toBe(200);
  return { id: answer.headers.get('x-gateway-request-id') ?? '', body: JSON.parse(text) };
}

async function ask(at: number, count: number): Promise<string[]> {
  const ids: string[] = [];
  let left = count;
  const turn = async () => {
    while (left-- > 0) ids.push((await call(at, '/chat/completions', CHAT)).id);
  };
  await Promise.all(Array.from({ length: 8 }, turn));
  return ids;
}

const idsAt = () => receiver.records().map(({ id }) => String(id));

async function until<T>(read: () => Promise<T> | T, good: (value: T) => boolean): Promise<T> {
  let found = await eventually(read, good);
  for (let turns = 0; turns < 5 && !good(found); turns++) found = await eventually(read, good);
  expect(good(found), JSON.stringify(found)).toBe(true);
  return found;
}

const arrived = (ids: readonly string[]) =>
  until(
    () => {
      const there = new Set(idsAt());
      return ids.filter((id) => !there.has(id));
    },
    (missing) => missing.length === 0,
  );

/** All that it has recorded so far is in files that every node reads. */
async function given(at: number): Promise<void> {
  const now = Date.now() + 2_000;
  const row = async () =>
    (await database.query('SELECT complete_to FROM log_nodes WHERE node = $1', [node(at).id])).rows[0];
  await until(row, (found) => Number(found?.complete_to) > now);
}

/** As if its last sign of life were minutes old. */
async function forget(at: number): Promise<void> {
  const of = [node(at).id];
  await database.query('UPDATE log_nodes SET seen_at = seen_at - 600000 WHERE node = $1', of);
  await database.query(
    'UPDATE log_destination_feeds SET last_updated_at = last_updated_at - 600000 WHERE node = $1',
    of,
  );
}

const doubled = () => {
  const ids = idsAt();
  return ids.length - new Set(ids).size;
};

it('send what a killed node has left, each request once, and it repeats none of them when it is back', {
  timeout: 300_000,
}, async () => {
  const body = { name: 'x', kind: 'webhook', workspace_id: keys.workspaceId, webhook: { url: receiver.url } };
  const { id } = (await call(0, '/log-destinations', body)).body;
  const state = async () => (await call(0, `/log-destinations/${id}`)).body.state;
  await until(state, ({ nodes: feeding, backfilling }) => feeding === 2 && !backfilling);
  const before = [...(await ask(0, 10)), ...(await ask(1, 10))];
  await arrived(before);

  receiver.refuse = { status: 503 };
  const left = [...(await ask(1, MANY)), ...(await ask(0, OWN))];
  await given(1);
  await stopProcess(node(1).server, 'SIGKILL');
  receiver.refuse = null;
  await forget(1);
  // The node that sends in its place is killed, too, before it can note the first batch.
  const batches: number[] = [];
  receiver.taken = () => {
    const size = (JSON.parse(receiver.calls.at(-1)?.text ?? '').data.records as unknown[]).length;
    if (size < 100) return true;
    batches.push(size);
    node(0).server.child.kill('SIGKILL');
    receiver.taken = null;
    return false;
  };
  await until(
    () => batches.length,
    (count) => count === 1,
  );
  await stopProcess(node(0).server, 'SIGKILL');
  node(0).server = await startReady(node(0).dir, env);
  await arrived(left);
  const inFlight = batches[0] ?? 0;
  const twice = doubled();
  // Its own requests go in a batch of their own, which the kill may have met as well.
  expect(twice).toBeLessThanOrEqual(inFlight + OWN);

  await until(state, ({ waiting, status }) => waiting === 0 && status === 'ok');
  node(1).server = await startReady(node(1).dir, env);
  const after = [...(await ask(1, 5)), ...(await ask(0, 5))];
  await arrived(after);
  await until(state, ({ waiting }) => waiting === 0);
  expect(doubled()).toBe(twice);
  expect(new Set(idsAt()).size).toBe(before.length + left.length + after.length);
  expect(receiver.faults).toEqual([]);
});
