/** Workspaces, on both engines: what callers see, what is refused, what takes effect at once. */
import { describe, expect, it } from 'vitest';
import type { Answer } from '../support/admin.ts';
import {
  call,
  create,
  get,
  ISO,
  NOWHERE,
  ok,
  on,
  organisation,
  PATH,
  put,
  refused,
  useWorkspaces,
} from '../support/workspaces.ts';

describe.each(['sqlite', 'postgres'] as const)('workspaces on %s', (engine) => {
  useWorkspaces(engine);

  const names = (body: { data: { name: string }[] }) => body.data.map((one) => one.name).sort();

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
});
