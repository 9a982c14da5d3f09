/**
 * What is passed through unread spends as any other request: what its answer tells is counted, whatever the path was. What
 * goes on without its caller counts as what it was expected to use.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { booksOf, budgetKey, type Caller, eventually, settledBooks } from '../support/budgets.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

let server: TestServer;
let upstream: FakeUpstream;
let slug: string;

beforeAll(async () => {
  upstream = await startUpstream((_request, response) => sendJson(response, 200, {}));
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  slug = await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
}, 60_000);

afterAll(async () => {
  await server.stop();
  await upstream.stop();
});

const limited = (type: 'cost' | 'tokens'): Promise<Caller> =>
  budgetKey(server, { usage_limits: { type, credit_limit: 1_000_000 } });

const pass = async (
  caller: Caller,
  path: string,
  body: object,
  answer: unknown,
  method = 'POST',
  config: object | null = null,
) => {
  upstream.answer = (_request, response) => sendJson(response, 200, answer);
  const response = await fetch(`${server.url}/v1${path}`, {
    method,
    headers: {
      'x-gateway-api-key': caller.key,
      ...(config === null
        ? { 'x-gateway-provider': `@${slug}` }
        : { 'x-gateway-config': JSON.stringify({ provider: `@${slug}`, ...config }) }),
      ...(method === 'GET' ? {} : { 'content-type': 'application/json' }),
    },
    ...(method === 'GET' ? {} : { body: JSON.stringify(body) }),
  });
  await response.arrayBuffer();
  return response.status;
};

const chat = { model: 'gpt-4o', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 9 };
const usage = { prompt_tokens: 1000, completion_tokens: 500 };

describe('passed through', () => {
  it.each(['/proxy/chat/completions', '/chat/completions/', '/Chat/Completions', '/chat%2Fcompletions'])(
    'POST /v1%s counts the tokens and the cost that its answer tells',
    async (path) => {
      const [tokens, cost] = [await limited('tokens'), await limited('cost')];
      for (const caller of [tokens, cost]) {
        expect(await pass(caller, path, chat, { model: 'gpt-4o', choices: [], usage })).toBe(200);
      }
      expect(await settledBooks(server, tokens.id)).toEqual({ used: 1500, reserved: 0, unpriced: 0 });
      expect(await settledBooks(server, cost.id)).toEqual({ used: 7500, reserved: 0, unpriced: 0 });
    },
  );

  it.each([
    ['messages', { usage: { input_tokens: 10, cache_read_input_tokens: 5, output_tokens: 7 } }, 22],
    ['responses', { usage: { input_tokens: 10, output_tokens: 7, total_tokens: 17 } }, 17],
    ['embeddings', { usage: { total_tokens: 12 } }, 12],
    ['Bedrock', { usage: { inputTokens: 10, outputTokens: 7, cacheReadInputTokens: 3 } }, 20],
    ['Gemini', { usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 7, thoughtsTokenCount: 2 } }, 19],
    ['Cohere', { usage: { tokens: { input_tokens: 10, output_tokens: 7 } } }, 17],
    ['nobody', { usage: { seconds: 12 } }, 0],
  ])('usage as %s tells it is counted', async (_name, answer, expected) => {
    const caller = await limited('tokens');
    expect(await pass(caller, '/proxy/anything', chat, answer)).toBe(200);
    expect(await settledBooks(server, caller.id)).toEqual({ used: expected, reserved: 0, unpriced: 0 });
  });

  it('text that tells no usage is counted by its length', async () => {
    const caller = await limited('tokens');
    const content = 'a'.repeat(4000);
    expect(await pass(caller, '/proxy/chat/completions', chat, { choices: [{ message: { content } }] })).toBe(200);
    expect((await settledBooks(server, caller.id)).used).toBeGreaterThan(1000);
  });

  it('what only reads is free, whatever usage it tells', async () => {
    const caller = await limited('tokens');
    expect(await pass(caller, '/proxy/responses/resp_1', {}, { usage: { input_tokens: 9 } }, 'GET')).toBe(200);
    expect((await server.records())[0]).toMatchObject({ operation: 'proxy', usage: null });
    expect(await settledBooks(server, caller.id)).toEqual({ used: 0, reserved: 0, unpriced: 0 });
  });
});

it('batches and jobs whose usage nobody would see are not passed through under a limit on what they use', async () => {
  const caller = await limited('tokens');
  const before = upstream.received.length;
  for (const path of ['/proxy/batches', '/proxy/batches/', '/proxy/fine_tuning/jobs', '/messages/batches']) {
    expect(await pass(caller, path, { input_file_id: 'file-1' }, { id: 'batch_1' })).toBe(400);
  }
  expect(upstream.received.length).toBe(before);
  const free = await budgetKey(server);
  expect(await pass(free, '/proxy/batches', { input_file_id: 'file-1' }, { id: 'batch_1' })).toBe(200);
});

describe('a response in the background', () => {
  const background = { model: 'gpt-4o', input: 'Hello', background: true, max_output_tokens: 5000 };
  const queued = { id: 'resp_1', object: 'response', model: 'gpt-4o', status: 'queued', output: [], usage: null };

  it('counts as the most that it may answer, and reading it later as nothing', async () => {
    const caller = await limited('tokens');
    expect(await pass(caller, '/responses', background, queued)).toBe(200);
    const done = { ...queued, status: 'completed', usage: { input_tokens: 9, output_tokens: 4000 } };
    expect(await pass(caller, '/responses/resp_1', {}, done, 'GET')).toBe(200);
    const { used, reserved } = await settledBooks(server, caller.id);
    expect(reserved).toBe(0);
    expect(used).toBeGreaterThanOrEqual(5000);
    expect(used).toBeLessThan(5100);
  });

  it.each(['override_params', 'default_params'])('counts so too when the config asks for it by %s', async (name) => {
    const caller = await limited('tokens');
    const { background: _, ...body } = background;
    expect(await pass(caller, '/responses', body, queued, 'POST', { [name]: { background: true } })).toBe(200);
    expect((await settledBooks(server, caller.id)).used).toBeGreaterThanOrEqual(5000);
  });

  it('counts so too when its caller leaves before anything is answered', async () => {
    const caller = await limited('tokens');
    const leave = new AbortController();
    upstream.answer = () => leave.abort();
    const sent = fetch(`${server.url}/v1/responses`, {
      method: 'POST',
      headers: {
        'x-gateway-api-key': caller.key,
        'x-gateway-provider': `@${slug}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify(background),
      signal: leave.signal,
    });
    await expect(sent).rejects.toThrow();
    const { used } = await eventually(
      () => booksOf(server, caller.id),
      (books) => books.used > 0,
    );
    expect(used).toBeGreaterThanOrEqual(5000);
  });

  it('counts what it used where its answer tells that', async () => {
    const caller = await limited('tokens');
    const done = { ...queued, status: 'completed', usage: { input_tokens: 9, output_tokens: 40 } };
    expect(await pass(caller, '/responses', background, done)).toBe(200);
    expect((await settledBooks(server, caller.id)).used).toBe(49);
  });
});

it('a model that is not enabled is not reached by the parameters of a config either', async () => {
  const path = '/integrations/openai-test-integration/models';
  const off = { models: [{ slug: 'gpt-4o', enabled: false }] };
  expect((await server.admin('PUT', path, off)).status).toBe(200);
  const caller = await limited('tokens');
  const cheap = { ...chat, model: 'gpt-4o-mini' };
  const { model: _, ...none } = chat;
  const answer = { model: 'gpt-4o', choices: [], usage };
  const ask = (body: object, config: object) => pass(caller, '/chat/completions', body, answer, 'POST', config);
  expect(await ask(cheap, {})).toBe(200);
  expect(await ask(cheap, { override_params: { model: 'gpt-4o' } })).toBe(400);
  expect(await ask(cheap, { override_params: { model: `@${slug}/gpt-4o` } })).toBe(400);
  expect(await ask(none, { default_params: { model: 'gpt-4o' } })).toBe(400);
});
