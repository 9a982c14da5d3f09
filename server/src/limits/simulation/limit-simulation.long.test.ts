/** Policies tried on stored requests (`POST /policies/{usage,rate}-limits/simulate`), through the whole server. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../../test/support/server.ts';

let server: TestServer;
const began = new Date(Date.now() - 60_000).toISOString();
const soon = () => new Date(Date.now() + 60_000).toISOString();

beforeAll(async () => {
  server = await startServer();
}, 60_000);

afterAll(() => server.stop());

type Kind = 'usage' | 'rate';

const USAGE = [
  { type: 'requests', credit_limit: 9 },
  { type: 'tokens', credit_limit: 200 },
  { type: 'cost', credit_limit: 0.00002 },
] as const;
const RATES = [
  { type: 'requests', unit: 'rpw', value: 9 },
  { type: 'tokens', unit: 'rpw', value: 120 },
] as const;

async function make(kind: Kind, marker: string, more: object): Promise<string> {
  const made = await server.admin('POST', `/policies/${kind}-limits`, {
    workspace_id: server.first.workspace_id,
    conditions: [{ key: 'metadata.marker', value: marker }],
    group_by: [{ key: 'metadata.user' }],
    ...more,
  });
  expect(made).toMatchObject({ status: 200 });
  return String(made.body.id);
}

/** Requests of three users, several at once; `max_tokens` is left out now and then. */
async function traffic(marker: string, count = 45): Promise<void> {
  let next = 0;
  const caller = async () => {
    for (let n = next++; n < count; n = next++) {
      const answer = await server.call(
        '/chat/completions',
        {
          model: '@sandbox/echo',
          messages: [{ role: 'user', content: `Hello ${'again and '.repeat(n % 4)}${n}` }],
          ...(n % 5 === 0 ? {} : { max_tokens: 20 + (n % 7) }),
          stream: n % 3 === 0,
        },
        { 'x-gateway-metadata': JSON.stringify({ marker, user: `user-${n % 3}` }) },
      );
      await answer.text();
    }
  };
  await Promise.all([caller(), caller(), caller(), caller()]);
}

// biome-ignore lint/suspicious/noExplicitAny: tests look into answers
type Any = any;

const recordsOf = async (marker: string): Promise<Any[]> =>
  (await server.records()).filter((record) => (record.metadata as Any)?.marker === marker);

const simulate = async (kind: Kind, body: object, key?: string): Promise<{ status: number; body: Any }> =>
  server.admin('POST', `/policies/${kind}-limits/simulate`, { start_time: began, end_time: soon(), ...body }, key);

describe('the policy in force, tried on its own history', () => {
  it.each([
    ...USAGE.map((policy) => ['usage', policy.type, policy] as const),
    ...RATES.map((policy) => ['rate', policy.type, policy] as const),
  ])(
    'a %s limit of %s blocks the requests that it blocked, and no others',
    async (kind, type, policy) => {
      const marker = `${kind}-${type}`;
      const id = await make(kind, marker, policy);
      const start = new Date().toISOString();
      await traffic(marker);
      const records = await recordsOf(marker);
      const refused = records.filter((record) => record.limits?.refused?.id === id);
      expect(records).toHaveLength(45);
      expect(refused.length).toBeGreaterThan(3);
      expect(refused.length).toBeLessThan(42);
      const { status, body } = await simulate(kind, { policy_id: id, start_time: start });
      expect([status, body.reasons.filter((reason: Any) => reason.code !== 'requests_running')]).toEqual([200, []]);
      expect(body.history).toEqual({
        blocked: refused.length,
        blocked_in_both: refused.length,
        blocked_only_in_history: 0,
        blocked_only_in_simulation: 0,
      });
      expect(body).toMatchObject({ object: 'policy_simulation', policy_id: id, type, complete: true });
      expect(body.totals).toMatchObject({ requests_matched: 45, requests_blocked: refused.length });
      expect(new Set(body.blocked_sample.map((sample: Any) => sample.request_id))).toEqual(
        new Set(refused.map((record) => record.id)),
      );
      const series = body.series.reduce((sum: number, step: Any) => sum + step.blocked, 0);
      expect(series).toBe(refused.length);
      expect(body.values.map((value: Any) => value.value_key).sort()).toEqual(
        ['user-0', 'user-1', 'user-2'].map((user) => `metadata.user:${user}`),
      );
    },
    60_000,
  );

  it('a stricter one blocks what is counted by hand, and says for whom and since when', async () => {
    const marker = 'strict';
    const id = await make('usage', marker, { type: 'requests', credit_limit: 1000 });
    const start = new Date().toISOString();
    await traffic(marker, 30);
    const records = (await recordsOf(marker)).sort((a, b) => a.limits.usage_at - b.limits.usage_at);
    const seen = new Map<string, number>();
    const blocked = records.filter(({ metadata }) => {
      const count = (seen.get(metadata.user) ?? 0) + 1;
      seen.set(metadata.user, count);
      return count > 4;
    });
    const ids = new Set(blocked.map((record) => record.id));
    for (const subject of [
      { policy_id: id, changes: { credit_limit: 4 } },
      {
        workspace_id: server.first.workspace_id,
        policy: {
          type: 'requests',
          credit_limit: 4,
          conditions: [{ key: 'metadata.marker', value: marker }],
          group_by: [{ key: 'metadata.user' }],
        },
      },
    ]) {
      const { status, body } = await simulate('usage', { ...subject, start_time: start });
      expect(status).toBe(200);
      expect(body.totals.requests_blocked).toBe(18);
      expect(new Set(body.blocked_sample.map((sample: Any) => sample.request_id))).toEqual(ids);
      expect(body.values).toHaveLength(3);
      for (const value of body.values) {
        expect(value).toMatchObject({ requests: 10, blocked: 6, usage: 4, peak_usage: 4 });
      }
      expect(Date.parse(body.totals.first_blocked_at)).toBe(Math.floor(blocked[0].limits.usage_at));
      const cost = blocked.reduce((sum, record) => sum + record.cost_micros, 0);
      expect(Math.round(body.totals.cost_blocked * 1e6)).toBe(cost);
    }
    const rates = await simulate('rate', {
      workspace_id: server.first.workspace_id,
      start_time: start,
      policy: {
        type: 'requests',
        unit: 'rpw',
        value: 4,
        conditions: [{ key: 'metadata.marker', value: marker }],
        group_by: [{ key: 'metadata.user' }],
      },
    });
    expect(rates.body.totals.requests_blocked).toBe(18);
  }, 60_000);
});

describe('a config that sends another model', () => {
  it('is seen with the model that it sends, as by the policy in force', async () => {
    const start = new Date().toISOString();
    const policy = (model: string) => ({
      type: 'requests',
      credit_limit: 1,
      conditions: [
        { key: 'metadata.marker', value: 'sent' },
        { key: 'model', value: `@sandbox/${model}` },
      ],
      group_by: [{ key: 'workspace_id' }],
    });
    const config = JSON.stringify({ provider: 'sandbox', override_params: { model: 'echo' } });
    for (let i = 0; i < 3; i++) {
      const answer = await server.call(
        '/chat/completions',
        { model: 'asked', messages: [{ role: 'user', content: 'Hi' }] },
        { 'x-gateway-config': config, 'x-gateway-metadata': '{"marker":"sent"}' },
      );
      expect([answer.status, await answer.text()]).toEqual([200, expect.anything()]);
    }
    const [record] = await recordsOf('sent');
    expect(record).toMatchObject({ model_requested: 'asked', model_sent: 'echo' });
    const matched = async (model: string) => {
      const asked = { workspace_id: server.first.workspace_id, start_time: start, policy: policy(model) };
      const { status, body } = await simulate('usage', asked);
      expect(status).toBe(200);
      return [body.totals.requests_matched, body.totals.requests_blocked];
    };
    expect([await matched('echo'), await matched('asked')]).toEqual([
      [3, 2],
      [0, 0],
    ]);
  });
});

describe('who sees what', () => {
  it('a simulation in one workspace sees nothing of another one, and no policy of it', async () => {
    const made = await server.admin('POST', '/admin/workspaces', { name: 'Elsewhere' });
    expect(made.status).toBe(200);
    const key = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'elsewhere',
      workspace_id: made.body.id,
      scopes: ['policies.read'],
    });
    const other = String(key.body.key);
    const policy = {
      type: 'requests',
      credit_limit: 0,
      conditions: [{ key: 'api_key', value: '*' }],
      group_by: [{ key: 'workspace_id' }],
    };
    const there = await simulate('usage', { policy }, other);
    expect(there).toMatchObject({ status: 200, body: { totals: { requests_seen: 0, requests_blocked: 0 } } });
    const here = await simulate('usage', { policy, workspace_id: server.first.workspace_id });
    expect(here.body.totals.requests_seen).toBeGreaterThan(100);
    const id = await make('usage', 'nobody', { type: 'requests', credit_limit: 1 });
    expect(await simulate('usage', { policy_id: id }, other)).toMatchObject({
      status: 404,
      body: { error: { code: 'AB02', param: 'policy_id' } },
    });
    const blind = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'blind',
      workspace_id: server.first.workspace_id,
      scopes: ['completions.write'],
    });
    expect(await simulate('usage', { policy_id: id }, String(blind.body.key))).toMatchObject({
      status: 403,
      body: { error: { code: 'AB03' } },
    });
  });

  const policy = {
    type: 'requests',
    conditions: [{ key: 'api_key', value: '*' }],
    group_by: [{ key: 'api_key' }],
  };
  const usage = { ...policy, credit_limit: 1 };

  it.each([
    [{}, 'policy'],
    [{ policy: usage, policy_id: '0197b7a1-7d6e-7c64-8f1e-5a0d6a0e7d11' }, 'policy_id'],
    [{ policy: usage, changes: { credit_limit: 2 } }, 'changes'],
    [{ policy: { ...usage, credit_limit: -1 } }, 'policy.credit_limit'],
    [{ policy: { ...usage, type: 'bananas' } }, 'policy.type'],
    [{ policy: { ...usage, workspace_id: 'x' } }, 'policy.workspace_id'],
    [{ policy: { ...usage, alert_threshold: 2 } }, 'policy.alert_threshold'],
    [{ policy: { ...usage, conditions: [{ key: 'nonsense', value: 'x' }] } }, 'policy.conditions[0].key'],
    [{ policy: usage, start_time: 'yesterday' }, 'start_time'],
    [{ policy: usage, start_time: '2999-01-01T00:00:00Z', end_time: '2999-01-02T00:00:00Z' }, 'start_time'],
    [{ policy: usage, start_time: '2026-01-02T00:00:00Z', end_time: '2026-01-02T00:00:00Z' }, 'end_time'],
    [{ policy: usage, start_time: '2026-01-01T00:00:00Z', end_time: '2026-04-04T00:00:00Z' }, 'end_time'],
    [{ policy: usage, window: 'month' }, 'window'],
  ])('%o is refused at %s', async (body, param) => {
    const { status, body: answer } = await simulate('usage', { workspace_id: server.first.workspace_id, ...body });
    expect([status, answer.error?.code, answer.error?.param]).toEqual([400, 'AB01', param]);
  });

  it('writes nothing: no audit row, whatever it answers', async () => {
    await simulate('usage', { policy: usage, workspace_id: server.first.workspace_id });
    const { body } = await server.admin(
      'GET',
      '/audit-logs?start_time=2020-01-01T00:00:00Z&end_time=2100-01-01T00:00:00Z&page_size=100',
    );
    const uris = (body as Any).data?.map((row: Any) => row.uri) ?? (body as Any).records?.map((row: Any) => row.uri);
    expect(uris.length).toBeGreaterThan(0);
    expect(uris.filter((uri: string) => uri.includes('simulate'))).toEqual([]);
  });
});

describe('what a counter says of the time to come', () => {
  it('tells limit, rest, pace and when it is used up, in the list of counters and in the policy', async () => {
    const marker = 'pace';
    const id = await make('usage', marker, { type: 'requests', credit_limit: 1000, periodic_reset_days: 30 });
    await traffic(marker, 30);
    let data: Any[] = [];
    for (let i = 0; i < 100; i++) {
      ({ data } = (await server.admin('GET', `/policies/usage-limits/${id}/entities`)).body as Any);
      if (data.length === 3 && data.every((entity) => entity.current_usage === 10 && entity.reserved === 0)) break;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    expect(data).toHaveLength(3);
    for (const entity of data) {
      expect(entity).toMatchObject({ current_usage: 10, credit_limit: 1000, remaining: 990, unpriced_requests: 0 });
      expect(entity.burn_rate).toBeGreaterThanOrEqual(9);
      expect(entity.burn_rate).toBeLessThanOrEqual(10);
      const hours = (Date.parse(entity.exhausts_at) - Date.now()) / 3_600_000;
      expect(hours).toBeGreaterThan(98);
      expect(hours).toBeLessThan(111);
      expect(Date.parse(entity.next_usage_reset_at)).toBeGreaterThan(Date.parse(entity.exhausts_at));
    }
    const { body } = await server.admin('GET', `/policies/usage-limits/${id}?include_usage=true`);
    expect((body as Any).value_key_usage_map['metadata.user:user-1']).toMatchObject({ remaining: 990 });
  });
});
