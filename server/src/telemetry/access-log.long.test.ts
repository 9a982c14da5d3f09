/** What a server writes down of each request for the people who run it, and what it never writes. */
import { afterEach, describe, expect, it } from 'vitest';
import { budgetKey } from '../../test/support/budgets.ts';
import { startServer, type TestServer } from '../../test/support/server.ts';
import type { Log } from '../kernel/log.ts';

const CANARY = 'canary-4111-1111-1111-1111';
const CARD = {
  model: '@sandbox/echo',
  messages: [{ role: 'user', content: `My card is 4111 1111 1111 1111, ${CANARY}.` }],
};
const DENY = JSON.stringify({
  provider: '@sandbox',
  input_guardrails: [{ 'gateway.pii': { categories: ['CREDIT_CARD'] }, deny: true }],
});

let server: TestServer | null = null;
let lines: string[] = [];
let logged: [string, Record<string, unknown> | undefined][] = [];

async function start(mode: string | null): Promise<TestServer> {
  lines = [];
  logged = [];
  const keep = (message: string, fields?: Record<string, unknown>) => void logged.push([message, fields]);
  const log: Log = { debug() {}, info() {}, warn: keep, error: keep };
  const env = { SLUICE_LOG_FORMAT: 'json', ...(mode === null ? {} : { SLUICE_ACCESS_LOG: mode }) };
  const writeAccess = (text: string) => lines.push(...text.split('\n').filter((line) => line !== ''));
  server = await startServer(env, { writeAccess }, log);
  lines = [];
  return server;
}

afterEach(async () => {
  await server?.stop();
  server = null;
});

/** Lines of requests that were answered are written by the next turn of the event loop. */
async function linesOf(request: Promise<Response>): Promise<[Response, Record<string, unknown>[]]> {
  const answer = await request;
  await answer.text();
  await new Promise((resolve) => setImmediate(resolve));
  return [answer, lines.splice(0).map((line) => JSON.parse(line) as Record<string, unknown>)];
}

describe('the access log', () => {
  it('of all requests has one line each, with ids and numbers and nothing of the contents', async () => {
    const { first, call } = await start('all');
    const [answer, [line, ...more]] = await linesOf(
      call(`/chat/completions?secret=${CANARY}`, CARD, { 'x-gateway-trace-id': 'trace-1' }),
    );
    expect(more).toEqual([]);
    expect(line).toEqual({
      level: 30,
      time: expect.any(Number),
      msg: 'request',
      request_id: answer.headers.get('x-gateway-request-id'),
      trace_id: 'trace-1',
      method: 'POST',
      path: '/v1/chat/completions',
      status: 200,
      duration_ms: expect.any(Number),
      error: null,
      organisation_id: first.organisation_id,
      workspace_id: first.workspace_id,
      api_key_id: expect.any(String),
      provider: 'sandbox',
      model: 'echo',
      input_tokens: expect.any(Number),
      output_tokens: expect.any(Number),
      cost_micros: expect.any(Number),
    });
    const text = JSON.stringify(line);
    for (const secret of [CANARY, '4111', first.workspace_api_key]) expect(text).not.toContain(secret);
  });

  it('has a line of calls of the administration API, and of paths that do not exist', async () => {
    const { url, first } = await start('all');
    const get = (path: string) => fetch(`${url}${path}`, { headers: { 'x-gateway-api-key': first.admin_api_key } });
    const [configs, [known]] = await linesOf(get(`/v1/configs?workspace_id=${first.workspace_id}`));
    expect(known).toMatchObject({
      request_id: configs.headers.get('x-gateway-request-id'),
      path: '/v1/configs',
      status: 200,
      error: null,
      organisation_id: first.organisation_id,
    });
    const [, [unknown]] = await linesOf(get('/nothing?a=b'));
    expect(unknown).toMatchObject({ path: '/nothing', status: 404, error: 'not_found', organisation_id: null });
  });

  it('has only what was refused or failed where nothing is set', async () => {
    const { call } = await start(null);
    expect((await linesOf(call('/chat/completions', CARD)))[1]).toEqual([]);
    const [, refused] = await linesOf(call('/chat/completions', { ...CARD, model: '@nothing/echo' }));
    expect(refused).toEqual([expect.objectContaining({ status: 400, error: 'bad_call' })]);
    const [, failed] = await linesOf(call('/chat/completions', { ...CARD, model: '@sandbox/error?status=503' }));
    expect(failed).toEqual([expect.objectContaining({ status: 503, provider: 'sandbox' })]);
  });

  it('has nothing with none', async () => {
    const { call } = await start('none');
    expect((await linesOf(call('/chat/completions', { ...CARD, model: '@nothing/echo' })))[1]).toEqual([]);
  });

  it('breaks no line for a model that holds line ends', async () => {
    const { call } = await start('all');
    await linesOf(call('/chat/completions', { ...CARD, model: '@sandbox/echo\n{"level":50}\u2028' }));
    expect(lines).toEqual([]);
  });
});

describe('the operational log names', () => {
  const fieldsOf = (message: string) => logged.filter(([text]) => text === message).map(([, fields]) => fields);

  it('the limit that refused a request', async () => {
    const started = await start(null);
    const { id, key } = await budgetKey(started, { rate_limits: [{ type: 'requests', unit: 'rpd', value: 1 }] });
    const headers = { 'x-gateway-api-key': key };
    await linesOf(started.call('/chat/completions', CARD, headers));
    const [answer] = await linesOf(started.call('/chat/completions', CARD, headers));
    expect(answer.status).toBe(429);
    expect(fieldsOf('a limit refused a request')).toEqual([
      expect.objectContaining({
        request_id: answer.headers.get('x-gateway-request-id'),
        api_key_id: id,
        type: 'rate',
        owner: 'key',
      }),
    ]);
  });

  it('the guardrail that refused a request, and what it found but never the text', async () => {
    const { call, first } = await start(null);
    const [answer] = await linesOf(call('/chat/completions', CARD, { 'x-gateway-config': DENY }));
    expect(answer.status).toBe(446);
    const [fields] = fieldsOf('a guardrail refused a request');
    expect(fields).toMatchObject({
      workspace_id: first.workspace_id,
      guardrails: [expect.stringContaining('CREDIT_CARD')],
    });
    expect(JSON.stringify(logged)).not.toMatch(/4111|canary/);
  });

  it('the target that a circuit breaker leaves out', async () => {
    const { call } = await start(null);
    const config = JSON.stringify({
      strategy: { mode: 'fallback' },
      targets: [
        {
          provider: '@sandbox',
          override_params: { model: 'error?status=500' },
          cb_config: { failure_threshold: 1, cooldown_interval: 60_000, failure_status_codes: [500] },
        },
        { provider: '@sandbox' },
      ],
    });
    const headers = { 'x-gateway-config': config };
    const body = { ...CARD, model: 'echo' };
    for (let i = 0; i < 2; i++) expect((await linesOf(call('/chat/completions', body, headers)))[0].status).toBe(200);
    expect(fieldsOf('a target was left out by its circuit breaker')).toEqual([
      expect.objectContaining({ targets: ['config.targets[0]'] }),
    ]);
  });
});
