import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from '../../test/support/upstream.ts';
import { OPERATIONS, type Operation } from '../operations/operation.ts';

// fetch() keeps 407 for itself.
const STATUSES = Array.from({ length: 200 }, (_, at) => 400 + at).filter((status) => status !== 407);

const OWN = {
  openai: '{"error": {"message":"no \\u0021","type":"own_type","param":"messages","code":"own_code"},"more":1.50}',
  anthropic: '{"type":"error", "error":{"type":"own_error","message":"no \\u0021"},"request_id":"r"}',
};
type Family = keyof typeof OWN;

const TURNS = { messages: [{ role: 'user', content: 'Hi' }] };
const ROUTES: readonly (readonly [route: string, family: Family, body: object])[] = [
  ['/chat/completions', 'openai', { model: 'm', ...TURNS }],
  ['/responses', 'openai', { model: 'm', input: 'Hi', store: false }],
  ['/messages', 'anthropic', { model: 'm', ...TURNS, max_tokens: 9 }],
];

let upstream: FakeUpstream;
let server: TestServer;

beforeAll(async () => {
  upstream = await startUpstream(() => {});
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  await server.provider({ id: 'openai', host: `${upstream.url}/v1`, slug: 'openai' });
  await server.provider({ id: 'anthropic', host: `${upstream.url}/v1`, slug: 'anthropic' });
});

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const ask = (path: string, slug: string, method: string, body: object | null): Promise<Response> =>
  fetch(`${server.url}/v1${path}`, {
    method,
    headers: {
      'x-gateway-api-key': server.first.workspace_api_key,
      'x-gateway-provider': `@${slug}`,
      ...(body === null ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === null ? {} : { body: JSON.stringify(body) }),
  });

const SAID = { model: 'm', messages: [{ role: 'user', content: 'Hi' }], input: 'Hi', max_tokens: 9 };

describe("a provider's refusal", () => {
  it.each(ROUTES)('on %s keeps every status and its bytes in the shape of the caller', async (route, family, body) => {
    for (const status of STATUSES) {
      upstream.answer = (_request, response) => sendJson(response, status, OWN[family]);
      const answer = await ask(route, family, 'POST', body);
      expect([answer.status, await answer.text()]).toEqual([status, OWN[family]]);
    }
  });

  it.each(ROUTES)(
    'on %s comes in the shape of the caller from a provider of another shape',
    async (route, family, body) => {
      const other = family === 'openai' ? 'anthropic' : 'openai';
      for (const status of STATUSES) {
        upstream.answer = (_request, response) => sendJson(response, status, OWN[other]);
        const answer = await ask(route, other, 'POST', body);
        const becomes = status === 422 ? 400 : status === 424 ? 502 : status;
        const told = (await answer.json()) as { type?: string; error: Record<string, unknown> };
        expect([answer.status, told.error.message]).toEqual([becomes, 'no !']);
        expect(Object.keys(told.error).sort()).toEqual(
          family === 'openai' ? ['code', 'message', 'param', 'type'] : ['message', 'type'],
        );
        expect(told.type).toBe(family === 'openai' ? undefined : 'error');
      }
    },
  );
});

/** Operations whose providers say errors inside an answer with a status of success. */
const SAYS = new Set(['chat', 'completions', 'embeddings', 'messages', 'responses']);
const FAILED = '{"id":"o_1","object":"video", "status":"failed","error":{"code":"moderation_blocked","message":"No."}}';

/** One call of each operation that reaches the provider as it comes. */
const calls = (Object.values(OPERATIONS) as readonly Operation[])
  .filter(({ family, body, id }) => family !== 'job' && id !== 'proxy' && (body === 'json' || body === 'none'))
  .map(({ id, method, path, body }) => ({
    id,
    method: method as string,
    path: path.replace(/:\w+/, 'some-1'),
    body: body === 'json' ? { ...SAID, query: 'q', documents: ['d'], prompt: 'p', voice: 'v' } : null,
  }));

describe('an object with a member "error"', () => {
  it.each(calls)(
    'of $id is an error only where providers say errors inside an answer',
    async ({ id, method, path, body }) => {
      const slug = OPERATIONS[id].dialect === 'anthropic' ? 'anthropic' : 'openai';
      upstream.answer = (_request, response) => sendJson(response, 200, FAILED);
      const answer = await ask(path, slug, method, body);
      // The provider has no such operation.
      if (answer.status === 501) return;
      const text = await answer.text();
      if (SAYS.has(id)) expect([answer.status, text]).toEqual([502, expect.stringContaining('No.')]);
      else expect([answer.status, text]).toEqual([200, FAILED]);
    },
  );

  it.each([
    ['GET', '/videos/o_1', null],
    ['POST', '/videos', { prompt: 'p' }],
    ['POST', '/videos/o_1/remix', { prompt: 'p' }],
    ['GET', '/evals/e_1/runs/r_1', null],
    ['POST', '/evals/e_1/runs', { name: 'n' }],
    ['DELETE', '/videos/o_1', null],
    ['GET', '/proxy/videos/o_1', null],
    ['POST', '/proxy/chat/completions', SAID],
  ])('that is passed through reaches the caller as it is: %s %s', async (method, path, body) => {
    upstream.answer = (_request, response) => sendJson(response, 200, FAILED);
    const answer = await ask(path, 'openai', method, body);
    expect([answer.status, await answer.text()]).toEqual([200, FAILED]);
    expect((await server.records())[0]).toMatchObject({ status: 200, outcome: 'ok' });
  });

  it.each(['/videos/o_1/events', '/responses/resp_1'])('does not end a stream of %s', async (path) => {
    const events = [`data: ${FAILED}\n\n`, 'data: {"status":"retried"}\n\n'];
    upstream.answer = (_request, response) => sendEvents(response, events);
    const answer = await ask(`${path}?stream=true`, 'openai', 'GET', null);
    expect(await answer.text()).toBe(events.join(''));
  });
});
