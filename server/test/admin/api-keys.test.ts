/** API keys through the administration API. */
import { describe, expect, it } from 'vitest';
import { addUser, admin, fails, makeKey, NOWHERE, UUID, useAdminApi } from '../support/admin-api.ts';

describe.each(['sqlite', 'postgres'] as const)('the administration API on %s', (engine) => {
  useAdminApi(engine);

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
});
