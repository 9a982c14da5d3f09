/** Whose exports a caller sees, what they contain, and who opens their links. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refused } from '../../../../test/support/accounts.ts';
import { type ExportsUnderTest, exportsOf, fileOf, startExports } from '../../../../test/support/log-exports.ts';
import type { Caller } from '../../../../test/support/organisation.ts';
import type { StoredLog } from '../../../store/ports.ts';

const MINUTES = 60_000;

describe.each(['sqlite', 'postgres'] as const)('exports of logs on %s', (engine) => {
  let under: ExportsUnderTest;
  let mine: ReturnType<typeof exportsOf>;
  let theirs: ReturnType<typeof exportsOf>;
  let members: { readonly id: string; readonly key: string; readonly calls: readonly Caller[] }[];
  let records: StoredLog[];

  beforeAll(async () => {
    under = await startExports(engine);
    const { on } = under;
    const { a, b } = on.admin;
    mine = exportsOf(on.as(a.admin_api_key), a.workspace_id);
    theirs = exportsOf(on.as(b.admin_api_key), b.workspace_id);
    members = await Promise.all(
      [1, 2].map(async () => {
        const id = await on.addUser('member', { [a.workspace_id]: 'member' });
        const scopes = ['logs.view', 'logs.list', 'logs.export'];
        const { key } = await on.makeKey('workspace/user', scopes, { user_id: id });
        return { id, key, calls: [on.as(key), await on.signIn(id)] };
      }),
    );
    records = await under.write(6, (n) => ({ user_id: members[n % 2]?.id ?? null, metadata: { _user: 'ada' } }));
    await under.write(2, () => ({ organisation_id: b.organisation_id, workspace_id: b.workspace_id }));
    under.work();
  }, 60_000);
  afterAll(() => under.close());

  const at = (id: string, what = '') => mine.at(id, what);
  const idsIn = async (link: string) =>
    (await (await fileOf(under, link)).text())
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line).id);
  const setting = async (name: string, value: boolean | null) => {
    const body = { security_settings: { [name]: value } };
    const answer = await under.on.admin.call('PUT', '/v1/admin/organisation/settings', { body });
    expect(answer.status, answer.text).toBe(200);
  };
  const first = () => {
    const [one, other] = members;
    if (one === undefined || other === undefined) throw new Error('there are two members');
    return { one, other };
  };

  it('of another organisation or workspace are as those that nobody has, on every route', async () => {
    const { id } = await mine.run();
    const link = await mine.link(id);
    const { a, b, call } = under.on.admin;
    const made = await call('POST', '/v1/admin/workspaces', { body: { name: 'Beside' } });
    const beside = await under.on.makeKey('workspace/service', ['logs.view', 'logs.list', 'logs.export'], {
      workspace_id: made.body.id,
    });
    for (const key of [b.admin_api_key, b.workspace_api_key, beside.key]) {
      for (const given of [id, randomUUID(), 'x']) {
        for (const [method, what, body] of [
          ['GET', '', undefined],
          ['PUT', '', { filters: {} }],
          ['POST', '/start', undefined],
          ['POST', '/cancel', undefined],
          ['GET', '/download', undefined],
        ] as const) {
          const answer = await call(method, `/v1/logs/exports/${given}${what}`, { key, ...(body ? { body } : {}) });
          refused(answer, 404, 'AB08', null);
        }
      }
      const listed = await call('GET', '/v1/logs/exports', { key });
      expect(listed.body.data.map((one: { id: string }) => one.id)).not.toContain(id);
    }
    const { id: foreign } = await theirs.run();
    expect(await idsIn(await mine.link(id))).toEqual(records.map((record) => record.id));
    expect(await idsIn(await theirs.link(foreign))).toHaveLength(2);
    // A token opens the export that it was made for, and no other.
    const token = new URL(link).searchParams.get('token') ?? '';
    const other = new URL(await theirs.link(foreign));
    other.searchParams.set('token', token);
    expect((await fileOf(under, other.href)).status).toBe(403);
    expect(a.organisation_id).not.toBe(b.organisation_id);
  });

  it('of others are hidden from a user key', async () => {
    const { one, other } = first();
    const own = exportsOf(one.calls[0] as Caller, under.on.admin.a.workspace_id);
    const { id } = await own.run();
    expect(await under.on.admin.call('GET', at(id))).toMatchObject({ body: { created_by: one.id } });
    for (const [key, sees] of [
      [one.key, true],
      [other.key, false],
    ] as const) {
      const read = await under.on.admin.call('GET', `/v1/logs/exports/${id}`, { key });
      const { body } = await under.on.admin.call('GET', '/v1/logs/exports', { key });
      expect([read.status, body.data.length]).toEqual(sees ? [200, 1] : [404, 0]);
      expect(body.total).toBe(sees ? 1 : 0);
    }
  });

  it('with membersViewAllData off have the own requests of a member, who sees no export of others', async () => {
    const { one } = first();
    const { id: whole } = await mine.run();
    await setting('membersViewAllData', false);
    for (const call of one.calls) {
      const own = exportsOf(call, under.on.admin.a.workspace_id);
      const { id, total_records } = await own.run();
      expect(total_records).toBe(3);
      const mineAlone = records.filter((_, n) => n % 2 === 0).map((record) => record.id);
      expect(await idsIn(await own.link(id))).toEqual(mineAlone);
      refused(await call('GET', at(whole)), 404, 'AB08', null);
    }
    // Without the setting it was made of all: the file is written of what may be read now.
    await setting('membersViewAllData', null);
    const own = exportsOf(one.calls[0] as Caller, under.on.admin.a.workspace_id);
    const draft = await own.made();
    expect((await own.read(draft)).total_records).toBe(6);
    await setting('membersViewAllData', false);
    await own.start(draft);
    expect((await own.ended(draft)).total_records).toBe(3);
    await setting('membersViewAllData', null);
  });

  it('with membersViewLogMetadata off have no metadata, as a field or in a filter', async () => {
    const { one } = first();
    await setting('membersViewLogMetadata', false);
    for (const call of one.calls) {
      const own = exportsOf(call, under.on.admin.a.workspace_id);
      refused(await own.create({ requested_data: ['metadata'] }), 403, 'AB03', 'requested_data');
      refused(await own.create({ filters: { metadata: { _user: 'ada' } } }), 403, 'AB03', 'metadata');
      expect((await own.create()).status).toBe(200);
    }
    await setting('membersViewLogMetadata', null);
  });

  it('with membersViewLogs off are closed to a member', async () => {
    const { one } = first();
    await setting('membersViewLogs', false);
    for (const call of one.calls) {
      refused(await exportsOf(call, under.on.admin.a.workspace_id).create(), 403, 'AB03', null);
    }
    await setting('membersViewLogs', null);
  });

  it('are opened by a link for 15 minutes, and while whoever asked for it may', async () => {
    const { key, id: keyId } = await under.on.makeKey('workspace/service', ['logs.view', 'logs.export']);
    const { id } = await mine.run();
    const linkOf = async (): Promise<string> =>
      (await under.on.as(key)('GET', `/v1/logs/exports/${id}/download`)).body.signed_url;
    const link = await linkOf();
    const status = async (url: string, method = 'GET') => (await fileOf(under, url, method)).status;
    const head = await fileOf(under, link, 'HEAD');
    expect([head.status, Number(head.headers.get('content-length'))]).toEqual([200, (await mine.read(id)).bytes]);
    expect(await status(link)).toBe(200);
    for (const wrong of [link.slice(0, -1), `${link}A`, link.replace(/token=./, 'token=_'), link.split('?')[0] ?? '']) {
      expect(await status(wrong)).toBe(403);
    }
    expect(await status(link, 'POST')).toBe(405);
    under.later(14 * MINUTES);
    expect(await status(link)).toBe(200);
    under.later(MINUTES);
    expect(await status(link)).toBe(403);
    const next = await linkOf();
    expect(await status(next)).toBe(200);
    expect((await under.on.admin.call('DELETE', `/v1/api-keys/${keyId}`)).status).toBe(200);
    expect(await status(next)).toBe(403);
  });

  it('leave an audit row when they are made, changed, started, cancelled and downloaded', async () => {
    const { call, a } = under.on.admin;
    const { id } = await mine.run();
    await mine.link(id);
    const draft = await mine.made();
    await call('PUT', at(draft), { body: { filters: { ai_model: 'm' } } });
    await under.on.admin.tables.systemWrite((tx) =>
      tx.update('log_exports', { id: draft }, { status: 'in_progress', started_at: 1 }),
    );
    expect((await call('POST', at(draft, '/cancel'))).status).toBe(200);
    const rows = await under.on.admin.tables.systemRead((tx) =>
      tx.list('audit_log', { where: { organisation_id: a.organisation_id, resource_id: { in: [id, draft] } } }),
    );
    const of = (wanted: string) => rows.filter((row) => row.resource_id === wanted).map((row) => row.action);
    expect(of(id).sort()).toEqual(['create', 'export', 'export']);
    expect(of(draft).sort()).toEqual(['create', 'manage', 'update']);
    expect(new Set(rows.map((row) => row.resource_type))).toEqual(new Set(['log exports']));
  });

  it('tell which fields are denied, by organisation, workspace and nobody', async () => {
    const { call, a } = under.on.admin;
    const path = '/v1/logs/exports/field-restrictions';
    const whole = { workspace_id: null, deniedFields: [], source: 'none', object: 'export-field-restrictions' };
    expect((await call('GET', path)).body).toEqual(whole);
    const set = (body: object) => call('PUT', '/v1/admin/organisation/settings', { body });
    expect((await set({ export_settings: { deniedFields: ['cost'] } })).status).toBe(200);
    const there = { ...whole, workspace_id: a.workspace_id, deniedFields: ['cost'], source: 'organisation' };
    expect((await call('GET', `${path}?workspace_id=${a.workspace_id}`)).body).toEqual(there);
    expect((await call('GET', path, { key: a.workspace_api_key })).body).toEqual(there);
    await set({ export_settings: { deniedFields: [] } });
  });

  it('of a filter that names another workspace are refused', async () => {
    for (const workspace_slug of ['another', under.on.admin.b.workspace_slug, under.on.admin.b.workspace_id]) {
      refused(await mine.create({ filters: { workspace_slug } }), 404, 'AB02', 'filters.workspace_slug');
    }
    const { workspace_slug } = under.on.admin.a;
    expect((await mine.create({ filters: { workspace_slug } })).status).toBe(200);
  });

  it.each([
    [{ requested_data: [] }, 'requested_data'],
    [{ requested_data: ['id', 'id'] }, 'requested_data[1]'],
    [{ requested_data: ['password'] }, 'requested_data[0]'],
    [{ filters: { cost_min: 2, cost_max: 1 } }, 'filters.cost_max'],
    [{ filters: { status_code: 'many' } }, 'filters.status_code[0]'],
    [{ filters: { time_of_generation_min: 'soon' } }, 'filters.time_of_generation_min'],
    [{ filters: { unknown: 1 } }, 'filters.unknown'],
    [{ format: 'xlsx' }, 'format'],
  ])('refuse %j', async (body, param) => {
    refused(await mine.create(body), 400, 'AB01', param);
  });
});
