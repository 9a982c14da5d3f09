import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refused } from '../../../test/support/accounts.ts';
import { type AdminHarness, emptyTables, startAdmin } from '../../../test/support/admin.ts';
import { logRow, naiveLogs } from '../../../test/support/log-rows.ts';
import type { LogRow } from '../../telemetry/log-query.ts';
import { DIMENSIONS } from './columns.ts';

const { store, services } = naiveLogs();
let admin: AdminHarness;
beforeAll(async () => {
  admin = await startAdmin(await emptyTables('sqlite'), { admin: { services } });
});
afterAll(() => admin.close());

const NOON = Date.UTC(2026, 4, 4, 12);
const RANGE = { time_of_generation_min: '2026-05-04T00:00:00Z', time_of_generation_max: '2026-05-05T00:00:00Z' };

function keep(...rows: Partial<Record<string, LogRow[string]>>[]): void {
  const { organisation_id, workspace_id } = admin.a;
  store.rows = rows.map((more) => logRow({ organisation_id, workspace_id, time: NOON, ...more }));
}

const get = (path: string, more: Record<string, string> = {}) =>
  admin.call('GET', `/v1/${path}?${new URLSearchParams({ ...RANGE, ...more })}`);

async function list(path: string, more: Record<string, string> = {}) {
  const answer = await get(path, more);
  expect(answer.status, answer.text).toBe(200);
  expect(answer.body).toMatchObject({ object: 'list', complete_to: '2026-06-01T00:00:00.000Z' });
  return answer.body;
}

const object = 'analytics-group';

describe('requests in groups', () => {
  it('by user have requests and cost as texts, and leave out those without a user', async () => {
    const [ada, bob] = [{ metadata: { _user: 'ada' } }, { metadata: { _user: 'bob' } }];
    keep(ada, ada, bob, {});
    const answer = await list('analytics/groups/users');
    expect(answer.total).toBe(2);
    expect(answer.data).toEqual([
      { user: 'ada', requests: '2', cost: '2', cost_micros: 24_690, unpriced_requests: 0, object },
      { user: 'bob', requests: '1', cost: '1', cost_micros: 12_345, unpriced_requests: 0, object },
    ]);
    expect(answer.summary).toMatchObject({ requests: 3, cost_micros: 37_035 });
  });

  it('by model and by provider have requests as texts', async () => {
    keep({}, {}, { model: 'claude', provider: 'anthropic' });
    expect((await list('analytics/groups/ai-models')).data).toEqual([
      { ai_model: 'gpt-4o', requests: '2', object },
      { ai_model: 'claude', requests: '1', object },
    ]);
    expect((await list('analytics/groups/provider')).data).toEqual([
      { ai_org: 'openai', provider: 'openai', requests: '2', object },
      { ai_org: 'anthropic', provider: 'anthropic', requests: '1', object },
    ]);
  });

  it('by workspace are of the whole organisation, with slugs, and those of none last', async () => {
    keep({}, {}, { workspace_id: null });
    expect((await list('analytics/groups/workspaces')).data).toEqual([
      {
        workspace: admin.a.workspace_id,
        workspace_slug: admin.a.workspace_slug,
        workspace_name: expect.any(String),
        requests: 2,
        cost: 2,
        cost_micros: 24_690,
        unpriced_requests: 0,
        total_tokens: 300,
        object,
      },
      expect.objectContaining({ workspace: null, workspace_slug: null, requests: 1 }),
    ]);
  });

  it('by a key of the metadata have numbers, and when each value was seen last', async () => {
    keep(
      { metadata: { team: 'red' } },
      { metadata: { team: 'red' }, tokens_in: 1, tokens_out: 1 },
      { metadata: { x: 'y' } },
    );
    const answer = await list('analytics/groups/metadata/team');
    expect(answer.total).toBe(1);
    expect(answer.data).toEqual([
      {
        metadata_value: 'red',
        requests: 2,
        cost: 2,
        cost_micros: 24_690,
        unpriced_requests: 0,
        avg_tokens: 76,
        avg_weighted_feedback: 0,
        avg_weighted_feedback_exact: null,
        requests_with_feedback: 0,
        last_seen: '2026-05-04T12:00:00.000Z',
        object,
      },
    ]);
    for (const path of ['analytics/metadata/team', 'logs/metadata/team']) {
      expect((await list(path)).data).toEqual([{ value: 'red', requests: 2, object }]);
    }
    expect((await list('logs/groups/metadata/team')).data[0]).toMatchObject({
      metadata_value: 'red',
      value: 'red',
      requests: 2,
    });
  });

  it('by two keys of the metadata show the values of both', async () => {
    keep({ metadata: { team: 'red', stage: 'live' } }, { metadata: { team: 'red', stage: 'test' } }, {});
    const { data } = await list('analytics/groups/metadata/team', { and: 'metadata.stage' });
    expect(data.map((item: Record<string, unknown>) => [item.metadata_value, item.and_metadata_value])).toEqual([
      ['red', 'live'],
      ['red', 'test'],
    ]);
    const values = await list('analytics/metadata/team', { and: 'metadata.stage' });
    expect(values.data.map((item: Record<string, unknown>) => [item.value, item.metadata_value])).toEqual([
      ['red', 'live'],
      ['red', 'test'],
    ]);
  });

  it('by any property have the columns that are asked for', async () => {
    keep(
      { latency_us: 100_000 },
      { latency_us: 300_000, status: 500, cost_micros: null },
      { cache_status: 'HIT', saved_micros: 5_000, latency_us: 2_000 },
    );
    const columns =
      'cost,total_tokens,avg_tokens,avg_input_tokens,avg_output_tokens,avg_latency,p95_latency,p99_latency,' +
      'success_rate,error_count,cache_hit_rate,last_seen,first_seen,saved';
    for (const area of ['analytics', 'logs']) {
      const { data } = await list(`${area}/groups/model`, { columns });
      expect(data).toEqual([
        {
          model: 'gpt-4o',
          requests: 3,
          cost: 2,
          cost_micros: 24_690,
          unpriced_requests: 1,
          total_tokens: 450,
          avg_tokens: 150,
          avg_input_tokens: 100,
          avg_output_tokens: 50,
          avg_latency: 134,
          p95_latency: 300,
          p99_latency: 300,
          success_rate: 66.67,
          error_count: 1,
          cache_hit_rate: 33.33,
          last_seen: '2026-05-04T12:00:00.000Z',
          first_seen: '2026-05-04T12:00:00.000Z',
          saved: 1,
          saved_micros: 5_000,
          object,
        },
      ]);
    }
  });

  it('exist for every name of a property', async () => {
    keep({
      api_key_id: 'a',
      user_id: 'u',
      config_slug: 'pc',
      prompt_slug: 'p',
      error_code: 'x',
      metadata: { _user: 'e' },
    });
    for (const [name, { field }] of Object.entries(DIMENSIONS)) {
      const { data } = await list(`analytics/groups/${name}`);
      expect(data, name).toHaveLength(1);
      expect(data[0][field] ?? null, name).not.toBeNull();
    }
  });

  it('name the user of an id as it is called now', async () => {
    keep({ user_id: admin.a.user_id });
    expect((await list('analytics/groups/user')).data[0]).toMatchObject({
      user_id: admin.a.user_id,
      user_name: 'Ada Alpha',
    });
  });

  it('can be of two properties', async () => {
    keep({ metadata: { team: 'red' } }, { metadata: { team: 'red' }, model: 'b' }, { model: 'b' });
    const { data, total } = await list('analytics/groups/model', { and: 'metadata.team' });
    expect(total).toBe(3);
    expect(data.map(({ model, metadata_value }: Record<string, string>) => [model, metadata_value])).toEqual([
      ['b', 'red'],
      ['b', null],
      ['gpt-4o', 'red'],
    ]);
    expect((await list('analytics/groups/model', { and: 'status_code' })).data[0]).toMatchObject({
      model: 'b',
      status_code: 200,
      requests: 2,
    });
  });

  it('come in pages, by the column and the direction that are asked for', async () => {
    keep(
      { model: 'a', cost_micros: 1 },
      { model: 'a', cost_micros: 1 },
      { model: 'b', cost_micros: 50 },
      { model: 'c', cost_micros: 9 },
    );
    const models = async (more: Record<string, string>) =>
      (await list('analytics/groups/model', more)).data.map(({ model }: { model: string }) => model);
    expect(await models({})).toEqual(['a', 'b', 'c']);
    expect(await models({ order_by: 'cost' })).toEqual(['b', 'c', 'a']);
    expect(await models({ order_by: 'cost', order_by_type: 'asc' })).toEqual(['a', 'c', 'b']);
    expect(await models({ order_by: 'cost', page_size: '2' })).toEqual(['b', 'c']);
    expect(await models({ order_by: 'cost', page_size: '2', current_page: '1' })).toEqual(['a']);
  });

  it('tell their number unless it is not wanted', async () => {
    keep({}, { model: 'b' });
    expect((await list('analytics/groups/model', { page_size: '1' })).total).toBe(2);
    for (const name of ['includeTotal', 'include_total']) {
      expect(await list('analytics/groups/model', { [name]: 'false' })).not.toHaveProperty('total');
    }
  });

  it('are none of no requests', async () => {
    keep();
    expect(await list('analytics/groups/model')).toMatchObject({ total: 0, data: [], summary: { requests: 0 } });
    expect(await list('analytics/groups/users')).toMatchObject({
      total: 0,
      data: [],
      summary: { requests: 0, cost: 0 },
    });
  });

  it('by a name that is no property are refused by name', async () => {
    refused(await get('analytics/groups/weather'), 400, 'AB01', 'groupBy');
  });
});

describe('the summary of the cache', () => {
  it('tells hits, their latency, and how much faster they were than misses', async () => {
    keep(
      { latency_us: 100_000 },
      { cache_status: 'HIT', latency_us: 5_000, saved_micros: 12_345 },
      { cache_status: 'DISABLED' },
    );
    expect((await get('analytics/summary/cache')).body).toEqual({
      object: 'analytics-summary',
      summary: { hits: 1, avg_latency: 5, total_requests: 3, cache_speedup: 95, saved: 1, saved_micros: 12_345 },
      complete_to: '2026-06-01T00:00:00.000Z',
    });
    keep();
    expect((await get('analytics/summary/cache')).body.summary).toMatchObject({
      hits: 0,
      avg_latency: 0,
      cache_speedup: 0,
    });
  });
});

describe('a query', () => {
  it('is refused with the parameter at fault, and all that is wrong with it', async () => {
    const wrong: [Record<string, string>, string][] = [
      [{ time_of_generation_min: 'yesterday' }, 'time_of_generation_min'],
      [{ time_of_generation_max: RANGE.time_of_generation_min }, 'time_of_generation_max'],
      [{ time_of_generation_min: '2020-01-01T00:00:00Z' }, 'time_of_generation_max'],
      [{ cost_min: '-1' }, 'cost_min'],
      [{ cost_min: '2', cost_max: '1' }, 'cost_max'],
      [{ total_units_min: '1.5' }, 'total_units_min'],
      [{ status_code: '200,abc' }, 'status_code[1]'],
      [{ metadata: '{"a":1}' }, 'metadata'],
      [{ metadata: '{' }, 'metadata'],
      [{ ai_org_model: 'gpt-4o' }, 'ai_org_model[0]'],
      [{ api_key_ids: 'x' }, 'api_key_ids[0]'],
      [{ weighted_feedback_min: '11' }, 'weighted_feedback_min'],
      [{ colour: 'red' }, 'colour'],
      [{ workspace_slug: 'a b' }, 'workspace_slug'],
    ];
    for (const [more, param] of wrong) refused(await get('analytics/graphs/requests', more), 400, 'AB01', param);
    refused(await get('analytics/graphs/requests', { zone: 'Mars/Olympus' }), 400, 'AB01', 'zone');
    const several = await get('analytics/groups/model', { cost_min: 'x', order_by: 'y', page_size: '0' });
    expect(several.body.errors.map(({ param }: { param: string }) => param).sort()).toEqual([
      'cost_min',
      'order_by',
      'page_size',
    ]);
  });

  it('chooses requests by each of its conditions', async () => {
    const id = '00000000-0000-7000-8000-000000000001';
    const chosen: [Record<string, string>, Partial<Record<string, LogRow[string]>>][] = [
      [
        { total_units_min: '200', total_units_max: '200' },
        { tokens_in: 150, tokens_out: 50 },
      ],
      [{ cost_min: '2', cost_max: '3.5' }, { cost_micros: 35_000 }],
      [
        { prompt_token_min: '101', prompt_token_max: '101' },
        { tokens_in: 101, tokens_out: 1 },
      ],
      [
        { completion_token_min: '49', completion_token_max: '49' },
        { tokens_in: 1, tokens_out: 49 },
      ],
      [{ status_code: '429, 500' }, { status: 500 }],
      [{ virtual_keys: 'a,b' }, { provider_slug: 'b' }],
      [{ configs: 'pc-x' }, { config_slug: 'pc-x' }],
      [{ api_key_ids: id }, { api_key_id: id }],
      [{ user_ids: id }, { user_id: id }],
      [{ metadata: '{"team":["red","blue"],"x":"y"}' }, { metadata: { team: 'blue', x: 'y' } }],
      [{ ai_org_model: 'anthropic__claude' }, { provider: 'anthropic', model: 'claude' }],
      [{ ai_model: 'm' }, { model: 'm' }],
      [{ trace_id: 't' }, { trace_id: 't' }],
      [{ span_id: 's' }, { span_id: 's' }],
      [{ prompt_slug: 'p' }, { prompt_slug: 'p' }],
      [{ cache_status: 'HIT' }, { cache_status: 'HIT' }],
      [{ source: 'mcp,a2a' }, { source: 'a2a' }],
      [{ outcome: 'aborted' }, { outcome: 'aborted' }],
      [{ error_code: 'e' }, { error_code: 'e' }],
      [{ operation: 'embeddings' }, { operation: 'embeddings' }],
    ];
    keep({}, ...chosen.map(([, row]) => row));
    for (const [more, row] of chosen) {
      const wanted = store.rows.filter((one) =>
        Object.entries(row).every(([name, value]) => JSON.stringify(one[name]) === JSON.stringify(value)),
      );
      expect(wanted).toHaveLength(1);
      const { total } = (await get('analytics/graphs/requests', more)).body.summary;
      expect(total, JSON.stringify(more)).toBe(1);
    }
  });
});

describe('a node without a log store', () => {
  it('answers 503', async () => {
    const bare = await startAdmin(await emptyTables('sqlite'));
    try {
      for (const path of ['graphs/cost', 'groups/model', 'summary/cache']) {
        const answer = await bare.call('GET', `/v1/analytics/${path}?${new URLSearchParams(RANGE)}`);
        expect([answer.status, answer.body.error.message]).toEqual([503, expect.stringContaining('log store')]);
      }
    } finally {
      await bare.close();
    }
  });
});
