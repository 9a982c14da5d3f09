/** Graphs of feedback on both stores, beside the same sums in JavaScript. */
import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refused } from '../../../test/support/accounts.ts';
import { type Caller, type Organisation, startOrganisation } from '../../../test/support/organisation.ts';
import type { Row } from '../../store/schema.ts';
import { bucketAt, bucketsOf } from '../../telemetry/buckets.ts';
import { opinionColumns } from '../../telemetry/feedback.ts';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const BEGIN = Date.parse('2026-03-01T00:00:00Z');
const MODELS = ['gpt-4o', 'claude', null] as const;
const KEYS = [randomUUID(), randomUUID()];

type Feedback = Row<'feedback'>;

function rowOf(organisation_id: string, workspace_id: string, n: number): Feedback {
  const ai_model = MODELS[n % 3] ?? null;
  const at = BEGIN + Math.floor(((n * 7_919) % 1_000) * 0.06 * DAY);
  return {
    id: randomUUID(),
    organisation_id,
    workspace_id,
    trace_id: `trace-${n % 7}`,
    ...opinionColumns({ value: (n % 21) - 10, weight: (n % 5) / 4, metadata: null }),
    source: 'api',
    api_key_id: KEYS[n % 2] ?? null,
    user_id: null,
    ai_model,
    provider: ai_model === null ? null : 'openai',
    config_slug: n % 4 === 0 ? 'pc-a' : null,
    matched: ai_model !== null,
    created_at: at,
    last_updated_at: at,
  };
}

describe.each(['sqlite', 'postgres'] as const)('graphs of feedback on %s', (engine) => {
  let on: Organisation;
  let key: Caller;
  const rows: Feedback[] = [];

  beforeAll(async () => {
    on = await startOrganisation(engine, { admin: { requestsPerMinute: 100_000 } });
    key = on.as(on.admin.a.workspace_api_key);
    for (let n = 0; n < 400; n++) rows.push(rowOf(on.admin.a.organisation_id, on.admin.a.workspace_id, n));
    const foreign = rowOf(on.admin.b.organisation_id, on.admin.b.workspace_id, 1);
    await on.admin.tables.systemWrite(async (tx) => {
      for (const row of [...rows, foreign]) await tx.insert('feedback', row);
    });
  });
  afterAll(() => on.admin.close());

  const ask = (name: string, query: Record<string, string>, by = key) => {
    const { from = BEGIN, to = BEGIN + 70 * DAY, ...more } = query as { from?: string | number; to?: string | number };
    const all = new URLSearchParams({
      time_of_generation_min: new Date(Number(from)).toISOString(),
      time_of_generation_max: new Date(Number(to)).toISOString(),
      ...more,
    });
    return by('GET', `/v1/analytics/graphs/${name}?${all}`);
  };

  it('add up what was stored, for any range, zone and filter', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 0, max: 60 * DAY }),
        fc.constantFrom(HOUR, 2 * DAY, 40 * DAY, 200 * DAY),
        fc.constantFrom('UTC', 'America/New_York', 'Asia/Kathmandu', 'Africa/Cairo'),
        fc.constantFrom<[Record<string, string>, (row: Feedback) => boolean]>(
          [{}, () => true],
          [{ trace_id: 'trace-1,trace-2' }, ({ trace_id }) => ['trace-1', 'trace-2'].includes(trace_id)],
          [{ api_key_ids: KEYS[0] ?? '' }, ({ api_key_id }) => api_key_id === KEYS[0]],
          [{ configs: 'pc-a' }, ({ config_slug }) => config_slug === 'pc-a'],
          [{ ai_org_model: 'openai__claude' }, ({ ai_model }) => ai_model === 'claude'],
          [
            { weighted_feedback_min: '-2.5', weighted_feedback_max: '4' },
            ({ weighted_micros: w }) => w >= -2.5e6 && w <= 4e6,
          ],
        ),
        async (offset, length, zone, [filter, passes]) => {
          const range = { from: BEGIN + offset, to: BEGIN + offset + length };
          const asked = { from: String(range.from), to: String(range.to), zone, ...filter };
          const [total, scores, weighted, models] = await Promise.all(
            ['feedbacks', 'feedbacks/scores', 'feedbacks/weighted', 'feedbacks/ai-models'].map(
              async (name) => (await ask(name, asked)).body,
            ),
          );
          const buckets = bucketsOf(range, zone);
          const cut = { object: 'analytics-graph', bucket: buckets.width, zone };
          const found = rows.filter((row) => row.created_at >= range.from && row.created_at < range.to && passes(row));
          const within = buckets.starts.map((_, index) =>
            found.filter(({ created_at }) => bucketAt(buckets, created_at) === index),
          );
          const stamps = buckets.starts.map((start) => new Date(start).toISOString());
          const mean = (some: readonly Feedback[]) =>
            some.length === 0 ? null : some.reduce((sum, row) => sum + row.weighted_micros, 0) / 1e6 / some.length;
          const average = (some: readonly Feedback[]) => ({
            avg: Math.floor((mean(some) ?? 0) + 0.5) + 0,
            avg_exact: some.length === 0 ? null : expect.closeTo(mean(some) ?? 0, 9),
          });
          expect(total).toEqual({
            ...cut,
            summary: { total: found.length },
            data_points: within.map((own, n) => ({ timestamp: stamps[n], total: own.length })),
          });
          expect(weighted).toEqual({
            ...cut,
            summary: average(found),
            data_points: within.map((own, n) => ({ timestamp: stamps[n], ...average(own) })),
          });
          const timestamp = new Date(range.from).toISOString();
          const values = [...new Set(found.map(({ value }) => value))].sort((a, b) => a - b);
          expect(scores).toEqual({
            ...cut,
            summary: { total: found.length },
            data_points: values.map((score) => ({
              timestamp,
              score,
              total: found.filter(({ value }) => value === score).length,
            })),
          });
          expect([models.object, models.summary]).toEqual(['analytics-graph', {}]);
          const byModel = MODELS.map((model) => found.filter(({ ai_model }) => ai_model === model));
          expect(models.data_points).toHaveLength(byModel.filter((own) => own.length > 0).length);
          for (const own of byModel.filter((own) => own.length > 0)) {
            const { avg, avg_exact } = average(own);
            expect(models.data_points).toContainEqual({
              timestamp,
              ai_model: own[0]?.ai_model ?? 'unknown',
              total: own.length,
              avg_weighted_feedback: avg,
              avg_weighted_feedback_exact: avg_exact,
            });
          }
        },
      ),
      { numRuns: 15 },
    );
  });

  it.each([
    ['no end', { time_of_generation_max: '' }, 'time_of_generation_max'],
    ['an end before the begin', { to: String(BEGIN - 1) }, 'time_of_generation_max'],
    ['more than 400 days', { to: String(BEGIN + 400 * DAY + 1) }, 'time_of_generation_max'],
    ['a zone that is none', { zone: 'Mars/Olympus' }, 'zone'],
    ['an offset for a zone', { zone: '+02:00' }, 'zone'],
    ['a weight out of range', { weighted_feedback_min: '11' }, 'weighted_feedback_min'],
    ['a model without its provider', { ai_org_model: 'gpt-4o' }, 'ai_org_model'],
  ])('refuse %s', async (_title, query, param) => {
    const answer = await ask('feedbacks', query as Record<string, string>);
    expect([answer.status, answer.body.error.code], answer.text).toEqual([400, 'AB01']);
    expect(answer.body.error.param).toContain(param);
  });

  it('of an organisation are those of the default workspace, unless one is named by slug', async () => {
    const { workspace_slug } = on.admin.a;
    const whole = on.as(on.admin.a.admin_api_key);
    const totals = async (by: Caller, query: Record<string, string>) =>
      (await ask('feedbacks', query, by)).body.summary;
    expect(await totals(whole, {})).toEqual({ total: rows.length });
    expect(await totals(whole, { workspace_slug })).toEqual({ total: rows.length });
    const made = await on.admin.call('POST', '/v1/admin/workspaces', { body: { name: 'Empty' } });
    expect(await totals(whole, { workspace_slug: made.body.slug })).toEqual({ total: 0 });
    refused(await ask('feedbacks', { workspace_slug: 'none' }, whole), 404, 'AB02', 'workspace_slug');
    refused(
      await ask('feedbacks', { workspace_slug: on.admin.b.workspace_slug }, whole),
      404,
      'AB02',
      'workspace_slug',
    );
    // A credential of a workspace has its own only.
    expect(await totals(key, { workspace_slug: made.body.slug })).toEqual({ total: rows.length });
    expect(await totals(on.as(on.admin.b.workspace_api_key), {})).toEqual({ total: 1 });
  });

  it('show a member of own requests only, where membersViewAllData is off, and nothing without analytics.view', async () => {
    const id = await on.addUser('member', { [on.admin.a.workspace_id]: 'member' });
    const member = on.as((await on.makeKey('workspace/user', ['analytics.view'], { user_id: id })).key);
    const set = (name: string, value: boolean | null) =>
      on.admin.call('PUT', '/v1/admin/organisation/settings', { body: { security_settings: { [name]: value } } });
    await set('membersViewAllData', false);
    expect((await ask('feedbacks/scores', {}, member)).body).toMatchObject({ summary: { total: 0 }, data_points: [] });
    await set('membersViewAllData', null);
    expect((await ask('feedbacks', {}, member)).body.summary).toEqual({ total: rows.length });
    await set('membersViewAnalytics', false);
    refused(await ask('feedbacks', {}, member), 403, 'AB03', null);
    await set('membersViewAnalytics', null);
  });
});
