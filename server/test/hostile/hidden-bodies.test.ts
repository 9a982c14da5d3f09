/**
 * Requests whose texts must be kept nowhere: each sends canaries, which are then looked for in every file, journal, record, chunk,
 * export, span, metric and line of the log that a server has made. A request that is kept shows that they would be found.
 */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Engine, literal, openEngine } from '../../src/keeper/engine.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { eventually } from '../support/budgets.ts';
import { filesBelow } from '../support/files-below.ts';
import { keptFrames } from '../support/kept-bodies.ts';
import { type Collector, startCollector } from '../support/otlp-collector.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

const KEY = 'canary-provider-key-55c1';
const SHOWN = 'canary-that-is-kept-1c9e';
const PLAIN = 'team-in-plain-sight';

let collector: Collector;
let upstream: FakeUpstream;
let server: TestServer;
let engine: Engine;
const lines: string[] = [];
/** What was hidden, and by what. */
const hidden = new Map<string, string>([[KEY, 'key of the provider']]);

beforeAll(async () => {
  collector = await startCollector();
  upstream = await startUpstream(({ body }, response) => {
    const { model, messages } = JSON.parse(body.toString()) as { model: string; messages: { content: string }[] };
    if (model === 'fails') return sendJson(response, 500, { error: { message: 'It broke', type: 'server_error' } });
    const message = { role: 'assistant', content: `You said ${messages.map(({ content }) => content).join()}` };
    const usage = { prompt_tokens: 9, completion_tokens: 3, total_tokens: 12 };
    sendJson(response, 200, { id: 'c', object: 'chat.completion', model, choices: [{ index: 0, message }], usage });
  });
  const log = createLogger({ level: 'debug', format: 'json', write: (line) => lines.push(line) });
  const env = {
    SLUICE_TRUSTED_HOSTS: new URL(upstream.url).host,
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_METRIC_EXPORT_INTERVAL: '1000',
  };
  server = await startServer(env, { writeAccess: (text) => lines.push(text) }, log);
  await server.provider({ id: 'openai', host: `${upstream.url}/v1`, key: KEY });
  engine = await openEngine({ memory: '256MB', threads: 1, temporary: server.dataDir });
}, 60_000);
afterAll(async () => {
  engine.closeSync();
  await server.stop();
  await upstream.stop();
  await collector.close();
});

const debugLog = async (value: 0 | 1) => {
  expect((await server.admin('PUT', '/admin/organisation/settings', { debug_log: value })).status).toBe(200);
};

async function ask(content: string, headers: Record<string, string>, model = 'gpt-4o'): Promise<number> {
  const body = { model, messages: [{ role: 'user', content }] };
  const answer = await server.call('/chat/completions', body, {
    'x-gateway-provider': '@openai-test',
    'x-gateway-metadata': JSON.stringify({ team: PLAIN }),
    ...headers,
  });
  await answer.text();
  return answer.status;
}

let made = 0;
/** A text that must be nowhere, because of `why`. */
function secret(why: string, form = (word: string) => word): string {
  const text = form(`canary${++made}hidden${why.replace(/\W/g, '')}`);
  hidden.set(text, why);
  return text;
}

const guarded = (guard: object) => ({
  'x-gateway-config': JSON.stringify({ provider: '@openai-test', input_guardrails: [guard] }),
});
const PII = { categories: ['EMAIL_ADDRESS'] };
const address = (word: string) => `${word}@example.com`;

/** Everything that the server has stored or sent, by where. */
async function stored(): Promise<ReadonlyMap<string, string>> {
  const out = new Map<string, string>();
  for (const { path, bytes } of await filesBelow(server.dataDir)) out.set(`file ${path}`, bytes.toString('latin1'));
  const frames = await keptFrames(server.dataDir);
  const text = frames.map((frame) => (frame.kind === 'piece' ? frame.bytes.toString('utf8') : JSON.stringify(frame)));
  out.set('journal of bodies', text.join('\n'));
  const connection = await engine.connect();
  const files = join(server.dataDir, 'logs', '*.parquet');
  const rows = await connection.runAndReadAll(
    `SELECT * FROM read_parquet(${literal(files)}, union_by_name = true)`,
    [],
  );
  const show = (_: string, value: unknown) => (typeof value === 'bigint' ? String(value) : value);
  out.set('records in files', JSON.stringify(rows.getRowObjectsJS(), show));
  connection.closeSync();
  const list = await server.admin('GET', '/logs?limit=200');
  out.set('list', JSON.stringify(list.body));
  for (const { id } of list.body.data as { id: string }[]) {
    for (const path of [`/logs/${id}`, `/logs/${id}/decision`]) {
      out.set(path, JSON.stringify((await server.admin('GET', path)).body));
    }
  }
  out.set('export', await exported());
  out.set('spans and metrics sent', Buffer.concat(collector.calls.map(({ body }) => body)).toString('latin1'));
  const scrape = await fetch(`${server.url}/metrics`, {
    headers: { authorization: `Bearer ${server.first.operator_api_key}` },
  });
  out.set('metrics', await scrape.text());
  out.set('log', lines.join('\n'));
  return out;
}

async function exported(): Promise<string> {
  const key = server.first.workspace_api_key;
  const requested_data = ['id', 'trace_id', 'request', 'response', 'metadata', 'ai_model', 'config', 'request_url'];
  const made = await server.admin('POST', '/logs/exports', { filters: {}, requested_data }, key);
  expect(made.status, JSON.stringify(made.body)).toBe(200);
  const path = `/logs/exports/${made.body.id}`;
  expect((await server.admin('POST', `${path}/start`, undefined, key)).status).toBe(200);
  const state = async () => String((await server.admin('GET', path, undefined, key)).body.status);
  expect(await eventually(state, (status) => status === 'success')).toBe('success');
  const { body } = await server.admin('GET', `${path}/download`, undefined, key);
  return (await fetch(String(body.signed_url))).text();
}

describe('texts of requests', () => {
  it('that must be kept nowhere are in no file, record, chunk, export, span, metric or line of the log', async () => {
    const off = { 'x-gateway-debug': 'false' };
    const note = (why: string) => ({ 'x-note': secret(why) });
    for (const model of ['gpt-4o', 'fails']) {
      const why = `x-gateway-debug ${model}`;
      expect(await ask(secret(why), { ...off, ...note(why) }, model)).toBe(model === 'fails' ? 500 : 200);
    }
    const redacted = secret('redaction', address);
    expect(await ask(redacted.replace(/^/, 'write to '), guarded({ 'gateway.pii': { ...PII, redact: true } }))).toBe(
      200,
    );
    const denied = secret('denial', address);
    expect(await ask(denied, { ...guarded({ 'gateway.pii': PII, deny: true }), ...note('denial') })).toBe(446);
    expect(await ask(SHOWN, {})).toBe(200);
    await debugLog(0);
    expect(await ask(secret('debug_log 0'), note('debug_log 0'))).toBe(200);
    // Of a request that fails its answer is kept, which has nothing of what was sent.
    expect(await ask(secret('debug_log 0, failed'), note('debug_log 0, failed'), 'fails')).toBe(500);
    await debugLog(1);

    await server.running.logs.flush();
    await eventually(
      async () => collector.spans().length,
      (spans) => spans >= 12,
    );
    const all = await stored();
    const leaks = [...all].flatMap(([where, text]) =>
      [...hidden].filter(([canary]) => text.includes(canary)).map(([, why]) => `${where}: ${why}`),
    );
    expect(leaks).toEqual([]);
    // Where it may be, the other one is found; and all places were looked into.
    const where = [...all]
      .filter(([, text]) => text.includes(SHOWN))
      .map(([name]) => name.replace(/\/logs\/[^/]+$/, 'log'));
    expect(where).toEqual(expect.arrayContaining(['journal of bodies', 'log']));
    const records = ['records in files', 'list', 'export'];
    expect(records.filter((name) => !all.get(name)?.includes(PLAIN))).toEqual([]);
    for (const name of ['spans and metrics sent', 'metrics', 'log']) expect(all.get(name), name).toContain('gpt-4o');
    expect([...all.keys()].filter((name) => /^file .*\.parquet$/.test(name)).length).toBeGreaterThan(0);
  }, 120_000);
});
