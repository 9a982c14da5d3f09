/** The official client reads analytics, and no query makes a route fail. */
import fc from 'fast-check';
import { Portkey } from 'portkey-ai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AdminHarness, emptyTables, startAdmin } from '../../../test/support/admin.ts';
import { logRow, naiveLogs } from '../../../test/support/log-rows.ts';
import { ACTIONS } from '../catalog.ts';

const { store, services } = naiveLogs();
let admin: AdminHarness;
beforeAll(async () => {
  admin = await startAdmin(await emptyTables('sqlite'), { headerAliases: ['x-portkey-'], admin: { services } });
  const { organisation_id, workspace_id } = admin.a;
  const metadata = { _user: 'ada', team: 'red' };
  store.rows = [200, 500].map((status) =>
    logRow({ organisation_id, workspace_id, metadata, status, time: Date.UTC(2026, 4, 4, 12) }),
  );
});
afterAll(() => admin.close());

const RANGE = { time_of_generation_min: '2026-05-04T00:00:00Z', time_of_generation_max: '2026-05-05T00:00:00Z' };

describe('the official client', () => {
  it('reads every graph, every group and the summary', async () => {
    const client = new Portkey({ apiKey: admin.a.admin_api_key, baseURL: `${admin.url}/v1` });
    const { graphs, groups, summary } = client.analytics;
    const read = [
      graphs.requests(RANGE),
      graphs.cost(RANGE),
      graphs.latency(RANGE),
      graphs.tokens(RANGE),
      graphs.users(RANGE),
      graphs.usersRequests(RANGE),
      graphs.errors(RANGE),
      graphs.errors_rate(RANGE),
      graphs.errors_stack(RANGE),
      graphs.errors_status_code(RANGE),
      graphs.requests_rescued(RANGE),
      graphs.cache_hit_rate(RANGE),
      graphs.cache_latency(RANGE),
    ];
    for (const answer of await Promise.all(read)) expect(answer).toMatchObject({ object: 'analytics-graph' });
    const listed = [
      groups.users(RANGE),
      groups.aiModels(RANGE),
      groups.workspaces(RANGE),
      groups.metadata('team', RANGE),
      groups.groupedData('model', { ...RANGE, columns: 'cost,avg_latency', include_total: true }),
    ];
    for (const answer of await Promise.all(listed)) expect(answer).toMatchObject({ object: 'list', total: 1 });
    expect(await summary.cache(RANGE)).toMatchObject({ summary: { total_requests: 2 } });
  });
});

describe('a query of random parameters', () => {
  const paths = ACTIONS.filter(({ method, path }) => method === 'GET' && /^\/(analytics|logs)/.test(path)).map(
    ({ path }) => path.replace(':groupBy', 'model').replace(':metadataKey', 'team').replace(':logId', 'x'),
  );
  const names = [
    ...['cost_min', 'cost_max', 'status_code', 'metadata', 'ai_org_model', 'zone', 'cursor', 'limit', 'page_size'],
    ...['current_page', 'order_by', 'columns', 'and', 'trace_id', 'api_key_ids', 'workspace_slug', 'source', 'total'],
    ...['time_of_generation_min', 'time_of_generation_max', 'weighted_feedback_min', 'all_workspaces', 'includeTotal'],
  ];
  const value = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 12 }),
    fc.constantFrom('', '0', '-1', '1e9', '9007199254740993', 'true', 'NaN', '{}', '{"a":["b"]}', '[]', 'null', ','),
    fc.constantFrom(
      'UTC',
      'Europe/Berlin',
      'a__b',
      'metadata.x',
      'requests',
      '2026-05-04T00:00:00Z',
      '200,500',
      'a.b.c',
    ),
  );

  it('is answered or refused, and never fails', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...paths),
        fc.boolean(),
        fc.dictionary(fc.constantFrom(...names), value, { maxKeys: 5 }),
        async (path, ranged, query) => {
          const text = new URLSearchParams({ ...(ranged ? RANGE : {}), ...query });
          const { status, body } = await admin.call('GET', `/v1${path}?${text}`);
          expect([200, 400, 403, 404], `${path}?${text}`).toContain(status);
          if (status === 400) expect(body.error.message).not.toBe('');
        },
      ),
      { numRuns: 300 },
    );
  });
});
