/** The sandbox through the whole server: what a new user's first calls meet. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../../test/support/server.ts';
import { countTokens } from '../../operations/tokens.ts';

let server: TestServer;

beforeAll(async () => {
  server = await startServer();
}, 60_000);

afterAll(() => server.stop());

const messages = [{ role: 'user', content: 'Hello, Sluice' }];
const chat = (model: string, more: object = {}) => server.call('/chat/completions', { model, messages, ...more });

describe('the sandbox provider', () => {
  it('shows each model by the name that the list has, and 404 for one that is not there', async () => {
    const get = (path: string) =>
      fetch(`${server.url}/v1${path}`, { headers: { 'x-gateway-api-key': server.first.workspace_api_key } });
    const list = (await (await get('/models')).json()) as { data: { id: string }[] };
    const ids = list.data.map(({ id }) => id).filter((id) => id.startsWith('@sandbox/'));
    expect(ids).toContain('@sandbox/echo');
    for (const id of ids)
      for (const path of [id, encodeURIComponent(id)]) {
        const answer = await get(`/models/${path}`);
        expect([answer.status, await answer.json()], path).toMatchObject([200, { object: 'model' }]);
      }
    const missing = await get('/models/@sandbox/nope');
    expect([missing.status, await missing.json()]).toMatchObject([404, { error: { code: 'model_not_found' } }]);
  });

  it('refuses JSON that is larger than it reads', async () => {
    const large = await chat('@sandbox/echo', { user: 'x'.repeat(1024 * 1024) });
    expect(large.status).toBe(413);
  });

  it('answers a first call with true tokens and a real cost in the record', async () => {
    const answer = await chat('@sandbox/echo');
    const body = (await answer.json()) as {
      choices: { message: { content: string } }[];
      usage: Record<string, number>;
      system_fingerprint: string;
    };
    expect(answer.status).toBe(200);
    expect(body.choices[0]?.message.content).toBe('Hello, Sluice');
    expect(body.system_fingerprint).toBe('sandbox');
    const [record] = await server.records();
    expect(record).toMatchObject({ provider: 'sandbox', status: 200, usage_estimated: false });
    const { prompt_tokens: input = 0, completion_tokens: output = 0 } = body.usage;
    expect(record?.cost_micros).toBe(Math.round(input * 0.15 + output * 0.6));
    expect(record?.price).toMatchObject({ source: 'sandbox', rates: { input: 0.15, output: 0.6 } });
  });

  it('streams without usage unless asked, and is priced all the same', async () => {
    const text = await (await chat('@sandbox/echo', { stream: true })).text();
    expect(text).toContain('data: [DONE]');
    expect(text).not.toContain('"prompt_tokens"');
    const [record] = await server.records();
    expect(record).toMatchObject({
      stream: true,
      status: 200,
      usage_estimated: false,
      usage: { output: await countTokens('Hello, Sluice') },
    });
    expect(Number(record?.cost_micros)).toBeGreaterThan(0);
  });

  it.each([
    ['/messages', { max_tokens: 50, messages }],
    ['/responses', { input: 'Hello, Sluice' }],
    ['/completions', { prompt: 'Hello, Sluice' }],
    ['/embeddings', { input: 'Hello, Sluice' }],
    ['/moderations', { input: 'Hello, Sluice' }],
    ['/rerank', { query: 'Hello', documents: ['Hello', 'Bye'] }],
    ['/images/generations', { prompt: 'Hello' }],
    ['/messages/count_tokens', { messages }],
  ])('%s is answered in its own shape', async (path, body) => {
    const answer = await server.call(path, { model: '@sandbox/echo', ...body });
    expect(answer.status).toBe(200);
    expect(await answer.json()).toMatchObject({ system_fingerprint: 'sandbox' });
  });

  it('a cut stream ends with an error event and no end marker', async () => {
    const text = await (await chat('@sandbox/cut?after_tokens=5', { stream: true })).text();
    expect(text).toContain('upstream_stream_cut');
    expect(text).not.toContain('[DONE]');
  });

  it('a head that is late meets the limit on the first token, as at other providers', async () => {
    const config = JSON.stringify({ provider: '@sandbox', timeouts: { first_token: 100 } });
    const late = await server.call(
      '/chat/completions',
      { model: 'slow?ttft_ms=20000', stream: true, messages },
      { 'x-gateway-config': config },
    );
    expect(late.status).toBe(408);
    expect(await late.json()).toMatchObject({ error: { code: 'first_token_timeout' } });
  });

  it('an answer names its record also where the trace is the caller’s own', async () => {
    const headers = { 'x-gateway-trace-id': 'checkout-7' };
    const answer = await server.call('/chat/completions', { model: '@sandbox/echo', messages }, headers);
    await answer.text();
    expect(answer.headers.get('x-gateway-trace-id')).toBe('checkout-7');
    const id = answer.headers.get('x-gateway-request-id');
    await server.records();
    const told = await server.admin('GET', `/logs/${id}/decision`);
    expect(told).toMatchObject({ status: 200, body: { request_id: id, outcome: { status: 200 } } });
    const failed = await server.call('/chat/completions', { model: '@nobody/echo', messages }, headers);
    expect(failed.headers.get('x-gateway-request-id')).toMatch(/^[0-9a-f-]{36}$/);
  });

  it('a path without /v1, as from a base URL that lacks it, names the base URL to set', async () => {
    const answer = await fetch(`${server.url}/chat/completions`, { method: 'POST', body: '{}' });
    expect(answer.status).toBe(404);
    expect(await answer.text()).toContain('your base URL lacks /v1');
  });

  it('an error is passed on with its status and Retry-After', async () => {
    const answer = await chat('@sandbox/error?status=429&retry_after=7');
    expect(answer.status).toBe(429);
    expect(answer.headers.get('retry-after')).toBe('7');
    expect(await answer.json()).toMatchObject({ error: { code: 'rate_limit_exceeded' } });
  });

  it('retries overcome a failure that passes', async () => {
    const config = JSON.stringify({ provider: '@sandbox', retry: { attempts: 1, on_status_codes: [503] } });
    const answer = await server.call(
      '/chat/completions',
      { model: 'error?status=503&times=1', messages },
      { 'x-gateway-config': config },
    );
    expect(answer.status).toBe(200);
  });

  it('models are listed', async () => {
    const answer = await fetch(`${server.url}/v1/models`, {
      headers: { 'x-gateway-api-key': server.first.workspace_api_key },
    });
    const { data } = (await answer.json()) as { data: { id: string }[] };
    expect(data.map((model) => model.id)).toContain('@sandbox/echo');
  });
});
