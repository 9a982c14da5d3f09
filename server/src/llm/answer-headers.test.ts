/** What every answer of the data plane says of itself: its ids, and what it has cost. */
import { request as httpRequest, type IncomingHttpHeaders } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from '../../test/support/upstream.ts';
import { OPERATIONS } from '../operations/operation.ts';

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly trailers: Record<string, string | undefined>;
  readonly body: string;
}

let server: TestServer;
let upstream: FakeUpstream;
let provider: string;

/** Node's own client, because `fetch` shows no trailers. */
function send(path: string, body: unknown, headers: Record<string, string> = {}, method = 'POST'): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const call = httpRequest(`${server.url}${path}`, {
      method,
      headers: {
        'x-gateway-api-key': server.first.workspace_api_key,
        ...(body === null ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
    });
    call.on('error', reject);
    call.on('response', (response) => {
      const parts: Buffer[] = [];
      response.on('data', (part: Buffer) => parts.push(part));
      response.on('error', reject);
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          trailers: response.trailers,
          body: Buffer.concat(parts).toString('utf8'),
        }),
      );
    });
    call.end(body === null ? undefined : JSON.stringify(body));
  });
}

const USAGE = { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 };
/** gpt-4o-mini: 0.15 and 0.60 dollars a million. */
const COST = '0.00000285';
const answerOf = (content: string, extra: object = {}) => ({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'gpt-4o-mini',
  choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
  usage: USAGE,
  ...extra,
});
const chunk = (delta: object, end: string | null, extra: object = {}) =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'gpt-4o-mini', choices: [{ index: 0, delta, finish_reason: end }], ...extra })}\n\n`;
const ask = (extra: object = {}, headers: Record<string, string> = {}) =>
  send(
    '/v1/chat/completions',
    { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'Hello' }], ...extra },
    { 'x-gateway-provider': `@${provider}`, ...headers },
  );

beforeAll(async () => {
  upstream = await startUpstream((_request, response) => sendJson(response, 200, answerOf('Hello.')));
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  provider = await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
});

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

/** Header, or the trailer that the head has declared. */
const costOf = ({ headers, trailers }: Answer) => {
  const trailer = trailers['x-gateway-cost'];
  if (trailer !== undefined) expect(headers.trailer).toBe('x-gateway-cost');
  return headers['x-gateway-cost'] ?? trailer;
};

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-7/;

describe('every answer of the data plane carries its request id, its trace id and what it cost', () => {
  const fill = (path: string) => path.replace(/:\w+/g, 'unknown-id').replace('/*', '/unknown');
  const operations = Object.values(OPERATIONS).map(
    (operation) =>
      [operation.id, operation.method === 'ANY' ? 'POST' : operation.method, fill(operation.path)] as const,
  );
  const ids = ({ headers }: Answer, trace?: string) => {
    expect(headers['x-gateway-request-id']).toMatch(UUID);
    expect(headers['x-gateway-trace-id']).toBe(trace ?? headers['x-gateway-request-id']);
  };

  it.each(operations)('%s', async (_id, method, path) => {
    const body =
      method === 'POST' ? { model: 'echo', input: 'Hello', messages: [{ role: 'user', content: 'Hi' }] } : null;
    for (const headers of [{ 'x-gateway-provider': '@sandbox' }, {}] as Record<string, string>[]) {
      const answer = await send(`/v1${path}`, body, headers, method);
      ids(answer);
      expect(costOf(answer), `${answer.status} ${answer.body.slice(0, 200)}`).toMatch(/^\d+(\.\d+)?$/);
    }
  });

  it.each([
    ['without a credential', { 'x-gateway-api-key': '' }, 401],
    ['with a wrong credential', { 'x-gateway-api-key': 'slc_wks_nonsense' }, 401],
    ['for an unknown provider', { 'x-gateway-provider': '@nothing' }, 400],
    ['tried dry', { 'x-gateway-dry-run': 'true' }, 200],
  ] as const)('a request %s', async (_title, headers, status) => {
    const answer = await ask({}, { ...headers, 'x-gateway-trace-id': 'mine-1' });
    expect(answer.status).toBe(status);
    ids(answer, 'mine-1');
    expect(costOf(answer)).toBe('0');
  });

  it('a request with several targets', async () => {
    const target = { provider: `@${provider}` };
    const config = JSON.stringify({
      strategy: { mode: 'fallback' },
      targets: [{ provider: '@sandbox', override_params: { model: 'error?status=500' } }, target],
    });
    const answer = await ask({}, { 'x-gateway-config': config, 'x-gateway-provider': '' });
    expect(answer.status).toBe(200);
    ids(answer);
    expect(costOf(answer)).toBe(COST);
  });
});

describe('x-gateway-cost', () => {
  it('is a header of an answer in one piece, exact below a micro-dollar, and agrees with the record', async () => {
    const answer = await ask();
    expect(answer.headers['x-gateway-cost']).toBe(COST);
    const [record] = await server.records();
    expect(record).toMatchObject({ id: answer.headers['x-gateway-request-id'], cost_micros: 3 });
  });

  it('is a trailer of a stream', async () => {
    const { answer } = upstream;
    upstream.answer = (_request, response) =>
      sendEvents(response, [
        chunk({ role: 'assistant', content: 'Hel' }, null),
        chunk({ content: 'lo.' }, null),
        chunk({}, 'stop', { usage: USAGE }),
        'data: [DONE]\n\n',
      ]);
    const streamed = await ask({ stream: true });
    upstream.answer = answer;
    expect(streamed.headers['x-gateway-cost']).toBeUndefined();
    expect(streamed.headers.trailer).toBe('x-gateway-cost');
    expect(streamed.trailers).toEqual({ 'x-gateway-cost': COST });
    expect(streamed.body).toContain('[DONE]');
  });

  it('is a trailer of an answer too large to be held, which comes whole', async () => {
    const { answer } = upstream;
    const large = 'x'.repeat(300_000);
    upstream.answer = (_request, response) => sendJson(response, 200, answerOf(large));
    const given = await ask();
    upstream.answer = answer;
    expect(given.headers['content-length']).toBeUndefined();
    expect(given.trailers).toEqual({ 'x-gateway-cost': COST });
    expect(JSON.parse(given.body)).toEqual(answerOf(large));
  });

  it('is left out where the price is not known', async () => {
    const { answer } = upstream;
    upstream.answer = (_request, response) => sendJson(response, 200, answerOf('Hi.', { model: 'no-such-model' }));
    const given = await ask({ model: 'no-such-model' });
    upstream.answer = answer;
    expect(given.status).toBe(200);
    expect(costOf(given)).toBeUndefined();
  });

  it('is 0 for an answer from the cache, beside what that saved', async () => {
    const headers = { 'x-gateway-config': JSON.stringify({ provider: `@${provider}`, cache: { mode: 'simple' } }) };
    const question = { messages: [{ role: 'user', content: 'Once more' }] };
    expect(costOf(await ask(question, { ...headers, 'x-gateway-provider': '' }))).toBe(COST);
    await expect
      .poll(async () => {
        const again = await ask(question, { ...headers, 'x-gateway-provider': '' });
        return [again.headers['x-gateway-cache-status'], costOf(again)];
      })
      .toEqual(['HIT', '0']);
  });
});
