/** Requests by their feedback: as a filter of every route that reads requests, as columns of groups, and of graphs of feedback. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { refused } from '../../../test/support/accounts.ts';
import { logRow, naiveLogs } from '../../../test/support/log-rows.ts';
import { type Caller, type Organisation, startOrganisation } from '../../../test/support/organisation.ts';
import { opinionColumns } from '../../telemetry/feedback.ts';
import type { LogRow } from '../../telemetry/log-query.ts';
import { ACTIONS } from '../catalog.ts';

const { store, services } = naiveLogs();
const NOON = Date.UTC(2026, 4, 4, 12);
const RANGE = { time_of_generation_min: '2026-05-04T00:00:00Z', time_of_generation_max: '2026-05-05T00:00:00Z' };

let on: Organisation;
beforeAll(async () => {
  on = await startOrganisation('sqlite', { admin: { services, requestsPerMinute: 100_000 } });
});
afterAll(() => on.admin.close());

type Item = Record<string, unknown>;

interface Given {
  readonly trace: string;
  readonly value: number;
  readonly weight?: number;
  readonly at?: number;
  readonly user?: string | null;
  readonly workspace?: string;
}

async function give(...all: readonly Given[]): Promise<void> {
  const { organisation_id, workspace_id } = on.admin.a;
  await on.admin.tables.systemWrite(async (tx) => {
    for (const { trace, value, weight = 1, at = NOON + 1, user = null, workspace = workspace_id } of all) {
      await tx.insert('feedback', {
        id: randomUUID(),
        organisation_id,
        workspace_id: workspace,
        trace_id: trace,
        ...opinionColumns({ value, weight, metadata: null }),
        source: 'api',
        api_key_id: null,
        user_id: user,
        ai_model: null,
        provider: null,
        config_slug: null,
        matched: false,
        created_at: at,
        last_updated_at: at,
      });
    }
  });
}

function keep(...rows: Partial<Record<string, LogRow[string]>>[]): void {
  const { organisation_id, workspace_id } = on.admin.a;
  store.rows = rows.map((more) => logRow({ organisation_id, workspace_id, time: NOON, ...more }));
}

beforeEach(async () => {
  const { organisation_id } = on.admin.a;
  await on.admin.tables.systemWrite(async (tx) => void (await tx.remove('feedback', { organisation_id })));
});

async function ok(path: string, more: Record<string, string> = {}, by?: Caller) {
  const asked = `/v1/${path}?${new URLSearchParams({ ...RANGE, ...more })}`;
  const answer = await (by === undefined ? on.admin.call('GET', asked) : by('GET', asked));
  expect(answer.status, answer.text).toBe(200);
  return answer.body;
}

const GOOD = { weighted_feedback_min: '2', weighted_feedback_max: '6' };

/** Of the requests that a route read, how many there are. */
const COUNTS: Readonly<Record<string, (body: ReturnType<typeof JSON.parse>) => number>> = {
  'logs.list': (body) => body.data.length,
  'logs.histogram': (body) => body.summary.total,
  'analytics.summary.cache': (body) => body.summary.total_requests,
  'analytics.graphs.requests': (body) => body.summary.total,
};
const counted = (id: string) =>
  COUNTS[id] ?? (id.includes('.groups.') ? ({ summary }: { summary: Item }) => Number(summary.requests) : null);

describe('the filter by weighted feedback', () => {
  it('leaves the requests of traces with such feedback, on every route that reads requests', async () => {
    const metadata = { team: 'red', _user: 'ada' };
    keep({ trace_id: 'good', metadata }, { trace_id: 'good', metadata }, { trace_id: 'bad', metadata }, { metadata });
    await give({ trace: 'good', value: 10, weight: 0.5 }, { trace: 'bad', value: 10, weight: 1 });
    const routes = ACTIONS.filter(({ id, method, query }) => {
      const shape = (query as { shape?: object } | null)?.shape ?? {};
      return method === 'GET' && 'weighted_feedback_min' in shape && !/graphs\.feedbacks/.test(id);
    });
    expect(routes.length).toBeGreaterThan(25);
    for (const { id, path } of routes) {
      const url = path.slice(1).replace(':groupBy', 'model').replace(':metadataKey', 'team');
      const [all, good, none] = [await ok(url), await ok(url, GOOD), await ok(url, { weighted_feedback_max: '-1' })];
      const count = counted(id);
      if (count !== null)
        expect(
          [all, good, none].map((body) => count(body)),
          id,
        ).toEqual([4, 2, 0]);
    }
  });

  it('counts feedback that came after the range, and not that of another workspace on a trace of the same name', async () => {
    const made = await on.admin.call('POST', '/v1/admin/workspaces', { body: { name: randomUUID() } });
    const elsewhere = { workspace_id: made.body.id };
    keep({ trace_id: 't' }, { trace_id: 'u' }, { trace_id: 't', ...elsewhere });
    await give(
      { trace: 't', value: 4, at: NOON + 40 * 86_400_000 },
      { trace: 'u', value: 4, workspace: elsewhere.workspace_id },
    );
    const { data } = await ok('logs', GOOD);
    expect(data.map(({ trace_id, workspace }: Item) => [trace_id, (workspace as Item).id])).toEqual([
      ['t', on.admin.a.workspace_id],
    ]);
  });

  it('pages of a list go on, although feedback comes between them', async () => {
    keep({ trace_id: 'a', time: NOON + 2 }, { trace_id: 'b', time: NOON + 1 });
    await give({ trace: 'a', value: 3 }, { trace: 'b', value: 3 });
    const first = await ok('logs', { ...GOOD, limit: '1' });
    await give({ trace: 'c', value: 3 });
    const second = await ok('logs', { ...GOOD, limit: '1', cursor: first.next_cursor });
    expect([...first.data, ...second.data].map(({ trace_id }) => trace_id)).toEqual(['a', 'b']);
    const asked = { ...RANGE, limit: '1', weighted_feedback_min: '3', cursor: first.next_cursor };
    refused(await on.admin.call('GET', `/v1/logs?${new URLSearchParams(asked)}`), 400, 'AB01', 'cursor');
  });

  it('takes 10,000 traces, and refuses more; columns of feedback say then that they are not exact', async () => {
    const metadata = { team: 'red' };
    keep(...Array.from({ length: 10_001 }, (_, n) => ({ trace_id: `t${n}`, metadata })));
    await give(...Array.from({ length: 10_001 }, (_, n) => ({ trace: `t${n}`, value: n === 0 ? 9 : 3 })));
    const total = async (graph: string, more: Record<string, string>) =>
      (await ok(`analytics/graphs/${graph}`, more)).summary.total;
    expect(await total('requests', GOOD)).toBe(10_000);
    expect(await total('feedbacks', { ...GOOD, total_units_min: '1' })).toBe(10_000);
    const read = (graph: string, more: Record<string, string>) =>
      on.admin.call('GET', `/v1/analytics/graphs/${graph}?${new URLSearchParams({ ...RANGE, ...more })}`);
    const answer = await read('requests', { weighted_feedback_min: '2' });
    refused(answer, 400, 'AB01', 'weighted_feedback_min');
    expect(answer.body.error.message).toContain('more than 10000 traces');
    refused(await read('feedbacks', { total_units_min: '1' }), 400, 'AB01', 'time_of_generation_max');
    expect(await total('requests', { weighted_feedback_min: '2', trace_id: 't1,t2' })).toBe(2);
    const { approximate } = await ok('analytics/groups/metadata/team');
    expect(approximate).toEqual(['avg_weighted_feedback', 'requests_with_feedback']);
  }, 60_000);

  it('reads the feedback that a restricted member may see, and no other', async () => {
    const id = await on.addUser('member', { [on.admin.a.workspace_id]: 'member' });
    const member = on.as((await on.makeKey('workspace/user', ['analytics.view'], { user_id: id })).key);
    keep({ trace_id: 'mine', user_id: id }, { trace_id: 'rated', user_id: id }, { trace_id: 'theirs' });
    await give({ trace: 'rated', value: 4, user: id }, { trace: 'mine', value: 4, user: on.admin.a.user_id });
    const set = (value: boolean | null) =>
      on.admin.call('PUT', '/v1/admin/organisation/settings', {
        body: { security_settings: { membersViewAllData: value } },
      });
    const total = async () => (await ok('analytics/graphs/requests', GOOD, member)).summary.total;
    expect(await total()).toBe(2);
    await set(false);
    expect(await total()).toBe(1);
    await set(null);
  });
});

describe('columns of feedback', () => {
  it('are the average of value times weight and the number of requests with any, by group and over all', async () => {
    const [red, blue] = [{ metadata: { team: 'red' } }, { metadata: { team: 'blue' } }];
    keep(
      { trace_id: 'a', ...red },
      { trace_id: 'a', ...red },
      { trace_id: 'b', ...red },
      { trace_id: 'c', ...blue, model: 'claude' },
      { trace_id: 'none', ...blue },
      { trace_id: 'd', metadata: { team: 'green' } },
    );
    await give(
      { trace: 'a', value: 10, weight: 0.5 },
      { trace: 'a', value: -1 },
      { trace: 'b', value: 3 },
      { trace: 'c', value: -7, weight: 0.5 },
    );
    const answer = await ok('analytics/groups/metadata/team');
    const shown = (item: Record<string, unknown>) => [
      item.metadata_value,
      item.requests,
      item.requests_with_feedback,
      item.avg_weighted_feedback,
      item.avg_weighted_feedback_exact,
    ];
    expect(answer.data.map(shown)).toEqual([
      ['red', 3, 3, 2, expect.closeTo(7 / 3, 9)],
      ['blue', 2, 1, -3, -3.5],
      ['green', 1, 0, 0, null],
    ]);
    expect(shown(answer.summary)).toEqual([undefined, 6, 4, 1, 0.875]);
    expect(answer).not.toHaveProperty('approximate');
    const two = await ok('analytics/groups/metadata/team', { and: 'model' });
    expect(two.data.map((item: Item) => [item.metadata_value, item.model, item.requests_with_feedback])).toEqual([
      ['red', 'gpt-4o', 3],
      ['blue', 'claude', 1],
      ['blue', 'gpt-4o', 0],
      ['green', 'gpt-4o', 0],
    ]);
  });

  it('are of any group where they are asked for', async () => {
    keep({ trace_id: 'a' }, {});
    await give({ trace: 'a', value: 4 });
    for (const path of ['analytics/groups/model', 'logs/groups/model', 'analytics/groups/users']) {
      keep({ trace_id: 'a', metadata: { _user: 'ada' } }, { metadata: { _user: 'ada' } });
      const { data } = await ok(path, { columns: 'requests_with_feedback,avg_weighted_feedback' });
      expect(data, path).toMatchObject([{ requests_with_feedback: 1, avg_weighted_feedback: 4 }]);
      expect((await ok(path)).data[0]).not.toHaveProperty('requests_with_feedback');
    }
    const query = new URLSearchParams({ ...RANGE, order_by: 'requests_with_feedback' });
    refused(await on.admin.call('GET', `/v1/analytics/groups/model?${query}`), 400, 'AB01', 'order_by');
  });
});

describe('graphs of feedback', () => {
  it('take the filters of requests: the feedback on requests that meet them is counted', async () => {
    keep(
      { trace_id: 'dear', cost_micros: 50_000, time: NOON - 40 * 86_400_000 },
      { trace_id: 'cheap', cost_micros: 5_000, status: 500, metadata: { team: 'red' } },
    );
    await give({ trace: 'dear', value: 1 }, { trace: 'cheap', value: -4 }, { trace: 'unknown', value: 7 });
    const totals = async (more: Record<string, string>) => (await ok('analytics/graphs/feedbacks', more)).summary.total;
    expect(await totals({})).toBe(3);
    expect(await totals({ cost_min: '5' })).toBe(1);
    expect(await totals({ status_code: '500' })).toBe(1);
    expect(await totals({ metadata: '{"team":"red"}', trace_id: 'cheap,dear' })).toBe(1);
    expect(await totals({ total_units_min: '1' })).toBe(2);
    expect(await totals({ total_units_min: '1', weighted_feedback_max: '-1' })).toBe(1);
    expect(await totals({ status_code: '404' })).toBe(0);
    const { data_points } = await ok('analytics/graphs/feedbacks/scores', { virtual_keys: 'openai-prod' });
    expect(data_points.map(({ score }: Item) => score)).toEqual([-4, 1]);
  });
});
