/** Exports of logs from the first call to the file, on both stores. */
import { createHash } from 'node:crypto';
import { Portkey } from 'portkey-ai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refused } from '../../test/support/accounts.ts';
import {
  type ExportsUnderTest,
  exportsOf,
  fileOf,
  MAX_ROWS,
  ORIGIN,
  startExports,
} from '../../test/support/log-exports.ts';
import { EXPORT_FIELD_IDS } from '../telemetry/log-export.ts';
import { sweepExports } from './log-exports.ts';

const RECORDS = 23;
const DAY_MS = 86_400_000;

describe.each(['sqlite', 'postgres'] as const)('an export of logs on %s', (engine) => {
  let under: ExportsUnderTest;
  let mine: ReturnType<typeof exportsOf>;

  beforeAll(async () => {
    under = await startExports(engine);
    const { a, b } = under.on.admin;
    mine = exportsOf(under.on.as(a.admin_api_key), a.workspace_id);
    await under.write(RECORDS, (n) => ({
      trace_id: `trace ${n}`,
      metadata: { n: String(n) },
      model_sent: n < 20 ? 'm' : 'other',
    }));
    await under.write(3, () => ({
      organisation_id: b.organisation_id,
      workspace_id: b.workspace_id,
      trace_id: 'foreign',
    }));
    under.work();
  }, 60_000);
  afterAll(() => under.close());

  const textOf = async (id: string, of = mine) => {
    const answer = await fileOf(under, await of.link(id));
    expect(answer.status).toBe(200);
    return answer.text();
  };
  const tracesOf = (text: string): number[] =>
    text
      .split('\n')
      .slice(0, -1)
      .map((line) => Number(JSON.parse(line).trace_id.slice(6)));
  const upTo = (count: number) => Array.from({ length: count }, (_, n) => n);

  it('is made, changed, started and downloaded by the official client', async () => {
    const { a } = under.on.admin;
    const client = new Portkey({ apiKey: a.workspace_api_key, baseURL: `${under.on.admin.url}/v1` });
    const { exports } = client.logs;
    const made = await exports.create({
      filters: { ai_model: 'm' },
      requestedData: ['id'],
      workspaceId: a.workspace_id,
    });
    expect(made).toMatchObject({ id: expect.any(String), total: 20, object: 'export' });
    const exportId = String(made.id);
    const changed = { exportId, filters: { ai_model: 'm', page_size: 7 }, requestedData: ['trace_id', 'request'] };
    expect(await exports.update(changed)).toMatchObject({ id: exportId, total: 7, object: 'export' });
    expect(await exports.retrieve({ exportId })).toMatchObject({
      id: exportId,
      organisation_id: a.organisation_id,
      workspace_id: a.workspace_id,
      filters: changed.filters,
      requested_data: changed.requestedData,
      status: 'draft',
      description: expect.any(String),
      created_at: expect.stringMatching(/Z$/),
      last_updated_at: expect.stringMatching(/Z$/),
      created_by: expect.stringMatching(/^[0-9a-f-]{36}$/),
      total_records: 7,
      object: 'export',
    });
    expect(await exports.start({ exportId })).toMatchObject({ message: expect.any(String), object: 'export' });
    await mine.ended(exportId);
    const listed = await exports.list({ workspaceId: a.workspace_id });
    expect([listed.object, listed.data?.[0]]).toMatchObject([
      'list',
      { id: exportId, status: 'success', total_records: 7 },
    ]);
    const { signed_url } = await under.on
      .as(a.workspace_api_key)('GET', `/v1/logs/exports/${exportId}/download`)
      .then(({ body }) => body);
    expect(signed_url).toMatch(new RegExp(`^${ORIGIN}/v1/logs/exports/${exportId}/file\\?token=`));
    const file = await fileOf(under, signed_url);
    expect(file.headers.get('content-disposition')).toBe(`attachment; filename="logs-${exportId}.jsonl"`);
    const text = await file.text();
    expect(tracesOf(text)).toEqual(upTo(7));
    expect(JSON.parse(text.split('\n')[0] ?? '')).toEqual({
      trace_id: 'trace 0',
      request: null,
      bodies_reason: 'expired',
    });
  });

  it('has all fields of the contract, and parts that are noted with rows, bytes and digest', async () => {
    const { id, status, records, bytes, total_records, expires_at } = await mine.run({
      requested_data: EXPORT_FIELD_IDS,
    });
    const text = await textOf(id);
    expect([status, records, total_records, bytes]).toEqual(['success', RECORDS, RECORDS, Buffer.byteLength(text)]);
    expect(tracesOf(text)).toEqual(upTo(RECORDS));
    expect(Math.abs(Date.parse(expires_at) - Date.now() - 7 * DAY_MS)).toBeLessThan(120_000);
    const row = await under.on.admin.tables.systemRead((tx) => tx.find('log_exports', { id }));
    expect(row?.parts.map(({ rows }) => rows)).toEqual([5, 5, 5, 5, 3]);
    let from = 0;
    for (const { bytes: size, sha256 } of row?.parts ?? []) {
      const part = Buffer.from(text).subarray(from, from + size);
      expect(createHash('sha256').update(part).digest('hex')).toBe(sha256);
      from += size;
    }
  });

  it('has one page of its filter, or everything with all, but not more than the limit', async () => {
    const page = await mine.run({ requested_data: ['trace_id'], filters: { page_size: 10, current_page: 2 } });
    expect(tracesOf(await textOf(page.id))).toEqual([20, 21, 22]);
    const all = await mine.run({ requested_data: ['trace_id'], all: true });
    expect(tracesOf(await textOf(all.id))).toEqual(upTo(RECORDS));
    refused(await mine.create({ all: true, filters: { page_size: 10 } }), 400, 'AB01', 'filters.page_size');
    refused(await mine.create({ filters: { page_size: 50_001 } }), 400, 'AB01', 'filters.page_size');
    const { a } = under.on.admin;
    await under.write(MAX_ROWS + 1, () => ({
      model_sent: 'many',
      workspace_id: a.workspace_id,
      time: Date.now() - 80 * DAY_MS,
    }));
    refused(await mine.create({ all: true, filters: { ai_model: 'many' } }), 400, 'AB01', 'all');
    expect((await mine.create({ filters: { ai_model: 'many' } })).body.total).toBe(MAX_ROWS + 1);
  });

  it('is CSV or Parquet where that is asked for', async () => {
    const filters = { ai_model: 'm' };
    const csv = await mine.run({
      requested_data: ['trace_id', 'response_status_code'],
      filters,
      format: 'csv',
      bom: true,
    });
    const lines = (await textOf(csv.id)).split('\r\n');
    expect(lines.slice(0, 2)).toEqual(['"trace_id","response_status_code"', '"trace 0",200']);
    const bytes = Buffer.from(await (await fileOf(under, await mine.link(csv.id))).arrayBuffer());
    expect(bytes.subarray(0, 3)).toEqual(Buffer.from('\uFEFF'));
    const parquet = await mine.run({ filters, format: 'parquet' });
    const file = await fileOf(under, await mine.link(parquet.id));
    expect(file.headers.get('content-type')).toBe('application/vnd.apache.parquet');
    const whole = Buffer.from(await file.arrayBuffer());
    expect([whole.subarray(0, 4).toString(), whole.subarray(-4).toString(), parquet.records]).toEqual([
      'PAR1',
      'PAR1',
      20,
    ]);
    // Parts go once the file is there.
    const kept = async () => (await under.kept()).filter((name) => name.includes(parquet.id));
    await expect.poll(kept).toEqual([`exp_${parquet.id}_1_file`]);
  });

  it('without a row is an empty file', async () => {
    const { id, status, total_records } = await mine.run({ filters: { ai_model: 'nobody' } });
    expect([status, total_records, await textOf(id)]).toEqual(['success', 0, '']);
  });

  it('a file is deleted after 7 days, an export after 90, and all of a workspace that is gone', async () => {
    const { tables } = under.on.admin;
    const set = (id: string, patch: object) => tables.systemWrite((tx) => tx.update('log_exports', { id }, patch));
    const blobsOf = async (id: string) => (await under.kept()).filter((name) => name.includes(id));
    const sweep = () => sweepExports({ tables, blobs: under.blobs });
    const { id } = await mine.run({ filters: { ai_model: 'm' } });
    await sweep();
    expect(await blobsOf(id)).toHaveLength(4);
    const link = await mine.link(id);
    await set(id, { expires_at: Date.now() - 1 });
    refused(await under.on.admin.call('GET', mine.at(id, '/download')), 400, 'AB01', null);
    await sweep();
    expect(await blobsOf(id)).toEqual([]);
    expect((await fileOf(under, link)).status).toBe(404);
    expect(await mine.read(id)).toMatchObject({ status: 'success', expires_at: null, total_records: 20 });
    await set(id, { created_at: Date.now() - 91 * DAY_MS });
    await sweep();
    refused(await under.on.admin.call('GET', mine.at(id)), 404, 'AB08', null);

    const made = await under.on.admin.call('POST', '/v1/admin/workspaces', { body: { name: 'Short-lived' } });
    const there = exportsOf(under.on.as(under.on.admin.a.admin_api_key), made.body.id);
    const gone = await there.run();
    await under.on.admin.call('DELETE', `/v1/admin/workspaces/${made.body.id}`, { body: { force_delete: true } });
    await sweep();
    expect(await blobsOf(gone.id)).toEqual([]);
    expect(await tables.systemRead((tx) => tx.count('log_exports', { where: { id: gone.id } }))).toBe(0);
  });

  it('is changed, started, cancelled and downloaded in the states of the contract alone', async () => {
    const id = await mine.made();
    const set = (status: 'draft' | 'in_progress' | 'success' | 'failed' | 'stopped') =>
      under.on.admin.tables.systemWrite((tx) => {
        const expires_at = status === 'success' ? Date.now() + DAY_MS : null;
        return tx.update('log_exports', { id }, { status, expires_at, step: 'done', due_at: Number.MAX_SAFE_INTEGER });
      });
    const calls = {
      change: () => under.on.admin.call('PUT', mine.at(id), { body: { filters: {} } }),
      start: () => under.on.admin.call('POST', mine.at(id, '/start')),
      cancel: () => under.on.admin.call('POST', mine.at(id, '/cancel')),
      download: () => under.on.admin.call('GET', mine.at(id, '/download')),
    };
    const allowed = {
      draft: ['change', 'start'],
      in_progress: ['cancel'],
      success: ['download'],
      failed: ['start'],
      stopped: ['start'],
    } as const;
    for (const [status, may] of Object.entries(allowed)) {
      for (const [name, call] of Object.entries(calls)) {
        await set(status as keyof typeof allowed);
        const answer = await call();
        if ((may as readonly string[]).includes(name)) expect(answer.status, `${name} ${status}`).toBe(200);
        else refused(answer, 400, 'AB01', null);
        if (name === 'start' && answer.status === 200) await mine.ended(id);
      }
    }
  });
});
