/** The most common mistakes, made with the official clients: each shows a text that says what to set. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { Portkey } from 'portkey-ai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';

const PUBLIC = 'https://gateway.example';
const HELLO = [{ role: 'user' as const, content: 'Hello' }];

let server: TestServer;
let apiKey: string;
let openai: OpenAI;
let anthropic: Anthropic;

beforeAll(async () => {
  server = await startServer({ SLUICE_PUBLIC_URL: PUBLIC });
  apiKey = server.first.workspace_api_key;
  openai = new OpenAI({ apiKey, baseURL: `${server.url}/v1`, maxRetries: 0 });
  anthropic = new Anthropic({ apiKey, baseURL: server.url, maxRetries: 0 });
  await server.provider({ id: 'openai', host: 'https://api.openai.com/v1', slug: 'openai-prod' });
  // A slug of another workspace must not be proposed.
  const other = await server.admin('POST', '/admin/workspaces', { name: 'Other' });
  await server.admin('POST', '/integrations', {
    name: 'hidden',
    slug: 'hidden-prod',
    ai_provider_id: 'openai',
    key: 'sk-x',
    workspace_id: other.body.id,
  });
});

afterAll(() => server?.stop());

async function failure(call: PromiseLike<unknown>): Promise<Error & { status?: number; type?: unknown }> {
  try {
    await call;
  } catch (error) {
    if (error instanceof Error) return error;
  }
  throw new Error('The call should have failed.');
}

const chat = (model: string, headers = {}) =>
  failure(openai.chat.completions.create({ model, messages: HELLO }, { headers }));

describe('the OpenAI client shows what is wrong', () => {
  const mistakes: readonly (readonly [string, () => Promise<Error & { status?: number }>, string])[] = [
    [
      'a model without a provider',
      () => chat('gpt-4o-mini'),
      'No provider is named. The model "gpt-4o-mini" says no provider. Send the model as @slug/gpt-4o-mini, or the header',
    ],
    ['a slug without its @', () => chat('sandbox/echo'), 'Did you mean the model "@sandbox/echo"?'],
    ['a provider without a model', () => chat('@sandbox'), 'has no name of a model: send @sandbox/<model>.'],
    ['a slug of nothing', () => chat('@/echo'), 'is not of the form @slug/model'],
    [
      'no model',
      () => failure(openai.post('/chat/completions', { body: {} })),
      'Send a model of the form @slug/model,',
    ],
    ['a misspelt slug', () => chat('@openai-prd/gpt-4o'), 'Did you mean @openai-prod?'],
    ['the beginning of a slug', () => chat('@openai/gpt-4o'), 'Did you mean @openai-prod?'],
    ['jobs of no provider', () => failure(openai.fineTuning.jobs.list()), 'x-gateway-provider'],
    ['files of no provider', () => failure(openai.files.list()), 'or x-gateway-provider: gateway for files'],
    ['batches of no provider', () => failure(openai.batches.list()), 'x-gateway-provider'],
    ['a config that is no JSON', () => chat('gpt-4o', { 'x-gateway-config': '{no' }), 'is not valid JSON'],
    ['a config that does not exist', () => chat('gpt-4o', { 'x-gateway-config': 'pc-no' }), 'No config "pc-no" exists'],
    [
      'a guardrail that does not exist',
      () => chat('@sandbox/echo', { 'x-gateway-config': '{"input_guardrails":["pg-no"]}' }),
      'pg-no',
    ],
    [
      'a base URL without /v1',
      () => failure(new OpenAI({ apiKey, baseURL: server.url, maxRetries: 0 }).models.list()),
      `Unknown path /models: your base URL lacks /v1. Set it to ${PUBLIC}/v1.`,
    ],
    [
      'a base URL with /v1 twice',
      () => failure(new OpenAI({ apiKey, baseURL: `${server.url}/v1/v1`, maxRetries: 0 }).models.list()),
      `Unknown path /v1/v1/models: your base URL has /v1 twice. Set it to ${PUBLIC}/v1.`,
    ],
  ];

  it.each(mistakes)('%s', async (_title, make, message) => {
    const error = await make();
    expect(error).toBeInstanceOf(OpenAI.APIError);
    expect(error.message).not.toContain('(no body)');
    expect(error.message).toContain(message);
    expect((error as { type?: unknown }).type).toEqual(expect.stringMatching(/^(invalid_request_error|client_error)$/));
  });

  it('a base URL that is the address of a call', async () => {
    const client = new OpenAI({ apiKey, baseURL: `${server.url}/v1/chat/completions`, maxRetries: 0 });
    const advice = `our base URL ends in /chat/completions, which your client adds itself. Set it to ${PUBLIC}/v1.`;
    const chat = client.chat.completions.create({ model: '@sandbox/echo', messages: HELLO });
    for (const call of [chat, client.models.list()]) expect((await failure(call)).message).toContain(advice);
  });

  it('a key of the administration, with the kind of key to send', async () => {
    for (const key of [server.first.admin_api_key, server.first.operator_api_key]) {
      const client = new OpenAI({ apiKey: key, baseURL: `${server.url}/v1`, maxRetries: 0 });
      const error = await failure(client.chat.completions.create({ model: '@sandbox/echo', messages: HELLO }));
      expect(error.status).toBe(403);
      expect(error.message).toContain('Send a key that begins with slc_wks_ or slc_usr_');
    }
  });

  it('a key in Authorization without the word Bearer', async () => {
    const client = new OpenAI({ apiKey, baseURL: `${server.url}/v1`, maxRetries: 0 });
    const error = await failure(client.models.list({ headers: { authorization: apiKey } }));
    expect(error.status).toBe(401);
    expect(error.message).toContain('a key of Sluice without the word Bearer');
    expect(error.message).not.toContain(apiKey);
  });

  it('proposes no slug of another workspace', async () => {
    expect((await chat('@hidden-prd/gpt-4o')).message).not.toContain('hidden-prod');
  });

  it('a path that the provider does not have is named, with what to check', async () => {
    const error = await failure(openai.post('/answers', { body: { model: '@sandbox/echo' } }));
    expect(error.status).toBe(501);
    expect(error.message).toContain(
      'Provider sandbox has no operation at /v1/answers. Check the path, and that your base URL ends where your client expects it',
    );
    const near = await failure(openai.post('/chat/completion', { body: { model: '@sandbox/echo' } }));
    expect(near.message).toContain('at /v1/chat/completion. Did you mean POST /v1/chat/completions?');
  });
});

describe('the Anthropic client shows what is wrong', () => {
  const say = (client: Anthropic, model: string) =>
    failure(client.messages.create({ model, max_tokens: 10, messages: HELLO }));

  it.each([
    ['a model without a provider', 'claude-sonnet-4-5', 'Send the model as @slug/claude-sonnet-4-5'],
    ['a misspelt slug', '@openai-prodd/claude', 'Did you mean @openai-prod?'],
  ])('%s', async (_title, model, message) => {
    expect((await say(anthropic, model)).message).toContain(message);
  });

  it('a base URL that ends in /v1', async () => {
    const client = new Anthropic({ apiKey, baseURL: `${server.url}/v1`, maxRetries: 0 });
    const error = await say(client, '@sandbox/echo');
    expect(error.status).toBe(404);
    expect(error.message).toContain('Unknown path /v1/v1/messages: your base URL already ends in /v1.');
    expect(error.message).toContain(`set its base URL to ${PUBLIC}.`);
  });
});

it('a base URL of the Anthropic client that is the address of a call', async () => {
  const client = new Anthropic({ apiKey, baseURL: `${server.url}/v1/messages`, maxRetries: 0 });
  const error = await failure(client.messages.create({ model: '@sandbox/echo', max_tokens: 10, messages: HELLO }));
  expect(error.message).toContain(
    `our base URL ends in /messages, which your client adds itself. Set it to ${PUBLIC}.`,
  );
});

it('a path of Sluice with another method is said to be known', async () => {
  const answer = await fetch(`${server.url}/v1/chat/completions`, { headers: { 'x-gateway-api-key': apiKey } });
  expect(await answer.text()).toContain(
    '/v1/chat/completions does not serve GET. Did you mean POST /v1/chat/completions?',
  );
});

describe('a misspelt path', () => {
  const ask = async (path: string, key: string, init: RequestInit = {}) => {
    const answer = await fetch(server.url + path, { headers: { 'x-gateway-api-key': key }, ...init });
    return { status: answer.status, text: await answer.text() };
  };
  const keys = () => [apiKey, server.first.admin_api_key];

  it.each([
    ['/v1/provider', 'GET /v1/providers'],
    ['/v1/provider/openai-prod', 'GET /v1/providers/{slug}'],
    ['/v1/api_keys', 'GET /v1/api-keys'],
    ['/v1/api-key', 'GET /v1/api-keys'],
    ['/v1/config', 'GET /v1/configs'],
    ['/v1/intergrations', 'GET /v1/integrations'],
    ['/v1/admin/user', 'GET /v1/admin/users'],
    ['/v1/users', 'GET /v1/admin/users'],
    ['/v1/admin/organization/settings', 'GET /v1/admin/organisation/settings'],
    ['/v1/policy/rate_limits', 'GET /v1/policies/rate-limits'],
    ['/v1/chat/completion', 'POST /v1/chat/completions'],
    ['/v1/chat', 'POST /v1/chat/completions'],
    ['/v2/workspace', 'GET /v2/workspaces'],
  ])('%s is 404 with any key and proposes %s', async (path, meant) => {
    for (const key of keys()) {
      const { status, text } = await ask(path, key);
      expect([status, text]).toEqual([404, expect.stringContaining(`Did you mean ${meant}?`)]);
      expect(JSON.parse(text).error.code).toBe('AB08');
    }
  });

  it.each(['assistants', 'threads', 'uploads', 'vector_stores', 'tokenize', 'score', 'evals', 'realtime', 'videos'])(
    '/v1/%s is like none, and asks for a provider',
    async (area) => {
      expect(await ask(`/v1/${area}`, apiKey)).toMatchObject({
        status: 400,
        text: expect.stringContaining('No provider is named'),
      });
    },
  );

  it('is passed on where the request names a provider', async () => {
    const headers = { 'x-gateway-api-key': apiKey, 'x-gateway-provider': '@sandbox' };
    const { status, text } = await ask('/v1/provider', apiKey, { headers });
    expect([status, text]).toEqual([501, expect.stringContaining('Provider sandbox has no operation at /v1/provider')]);
  });

  it('a key in a path is not repeated', async () => {
    for (const path of [`/v1/provider/${apiKey}`, `/providers/${apiKey}`, `/v1/v1/${apiKey}`])
      expect((await ask(path, apiKey)).text).not.toContain(apiKey);
  });

  it.each([
    ['OpenAI/Python 2.0.0', '/chat/completions', `has /v1 twice. Set it to ${PUBLIC}/v1.`],
    ['AsyncOpenAI/Python 2.0.0', '/messages', `has /v1 twice. Set it to ${PUBLIC}/v1.`],
    ['Anthropic/JS 0.60.0', '/models', `set its base URL to ${PUBLIC}.`],
    ['claude-cli/2.0', '/messages', `set its base URL to ${PUBLIC}.`],
    ['curl/8', '/messages', `set its base URL to ${PUBLIC}.`],
    ['curl/8', '/providers', `${PUBLIC}/v1, or to ${PUBLIC} if your client adds /v1 itself.`],
  ])('%s below /v1/v1%s reads what to set', async (agent, path, advice) => {
    const headers = { 'user-agent': agent, 'x-gateway-api-key': apiKey };
    const { status, text } = await ask(`/v1/v1${path}`, apiKey, { headers });
    expect([status, text]).toEqual([404, expect.stringContaining(advice)]);
  });

  it('a path without /v1 is proposed with it, the administration included', async () => {
    for (const path of ['/providers', '/chat/completions'])
      expect((await ask(path, apiKey)).text).toContain(`your base URL lacks /v1. Set it to ${PUBLIC}/v1.`);
  });
});

describe('the Portkey client without the alias shows what to set', () => {
  it.each(['chat', 'responses'] as const)('%s', async (what) => {
    const client = new Portkey({ apiKey, baseURL: `${server.url}/v1`, provider: '@sandbox' });
    const model = 'echo';
    const error = await failure(
      what === 'chat'
        ? client.chat.completions.create({ model, messages: HELLO })
        : client.responses.create({ model, input: 'Hello' }),
    );
    expect(error.message).toMatch(/x-portkey-(api-key|provider)/);
    expect(error.message).toContain('SLUICE_HEADER_ALIASES=x-portkey-');
    expect(error.message).not.toContain(apiKey);
  });
});

it.each([
  ['a wrong content type', 'text/plain', '{}'],
  ['a body that is no JSON', 'application/json', '{"model":'],
])('%s carries status, message and the error object', async (_title, type, body) => {
  const answer = await server.call('/chat/completions', body, { 'content-type': type });
  const told = (await answer.json()) as { status: string; message: string };
  expect(answer.status).toBe(400);
  expect(told).toEqual({
    status: 'failure',
    message: expect.stringMatching(/\w{3}/),
    error: { message: told.message, type: 'invalid_request_error', param: null, code: null },
  });
});
