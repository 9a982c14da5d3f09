/** Traces of several processes that share a port: one of them sends those of all. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { eventually } from '../support/budgets.ts';
import { type Collector, startCollector } from '../support/otlp-collector.ts';
import { readFirstRun, type ServerProcess, startReady, stopProcess } from '../support/process.ts';

let dir: string;
let collector: Collector;
let server: ServerProcess;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'sluice-traces-'));
  collector = await startCollector();
  server = await start();
});

afterAll(async () => {
  await stopProcess(server, 'SIGKILL');
  await collector.close();
  await rm(dir, { recursive: true, force: true });
});

const start = () =>
  startReady(dir, { SLUICE_WORKERS: '2', OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_METRICS_EXPORTER: 'none' });

async function ask(count: number): Promise<void> {
  const { workspace_api_key: key } = await readFirstRun(dir);
  const body = JSON.stringify({ model: '@sandbox/echo', messages: [{ role: 'user', content: 'hi' }] });
  for (let i = 0; i < count; i++) {
    const answer = await fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST',
      // A connection goes to one process: each request has its own.
      headers: { 'x-gateway-api-key': key, 'content-type': 'application/json', connection: 'close' },
      body,
    });
    expect(answer.status).toBe(200);
    await answer.text();
  }
}

const requests = () => collector.spans().filter(({ kind }) => kind === 2);

it('each request is one trace, whichever process served it, also after the whole server was killed', async () => {
  await ask(20);
  expect(
    await eventually(
      () => requests().length,
      (count) => count >= 20,
    ),
  ).toBe(20);
  collector.refuse = { status: 503 };
  await ask(10);
  await stopProcess(server, 'SIGKILL');
  collector.refuse = null;
  server = await start();
  await ask(5);
  expect(
    await eventually(
      () => requests().length,
      (count) => count >= 35,
    ),
  ).toBe(35);
  expect(new Set(requests().map(({ spanId }) => spanId)).size).toBe(35);
});
