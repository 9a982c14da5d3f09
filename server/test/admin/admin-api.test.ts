/** What the administration API promises, on a real listener and on both engines. */
import { randomBytes } from 'node:crypto';
import { Agent, request } from 'node:http';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AdminHarness, type Answer, emptyTables, startAdmin } from '../support/admin.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const NOWHERE = '00000000-0000-7000-8000-000000000000';

describe.each(['sqlite', 'postgres'] as const)('the administration API on %s', (engine) => {
  let admin: AdminHarness;

  beforeAll(async () => {
    admin = await startAdmin(await emptyTables(engine));
  });

  afterAll(async () => {
    await admin?.close();
  });

  const fails = (answer: Answer, status: number, code: string, param: string | null = null) => {
    expect([answer.status, answer.body?.error?.code, answer.body?.error?.param], answer.text).toEqual([
      status,
      code,
      param,
    ]);
    expect(Object.keys(answer.body.error).sort()).toEqual(['code', 'message', 'param', 'type']);
    expect(answer.body.error.type).toBe(status < 500 ? 'client_error' : 'server_error');
    expect(answer.body.error.message).toMatch(/^.{10,}[.)!?]$/s);
    expect(answer.headers.get('x-gateway-request-id')).toMatch(UUID);
  };

  /** A key of organisation A, made through the API. */
  async function makeKey(
    scopes: string[],
    patch: Record<string, unknown> = {},
    type = 'workspace/service',
  ): Promise<{ id: string; key: string }> {
    const where = type.startsWith('workspace') ? { workspace_id: admin.a.workspace_slug } : {};
    const answer = await admin.call('POST', `/v1/api-keys/${type}`, {
      body: { name: 'made for a test', scopes, ...where, ...patch },
    });
    expect(answer.status, answer.text).toBe(200);
    return answer.body;
  }

  const audit = (organisation = admin.a.organisation_id) =>
    admin.tables.systemRead((tx) =>
      tx.list('audit_log', { where: { organisation_id: organisation }, orderBy: [['timestamp', 'desc']] }),
    );

  async function addUser(role: 'admin' | 'member', workspaceRole: 'admin' | 'manager' | 'member' | null) {
    const id = crypto.randomUUID();
    const stamps = {
      created_at: Date.UTC(2026, 1, 3, 4, 5, 6, 789),
      last_updated_at: Date.UTC(2026, 11, 31, 23, 59, 59),
    };
    const { organisation_id, workspace_id } = admin.a;
    const person = { email: `${id}@alpha.example`, first_name: 'Grace', last_name: 'Hopper' };
    await admin.tables.systemWrite(async (tx) => {
      await tx.insert('users', { id, organisation_id, ...person, role, status: 'active', ...stamps });
      if (workspaceRole === null) return;
      const member = { organisation_id, workspace_id, user_id: id, role: workspaceRole, status: 'active' as const };
      await tx.insert('workspace_members', { ...member, ...stamps });
    });
    return id;
  }

  describe('GET /admin/users/{userId}', () => {
    it('answers exactly the published fields, dates as YYYY-MM-DD HH:MM:SS in UTC', async () => {
      const id = await addUser('member', 'member');
      const answer = await admin.call('GET', `/v1/admin/users/${id}`);
      expect(answer.status).toBe(200);
      expect(answer.body).toEqual({
        object: 'user',
        id,
        first_name: 'Grace',
        last_name: 'Hopper',
        role: 'member',
        email: `${id}@alpha.example`,
        created_at: '2026-02-03 04:05:06',
        last_updated_at: '2026-12-31 23:59:59',
        workspace_ids: [admin.a.workspace_slug],
      });
    });

    it('lists every workspace for owners and admins, and the joined ones for members', async () => {
      const { organisation_id } = admin.a;
      await admin.tables.systemWrite((tx) =>
        tx.insert('workspaces', {
          id: crypto.randomUUID(),
          organisation_id,
          slug: 'ws-second',
          name: 'Second',
          icon: null,
          description: null,
          is_default: false,
          status: 'active',
          defaults: null,
          settings: {},
          security_settings: {},
          creation_source: null,
          scim_source_id: null,
          last_reset_at: null,
          usage_limits: null,
          rate_limits: null,
          created_by: null,
          created_at: Date.now() + 1,
          last_updated_at: Date.now(),
        }),
      );
      const slugs = async (id: string) => (await admin.call('GET', `/v1/admin/users/${id}`)).body.workspace_ids;
      expect(await slugs(admin.a.user_id)).toEqual([admin.a.workspace_slug, 'ws-second']);
      expect(await slugs(await addUser('admin', null))).toEqual([admin.a.workspace_slug, 'ws-second']);
      expect(await slugs(await addUser('member', 'manager'))).toEqual([admin.a.workspace_slug]);
      expect(await slugs(await addUser('member', null))).toEqual([]);
    });

    it('missing, foreign and malformed ids get one and the same 404', async () => {
      const ids = [NOWHERE, admin.b.user_id, 'x', admin.b.user_id.toUpperCase(), '%20', 'a'.repeat(300)];
      const answers = await Promise.all(ids.map((id) => admin.call('GET', `/v1/admin/users/${id}`)));
      for (const answer of answers) fails(answer, 404, 'AB08');
      expect(new Set(answers.map((answer) => answer.text)).size).toBe(1);
      const comparable = answers.map(({ headers }) =>
        [...headers]
          .filter(([name]) => name !== 'x-gateway-request-id' && name !== 'date')
          .sort()
          .join('\n'),
      );
      expect(new Set(comparable).size).toBe(1);
    });
  });

  describe('creating an API key', () => {
    it.each([
      ['organisation/service', 'org', ['workspaces.read'], 'organisation-service'],
      ['workspace/service', 'wks', ['completions.write'], 'workspace-service'],
    ])('POST /api-keys/%s shows the whole key once and it works at once', async (path, mark, scopes, type) => {
      const made = await makeKey(scopes, {}, path);
      expect(made).toEqual({
        id: expect.stringMatching(UUID),
        key: expect.stringMatching(`^slc_${mark}_`),
        object: 'api-key',
      });
      const read = await admin.call('GET', `/v1/api-keys/${made.id}`);
      expect(read.body).toMatchObject({
        id: made.id,
        type,
        scopes,
        status: 'active',
        object: 'api-key',
        creation_mode: 'api',
      });
      expect(read.text).not.toContain(made.key.slice(21));
      expect(read.body.key).toMatch(/^[0-9A-Za-z]{2}\*{7}[0-9A-Za-z]{2}$/);
      const use = await admin.call('GET', '/v1/api-keys', { key: made.key });
      fails(use, 403, 'AB03');
    });

    it('a user key belongs to a member of the workspace', async () => {
      const user_id = await addUser('member', 'member');
      const made = await makeKey(['completions.write'], { user_id }, 'workspace/user');
      const read = await admin.call('GET', `/v1/api-keys/${made.id}`);
      expect(read.body).toMatchObject({ type: 'workspace-user', user_id, workspace_id: admin.a.workspace_id });
      const body = { name: 'x', scopes: [], workspace_id: admin.a.workspace_id };
      const create = (extra: object) =>
        admin.call('POST', '/v1/api-keys/workspace/user', { body: { ...body, ...extra } });
      fails(await create({}), 400, 'AB01', 'user_id');
      const refused = [NOWHERE, admin.b.user_id, await addUser('member', null)].map((id) => create({ user_id: id }));
      for (const answer of await Promise.all(refused)) fails(answer, 404, 'AB02', 'user_id');
    });

    it('grants no scope that the creator lacks, on create and on update', async () => {
      const creator = await makeKey([
        'workspace_service_api_keys.create',
        'workspace_service_api_keys.update',
        'configs.read',
      ]);
      const create = (scopes: string[]) =>
        admin.call('POST', '/v1/api-keys/workspace/service', { key: creator.key, body: { name: 'x', scopes } });
      const made = await create(['configs.read']);
      expect(made.status, made.text).toBe(200);
      fails(await create(['configs.read', 'configs.update']), 403, 'AB03', 'scopes[1]');
      fails(await create(['completions.write']), 403, 'AB03', 'scopes[0]');
      const update = (id: string, body: object) => admin.call('PUT', `/v1/api-keys/${id}`, { key: creator.key, body });
      fails(await update(made.body.id, { scopes: ['configs.delete'] }), 403, 'AB03', 'scopes[0]');
      const strong = await makeKey(['completions.write']);
      expect((await update(strong.id, { name: 'renamed' })).body).toEqual({});
      fails(await update(strong.id, { expires_at: null }), 403, 'AB03', 'expires_at');
    });

    it('refuses what makes no sense, naming the field', async () => {
      const body = { name: 'x', scopes: ['completions.write'], workspace_id: admin.a.workspace_id };
      const create = (extra: object, path = 'workspace/service') =>
        admin.call('POST', `/v1/api-keys/${path}`, { body: { ...body, ...extra } });
      fails(await create({}, 'organisation/user'), 400, 'AB01', 'subType');
      fails(await create({}, 'team/service'), 400, 'AB01', 'type');
      fails(await create({ scopes: ['nonsense.write'] }), 400, 'AB01', 'scopes[0]');
      fails(await create({ scopes: ['audit_logs.list'] }), 400, 'AB01', 'scopes[0]');
      fails(await create({ name: '' }), 400, 'AB01', 'name');
      fails(await create({ name: 'n'.repeat(256) }), 400, 'AB01', 'name');
      fails(await create({ name: undefined }), 400, 'AB01', 'name');
      fails(await create({ nam: 'x' }), 400, 'AB01', 'nam');
      fails(await create({ __proto__: null, constructor: 1 }), 400, 'AB01', 'constructor');
      fails(await create({ user_id: admin.a.user_id }), 400, 'AB01', 'user_id');
      fails(await create({ workspace_id: undefined }), 400, 'AB01', 'workspace_id');
      fails(await create({ workspace_id: 'ws-nowhere' }), 404, 'AB02', 'workspace_id');
      fails(await create({ workspace_id: admin.b.workspace_id }), 404, 'AB02', 'workspace_id');
      fails(await create({ workspace_id: admin.b.workspace_slug }), 404, 'AB02', 'workspace_id');
      fails(await create({ organisation_id: admin.b.organisation_id }), 403, 'AB03', 'organisation_id');
      fails(await create({ organisation_id: NOWHERE }), 403, 'AB03', 'organisation_id');
      fails(await create({}, 'organisation/service'), 400, 'AB01', 'workspace_id');
      fails(await create({ expires_at: '2020-01-01T00:00:00Z' }), 400, 'AB01', 'expires_at');
      fails(await create({ expires_at: '2027-02-30T00:00:00Z' }), 400, 'AB01', 'expires_at');
      fails(await create({ expires_at: '2027-02-01' }), 400, 'AB01', 'expires_at');
      fails(await create({ alert_emails: ['not an address'] }), 400, 'AB01', 'alert_emails[0]');
      fails(
        await create({ rate_limits: [{ type: 'requests', unit: 'rpy', value: 1 }] }),
        400,
        'AB01',
        'rate_limits[0].unit',
      );
      fails(
        await create({ rate_limits: [{ type: 'requests', unit: 'rpm', value: '1' }] }),
        400,
        'AB01',
        'rate_limits[0].value',
      );
      fails(
        await create({ rate_limits: [{ type: 'requests', unit: 'rpm', value: -1 }] }),
        400,
        'AB01',
        'rate_limits[0].value',
      );
      fails(await create({ usage_limits: { credit_limit: 0 } }), 400, 'AB01', 'usage_limits.credit_limit');
      fails(
        await create({ usage_limits: { credit_limit: 5, alert_threshold: 5 } }),
        400,
        'AB01',
        'usage_limits.alert_threshold',
      );
      fails(
        await create({ usage_limits: { credit_limit: 5, periodic_reset: 'weekly', periodic_reset_days: 3 } }),
        400,
        'AB01',
        'usage_limits.periodic_reset_days',
      );
      fails(await create({ defaults: { config_id: 'pc-nowhere' } }), 404, 'AB02', 'defaults.config_id');
      fails(await create({ defaults: { metadata: { a: 1 } } }), 400, 'AB01', 'defaults.metadata.a');
      fails(await create({ defaults: { metadata: { a: 'x'.repeat(129) } } }), 400, 'AB01', 'defaults.metadata.a');
      fails(await create({ rotation_policy: {} }), 400, 'AB01', 'rotation_policy');
      fails(
        await create({ rotation_policy: { rotation_period_days: 366 } }),
        400,
        'AB01',
        'rotation_policy.rotation_period_days',
      );
      fails(
        await create({ rotation_policy: { rotation_period: 'weekly', key_transition_period_ms: 1_799_999 } }),
        400,
        'AB01',
        'rotation_policy.key_transition_period_ms',
      );
      fails(
        await create({ rotation_policy: { rotation_period: 'weekly', key_transition_period_ms: 7 * 86_400_000 } }),
        400,
        'AB01',
        'rotation_policy.key_transition_period_ms',
      );
      fails(
        await create({ rotation_policy: { next_rotation_at: '2021-01-01T00:00:00Z' } }),
        400,
        'AB01',
        'rotation_policy.next_rotation_at',
      );
    });

    it('stores every field and gives it back', async () => {
      const made = await makeKey(['completions.write'], {
        name: 'Schlüssel 🔑',
        description: 'for a test',
        rate_limits: [{ type: 'tokens', unit: 'rpw', value: 0 }],
        usage_limits: { credit_limit: 10, alert_threshold: 9, periodic_reset_days: 30 },
        defaults: { metadata: { team: 'a' }, allow_config_override: false },
        alert_emails: ['ops@alpha.example'],
        expires_at: '2099-12-31T23:59:59+02:00',
        rotation_policy: { rotation_period_days: 10 },
      });
      const read = (await admin.call('GET', `/v2/api-keys/${made.id}?include_usage=true`)).body;
      expect(read).toMatchObject({
        name: 'Schlüssel 🔑',
        description: 'for a test',
        organisation_id: admin.a.organisation_id,
        workspace_id: admin.a.workspace_id,
        user_id: null,
        rate_limits: [{ type: 'tokens', unit: 'rpw', value: 0 }],
        usage_limits: { credit_limit: 10, alert_threshold: 9, periodic_reset_days: 30, type: 'cost', status: 'active' },
        defaults: { metadata: { team: 'a' }, allow_config_override: false },
        alert_emails: ['ops@alpha.example'],
        expires_at: '2099-12-31T21:59:59.000Z',
        rotation_policy: { rotation_period_days: 10, key_transition_period_ms: 1_800_000, status: 'ACTIVE' },
        last_rotated_at: null,
      });
      expect(read.rotation_policy.next_rotation_at).toMatch(/T00:00:00\.000Z$/);
    });
  });

  describe('updating and deleting an API key', () => {
    it('changes what is named, clears what is null and leaves the rest', async () => {
      const made = await makeKey(['completions.write', 'logs.list'], {
        description: 'before',
        alert_emails: ['a@b.example'],
        usage_limits: { credit_limit: 5 },
        defaults: { metadata: { a: 'b' }, allow_config_override: false },
      });
      const put = (body: object) => admin.call('PUT', `/v1/api-keys/${made.id}`, { body });
      const read = async () => (await admin.call('GET', `/v1/api-keys/${made.id}`)).body;
      expect((await put({})).body).toEqual({});
      expect((await put({ name: 'after', description: null, usage_limits: null })).body).toEqual({});
      expect(await read()).toMatchObject({
        name: 'after',
        description: null,
        usage_limits: null,
        alert_emails: ['a@b.example'],
        scopes: ['completions.write', 'logs.list'],
      });
      await put({ defaults: { metadata: null }, scopes: ['logs.list'] });
      expect(await read()).toMatchObject({ defaults: { allow_config_override: false }, scopes: ['logs.list'] });
      for (const field of ['type', 'workspace_ids', 'user_id', 'key', 'status']) {
        fails(await put({ [field]: 'x' }), 400, 'AB01', field);
      }
    });

    it('reset_usage and a raised credit limit bring an exhausted key back', async () => {
      const made = await makeKey(['completions.write'], { usage_limits: { credit_limit: 5 } });
      const exhaust = () =>
        admin.tables.systemWrite((tx) => tx.update('api_keys', { id: made.id }, { status: 'exhausted' }));
      const status = async () => (await admin.call('GET', `/v1/api-keys/${made.id}`)).body.status;
      const put = (body: object) => admin.call('PUT', `/v1/api-keys/${made.id}`, { body });
      await exhaust();
      expect(await status()).toBe('exhausted');
      await put({ usage_limits: { credit_limit: 4 } });
      expect(await status()).toBe('exhausted');
      await put({ usage_limits: { credit_limit: 6 } });
      expect(await status()).toBe('active');
      await exhaust();
      await put({ reset_usage: true });
      expect(await status()).toBe('active');
    });

    it('a deleted key is refused with the very next request, and its object is gone', async () => {
      const made = await makeKey(['workspaces.read', 'workspace_service_api_keys.list']);
      expect((await admin.call('GET', '/v1/api-keys', { key: made.key })).status).toBe(200);
      expect((await admin.call('DELETE', `/v1/api-keys/${made.id}`)).body).toEqual({});
      fails(await admin.call('GET', '/v1/api-keys', { key: made.key }), 401, 'AB05');
      fails(await admin.call('GET', `/v1/api-keys/${made.id}`), 404, 'AB08');
      fails(await admin.call('DELETE', `/v1/api-keys/${made.id}`), 404, 'AB08');
      const listed = await admin.call('GET', `/v1/api-keys?ids=${made.id}`);
      expect(listed.body).toEqual({ object: 'list', total: 0, data: [] });
    });

    it('an expired key is 401, and prolonging it makes it work again', async () => {
      const made = await makeKey(['workspace_service_api_keys.list']);
      await admin.tables.systemWrite((tx) => tx.update('api_keys', { id: made.id }, { expires_at: Date.now() - 1 }));
      fails(await admin.call('GET', '/v1/api-keys', { key: made.key }), 401, 'AB05');
      expect((await admin.call('GET', `/v1/api-keys/${made.id}`)).body.status).toBe('expired');
      await admin.call('PUT', `/v1/api-keys/${made.id}`, { body: { expires_at: null } });
      expect((await admin.call('GET', '/v1/api-keys', { key: made.key })).status).toBe(200);
    });

    it('a key of another organisation, of another workspace, or of none: one and the same 404', async () => {
      const foreign = await admin.call('GET', '/v1/api-keys', { key: admin.b.admin_api_key });
      const ids = [foreign.body.data[0].id, foreign.body.data[1].id, NOWHERE, 'x', "' OR 1=1"].map(encodeURIComponent);
      for (const method of ['GET', 'PUT', 'DELETE']) {
        const body = method === 'PUT' ? { name: 'taken over' } : undefined;
        const answers = await Promise.all(ids.map((id) => admin.call(method, `/v1/api-keys/${id}`, { body })));
        for (const answer of answers) fails(answer, 404, 'AB08');
        expect(new Set(answers.map((answer) => answer.text)).size).toBe(1);
      }
      const own = await admin.call('GET', '/v1/api-keys?page_size=100');
      const organisationKey = own.body.data.find((key: { type: string }) => key.type === 'organisation-service');
      const fromWorkspace = await admin.call('GET', `/v1/api-keys/${organisationKey.id}`, {
        key: admin.a.workspace_api_key,
      });
      const missing = await admin.call('GET', `/v1/api-keys/${NOWHERE}`, { key: admin.a.workspace_api_key });
      fails(fromWorkspace, 404, 'AB08');
      expect(fromWorkspace.text).toBe(missing.text);
    });
  });

  describe('listing API keys', () => {
    it('answers the list envelope, newest first, each organisation its own', async () => {
      const made = await makeKey(['completions.write']);
      const list = await admin.call('GET', '/v1/api-keys?page_size=1');
      expect(list.body).toMatchObject({
        object: 'list',
        total: expect.any(Number),
        data: [{ id: made.id, object: 'api-key' }],
      });
      const other = await admin.call('GET', '/v1/api-keys', { key: admin.b.admin_api_key });
      expect(other.body.total).toBe(2);
      expect(other.text).not.toContain(admin.a.organisation_id);
    });

    it('pages do not overlap and together hold everything', async () => {
      const all = (await admin.call('GET', '/v1/api-keys?page_size=100')).body;
      const ids: string[] = [];
      for (let page = 0; page * 3 < all.total; page++) {
        const { body } = await admin.call('GET', `/v1/api-keys?page_size=3&current_page=${page}`);
        expect(body.total).toBe(all.total);
        ids.push(...body.data.map((key: { id: string }) => key.id));
      }
      expect(ids).toEqual(all.data.map((key: { id: string }) => key.id));
      const beyond = await admin.call('GET', `/v1/api-keys?current_page=1000`);
      expect(beyond.body.data).toEqual([]);
    });

    it('takes page numbers in plain digits only', async () => {
      for (const value of [
        '0',
        '101',
        '-1',
        '%2B1',
        '1.0',
        '1e2',
        '0x1',
        '٣',
        '',
        ' 1',
        '9223372036854775808',
        '18446744073709551617',
      ]) {
        fails(await admin.call('GET', `/v1/api-keys?page_size=${value}`), 400, 'AB01', 'page_size');
      }
      for (const value of ['-1', '1.5', 'a', '', '99999999999999999999', '10000001']) {
        fails(await admin.call('GET', `/v1/api-keys?current_page=${value}`), 400, 'AB01', 'current_page');
      }
      fails(await admin.call('GET', '/v1/api-keys?current_page=10000000&page_size=2'), 400, 'AB01', 'current_page');
      expect((await admin.call('GET', '/v1/api-keys?current_page=100000&page_size=100')).status).toBe(200);
    });

    it('a parameter given twice, bracketed, or unknown is refused', async () => {
      fails(await admin.call('GET', '/v1/api-keys?page_size=1&page_size=2'), 400, 'AB01', 'page_size');
      fails(await admin.call('GET', '/v1/api-keys?page_size=1&page%5Fsize=1'), 400, 'AB01', 'page_size');
      fails(await admin.call('GET', '/v1/api-keys?status[]=active'), 400, 'AB01', 'status[]');
      fails(await admin.call('GET', '/v1/api-keys?limit=1'), 400, 'AB01', 'limit');
      fails(await admin.call('GET', '/v1/api-keys?page_size=%zz'), 400, 'AB01');
      fails(await admin.call('GET', '/v1/api-keys?status=%00'), 400, 'AB01');
      fails(await admin.call('GET', '/v1/api-keys?status=%ff'), 400, 'AB01');
    });

    it('ids: own ones are found, foreign and missing ones left out, malformed and more than 100 refused', async () => {
      const own = (await makeKey(['completions.write'])).id;
      const foreign = (await admin.call('GET', '/v1/api-keys', { key: admin.b.admin_api_key })).body.data[0].id;
      const ids = async (value: string) => admin.call('GET', `/v2/api-keys?ids=${value}`);
      const found = await ids(`${own},${foreign},${NOWHERE},${own}`);
      expect(found.body).toMatchObject({ total: 1, data: [{ id: own }] });
      expect((await ids(foreign)).text).toBe((await ids(NOWHERE)).text);
      fails(await ids('x'), 400, 'AB01', 'ids[0]');
      fails(await ids(`${own},`), 400, 'AB01', 'ids[1]');
      fails(await ids(''), 400, 'AB01', 'ids[0]');
      const many = Array.from({ length: 101 }, () => crypto.randomUUID()).join(',');
      fails(await ids(many), 400, 'AB01', 'ids');
    });

    it('filters by status, counting keys past their expiry as expired', async () => {
      const key = await makeKey(['completions.write']);
      await admin.tables.systemWrite((tx) => tx.update('api_keys', { id: key.id }, { expires_at: Date.now() - 1 }));
      const has = async (status: string) =>
        (await admin.call('GET', `/v1/api-keys?ids=${key.id}&status=${status}`)).body.total === 1;
      expect([await has('active'), await has('exhausted'), await has('expired')]).toEqual([false, false, true]);
      expect(await has('active,expired')).toBe(true);
      fails(await admin.call('GET', '/v1/api-keys?status=archived'), 400, 'AB01', 'status[0]');
    });

    it('a filter naming a foreign or missing workspace is refused in both cases alike, never widened', async () => {
      const foreign = await admin.call('GET', `/v1/api-keys?workspace_id=${admin.b.workspace_id}`);
      const missing = await admin.call('GET', `/v1/api-keys?workspace_id=${NOWHERE}`);
      fails(foreign, 404, 'AB02', 'workspace_id');
      expect(foreign.text).toBe(missing.text);
      const own = await admin.call('GET', `/v1/api-keys?workspace_id=${admin.a.workspace_slug}`);
      expect(own.status).toBe(200);
      for (const key of own.body.data) expect(key.workspace_id).toBe(admin.a.workspace_id);
    });

    it('a workspace key sees its own workspace only, and naming any other is 403 alike', async () => {
      const key = admin.a.workspace_api_key;
      const list = await admin.call('GET', '/v1/api-keys?page_size=100', { key });
      expect(list.body.total).toBeGreaterThan(0);
      for (const item of list.body.data) expect(item.workspace_id).toBe(admin.a.workspace_id);
      for (const name of [admin.a.workspace_id, admin.a.workspace_slug]) {
        expect((await admin.call('GET', `/v1/api-keys?workspace_id=${name}`, { key })).status).toBe(200);
      }
      const names = ['ws-second', 'ws-invented', admin.b.workspace_id, admin.b.workspace_slug, NOWHERE];
      const answers = await Promise.all(
        names.map((name) => admin.call('GET', `/v1/api-keys?workspace_id=${name}`, { key })),
      );
      for (const answer of answers) fails(answer, 403, 'AB03', 'workspace_id');
      expect(new Set(answers.map((answer) => answer.text)).size).toBe(1);
    });
  });

  describe('credentials', () => {
    it('the bearer token is read where x-gateway-api-key is absent', async () => {
      const headers = { authorization: `Bearer ${admin.a.admin_api_key}` };
      expect((await admin.call('GET', '/v1/api-keys', { key: null, headers })).status).toBe(200);
      const foreign = await admin.call('GET', '/v1/api-keys', { headers: { authorization: 'Bearer sk-provider' } });
      expect(foreign.status).toBe(200);
    });

    it('no credential, and one that is not valid: 401 with the error body', async () => {
      fails(await admin.call('GET', '/v1/api-keys', { key: null }), 401, 'AB05');
      fails(await admin.call('GET', '/v1/api-keys', { key: 'nonsense' }), 401, 'AB05');
      fails(await admin.call('POST', '/v1/api-keys/workspace/service', { key: null, raw: '{' }), 401, 'AB05');
    });

    it('the operator key opens its own routes and nothing else, and nobody else opens them', async () => {
      fails(await admin.call('GET', '/v1/api-keys', { key: admin.operatorKey }), 403, 'AB03');
      fails(await admin.call('GET', `/v1/admin/users/${admin.a.user_id}`, { key: admin.operatorKey }), 403, 'AB03');
      for (const key of [admin.a.admin_api_key, admin.a.workspace_api_key]) {
        fails(await admin.call('GET', '/v1/operator/organisations', { key }), 403, 'AB03');
        fails(await admin.call('POST', '/v1/operator/organisations', { key, body: {} }), 403, 'AB03');
      }
    });
  });

  describe('the operator', () => {
    it('creates an organisation whose keys work and that sees nothing of the others', async () => {
      const body = { name: 'Gamma', owner: { email: 'eve@gamma.example', first_name: 'Eve', last_name: 'Gamma' } };
      const made = await admin.call('POST', '/v1/operator/organisations', { key: admin.operatorKey, body });
      expect(made.body).toEqual({
        organisation_id: expect.stringMatching(UUID),
        workspace_id: expect.stringMatching(UUID),
        workspace_slug: expect.stringMatching(/^ws-gamma-[0-9a-f]{6}$/),
        user_id: expect.stringMatching(UUID),
        admin_api_key: expect.stringMatching(/^slc_org_/),
        workspace_api_key: expect.stringMatching(/^slc_wks_/),
      });
      const keys = await admin.call('GET', '/v1/api-keys', { key: made.body.admin_api_key });
      expect(keys.body.total).toBe(2);
      const { settings, providers } = await admin.tables.systemRead(async (tx) => ({
        settings: (await tx.find('organisations', { id: made.body.organisation_id }))?.settings,
        providers: await tx.list('providers', { where: { organisation_id: made.body.organisation_id } }),
      }));
      expect(settings?.block_inline_config).toBe(true);
      expect(providers.map((provider) => provider.slug)).toEqual(['sandbox']);
      fails(
        await admin.call('POST', '/v1/operator/organisations', { key: admin.operatorKey, body: { ...body, name: '' } }),
        400,
        'AB01',
        'name',
      );
    });

    it('lists organisations, and suspends one: its keys answer 403 with the next request, until it is active again', async () => {
      const key = admin.operatorKey;
      const list = await admin.call('GET', '/v2/operator/organisations', { key });
      expect(list.body.data.map((item: { id: string }) => item.id)).toContain(admin.b.organisation_id);
      const path = `/v1/operator/organisations/${admin.b.organisation_id}`;
      const status = async (value: string) => (await admin.call('PUT', path, { key, body: { status: value } })).body;
      expect(await status('suspended')).toEqual({});
      for (const own of [admin.b.admin_api_key, admin.b.workspace_api_key]) {
        fails(await admin.call('GET', '/v1/api-keys', { key: own }), 403, 'AB03');
      }
      expect((await admin.call('GET', '/v1/api-keys')).status).toBe(200);
      expect(await status('active')).toEqual({});
      expect((await admin.call('GET', '/v1/api-keys', { key: admin.b.admin_api_key })).status).toBe(200);
      fails(await admin.call('PUT', path, { key, body: { status: 'gone' } }), 400, 'AB01', 'status');
      fails(await admin.call('PUT', `${path.slice(0, -1)}z`, { key, body: {} }), 404, 'AB08');
    });

    it('reads the state of the node', async () => {
      const answer = await admin.call('GET', '/v1/operator/health', { key: admin.operatorKey });
      expect(answer.body).toEqual({ object: 'health', status: 'ok' });
    });
  });

  describe('the audit log', () => {
    it('gets one row per write in the same commit, refused writes included, and no secret', async () => {
      const before = (await audit()).length;
      const made = await makeKey(['completions.write'], { description: 'slc_wks_looks_like_a_key' });
      await admin.call('GET', `/v1/api-keys/${made.id}`);
      const refused = await admin.call('PUT', `/v1/api-keys/${made.id}?workspace_id=ws-x`, { body: { name: 'y' } });
      await admin.call('DELETE', `/v1/api-keys/${made.id}`);
      const rows = (await audit()).slice(0, -before || undefined);
      const seen = rows
        .map((row) => [row.action, row.response_status_code, row.resource_type, row.resource_id])
        .reverse();
      expect(seen).toEqual([
        ['create', 200, 'api keys', made.id],
        ['update', 404, 'api keys', null],
        ['delete', 200, 'api keys', made.id],
      ]);
      expect(rows[1]).toMatchObject({
        method: 'PUT',
        uri: `/v1/api-keys/${made.id}`,
        query_params: '{"workspace_id":"ws-x"}',
        request_body: '{"name":"y"}',
        user_type: 'api_key',
        request_id: refused.headers.get('x-gateway-request-id'),
      });
      expect(rows[2]?.request_body).toMatch(/"description":"\*{7}[0-9a-f]{8}"/);
      expect(JSON.stringify(rows)).not.toContain(made.key.slice(21, 40));
    });

    it('the organisation finds what the operator did to it', async () => {
      const path = `/v1/operator/organisations/${admin.a.organisation_id}`;
      await admin.call('PUT', path, { key: admin.operatorKey, body: { name: 'Alpha again' } });
      expect((await audit())[0]).toMatchObject({ user_type: 'operator', action: 'update', user_id: null });
    });
  });

  describe('requests', () => {
    it('HEAD follows GET, and other methods are 405 with Allow', async () => {
      const head = await admin.call('HEAD', '/v1/api-keys');
      expect([head.status, head.text]).toEqual([200, '']);
      fails(
        await admin.call('HEAD', '/v1/api-keys', { key: null }).then((answer) => ({ ...answer, body: sample })),
        401,
        'AB05',
      );
      const patch = await admin.call('PATCH', '/v1/api-keys', { body: {} });
      fails(patch, 405, 'AB08');
      expect(patch.headers.get('allow')).toBe('GET, HEAD');
      fails(await admin.call('OPTIONS', '/v1/api-keys', { key: null }), 405, 'AB08');
    });

    it('bodies are strict JSON objects', async () => {
      const post = (raw: string | Buffer, headers = {}) =>
        admin.call('POST', '/v1/api-keys/workspace/service', { raw, headers });
      for (const raw of [
        '[]',
        '"x"',
        'null',
        '1',
        '{',
        '{"name":"a"}x',
        "{'name':'a'}",
        '{"name":"a",}',
        '\ufeff{}',
        '{"a":01}',
        ' ',
      ]) {
        fails(await post(raw), 400, 'AB01');
      }
      fails(await post('{"name":"a","name":"b"}'), 400, 'AB01');
      fails(await post('{"defaults":{"metadata":{"a":"b","\\u0061":"c"}}}'), 400, 'AB01');
      fails(await post(`{"a":${'['.repeat(70)}${']'.repeat(70)}}`), 400, 'AB01');
      fails(await post('{"__proto__":{"polluted":true}}'), 400, 'AB01');
      fails(await post(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])), 400, 'AB01');
      fails(await post('{"name":1e999}'), 400, 'AB01', 'name');
      for (const type of [
        'text/plain',
        'application/x-www-form-urlencoded',
        'application/json; charset=latin1',
        'application/jsonp',
      ]) {
        fails(await post('{}', { 'content-type': type }), 400, 'AB01');
      }
      expect((await post('{}', { 'content-type': 'Application/JSON; charset="UTF-8"' })).body.error.param).toBe('name');
    });

    it('U+0000 and lone surrogates are refused with the field named', async () => {
      const post = (raw: string) => admin.call('POST', '/v1/api-keys/workspace/service', { raw });
      fails(await post('{"name":"a\\u0000b"}'), 400, 'AB01', 'name');
      fails(await post('{"defaults":{"metadata":{"a":"\\ud800"}}}'), 400, 'AB01', 'defaults.metadata.a');
      fails(await post('{"scopes":["ok","\\udc00"]}'), 400, 'AB01', 'scopes[1]');
      fails(await post('{"\\ud800":1}'), 400, 'AB01');
    });

    it('a body over 1 MB is 413, declared or streamed', async () => {
      const raw = JSON.stringify({ name: 'x'.repeat(1_048_576) });
      fails(await admin.call('POST', '/v1/api-keys/workspace/service', { raw }), 413, 'AB01');
      const streamed = await new Promise<(string | number | undefined)[]>((resolve, reject) => {
        const headers = { 'x-gateway-api-key': admin.a.admin_api_key, 'content-type': 'application/json' };
        const sending = request(`${admin.url}/v1/api-keys/workspace/service`, { method: 'POST', headers });
        sending.on('response', (answer) => {
          resolve([answer.resume().statusCode, answer.headers.connection]);
        });
        sending.on('error', reject);
        for (let sent = 0; sent <= 1_048_576; sent += 65_536) sending.write(' '.repeat(65_536));
        sending.end();
      });
      // What is still to come of the body must not be read as the next request.
      expect(streamed).toEqual([413, 'close']);
      const declared = await new Promise<(string | number | undefined)[]>((resolve, reject) => {
        const headers = { 'x-gateway-api-key': admin.a.admin_api_key, 'content-length': '2000000' };
        const agent = new Agent({ keepAlive: true });
        const sending = request(`${admin.url}/v1/api-keys/workspace/service`, { method: 'POST', headers, agent });
        sending.on('response', (answer) => {
          resolve([answer.statusCode, answer.headers.connection]);
          sending.destroy();
        });
        sending.on('error', reject);
        sending.flushHeaders();
      });
      expect(declared).toEqual([413, 'close']);
      expect((await admin.call('GET', '/v1/api-keys')).status).toBe(200);
    });

    it('takes one gzip coding and counts what it decodes to', async () => {
      const post = (raw: Buffer, encoding: string) =>
        admin.call('POST', '/v1/api-keys/workspace/service', { raw, headers: { 'content-encoding': encoding } });
      const body = { name: 'x', scopes: ['completions.write'], workspace_id: admin.a.workspace_id };
      expect((await post(gzipSync(JSON.stringify(body)), 'gzip')).status).toBe(200);
      fails(await post(gzipSync(Buffer.alloc(2_000_000, 0x20)), 'gzip'), 400, 'AB01');
      fails(await post(gzipSync(randomBytes(1_200_000).toString('base64')), 'gzip'), 413, 'AB01');
      fails(await post(Buffer.from('{}'), 'gzip'), 400, 'AB01');
      fails(await post(Buffer.from('{}'), 'br'), 400, 'AB01');
      fails(await post(Buffer.from('{}'), 'gzip, gzip'), 400, 'AB01');
    });

    it('an operation without a body takes none, but an empty object does no harm', async () => {
      const made = await makeKey(['completions.write']);
      fails(await admin.call('DELETE', `/v1/api-keys/${made.id}`, { body: { force: true } }), 400, 'AB01');
      expect((await admin.call('DELETE', `/v1/api-keys/${made.id}`, { body: {} })).status).toBe(200);
    });

    it('unknown paths are 404 with the error body', async () => {
      for (const path of ['/v1/api-key', '/v1/api-keys/', '/v1/API-KEYS', '/v3/api-keys', '/v1/api-keys/a/b/c']) {
        fails(await admin.call('GET', path), 404, 'AB08');
      }
    });
  });

  it('nothing above was an unexpected failure', () => {
    expect(admin.logged.filter((line) => line.includes('"error"'))).toEqual([]);
  });
});

const sample = { error: { code: 'AB05', message: 'HEAD has no body.', param: null, type: 'client_error' } };
