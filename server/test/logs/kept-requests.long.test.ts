/** Real server processes: what they served is asked of any of their workers, after a restart, and after an upgrade. */
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { systemClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { logRecord } from '../support/log-record.ts';
import { writeOldSqlite } from '../support/old-log-store.ts';
import { killAll, readFirstRun, type ServerProcess, startProcess, stopProcess } from '../support/process.ts';

let dataDir = '';
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'sluice-kept-requests-'));
});
afterEach(async () => {
  killAll();
  await rm(dataDir, { recursive: true, force: true });
});

const WAIT = { timeout: 40_000, interval: 200 };

/** On a connection for itself, so that the calls spread over the workers. */
async function call(server: ServerProcess, path: string, body?: unknown) {
  const { workspace_api_key } = await readFirstRun(dataDir);
  const answer = await fetch(`${server.url}/v1${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'x-gateway-api-key': workspace_api_key, 'content-type': 'application/json', connection: 'close' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  return { status: answer.status, headers: answer.headers, body: JSON.parse(text) as { data?: { id: string }[] } };
}

async function chat(server: ServerProcess, count: number): Promise<string[]> {
  const body = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello' }] };
  const answers = await Promise.all(Array.from({ length: count }, () => call(server, '/chat/completions', body)));
  return answers.map(({ headers }) => String(headers.get('x-gateway-request-id')));
}

const listed = async (server: ServerProcess) => (await call(server, '/logs?limit=200')).body.data?.map(({ id }) => id);

it('two workers answer alike about the requests of both, also after a restart with one', async () => {
  const two = await startProcess(dataDir, { SLUICE_WORKERS: '2' });
  const ids = (await chat(two, 30)).sort();
  expect(existsSync(join(dataDir, 'logs'))).toBe(false);
  await expect.poll(async () => (await listed(two))?.sort(), WAIT).toEqual(ids);
  // Each call meets one of the workers.
  for (let i = 0; i < 8; i++) expect((await listed(two))?.sort()).toEqual(ids);
  await stopProcess(two, 'SIGTERM');
  const one = await startProcess(dataDir);
  ids.push(...(await chat(one, 3)));
  await expect.poll(async () => (await listed(one))?.sort(), WAIT).toEqual(ids.sort());
  await stopProcess(one, 'SIGKILL');
  const again = await startProcess(dataDir);
  await expect.poll(async () => (await listed(again))?.sort(), WAIT).toEqual(ids);
}, 120_000);

it('a server that served nothing has no keeper, and one that is stopped leaves none', async () => {
  const server = await startProcess(dataDir);
  const { operator_api_key } = await readFirstRun(dataDir);
  const health = async () => {
    const answer = await fetch(`${server.url}/v1/operator/health`, {
      headers: { 'x-gateway-api-key': operator_api_key },
    });
    return ((await answer.json()) as { logs: { ok: boolean; keeper: Record<string, unknown> } }).logs;
  };
  expect(await health()).toMatchObject({ ok: true, keeper: { status: 'resting', restarts: 0 } });
  await chat(server, 1);
  await expect.poll(() => listed(server), WAIT).toHaveLength(1);
  expect(await health()).toMatchObject({ ok: true, keeper: { status: 'running', records_in_no_file: 1 } });
  await stopProcess(server, 'SIGTERM');
}, 120_000);

it('requests that an older version stored are in the list after the start, once, and its file goes', async () => {
  const first = await startProcess(dataDir);
  const { organisation_id, workspace_id } = await readFirstRun(dataDir);
  await stopProcess(first, 'SIGTERM');
  const old = Array.from({ length: 120 }, (_, seq) =>
    logRecord(seq, {
      id: uuidv7(systemClock),
      time: systemClock.now() - seq,
      node: 'old',
      organisation_id,
      workspace_id,
    }),
  );
  writeOldSqlite(join(dataDir, 'logs.db'), old);
  const upgraded = await startProcess(dataDir);
  const ids = old.map(({ id }) => id).sort();
  await expect.poll(async () => (await listed(upgraded))?.sort(), WAIT).toEqual(ids);
  await expect.poll(() => existsSync(join(dataDir, 'logs.db')), WAIT).toBe(false);
  ids.push(...(await chat(upgraded, 2)));
  await stopProcess(upgraded, 'SIGTERM');
  const later = await startProcess(dataDir);
  await expect.poll(async () => (await listed(later))?.sort(), WAIT).toEqual(ids.sort());
}, 120_000);
