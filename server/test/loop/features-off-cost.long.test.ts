/**
 * What a config costs that has no feature on, in CPU time: of many short rounds in turn the least counts, which other work
 * on the machine cannot make smaller. `features-off.test.ts` says which code runs.
 */
import { Agent, request } from 'node:http';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

const ROUNDS = 30;
const REQUESTS = 200;
const AT_A_TIME = 8;
/** Client and upstream share the process, and are in both. */
const BOUND = 1.25;

let upstream: FakeUpstream;
let server: TestServer;
const agent = new Agent({ keepAlive: true, maxSockets: AT_A_TIME });

beforeAll(async () => {
  upstream = await startUpstream((_request, response) => {
    const choices = [{ index: 0, message: { role: 'assistant', content: 'fine' }, finish_reason: 'stop' }];
    const usage = { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 };
    sendJson(response, 200, { id: 'c', object: 'chat.completion', created: 1, model: 'gpt-4o', choices, usage });
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
}, 60_000);

afterAll(async () => {
  agent.destroy();
  await server?.stop();
  await upstream?.stop();
});

const BODY = JSON.stringify({ model: 'gpt-4o', messages: [{ role: 'user', content: 'hello '.repeat(150) }] });

function ask(named: Record<string, string>): Promise<void> {
  const headers = {
    'x-gateway-api-key': server.first.workspace_api_key,
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(BODY)),
    ...named,
  };
  return new Promise((resolve, reject) => {
    const call = request(`${server.url}/v1/chat/completions`, { method: 'POST', agent, headers }, (answer) => {
      answer.resume();
      answer.on('error', reject);
      answer.on('end', () => (answer.statusCode === 200 ? resolve() : reject(new Error(String(answer.statusCode)))));
    });
    call.on('error', reject);
    call.end(BODY);
  });
}

/** CPU µs of the process for each of some requests. */
async function cost(headers: Record<string, string>): Promise<number> {
  const before = process.cpuUsage();
  let left = REQUESTS;
  const one = async () => {
    while (left-- > 0) await ask(headers);
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, one));
  const { user, system } = process.cpuUsage(before);
  return (user + system) / REQUESTS;
}

it('a config with nothing on costs hardly more than none, beside others that have everything on', async () => {
  const provider = `@${await server.provider({ id: 'openai', host: `${upstream.url}/v1` })}`;
  const { workspace_id } = server.first;
  const save = async (name: string, config: object) => {
    const { status, body } = await server.admin('POST', '/configs', { name, config, workspace_id });
    expect([status, body]).toEqual([200, expect.anything()]);
    return { 'x-gateway-config': String(body.slug) };
  };
  const off = await save('off', { provider });
  const checks = [{ 'default.contains': { words: ['nowhere'], operator: 'none' }, deny: true }];
  const on = await save('on', {
    strategy: { mode: 'fallback' },
    cache: { mode: 'simple' },
    retry: { attempts: 2 },
    hedge: { delay: 5000 },
    stream: { on_break: 'continue' },
    cb_config: { failure_threshold: 5, cooldown_interval: 30_000 },
    input_guardrails: checks,
    output_guardrails: checks,
    targets: [{ provider }, { provider }],
  });
  const none = { 'x-gateway-provider': provider };
  for (let i = 0; i < 8; i++) for (const headers of [none, off, on]) await cost(headers);
  const without: number[] = [];
  const under: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    without.push(await cost(none));
    under.push(await cost(off));
  }
  expect(Math.min(...under) / Math.min(...without)).toBeLessThan(BOUND);
}, 300_000);
