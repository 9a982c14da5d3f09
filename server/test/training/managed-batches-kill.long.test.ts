/** A batch that Sluice runs survives kill -9 of a real server in the middle of its calls. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { silentLog } from '../../src/kernel/log.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { killAll, readFirstRun, startProcess } from '../support/process.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

const LINES = 20;
/** Calls the provider answers before the first kill; the others are under way and never answered. */
const ANSWERED = 7;

let dataDir: string;
let upstream: FakeUpstream;
const calls = new Map<string, number>();
let answering: (content: string) => boolean = () => true;

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'sluice-batch-kill-'));
  upstream = await startUpstream((request, response) => {
    const { messages } = JSON.parse(request.body.toString('utf8')) as { messages: { content: string }[] };
    const content = messages[0]?.content ?? '';
    calls.set(content, (calls.get(content) ?? 0) + 1);
    if (answering(content)) {
      sendJson(
        response,
        200,
        JSON.stringify({
          id: 'c',
          object: 'chat.completion',
          created: 1,
          model: 'gpt-4o-mini',
          choices: [{ index: 0, message: { role: 'assistant', content: `Re: ${content}` }, finish_reason: 'stop' }],
          usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
        }),
      );
    }
  });
});
afterAll(async () => {
  killAll();
  await upstream?.stop();
  await rm(dataDir, { recursive: true, force: true });
});

/** Results in the store beside the running server. */
async function noted(batchId: string): Promise<number> {
  const tables = await openSqliteTables({ file: join(dataDir, 'control.db'), log: silentLog });
  try {
    return await tables.systemRead((tx) => tx.count('batch_results', { where: { batch_id: batchId } }));
  } finally {
    await tables.close();
  }
}

it('every line has one result after three kills, and only calls without a noted answer are made again', async () => {
  const env = { SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` };
  let server = await startProcess(dataDir, env);
  const first = await readFirstRun(dataDir);
  const admin = async (path: string, body: object) => {
    const answer = await fetch(`${server.url}/v1${path}`, {
      method: 'POST',
      headers: { 'x-gateway-api-key': first.admin_api_key, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    expect(answer.status, await answer.clone().text()).toBe(200);
  };
  await admin('/integrations', {
    name: 'killed',
    slug: 'killed-integration',
    ai_provider_id: 'openai',
    key: 'sk-stored',
    workspace_id: first.workspace_id,
    create_default_provider: false,
    configurations: { custom_host: `${upstream.url}/v1` },
  });
  await admin('/providers', {
    name: 'killed',
    slug: 'killed',
    integration_id: 'killed-integration',
    workspace_id: first.workspace_id,
  });
  const client = () =>
    new OpenAI({
      apiKey: first.workspace_api_key,
      baseURL: `${server.url}/v1`,
      maxRetries: 0,
      defaultHeaders: { 'x-gateway-provider': 'gateway' },
    });
  const lines = Array.from({ length: LINES }, (_, i) =>
    JSON.stringify({
      custom_id: `id-${i}`,
      method: 'POST',
      url: '/v1/chat/completions',
      body: { messages: [{ role: 'user', content: `line ${i}` }] },
    }),
  );
  const file = await client().files.create({
    file: await toFile(Buffer.from(lines.join('\n')), 'requests.jsonl'),
    purpose: 'batch',
  });

  answering = (content) => Number(content.slice('line '.length)) < ANSWERED;
  const made = await client().batches.create({
    input_file_id: file.id,
    endpoint: '/v1/chat/completions',
    completion_window: 'immediate',
    model: 'gpt-4o-mini',
    gateway_options: { 'x-gateway-virtual-key': 'killed' },
  } as never);
  for (let kill = 1; kill <= 3; kill++) {
    await vi.waitFor(
      async () => {
        expect(calls.get(`line ${LINES - 1}`)).toBe(kill);
        expect(await noted(made.id)).toBe(ANSWERED);
      },
      { timeout: 30_000, interval: 10 },
    );
    server.child.kill('SIGKILL');
    await server.ended;
    if (kill === 3) answering = () => true;
    server = await startProcess(dataDir, env);
  }
  const done = await vi.waitFor(
    async () => {
      const batch = await client().batches.retrieve(made.id);
      if (batch.status !== 'completed') throw new Error(`the batch is ${batch.status}`);
      return batch;
    },
    { timeout: 30_000, interval: 20 },
  );
  expect(done.request_counts).toEqual({ total: LINES, completed: LINES, failed: 0 });
  const output = await (await client().files.content(done.output_file_id ?? '')).text();
  const results = output
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(results.map((one) => [one.custom_id, one.response.body.choices[0].message.content])).toEqual(
    lines.map((_, i) => [`id-${i}`, `Re: line ${i}`]),
  );
  for (let i = 0; i < LINES; i++) {
    const made = calls.get(`line ${i}`) ?? 0;
    expect(made, `line ${i}`).toBe(i < ANSWERED ? 1 : 4);
  }
  server.child.kill('SIGKILL');
  await server.ended;
}, 120_000);
