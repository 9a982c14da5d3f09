/** Every route of analytics against a table by hand: shapes, units, empty ranges, one request, days on which clocks change, weeks. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { refused } from '../../../test/support/accounts.ts';
import { type AdminHarness, emptyTables, startAdmin } from '../../../test/support/admin.ts';
import { logRow, naiveLogs } from '../../../test/support/log-rows.ts';
import { opinionColumns } from '../../telemetry/feedback.ts';
import type { LogRow } from '../../telemetry/log-query.ts';
import { ACTIONS } from '../catalog.ts';

const { store, services } = naiveLogs();
let admin: AdminHarness;
beforeAll(async () => {
  admin = await startAdmin(await emptyTables('sqlite'), { admin: { services } });
});
afterAll(() => admin.close());

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const NOON = Date.UTC(2026, 4, 4, 12);
/** One day, by the hour. */
const THE_DAY = { from: Date.UTC(2026, 4, 4), to: Date.UTC(2026, 4, 5) };

type Fields = Readonly<Record<string, unknown>>;

/** Of each graph: the summary and a point, with nothing in the range, and with the one request of `ONE`. */
interface Expected {
  readonly summary: readonly [none: Fields, one: Fields];
  /** Null: a point is a value and no bucket, so there is none without requests. */
  readonly point: readonly [none: Fields | null, one: Fields];
}

const bySource = (llm: number) => ({ by_source: { llm, mcp: 0, a2a: 0, custom: 0 } });
const total = (none: number, one: number): Expected => ({
  summary: [{ total: none }, { total: one }],
  point: [{ total: none }, { total: one }],
});
const withSources = ({ summary, point }: Expected, one: number): Expected => ({
  summary: [
    { ...summary[0], ...bySource(0) },
    { ...summary[1], ...bySource(one) },
  ],
  point: [
    { ...point[0], ...bySource(0) },
    { ...point[1], ...bySource(one) },
  ],
});
const both = (none: Fields, one: Fields): Expected => ({ summary: [none, one], point: [none, one] });
const money = (cents: number, micros: number) => ({
  total: cents,
  avg: cents,
  total_micros: micros,
  avg_micros: micros,
  unpriced_requests: 0,
  ...bySource(cents),
  by_source_micros: { llm: micros, mcp: 0, a2a: 0, custom: 0 },
});
const milliseconds = (of: number) => ({ avg: of, p50: of, p90: of, p99: of });
const average = (avg: number, exact: number | null) => ({ avg, avg_exact: exact });

/** A request that was retried, fell back and is a hit of the cache: every graph has something to show of it. */
const ONE: Partial<Record<string, LogRow[string]>> = {
  status: 200,
  cost_micros: 15_000,
  latency_us: 200_500,
  tokens_in: 100,
  tokens_out: 50,
  metadata: { _user: 'ada', team: 'red' },
  retries: 2,
  fallback: true,
  cache_status: 'HIT',
  saved_micros: 25_000,
};
const FAILED = { ...ONE, status: 429, cache_status: 'MISS', saved_micros: null };

const GRAPHS: Readonly<Record<string, Expected & { readonly failed?: true }>> = {
  requests: withSources(total(0, 1), 1),
  // 1.5 cents, half up.
  cost: both(money(0, 0), money(2, 15_000)),
  // 200.5 milliseconds, half up.
  latency: both({ ...milliseconds(0), ...bySource(0) }, { ...milliseconds(201), ...bySource(201) }),
  tokens: both({ total: 0, avg: 0, ...bySource(0) }, { total: 150, avg: 150, ...bySource(150) }),
  users: total(0, 1),
  'users/requests': {
    summary: [
      { total: 0, unique: 0, avg: 0 },
      { total: 1, unique: 1, avg: 1 },
    ],
    point: [{ avg: 0 }, { avg: 1 }],
  },
  errors: { ...withSources(total(0, 1), 1), failed: true },
  'errors/rate': { ...both({ rate: 0, rate_exact: 0 }, { rate: 100, rate_exact: 100 }), failed: true },
  'errors/stacks': {
    summary: [{ total: 0 }, { total: 1 }],
    point: [{ stats: [] }, { stats: [{ response_status_code: 429, count: 1 }] }],
    failed: true,
  },
  'errors/status-codes': {
    summary: [
      { total_errors: 0, unique_error_codes: 0 },
      { total_errors: 1, unique_error_codes: 1 },
    ],
    point: [null, { status_code: 429, count: 1 }],
    failed: true,
  },
  'requests/rescued': {
    summary: [
      { retry: 0, fallback: 0 },
      { retry: 1, fallback: 1 },
    ],
    point: [
      { retry: [], fallback: 0 },
      { retry: [{ retry_success_count: 2, count: 1 }], fallback: 1 },
    ],
  },
  'cache/hit-rate': {
    summary: [
      { total: 0, rate: 0, rate_exact: 0 },
      { total: 1, rate: 100, rate_exact: 100 },
    ],
    point: [
      {
        simple_hits: 0,
        semantic_hits: 0,
        rate: 0,
        rate_exact: 0,
        cumulative_simple_cache_savings: 0,
        cumulative_semantic_cache_savings: 0,
        cumulative_simple_cache_savings_micros: 0,
        cumulative_semantic_cache_savings_micros: 0,
      },
      {
        simple_hits: 1,
        semantic_hits: 0,
        rate: 100,
        rate_exact: 100,
        // 2.5 cents, half up.
        cumulative_simple_cache_savings: 3,
        cumulative_semantic_cache_savings: 0,
        cumulative_simple_cache_savings_micros: 25_000,
        cumulative_semantic_cache_savings_micros: 0,
      },
    ],
  },
  'cache/latency': { summary: [{}, {}], point: [{ avg: 0 }, { avg: 201 }] },
  feedbacks: total(0, 1),
  'feedbacks/scores': { summary: [{ total: 0 }, { total: 1 }], point: [null, { score: 5, total: 1 }] },
  'feedbacks/weighted': both(average(0, null), average(3, 2.5)),
  'feedbacks/ai-models': {
    summary: [{}, {}],
    point: [null, { ai_model: 'gpt-4o', total: 1, avg_weighted_feedback: 3, avg_weighted_feedback_exact: 2.5 }],
  },
};
/** Those whose answer says up to when it is complete: feedback is always. */
const isOfRequests = (graph: string): boolean => !graph.startsWith('feedbacks');

const object = 'analytics-group';
const COST = { cost: 2, cost_micros: 15_000, unpriced_requests: 0 };
const ITEM = { requests: 1, object };
/** Of each list of groups: the item of the one request. */
const GROUPS: Readonly<Record<string, () => Fields>> = {
  'groups/users': () => ({ user: 'ada', ...ITEM, ...COST, requests: '1', cost: '2' }),
  'groups/ai-models': () => ({ ai_model: 'gpt-4o', ...ITEM, requests: '1' }),
  'groups/provider': () => ({ ai_org: 'openai', provider: 'openai', ...ITEM, requests: '1' }),
  'groups/workspaces': () => ({
    workspace: admin.a.workspace_id,
    workspace_slug: admin.a.workspace_slug,
    workspace_name: expect.any(String),
    ...ITEM,
    ...COST,
    total_tokens: 150,
  }),
  'groups/metadata/team': () => ({
    metadata_value: 'red',
    ...ITEM,
    ...COST,
    avg_tokens: 150,
    avg_weighted_feedback: 3,
    avg_weighted_feedback_exact: 2.5,
    requests_with_feedback: 1,
    last_seen: '2026-05-04T12:00:00.000Z',
  }),
  'groups/model': () => ({ model: 'gpt-4o', ...ITEM }),
  'metadata/team': () => ({ value: 'red', ...ITEM }),
};

function keep(...rows: Partial<Record<string, LogRow[string]>>[]): void {
  const { organisation_id, workspace_id } = admin.a;
  store.rows = rows.map((more) => logRow({ organisation_id, workspace_id, time: NOON, trace_id: 't', ...more }));
}

async function give(...times: number[]): Promise<void> {
  const { organisation_id, workspace_id } = admin.a;
  await admin.tables.systemWrite(async (tx) => {
    await tx.remove('feedback', { organisation_id });
    for (const at of times) {
      await tx.insert('feedback', {
        id: randomUUID(),
        organisation_id,
        workspace_id,
        trace_id: 't',
        ...opinionColumns({ value: 5, weight: 0.5, metadata: null }),
        source: 'api',
        api_key_id: null,
        user_id: null,
        ai_model: 'gpt-4o',
        provider: 'openai',
        config_slug: null,
        matched: true,
        created_at: at,
        last_updated_at: at,
      });
    }
  });
}

interface Range {
  readonly from: number;
  readonly to: number;
}
const ask = (path: string, { from, to }: Range, more: Record<string, string> = {}) => {
  const range = {
    time_of_generation_min: new Date(from).toISOString(),
    time_of_generation_max: new Date(to).toISOString(),
  };
  return admin.call('GET', `/v1/analytics/${path}?${new URLSearchParams({ ...range, ...more })}`);
};
async function ok(path: string, range: Range, more: Record<string, string> = {}) {
  const answer = await ask(path, range, more);
  expect(answer.status, `${path} ${answer.text}`).toBe(200);
  return answer.body;
}
const coverage = (graph: string) => (isOfRequests(graph) ? { complete_to: '2026-06-01T00:00:00.000Z' } : {});

beforeEach(async () => {
  keep();
  await give();
});

it('these are all the routes of analytics', () => {
  const paths = ACTIONS.filter(({ path }) => path.startsWith('/analytics/')).map(({ path }) => path.slice(11));
  const known = [
    ...Object.keys(GRAPHS).map((graph) => `graphs/${graph}`),
    ...Object.keys(GROUPS).map((list) =>
      list.replace('/team', '/:metadataKey').replace('groups/model', 'groups/:groupBy'),
    ),
    'summary/cache',
    'what-if',
  ];
  expect([...paths].sort()).toEqual(known.sort());
});

describe.each(Object.entries(GRAPHS))('the graph %s', (graph, { summary, point, failed }) => {
  it('of a range without requests has zeros, for every bucket', async () => {
    const answer = await ok(`graphs/${graph}`, THE_DAY);
    const points = point[0] === null ? 0 : 24;
    expect(answer).toEqual({
      object: 'analytics-graph',
      summary: summary[0],
      data_points: Array.from({ length: points }, (_, hour) => ({
        timestamp: new Date(THE_DAY.from + hour * HOUR).toISOString(),
        ...point[0],
      })),
      bucket: 'hour',
      zone: 'UTC',
      ...coverage(graph),
    });
  });

  it('of one request has its figures, in the units of the contract', async () => {
    keep(failed ? FAILED : ONE);
    await give(NOON);
    const answer = await ok(`graphs/${graph}`, { from: NOON, to: NOON + HOUR });
    expect(answer.summary).toEqual(summary[1]);
    const timestamp = new Date(NOON).toISOString();
    expect(answer.data_points[0]).toEqual({ timestamp, ...point[1] });
    expect(answer.bucket).toBe('minute');
    expect(answer.data_points).toHaveLength(point[0] === null ? 1 : 60);
  });

  it.each([
    // Clocks are put forward, and the day has 23 hours; put back, and it has 25.
    [
      'Europe/Berlin',
      '2026-03-27',
      ['2026-03-26T23', '2026-03-27T23', '2026-03-28T23', '2026-03-29T22', '2026-03-30T22'],
    ],
    [
      'Europe/Berlin',
      '2026-10-23',
      ['2026-10-22T22', '2026-10-23T22', '2026-10-24T22', '2026-10-25T23', '2026-10-26T23'],
    ],
    [
      'America/New_York',
      '2026-03-06',
      ['2026-03-06T05', '2026-03-07T05', '2026-03-08T05', '2026-03-09T04', '2026-03-10T04'],
    ],
    [
      'America/New_York',
      '2026-10-30',
      ['2026-10-30T04', '2026-10-31T04', '2026-11-01T04', '2026-11-02T05', '2026-11-03T05'],
    ],
  ])('in %s has the days of the clocks, from %s on', async (zone, _day, hours) => {
    const starts = hours.map((hour) => Date.parse(`${hour}:00:00Z`));
    const [from = 0, to = 0] = [starts[0], starts.at(-1)];
    const times = Array.from({ length: (to - from) / HOUR }, (_, hour) => from + hour * HOUR);
    keep(...times.map((time) => ({ ...(failed ? FAILED : ONE), time })));
    if (!isOfRequests(graph)) await give(...times);
    const answer = await ok(`graphs/${graph}`, { from, to }, { zone });
    expect([answer.bucket, answer.zone]).toEqual(['day', zone]);
    if (point[0] === null) return;
    expect(answer.data_points.map(({ timestamp }: { timestamp: string }) => timestamp)).toEqual(
      starts.slice(0, -1).map((start) => new Date(start).toISOString()),
    );
    if (!('total' in point[1]) || graph === 'users' || graph === 'cost') return;
    const each = graph === 'tokens' ? 150 : 1;
    expect(answer.data_points.map((one: { total: number }) => one.total)).toEqual(
      starts.slice(1).map((start, at) => ((start - (starts[at] ?? 0)) / HOUR) * each),
    );
  });

  it('of more than 90 days has weeks that begin on Monday', async () => {
    const answer = await ok(`graphs/${graph}`, { from: NOON, to: NOON + 91 * DAY }, { zone: 'Europe/Berlin' });
    expect(answer.bucket).toBe('week');
    if (point[0] === null) return;
    const [first, second] = answer.data_points as { timestamp: string }[];
    // NOON is a Monday.
    expect([first?.timestamp, second?.timestamp]).toEqual(['2026-05-03T22:00:00.000Z', '2026-05-10T22:00:00.000Z']);
    expect(answer.data_points).toHaveLength(14);
  });
});

describe.each(Object.entries(GROUPS))('the list %s', (path, item) => {
  it('of one request has its figures, under the names and types of the contract', async () => {
    keep(ONE);
    await give(NOON);
    const answer = await ok(path, THE_DAY);
    expect(answer).toMatchObject({ object: 'list', total: 1, complete_to: '2026-06-01T00:00:00.000Z' });
    expect(answer.data).toEqual([item()]);
  });

  it('of a range without requests is empty', async () => {
    const answer = await ok(path, THE_DAY);
    expect([answer.object, answer.total, answer.data, answer.summary.requests]).toEqual(['list', 0, [], 0]);
  });
});

describe('the summary of the cache', () => {
  it('of no request is all zeros, and of hits and misses says how much faster hits are', async () => {
    const none = { hits: 0, avg_latency: 0, total_requests: 0, cache_speedup: 0, saved: 0, saved_micros: 0 };
    const answer = { object: 'analytics-summary', complete_to: '2026-06-01T00:00:00.000Z' };
    expect(await ok('summary/cache', THE_DAY)).toEqual({ ...answer, summary: none });
    keep(ONE, { ...FAILED, latency_us: 802_000 });
    expect(await ok('summary/cache', THE_DAY)).toEqual({
      ...answer,
      summary: { hits: 1, avg_latency: 201, total_requests: 2, cache_speedup: 75, saved: 3, saved_micros: 25_000 },
    });
  });
});

const READS = ACTIONS.filter(({ path, method }) => method === 'GET' && path.startsWith('/analytics/')).map(({ path }) =>
  path.slice(11).replace(':metadataKey', 'team').replace(':groupBy', 'model'),
);

describe.each(READS)('%s', (path) => {
  it('takes 400 days, and refuses a longer, an empty and an open range', async () => {
    await ok(path, { from: NOON, to: NOON + 400 * DAY });
    for (const to of [NOON + 400 * DAY + 1, NOON, NOON - 1]) {
      refused(await ask(path, { from: NOON, to }), 400, 'AB01', 'time_of_generation_max');
    }
    const open = `/v1/analytics/${path}?time_of_generation_min=2026-05-04T00:00:00Z`;
    refused(await admin.call('GET', open), 400, 'AB01', 'time_of_generation_max');
    const naive = `${open}&time_of_generation_max=2026-05-05T00:00:00`;
    refused(await admin.call('GET', naive), 400, 'AB01', 'time_of_generation_max');
  });
});
