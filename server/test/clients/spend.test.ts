/** Analytics and limits count the same money, through a whole server. */
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server?.stop());

interface Row {
  readonly metadata_value: string;
  readonly requests: number;
  readonly cost_micros: number;
}
interface Entity {
  readonly value_key: string;
  readonly current_usage: number;
}

it('what teams have spent equals what their budgets say, to half a micro-dollar for each request', async () => {
  const key = server.first.workspace_api_key;
  const made = await server.admin(
    'POST',
    '/policies/usage-limits',
    {
      name: 'Spend of each team',
      type: 'cost',
      credit_limit: 1_000,
      conditions: [{ key: 'workspace_id', value: '*' }],
      group_by: [{ key: 'metadata.team' }],
    },
    key,
  );
  expect(made.status, JSON.stringify(made.body)).toBe(200);
  const models = ['@sandbox/echo', '@sandbox/lorem', '@sandbox/error'];
  const statuses = new Set<number>();
  for (let n = 0; n < 24; n++) {
    const body = { model: models[n % 3], messages: [{ role: 'user', content: 'Sluice '.repeat(n + 1) }] };
    const headers = { 'x-gateway-metadata': JSON.stringify({ team: ['search', 'support'][n % 2] }) };
    const answer = await server.call('/chat/completions', body, headers);
    statuses.add(answer.status);
    await answer.text();
  }
  expect([...statuses].sort()).toEqual([200, 500]);
  // Spent elsewhere: no limit counts it.
  const custom = {
    request: {
      url: 'https://api.openai.com/v1/chat/completions',
      headers: { 'x-gateway-provider': 'openai' },
      body: { model: 'gpt-4o' },
    },
    response: { body: { usage: { prompt_tokens: 1_000, completion_tokens: 500 } } },
    metadata: { team: 'search' },
  };
  expect((await server.admin('POST', '/logs', custom, key)).status).toBe(200);
  const range = new URLSearchParams({
    time_of_generation_min: new Date(Date.now() - 3_600_000).toISOString(),
    time_of_generation_max: new Date(Date.now() + 3_600_000).toISOString(),
  });
  const spent = async (more: string) =>
    (await server.admin('GET', `/analytics/groups/metadata/team?${range}${more}`)).body.data as Row[];
  const own = await spent('&source=llm');
  expect(own.map(({ requests }) => requests)).toEqual([12, 12]);
  const counted = async () => {
    const { body } = await server.admin('GET', `/policies/usage-limits/${made.body.id}/entities`, undefined, key);
    const entities = new Map((body.data as Entity[]).map((one) => [one.value_key, one.current_usage * 1e6]));
    return own.map(
      (row) => Math.abs((entities.get(`metadata.team:${row.metadata_value}`) ?? 0) - row.cost_micros) / row.requests,
    );
  };
  // What was used arrives a moment after the answer.
  await expect
    .poll(async () => Math.max(...(await counted())), { timeout: 5_000, interval: 50 })
    .toBeLessThanOrEqual(0.5);
  expect(own.every(({ cost_micros }) => cost_micros > 50)).toBe(true);
  const all = (await spent('')).find(({ metadata_value }) => metadata_value === 'search');
  const search = own.find(({ metadata_value }) => metadata_value === 'search');
  expect((all?.cost_micros ?? 0) - (search?.cost_micros ?? 0)).toBe(7_500);
});

it('records, sums of hours and the budget of a team agree after streams, retries, fallbacks, hits, denials and clients that left', async () => {
  const key = server.first.workspace_api_key;
  const team = 'mixed';
  const made = await server.admin(
    'POST',
    '/policies/usage-limits',
    {
      name: 'Mixed',
      type: 'cost',
      credit_limit: 1_000,
      conditions: [{ key: 'metadata.team', value: team }],
      group_by: [{ key: 'metadata.team' }],
    },
    key,
  );
  expect(made.status, JSON.stringify(made.body)).toBe(200);
  const send = async (model: string, config: object | null, more: object = {}) => {
    const body = { model, messages: [{ role: 'user', content: 'Write about sluices.' }], ...more };
    const headers = {
      'x-gateway-metadata': JSON.stringify({ team }),
      ...(config === null ? {} : { 'x-gateway-config': JSON.stringify(config) }),
    };
    return server.call('/chat/completions', body, headers);
  };
  const denied = { output_guardrails: [{ 'default.contains': { words: ['a'], operator: 'none' }, deny: true }] };
  const other = {
    strategy: { mode: 'fallback' },
    targets: [{ override_params: { model: '@sandbox/error' } }, { override_params: { model: '@sandbox/lorem' } }],
  };
  const statuses: number[] = [];
  for (const [model, config, more] of [
    ['@sandbox/lorem', null, { stream: true }],
    ['@sandbox/error?status=429&times=1&id=spend', { retry: { attempts: 1 } }, {}],
    ['@sandbox/echo', other, {}],
    ['@sandbox/lorem', { cache: { mode: 'simple' } }, {}],
    ['@sandbox/lorem', { cache: { mode: 'simple' } }, {}],
    ['@sandbox/lorem', denied, {}],
    ['@sandbox/error', null, {}],
  ] as const) {
    const answer = await send(model, config, more);
    statuses.push(answer.status);
    await answer.text();
  }
  expect(statuses).toEqual([200, 200, 200, 200, 200, 446, 500]);
  const left = await send('@sandbox/slow?ttft_ms=1&tokens_per_s=20&tokens=50', null, { stream: true });
  await left.body?.getReader().cancel();
  const mine = async () =>
    (await server.records()).filter(({ metadata }) => (metadata as { team?: string } | null)?.team === team);
  await expect.poll(async () => (await mine()).length, { timeout: 5_000 }).toBe(8);
  const records = await mine();
  expect(new Set(records.map(({ outcome }) => outcome))).toEqual(new Set(['ok', 'refused', 'failed', 'aborted']));
  const cost = records.reduce((sum, { cost_micros }) => sum + Number(cost_micros ?? 0), 0);
  const used = async () => {
    const { body } = await server.admin('GET', `/policies/usage-limits/${made.body.id}/entities`, undefined, key);
    return ((body.data as Entity[])[0]?.current_usage ?? 0) * 1e6;
  };
  await expect
    .poll(async () => Math.abs((await used()) - cost), { timeout: 5_000, interval: 50 })
    .toBeLessThanOrEqual(records.length / 2);
  expect(cost).toBeGreaterThan(200);

  // All that this file has sent, as it was added up when it came into files.
  const all = (await server.records()).reduce((sum, { cost_micros }) => sum + Number(cost_micros ?? 0), 0);
  await server.running.logs.flush();
  const store = new DatabaseSync(join(server.dataDir, 'control.db'), { readOnly: true });
  const [hours] = store.prepare('SELECT sum(cost_micros) AS cost FROM log_hours').all();
  store.close();
  expect(Number(hours?.cost)).toBe(all);
});
