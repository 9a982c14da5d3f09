/**
 * Every provider of the catalog × every operation, through a whole server: what its fixtures hold is sent and
 * answered, what it does not serve is refused and sent nowhere, its usage is read, its errors are told, and its streams end
 * as they should. Generated from the catalog and the fixtures: a provider that is added is here by itself.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { OPERATIONS, type OperationId } from '../../src/operations/operation.ts';
import { bindingFor } from '../../src/providers/binding.ts';
import { PROVIDERS } from '../../src/providers/catalog.ts';
import type { CallContext, Provider } from '../../src/providers/provider.ts';
import { fixturesOf } from '../support/provider-fixtures.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { sendStream } from '../support/strict-upstream.ts';
import { type FakeUpstream, type Received, sendJson, startUpstream } from '../support/upstream.ts';
import { ANSWERS, errorBody, OWN_SUITE, SAID, STATUSES, usageRow } from './catalog-rows.ts';

type Fields = Record<string, unknown>;

const KEY = 'test-key';
const OPERATION_IDS = Object.values(OPERATIONS)
  .filter(({ family }) => family === 'chat' || family === 'text' || family === 'binary')
  .map(({ id }) => id);
const ALL = [...PROVIDERS.values()].filter(({ id, local }) => local === undefined && !OWN_SUITE.has(id));

let upstream: FakeUpstream;
let server: TestServer;
/** Where each provider is told to be: the path of its own address on the host of the test. */
const bases = new Map<string, string>();

beforeAll(async () => {
  upstream = await startUpstream((_request, response) => sendJson(response, 500, {}));
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  for (const { id, baseUrl } of ALL) {
    const own = baseUrl({ key: null, settings: {} });
    const base = own === null ? '/v1' : new URL(own).pathname.replace(/\/$/, '');
    bases.set(id, base);
    await server.provider({ id, host: upstream.url + base, key: KEY, slug: id });
  }
}, 120_000);
beforeEach(() => {
  upstream.received.length = 0;
});
afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

interface Case {
  readonly operation: OperationId;
  readonly name: string;
  readonly given: Fields;
  readonly expected: Fields;
}

/** Fixtures of one kind; those of accounts with settings are proved by the conformance test. */
function casesOf(provider: Provider, kind: 'request' | 'answer'): Case[] {
  return fixturesOf(provider.id)
    .filter(({ name }) => name.startsWith(kind))
    .map(({ operation, name, in: given, out }) => ({
      operation,
      name: `${operation}.${name}`,
      given: JSON.parse(given) as Fields,
      expected: JSON.parse(out) as Fields,
    }))
    .filter(({ given }) => given.settings === undefined);
}

const DEFAULTS: Readonly<Record<string, Fields>> = {
  chat: { messages: [{ role: 'user', content: 'Hi' }] },
  messages: { max_tokens: 50, messages: [{ role: 'user', content: 'Hi' }] },
  count_tokens: { messages: [{ role: 'user', content: 'Hi' }] },
  responses: { input: 'Hi' },
  embeddings: { input: 'Hi' },
  rerank: { query: 'q', documents: ['a'] },
  speech: { input: 'Hi', voice: 'v' },
};
const bodyFor = (operation: OperationId): Fields => ({
  model: 'model-1',
  ...(DEFAULTS[operation] ?? { prompt: 'Hi', input: 'Hi' }),
});

function form(): FormData {
  const out = new FormData();
  out.set('model', 'model-1');
  out.set('file', new Blob([new Uint8Array([1, 2, 3])], { type: 'audio/wav' }), 'a.wav');
  return out;
}

async function send(id: string, operation: OperationId, given: Fields): Promise<Response> {
  const { method, path, body } = OPERATIONS[operation];
  const params = (given.pathParams ?? {}) as Record<string, string>;
  const filled = path
    .replace('*', params['*'] ?? 'some/other/path')
    .replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(params[name] ?? 'model-1'));
  const headers = { ...(given.headers as Record<string, string> | undefined) };
  const json = body === 'json' || (body === 'any' && given.body !== undefined);
  return fetch(`${server.url}/v1${filled}`, {
    method: method === 'ANY' ? 'POST' : method,
    headers: {
      ...headers,
      'x-gateway-api-key': server.first.workspace_api_key,
      'x-gateway-provider': `@${id}`,
      ...(json ? { 'content-type': 'application/json' } : {}),
    },
    ...(json ? { body: JSON.stringify(given.body ?? bodyFor(operation)) } : {}),
    ...(body === 'multipart' ? { body: form() } : {}),
  });
}

function contextOf(operation: OperationId, given: Fields): CallContext {
  const body = (given.body ?? bodyFor(operation)) as Fields;
  return {
    operation,
    model: typeof body.model === 'string' ? body.model : '',
    stream: body.stream === true,
    credentials: { key: null, settings: {} },
    elsewhere: true,
    pathParams: (given.pathParams ?? {}) as Record<string, string>,
    header: () => undefined,
    strict: true,
    now: () => 0,
  };
}

/** Values that are made when the answer is: times and ids of them, and models that a case does not name. */
const settled = (text: string): string =>
  text
    .replace(/"(created|created_at)":\d+/g, '"$1":0')
    .replace(/"id":"[a-z]*_?\d{10,}"/g, '"id":"0"')
    .replace(/"model":"(model-1|)"/g, '"model":""');
const settledJson = (value: unknown): unknown => JSON.parse(settled(JSON.stringify(value)));

const parsed = (request: Received | undefined): unknown => JSON.parse(request?.body.toString('utf8') ?? 'null');

/** Usage is asked for where it must be; the caller of the case did not. */
function asSent(body: unknown, expected: Fields): unknown {
  if (typeof body !== 'object' || body === null || expected.stream !== true) return body;
  const { stream_options: _options, ...rest } = body as Fields;
  return expected.stream_options === undefined ? rest : body;
}

const event = (data: unknown): string => `data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`;
const chunk = (delta: Fields, finish: string | null = null): Fields => ({
  id: 'c',
  object: 'chat.completion.chunk',
  created: 1,
  model: 'm',
  choices: [{ index: 0, delta, finish_reason: finish }],
});

describe.each(ALL.map((provider) => [provider.id, provider] as const))('%s', (id, provider) => {
  const boundTo = (operation: OperationId, model = 'model-1') => bindingFor(provider, operation, model);

  it.each(casesOf(provider, 'request').map((one) => [one.name, one] as const))(
    'is sent %s as its fixture says, or refuses it before anything is sent',
    async (_name, { operation, given, expected }) => {
      upstream.answer = (_request, response) => sendJson(response, 200, ANSWERS.raw);
      const answer = await send(id, operation, given);
      const text = await answer.text();
      const { refused } = expected as { refused?: Fields };
      if (refused !== undefined) {
        expect([answer.status, upstream.received]).toEqual([400, []]);
        expect(JSON.parse(text).error).toMatchObject(refused.param === null ? {} : { message: expect.any(String) });
        if (OPERATIONS[operation].dialect !== 'anthropic') expect(JSON.parse(text).error.param).toBe(refused.param);
        return;
      }
      const [request, ...more] = upstream.received;
      expect(more).toEqual([]);
      const context = contextOf(operation, given);
      const path = boundTo(operation, context.model)?.binding.path(context) ?? '';
      const [method] = String(expected.call).split(' ');
      expect([method === 'ANY' ? 'POST' : method, bases.get(id) + path]).toEqual([request?.method, request?.path]);
      expect(request?.headers).toMatchObject(expected.headers as Fields);
      // The caller's own key goes nowhere.
      expect(JSON.stringify(request?.headers)).not.toContain(server.first.workspace_api_key);
      if (expected.body !== undefined) expect(asSent(parsed(request), expected.body as Fields)).toEqual(expected.body);
      if (OPERATIONS[operation].body === 'multipart') {
        expect(request?.headers['content-type']).toMatch(/^multipart\/form-data; boundary=/);
        expect(request?.body.includes('name="file"; filename="a.wav"')).toBe(true);
      }
    },
  );

  it.each(casesOf(provider, 'answer').map((one) => [one.name, one] as const))(
    'answers %s as its fixture says',
    async (_name, { operation, given, expected }) => {
      upstream.answer = (_request, response) => sendJson(response, 200, given.answer);
      const answer = await send(id, operation, given.asked === undefined ? {} : { body: given.asked });
      const body = (await answer.json()) as Fields;
      if (expected.refused === undefined) {
        expect([answer.status, settledJson(body)]).toEqual([200, settledJson(expected)]);
      } else {
        expect(answer.status).toBeGreaterThanOrEqual(400);
        expect(body.error).toMatchObject({ message: expect.any(String) });
      }
    },
  );

  const passing = OPERATION_IDS.filter((operation) => {
    const bound = boundTo(operation);
    return bound !== null && bound.convert === null && bound.response === undefined;
  });
  it.each(passing.length === 0 ? [] : passing)('lets the answer of %s pass as it is', async (operation) => {
    const { shape } = OPERATIONS[operation];
    const bytes = Buffer.from(shape === 'speech' ? 'sound' : JSON.stringify(ANSWERS[shape], null, 3));
    const type = shape === 'speech' ? 'audio/mpeg' : 'application/json';
    upstream.answer = (_request, response) => {
      response.writeHead(200, { 'content-type': type, 'content-length': bytes.length });
      response.end(bytes);
    };
    const answer = await send(id, operation, {});
    expect([answer.status, Buffer.from(await answer.arrayBuffer()).toString()]).toEqual([200, bytes.toString()]);
  });

  const missing = OPERATION_IDS.filter((operation) => boundTo(operation) === null);
  it.each(missing)('refuses %s, and nothing is sent', async (operation) => {
    const answer = await send(id, operation, {});
    const { error } = (await answer.json()) as { error: Fields };
    expect([answer.status, upstream.received]).toEqual([501, []]);
    expect(String(error.message)).toMatch(/\w+/);
    if (OPERATIONS[operation].dialect !== 'anthropic') expect(error.code).toBe('unsupported_operation');
  });

  const some = OPERATION_IDS.find((operation) => boundTo(operation)?.convert === null) ?? 'chat';
  it.each(STATUSES)('tells an error with status %i as %i', async (status, becomes, type, code) => {
    upstream.answer = (_request, response) => sendJson(response, status, errorBody(id, status));
    const answer = await send(id, some, {});
    const { error } = (await answer.json()) as { error: Fields };
    const own = OPERATIONS[some].dialect === 'anthropic' && id === 'anthropic';
    expect([answer.status, error.message]).toEqual([own ? status : becomes, SAID]);
    if (OPERATIONS[some].dialect === 'anthropic') return;
    // A body that already is one of OpenAI's passes as it came.
    if (error.type !== null) expect(error).toMatchObject({ type, ...(code === null ? {} : { code }) });
  });

  it('tells an error that comes with status 200 as one', async () => {
    upstream.answer = (_request, response) => sendJson(response, 200, { error: { message: SAID } });
    const answer = await send(id, some, {});
    expect([answer.status, ((await answer.json()) as { error: Fields }).error.message]).toEqual([502, SAID]);
  });

  const embeds = boundTo('embeddings')?.binding;
  const long = Array.from({ length: 1500 }, (_, at) => `text ${at}`);
  const calls = embeds?.fanOut?.split?.({ input: long }, contextOf('embeddings', {}))?.length ?? 0;
  const several = calls > 1 && id !== 'cohere' ? it : null;
  several?.('embeds more texts than one call takes, in order', async () => {
    upstream.answer = (request, response) => {
      const { input } = parsed(request) as { input: string[] };
      const data = input.map((text, index) => ({ object: 'embedding', index, embedding: [Number(text.slice(5))] }));
      sendJson(response, 200, { ...ANSWERS.embeddings, data: data.reverse(), usage: { total_tokens: input.length } });
    };
    const answer = await send(id, 'embeddings', { body: { model: 'model-1', input: long } });
    const body = (await answer.json()) as { data: Fields[]; usage: Fields };
    expect(upstream.received).toHaveLength(calls);
    expect(body.data.map(({ index, embedding }) => [index, embedding])).toEqual(long.map((_, at) => [at, [at]]));
    expect(body.usage).toEqual({ prompt_tokens: 1500, total_tokens: 1500 });
    expect((await server.records())[0]?.usage).toMatchObject({ input: 1500 });
  });

  const chats = boundTo('chat');
  // Cohere's own chat is proved with a strict upstream.
  if (chats?.binding.shape !== 'chat' || id === 'cohere') return;
  describe('chat', () => {
    const { usage, recorded, placed } = usageRow(id);
    const streamed = { body: { ...bodyFor('chat'), stream: true } };
    // A record is written after the answer, on a busy machine a moment later.
    const newest = (fields: Fields) =>
      vi.waitFor(async () => expect((await server.records())[0]).toMatchObject(fields), { timeout: 10_000 });

    it('is recorded with what it used, whole and as a stream', async () => {
      upstream.answer = (_request, response) => sendJson(response, 200, { ...ANSWERS.chat, usage });
      expect((await send(id, 'chat', {})).status).toBe(200);
      await newest({ provider: id, usage: recorded });
      const last = { ...chunk({}, 'stop'), ...(placed?.(usage) ?? { usage }) };
      upstream.answer = (_request, response) =>
        sendStream(response, [event(chunk({ role: 'assistant', content: 'Hi' })), event(last), event('[DONE]')]);
      const text = await (await send(id, 'chat', streamed)).text();
      expect(text).toContain('"Hi"');
      expect(text).toContain('[DONE]');
      await newest({ provider: id, usage: recorded });
    });

    const BREAKS: readonly (readonly [string, readonly string[], boolean])[] = [
      ['is cut', [], true],
      ['ends without its end', [], false],
      ['brings an error', [event({ error: { message: SAID, code: 502 }, choices: [] })], false],
    ];
    it.each(BREAKS)('as a stream that %s fails clearly', async (_title, more, cut) => {
      upstream.answer = (_request, response) =>
        sendStream(response, [event(chunk({ role: 'assistant', content: 'Hi' })), ...more], cut);
      const text = await (await send(id, 'chat', streamed)).text();
      expect(text).toContain('"error"');
      expect(text).not.toContain('[DONE]');
      const [record] = await server.records();
      expect(record?.error_type ?? record?.stream_outcome ?? record).not.toBeNull();
    });

    it('asked for as a stream and answered with one error, is that error', async () => {
      upstream.answer = (_request, response) => sendJson(response, 200, { error: { message: SAID } });
      const answer = await send(id, 'chat', streamed);
      expect(await answer.text()).toContain(SAID);
    });

    it('that is accepted and not answered is no answer', async () => {
      upstream.answer = (_request, response) => {
        response.writeHead(202, { 'nvcf-reqid': 'r', 'content-length': 0 });
        response.end();
      };
      const answer = await send(id, 'chat', {});
      expect(answer.status).toBeGreaterThanOrEqual(500);
    });
  });
});

it("an endpoint of one's own at Hugging Face embeds", async () => {
  await server.provider({
    id: 'huggingface',
    host: `${upstream.url}/v1`,
    key: KEY,
    slug: 'hf-own',
    configurations: { huggingface_base_url: upstream.url },
  });
  upstream.answer = (_request, response) => sendJson(response, 200, ANSWERS.embeddings);
  const answer = await send('hf-own', 'embeddings', {});
  expect([answer.status, await answer.json()]).toEqual([200, ANSWERS.embeddings]);
  expect(upstream.received.map(({ path }) => path)).toEqual(['/v1/embeddings']);
});
