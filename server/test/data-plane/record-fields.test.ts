/** What the record of a request tells: every field of it, by real requests of every kind. Time passes where a test lets it. */
import type { ServerResponse } from 'node:http';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/kernel/clock.ts';
import type { LogRecord } from '../../src/telemetry/record.ts';
import { eventually } from '../support/budgets.ts';
import { type Hook, hook } from '../support/hook.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { chatStream } from '../support/streams.ts';
import { type FakeUpstream, type Received, sendEvents, sendJson, startUpstream } from '../support/upstream.ts';

type Fields = Readonly<Partial<Record<keyof LogRecord, unknown>>>;

let upstream: FakeUpstream;
let webhook: Hook;
let server: TestServer;
const SILENT = 0;
/** What the clock of requests shows, milliseconds. */
let at = 1_000;
/** Statuses of the next answers of the provider, each after as many milliseconds. */
let next: { readonly status: number; readonly ms: number }[] = [];
/** Every record that was read here. */
const seen: Fields[] = [];

const CHAT = { object: 'chat.completion', created: 1, model: 'gpt-4o-2024-08-06' };
const usage = { prompt_tokens: 9, completion_tokens: 3, total_tokens: 12 };
const message = { role: 'assistant', content: 'fine' };
const WHOLE = { id: 'c', ...CHAT, choices: [{ index: 0, message, finish_reason: 'stop' }], usage };
const CLAUDE = { id: 'm', type: 'message', role: 'assistant', model: 'claude', stop_reason: 'end_turn' };
const SAID = { ...CLAUDE, content: [{ type: 'text', text: 'fine' }], usage: { input_tokens: 9, output_tokens: 3 } };

function answered({ path, body }: Received, response: ServerResponse): void {
  const { status, ms } = next.shift() ?? { status: 200, ms: 40 };
  at += ms;
  if (status !== SILENT) answer(status, path, body, response);
}

function answer(status: number, path: string, body: Buffer, response: ServerResponse): void {
  const embedding = { object: 'list', model: 'm', data: [{ index: 0, embedding: [1, 0] }], usage };
  if (status !== 200) sendJson(response, status, { error: { message: 'no', type: 'server_error' } });
  else if (path.endsWith('/embeddings')) sendJson(response, 200, embedding);
  else if (path.endsWith('/messages')) sendJson(response, 200, SAID);
  else if (path.endsWith('/files')) sendJson(response, 200, { object: 'list', data: [] });
  else if (body.includes('"stream":true')) sendEvents(response, chatStream('fine'));
  else sendJson(response, 200, WHOLE);
}

beforeAll(async () => {
  upstream = await startUpstream(answered);
  webhook = await hook();
  const trusted = [upstream.url, webhook.url].map((url) => new URL(url).host).join(',');
  server = await startServer(
    { SLUICE_TRUSTED_HOSTS: trusted, HEADERS_TO_METADATA: 'X-Site, authorization' },
    { clock: { ...systemClock, monotonic: () => at }, random: () => 0 },
  );
  await server.admin('PUT', '/admin/organisation/settings', {
    data_plane_security_settings: { block_inline_config: false },
  });
  await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
  await server.provider({ id: 'anthropic', host: `${upstream.url}/v1` });
});
afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
  await webhook?.close();
});
beforeEach(() => {
  next = [];
  webhook.answer = (_call, response) => {
    at += 30;
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"verdict":true}');
  };
});

const account = { provider: '@openai-test' };
const body = (more: object = {}) => ({ model: 'gpt-4o', messages: [{ role: 'user', content: 'Hi' }], ...more });

/** The newest record, which is of this operation; embeddings are asked for by the cache. */
async function newest(operation?: string): Promise<Fields> {
  const record = (await server.records()).find((one) => operation === undefined || one.operation === operation);
  expect(record).toBeDefined();
  const fields = (record ?? {}) as Fields;
  seen.push(fields);
  return fields;
}

async function recordOf(config: object | null, more: object = {}, headers: Record<string, string> = {}) {
  const own = { ...headers, ...(config === null ? {} : { 'x-gateway-config': JSON.stringify(config) }) };
  const answer = await server.call('/chat/completions', body(more), own);
  await answer.text();
  return newest('chat');
}

/** All parts that a record tells of its time make the whole of it. */
function wholeOf(record: Fields): number {
  const of = (name: keyof LogRecord) => Number(record[name] ?? 0);
  expect(of('gateway_us')).toBe(Number(record.latency_ms) * 1000 - of('upstream_us'));
  return of('parse_us') + of('pre_us') + of('cache_us') + of('upstream_us') + of('post_us');
}

describe('the way that a request took', () => {
  it('one target', async () => {
    expect(await recordOf(account)).toMatchObject({
      source: 'llm',
      mode: 'single',
      option: 'config',
      retries: 0,
      fallback: false,
      upstream_us: 40_000,
      gateway_us: 0,
      parse_us: 0,
      pre_us: 0,
      post_us: 0,
      latency_ms: 40,
      ttft_ms: 40,
      dry_run: false,
    });
  });

  it('a retry, which is counted, and whose wait for the first answer counts as upstream', async () => {
    next = [
      { status: 503, ms: 25 },
      { status: 200, ms: 50 },
    ];
    const record = await recordOf({ ...account, retry: { attempts: 2, on_status_codes: [503] } });
    expect(record).toMatchObject({ mode: 'single', retries: 1, fallback: false, status: 200, upstream_us: 75_000 });
    expect(wholeOf(record)).toBe(75_000);
  });

  it('a fallback after a target has failed with all its retries', async () => {
    next = [
      { status: 503, ms: 10 },
      { status: 503, ms: 10 },
      { status: 200, ms: 10 },
    ];
    const record = await recordOf({
      strategy: { mode: 'fallback' },
      targets: [{ ...account, retry: { attempts: 1, on_status_codes: [503] } }, account],
    });
    expect(record).toMatchObject({
      mode: 'fallback',
      option: 'config.targets[1]',
      retries: 0,
      fallback: true,
      status: 200,
      upstream_us: 30_000,
      decision: { target: 'config.targets[1]' },
    });
  });

  it('a fallback that was not needed', async () => {
    expect(await recordOf({ strategy: { mode: 'fallback' }, targets: [account, account] })).toMatchObject({
      mode: 'fallback',
      option: 'config.targets[0]',
      fallback: false,
    });
  });

  it('a load balancer, and a target of it that is a fallback itself', async () => {
    next = [
      { status: 500, ms: 1 },
      { status: 200, ms: 1 },
    ];
    const inner = { strategy: { mode: 'fallback' }, targets: [account, account] };
    const record = await recordOf({
      strategy: { mode: 'loadbalance' },
      targets: [
        { ...inner, weight: 1 },
        { ...account, weight: 0 },
      ],
    });
    expect(record).toMatchObject({ mode: 'loadbalance', option: 'config.targets[0].targets[1]', fallback: true });
  });

  it('conditions', async () => {
    const record = await recordOf({
      // biome-ignore lint/suspicious/noThenProperty: the name is the contract's
      strategy: { mode: 'conditional', conditions: [{ query: { 'params.user': 'a' }, then: 'x' }], default: 'y' },
      targets: [
        { name: 'x', ...account },
        { name: 'y', ...account },
      ],
    });
    expect(record).toMatchObject({ mode: 'conditional', option: 'config.targets[1]', fallback: false });
  });

  it('a saved config, by the version that it had', async () => {
    const saved = await server.admin('POST', '/configs', {
      name: 'recorded',
      workspace_id: server.first.workspace_id,
      config: account,
    });
    const headers = { 'x-gateway-config': String(saved.body.slug) };
    expect(await recordOf(null, {}, headers)).toMatchObject({
      config_slug: saved.body.slug,
      config_version: saved.body.version_id,
      mode: 'single',
    });
  });

  it('a retry and a fallback that fail as well', async () => {
    next = Array.from({ length: 3 }, () => ({ status: 503, ms: 5 }));
    const record = await recordOf({
      strategy: { mode: 'fallback' },
      targets: [account, { ...account, retry: { attempts: 1, on_status_codes: [503] } }],
    });
    expect(record).toMatchObject({ outcome: 'failed', status: 503, retries: 1, fallback: true, upstream_us: 15_000 });
  });
});

describe('what took time', () => {
  it('an answer that guardrails judge: their time is the gateway’s', async () => {
    const guardrail = { 'default.webhook': { webhookURL: `${webhook.url}/judge` }, deny: true };
    const record = await recordOf({ ...account, input_guardrails: [guardrail], output_guardrails: [guardrail] });
    expect(record).toMatchObject({
      status: 200,
      upstream_us: 40_000,
      gateway_us: 60_000,
      pre_us: 30_000,
      post_us: 30_000,
      guards: { input: [expect.any(String)], output: [expect.any(String)] },
      guardrails: [expect.anything(), expect.anything()],
    });
    expect(wholeOf(record)).toBe(100_000);
  });

  it('a stream that guardrails judge at its end', async () => {
    const guardrail = { 'default.webhook': { webhookURL: `${webhook.url}/judge` }, deny: true };
    const record = await recordOf({ ...account, output_guardrails: [guardrail] }, { stream: true });
    expect(record).toMatchObject({ status: 200, stream: true, upstream_us: 40_000, post_us: 30_000 });
  });

  it('a request that a guardrail denies: nothing waited for a provider', async () => {
    webhook.answer = (_call, response) => {
      at += 20;
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"verdict":false}');
    };
    const guardrail = { 'default.webhook': { webhookURL: `${webhook.url}/judge` }, deny: true };
    const record = await recordOf({ ...account, input_guardrails: [guardrail] });
    expect(record).toMatchObject({ status: 446, outcome: 'refused', upstream_us: 0, pre_us: 20_000, attempts: [] });
    expect(record).not.toHaveProperty('post_us');
  });

  it('a stream', async () => {
    expect(await recordOf(account, { stream: true })).toMatchObject({
      stream: true,
      upstream_us: 40_000,
      post_us: 0,
      ttft_ms: 40,
      usage: { output: 5 },
    });
  });

  it('an answer that is converted', async () => {
    const record = await recordOf(
      { provider: '@anthropic-test', override_params: { model: 'claude' } },
      { max_tokens: 5 },
    );
    expect(record).toMatchObject({ status: 200, provider: 'anthropic', upstream_us: 40_000, post_us: 0 });
  });

  it('a caller who leaves while the provider is silent', async () => {
    next = [{ status: SILENT, ms: 15 }];
    const before = upstream.received.length;
    const left = new AbortController();
    const call = fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        'x-gateway-api-key': server.first.workspace_api_key,
        'content-type': 'application/json',
        'x-gateway-provider': '@openai-test',
      },
      body: JSON.stringify(body()),
      signal: left.signal,
    });
    await eventually(
      async () => upstream.received.length,
      (count) => count > before,
    );
    left.abort();
    await expect(call).rejects.toThrow();
    const record = await eventually(
      () => newest('chat'),
      ({ outcome }) => outcome === 'aborted',
    );
    expect(record).toMatchObject({ status: 499, upstream_us: 15_000, gateway_us: 0, option: 'config', retries: 0 });
  });
});

describe('the cache', () => {
  const cached = (mode: string) => ({ ...account, cache: { mode } });

  it.each(['simple', 'semantic'])('%s: what looked it up, what it found, and what that saved', async (mode) => {
    const content = `a question for the ${mode} cache`;
    const asked = (text: string) => recordOf(cached(mode), { messages: [{ role: 'user', content: text }] });
    const semantic = mode === 'semantic';
    const miss = await asked(content);
    expect(miss).toMatchObject({
      cache_status: semantic ? 'SEMANTIC MISS' : 'MISS',
      cache_type: mode,
      cache_us: semantic ? 40_000 : 0,
      upstream_us: 40_000,
      pre_us: 0,
    });
    expect(wholeOf(miss)).toBe(Number(miss.latency_ms) * 1000);
    // What the cache asks for has a record of its own, which no program has sent.
    if (semantic) expect(await newest('embeddings')).not.toHaveProperty('client');
    const hit = await eventually(
      () => asked(semantic ? `${content}, again` : content),
      ({ cache_status }) => String(cache_status).endsWith('HIT'),
    );
    expect(hit).toMatchObject({
      cache_status: semantic ? 'SEMANTIC HIT' : 'HIT',
      cache_type: mode,
      cache_us: semantic ? 40_000 : 0,
      upstream_us: 0,
      post_us: 0,
      attempts: [],
      cost_micros: 0,
      cache: { saved_micros: miss.cost_micros },
    });
    expect(wholeOf(hit)).toBe(Number(hit.latency_ms) * 1000);
  });

  it('none', async () => {
    const record = await recordOf(account);
    expect(record).toMatchObject({ cache_status: 'DISABLED' });
    for (const name of ['cache', 'cache_type', 'cache_us']) expect(record).not.toHaveProperty(name);
  });
});

describe('requests that call nobody, or are no calls of models', () => {
  it('a caller without the right: nothing was read, and no way was chosen', async () => {
    const made = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'reader',
      workspace_id: server.first.workspace_id,
      scopes: ['logs.view'],
    });
    const record = await recordOf(account, {}, { 'x-gateway-api-key': String(made.body.key) });
    expect(record).toMatchObject({ outcome: 'refused', status: 403, source: 'llm', upstream_us: 0, pre_us: 0 });
    for (const name of ['mode', 'option', 'parse_us', 'post_us', 'config_version'])
      expect(record).not.toHaveProperty(name);
  });

  it('a body that is no JSON', async () => {
    await (await server.call('/chat/completions', '{"model":', { 'x-gateway-provider': '@openai-test' })).text();
    expect(await newest()).toMatchObject({ outcome: 'refused', status: 400, upstream_us: 0 });
  });

  it('a dry run', async () => {
    const record = await recordOf(account, {}, { 'x-gateway-dry-run': 'true' });
    expect(record).toMatchObject({ dry_run: true, mode: 'single', option: 'config', upstream_us: 0, attempts: [] });
  });

  async function read(path: string): Promise<Fields> {
    const headers = { 'x-gateway-api-key': server.first.workspace_api_key, 'x-gateway-provider': '@openai-test' };
    await (await fetch(`${server.url}/v1/${path}`, { headers })).text();
    return newest();
  }

  it('a path that is passed through', async () => {
    expect(await read('assistants')).toMatchObject({
      operation: 'proxy',
      source: 'llm',
      mode: 'single',
      upstream_us: 40_000,
    });
  });

  it('a file of an account, which adapters call', async () => {
    const record = await read('files');
    expect(record).toMatchObject({ operation: 'files', source: 'llm', attempts: [{ status: 200 }] });
    expect(Number(record.upstream_us)).toBeGreaterThan(0);
    expect(wholeOf(record)).toBe(Number(record.latency_ms) * 1000);
  });
});

describe('trace context', () => {
  const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
  const PARENT = '00f067aa0ba902b7';
  const traceparent = `00-${TRACE}-${PARENT}-01`;

  it('of W3C: its trace, its span as the parent, a span of the request’s own, named by method and path', async () => {
    const record = await recordOf(account, {}, { traceparent });
    expect(record).toMatchObject({
      trace_id: TRACE,
      parent_span_id: PARENT,
      span_id: record.id,
      span_name: 'POST /v1/chat/completions',
      parent_sampled: true,
    });
    const unsampled = await recordOf(account, {}, { traceparent: traceparent.replace(/01$/, '02') });
    expect(unsampled).toMatchObject({ trace_id: TRACE, parent_sampled: false });
  });

  it('of the gateway’s own headers, which win, each over its own part', async () => {
    const own = {
      traceparent,
      'x-gateway-trace-id': 'trace-1',
      'x-gateway-span-id': 'span-1',
      'x-gateway-parent-span-id': 'span-0',
      'x-gateway-span-name': 'summarise it',
    };
    const answer = await server.call('/chat/completions', body(), { ...own, 'x-gateway-provider': '@openai-test' });
    await answer.text();
    expect(answer.headers.get('x-gateway-trace-id')).toBe('trace-1');
    expect(await newest()).toMatchObject({
      trace_id: 'trace-1',
      span_id: 'span-1',
      parent_span_id: 'span-0',
      span_name: 'summarise it',
    });
    const half = await recordOf(account, {}, { traceparent, 'x-gateway-span-name': 'step' });
    expect(half).toMatchObject({ trace_id: TRACE, parent_span_id: PARENT, span_name: 'step' });
  });

  it('of nobody: the request is its own trace and span', async () => {
    const record = await recordOf(account);
    expect(record).toMatchObject({ trace_id: record.id, span_id: record.id, parent_span_id: null });
    expect(record).not.toHaveProperty('span_name');
    expect(record).not.toHaveProperty('parent_sampled');
  });

  it.each([
    ['another version', `01-${TRACE}-${PARENT}-01`],
    ['capital letters', `00-${TRACE.toUpperCase()}-${PARENT}-01`],
    ['a trace of zeros', `00-${'0'.repeat(32)}-${PARENT}-01`],
    ['a parent of zeros', `00-${TRACE}-${'0'.repeat(16)}-01`],
    ['a part too many', `${traceparent}-00`],
  ])('malformed (%s) is ignored', async (_title, value) => {
    const record = await recordOf(account, {}, { traceparent: value });
    expect(record).toMatchObject({ trace_id: record.id, parent_span_id: null, status: 200 });
    expect(record).not.toHaveProperty('span_name');
  });

  it.each([
    ['too long', 'x'.repeat(129)],
    ['with characters of markup or formulas', '<b>'],
    ['with a space', 'a b'],
  ])('ids of the caller’s own %s are left out, and the request runs', async (_title, value) => {
    const names = ['trace-id', 'span-id', 'parent-span-id'];
    const record = await recordOf(account, {}, Object.fromEntries(names.map((name) => [`x-gateway-${name}`, value])));
    expect(record).toMatchObject({ status: 200, trace_id: record.id, span_id: record.id, parent_span_id: null });
  });

  it('names of spans have at most 128 characters of any language, and none that hides text', async () => {
    const utf8 = (text: string) => Buffer.from(text).toString('latin1');
    for (const [given, kept] of [
      [utf8('Ärger 概要 🦥'), 'Ärger 概要 🦥'],
      [utf8('é'.repeat(128)), 'é'.repeat(128)],
      ['x'.repeat(129), undefined],
      [utf8('a\u202eb'), undefined],
      ['a\tb', undefined],
    ] as const)
      expect((await recordOf(account, {}, { 'x-gateway-span-name': given })).span_name, given).toBe(kept);
  });
});

describe('metadata', () => {
  const keys = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, 'v'.repeat(128)]));

  it('of 64 keys of the request and its config is recorded; one more is refused, and the error says so', async () => {
    const config = { ...account, metadata: { team: 'search' } };
    const given = (count: number) => ({ 'x-gateway-metadata': JSON.stringify(keys(count)) });
    expect((await recordOf(config, {}, given(63))).metadata).toEqual({ ...keys(63), team: 'search' });
    expect(await recordOf(config, {}, given(64))).toMatchObject({
      status: 400,
      outcome: 'refused',
      error_message: expect.stringContaining('have 65 keys together; at most 64 are allowed'),
    });
  });

  it('of headers that the server copies, and of UTF-8, is recorded as it was sent', async () => {
    const utf8 = (text: string) => Buffer.from(text).toString('latin1');
    const given = { 'x-gateway-metadata': utf8('{"team":"Küche 🦥","x-site":"told"}'), 'x-site': utf8('Zürich') };
    expect((await recordOf(account, {}, given)).metadata).toEqual({ team: 'Küche 🦥', 'x-site': 'Zürich' });
  });
});

/** Of every record; of some; of none yet. A field that is added does not compile without its row. */
const FIELDS: Readonly<Record<keyof LogRecord, 'all' | 'some' | 'none'>> = {
  id: 'all',
  node: 'all',
  seq: 'all',
  time: 'all',
  organisation_id: 'all',
  workspace_id: 'all',
  api_key_id: 'all',
  user_id: 'all',
  trace_id: 'all',
  span_id: 'all',
  parent_span_id: 'all',
  parent_sampled: 'some',
  span_name: 'some',
  source: 'all',
  operation: 'all',
  method: 'all',
  path: 'all',
  provider: 'all',
  provider_slug: 'all',
  config_slug: 'all',
  config_version: 'some',
  prompt_slug: 'none',
  prompt_version: 'none',
  mode: 'some',
  option: 'some',
  retries: 'all',
  fallback: 'all',
  model_requested: 'all',
  model_sent: 'some',
  model_answered: 'all',
  stream: 'all',
  status: 'all',
  outcome: 'all',
  error_code: 'all',
  error_message: 'all',
  usage: 'all',
  usage_estimated: 'all',
  cost_micros: 'all',
  price: 'all',
  latency_ms: 'all',
  ttft_ms: 'all',
  upstream_us: 'all',
  gateway_us: 'all',
  parse_us: 'some',
  pre_us: 'all',
  cache_us: 'some',
  post_us: 'some',
  attempts: 'all',
  bytes_in: 'all',
  bytes_out: 'all',
  upstream_bytes_out: 'all',
  upstream_bytes_in: 'all',
  metadata: 'all',
  cache_status: 'all',
  cache_type: 'some',
  cache: 'some',
  decision: 'some',
  limits: 'none',
  guards: 'some',
  guardrails: 'some',
  client: 'some',
  detail: 'none',
  body_chunk: 'some',
  body_slot: 'some',
  body_flags: 'some',
  dry_run: 'all',
};

it('these requests have shown every field that records have, and no other', () => {
  expect(seen.length).toBeGreaterThan(30);
  for (const [name, of] of Object.entries(FIELDS)) {
    const count = seen.filter((record) => name in record).length;
    const expected =
      of === 'all' ? count === seen.length : of === 'none' ? count === 0 : count > 0 && count < seen.length;
    expect(expected, `${name} is in ${count} of ${seen.length} records`).toBe(true);
  }
  expect([...new Set(seen.flatMap((record) => Object.keys(record)))].filter((name) => !(name in FIELDS))).toEqual([]);
  // Durations are whole microseconds.
  for (const record of seen)
    for (const [name, value] of Object.entries(record))
      if (name.endsWith('_us')) expect(Number.isSafeInteger(value) && Number(value) >= 0, name).toBe(true);
});
