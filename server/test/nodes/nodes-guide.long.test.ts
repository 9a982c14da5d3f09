/** docs/guides/nodes.md as it is written: two servers by `npm start`, on one PostgreSQL, Redis, object store and master key. */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { postgresDatabase } from '../support/postgres.ts';
import { killAll, readFirstRun, runCommand, type ServerProcess, startByNpm } from '../support/process.ts';
import { anyRedis, redisMissing } from '../support/redis.ts';
import { S3_KEYS, type S3Server, startS3Server } from '../support/s3-server.ts';

const WITHIN_MS = 1_000;
const CHAT = JSON.stringify({ model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello' }] });

let guide = '';
let work = '';
let objects: S3Server;
let redis: Awaited<ReturnType<typeof anyRedis>> | null = null;
/** What both nodes are given. */
let shared: Record<string, string> = {};
/** Both nodes in the order of the guide, with the data directory and the port that the guide names. */
const nodes: {
  readonly server: ServerProcess;
  readonly dataDir: string;
  readonly path: string;
  readonly port: string;
}[] = [];

beforeAll(async () => {
  guide = await readFile(new URL('../../../docs/guides/nodes.md', import.meta.url), 'utf8');
  work = await mkdtemp(join(tmpdir(), 'sluice-nodes-'));
  objects = await startS3Server();
  objects.createBucket('bucket');
  redis = redisMissing === null ? await anyRedis() : null;
  const values: Record<string, string> = {
    SLUICE_DATABASE_URL: await postgresDatabase(),
    ...(redis === null ? {} : { SLUICE_REDIS_URL: redis.url }),
    SLUICE_BLOBS_URL: `s3://bucket/sluice?region=eu-central-1&path_style=true&endpoint=${objects.url}`,
    AWS_ACCESS_KEY_ID: S3_KEYS.accessKeyId,
    AWS_SECRET_ACCESS_KEY: S3_KEYS.secretAccessKey,
    SLUICE_MASTER_KEY: randomBytes(32).toString('base64'),
    SLUICE_PUBLIC_URL: 'https://sluice.example.com',
  };
  // What the commands that follow set is for them alone.
  const settings = guide.replace(/^```sh\n.*?^```$/gms, '');
  const named = [...settings.matchAll(/^export ((?:SLUICE|AWS)_\w+)=/gm)].map(([, name = '']) => name);
  shared = Object.fromEntries(named.flatMap((name) => (name in values ? [[name, values[name] ?? '']] : [])));
  expect(named.filter((name) => !(name in shared))).toEqual(redis === null ? ['SLUICE_REDIS_URL'] : []);
  for (const [, path = '', port = ''] of guide.matchAll(/^SLUICE_DATA_DIR=(\S+) npm start -- --port (\d+)/gm)) {
    const dataDir = join(work, path);
    nodes.push({ server: await startNode(dataDir), dataDir, path, port });
  }
  expect(nodes).toHaveLength(2);
});

afterAll(async () => {
  for (const { server } of nodes) killNode(server);
  killAll();
  await redis?.close();
  await objects?.stop();
  await rm(work, { recursive: true, force: true });
});

/** At the level of the log that a start has by itself: its line about listening names the process behind npm. */
const startNode = (dataDir: string) => startByNpm(dataDir, { ...shared, SLUICE_LOG_LEVEL: 'info' }, ['--port', '0']);

function killNode(server: ServerProcess): void {
  const pid = Number(/"pid":(\d+)/.exec(server.out)?.[1]);
  if (server.child.exitCode === null && server.child.signalCode === null && pid > 0) process.kill(pid, 'SIGKILL');
}

const node = (index: number) => {
  const found = nodes[index];
  if (found === undefined) throw new Error(`the guide starts no node ${index}`);
  return found;
};

async function chat(index: number, key: string, trace = ''): Promise<number> {
  const answer = await fetch(`${node(index).server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: {
      'x-gateway-api-key': key,
      'content-type': 'application/json',
      ...(trace === '' ? {} : { 'x-gateway-trace-id': trace }),
    },
    body: CHAT,
  });
  await answer.text();
  return answer.status;
}

async function admin(index: number, path: string, body?: object): Promise<Record<string, unknown>> {
  const { admin_api_key } = await readFirstRun(node(0).dataDir);
  const answer = await fetch(`${node(index).server.url}/v1${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'x-gateway-api-key': admin_api_key, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  expect(answer.status).toBe(200);
  return (await answer.json()) as Record<string, unknown>;
}

/** A service key made on a node, and its id. */
async function makeKey(index: number, fields: object = {}): Promise<{ readonly id: string; readonly key: string }> {
  const { workspace_id } = await readFirstRun(node(0).dataDir);
  const made = await admin(index, '/api-keys/workspace/service', {
    name: 'key',
    workspace_id,
    scopes: ['completions.write'],
    ...fields,
  });
  return { id: String(made.id), key: String(made.key) };
}

/** Asks a node until it answers `wanted` or a second is over; what it answers then. */
async function within(index: number, key: string, wanted: number): Promise<number> {
  const since = performance.now();
  let seen = 0;
  do seen = await chat(index, key);
  while (seen !== wanted && performance.now() - since < WITHIN_MS);
  return seen;
}

// One installation over its life: the order of the tests matters.
it('only the node that started first has first-run.json', async () => {
  expect(await readdir(node(0).dataDir)).toContain('first-run.json');
  expect(await readdir(node(1).dataDir)).not.toContain('first-run.json');
});

it('the commands of the guide print the statuses that it says', async () => {
  let commands = [...guide.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, text]) => text).join('\n');
  for (const { server, dataDir, path, port } of nodes)
    commands = commands.replaceAll(`http://127.0.0.1:${port}`, server.url).replaceAll(path, dataDir);
  const PATH = `${join(process.execPath, '..')}:${process.env.PATH}`;
  const shell = spawn('bash', ['-eu'], { cwd: work, env: { ...process.env, PATH } });
  let [printed, faults] = ['', ''];
  shell.stdout.on('data', (bytes) => (printed += bytes));
  shell.stderr.on('data', (bytes) => (faults += bytes));
  shell.stdin.end(commands);
  expect([(await once(shell, 'close'))[0], faults]).toEqual([0, '']);
  const said = [...commands.matchAll(/# (\d{3})$/gm)].map(([, status]) => status);
  expect(printed.trim().split('\n')).toEqual(said);
  expect(said).toContain('412');
  expect(objects.keys('bucket').every((key) => key.startsWith('sluice/'))).toBe(true);
  expect(objects.faults).toEqual([]);
});

it.each([
  [0, 1],
  [1, 0],
])(
  'a key made on node %i works on node %i within a second, and is refused within one once it is deleted',
  async (from, to) => {
    const { id, key } = await makeKey(from);
    expect(await within(to, key, 200)).toBe(200);
    const { admin_api_key } = await readFirstRun(node(0).dataDir);
    const deleted = await fetch(`${node(from).server.url}/v1/api-keys/${id}`, {
      method: 'DELETE',
      headers: { 'x-gateway-api-key': admin_api_key },
    });
    expect(deleted.status).toBe(200);
    expect(await within(to, key, 401)).toBe(401);
  },
);

it('a budget holds over both nodes when both are asked at once', async () => {
  const { id, key } = await makeKey(0);
  const probe = await makeKey(0);
  const { workspace_id } = await readFirstRun(node(0).dataDir);
  await admin(0, '/policies/usage-limits', {
    name: 'Seven',
    workspace_id,
    type: 'requests',
    credit_limit: 7,
    conditions: [{ key: 'api_key', value: [id, probe.id] }],
    group_by: [{ key: 'api_key' }],
  });
  // Another key under the same policy says when both nodes know it.
  for (const index of [0, 1]) expect(await within(index, probe.key, 412)).toBe(412);
  const answers = await Promise.all(Array.from({ length: 24 }, (_, i) => chat(i % 2, key)));
  expect(answers.filter((status) => status === 200)).toHaveLength(7);
  expect(answers.filter((status) => status === 412)).toHaveLength(17);
});

it.skipIf(redisMissing !== null)('a rate limit holds over both nodes with Redis', async () => {
  const { key } = await makeKey(1, { rate_limits: [{ type: 'requests', unit: 'rpd', value: 7 }] });
  const answers = await Promise.all(Array.from({ length: 24 }, (_, i) => chat(i % 2, key)));
  expect(answers.filter((status) => status === 200)).toHaveLength(7);
  expect(answers.filter((status) => status === 429)).toHaveLength(17);
});

it('doctor finds nothing wrong with a node on PostgreSQL and Redis', async () => {
  const ended = await runCommand(['doctor'], { ...shared, SLUICE_DATA_DIR: node(1).dataDir }, work);
  expect(ended, ended.out).toMatchObject({ code: 0, err: '' });
  expect(ended.out).not.toContain('FAIL');
  expect(ended.out).toMatch(/^ok +store +postgres, reachable$/m);
  expect(ended.out).toMatch(/^ok +master key +opens what the store has sealed/m);
  expect(ended.out).toMatch(/^ok +organisations +1$/m);
  if (redis !== null) expect(ended.out).toMatch(/^ok +redis +reachable$/m);
});

it('doctor names a PostgreSQL and a Redis that are away once, as a start does, with exit code 1 and no password', async () => {
  const away = {
    SLUICE_DATABASE_URL: 'postgres://sluice:hunter2@127.0.0.1:9/sluice',
    SLUICE_REDIS_URL: 'redis://:hunter3@127.0.0.1:9',
  };
  const ended = await runCommand(['doctor'], { ...away, SLUICE_DATA_DIR: node(1).dataDir }, work);
  expect(ended, ended.out).toMatchObject({ code: 1, err: '' });
  const failed = ended.out.match(/^FAIL.*$/gm);
  expect(failed).toEqual([
    'FAIL  store           The PostgreSQL at 127.0.0.1:9/sluice cannot be used: connect ECONNREFUSED 127.0.0.1:9. Start it, or correct SLUICE_DATABASE_URL.',
    'FAIL  redis           The Redis at 127.0.0.1:9 cannot be used: connect ECONNREFUSED 127.0.0.1:9. Start it, or correct SLUICE_REDIS_URL.',
  ]);
  const started = await runCommand(['serve'], { ...away, SLUICE_DATA_DIR: join(work, 'away'), SLUICE_PORT: '0' }, work);
  expect(failed?.[0]).toBe(`FAIL  store           ${started.err.replace('sluice: ', '').trimEnd()}`);
  expect([ended.out, started.err, started.out].join('\n')).not.toMatch(/hunter/);
});

it('a node without the master key of the store refuses to start, and names the id of the key', async () => {
  const id = /key ([0-9a-f]{16})\)/.exec(
    (await runCommand(['doctor'], { ...shared, SLUICE_DATA_DIR: node(1).dataDir }, work)).out,
  )?.[1];
  const other = { ...shared, SLUICE_MASTER_KEY: randomBytes(32).toString('base64'), SLUICE_PORT: '0' };
  const ended = await runCommand(['serve'], { ...other, SLUICE_DATA_DIR: join(work, 'other') }, work);
  expect(ended).toMatchObject({ code: 2, out: '' });
  expect(ended.err).toContain(`master key ${id}`);
});

it('one node is killed: the other serves, and the killed one brings its records along when it starts again', async () => {
  const { workspace_api_key } = await readFirstRun(node(0).dataDir);
  for (let i = 0; i < 5; i++) expect(await chat(0, workspace_api_key, `killed-${i}`)).toBe(200);
  killNode(node(0).server);
  await node(0).server.ended;
  expect(await chat(1, workspace_api_key)).toBe(200);
  expect(await chat(1, (await makeKey(1)).key)).toBe(200);
  const { dataDir, path, port } = node(0);
  nodes[0] = { server: await startNode(dataDir), dataDir, path, port };
  expect(node(0).server.out).not.toContain('first run');
  const traces = async (index: number) => {
    const answer = await fetch(`${node(index).server.url}/v1/logs?limit=200`, {
      headers: { 'x-gateway-api-key': workspace_api_key },
    });
    const { data = [] } = (await answer.json()) as { data?: { trace_id: string }[] };
    return data.map(({ trace_id }) => trace_id).filter((trace) => trace.startsWith('killed-'));
  };
  await expect.poll(() => traces(0), { timeout: 20_000, interval: 250 }).toHaveLength(5);
  await expect.poll(() => traces(1), { timeout: 20_000, interval: 250 }).toHaveLength(5);
});

it('both nodes list, count and sum up the same requests, of whichever node they are', async () => {
  const { workspace_api_key } = await readFirstRun(node(0).dataDir);
  for (const index of [0, 1, 0, 1, 1]) expect(await chat(index, workspace_api_key, `both-${index}`)).toBe(200);
  const until = new Date().toISOString();
  const asked = async (index: number) => {
    const range = `time_of_generation_min=${new Date(0).toISOString().replace('1970', '2026')}&time_of_generation_max=${until}`;
    const paths = [
      `/v1/logs?limit=200&${range}`,
      `/v1/logs/histogram?${range}`,
      `/v1/analytics/groups/ai-models?${range}`,
    ];
    return Promise.all(
      paths.map(async (path) => {
        const headers = { 'x-gateway-api-key': workspace_api_key };
        const answer = await fetch(`${node(index).server.url}${path}`, { headers });
        expect(answer.status, await answer.clone().text()).toBe(200);
        const { complete_to, ...body } = (await answer.json()) as { complete_to: string; incomplete?: object };
        return { ...body, late: complete_to < until };
      }),
    );
  };
  const whole = (answers: Awaited<ReturnType<typeof asked>>) =>
    answers.every(({ late, incomplete }) => !late && incomplete === undefined);
  await expect
    .poll(async () => whole(await asked(0)) && whole(await asked(1)), { timeout: 20_000, interval: 250 })
    .toBe(true);
  expect(await asked(0)).toEqual(await asked(1));
  const [list] = (await asked(0)) as unknown as [{ data: { trace_id: string }[] }];
  expect(list.data.filter(({ trace_id }) => trace_id.startsWith('both-'))).toHaveLength(5);
});

it('requests that were erased, by id, end user or key, are hidden on both nodes within a second', async () => {
  const { workspace_api_key, admin_api_key } = await readFirstRun(node(0).dataDir);
  const made = await makeKey(0);
  const ask = (index: number, key: string, trace: string, more: Record<string, string> = {}) =>
    fetch(`${node(index).server.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'x-gateway-api-key': key, 'content-type': 'application/json', 'x-gateway-trace-id': trace, ...more },
      body: CHAT,
    }).then((answer) => answer.text());
  const user = { 'x-gateway-metadata': JSON.stringify({ _user: 'ada-erased' }) };
  for (const index of [0, 1]) {
    await ask(index, workspace_api_key, `erased-id-${index}`);
    await ask(index, workspace_api_key, `erased-user-${index}`, user);
    await ask(index, made.key, `erased-key-${index}`);
  }
  const seen = async (index: number): Promise<{ id: string; trace_id: string }[]> => {
    const headers = { 'x-gateway-api-key': workspace_api_key };
    const answer = await fetch(`${node(index).server.url}/v1/logs?limit=200`, { headers });
    const text = await answer.text();
    expect(answer.status, text).toBe(200);
    const { data } = JSON.parse(text) as { data: { id: string; trace_id: string }[] };
    return data.filter(({ trace_id }) => trace_id.startsWith('erased-'));
  };
  for (const index of [0, 1]) await expect.poll(() => seen(index), { timeout: 20_000, interval: 250 }).toHaveLength(6);
  const all = await seen(0);
  const erase = async (method: string, path: string, body?: object) => {
    const headers = { 'x-gateway-api-key': admin_api_key, 'content-type': 'application/json' };
    const answer = await fetch(node(0).server.url + path, {
      method,
      headers,
      ...(body && { body: JSON.stringify(body) }),
    });
    expect(answer.status, await answer.text()).toBeLessThan(300);
  };
  const hidden = async (left: readonly string[]) => {
    const traces = async (index: number) => (await seen(index)).map(({ trace_id }) => trace_id).sort();
    await Promise.all(
      [0, 1].map((index) => expect.poll(() => traces(index), { timeout: WITHIN_MS, interval: 100 }).toEqual(left)),
    );
  };
  const one = all.find(({ trace_id }) => trace_id === 'erased-id-1')?.id;
  await erase('DELETE', `/v1/logs/${one}`);
  await hidden(['erased-id-0', 'erased-key-0', 'erased-key-1', 'erased-user-0', 'erased-user-1']);
  await erase('POST', '/v1/logs/erase', { end_user: 'ada-erased' });
  await hidden(['erased-id-0', 'erased-key-0', 'erased-key-1']);
  await erase('POST', '/v1/logs/erase', { api_key_id: made.id });
  await hidden(['erased-id-0']);
});

it('a killed node is listed, given up once it was silent for long, and brings nothing twice when it starts again', async () => {
  const { workspace_api_key } = await readFirstRun(node(0).dataDir);
  const { path, port, dataDir } = node(1);
  const id = (await readFile(join(dataDir, 'node-id'), 'utf8')).trim();
  const run = (...words: string[]) =>
    runCommand(['nodes', ...words], { ...shared, SLUICE_DATA_DIR: node(0).dataDir }, work);
  const answer = async (index: number) => {
    const headers = { 'x-gateway-api-key': workspace_api_key };
    const got = await fetch(`${node(index).server.url}/v1/logs?limit=200`, { headers });
    const text = await got.text();
    expect(got.status, text).toBe(200);
    const { data, incomplete = [] } = JSON.parse(text) as {
      data: { trace_id: string }[];
      incomplete?: { node?: string }[];
    };
    const traces = data.map(({ trace_id }) => trace_id).filter((trace) => trace.startsWith('lost-'));
    return { traces: traces.sort(), waits: incomplete.some((range) => range.node === id) };
  };
  for (const n of [0, 1]) expect(await chat(1, workspace_api_key, `lost-given-${n}`)).toBe(200);
  const given = ['lost-given-0', 'lost-given-1'];
  await expect.poll(async () => (await answer(0)).traces, { timeout: 20_000, interval: 250 }).toEqual(given);
  for (const n of [0, 1]) expect(await chat(1, workspace_api_key, `lost-late-${n}`)).toBe(200);
  killNode(node(1).server);
  await node(1).server.ended;
  const listed = await run('list');
  expect(listed).toMatchObject({ code: 0, err: '' });
  expect(listed.out).toMatch(new RegExp(`^${id}  runs, last seen \\S+, \\d+ files on its disk only$`, 'm'));
  expect(await run('give-up', id)).toMatchObject({ code: 2, err: expect.stringContaining('may be running') });
  const client = new pg.Client({ connectionString: shared.SLUICE_DATABASE_URL });
  await client.connect();
  await client.query('UPDATE log_nodes SET seen_at = seen_at - 660000 WHERE node = $1', [id]);
  await client.end();
  await expect.poll(async () => (await answer(0)).waits, { timeout: 20_000, interval: 250 }).toBe(true);
  expect((await run('list')).out).toContain(`${id}  silent`);
  const over = await run('give-up', id);
  expect(over).toMatchObject({ code: 0, err: '', out: expect.stringContaining(`The node ${id} is given up.`) });
  expect((await run('list')).out).not.toContain(id);
  expect((await run('give-up', id)).err).toContain(`no node ${id}`);
  await expect.poll(async () => (await answer(0)).waits, { timeout: 20_000, interval: 250 }).toBe(false);
  nodes[1] = { server: await startNode(dataDir), dataDir, path, port };
  const all = [...given, 'lost-late-0', 'lost-late-1'];
  for (const index of [0, 1])
    await expect.poll(async () => (await answer(index)).traces, { timeout: 20_000, interval: 250 }).toEqual(all);
  expect((await run('list')).out).toContain(`${id}  runs`);
}, 180_000);
