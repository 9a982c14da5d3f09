import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refused } from '../../../test/support/accounts.ts';
import { type AdminHarness, emptyTables, startAdmin } from '../../../test/support/admin.ts';
import { logRow, naiveLogs } from '../../../test/support/log-rows.ts';
import type { LogRow } from '../../telemetry/log-query.ts';

const { store, services } = naiveLogs();
let admin: AdminHarness;
beforeAll(async () => {
  admin = await startAdmin(await emptyTables('sqlite'), { admin: { services } });
});
afterAll(() => admin.close());

const NOON = Date.UTC(2026, 4, 4, 12);
const RANGE = { time_of_generation_min: '2026-05-04T00:00:00Z', time_of_generation_max: '2026-05-05T00:00:00Z' };

function keep(...rows: Partial<Record<string, LogRow[string]>>[]): string[] {
  const { organisation_id, workspace_id } = admin.a;
  store.rows = rows.map((more, at) => logRow({ organisation_id, workspace_id, time: NOON + at, ...more }));
  return store.rows.map(({ id }) => String(id));
}

const get = (path: string, more: Record<string, string> = {}) =>
  admin.call('GET', `/v1/${path}?${new URLSearchParams(more)}`);

async function ok(path: string, more: Record<string, string> = {}) {
  const answer = await get(path, more);
  expect(answer.status, answer.text).toBe(200);
  return answer.body;
}

/** All pages of a list, as ids. */
async function walk(more: Record<string, string>): Promise<string[][]> {
  const pages: string[][] = [];
  let cursor: string | null = null;
  do {
    const page: { data: { id: string }[]; next_cursor: string | null } = await ok('logs', {
      ...more,
      ...(cursor === null ? {} : { cursor }),
    });
    pages.push(page.data.map(({ id }) => id));
    cursor = page.next_cursor;
  } while (cursor !== null);
  return pages;
}

describe('the list of requests', () => {
  it('shows a request with the names of what it belongs to', async () => {
    const [id] = keep({ user_id: admin.a.user_id, metadata: { _user: 'ada' }, ttft_us: 1_500 });
    const { data, next_cursor, complete_to } = await ok('logs', RANGE);
    expect([next_cursor, complete_to]).toEqual([null, '2026-06-01T00:00:00.000Z']);
    expect(data).toEqual([
      {
        id,
        object: 'log',
        created_at: '2026-05-04T12:00:00.000Z',
        workspace: { id: admin.a.workspace_id, name: expect.any(String), slug: admin.a.workspace_slug },
        api_key: null,
        user: { id: admin.a.user_id, name: 'Ada Alpha' },
        metadata: { _user: 'ada' },
        trace_id: expect.any(String),
        span_id: expect.any(String),
        parent_span_id: null,
        source: 'llm',
        operation: 'chat',
        method: 'POST',
        path: '/v1/chat/completions',
        provider: 'openai',
        provider_slug: 'openai-prod',
        config_slug: null,
        model: 'gpt-4o',
        model_answered: 'gpt-4o-2024-11-20',
        stream: false,
        dry_run: false,
        status: 200,
        outcome: 'ok',
        error_code: null,
        error_message: null,
        tokens_in: 100,
        tokens_out: 50,
        tokens_total: 150,
        usage_estimated: false,
        cost: 1,
        cost_micros: 12_345,
        saved_micros: null,
        latency_ms: 200,
        ttft_ms: 1.5,
        cache_status: 'MISS',
      },
    ]);
  });

  it('comes newest first in pages without a gap or a repetition, also of one millisecond', async () => {
    const ids = keep(...Array.from({ length: 7 }, () => ({ time: NOON })));
    expect(await walk({ ...RANGE, limit: '3' })).toEqual([
      [ids[6], ids[5], ids[4]],
      [ids[3], ids[2], ids[1]],
      [ids[0]],
    ]);
    expect((await walk({ ...RANGE, limit: '3', order: 'oldest' })).flat()).toEqual(ids);
  });

  it('pages on with the range of its first page, so what arrives meanwhile is not in it', async () => {
    const { organisation_id, workspace_id } = admin.a;
    const now = Date.now();
    keep({ time: now - 2_000 }, { time: now - 1_000 });
    const first = await ok('logs', { limit: '1', order: 'oldest' });
    store.rows.push(logRow({ organisation_id, workspace_id, time: now + 60_000 }));
    const second = await ok('logs', { limit: '1', order: 'oldest', cursor: first.next_cursor });
    expect(second.next_cursor).toBeNull();
  });

  it('counts only when asked', async () => {
    keep({}, {}, {});
    expect(await ok('logs', RANGE)).not.toHaveProperty('total');
    expect((await ok('logs', { ...RANGE, limit: '1', total: 'true' })).total).toBe(3);
  });

  it('shows dry runs unless they are left out', async () => {
    const [real, dry] = keep({}, { dry_run: true });
    expect(await walk(RANGE)).toEqual([[dry, real]]);
    expect(await walk({ ...RANGE, dry_run: 'false' })).toEqual([[real]]);
    expect(await walk({ ...RANGE, dry_run: 'true' })).toEqual([[dry]]);
  });

  it('refuses a cursor that was changed, or is of another question or organisation', async () => {
    keep({}, {}, {});
    const { next_cursor: cursor } = await ok('logs', { ...RANGE, limit: '1' });
    const [text = '', key, digest] = cursor.split('.');
    const said = JSON.parse(Buffer.from(text, 'base64url').toString());
    const forged = Buffer.from(JSON.stringify({ ...said, u: said.u + 1 })).toString('base64url');
    for (const wrong of [`${forged}.${key}.${digest}`, `${text}.x.${digest}`, `${cursor}A`, 'x', '', cursor.slice(1)]) {
      refused(await get('logs', { ...RANGE, limit: '1', cursor: wrong }), 400, 'AB01', 'cursor');
    }
    for (const [name, value] of [
      ['order', 'oldest'],
      ['status_code', '200'],
      ['workspace_id', admin.a.workspace_id],
    ] as const) {
      refused(await get('logs', { ...RANGE, limit: '1', cursor, [name]: value }), 400, 'AB01', 'cursor');
    }
    const theirs = await admin.call('GET', `/v1/logs?${new URLSearchParams({ ...RANGE, limit: '1', cursor })}`, {
      key: admin.b.admin_api_key,
    });
    refused(theirs, 400, 'AB01', 'cursor');
    expect((await ok('logs', { ...RANGE, limit: '2', cursor })).data).toHaveLength(2);
  });

  it('has no more than 200 on a page', async () => {
    refused(await get('logs', { limit: '201' }), 400, 'AB01', 'limit');
  });
});

describe('the histogram of requests', () => {
  it('counts by bucket and outcome', async () => {
    keep({}, { outcome: 'failed' }, { outcome: 'refused' }, { outcome: 'aborted' }, { time: NOON + 3_600_000 });
    const { summary, data_points, bucket } = await ok('logs/histogram', {
      time_of_generation_min: '2026-05-04T12:00:00Z',
      time_of_generation_max: '2026-05-04T14:00:00Z',
    });
    expect([bucket, summary]).toEqual(['hour', { total: 5, ok: 2, refused: 1, failed: 1, aborted: 1 }]);
    expect(data_points).toEqual([
      { timestamp: '2026-05-04T12:00:00.000Z', total: 4, ok: 1, refused: 1, failed: 1, aborted: 1 },
      { timestamp: '2026-05-04T13:00:00.000Z', total: 1, ok: 1, refused: 0, failed: 0, aborted: 0 },
    ]);
  });
});

describe('a request', () => {
  it('is read in the shape of the contract', async () => {
    const [id] = keep({
      metadata: { team: 'red' },
      config_slug: 'pc-a',
      option: 'config.targets[0]',
      retries: 1,
      mode: 'fallback',
    });
    const log = await ok(`logs/${id}`);
    expect(log).toMatchObject({
      object: 'log',
      _id: id,
      request: {
        url: 'https://sluice.example/v1/chat/completions',
        method: 'POST',
        gatewayHeaders: {
          'x-gateway-provider': '@openai-prod',
          'x-gateway-config': 'pc-a',
          'x-gateway-metadata': '{"team":"red"}',
        },
      },
      response: { status: 200, responseTime: 200, lastUsedOptionJsonPath: 'config.targets[0]' },
      organisation_id: admin.a.organisation_id,
      created_at: '2026-05-04T12:00:00.000Z',
      metrics: {
        id,
        organisation_name: 'Alpha',
        is_success: true,
        ai_org: 'openai',
        ai_model: 'gpt-4o',
        req_units: 100,
        res_units: 50,
        total_units: 150,
        cost: 1.2345,
        cost_micros: 12_345,
        cost_currency: 'USD',
        response_status_code: 200,
        response_time: 200,
        cache_status: 'MISS',
        stream_mode: 0,
        retry_success_count: 1,
        mode: 'fallback',
        virtual_key: 'openai-prod',
        source: 'gateway',
        config: 'pc-a',
        last_used_option_index: 0,
        workspace_slug: admin.a.workspace_slug,
        'metadata.key': ['team'],
        'metadata.value': ['red'],
      },
      log_format: 'v1',
    });
    for (const absent of ['body', 'headers']) expect(log.request).not.toHaveProperty(absent);
  });

  it('is 404 for an id that is none, is unknown, or is of another organisation', async () => {
    const [id] = keep({ organisation_id: admin.b.organisation_id, workspace_id: admin.b.workspace_id });
    for (const wrong of [id, 'x', crypto.randomUUID()]) {
      refused(await get(`logs/${wrong}`), 404, 'AB08', null);
    }
  });
});
