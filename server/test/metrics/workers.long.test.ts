/** `/metrics` of several processes on one port: whichever is asked tells the numbers of all, also after one was killed. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { eventually } from '../support/budgets.ts';
import { readExposition, totalOf } from '../support/exposition.ts';
import { killAll, readFirstRun, type ServerProcess, startReady, stopProcess } from '../support/process.ts';

let dataDir = '';
let server: ServerProcess;
let keys: { workspace: string; operator: string };

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'sluice-metrics-'));
  server = await startReady(dataDir, { SLUICE_WORKERS: '2', SLUICE_METRICS_PORT: '0', SLUICE_LOG_LEVEL: 'info' });
  const { workspace_api_key, operator_api_key } = await readFirstRun(dataDir);
  keys = { workspace: workspace_api_key, operator: operator_api_key };
});

afterAll(async () => {
  await stopProcess(server, 'SIGTERM');
  killAll();
  await rm(dataDir, { recursive: true, force: true });
});

/** A connection of its own each time, so that the calls spread over the workers. */
async function chat(): Promise<void> {
  const answer = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'x-gateway-api-key': keys.workspace, 'content-type': 'application/json', connection: 'close' },
    body: JSON.stringify({ model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello' }] }),
  });
  expect(answer.status).toBe(200);
  await answer.text();
}

async function read(url = `${server.url}/metrics`) {
  const answer = await fetch(url, { headers: { authorization: `Bearer ${keys.operator}`, connection: 'close' } });
  expect(answer.status).toBe(200);
  return readExposition(await answer.text());
}

const pids = () =>
  [...server.out.matchAll(/"msg":"Sluice is listening".*?"pid":(\d+)|"pid":(\d+).*?Sluice is listening/g)].map(
    ([, one, other]) => Number(one ?? other),
  );

it('each scrape tells the sum, on both listeners', async () => {
  await eventually(
    async () => totalOf(await read(), 'sluice_workers_answered'),
    (answered) => answered === 2,
  );
  await Promise.all(Array.from({ length: 40 }, chat));
  const own = /http:\/\/127\.0\.0\.1:\d+\/metrics/.exec(server.out)?.[0];
  for (const url of [undefined, undefined, undefined, undefined, own]) {
    const families = await read(url);
    expect(totalOf(families, 'sluice_requests_total')).toBe(40);
    expect(totalOf(families, 'sluice_workers_answered')).toBe(2);
  }
});

it('a killed worker takes nothing back, and the one after it adds to that', async () => {
  const known = pids();
  expect(known).toHaveLength(2);
  process.kill(known[1] ?? 0, 'SIGKILL');
  await eventually(
    () => pids().length,
    (count) => count === 3,
  );
  expect(totalOf(await read(), 'sluice_requests_total')).toBe(40);
  await Promise.all(Array.from({ length: 20 }, chat));
  expect(totalOf(await read(), 'sluice_requests_total')).toBe(60);
  await eventually(
    async () => totalOf(await read(), 'sluice_workers_answered'),
    (answered) => answered === 2,
  );
});
