import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AdminHarness, emptyTables, startAdmin } from '../../../test/support/admin.ts';
import { logRow, naiveLogs } from '../../../test/support/log-rows.ts';
import type { LogRow } from '../../telemetry/log-query.ts';
import { GRAPHS } from './graphs.ts';

const { store, services } = naiveLogs();
let admin: AdminHarness;
beforeAll(async () => {
  admin = await startAdmin(await emptyTables('sqlite'), { admin: { services } });
});
afterAll(() => admin.close());

const NOON = Date.UTC(2026, 4, 4, 12);
const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const iso = (time: number): string => new Date(time).toISOString();

/** Requests of the default workspace of organisation A, each at an offset from noon of Monday, 4 May 2026. */
function keep(...rows: (Partial<Record<string, LogRow[string]>> & { readonly at?: number })[]): void {
  const { organisation_id, workspace_id } = admin.a;
  store.rows = rows.map(({ at = 0, ...more }) => logRow({ organisation_id, workspace_id, time: NOON + at, ...more }));
}

/** A graph of the 2 hours from noon on, in hours, unless said otherwise. */
async function graph(path: string, more: Record<string, string> = {}) {
  const query = new URLSearchParams({
    time_of_generation_min: iso(NOON),
    time_of_generation_max: iso(NOON + 2 * HOUR),
    ...more,
  });
  const answer = await admin.call('GET', `/v1/analytics/graphs/${path}?${query}`);
  expect(answer.status, answer.text).toBe(200);
  expect(answer.body).toMatchObject({ object: 'analytics-graph', complete_to: '2026-06-01T00:00:00.000Z' });
  expect(answer.body).not.toHaveProperty('incomplete');
  return answer.body;
}

const at = (hours: number): { timestamp: string } => ({ timestamp: iso(NOON + hours * HOUR) });
const split = (llm: number, mcp = 0, a2a = 0, custom = 0) => ({ by_source: { llm, mcp, a2a, custom } });

describe('a graph', () => {
  it('of requests counts them by bucket and by source, and dry runs nowhere', async () => {
    keep({}, { at: 1 }, { at: HOUR, source: 'mcp' }, { dry_run: true }, { at: 2 * HOUR }, { at: -1 });
    expect(await graph('requests')).toMatchObject({
      bucket: 'hour',
      zone: 'UTC',
      summary: { total: 3, ...split(2, 1) },
      data_points: [
        { ...at(0), total: 2, ...split(2) },
        { ...at(1), total: 1, ...split(0, 1) },
      ],
    });
  });

  it('of cost has whole cents, rounded half up, beside micro-dollars, and counts what has no price', async () => {
    keep({ cost_micros: 14_999 }, { cost_micros: 1 }, { at: HOUR, cost_micros: null });
    expect(await graph('cost')).toMatchObject({
      summary: { total: 2, avg: 1, total_micros: 15_000, avg_micros: 7_500, unpriced_requests: 1, ...split(2) },
      data_points: [
        { ...at(0), total: 2, avg: 1, total_micros: 15_000, by_source_micros: { llm: 15_000 } },
        { ...at(1), total: 0, avg: 0, total_micros: 0, avg_micros: 0, unpriced_requests: 1 },
      ],
    });
  });

  it('of latency has whole milliseconds: average and percentiles by nearest rank', async () => {
    keep(...Array.from({ length: 10 }, (_, index) => ({ latency_us: (index + 1) * 10_000 })));
    expect(await graph('latency')).toMatchObject({
      summary: { avg: 55, p50: 50, p90: 90, p99: 100, ...split(55) },
      data_points: [
        { ...at(0), avg: 55, p50: 50, p90: 90, p99: 100 },
        { ...at(1), avg: 0, p50: 0, p90: 0, p99: 0, ...split(0) },
      ],
    });
  });

  it('of tokens adds up input and output', async () => {
    keep({ tokens_in: 1, tokens_out: 2 }, { tokens_in: 3, tokens_out: 4 }, { tokens_in: null, tokens_out: null });
    expect(await graph('tokens')).toMatchObject({ summary: { total: 10, avg: 5, ...split(10) } });
  });

  it('of users counts a user once in each bucket and once in the summary', async () => {
    const [ada, bob] = [{ metadata: { _user: 'ada' } }, { metadata: { _user: 'bob' } }];
    keep(ada, ada, bob, { at: HOUR, ...ada }, {});
    expect(await graph('users')).toMatchObject({
      summary: { total: 2 },
      data_points: [
        { ...at(0), total: 2 },
        { ...at(1), total: 1 },
      ],
    });
    expect(await graph('users/requests')).toMatchObject({
      summary: { total: 4, unique: 2, avg: 2 },
      data_points: [
        { ...at(0), avg: 2 },
        { ...at(1), avg: 1 },
      ],
    });
  });

  it('of errors tells their number, rate, and statuses', async () => {
    keep({ status: 429 }, { status: 500 }, { status: 500 }, { status: 246 }, {}, {}, {}, { at: HOUR, status: 400 });
    expect(await graph('errors')).toMatchObject({
      summary: { total: 4, ...split(4) },
      data_points: [
        { ...at(0), total: 3 },
        { ...at(1), total: 1 },
      ],
    });
    expect(await graph('errors/rate')).toMatchObject({
      summary: { rate: 50, rate_exact: 50 },
      data_points: [
        { ...at(0), rate: 43, rate_exact: 42.86 },
        { ...at(1), rate: 100, rate_exact: 100 },
      ],
    });
    expect(await graph('errors/stacks')).toMatchObject({
      summary: { total: 4 },
      data_points: [
        {
          ...at(0),
          stats: [
            { response_status_code: 429, count: 1 },
            { response_status_code: 500, count: 2 },
          ],
        },
        { ...at(1), stats: [{ response_status_code: 400, count: 1 }] },
      ],
    });
    expect(await graph('errors/status-codes')).toMatchObject({
      summary: { total_errors: 4, unique_error_codes: 3 },
      data_points: [
        { ...at(0), status_code: 400, count: 1 },
        { status_code: 429, count: 1 },
        { status_code: 500, count: 2 },
      ],
    });
  });

  it('of rescued requests tells after how many retries, or that a fallback answered', async () => {
    keep(
      { retries: 1 },
      { retries: 2 },
      { retries: 2 },
      { retries: 3, status: 500 },
      { fallback: true },
      { at: HOUR, retries: 1, fallback: true },
    );
    expect(await graph('requests/rescued')).toMatchObject({
      summary: { retry: 4, fallback: 2 },
      data_points: [
        {
          ...at(0),
          retry: [
            { retry_success_count: 1, count: 1 },
            { retry_success_count: 2, count: 2 },
          ],
          fallback: 1,
        },
        { ...at(1), retry: [{ retry_success_count: 1, count: 1 }], fallback: 1 },
      ],
    });
  });

  it('of the cache tells hits by kind, and what they have saved since the begin of the range', async () => {
    keep(
      { cache_status: 'HIT', saved_micros: 20_000, latency_us: 3_000 },
      { cache_status: 'SEMANTIC HIT', saved_micros: 5_000, latency_us: 6_000 },
      {},
      { at: HOUR, cache_status: 'HIT', saved_micros: 14_999, latency_us: 1_000 },
    );
    expect(await graph('cache/hit-rate')).toMatchObject({
      summary: { total: 3, rate: 75, rate_exact: 75 },
      data_points: [
        {
          ...at(0),
          simple_hits: 1,
          semantic_hits: 1,
          rate: 67,
          cumulative_simple_cache_savings: 2,
          cumulative_semantic_cache_savings: 1,
        },
        {
          ...at(1),
          simple_hits: 1,
          semantic_hits: 0,
          rate: 100,
          cumulative_simple_cache_savings: 3,
          cumulative_simple_cache_savings_micros: 34_999,
          cumulative_semantic_cache_savings: 1,
        },
      ],
    });
    expect(await graph('cache/latency')).toMatchObject({
      summary: {},
      data_points: [
        { ...at(0), avg: 5 },
        { ...at(1), avg: 1 },
      ],
    });
  });

  it('of nothing has a point of zeros for each bucket', async () => {
    keep();
    for (const { path, shape } of GRAPHS) {
      const { data_points: points, summary } = await graph(path);
      expect(points, path).toHaveLength(shape.as === 'values' ? 0 : 2);
      for (const value of [summary, ...points].flatMap((each: object) => Object.values(each))) {
        if (typeof value === 'number') expect(value, path).toBe(0);
      }
    }
  });

  it('has minutes up to an hour, hours up to 3 days, days up to 90, weeks from Monday beyond', async () => {
    keep({});
    const of = (length: number, more: Record<string, string> = {}) =>
      graph('requests', {
        time_of_generation_min: iso(NOON - length + 1),
        time_of_generation_max: iso(NOON + 1),
        ...more,
      });
    const widths = await Promise.all(
      [HOUR, 3 * DAY, 90 * DAY, 91 * DAY].map(async (length) => (await of(length)).bucket),
    );
    expect(widths).toEqual(['minute', 'hour', 'day', 'week']);
    const { data_points: weeks } = await of(91 * DAY);
    expect(weeks.at(-1)).toMatchObject({ timestamp: '2026-05-04T00:00:00.000Z', total: 1 });
  });

  it('has days by the clocks of a zone, also those of 23 hours', async () => {
    keep({}, { at: -36 * DAY });
    const { data_points: days, zone } = await graph('requests', {
      zone: 'Europe/Berlin',
      time_of_generation_min: '2026-03-28T00:00:00+01:00',
      time_of_generation_max: '2026-05-05T00:00:00+02:00',
    });
    expect(zone).toBe('Europe/Berlin');
    const begins = days.map(({ timestamp }: { timestamp: string }) => timestamp);
    expect(begins.slice(0, 3)).toEqual([
      '2026-03-27T23:00:00.000Z',
      '2026-03-28T23:00:00.000Z',
      '2026-03-29T22:00:00.000Z',
    ]);
    expect(begins).toHaveLength(38);
    expect(days.at(-1).total).toBe(1);
    expect(days[1].total).toBe(1);
  });

  it('answers under the path that the official client uses', async () => {
    keep({ status: 500 });
    for (const { alias, path } of GRAPHS)
      if (alias !== undefined) expect(await graph(alias)).toEqual(await graph(path));
  });
});
