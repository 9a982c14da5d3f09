/** Traces of a whole server on their way to a collector. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Exporter } from '../../src/exporter/exporter.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { type LogFields, silentLog } from '../../src/kernel/log.ts';
import { openJournal } from '../../src/store/disk/journal.ts';
import { eventually } from '../support/budgets.ts';
import { logRecord } from '../support/log-record.ts';
import { type Collector, startCollector } from '../support/otlp-collector.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';
const CANARIES = ['canary-prompt-7f3a', 'canary-answer-91bd', 'canary-provider-key-55c1', 'canary-header-0aa2'];
const [PROMPT, ANSWER, KEY, HEADER] = CANARIES as [string, string, string, string];

let collector: Collector;
let upstream: FakeUpstream;
let server: TestServer;
let statuses: number[] = [];

beforeAll(async () => {
  collector = await startCollector();
  upstream = await startUpstream((_, response) => {
    const status = statuses.shift() ?? 200;
    const message = { role: 'assistant', content: ANSWER };
    const usage = { prompt_tokens: 9, completion_tokens: 3, total_tokens: 12 };
    const choices = [{ index: 0, message, finish_reason: 'stop' }];
    if (status !== 200) sendJson(response, status, { error: { message: `no ${ANSWER}`, type: 'server_error' } });
    else sendJson(response, 200, { id: 'c', object: 'chat.completion', model: 'gpt-x-1', choices, usage });
  });
  server = await startServer({
    SLUICE_TRUSTED_HOSTS: new URL(upstream.url).host,
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_EXPORTER_OTLP_HEADERS: 'x-collector-key=s%3Dcret',
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=staging',
    OTEL_SERVICE_NAME: 'gateway',
    OTEL_METRIC_EXPORT_INTERVAL: '1000',
  });
  await server.admin('PUT', '/admin/organisation/settings', {
    data_plane_security_settings: { block_inline_config: false },
  });
  await server.provider({ id: 'openai', host: `${upstream.url}/v1`, key: KEY });
});

afterAll(async () => {
  await server.stop();
  await upstream.stop();
  await collector.close();
});

const until = async (holds: () => boolean) =>
  expect(
    await eventually(
      async () => holds(),
      (held) => held,
    ),
  ).toBe(true);

const ask = async (headers: Record<string, string> = {}) => {
  const body = { model: 'gpt-x', messages: [{ role: 'user', content: PROMPT }] };
  const answer = await server.call('/chat/completions', body, {
    'x-gateway-provider': '@openai-test',
    'x-note': HEADER,
    ...headers,
  });
  await answer.text();
  return answer;
};

describe('traces', () => {
  it('of a request with a retry arrive whole: its own span below the caller’s, and its calls below that', async () => {
    statuses = [503];
    const config = { provider: '@openai-test', retry: { attempts: 1, on_status_codes: [503] } };
    await ask({ traceparent: `00-${TRACE}-${PARENT}-01`, 'x-gateway-config': JSON.stringify(config) });
    const of = () => collector.spans().filter(({ traceId }) => traceId === TRACE);
    await until(() => of().length === 3);
    const [request, ...calls] = of().sort((one, other) => one.kind - other.kind);
    expect(request).toMatchObject({ parentSpanId: PARENT, name: 'POST /v1/chat/completions' });
    expect(calls.map(({ parentSpanId }) => parentSpanId)).toEqual([request?.spanId, request?.spanId]);
    const [failed, answered] = calls.sort((one, other) => (one.startTimeUnixNano < other.startTimeUnixNano ? -1 : 1));
    expect(failed).toMatchObject({ name: 'chat gpt-x', status: { code: 2 }, attributes: { 'error.type': '503' } });
    // What the provider does in a trace of its own is below the call that it was made by.
    const told = upstream.received.slice(-2).map(({ headers }) => headers.traceparent);
    expect(told).toEqual([failed, answered].map((call) => `00-${TRACE}-${call?.spanId}-01`));
    expect(answered?.attributes).toMatchObject({
      'gen_ai.provider.name': 'openai',
      'gen_ai.response.model': 'gpt-x-1',
      'gen_ai.usage.input_tokens': '9',
      'gen_ai.usage.output_tokens': '3',
    });
    expect(collector.resource()).toMatchObject({
      'service.name': 'gateway',
      'deployment.environment.name': 'staging',
    });
    expect(collector.calls[0]?.headers['x-collector-key']).toBe('s=cret');
  });

  it('hold no prompt, no answer, no key and no header', async () => {
    statuses = [500];
    const before = collector.spans().length;
    await ask();
    await ask();
    await until(() => collector.spans().length >= before + 4);
    const bytes = Buffer.concat(collector.calls.map(({ body }) => body)).toString('latin1');
    expect(bytes).toContain('gpt-x');
    const secrets = [...CANARIES, server.first.workspace_api_key, 's=cret'];
    expect(secrets.filter((secret) => bytes.includes(secret))).toEqual([]);
  });

  it('are counted in the state of the node, with the reason while the collector takes none', async () => {
    const state = async () => {
      const { body } = await server.admin('GET', '/operator/health', undefined, server.first.operator_api_key);
      return body.telemetry as Record<string, unknown>;
    };
    expect(await state()).toMatchObject({ ok: true, refused: 0, lost: 0, failure: null });
    expect(Number((await state()).sent)).toBeGreaterThan(0);
    collector.refuse = { status: 503 };
    await ask();
    const failing = await eventually(state, ({ ok }) => ok === false);
    expect(failing.failure).toBe(`${new URL(collector.url).host} answered 503`);
    collector.refuse = null;
    expect(await eventually(state, ({ ok }) => ok === true)).toMatchObject({ ok: true, failure: null });
  });

  it('that the caller does not sample are not sent, unless the request failed', async () => {
    const unsampled = (digit: string) => `00-${digit.repeat(32)}-${PARENT}-00`;
    await ask({ traceparent: unsampled('a') });
    statuses = [500];
    await ask({ traceparent: unsampled('b') });
    await until(() => collector.spans().some(({ traceId }) => traceId === 'b'.repeat(32)));
    expect(collector.spans().some(({ traceId }) => traceId === 'a'.repeat(32))).toBe(false);
  });
});

it('metrics arrive, too, and are the numbers of the records', async () => {
  await ask();
  const records = await server.records();
  const requests = () => {
    const points = collector.metric('sluice.requests').filter(({ attributes }) => attributes.outcome === 'ok');
    return points.reduce((sum, { value }) => sum + value, 0);
  };
  const ok = records.filter(({ outcome, dry_run }) => outcome === 'ok' && dry_run !== true).length;
  await until(() => requests() === ok);
  const tokens = collector.metric('gen_ai.client.token.usage');
  expect(tokens.map(({ attributes }) => attributes['gen_ai.token.type'])).toEqual(['input', 'output']);
  expect(tokens[0]).toMatchObject({ value: 9 * ok, attributes: { 'gen_ai.operation.name': 'chat' } });
  const { headers } = collector.calls.filter(({ path }) => path === '/v1/metrics').at(-1) ?? {};
  expect(headers).toMatchObject({ 'x-collector-key': 's=cret', 'content-encoding': 'gzip' });
});

it('a process that is killed is started again, and its successor sends what is left, each span once', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'sluice-telemetry-'));
  const spool = join(dir, 'spool');
  const journal = await openJournal({ dir: join(spool, 'journal'), clock: systemClock, log: silentLog });
  const log: LogFields[] = [];
  const note = (message: string, fields?: LogFields) => void log.push({ message, ...fields });
  const own = await startCollector();
  own.refuse = { status: 503 };
  const exporter = new Exporter({
    settings: {
      spool,
      dir: join(spool, 'telemetry'),
      maxBytes: 1 << 30,
      reserveBytes: 0,
      resource: {},
      version: '1',
      metrics: null,
      traces: {
        url: `${own.url}/v1/traces`,
        headers: { authorization: 'collector-secret' },
        protocol: 'http/json',
        conventions: 'latest',
        sampler: 'always_on',
        ratio: 1,
      },
    },
    environment: {},
    clock: systemClock,
    log: { debug: note, info: note, warn: note, error: note },
  });
  const write = (seq: number) => {
    const id = uuidv7(systemClock);
    const record = { ...logRecord(seq, { outcome: 'ok' }), id, span_id: id, trace_id: id };
    return new Promise<void>((resolve) => journal.append(JSON.stringify(record), resolve));
  };
  try {
    for (let seq = 1; seq <= 5; seq++) await write(seq);
    await until(() => own.tries > 0);
    const first = exporter.pid;
    // The settings are no arguments, which every user of the machine can read.
    if (process.platform === 'linux') {
      expect(await readFile(`/proc/${first}/cmdline`, 'utf8')).not.toContain('collector-secret');
      expect(await readFile(`/proc/${first}/environ`, 'utf8')).not.toContain('collector-secret');
    }
    process.kill(first ?? 0, 'SIGKILL');
    own.refuse = null;
    await write(6);
    await until(() => own.spans().length === 12);
    expect(exporter.pid).not.toBe(first);
    expect(new Set(own.spans().map(({ spanId }) => spanId)).size).toBe(12);
    expect(log.map(({ message }) => message)).toContain('the process that sends telemetry died and is started again');
    // What is written just before the end is sent, too.
    await write(7);
    await exporter.close();
    expect(own.spans()).toHaveLength(14);
    const kept = await Promise.all(
      (await readdir(join(spool, 'telemetry'))).map((name) => readFile(join(spool, 'telemetry', name), 'utf8')),
    );
    expect(kept.join()).not.toContain('collector-secret');
    expect(JSON.stringify(log)).not.toContain('collector-secret');
  } finally {
    await exporter.close();
    await journal.close();
    await own.close();
    await rm(dir, { recursive: true, force: true });
  }
});
