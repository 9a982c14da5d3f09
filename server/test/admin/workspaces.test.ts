/** Workspaces, on both engines: what callers see, what is refused, what takes effect at once. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { REFERENCES } from '../../src/resources/catalog.ts';
import type { ReferredTo } from '../../src/resources/references.ts';
import { createRuntime } from '../../src/runtime/runtime.ts';
import type { TenantTx } from '../../src/store/ports.ts';
import type { Row } from '../../src/store/schema.ts';
import { type Answer, plainVault } from '../support/admin.ts';
import { type Organisation, startOrganisation } from '../support/organisation.ts';

const NOWHERE = '00000000-0000-7000-8000-000000000000';
const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const PATH = '/v1/admin/workspaces';

function ok(answer: Answer) {
  expect(answer.status, answer.text).toBe(200);
  return answer.body;
}

function refused(answer: Answer, status: number, code: string, param: string | null = null) {
  expect([answer.status, answer.body?.error?.code, answer.body?.error?.param], answer.text).toEqual([
    status,
    code,
    param,
  ]);
}

describe.each(['sqlite', 'postgres'] as const)('workspaces on %s', (engine) => {
  let on: Organisation;
  /** What the stand-in for prompts and partials answers. */
  let shared: { readonly to: ReferredTo['table']; readonly id: string; readonly name: string }[] = [];

  beforeAll(async () => {
    on = await startOrganisation(engine, {
      admin: {
        references: [
          ...REFERENCES.filter(({ to }) => to === 'configs'),
          ...(['workspaces', 'configs'] as const).map((table) => ({
            to: table,
            find: async (_tx: TenantTx, to: ReferredTo) =>
              shared
                .filter((one) => one.to === to.table && one.id === to.id)
                .map((one) => ({ kind: 'shared prompt', id: NOWHERE, name: one.name })),
          })),
        ],
      },
    });
  });

  afterAll(async () => {
    await on?.admin.close();
  });

  const call = (method: string, path: string, body?: unknown, key?: string) =>
    on.admin.call(method, path, { body, ...(key === undefined ? {} : { key }) });
  const create = async (body: Record<string, unknown>) => ok(await call('POST', PATH, body));
  const get = async (id: string, query = '') => ok(await call('GET', `${PATH}/${id}${query}`));
  const put = (id: string, body: unknown) => call('PUT', `${PATH}/${id}`, body);
  const names = (body: { data: { name: string }[] }) => body.data.map((one) => one.name).sort();
  const organisation = (settings: Record<string, unknown>) =>
    on.admin.tables.systemWrite(async (tx) => {
      const found = await tx.find('organisations', { id: on.admin.a.organisation_id });
      const kept = { block_inline_config: found?.settings.block_inline_config !== false };
      await tx.update('organisations', { id: on.admin.a.organisation_id }, { settings: { ...kept, ...settings } });
    });
  const _change = (id: string, patch: Partial<Row<'workspaces'>>) =>
    on.admin.tables.systemWrite((tx) => tx.update('workspaces', { id }, patch));
  const makeConfig = async (workspaceId: string): Promise<{ id: string; slug: string }> =>
    ok(await call('POST', '/v1/configs', { name: 'Team', config: { provider: '@a' }, workspace_id: workspaceId }));

  describe('create', () => {
    it('answers the whole workspace, and get answers the same', async () => {
      const made = await create({
        name: '🚀 Search',
        description: 'Everything around search',
        icon: '🚀',
        slug: `search-${engine}`,
        defaults: { metadata: { team: 'search' } },
        usage_limits: [{ credit_limit: 10, alert_threshold: 8, periodic_reset: 'monthly' }],
        rate_limits: [{ type: 'requests', unit: 'rpm', value: 0 }],
        organisation_id: on.admin.a.organisation_id,
      });
      expect(made).toEqual({
        object: 'workspace',
        id: expect.stringMatching(/^[0-9a-f-]{36}$/),
        slug: `search-${engine}`,
        name: '🚀 Search',
        icon: '🚀',
        description: 'Everything around search',
        is_default: 0,
        status: 'active',
        defaults: { metadata: { team: 'search' }, user_api_key_config: null },
        usage_limits: [
          {
            credit_limit: 10,
            alert_threshold: 8,
            periodic_reset: 'monthly',
            type: 'cost',
            current_usage: 0,
            status: 'active',
            last_reset_at: null,
          },
        ],
        rate_limits: [{ type: 'requests', unit: 'rpm', value: 0 }],
        security_settings: expect.any(Object),
        settings: {},
        scim_source_id: null,
        organisation_id: on.admin.a.organisation_id,
        created_by: expect.any(String),
        creation_source: 'api',
        last_reset_at: null,
        users: [],
        created_at: expect.stringMatching(ISO),
        last_updated_at: expect.stringMatching(ISO),
      });
      expect(await get(made.id)).toEqual(made);
      expect(await get(made.slug)).toEqual(made);
    });

    it('a name is enough: the slug is made from it, everything else is empty', async () => {
      const made = await create({ name: 'Größe & Farbe' });
      expect(made.slug).toMatch(/^ws-gr[a-z]*-farbe-[0-9a-f]{6}$/);
      expect(made).toMatchObject({
        icon: null,
        description: null,
        defaults: null,
        usage_limits: null,
        rate_limits: null,
      });
    });

    it('users become members; a signed-in creator becomes an admin, and a key leaves nobody behind', async () => {
      const [creator, other] = [await on.addUser('admin'), await on.addUser('member')];
      const signedIn = await on.signIn(creator);
      const made = ok(await signedIn('POST', PATH, { name: 'Ours', users: [other, creator] }));
      expect(made.creation_source).toBe('ui');
      expect(made.created_by).toBe(creator);
      const roles = made.users.map((one: { id: string; role: string }) => [one.id, one.role]);
      expect(new Map(roles)).toEqual(
        new Map([
          [creator, 'admin'],
          [other, 'member'],
        ]),
      );
      expect((await create({ name: 'Theirs', users: [other] })).users).toMatchObject([{ id: other, role: 'member' }]);
    });

    it('copies what the organisation hands to its workspaces', async () => {
      await organisation({ export_settings: { deniedFields: ['request'] } });
      const made = await create({ name: 'Copied' });
      expect(made.security_settings).toMatchObject({ export_settings: { deniedFields: ['request'] } });
      await organisation({});
    });

    it('metadata satisfies the schema of the organisation, whose defaults are filled in', async () => {
      const schema = {
        type: 'object',
        additionalProperties: true,
        properties: { cost_centre: { type: 'string' }, tier: { type: 'string', default: 'free' } },
        required: ['cost_centre'],
      };
      await organisation({ metadata_schemas: { workspace: schema } });
      refused(await call('POST', PATH, { name: 'x' }), 400, 'AB01', 'defaults.metadata.cost_centre');
      const bad = { name: 'x', defaults: { metadata: { tier: 'paid' } } };
      refused(await call('POST', PATH, bad), 400, 'AB01', 'defaults.metadata.cost_centre');
      const made = await create({ name: 'Costly', defaults: { metadata: { cost_centre: '7' } } });
      expect(made.defaults.metadata).toEqual({ cost_centre: '7', tier: 'free' });
      refused(await put(made.id, { defaults: { metadata: null } }), 400, 'AB01', 'defaults.metadata.cost_centre');
      ok(await put(made.id, { name: 'Costlier' }));
      await organisation({});
    });

    it('a slug is taken once in an organisation, until its workspace is deleted', async () => {
      const slug = `once-${engine}`;
      const { id } = await create({ name: 'One', slug });
      refused(await call('POST', PATH, { name: 'Two', slug }), 409, 'AB07', 'slug');
      ok(await on.admin.call('POST', PATH, { key: on.admin.b.admin_api_key, body: { name: 'Theirs', slug } }));
      ok(await call('DELETE', `${PATH}/${id}`));
      const next = await create({ name: 'Two', slug });
      expect((await get(slug)).id).toBe(next.id);
    });

    it('of two that ask for one slug at once, one gets it', async () => {
      for (let round = 0; round < 10; round++) {
        const body = { name: 'Twin', slug: `twin-${engine}-${round}` };
        const made = await Promise.all([call('POST', PATH, body), call('POST', PATH, body)]);
        expect(made.map(({ status }) => status).sort(), made[1]?.text).toEqual([200, 409]);
      }
    });

    const field = (body: Record<string, unknown>) => ({ name: 'x', ...body });
    it.each<[string, unknown, number, string, string | null]>([
      ['no name', {}, 400, 'AB01', 'name'],
      ['an empty name', { name: '' }, 400, 'AB01', 'name'],
      ['a name of 256 characters', { name: 'x'.repeat(256) }, 400, 'AB01', 'name'],
      ['a name that is null', { name: null }, 400, 'AB01', 'name'],
      ['an unknown key', field({ colour: 'red' }), 400, 'AB01', 'colour'],
      ['a workspace_id', field({ workspace_id: NOWHERE }), 400, 'AB01', 'workspace_id'],
      ['a description that is a number', field({ description: 1 }), 400, 'AB01', 'description'],
      ['a long icon', field({ icon: 'x'.repeat(65) }), 400, 'AB01', 'icon'],
      ['a slug with a space', field({ slug: 'a b' }), 400, 'AB01', 'slug'],
      ['an empty slug', field({ slug: '' }), 400, 'AB01', 'slug'],
      ['a slug that is a UUID', field({ slug: NOWHERE }), 400, 'AB01', 'slug'],
      ['defaults that are a list', field({ defaults: [] }), 400, 'AB01', 'defaults'],
      ['an unknown default', field({ defaults: { model: 'x' } }), 400, 'AB01', 'defaults.model'],
      ['metadata that is no text', field({ defaults: { metadata: { a: 1 } } }), 400, 'AB01', 'defaults.metadata.a'],
      [
        'an unknown guardrail',
        field({ defaults: { input_guardrails: ['gr-x'] } }),
        400,
        'AB01',
        'defaults.input_guardrails[0]',
      ],
      [
        'an unknown guardrail for answers',
        field({ defaults: { output_guardrails: ['gr-x'] } }),
        400,
        'AB01',
        'defaults.output_guardrails[0]',
      ],
      [
        'a guardrail twice',
        field({ defaults: { output_guardrails: ['a', 'a'] } }),
        400,
        'AB01',
        'defaults.output_guardrails[1]',
      ],
      [
        'a config, when there cannot be one yet',
        field({ defaults: { user_api_key_config: 'pc-x' } }),
        400,
        'AB01',
        'defaults.user_api_key_config',
      ],
      ['a single usage limit', field({ usage_limits: { credit_limit: 1 } }), 400, 'AB01', 'usage_limits'],
      ['a limit of 0', field({ usage_limits: [{ credit_limit: 0 }] }), 400, 'AB01', 'usage_limits[0].credit_limit'],
      [
        'a threshold at the limit',
        field({ usage_limits: [{ credit_limit: 5, alert_threshold: 5 }] }),
        400,
        'AB01',
        'usage_limits[0].alert_threshold',
      ],
      [
        'two periods',
        field({ usage_limits: [{ periodic_reset: 'weekly', periodic_reset_days: 3 }] }),
        400,
        'AB01',
        'usage_limits[0].periodic_reset_days',
      ],
      [
        'a reset in the past',
        field({ usage_limits: [{ next_usage_reset_at: '2020-01-01T00:00:00Z' }] }),
        400,
        'AB01',
        'usage_limits[0].next_usage_reset_at',
      ],
      ['a state in a limit', field({ usage_limits: [{ status: 'exhausted' }] }), 400, 'AB01', 'usage_limits[0].status'],
      [
        'eleven usage limits',
        field({ usage_limits: Array(11).fill({ credit_limit: 1 }) }),
        400,
        'AB01',
        'usage_limits',
      ],
      [
        'a rate limit per year',
        field({ rate_limits: [{ type: 'requests', unit: 'rpy', value: 1 }] }),
        400,
        'AB01',
        'rate_limits[0].unit',
      ],
      ['users that are no list', field({ users: NOWHERE }), 400, 'AB01', 'users'],
      ['a user that is no UUID', field({ users: ['me'] }), 400, 'AB01', 'users[0]'],
      ['a user twice', field({ users: [NOWHERE, NOWHERE] }), 400, 'AB01', 'users[1]'],
      ['an unknown user', field({ users: [NOWHERE] }), 404, 'AB02', 'users[0]'],
      ['another organisation', field({ organisation_id: NOWHERE }), 403, 'AB03', 'organisation_id'],
    ])('refuses %s', async (_title, body, status, code, param) => {
      refused(await call('POST', PATH, body), status, code, param);
    });

    it('a user of another organisation is as unknown as one that does not exist, and nothing is made', async () => {
      const [foreign, missing] = await Promise.all(
        [on.admin.b.user_id, NOWHERE].map((id) => call('POST', PATH, { name: 'Half made', users: [id] })),
      );
      expect([foreign?.status, foreign?.text]).toEqual([missing?.status, missing?.text]);
      expect(ok(await call('GET', `${PATH}?exact_name=Half%20made`)).total).toBe(0);
    });

    it('is not for workspace keys and not for members, whatever their role in a workspace', async () => {
      const manager = await on.signIn(await on.addUser('member', { [on.admin.a.workspace_id]: 'admin' }));
      refused(await manager('POST', PATH, { name: 'x' }), 403, 'AB03');
      refused(await call('POST', PATH, { name: 'x' }, on.admin.a.workspace_api_key), 403, 'AB03');
    });
  });

  describe('list', () => {
    it('filters by part of the name, with its case, by the whole name, and pages newest first', async () => {
      const tag = `List${engine}`;
      for (const name of [`🚀 ${tag} One`, `${tag} Two`, `x_${tag}%`]) await create({ name });
      const list = async (query: string) => ok(await call('GET', `${PATH}?${query}`));
      expect(names(await list(`name=${tag}`))).toEqual([`${tag} Two`, `x_${tag}%`, `🚀 ${tag} One`]);
      expect(names(await list(`name=${tag.toLowerCase()}`))).toEqual([]);
      expect(names(await list(`name=${encodeURIComponent(`_${tag}%`)}`))).toEqual([`x_${tag}%`]);
      expect(names(await list(`name=${encodeURIComponent('%')}&exact_name=${tag}%20Two`))).toEqual([]);
      expect(names(await list(`exact_name=${tag}%20Two`))).toEqual([`${tag} Two`]);
      expect(names(await list(`exact_name=${tag}`))).toEqual([]);
      expect(names(await list(`name=${tag}&name_format=plain`))).toEqual([`${tag} One`, `${tag} Two`, `x_${tag}%`]);
      const page = await list(`name=${tag}&page_size=2&current_page=1`);
      expect([page.object, page.total, page.data.length]).toEqual(['list', 3, 1]);
      expect(page.data[0]).not.toHaveProperty('users');
      expect(page.data[0]).toMatchObject({ object: 'workspace', name: `🚀 ${tag} One` });
    });

    it('shows archived ones to those who run the organisation, and to nobody else', async () => {
      const gone = await create({ name: `Gone ${engine}` });
      ok(await call('DELETE', `${PATH}/${gone.id}`));
      const list = async (query: string) => names(ok(await call('GET', `${PATH}?exact_name=Gone%20${engine}${query}`)));
      expect(await list('')).toEqual([]);
      expect(await list('&status=active')).toEqual([]);
      expect(await list('&status=archived')).toEqual([gone.name]);
      expect(await list('&status=active,archived')).toEqual([gone.name]);
      expect((await get(gone.id)).status).toBe('archived');
      const admin = await on.signIn(await on.addUser('admin'));
      expect(ok(await admin('GET', `${PATH}?status=archived&exact_name=Gone%20${engine}`)).total).toBe(1);
      const member = await on.signIn(await on.addUser('member', { [on.admin.a.workspace_id]: 'admin' }));
      refused(await member('GET', `${PATH}?status=archived`), 403, 'AB03', 'status');
      const mine = on.admin.a.workspace_api_key;
      refused(await call('GET', `${PATH}?status=active,archived`, undefined, mine), 403, 'AB03', 'status');
    });

    it('a workspace key sees its own, a signed-in member what was joined, and nobody another organisation', async () => {
      const joined = await create({ name: 'Joined' });
      const ids = (body: { total: number; data: { id: string }[] }) => {
        expect(body.total).toBe(body.data.length);
        return body.data.map((one) => one.id);
      };
      expect(ids(ok(await call('GET', PATH, undefined, on.admin.a.workspace_api_key)))).toEqual([
        on.admin.a.workspace_id,
      ]);
      const member = await on.signIn(await on.addUser('member', { [joined.id]: 'member' }));
      expect(ids(ok(await member('GET', PATH)))).toEqual([joined.id]);
      const nobody = await on.signIn(await on.addUser('member'));
      expect(ids(ok(await nobody('GET', PATH)))).toEqual([]);
      expect(ids(ok(await call('GET', PATH, undefined, on.admin.b.admin_api_key)))).not.toContain(joined.id);
      const owner = await on.signIn(on.admin.a.user_id);
      expect(ids(ok(await owner('GET', `${PATH}?page_size=100`)))).toContain(joined.id);
    });

    it.each([
      ['status=gone', 'status[0]'],
      ['status=', 'status[0]'],
      ['name_format=short', 'name_format'],
      ['page_size=101', 'page_size'],
      ['current_page=-1', 'current_page'],
      ['colour=red', 'colour'],
      ['workspace_id=x', 'workspace_id'],
    ])('refuses ?%s', async (query, param) => {
      refused(await call('GET', `${PATH}?${query}`), 400, 'AB01', param);
    });
  });

  describe('get', () => {
    it('name_format=plain leaves out the leading emoji, on every path of it', async () => {
      const { id, slug } = await create({ name: '🏳️‍🌈7️⃣ Team 🚀' });
      for (const path of [`/v1/admin/workspaces/${id}`, `/v2/admin/workspaces/${slug}`, `/v2/workspaces/${id}`]) {
        expect(ok(await call('GET', path)).name).toBe('🏳️‍🌈7️⃣ Team 🚀');
        expect(ok(await call('GET', `${path}?name_format=display`)).name).toBe('🏳️‍🌈7️⃣ Team 🚀');
        expect(ok(await call('GET', `${path}?name_format=plain`)).name).toBe('Team 🚀');
      }
      refused(await call('GET', `/v2/workspaces/${id}?name_format=emoji`), 400, 'AB01', 'name_format');
      refused(await call('GET', `/v2/workspaces/${id}?include_usage=1`), 400, 'AB01', 'include_usage');
      ok(await call('GET', `/v2/workspaces/${id}?include_usage=true&usage_id=x`));
    });

    it('members are shown to those who may list them', async () => {
      const { id } = await create({ name: 'Staffed', users: [await on.addUser('member')] });
      const { key } = await on.makeKey('workspace/service', ['workspaces.read'], { workspace_id: id });
      expect(ok(await call('GET', `${PATH}/${id}`, undefined, key))).not.toHaveProperty('users');
      expect((await get(id)).users).toHaveLength(1);
    });

    it('every workspace that a caller cannot see is the one 404', async () => {
      const other = await create({ name: 'Other' });
      const mine = on.admin.a.workspace_api_key;
      const member = await on.signIn(await on.addUser('member', { [on.admin.a.workspace_id]: 'admin' }));
      const there = [
        other.id,
        other.slug,
        on.admin.b.workspace_id,
        on.admin.b.workspace_slug,
        NOWHERE,
        'ws-none',
        'a b',
      ];
      const answers: Answer[] = [];
      for (const name of there) {
        const path = `${PATH}/${encodeURIComponent(name)}`;
        for (const [method, body] of [['GET'], ['PUT', { name: 'x' }]] as [string, unknown?][]) {
          answers.push(await call(method, path, body, mine), await member(method, path, body));
          if (name !== other.id && name !== other.slug) answers.push(await call(method, path, body));
        }
      }
      for (const name of there.slice(2)) answers.push(await call('DELETE', `${PATH}/${encodeURIComponent(name)}`));
      expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
      refused(answers[0] as Answer, 404, 'AB08');
    });
  });

  describe('update', () => {
    it('changes what is given, clears what is null, and leaves the rest', async () => {
      const { id } = await create({
        name: 'Before',
        description: 'd',
        icon: 'i',
        defaults: { metadata: { a: '1' } },
        usage_limits: [{ credit_limit: 1 }],
        rate_limits: [{ type: 'tokens', unit: 'rpd', value: 5 }],
      });
      const before = await get(id);
      expect(ok(await put(id, {}))).toEqual({});
      expect(await get(id)).toEqual(before);
      ok(await put(id, { name: 'After' }));
      expect(await get(id)).toEqual({ ...before, name: 'After', last_updated_at: expect.stringMatching(ISO) });
      ok(await put(id, { description: null, icon: null, defaults: null, usage_limits: null, rate_limits: null }));
      expect(await get(id)).toMatchObject({
        name: 'After',
        description: null,
        icon: null,
        defaults: null,
        usage_limits: null,
        rate_limits: null,
      });
    });

    it.each<[string, unknown, string]>([
      ['a name that is null', { name: null }, 'name'],
      ['a slug', { slug: 'other' }, 'slug'],
      ['users', { users: [] }, 'users'],
      ['a status', { status: 'archived' }, 'status'],
      ['is_default', { is_default: 1 }, 'is_default'],
      ['settings that are a list', { settings: [] }, 'settings'],
      ['an unknown setting', { settings: { colour: 1 } }, 'settings.colour'],
      [
        'a cadence of 0 days',
        { settings: { user_api_key_rotation_period: 0 } },
        'settings.user_api_key_rotation_period',
      ],
      [
        'a scope that no user key has',
        { settings: { user_api_key_auto_create_scopes: ['organisation_users.list'] } },
        'settings.user_api_key_auto_create_scopes[0]',
      ],
      [
        'a life above the longest',
        { settings: { user_api_key_ttl: 20, user_api_key_max_ttl: 10 } },
        'settings.user_api_key_ttl',
      ],
      ['an unknown switch', { security_settings: { membersFly: true } }, 'security_settings.membersFly'],
      [
        'a switch that is a text',
        { security_settings: { managersUpdateWs: 'no' } },
        'security_settings.managersUpdateWs',
      ],
      ['reset_usage as a number', { reset_usage: 1 }, 'reset_usage'],
      ['an unknown config', { defaults: { user_api_key_config: 'pc-none' } }, 'defaults.user_api_key_config'],
    ])('refuses %s', async (_title, body, param) => {
      refused(await put(on.admin.a.workspace_id, body), 400, 'AB01', param);
    });

    it('settings are merged, and null falls back to the organisation', async () => {
      const { id } = await create({ name: 'Settled' });
      ok(await put(id, { settings: { user_api_key_rotation_period: 'weekly', user_api_key_count: 3 } }));
      ok(await put(id, { settings: { user_api_key_count: null, user_api_key_auto_create: true } }));
      expect((await get(id)).settings).toEqual({ user_api_key_rotation_period: 7, user_api_key_auto_create: true });
      ok(await put(id, { settings: null }));
      expect((await get(id)).settings).toEqual({});
    });

    it('security settings only in the categories that the organisation has opened', async () => {
      const { id } = await create({ name: 'Guarded' });
      const change = { security_settings: { managersUpdateWs: false } };
      refused(await put(id, change), 400, 'AB01', 'security_settings.managersUpdateWs');
      await organisation({ workspace_overrides: { workspace: true } });
      ok(await put(id, change));
      const mixed = { security_settings: { managersUpdateWs: true, membersViewLogs: false } };
      refused(await put(id, mixed), 400, 'AB01', 'security_settings.membersViewLogs');
      const nulled = { security_settings: { membersViewLogs: null } };
      refused(await put(id, nulled), 400, 'AB01', 'security_settings.membersViewLogs');
      expect((await get(id)).security_settings.managersUpdateWs).toBe(false);
      ok(await put(id, { security_settings: null }));
      expect((await get(id)).security_settings).not.toHaveProperty('managersUpdateWs');
      // What was set while its category was open, and is closed now, is not the workspace's to clear.
      await organisation({ workspace_overrides: { workspace: true, logs: true } });
      ok(await put(id, { security_settings: { managersUpdateWs: false, membersViewLogs: false } }));
      await organisation({ workspace_overrides: { workspace: true, logs: false } });
      ok(await put(id, { security_settings: null }));
      const { security_settings: left } = await get(id);
      expect([left.managersUpdateWs, left.membersViewLogs]).toEqual([undefined, false]);
      await organisation({});
    });

    it('a manager may update, until managersUpdateWs says otherwise, and never lifts what restricts managers', async () => {
      await organisation({ workspace_overrides: { workspace: true } });
      const { id } = await create({ name: 'Managed' });
      const manager = await on.signIn(await on.addUser('member', { [id]: 'manager' }));
      const admin = await on.signIn(await on.addUser('member', { [id]: 'admin' }));
      const member = await on.signIn(await on.addUser('member', { [id]: 'member' }));
      ok(await manager('PUT', `${PATH}/${id}`, { name: 'By the manager' }));
      const lift = { security_settings: { managersUpdateWs: true } };
      refused(await manager('PUT', `${PATH}/${id}`, lift), 403, 'AB03', 'security_settings');
      ok(await admin('PUT', `${PATH}/${id}`, { security_settings: { managersUpdateWs: false } }));
      refused(await manager('PUT', `${PATH}/${id}`, { name: 'x' }), 403, 'AB03');
      refused(await member('PUT', `${PATH}/${id}`, { name: 'x' }), 403, 'AB03');
      ok(await admin('PUT', `${PATH}/${id}`, { name: 'By the admin' }));
      for (const one of [manager, member]) expect(ok(await one('GET', `${PATH}/${id}`)).name).toBe('By the admin');
      refused(await admin('DELETE', `${PATH}/${id}`), 403, 'AB03');
      await organisation({});
    });

    it('a workspace key updates its own', async () => {
      const { id, slug } = await create({ name: 'Own' });
      const { key } = await on.makeKey('workspace/service', ['workspaces.update', 'workspaces.read'], {
        workspace_id: id,
      });
      ok(await call('PUT', `${PATH}/${slug}`, { name: 'Mine' }, key));
      expect(ok(await call('GET', `/v2/workspaces/${id}`, undefined, key)).name).toBe('Mine');
      refused(await call('PUT', `${PATH}/${on.admin.a.workspace_id}`, { name: 'Mine' }, key), 404, 'AB08');
      refused(await call('DELETE', `${PATH}/${id}`, undefined, key), 403, 'AB03');
    });
  });

  describe('defaults.user_api_key_config', () => {
    it('is given by id or slug, answered as the slug, cleared by null, and must be a config of the workspace', async () => {
      const { id } = await create({ name: 'Routed' });
      const config = await makeConfig(id);
      const elsewhere = await makeConfig(on.admin.a.workspace_id);
      for (const name of [config.id, config.slug, config.id.toUpperCase()]) {
        ok(await put(id, { defaults: { user_api_key_config: null, metadata: { a: 'b' } } }));
        expect((await get(id)).defaults).toEqual({ metadata: { a: 'b' }, user_api_key_config: null });
        ok(await call('PUT', `/v2/workspaces/${id}`, { defaults: { user_api_key_config: name } }));
        expect((await get(id)).defaults).toEqual({ metadata: { a: 'b' }, user_api_key_config: config.slug });
      }
      for (const name of [elsewhere.id, elsewhere.slug, NOWHERE, 'pc-none']) {
        const answer = await put(id, { defaults: { user_api_key_config: name } });
        refused(answer, 400, 'AB01', 'defaults.user_api_key_config');
      }
    });

    it('such a config can be neither deleted nor archived until it is cleared', async () => {
      const { id } = await create({ name: 'Held' });
      const config = await makeConfig(id);
      ok(await put(id, { defaults: { user_api_key_config: config.slug } }));
      refused(await call('DELETE', `/v1/configs/${config.slug}`), 409, 'AB07');
      refused(await call('PUT', `/v1/configs/${config.id}`, { status: 'archived' }), 409, 'AB07');
      const { key } = await on.makeKey('workspace/service', ['configs.delete'], { workspace_id: id });
      refused(await call('DELETE', `/v1/configs/${config.slug}`, undefined, key), 409, 'AB07');
      ok(await put(id, { defaults: { user_api_key_config: null } }));
      ok(await call('DELETE', `/v1/configs/${config.slug}`, undefined, key));
      refused(
        await put(id, { defaults: { user_api_key_config: config.slug } }),
        400,
        'AB01',
        'defaults.user_api_key_config',
      );
    });

    it('of a deletion and a default that are asked for at once, one wins', async () => {
      const { id } = await create({ name: 'Raced' });
      for (let round = 0; round < 10; round++) {
        const config = await makeConfig(id);
        const [set, gone] = await Promise.all([
          put(id, { defaults: { user_api_key_config: config.slug } }),
          call('DELETE', `/v1/configs/${config.slug}`),
        ]);
        const won = [set?.status === 200, gone?.status === 200];
        expect(won.filter(Boolean), `${set?.text} ${gone?.text}`).toHaveLength(1);
        expect([set?.status, gone?.status]).toEqual(won[0] ? [200, 409] : [400, 200]);
        ok(await put(id, { defaults: null }));
      }
    });
  });

  describe('delete', () => {
    it('archives: gone from lists and paths, and its keys stop at once', async () => {
      const { id, slug } = await create({ name: 'Short-lived' });
      const { id: keyId, key } = await on.makeKey('workspace/service', ['configs.list'], { workspace_id: id });
      ok(await call('GET', '/v1/configs', undefined, key));
      expect(ok(await call('DELETE', `/v2/workspaces/${slug}`))).toEqual({});
      refused(await call('GET', '/v1/configs', undefined, key), 401, 'AB05');
      refused(await call('GET', `/v1/api-keys/${keyId}`), 404, 'AB08');
      refused(await put(id, { name: 'x' }), 404, 'AB08');
      refused(await call('DELETE', `${PATH}/${id}`), 404, 'AB08');
      refused(await call('GET', `${PATH}/${id}/users`), 404, 'AB08');
      refused(await call('GET', `/v1/configs?workspace_id=${slug}`), 404, 'AB02', 'workspace_id');
    });

    it('with another name than its own it stays, and the answer says which name it has', async () => {
      const { slug } = await create({ name: '🚀 Search' });
      const path = `/v2/workspaces/${slug}`;
      const answer = await call('DELETE', path, { name: 'Search' });
      refused(answer, 400, 'AB01', 'name');
      expect(answer.text).toContain('The name of the workspace in the path is');
      expect(answer.text).toContain('🚀 Search');
      ok(await call('DELETE', path, { name: '🚀 Search' }));
    });

    it('the default workspace stays, and may be changed like any other', async () => {
      ok(await put(on.admin.a.workspace_id, { name: 'Main' }));
      expect(await get(on.admin.a.workspace_slug)).toMatchObject({ name: 'Main', is_default: 1, status: 'active' });
      refused(await call('DELETE', `${PATH}/${on.admin.a.workspace_id}`, { force_delete: true }), 400, 'AB01');
      ok(await call('GET', '/v1/configs', undefined, on.admin.a.workspace_api_key));
    });

    it('a name in the body must be the name', async () => {
      const { id } = await create({ name: '🚀 Sure' });
      for (const name of ['Sure', '🚀 sure', '']) {
        refused(await call('DELETE', `${PATH}/${id}`, { name }), 400, 'AB01', 'name');
      }
      refused(await call('DELETE', `${PATH}/${id}`, { name: 1 }), 400, 'AB01', 'name');
      refused(await call('DELETE', `${PATH}/${id}`, { force_delete: 'yes' }), 400, 'AB01', 'force_delete');
      refused(await call('DELETE', `${PATH}/${id}`, { force: true }), 400, 'AB01', 'force');
      ok(await call('DELETE', `${PATH}/${id}`, { name: '🚀 Sure' }));
    });

    it('is 409 while prompts or partials of it are shared, also by force, and nothing has happened to it', async () => {
      const { id } = await create({ name: 'Shared' });
      const { key } = await on.makeKey('workspace/service', ['configs.list'], { workspace_id: id });
      shared = [{ to: 'workspaces', id, name: 'pp-greeting' }];
      for (const body of [undefined, { force_delete: true }]) {
        const answer = await call('DELETE', `${PATH}/${id}`, body);
        refused(answer, 409, 'AB07');
        expect(answer.body.error.message).toContain('shared prompt pp-greeting');
      }
      ok(await call('GET', '/v1/configs', undefined, key));
      shared = [];
      ok(await call('DELETE', `${PATH}/${id}`));
    });

    it('force_delete takes the resources along and frees their slugs; without it they stay where they are', async () => {
      const integration = ok(
        await call('POST', '/v1/integrations', {
          name: 'Bank',
          ai_provider_id: 'openai',
          key: 'sk-1',
          slug: `bank-${engine}`,
        }),
      );
      const state = (id: string) =>
        on.admin.tables.systemRead(async (tx) => {
          const where = { workspace_id: id };
          const rows = [
            ...(await tx.list('configs', { where })),
            ...(await tx.list('providers', { where })),
            ...(await tx.list('workspace_members', { where })),
          ];
          return [...new Set(rows.map((row) => row.status))];
        });
      for (const force_delete of [false, true]) {
        const { id } = await create({ name: 'Full', users: [await on.addUser('member')] });
        await makeConfig(id);
        const provider = { name: 'P', integration_id: integration.slug, workspace_id: id, slug: `p-${engine}` };
        ok(await call('POST', '/v1/providers', force_delete ? { ...provider, slug: `q-${engine}` } : provider));
        ok(await call('DELETE', `${PATH}/${id}`, { force_delete }));
        expect(await state(id)).toEqual([force_delete ? 'archived' : 'active']);
      }
      const next = { name: 'P', integration_id: integration.slug, workspace_id: on.admin.a.workspace_id };
      refused(await call('POST', '/v1/providers', { ...next, slug: `p-${engine}` }), 409, 'AB07', 'slug');
      ok(await call('POST', '/v1/providers', { ...next, slug: `q-${engine}` }));
    });
  });

  describe('what follows from a change', () => {
    it('integrations open to all workspaces are open to those made later, others are not', async () => {
      const open = async (access?: Record<string, unknown>) => {
        const { slug } = ok(
          await call('POST', '/v1/integrations', { name: 'Any', ai_provider_id: 'openai', key: 'sk-1' }),
        );
        if (access) ok(await call('PUT', `/v1/integrations/${slug}/workspaces`, access));
        return slug as string;
      };
      const never = await open();
      const all = await open({
        global_workspace_access: { enabled: true, rate_limits: [{ type: 'requests', unit: 'rpm', value: 7 }] },
      });
      const none = await open({ global_workspace_access: { enabled: false } });
      const some = await open({ workspaces: [{ id: on.admin.a.workspace_id, enabled: true }] });
      const { id } = await create({ name: 'Later' });
      const use = (integration_id: string) =>
        call('POST', '/v1/providers', { name: 'P', integration_id, workspace_id: id });
      ok(await use(never));
      const made = ok(await use(all));
      for (const closed of [none, some]) refused(await use(closed), 404, 'AB02', 'integration_id');
      const runtime = createRuntime({
        tables: on.admin.tables,
        vault: plainVault,
        clock: systemClock,
        log: silentLog,
        blockInlineConfig: false,
        caughtUp: async () => {},
      });
      const snapshot = await runtime.workspace(on.admin.a.organisation_id, id);
      expect(snapshot.providers.get(made.slug)?.rateLimits.map(({ kind, limits }) => ({ kind, limits }))).toEqual([
        { kind: 'integration', limits: [{ type: 'requests', unit: 'rpm', value: 7 }] },
      ]);
    });

    it('an update is in the next snapshot of the workspace only, and a deleted one is served no more', async () => {
      const { id } = await create({ name: 'Live', defaults: { metadata: { v: '1' } } });
      const other = await create({ name: 'Bystander' });
      const { organisation_id } = on.admin.a;
      const { tables } = on.admin;
      const runtime = createRuntime({
        tables,
        vault: plainVault,
        clock: systemClock,
        log: silentLog,
        blockInlineConfig: false,
        caughtUp: async () => {},
      });
      let seq = await tables.lastChange();
      const follow = async () => {
        const changes = await tables.changesAfter(seq, 1000);
        for (const change of changes) runtime.invalidate(change);
        seq = changes.at(-1)?.seq ?? seq;
        return changes.map(({ topic, entityId, workspaceId }) => [topic, entityId, workspaceId]);
      };
      const first = await runtime.workspace(organisation_id, id);
      const bystander = await runtime.workspace(organisation_id, other.id);
      expect(first.metadata).toEqual({ v: '1' });
      const rate = { type: 'requests', unit: 'rps', value: 2 };
      ok(await put(id, { name: 'Live on', defaults: { metadata: { v: '2' } }, rate_limits: [rate] }));
      expect(await follow()).toEqual([['workspaces', id, id]]);
      const second = await runtime.workspace(organisation_id, id);
      expect([second.metadata, second.rateLimits?.limits]).toEqual([{ v: '2' }, [rate]]);
      expect(second.generation).toBeGreaterThan(first.generation);
      expect(runtime.workspace(organisation_id, other.id)).toBe(bystander);
      ok(await call('DELETE', `${PATH}/${id}`));
      expect(await follow()).toContainEqual(['workspaces', id, id]);
      await expect(async () => runtime.workspace(organisation_id, id)).rejects.toMatchObject({
        kind: 'unauthenticated',
      });
    });

    it('every write leaves a row in the audit log with the workspace before and after, a refused one too', async () => {
      const { id } = await create({ name: 'Audited' });
      ok(await put(id, { name: 'Audited again' }));
      refused(await put(id, { colour: 1 }), 400, 'AB01', 'colour');
      ok(await call('DELETE', `${PATH}/${id}`));
      const rows = await on.admin.tables.systemRead((tx) =>
        tx.list('audit_log', {
          where: { organisation_id: on.admin.a.organisation_id },
          orderBy: [['timestamp', 'desc']],
          limit: 20,
        }),
      );
      const mine = rows.filter((row) => row.resource_id === id || row.uri.endsWith(id));
      const seen = mine.map((row) => [row.action, row.resource_type, row.response_status_code]);
      expect(seen.sort()).toEqual([
        ['create', 'workspaces', 200],
        ['delete', 'workspaces', 200],
        ['update', 'workspaces', 200],
        ['update', 'workspaces', 400],
      ]);
      const updated = mine.find((row) => row.action === 'update' && row.response_status_code === 200);
      expect(updated?.workspace_id).toBe(id);
      const nameOf = (text: string | null | undefined) => JSON.parse(text ?? '{}').name;
      expect([nameOf(updated?.before), nameOf(updated?.after)]).toEqual(['Audited', 'Audited again']);
    });
  });
});
