/** Batches and fine-tuning jobs under usage limits, through the whole server on the sandbox. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { startServer, type TestServer } from '../support/server.ts';

let server: TestServer;

beforeAll(async () => {
  server = await startServer();
}, 60_000);
afterAll(() => server.stop());

type Json = Record<string, unknown>;

async function key(more: object): Promise<{ id: string; key: string }> {
  const made = await server.admin('POST', '/api-keys/workspace/service', {
    name: 'limited',
    workspace_id: server.first.workspace_id,
    scopes: ['completions.write'],
    ...more,
  });
  expect(made).toMatchObject({ status: 200 });
  return { id: String(made.body.id), key: String(made.body.key) };
}

async function policy(more: object): Promise<string> {
  const made = await server.admin('POST', '/policies/usage-limits', {
    workspace_id: server.first.workspace_id,
    group_by: [{ key: 'api_key' }],
    type: 'requests',
    ...more,
  });
  expect(made.status).toBe(200);
  return String(made.body.id);
}

async function eventually<T>(read: () => Promise<T>, good: (value: T) => boolean): Promise<T> {
  for (let i = 0; ; i++) {
    const value = await read();
    if (good(value) || i > 400) return value;
    await new Promise((resolve) => systemClock.after(25, () => resolve(undefined)));
  }
}

async function upload(caller: string, text: string, provider: string, purpose = 'batch'): Promise<string> {
  const form = new FormData();
  form.append('purpose', purpose);
  form.append('file', new Blob([text]), 'lines.jsonl');
  const answer = await fetch(`${server.url}/v1/files`, {
    method: 'POST',
    headers: { 'x-gateway-api-key': caller, 'x-gateway-provider': provider },
    body: form,
  });
  expect(answer.status, await answer.clone().text()).toBe(200);
  return String(((await answer.json()) as Json).id);
}

const lines = (count: number) =>
  Array.from({ length: count }, (_, i) =>
    JSON.stringify({
      custom_id: `l-${i}`,
      method: 'POST',
      url: '/v1/chat/completions',
      body: { messages: [{ role: 'user', content: `line ${i}` }], max_tokens: 20 },
    }),
  ).join('\n');

const create = (caller: string, body: object, headers: Record<string, string> = {}) =>
  server.call(
    '/batches',
    { endpoint: '/v1/chat/completions', model: 'echo', ...body },
    { 'x-gateway-api-key': caller, ...headers },
  );

async function ended(caller: string, id: string, headers: Record<string, string> = {}): Promise<Json> {
  const get = async () =>
    (await (
      await fetch(`${server.url}/v1/batches/${id}`, { headers: { 'x-gateway-api-key': caller, ...headers } })
    ).json()) as Json;
  return eventually(get, (batch) => ['completed', 'failed', 'cancelled', 'expired'].includes(String(batch.status)));
}

const SANDBOX = { 'x-gateway-virtual-key': 'sandbox' };
const usageOf = async (id: string) =>
  (await server.admin('GET', `/policies/usage-limits/${id}/entities`)).body.data as { current_usage: number }[];

describe('batches that Sluice runs line by line', () => {
  it('each line counts under the limits of the batch’s key, and one that meets the end of a limit fails with the 412 in the error file', async () => {
    const caller = await key({});
    const input = await upload(caller.key, lines(6), 'gateway');
    const id = await policy({ conditions: [{ key: 'metadata._team', value: 'search' }], credit_limit: 4 });
    const headers = { 'x-gateway-metadata': '{"_team":"search"}' };
    // The creation counts as a request as well, so three lines are left; its metadata holds for its lines.
    const body = { input_file_id: input, completion_window: 'immediate', gateway_options: SANDBOX };
    const made = (await (await create(caller.key, body, headers)).json()) as Json;
    const done = await ended(caller.key, String(made.id));
    expect(done).toMatchObject({ status: 'completed', request_counts: { total: 6, completed: 3, failed: 3 } });
    const errors = await fetch(`${server.url}/v1/files/${done.error_file_id}/content`, {
      headers: { 'x-gateway-api-key': caller.key },
    });
    const failed = (await errors.text())
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { response: Json });
    expect(failed.map((line) => line.response)).toMatchObject(
      Array.from({ length: 3 }, () => ({ status_code: 412, body: { error: { type: 'usage_limit_exceeded' } } })),
    );
    await eventually(
      () => usageOf(id),
      (data) => data[0]?.current_usage === 4,
    );
    expect(await usageOf(id)).toMatchObject([{ current_usage: 4 }]);
    const mine = (await server.records()).filter((record) => record.trace_id === made.id);
    expect(mine.map((record) => record.status).sort()).toEqual([200, 200, 200, 412, 412, 412]);
    expect(mine.filter((record) => record.status === 200).every((record) => Number(record.cost_micros) >= 0)).toBe(
      true,
    );
    await server.admin('DELETE', `/policies/usage-limits/${id}`);
  });
});

describe('batches and jobs at a provider', () => {
  it('are refused with 412 when a limit that only their body leads to is used up, before anything is stored', async () => {
    const caller = await key({});
    const input = await upload(caller.key, lines(1), 'gateway');
    const id = await policy({
      conditions: [
        { key: 'api_key', value: caller.id },
        { key: 'model', value: '@sandbox/echo' },
      ],
      credit_limit: 1,
    });
    const body = { input_file_id: input, completion_window: '24h', gateway_options: SANDBOX };
    await eventually(
      async () => (await create(caller.key, body)).status,
      (status) => status === 412,
    );
    const rows = async () => {
      const tables = await openSqliteTables({ file: join(server.dataDir, 'control.db'), log: silentLog });
      const count = await tables.systemRead((tx) => tx.count('batches', { where: { created_by: caller.id } }));
      await tables.close();
      return count;
    };
    const before = await rows();
    const refused = await create(caller.key, body);
    expect(refused.status).toBe(412);
    expect(JSON.stringify(await refused.json())).toContain('usage_limit_exceeded');
    expect(await rows()).toBe(before);
    await server.admin('DELETE', `/policies/usage-limits/${id}`);
  });

  it('a provider’s own batch is read, booked and recorded though nobody asks again; ledger and records tell the same', async () => {
    const caller = await key({ usage_limits: { type: 'tokens', credit_limit: 1_000_000 } });
    const input = await upload(caller.key, lines(4), '@sandbox');
    const at = { 'x-gateway-provider': '@sandbox' };
    const made = (await (
      await create(caller.key, { input_file_id: input, completion_window: '24h', model: 'echo?batch_ms=20' }, at)
    ).json()) as Json;
    expect(made.id).toEqual(expect.any(String));
    // Half a minute later than a test can wait.
    const tables = await openSqliteTables({ file: join(server.dataDir, 'control.db'), log: silentLog });
    await tables.systemWrite((tx) => tx.update('object_usage', { object_id: String(made.id) }, { due_at: 1 }));
    await tables.close();
    const found = await eventually(
      async () => (await server.records()).filter((record) => record.trace_id === made.id),
      (records) => records.length > 0,
    );
    expect(found).toMatchObject([{ operation: 'batch_create', provider: 'sandbox', error_code: null }]);
    const tokens = (usage: unknown) =>
      (usage as { input: number; output: number }).input + (usage as { output: number }).output;
    const shown = await server.admin('GET', `/api-keys/${caller.id}?include_usage=true`);
    const counted = (shown.body.usage_limits as { current_usage: number }).current_usage;
    expect(counted).toBe(tokens(found[0]?.usage));
    expect(counted).toBeGreaterThan(0);
    expect(Number(found[0]?.cost_micros)).toBeGreaterThan(0);
  });
});
