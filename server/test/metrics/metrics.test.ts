/** `/metrics` of a whole server: its numbers are those of the stored records, and only the operator reads them. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LogRecord } from '../../src/telemetry/record.ts';
import { eventually } from '../support/budgets.ts';
import { readExposition, totalOf } from '../support/exposition.ts';
import { startServer, type TestServer } from '../support/server.ts';

let server: TestServer;

beforeAll(async () => {
  server = await startServer({ SLUICE_METRICS_PORT: '0', SLUICE_METRICS_LABELS: 'workspace' });
});

afterAll(() => server.stop());

const scrape = (headers: Record<string, string> = {}) => fetch(`${server.url}/metrics`, { headers });
const bearer = (key: string) => ({ authorization: `Bearer ${key}` });

async function read(format: 'text' | 'openmetrics' = 'text') {
  const accept = format === 'text' ? 'text/plain' : 'application/openmetrics-text; version=1.0.0';
  const answer = await scrape({ ...bearer(server.first.operator_api_key), accept });
  expect(answer.status).toBe(200);
  expect(answer.headers.get('content-type')).toContain(format === 'text' ? 'version=0.0.4' : 'openmetrics-text');
  return readExposition(await answer.text(), format);
}

const chat = (model: string, more: object = {}) => ({ model, messages: [{ role: 'user', content: 'Hello' }], ...more });

/** Requests of every outcome: answered, streamed, cached, refused, denied, failed, retried, aborted, tried out. */
async function mixedRun(): Promise<void> {
  const config = (value: unknown) => ({ 'x-gateway-config': JSON.stringify(value) });
  const denies = { input_guardrails: [{ 'default.contains': { words: ['Hello'], operator: 'none' }, deny: true }] };
  const calls: [string, unknown, Record<string, string>?][] = [
    ['/chat/completions', chat('@sandbox/echo')],
    ['/chat/completions', chat('@sandbox/lorem?tokens=5', { stream: true })],
    ['/chat/completions', chat('@sandbox/invented-name')],
    ['/chat/completions', chat('@sandbox/error?status=500')],
    ['/chat/completions', chat('@sandbox/error?status=429&times=1&id=m'), config({ retry: { attempts: 1 } })],
    ['/chat/completions', chat('@sandbox/echo'), config({ cache: { mode: 'simple' } })],
    ['/chat/completions', chat('@sandbox/echo'), config({ cache: { mode: 'simple' } })],
    ['/chat/completions', chat('@sandbox/echo'), config(denies)],
    ['/chat/completions', chat('@nobody/echo')],
    ['/chat/completions', '{"model": '],
    ['/chat/completions', chat('@sandbox/echo'), { 'x-gateway-dry-run': 'true' }],
    ['/chat/completions', chat('@sandbox/echo'), { 'x-gateway-api-key': 'slc_wks_wrong' }],
    ['/embeddings', { model: '@sandbox/echo', input: 'Hello' }],
    ['/messages', { ...chat('@sandbox/echo'), max_tokens: 20 }],
  ];
  for (const [path, body, headers] of calls) await (await server.call(path, body, headers)).text();
  const left = new AbortController();
  const slow = chat('@sandbox/slow?ttft_ms=1&tokens_per_s=1&tokens=50', { stream: true });
  const answer = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'x-gateway-api-key': server.first.workspace_api_key, 'content-type': 'application/json' },
    body: JSON.stringify(slow),
    signal: left.signal,
  });
  await answer.body?.getReader().read();
  left.abort();
  await eventually(server.records, (all) => all.some(({ outcome }) => outcome === 'aborted'));
}

describe('counters', () => {
  it('are those of the stored records, after requests of every outcome', async () => {
    await mixedRun();
    const families = await read();
    const stored = (await server.records()) as unknown as LogRecord[];
    const records = stored.filter(({ dry_run }) => !dry_run);
    expect(records.length).toBe(stored.length - 1);
    expect(new Set(records.map(({ outcome }) => outcome))).toEqual(new Set(['ok', 'refused', 'failed', 'aborted']));
    const workspace = server.first.workspace_id;
    for (const outcome of ['ok', 'refused', 'failed', 'aborted'] as const) {
      const expected = records.filter((record) => record.outcome === outcome).length;
      expect(totalOf(families, 'sluice_requests_total', { outcome, workspace }), outcome).toBe(expected);
    }
    for (const operation of ['chat', 'embeddings', 'messages']) {
      const expected = records.filter((record) => record.operation === operation).length;
      expect(totalOf(families, 'sluice_requests_total', { operation, workspace }), operation).toBe(expected);
    }
    const sum = (of: (record: LogRecord) => number | null | undefined) =>
      records.reduce((total, record) => total + (of(record) ?? 0), 0);
    expect(totalOf(families, 'sluice_cost_microdollars_total')).toBe(sum(({ cost_micros }) => cost_micros));
    expect(totalOf(families, 'sluice_refused_total', { workspace })).toBe(
      records.filter(({ outcome }) => outcome === 'refused').length,
    );
    expect(totalOf(families, 'sluice_refused_total', { kind: 'guardrail_denied' })).toBe(1);
    expect(totalOf(families, 'sluice_attempts_total')).toBe(sum(({ attempts }) => attempts.length));
    expect(totalOf(families, 'sluice_attempts_total', { result: 'status_429' })).toBe(1);
    expect(totalOf(families, 'sluice_guardrail_verdicts_total', { phase: 'input', verdict: 'deny' })).toBe(1);
    expect(totalOf(families, 'sluice_cache_total', { status: 'hit' })).toBe(1);
    const cached = records.filter(({ cache_status }) => cache_status === 'MISS').length;
    expect(totalOf(families, 'sluice_cache_total', { status: 'miss' })).toBe(cached);
    for (const [type, of] of [
      ['input', ({ usage }: LogRecord) => usage?.input],
      ['output', ({ usage }: LogRecord) => usage?.output],
    ] as const) {
      const labels = { gen_ai_token_type: type };
      expect(totalOf(families, 'gen_ai_client_token_usage', labels, '_sum'), type).toBe(sum(of));
    }
    const streamed = records.filter(({ outcome, stream, ttft_ms }) => outcome === 'ok' && stream && ttft_ms !== null);
    expect(totalOf(families, 'gen_ai_server_time_to_first_token_seconds')).toBe(streamed.length);
    // A credential that is wrong belongs to no workspace, and its request still has a record.
    const everyone = totalOf(families, 'sluice_requests_total');
    expect(everyone).toBe(records.length + 1);
    expect(everyone).toBe((await server.recordCount()) - 1);
    expect(totalOf(families, 'gen_ai_server_request_duration_seconds')).toBe(everyone);
  });

  it('are the same in OpenMetrics', async () => {
    const [text, openmetrics] = [await read(), await read('openmetrics')];
    const requests = openmetrics.get('sluice_requests')?.samples;
    expect(requests).toEqual(text.get('sluice_requests_total')?.samples);
  });

  it('show no name that callers made up, no key and no text', async () => {
    const answer = await scrape(bearer(server.first.operator_api_key));
    const text = await answer.text();
    for (const hidden of ['invented-name', 'nobody', 'Hello', 'slc_', 'sandbox-'])
      expect(text.includes(hidden), hidden).toBe(false);
  });
});

describe('numbers of the process', () => {
  it('are there: start, memory, CPU, connections, requests under way, the journal, lag', async () => {
    const families = await read();
    const value = (name: string) => families.get(name)?.samples[0]?.value ?? Number.NaN;
    const now = Date.now() / 1000;
    expect(value('process_start_time_seconds')).toBeGreaterThan(now - 7200);
    expect(value('process_start_time_seconds')).toBeLessThan(now);
    expect(value('process_resident_memory_bytes')).toBeGreaterThan(10e6);
    expect(value('process_cpu_seconds_total')).toBeGreaterThan(0);
    expect(value('sluice_connections')).toBeGreaterThanOrEqual(1);
    expect(value('sluice_inflight')).toBe(0);
    expect(value('sluice_workers_answered')).toBe(1);
    for (const name of [
      'sluice_eventloop_lag_seconds',
      'sluice_journal_bytes',
      'sluice_records_dropped_total',
      'sluice_body_journal_bytes',
      'sluice_body_frames_dropped_total',
      'sluice_log_lag_seconds',
      'sluice_metrics_overflow_total',
    ])
      expect(value(name), name).toBeGreaterThanOrEqual(0);
  });
});

describe('who may read', () => {
  it('the operator alone: no key is 401, and keys of organisations are 403', async () => {
    const other = await server.admin(
      'POST',
      '/operator/organisations',
      { name: 'Other', owner: { email: 'ada@example.com', first_name: 'Ada', last_name: 'L' } },
      server.first.operator_api_key,
    );
    expect(other.status).toBe(200);
    const { admin_api_key: admin, workspace_api_key: workspace } = other.body;
    const keys = [server.first.admin_api_key, server.first.workspace_api_key, String(admin), String(workspace)];
    for (const key of keys) {
      const answer = await scrape(bearer(key));
      expect(answer.status).toBe(403);
      expect(await answer.text()).not.toContain('sluice_');
    }
    const refused = await scrape();
    expect(refused.status).toBe(401);
    expect(await refused.json()).toMatchObject({ error: { message: expect.stringContaining('operator key') } });
    expect((await scrape(bearer('slc_opr_wrong'))).status).toBe(401);
    expect((await scrape({ 'x-gateway-api-key': server.first.operator_api_key })).status).toBe(200);
  });
});

describe('the own listener', () => {
  const own = () => new URL(server.running.metricsUrl ?? '');
  const get = (path: string, headers: Record<string, string> = {}, method = 'GET') =>
    new Promise<number>((resolve, reject) => {
      const { request } = process.getBuiltinModule('node:http');
      request({ host: '127.0.0.1', port: own().port, path, method, headers }, (answer) => {
        answer.resume();
        resolve(answer.statusCode ?? 0);
      })
        .on('error', reject)
        .end();
    });

  it('is on loopback alone, and serves programs of this machine without a key', async () => {
    expect(own().hostname).toBe('127.0.0.1');
    const families = readExposition(await (await fetch(own())).text());
    expect(totalOf(families, 'sluice_requests_total')).toBeGreaterThan(0);
    const { networkInterfaces } = process.getBuiltinModule('node:os');
    const outside = Object.values(networkInterfaces())
      .flatMap((all) => all ?? [])
      .filter(({ internal, family }) => !internal && family === 'IPv4');
    for (const { address } of outside)
      await expect(fetch(`http://${address}:${own().port}/metrics`), address).rejects.toThrow();
  });

  it('serves nothing else, and no page that has another name point to it', async () => {
    expect(await get('/metrics')).toBe(200);
    expect(await get('/v1/operator/health')).toBe(404);
    expect(await get('/metrics', {}, 'POST')).toBe(405);
    expect(await get('/metrics', { host: `attacker.example:${own().port}` })).toBe(403);
  });

  it('is out of reach of requests that Sluice makes for others, whatever hosts are trusted', async () => {
    const trusting = await startServer({ SLUICE_METRICS_PORT: '0', SLUICE_TRUSTED_HOSTS: '127.0.0.1' });
    try {
      const { port } = new URL(trusting.running.metricsUrl ?? '');
      const answer = await trusting.call('/chat/completions', chat('gpt-4o'), {
        'x-gateway-provider': 'openai',
        authorization: 'Bearer sk-1',
        'x-gateway-custom-host': `http://127.0.0.1:${port}/metrics`,
      });
      const text = await answer.text();
      expect([answer.status, text]).toEqual([400, expect.stringContaining('this gateway itself')]);
    } finally {
      await trusting.stop();
    }
  });

  it('is not there without the setting', async () => {
    const plain = await startServer();
    expect(plain.running.metricsUrl).toBeNull();
    await plain.stop();
  });

  it('on a port that another program has stops the start', async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => taken.once('listening', resolve));
    const { port } = taken.address() as AddressInfo;
    await expect(startServer({ SLUICE_METRICS_PORT: String(port) })).rejects.toMatchObject({
      code: 'EADDRINUSE',
      port,
    });
    taken.close();
  });
});
