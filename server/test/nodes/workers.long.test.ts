/** Several processes on one port (`SLUICE_WORKERS`): one first run, shared limits, changes seen by all, no record lost. */
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { killAll, readFirstRun, type ServerProcess, startByNpm } from '../support/process.ts';
import { keptRecords } from '../support/stored-records.ts';

let dataDir = '';
let server: ServerProcess;

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'sluice-workers-'));
  server = await startByNpm(dataDir, { SLUICE_WORKERS: '2' });
});

afterAll(async () => {
  killAll();
  await rm(dataDir, { recursive: true, force: true });
});

/** A connection of its own each time, so that the calls spread over the workers. */
async function call(path: string, key: string, body?: unknown, method = body === undefined ? 'GET' : 'POST') {
  const answer = await fetch(`${server.url}/v1${path}`, {
    method,
    headers: {
      'x-gateway-api-key': key,
      connection: 'close',
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: answer.status, body: (await answer.json()) as Record<string, string> };
}

const chat = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello' }] };

async function makeKey(limit?: number): Promise<{ id: string; key: string }> {
  const { admin_api_key, workspace_id } = await readFirstRun(dataDir);
  const made = await call('/api-keys/workspace/service', admin_api_key, {
    name: 'key',
    workspace_id,
    scopes: ['completions.write'],
    ...(limit === undefined ? {} : { rate_limits: [{ type: 'requests', unit: 'rpd', value: limit }] }),
  });
  return { id: String(made.body.id), key: String(made.body.key) };
}

it('a rate limit is one limit over all workers', async () => {
  const { key } = await makeKey(7);
  const answers = await Promise.all(Array.from({ length: 30 }, () => call('/chat/completions', key, chat)));
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(7);
  expect(answers.filter(({ status }) => status === 429)).toHaveLength(23);
});

// How soon, is measured in revocation.long.test.ts.
it('a deleted key is refused by every worker', async () => {
  const { admin_api_key } = await readFirstRun(dataDir);
  const { id, key } = await makeKey();
  const before = await Promise.all(Array.from({ length: 12 }, () => call('/chat/completions', key, chat)));
  expect(before.every(({ status }) => status === 200)).toBe(true);
  expect((await call(`/api-keys/${id}`, admin_api_key, undefined, 'DELETE')).status).toBe(200);
  const deadline = performance.now() + 10_000;
  let refused = false;
  while (!refused && performance.now() < deadline) {
    const after = await Promise.all(Array.from({ length: 12 }, () => call('/chat/completions', key, chat)));
    refused = after.every(({ status }) => status === 401);
  }
  expect(refused).toBe(true);
});

it('every worker keeps a journal, and SIGTERM ends all of them with every record stored', async () => {
  const { workspace_api_key, organisation_id, workspace_id } = await readFirstRun(dataDir);
  const journals = (await readdir(join(dataDir, 'spool'))).filter((name) => name.startsWith('journal'));
  expect(journals.sort()).toEqual(['journal', 'journal-2']);
  const traces = Array.from({ length: 40 }, (_, i) => `w-${i}`);
  await Promise.all(
    traces.map(async (trace) => {
      const answer = await fetch(`${server.url}/v1/chat/completions`, {
        method: 'POST',
        headers: {
          'x-gateway-api-key': workspace_api_key,
          'content-type': 'application/json',
          connection: 'close',
          'x-gateway-trace-id': trace,
        },
        body: JSON.stringify(chat),
      });
      await answer.text();
    }),
  );
  // npm ends by the signal; the server it started sees that, drains, and ends after it.
  server.child.kill('SIGTERM');
  await server.ended;
  const records = await keptRecords({ dataDir }, organisation_id, workspace_id);
  const seen = records.map((record) => String(record.trace_id)).filter((trace) => trace.startsWith('w-'));
  expect(seen.sort()).toEqual([...traces].sort());
  expect(new Set(records.map((record) => record.node)).size).toBe(2);
});
