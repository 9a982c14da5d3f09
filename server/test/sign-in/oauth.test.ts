import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from '../support/upstream.ts';
import { CLIENT, startTokenEndpoint, type TokenEndpoint } from '../support/upstreams/oauth.ts';

const ANSWER = {
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'm',
  choices: [{ index: 0, message: { role: 'assistant', content: 'hello' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
};
const MESSAGE = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'claude-x',
  content: [{ type: 'text', text: 'hello' }],
  stop_reason: 'end_turn',
  stop_sequence: null,
  usage: { input_tokens: 1, output_tokens: 1 },
};
const CHAT = { model: 'm', messages: [{ role: 'user', content: 'hi' }] };

let upstream: FakeUpstream;
let endpoint: TokenEndpoint;
let server: TestServer;
let accounts = 0;

beforeAll(async () => {
  [upstream, endpoint] = await Promise.all([startUpstream(() => undefined), startTokenEndpoint()]);
  server = await startServer({ SLUICE_TRUSTED_HOSTS: '127.0.0.0/8' });
});
afterAll(async () => {
  await server?.stop();
  await Promise.all([upstream?.stop(), endpoint?.stop()]);
});
beforeEach(() => {
  upstream.received.length = 0;
  endpoint.received.length = 0;
  endpoint.tokens.length = 0;
  endpoint.refuse = null;
  endpoint.hold = false;
  upstream.answer = (_request, response) => sendJson(response, 200, ANSWER);
});
afterEach(() => expect(endpoint.faults).toEqual([]));

/** A stored account that signs in, with a token endpoint of its own and hence tokens of its own. */
async function account(id = 'openai', more: Record<string, unknown> = {}): Promise<string> {
  accounts += 1;
  return server.provider({
    id,
    host: `${upstream.url}/v1`,
    slug: `oauth-${accounts}`,
    key: null,
    configurations: {
      auth_type: 'oauthClientCredentials',
      oauth_token_endpoint: `${endpoint.url}/oauth/token/${accounts}`,
      oauth_client_id: CLIENT.id,
      oauth_client_secret: CLIENT.secret,
      oauth_scope: CLIENT.scope,
      ...more,
    },
  });
}

const via = (slug: string) => ({ 'x-gateway-provider': `@${slug}` });
const call = (slug: string, headers: Record<string, string> = {}) =>
  server.call('/chat/completions', CHAT, { ...via(slug), ...headers });
/** Authorization of every call the provider got. */
const sent = () => upstream.received.map(({ headers }) => headers.authorization);
const errorOf = async (answer: Response): Promise<Record<string, unknown>> =>
  ((await answer.json()) as { error: Record<string, unknown> }).error;

describe('oauthClientCredentials', () => {
  it('calls the provider with the granted token in place of a key, and keeps it for the next calls', async () => {
    const slug = await account();
    for (let i = 0; i < 3; i++) expect(await (await call(slug)).json()).toEqual(ANSWER);
    expect(sent()).toEqual(['Bearer granted-token-1', 'Bearer granted-token-1', 'Bearer granted-token-1']);
    expect(endpoint.last).toEqual({
      grant_type: 'client_credentials',
      client_id: CLIENT.id,
      client_secret: CLIENT.secret,
      scope: CLIENT.scope,
    });
  });

  it('leaves the scope out where the account names none', async () => {
    const slug = await account('openai', { oauth_scope: undefined });
    expect((await call(slug)).status).toBe(200);
    expect(endpoint.last).not.toHaveProperty('scope');
  });

  it('asks once for fifty concurrent callers', async () => {
    const slug = await account();
    endpoint.hold = true;
    const calls = Array.from({ length: 50 }, () => call(slug));
    await until(() => endpoint.received.length > 0);
    endpoint.release();
    const answers = await Promise.all(calls);
    expect(answers.map(({ status }) => status)).toEqual(Array(50).fill(200));
    expect(new Set(sent())).toEqual(new Set(['Bearer granted-token-1']));
    expect(endpoint.received).toHaveLength(1);
  });

  it('one caller that leaves while the token is fetched does not spoil it for the others', async () => {
    const slug = await account();
    endpoint.hold = true;
    const leaving = new AbortController();
    const gone = fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        'x-gateway-api-key': server.first.workspace_api_key,
        'content-type': 'application/json',
        ...via(slug),
      },
      body: JSON.stringify(CHAT),
      signal: leaving.signal,
    }).catch((error: unknown) => error);
    await until(() => endpoint.received.length > 0);
    const staying = call(slug);
    leaving.abort();
    await gone;
    await until(async () => (await server.records()).some(({ outcome }) => outcome === 'aborted'));
    endpoint.release();
    expect((await staying).status).toBe(200);
    expect(endpoint.received).toHaveLength(1);
    expect(upstream.received).toHaveLength(1);
  });

  it('replaces a token that the provider refuses, once, and tells both calls in the record', async () => {
    const slug = await account();
    upstream.answer = (request, response) =>
      request.headers.authorization === 'Bearer granted-token-1'
        ? sendJson(response, 401, { error: { message: 'expired', type: 'authentication_error' } })
        : sendJson(response, 200, ANSWER);
    const answer = await call(slug);
    expect(answer.status).toBe(200);
    expect(answer.headers.get('x-gateway-retry-attempt-count')).toBe('0');
    expect(sent()).toEqual(['Bearer granted-token-1', 'Bearer granted-token-2']);
    const [record] = await server.records();
    expect(record?.attempts).toMatchObject([{ status: 401 }, { status: 200 }]);
    expect((await call(slug)).status).toBe(200);
    expect(endpoint.received).toHaveLength(2);
  });

  it('gives the refusal of the provider when a new token is refused too', async () => {
    const slug = await account();
    upstream.answer = (_request, response) =>
      sendJson(response, 401, { error: { message: 'no access', type: 'authentication_error', code: 'denied' } });
    const answer = await call(slug);
    expect(answer.status).toBe(401);
    expect(await errorOf(answer)).toMatchObject({ message: 'no access', code: 'denied' });
    expect(sent()).toEqual(['Bearer granted-token-1', 'Bearer granted-token-2']);
  });

  it.each([
    ['invalid_client', 401, { error: 'invalid_client', error_description: `bad ${CLIENT.secret}` }],
    ['500', 500, 'down'],
    ['without a token', 200, { token_type: 'Bearer' }],
    ['no bearer', 200, { access_token: 'x', token_type: 'mac' }],
  ])('answers 401 AB05 when the token endpoint fails, and never shows the secret: %s', async (said, status, body) => {
    const slug = await account();
    endpoint.refuse = { status, body };
    const answer = await call(slug);
    expect(answer.status).toBe(401);
    const error = await errorOf(answer);
    expect(error.code).toBe('AB05');
    expect(error.message).toContain(said);
    expect(JSON.stringify(error)).not.toContain(CLIENT.secret);
    expect(upstream.received).toEqual([]);
    endpoint.refuse = null;
    expect((await call(slug)).status).toBe(200);
  });

  it('never shows the token, whatever the provider says', async () => {
    const slug = await account();
    upstream.answer = (request, response) => {
      response.setHeader('x-echo', String(request.headers.authorization));
      sendJson(response, 400, { error: { message: `you sent ${request.headers.authorization}` } });
    };
    const answer = await call(slug);
    const text = (await answer.text()) + JSON.stringify([...answer.headers]);
    expect(text).toContain('you sent Bearer ***');
    expect(text).not.toContain('granted-token');
  });

  it('counts signing in as part of the request timeout', async () => {
    const slug = await account();
    endpoint.hold = true;
    const answer = await call(slug, { 'x-gateway-request-timeout': '200' });
    expect(answer.status).toBe(408);
    expect(upstream.received).toEqual([]);
  });

  it('is shown masked by a dry run, which calls nothing', async () => {
    const slug = await account();
    const answer = await call(slug, { 'x-gateway-dry-run': 'true' });
    expect(await answer.json()).toMatchObject({ request: { headers: { authorization: '***' } } });
    expect(endpoint.received).toEqual([]);
    expect(upstream.received).toEqual([]);
  });

  it('refuses a token endpoint that must not be called', async () => {
    const answer = await server.admin('POST', '/integrations', {
      name: 'x',
      slug: 'oauth-metadata',
      ai_provider_id: 'openai',
      configurations: {
        auth_type: 'oauthClientCredentials',
        oauth_token_endpoint: 'http://169.254.169.254/token',
        oauth_client_id: CLIENT.id,
        oauth_client_secret: CLIENT.secret,
      },
    });
    expect(answer).toMatchObject({ status: 400, body: { error: { param: 'configurations.oauth_token_endpoint' } } });
  });

  it('works for a provider whose key has a header of its own, with its own client', async () => {
    const slug = await account('anthropic');
    upstream.answer = (_request, response) => sendJson(response, 200, MESSAGE);
    const client = new Anthropic({
      apiKey: server.first.workspace_api_key,
      baseURL: server.url,
      maxRetries: 0,
      defaultHeaders: via(slug),
    });
    const message = await client.messages.create({
      model: 'claude-x',
      max_tokens: 5,
      messages: [{ role: 'user', content: 'hi' }],
    });
    expect(message.content).toEqual(MESSAGE.content);
    expect(sent()).toEqual(['Bearer granted-token-1']);
    expect(upstream.received[0]?.headers).not.toHaveProperty('x-api-key');
  });

  it('signs streams, embeddings and files of the official client in with one token', async () => {
    const slug = await account();
    const client = new OpenAI({
      apiKey: server.first.workspace_api_key,
      baseURL: `${server.url}/v1`,
      maxRetries: 0,
      defaultHeaders: via(slug),
    });
    upstream.answer = (_request, response) =>
      sendEvents(response, [
        'data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":"stop"}]}\n\n',
        'data: [DONE]\n\n',
      ]);
    let text = '';
    for await (const chunk of (await client.chat.completions.create({
      ...CHAT,
      stream: true,
    } as never)) as never as AsyncIterable<OpenAI.ChatCompletionChunk>)
      text += chunk.choices[0]?.delta.content ?? '';
    expect(text).toBe('hello');
    upstream.answer = (_request, response) =>
      sendJson(response, 200, {
        object: 'list',
        data: [{ object: 'embedding', index: 0, embedding: [1] }],
        model: 'm',
        usage: { prompt_tokens: 1, total_tokens: 1 },
      });
    await client.embeddings.create({ model: 'm', input: 'x', encoding_format: 'float' });
    upstream.answer = (_request, response) =>
      sendJson(response, 200, {
        id: 'file-1',
        object: 'file',
        bytes: 2,
        created_at: 1,
        filename: 'a.jsonl',
        purpose: 'batch',
        status: 'processed',
      });
    await client.files.create({ file: new File(['{}'], 'a.jsonl'), purpose: 'batch' });
    upstream.answer = (request, response) =>
      request.headers.authorization === 'Bearer granted-token-1'
        ? sendJson(response, 401, { error: { message: 'expired' } })
        : sendJson(response, 200, {
            id: 'file-1',
            object: 'file',
            bytes: 2,
            created_at: 1,
            filename: 'a.jsonl',
            purpose: 'batch',
            status: 'processed',
          });
    await client.files.retrieve('file-1');
    expect(sent()).toEqual([1, 1, 1, 1, 2].map((at) => `Bearer granted-token-${at}`));
  });
});

/** Resolves when `done` says so; looks again in every turn of the event loop. */
async function until(done: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await done())) await new Promise((resolve) => setImmediate(resolve));
}
