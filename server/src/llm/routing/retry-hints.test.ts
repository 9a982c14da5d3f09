/** `use_retry_after_headers`: how long each provider asks to wait, in headers or in the body of its error, is how long is waited. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { streamed, whole } from '../../../test/support/faults.ts';
import { startServer, type TestServer } from '../../../test/support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../../../test/support/upstream.ts';
import { type Clock, systemClock } from '../../kernel/clock.ts';
import { retryHintMs } from '../../kernel/retry-hint.ts';

/** Waits that are over at once, and those that were. */
let passes: (ms: number) => boolean = () => false;
const waited: number[] = [];
const clock: Clock = {
  ...systemClock,
  after(ms, fn) {
    if (!passes(ms)) return systemClock.after(ms, fn);
    waited.push(ms);
    return systemClock.after(0, fn);
  },
};

const GEMINI = {
  candidates: [{ content: { role: 'model', parts: [{ text: 'ok' }] }, finishReason: 'STOP', index: 0 }],
  usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 },
};
const quota = (retryDelay: string) => ({
  error: {
    code: 429,
    message: 'Quota exceeded.',
    status: 'RESOURCE_EXHAUSTED',
    details: [
      { '@type': 'type.googleapis.com/google.rpc.QuotaFailure', violations: [] },
      { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay },
    ],
  },
});
const busy = { error: { message: 'busy', type: 'rate_limit_error', code: null } };

let server: TestServer;
let upstream: FakeUpstream;

beforeAll(async () => {
  upstream = await startUpstream(() => undefined);
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` }, { clock, random: () => 0 });
});
afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});
beforeEach(() => {
  waited.length = 0;
  upstream.received.length = 0;
});

/** The provider refuses the first calls so, and answers then. */
function refuses(times: number, headers: Record<string, string>, body: unknown = busy): void {
  upstream.answer = ({ path }, response) => {
    if (upstream.received.length <= times) {
      for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
      return sendJson(response, 429, body);
    }
    if (path.includes(':generateContent')) return sendJson(response, 200, GEMINI);
    sendJson(response, 200, whole(path.endsWith('/messages') ? 'messages' : 'chat', 'm', 'ok'));
  };
}

const ask = (
  target: Record<string, unknown>,
  retry: Record<string, unknown> = {},
  body: Record<string, unknown> = {},
) =>
  server.call(
    '/chat/completions',
    { model: 'gemini-2.5-flash', max_tokens: 9, messages: [{ role: 'user', content: 'hi' }], ...body },
    {
      'x-gateway-config': JSON.stringify({
        api_key: 'key-of-caller',
        custom_host: `${upstream.url}/v1`,
        retry: { attempts: 2, use_retry_after_headers: true, ...retry },
        ...target,
      }),
    },
  );

const VERTEX = { provider: 'vertex-ai', vertex_project_id: 'project', vertex_region: 'europe-west4' };

describe('the wait that a provider asks for', () => {
  it.each<[string, Record<string, unknown>, Record<string, string>, unknown, number]>([
    ['OpenAI, in milliseconds', { provider: 'openai' }, { 'retry-after-ms': '7321', 'retry-after': '8' }, busy, 7321],
    [
      'Azure, in milliseconds',
      { provider: 'azure-openai' },
      { 'x-ms-retry-after-ms': '4511', 'retry-after': '5' },
      busy,
      4511,
    ],
    ['Azure, in fractions', { provider: 'azure-openai' }, { 'retry-after-ms': '1234.5' }, busy, 1235],
    ['Anthropic, in seconds', { provider: 'anthropic' }, { 'retry-after': '19' }, busy, 19_000],
    ['Gemini, inside the error', { provider: 'google' }, {}, quota('12.5s'), 13_000],
    ['Gemini on Vertex AI, inside a list', VERTEX, {}, [quota('37s')], 37_000],
    [
      'nothing of a header that says nothing',
      { provider: 'openai' },
      { 'retry-after-ms': 'soon', 'retry-after': '6' },
      busy,
      6000,
    ],
  ])('is waited for: %s', async (_what, target, headers, body, ms) => {
    passes = (asked) => asked === ms;
    refuses(1, headers, body);
    const answer = await ask(target);
    expect(answer.status).toBe(200);
    expect(waited).toEqual([ms]);
    expect(upstream.received).toHaveLength(2);
  });

  it('may be a date', async () => {
    passes = (ms) => ms > 38_000 && ms <= 41_000;
    refuses(1, { 'retry-after': new Date(systemClock.now() + 41_000).toUTCString() });
    expect((await ask({ provider: 'openai' })).status).toBe(200);
    expect(waited).toHaveLength(1);
    expect(upstream.received).toHaveLength(2);
  });

  it('is no reason to wait where it is past', async () => {
    passes = (ms) => ms === 0;
    refuses(1, { 'retry-after': new Date(systemClock.now() - 60_000).toUTCString() });
    expect((await ask({ provider: 'openai' })).status).toBe(200);
    expect(upstream.received).toHaveLength(2);
  });

  it.each<[string, Record<string, unknown>, Record<string, string>, unknown]>([
    ['a header', { provider: 'openai' }, { 'retry-after': '61' }, busy],
    ['a date', { provider: 'openai' }, { 'retry-after': new Date(systemClock.now() + 3_600_000).toUTCString() }, busy],
    ['an error of Google', { provider: 'google' }, {}, quota('75s')],
  ])('ends the attempts at once when it is longer than a minute: %s', async (_what, target, headers, body) => {
    passes = () => false;
    refuses(9, headers, body);
    const answer = await ask(target);
    expect(answer.status).toBe(429);
    expect(answer.headers.get('retry-after')).not.toBeNull();
    expect(upstream.received).toHaveLength(1);
  });

  it('adds up to a minute for one request', async () => {
    passes = (ms) => ms === 31_017;
    refuses(9, { 'retry-after-ms': '31017' });
    expect((await ask({ provider: 'openai' }, { attempts: 5 })).status).toBe(429);
    expect(waited).toEqual([31_017]);
    expect(upstream.received).toHaveLength(2);
  });

  it('is left alone where the config does not say so, and for other statuses', async () => {
    passes = (ms) => ms === 31_017 || ms === 0;
    refuses(1, { 'retry-after-ms': '31017' });
    expect((await ask({ provider: 'openai' }, { use_retry_after_headers: false })).status).toBe(200);
    upstream.received.length = 0;
    upstream.answer = (_request, response) => {
      response.setHeader('retry-after-ms', '31017');
      if (upstream.received.length === 1) return sendJson(response, 503, busy);
      sendJson(response, 200, whole('chat', 'm', 'ok'));
    };
    expect((await ask({ provider: 'openai' })).status).toBe(200);
    expect(waited).not.toContain(31_017);
  });

  it('holds for streams', async () => {
    passes = (ms) => ms === 7321;
    upstream.answer = (_request, response) => {
      response.setHeader('retry-after-ms', '7321');
      if (upstream.received.length === 1) return sendJson(response, 429, busy);
      const { start, content, end } = streamed('chat', 'm', ['ok']);
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end([...start, ...content, ...end].join(''));
    };
    expect(await (await ask({ provider: 'openai' }, {}, { stream: true })).text()).toContain('[DONE]');
    expect(waited).toEqual([7321]);
  });
});

describe('retryHintMs', () => {
  const now = Date.UTC(2026, 0, 1);
  it.each<[Record<string, string>, number | null]>([
    [{}, null],
    [{ 'retry-after': '0' }, 0],
    [{ 'retry-after': ' 2 ' }, 2000],
    [{ 'retry-after': '0.25' }, 250],
    [{ 'retry-after': 'Thu, 01 Jan 2026 00:00:30 GMT' }, 30_000],
    [{ 'retry-after': 'Thursday, 01-Jan-26 00:00:30 GMT' }, 30_000],
    [{ 'retry-after': '-1' }, null],
    [{ 'retry-after': '1e3' }, null],
    [{ 'retry-after': '2026-01-01' }, null],
    [{ 'retry-after': 'Infinity' }, null],
    [{ 'retry-after-ms': '-5', 'x-ms-retry-after-ms': '40' }, 40],
    [{ 'retry-after-ms': '9'.repeat(400), 'retry-after': '3' }, 3000],
  ])('%o is %s', (headers, ms) => {
    expect(retryHintMs((name) => headers[name], now)).toBe(ms);
  });
});
