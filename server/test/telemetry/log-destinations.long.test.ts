/** Log destinations of a whole server: what arrives where, and what does not. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openEngine, rowsOf } from '../../src/keeper/engine.ts';
import { DESTINATION_FIELDS } from '../../src/telemetry/destination-fields.ts';
import { eventually } from '../support/budgets.ts';
import { filesWith } from '../support/kept-bodies.ts';
import { type LogReceiver, startLogReceiver } from '../support/log-receiver.ts';
import { type Collector, startCollector } from '../support/otlp-collector.ts';
import { S3_KEYS, S3_REGION, type S3Server, startS3Server } from '../support/s3-server.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

const SECRETS = ['canary-header-of-otlp', 'canary-path-of-webhook', 'canary-key-of-provider'] as const;
const [HEADER, PATH, KEY] = SECRETS;

let server: TestServer;
let receiver: LogReceiver;
let collector: Collector;
let bucket: S3Server;
let upstream: FakeUpstream;

beforeAll(async () => {
  [receiver, collector, bucket] = await Promise.all([
    startLogReceiver(),
    startCollector(),
    startS3Server({ buckets: ['records'] }),
  ]);
  upstream = await startUpstream((request, response) => {
    const { messages } = JSON.parse(request.body.toString());
    const message = { role: 'assistant', content: `answer to ${messages[0].content}` };
    const usage = { prompt_tokens: 9, completion_tokens: 3, total_tokens: 12 };
    const choices = [{ index: 0, message, finish_reason: 'stop' }];
    sendJson(response, 200, { id: 'c', object: 'chat.completion', model: 'gpt-x-1', choices, usage });
  });
  const trusted = [receiver.host, collector.url, bucket.url, upstream.url].map((url) => url.replace('http://', ''));
  server = await startServer({ SLUICE_TRUSTED_HOSTS: trusted.join(',') });
  await server.provider({ id: 'openai', host: `${upstream.url}/v1`, key: KEY });
  // The process that sends is there from now on.
  await make({ kind: 'otlp', otlp: { url: `${collector.url}/none` }, sample: 0 });
});

afterAll(async () => {
  await server.stop();
  await Promise.all([receiver.close(), collector.close(), bucket.stop(), upstream.stop()]);
});

async function until<T>(look: () => T | Promise<T>, holds: (value: T) => boolean): Promise<T> {
  const found = await eventually(async () => look(), holds);
  expect(holds(found), JSON.stringify(found)).toBe(true);
  return found;
}

async function ask(text: string, headers: Record<string, string> = {}): Promise<string> {
  const body = { model: 'gpt-x', messages: [{ role: 'user', content: text }] };
  const answer = await server.call('/chat/completions', body, { 'x-gateway-provider': '@openai-test', ...headers });
  expect(answer.status, await answer.text()).toBe(200);
  return answer.headers.get('x-gateway-request-id') ?? '';
}

type Made = { id: string };
async function make(body: Record<string, unknown>, key?: string): Promise<string> {
  const of = key === undefined ? { workspace_id: server.first.workspace_id } : {};
  const made = await server.admin('POST', '/log-destinations', { name: 'made', ...of, ...body }, key);
  expect(made.status, JSON.stringify(made.body)).toBe(200);
  return (made.body as unknown as Made).id;
}

const read = async (id: string) => (await server.admin('GET', `/log-destinations/${id}`)).body;
const remove = async (id: string) => {
  expect((await server.admin('DELETE', `/log-destinations/${id}`)).status).toBe(200);
};
const idsAt = (of: LogReceiver) => of.records().map(({ id }) => id);

describe('a log destination', { timeout: 120_000 }, () => {
  it('of the kind webhook gets each request once, signed, and says so', async () => {
    const signing = await server.admin('POST', '/admin/organisation/webhook-secret', {});
    receiver.secret = String(signing.body.secret);
    expect(receiver.secret).toMatch(/^whsec_/);
    const id = await make({ kind: 'webhook', webhook: { url: `${receiver.url}/in/${PATH}` } });
    const sent = [await ask('one'), await ask('two')];
    await until(
      () => idsAt(receiver),
      (ids) => sent.every((one) => ids.includes(one)),
    );
    expect(idsAt(receiver).sort()).toEqual([...sent].sort());
    expect(receiver.calls[0]?.path).toBe(`/in/${PATH}`);
    expect(receiver.records()[0]).toMatchObject({
      ai_model: 'gpt-x',
      ai_org: 'openai',
      total_units: 12,
      response_status_code: 200,
      is_success: true,
      workspace_id: server.first.workspace_id,
    });
    expect(receiver.records()[0]).not.toHaveProperty('request');
    const shown = await until(
      () => read(id),
      ({ state }) => (state as { delivered: number }).delivered === 2,
    );
    expect(shown.state).toMatchObject({ status: 'ok', failed: 0, lost: 0, waiting: 0, last_error: null, nodes: 1 });
    expect(JSON.stringify(shown)).not.toContain(PATH);
    expect(receiver.faults).toEqual([]);
    await remove(id);
    receiver.secret = null;
  });

  it('of the kind OTLP gets spans with its headers, and messages only where it asks for bodies that are kept', async () => {
    const otlp = { url: `${collector.url}/v1/traces`, headers: { authorization: `Bearer ${HEADER}` } };
    const plain = await make({
      kind: 'otlp',
      otlp: { ...otlp, protocol: 'http/json', resource: { 'service.name': 'plain' } },
    });
    const bodies = await make({ kind: 'otlp', otlp, bodies: true });
    await ask('what is kept');
    await ask('canary-not-kept', { 'x-gateway-debug': 'false' });
    const calls = () => collector.spans().filter(({ kind }) => kind === 3);
    await until(calls, (spans) => spans.length === 4);
    const withMessages = calls().filter(({ attributes }) => attributes['gen_ai.input.messages'] !== undefined);
    expect(withMessages).toHaveLength(1);
    const attributes = withMessages[0]?.attributes ?? {};
    expect(JSON.parse(String(attributes['gen_ai.input.messages']))).toEqual([
      { role: 'user', parts: [{ type: 'text', content: 'what is kept' }] },
    ]);
    expect(JSON.parse(String(attributes['gen_ai.output.messages']))).toEqual([
      { role: 'assistant', parts: [{ type: 'text', content: 'answer to what is kept' }], finish_reason: 'stop' },
    ]);
    for (const { headers, path, body } of collector.calls) {
      expect([headers.authorization, path]).toEqual([`Bearer ${HEADER}`, '/v1/traces']);
      expect(body.includes('canary-not-kept')).toBe(false);
    }
    await remove(plain);
    await remove(bodies);
  });

  it('of the kind S3 gets objects of JSON lines by hour', async () => {
    const s3 = {
      ...{ bucket: 'records', region: S3_REGION, endpoint: bucket.url, prefix: 'sluice/', interval_seconds: 5 },
      access_key_id: S3_KEYS.accessKeyId,
      secret_access_key: S3_KEYS.secretAccessKey,
    };
    const id = await make({ kind: 's3', s3, fields: ['id', 'ai_model', 'cost'] });
    const sent = [await ask('one'), await ask('two')];
    const keys = await until(
      () => bucket.keys('records'),
      (found) => found.length > 0,
    );
    expect(keys[0]).toMatch(/^sluice\/date=\d{4}-\d\d-\d\d\/hour=\d\d\/\d{8}T\d{6}Z-[0-9a-f]{32}\.jsonl\.gz$/);
    const texts = await Promise.all(
      keys.map(async (key) => gunzipSync((await bucket.read('records', key)) ?? '').toString()),
    );
    const lines = texts.flatMap((text) => text.trim().split('\n')).map((line) => JSON.parse(line));
    expect(lines.map((line) => line.id).sort()).toEqual(sent.sort());
    expect(Object.keys(lines[0])).toEqual(['id', 'ai_model', 'cost']);
    expect(bucket.faults).toEqual([]);
    const shown = await read(id);
    expect(JSON.stringify(shown)).not.toContain(S3_KEYS.secretAccessKey);
    await remove(id);
  });

  it('of the kind S3 gets Parquet with a column of its type for each field, where it asks for that', async () => {
    const s3 = {
      ...{ bucket: 'records', region: S3_REGION, endpoint: bucket.url, prefix: 'columns', interval_seconds: 5 },
      ...{ access_key_id: S3_KEYS.accessKeyId, secret_access_key: S3_KEYS.secretAccessKey, format: 'parquet' },
    };
    const both = { name: 'x', kind: 's3', workspace_id: server.first.workspace_id, s3: { ...s3, compression: 'gzip' } };
    const refused = await server.admin('POST', '/log-destinations', both);
    expect([refused.status, JSON.stringify(refused.body)]).toEqual([400, expect.stringContaining('s3.compression')]);
    const id = await make({ kind: 's3', s3, bodies: true });
    const tried = await server.admin('POST', `/log-destinations/${id}/test`, {});
    expect(tried.body).toMatchObject({ delivered: true, status: 200 });
    const metadata = { 'x-gateway-metadata': JSON.stringify({ team: "o'neil" }) };
    const sent = [await ask('one', metadata), await ask('two')];
    const keys = await until(
      () => bucket.keys('records').filter((key) => key.startsWith('columns/')),
      (found) => found.length > 1,
    );
    expect(keys[0]).toMatch(/^columns\/date=\d{4}-\d\d-\d\d\/hour=\d\d\/\d{8}T\d{6}Z-[0-9a-f]{32}\.parquet$/);
    const dir = await mkdtemp(join(tmpdir(), 'sluice-parquet-'));
    const engine = await openEngine({ memory: '128MB', threads: 1, temporary: join(dir, 'spill') });
    try {
      for (const [at, key] of keys.entries()) {
        await writeFile(join(dir, `${at}.parquet`), (await bucket.read('records', key)) ?? '');
      }
      const connection = await engine.connect();
      // The sample has no bodies.
      const files = `read_parquet('${dir}/*.parquet', union_by_name = true)`;
      const columns = await rowsOf(connection, { sql: `DESCRIBE SELECT * FROM ${files}`, values: [] });
      const types = Object.fromEntries(columns.map((one) => [one.column_name, one.column_type]));
      expect(types).toMatchObject({
        ...{ id: 'VARCHAR', created_at: 'TIMESTAMP WITH TIME ZONE', total_units: 'BIGINT', cost: 'DOUBLE' },
        ...{ is_success: 'BOOLEAN', metadata: 'MAP(VARCHAR, VARCHAR)', request: 'VARCHAR', attempts: 'VARCHAR' },
      });
      expect(Object.keys(types).sort()).toEqual([...DESTINATION_FIELDS].sort());
      const sql = `SELECT id, total_units AS units, metadata['team'] AS team, request->'$.messages[0].content' AS text FROM ${files} WHERE source = 'llm' ORDER BY id`;
      expect(await rowsOf(connection, { sql, values: [] })).toEqual([
        { id: sent[0], units: 12, team: "o'neil", text: '"one"' },
        { id: sent[1], units: 12, team: null, text: '"two"' },
      ]);
      connection.closeSync();
    } finally {
      engine.closeSync();
      await rm(dir, { recursive: true });
    }
    await remove(id);
  });

  it('that begins in the past gets stored requests, too, each once', async () => {
    receiver.calls.length = 0;
    const before = await server.records();
    const start_at = new Date(Math.min(...before.map(({ time }) => Number(time)))).toISOString();
    const id = await make({ kind: 'webhook', webhook: { url: receiver.url }, start_at });
    const now = await ask('now');
    await until(
      () => idsAt(receiver),
      (ids) => ids.length >= before.length + 1,
    );
    expect(idsAt(receiver).sort()).toEqual([...before.map((record) => record.id), now].sort());
    await until(
      () => read(id),
      ({ state }) => (state as { backfilling: boolean }).backfilling === false,
    );
    await remove(id);
  });

  it('gets what its filter and its sample take, of its workspace and of no other', async () => {
    receiver.calls.length = 0;
    const other = await server.admin('POST', '/admin/workspaces', { name: 'Beside' });
    const beside = await make({ kind: 'webhook', webhook: { url: receiver.url }, workspace_id: other.body.id });
    const filtered = await make({
      kind: 'webhook',
      webhook: { url: receiver.url },
      filters: { metadata: { team: 'red' } },
    });
    const none = await make({ kind: 'webhook', webhook: { url: receiver.url }, sample: 0 });
    const whole = await make({
      kind: 'webhook',
      webhook: { url: receiver.url },
      workspace_id: undefined,
      organisation_id: server.first.organisation_id,
    });
    const red = await ask('red', { 'x-gateway-metadata': '{"team":"red"}' });
    const blue = await ask('blue', { 'x-gateway-metadata': '{"team":"blue"}' });
    const by = () =>
      Object.groupBy(
        receiver.calls.flatMap(({ text }) => {
          const { data } = JSON.parse(text);
          return data.records.map((record: { id: string }) => [data.destination_id, record.id] as const);
        }),
        ([destination]) => destination,
      );
    await until(by, (found) => (found[whole]?.length ?? 0) >= 2 && (found[filtered]?.length ?? 0) >= 1);
    expect(
      by()
        [whole]?.map(([, id]) => id)
        .sort(),
    ).toEqual([red, blue].sort());
    expect(by()[filtered]?.map(([, id]) => id)).toEqual([red]);
    expect([by()[beside], by()[none]]).toEqual([undefined, undefined]);
    for (const id of [beside, filtered, none, whole]) await remove(id);
  });

  it('that is switched off waits, and loses nothing', async () => {
    receiver.calls.length = 0;
    const id = await make({ kind: 'webhook', webhook: { url: receiver.url }, enabled: false });
    const sent = await ask('while it is off');
    await until(
      () => read(id),
      ({ state }) => (state as { waiting: number }).waiting === 1,
    );
    expect(receiver.calls).toEqual([]);
    await server.admin('PUT', `/log-destinations/${id}`, { enabled: true });
    await until(
      () => idsAt(receiver),
      (ids) => ids.includes(sent),
    );
    await remove(id);
  });

  it('never gets a field that the organisation denies, whenever it was denied', async () => {
    receiver.calls.length = 0;
    collector.calls.length = 0;
    const deny = async (deniedFields: string[]) => {
      const answer = await server.admin('PUT', '/admin/organisation/settings', { export_settings: { deniedFields } });
      expect(answer.status).toBe(200);
    };
    const url = `${collector.url}/v1/traces`;
    const ids = [
      await make({ kind: 'webhook', webhook: { url: receiver.url } }),
      await make({ kind: 'otlp', otlp: { url }, bodies: true }),
    ];
    await deny(['ai_model', 'metadata', 'request']);
    const refused = await server.admin('POST', '/log-destinations', {
      name: 'x',
      kind: 'webhook',
      workspace_id: server.first.workspace_id,
      webhook: { url: receiver.url },
      fields: ['ai_model'],
    });
    expect([refused.status, JSON.stringify(refused.body)]).toEqual([403, expect.stringContaining('ai_model')]);
    await ask('canary-denied-prompt', { 'x-gateway-metadata': '{"_user":"canary-user"}' });
    await until(
      () => [receiver.calls.length, collector.calls.length],
      (counts) => counts.every((count) => count > 0),
    );
    const bytes =
      receiver.calls.map(({ text }) => text).join() + collector.calls.map(({ body }) => body.toString('latin1')).join();
    expect(bytes).toContain('openai');
    expect(['gpt-x', 'canary-user', '"content":"canary-denied'].filter((text) => bytes.includes(text))).toEqual([]);
    await deny([]);
    for (const id of ids) await remove(id);
  });

  it('tells what the far side answers to a sample', async () => {
    const id = await make({ kind: 'webhook', webhook: { url: receiver.url } });
    const test = async () => (await server.admin('POST', `/log-destinations/${id}/test`, {})).body;
    expect(await test()).toMatchObject({ delivered: true, status: 200, answer: '{"taken":true}', message: null });
    receiver.refuse = { status: 401, body: 'no such key' };
    expect(await test()).toMatchObject({
      delivered: false,
      status: 401,
      answer: 'no such key',
      message: 'The receiver answered 401.',
    });
    receiver.refuse = null;
    await remove(id);
  });

  it('may not lead to a private address, and asks for its secrets again when it leads elsewhere', async () => {
    const put = (id: string, body: object) => server.admin('PUT', `/log-destinations/${id}`, body);
    for (const url of ['http://127.0.0.1:1/x', 'https://10.0.0.1/', 'https://localhost/', 'ftp://a.example/']) {
      const body = { name: 'x', kind: 'webhook', webhook: { url }, workspace_id: server.first.workspace_id };
      const made = await server.admin('POST', '/log-destinations', body);
      // Names are judged when they are called, addresses before.
      if (made.status === 200) {
        const { id } = made.body as unknown as Made;
        const tried = await server.admin('POST', `/log-destinations/${id}/test`, {});
        expect(tried.body).toMatchObject({ delivered: false, status: null });
        await remove(id);
      } else expect([url, made.status]).toEqual([url, 400]);
    }
    const id = await make({ kind: 'otlp', otlp: { url: 'https://a.example/v1/traces', headers: { 'x-key': HEADER } } });
    const shown = (await read(id)).otlp as { url: string; headers: Record<string, string> };
    expect(shown.url).toMatch(/^https:\/\/a\.example\/\*{7}[0-9a-f]{8}$/);
    expect(shown.headers['x-key']).toMatch(/^\*{7}[0-9a-f]{8}$/);
    expect((await put(id, { otlp: shown })).status).toBe(200);
    const moved = await put(id, { otlp: { ...((await read(id)).otlp as object), url: 'https://b.example/v1/traces' } });
    expect([moved.status, JSON.stringify(moved.body)]).toEqual([400, expect.stringContaining('must be sent again')]);
    expect((await put(id, { otlp: { url: 'https://b.example/v1/traces', headers: { 'x-key': 'new' } } })).status).toBe(
      200,
    );
    await remove(id);
  });

  it('is one of five of its kind', async () => {
    const ids: string[] = [];
    for (let n = 0; n < 5; n++) ids.push(await make({ kind: 'webhook', webhook: { url: 'https://a.example/' } }));
    const body = {
      name: 'x',
      kind: 'webhook',
      webhook: { url: 'https://a.example/' },
      workspace_id: server.first.workspace_id,
    };
    const sixth = await server.admin('POST', '/log-destinations', body);
    expect(sixth.status).toBe(409);
    for (const id of ids) await remove(id);
  });

  it('leaves none of its secrets on the disk or in the audit log', async () => {
    const found = await Promise.all(SECRETS.map((secret) => filesWith(server.dataDir, secret)));
    expect(found.flat()).toEqual([]);
    const audit = await server.admin('GET', '/audit-logs?page_size=100');
    expect(SECRETS.filter((secret) => JSON.stringify(audit.body).includes(secret))).toEqual([]);
  });
});
