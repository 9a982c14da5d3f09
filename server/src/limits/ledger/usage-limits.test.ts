/** Usage limits through the whole server: what is refused, what is counted, what is shown. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { budgetKey, eventually, settledBooks } from '../../../test/support/budgets.ts';
import { startServer, type TestServer } from '../../../test/support/server.ts';

let server: TestServer;

beforeAll(async () => {
  server = await startServer();
}, 60_000);

afterAll(() => server.stop());

const messages = [{ role: 'user', content: 'Hello, Sluice' }];

const key = (more: object = {}) => budgetKey(server, more);

const chat = (caller: string, more: object = {}, headers: Record<string, string> = {}) =>
  server.call(
    '/chat/completions',
    { model: '@sandbox/echo', messages, max_tokens: 20, ...more },
    { 'x-gateway-api-key': caller, ...headers },
  );

async function policy(more: object): Promise<string> {
  const made = await server.admin('POST', '/policies/usage-limits', {
    name: 'team budget',
    workspace_id: server.first.workspace_id,
    group_by: [{ key: 'api_key' }],
    type: 'requests',
    credit_limit: 2,
    ...more,
  });
  expect(made.body).toEqual({ id: expect.any(String), object: 'policy_usage_limits' });
  return String(made.body.id);
}

describe('a usage-limits policy', () => {
  it('lets through what the limit allows, refuses the rest by name, and opens when it is raised or reset', async () => {
    const caller = await key();
    const id = await policy({ conditions: [{ key: 'api_key', value: caller.id }] });
    await eventually(
      async () => (await chat(caller.key)).status,
      (status) => status === 412,
    );
    const refused = await chat(caller.key);
    expect(refused.status).toBe(412);
    expect(await refused.json()).toEqual({
      error: {
        message: expect.stringContaining(`Budget "team budget" is used up for API key ${caller.id}`),
        type: 'usage_limit_exceeded',
        param: null,
        code: '412',
      },
    });
    const list = await eventually(
      () => server.admin('GET', `/policies/usage-limits/${id}/entities?status=exhausted`),
      ({ body }) => body.total === 1,
    );
    expect(list.body).toMatchObject({
      object: 'list',
      total: 1,
      data: [{ value_key: `api_key:${caller.id}`, current_usage: 2, status: 'exhausted' }],
    });
    expect((await server.admin('PUT', `/v2/policies/usage-limits/${id}`, { credit_limit: 3 })).body).toEqual({});
    expect((await server.admin('GET', `/policies/usage-limits/${id}?include_usage=true`)).body).toMatchObject({
      credit_limit: 3,
      value_key_usage_map: { [`api_key:${caller.id}`]: { current_usage: 2, status: 'active' } },
    });
    const opened = await eventually(
      async () => (await chat(caller.key)).status,
      (status) => status === 200,
    );
    expect(opened).toBe(200);
    const entity = (list.body.data as { id: string }[])[0]?.id;
    expect((await server.admin('PUT', `/policies/usage-limits/${id}/entities/${entity}/reset`)).body).toEqual({});
    const shown = await server.admin('GET', `/policies/usage-limits/${id}/entities`);
    expect(shown.body.data).toMatchObject([{ current_usage: 0, status: 'active', last_reset_at: expect.any(String) }]);
    expect((await server.admin('DELETE', `/policies/usage-limits/${id}`)).body).toEqual({});
  });

  it('counts what a stream cost, to the micro-dollar', async () => {
    const caller = await key();
    const id = await policy({ conditions: [{ key: 'api_key', value: caller.id }], type: 'cost', credit_limit: 1 });
    for (let i = 0; i < 5; i++) await (await chat(caller.key, { stream: true })).text();
    const mine = (await server.records()).filter((record) => record.api_key_id === caller.id);
    const { used } = await settledBooks(server, id);
    const cost = mine.reduce((sum, record) => sum + Number(record.cost_micros), 0);
    const shown = await server.admin('GET', `/policies/usage-limits/${id}/entities`);
    expect(shown.body.data).toMatchObject([{ current_usage: used / 1e6 }]);
    expect(mine).toHaveLength(5);
    expect(cost).toBeGreaterThan(0);
    expect(Math.abs(used - cost)).toBeLessThanOrEqual(mine.length);
  });
});

describe('limits of keys, workspaces and providers', () => {
  it('an API key is exhausted at its limit, says so, and works again after reset_usage', async () => {
    const caller = await key({ usage_limits: { type: 'tokens', credit_limit: 5, alert_threshold: 1 } });
    expect((await chat(caller.key)).status).toBe(200);
    await eventually(
      async () => (await server.admin('GET', `/api-keys/${caller.id}`)).body.status,
      (status) => status === 'exhausted',
    );
    const refused = await chat(caller.key);
    expect(refused.status).toBe(412);
    expect(JSON.stringify(await refused.json())).toContain('API key limited is used up');
    const { body } = await server.admin('GET', `/api-keys/${caller.id}?include_usage=true`);
    expect(body).toMatchObject({ status: 'exhausted', usage_limits: { status: 'exhausted', credit_limit: 5 } });
    expect((body.usage_limits as { current_usage: number }).current_usage).toBeGreaterThanOrEqual(5);
    expect((await server.admin('PUT', `/api-keys/${caller.id}`, { reset_usage: true })).status).toBe(200);
    expect((await server.admin('GET', `/api-keys/${caller.id}`)).body).toMatchObject({
      status: 'active',
      usage_limits: { status: 'active', current_usage: 0 },
    });
    const status = await eventually(
      async () => (await chat(caller.key)).status,
      (now) => now === 200,
    );
    expect(status).toBe(200);
  });

  it('crossing the alert threshold and being used up leave one audit row each', async () => {
    const caller = await key({ usage_limits: { type: 'tokens', credit_limit: 5, alert_threshold: 1 } });
    expect((await chat(caller.key)).status).toBe(200);
    const rows = async () => {
      const { body } = await server.admin(
        'GET',
        '/audit-logs?page_size=100&start_time=2020-01-01T00:00:00Z&end_time=2100-01-01T00:00:00Z',
      );
      const mine = Object.values(body)
        .flat()
        .filter((row) => JSON.stringify(row).includes(caller.id));
      return JSON.stringify(mine).match(/alert\\*":\\*"(?:threshold|exhausted)/g)?.length ?? 0;
    };
    let seen = 0;
    for (let i = 0; i < 4 && seen < 2; i++) seen = await eventually(rows, (count) => count >= 2);
    expect(seen).toBe(2);
  });

  it('a refused request uses nothing, and neither does a dry run', async () => {
    const caller = await key({ usage_limits: { type: 'tokens', credit_limit: 100_000 } });
    expect((await chat(caller.key, {}, { 'x-gateway-dry-run': 'true' })).status).toBe(200);
    expect((await chat(caller.key, { model: '@nowhere/model' })).status).toBe(400);
    await server.records();
    expect(await settledBooks(server, caller.id)).toEqual({ used: 0, reserved: 0, unpriced: 0 });
    const { body } = await server.admin('GET', `/api-keys/${caller.id}`);
    expect(body).toMatchObject({ usage_limits: { current_usage: 0, status: 'active' } });
  });
});

describe('what a policy is not', () => {
  const good = {
    conditions: [{ key: 'api_key', value: '*' }],
    group_by: [{ key: 'api_key' }],
    type: 'cost',
    credit_limit: 10,
  };
  it.each([
    [{ conditions: undefined }, 'conditions'],
    [{ conditions: [] }, 'conditions'],
    [{ conditions: [{ key: 'endpoint_type', value: 'embed' }] }, 'conditions[0].key'],
    [{ conditions: [good.conditions[0], good.conditions[0]] }, 'conditions[1].key'],
    [{ group_by: undefined }, 'group_by'],
    [{ group_by: [] }, 'group_by'],
    [{ type: undefined }, 'type'],
    [{ type: 'money' }, 'type'],
    [{ credit_limit: undefined }, 'credit_limit'],
    [{ credit_limit: -0.01 }, 'credit_limit'],
    [{ credit_limit: '10' }, 'credit_limit'],
    [{ credit_limit: null }, 'credit_limit'],
    [{ alert_threshold: 10 }, 'alert_threshold'],
    [{ alert_threshold: -1 }, 'alert_threshold'],
    [{ credit_limit: 0, alert_threshold: 0 }, 'alert_threshold'],
    [{ periodic_reset: 'daily' }, 'periodic_reset'],
    [{ periodic_reset_days: 0 }, 'periodic_reset_days'],
    [{ periodic_reset_days: 366 }, 'periodic_reset_days'],
    [{ periodic_reset_days: 1.5 }, 'periodic_reset_days'],
    [{ periodic_reset: 'weekly', periodic_reset_days: 7 }, 'periodic_reset_days'],
    [{ next_usage_reset_at: '2020-01-01T00:00:00Z' }, 'next_usage_reset_at'],
    [{ next_usage_reset_at: 'tomorrow' }, 'next_usage_reset_at'],
    [{ name: 'x'.repeat(256) }, 'name'],
    [{ description: 'x'.repeat(501) }, 'description'],
    [{ colour: 'red' }, 'colour'],
  ])('%j is refused with 400 and %s', async (more, param) => {
    const body = { workspace_id: server.first.workspace_id, ...good, ...more };
    const answer = await server.admin('POST', '/policies/usage-limits', body);
    expect(answer).toMatchObject({ status: 400, body: { error: { code: 'AB01', param } } });
  });

  it('type, group_by and workspace cannot be changed, and an update changes something', async () => {
    const made = await server.admin('POST', '/policies/usage-limits', {
      workspace_id: server.first.workspace_id,
      ...good,
    });
    const path = `/policies/usage-limits/${made.body.id}`;
    for (const field of [
      { type: 'cost' },
      { group_by: good.group_by },
      { workspace_id: server.first.workspace_id },
      {},
    ]) {
      expect((await server.admin('PUT', path, field)).status).toBe(400);
    }
    for (const [body, param] of [
      [{ alert_threshold: 10 }, 'alert_threshold'],
      [{ conditions: [] }, 'conditions'],
      [{ credit_limit: null }, 'credit_limit'],
      [{ reset_usage_for_value: 'api_key:nobody' }, 'reset_usage_for_value'],
    ] as const) {
      expect(await server.admin('PUT', path, body)).toMatchObject({ status: 400, body: { error: { param } } });
    }
    const next = `${new Date().getUTCFullYear() + 1}-05-06T07:08:09Z`;
    expect((await server.admin('PUT', path, { periodic_reset: 'monthly', next_usage_reset_at: next })).status).toBe(
      200,
    );
    expect((await server.admin('GET', path)).body).toMatchObject({
      periodic_reset: 'monthly',
      next_usage_reset_at: `${next.slice(0, 10)}T00:00:00.000Z`,
    });
    expect((await server.admin('DELETE', path)).status).toBe(200);
    expect((await server.admin('GET', path)).status).toBe(404);
    expect((await server.admin('GET', `${path}?status=archived`)).body).toMatchObject({ status: 'archived' });
  });
});
