/** API keys beyond what every resource promises: whose scopes, which settings, what details tell. On both engines. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DAY_MS, type KeyHarness, type Role, startKeys, type WorkspaceRole } from '../../../test/support/api-keys.ts';
import { SCOPES as ALL_SCOPES, roleScopes, scopesOf } from '../../auth/scopes.ts';
import { SECURITY_DEFAULTS } from '../../auth/security-settings.ts';

const PEOPLE: readonly (readonly [string, Role, WorkspaceRole | null])[] = [
  ['owner', 'owner', null],
  ['organisation admin', 'admin', null],
  ['workspace admin', 'member', 'admin'],
  ['manager', 'member', 'manager'],
  ['member', 'member', 'member'],
  ['member of no workspace', 'member', null],
];

describe.each(['sqlite', 'postgres'] as const)('API keys on %s', (engine) => {
  let keys: KeyHarness;

  beforeAll(async () => {
    keys = await startKeys(engine);
  });

  afterAll(async () => {
    await keys?.close();
  });

  const create = (body: object, key?: string, path = 'workspace/service') =>
    keys.admin.call('POST', `/v1/api-keys/${path}`, {
      body: { name: 'x', workspace_id: keys.admin.a.workspace_id, ...body },
      ...(key ? { key } : {}),
    });
  const put = (id: string, body: object, key?: string) =>
    keys.admin.call('PUT', `/v1/api-keys/${id}`, { body, ...(key ? { key } : {}) });

  describe('scopes', () => {
    it.each(PEOPLE)('%s grants exactly the scopes of the role', async (who, role, workspaceRole) => {
      const { workspace_id, user_id: owner } = keys.admin.a;
      const id = role === 'owner' ? owner : await keys.addUser(role, workspaceRole);
      const call = await keys.signIn(id);
      const held = roleScopes(role, workspaceRole, SECURITY_DEFAULTS);
      const all = [...scopesOf('workspace-user')];
      const granted = held.has('workspace_user_api_keys.create') ? all.filter((scope) => held.has(scope)) : [];
      const refused = all.filter((scope) => !granted.includes(scope));
      const make = (scopes: readonly string[]) =>
        call('POST', '/v1/api-keys/workspace/user', { name: 'x', workspace_id, user_id: id, scopes });
      const wrong: unknown[] = [];
      if (granted.length > 0) {
        // One key with all of them: a scope that is refused refuses it.
        const { status, text } = await make(granted);
        if (status !== 200) wrong.push([who, granted, status, text]);
      }
      for (const scope of refused) {
        const { status, text } = await make([scope]);
        if (status !== 403) wrong.push([who, scope, status, text]);
      }
      expect(wrong).toEqual([]);
      expect(refused.length === 0).toBe(role !== 'member' || workspaceRole === 'admin' || workspaceRole === 'manager');
    });

    it('a user key loses at once what its owner’s role loses, and gets it back with the role', async () => {
      const user_id = await keys.addUser('member', 'manager');
      const made = await keys.makeKey(['configs.delete'], { user_id }, 'workspace/user');
      const remove = async () => (await keys.admin.call('DELETE', '/v1/configs/pc-nowhere', { key: made.key })).status;
      expect(await remove()).toBe(404);
      await keys.setRole(user_id, 'member', 'member');
      expect(await remove()).toBe(403);
      expect((await keys.read(made.id)).scopes).toContain('configs.delete');
      await keys.setRole(user_id, 'member', 'admin');
      expect(await remove()).toBe(404);
    });

    it('a service key keeps what it was given when its creator’s role falls; the creator hands nothing out again', async () => {
      const { workspace_id } = keys.admin.a;
      const user = await keys.addUser('member', 'manager');
      const call = await keys.signIn(user);
      const answer = await call('POST', '/v1/api-keys/workspace/service', {
        name: 'x',
        workspace_id,
        scopes: ['configs.list'],
      });
      expect(answer.status, answer.text).toBe(200);
      await keys.setRole(user, 'member', 'member');
      keys.clock.jump(2_000);
      expect((await keys.admin.call('GET', '/v1/configs', { key: answer.body.key })).status).toBe(200);
      const path = `/v1/api-keys/${answer.body.id}`;
      for (const [method, at, body] of [
        ['PUT', path, { workspace_id, expires_at: null }],
        ['PUT', path, { workspace_id, scopes: ['configs.list'] }],
        ['POST', `${path}/rotate`, { workspace_id }],
        ['POST', '/v1/api-keys/workspace/service', { name: 'y', workspace_id, scopes: ['configs.list'] }],
      ] as const) {
        const { status } = await call(method, at, body);
        expect([method, at, status >= 403 && status <= 404]).toEqual([method, at, true]);
      }
    });

    it('whoever lacks a scope of a key may shorten its life, and neither prolong it nor bring it back', async () => {
      const weak = await keys.makeKey(['workspace_service_api_keys.update']);
      const soon = new Date(keys.clock.now() + 10 * DAY_MS).toISOString();
      const sooner = new Date(keys.clock.now() + 5 * DAY_MS).toISOString();
      const later = new Date(keys.clock.now() + 20 * DAY_MS).toISOString();
      const strong = await keys.makeKey(['completions.write'], { expires_at: soon, usage_limits: { credit_limit: 5 } });
      keys.fails(await put(strong.id, { expires_at: later }, weak.key), 403, 'AB03', 'expires_at');
      keys.fails(await put(strong.id, { expires_at: null }, weak.key), 403, 'AB03', 'expires_at');
      expect((await put(strong.id, { expires_at: sooner }, weak.key)).body).toEqual({});
      const set = (patch: object) => keys.tables.systemWrite((tx) => tx.update('api_keys', { id: strong.id }, patch));
      await set({ expires_at: keys.clock.now() - 1 });
      keys.fails(await put(strong.id, { expires_at: sooner }, weak.key), 403, 'AB03', 'expires_at');
      await set({ expires_at: null, status: 'exhausted' });
      keys.fails(await put(strong.id, { reset_usage: true }, weak.key), 403, 'AB03', 'reset_usage');
      keys.fails(await put(strong.id, { usage_limits: { credit_limit: 6 } }, weak.key), 403, 'AB03', 'usage_limits');
      expect((await put(strong.id, { usage_limits: { credit_limit: 4 } }, weak.key)).body).toEqual({});
      expect((await keys.read(strong.id)).status).toBe('exhausted');
    });

    it('an organisation key that makes workspace keys may give them what no organisation key can hold', async () => {
      const maker = await keys.makeKey(['workspace_service_api_keys.create'], {}, 'organisation/service');
      expect((await create({ scopes: ['completions.write'] }, maker.key)).status).toBe(200);
      keys.fails(await create({ scopes: ['configs.list'] }, maker.key), 403, 'AB03', 'scopes[0]');
    });

    it('what a key may read and no more is 403 to rotate, change and delete; what it may not read is 404', async () => {
      const reader = await keys.makeKey([
        'workspace_service_api_keys.read',
        ...['rotate', 'update', 'delete'].map((verb) => `workspace_user_api_keys.${verb}`),
      ]);
      const blind = await keys.makeKey(['rotate', 'update', 'delete'].map((verb) => `workspace_user_api_keys.${verb}`));
      const other = await keys.makeKey([]);
      const path = `/v1/api-keys/${other.id}`;
      for (const [method, url, body] of [
        ['POST', `${path}/rotate`, {}],
        ['PUT', path, { name: 'x' }],
        ['DELETE', path],
      ] as const) {
        const seen = await keys.admin.call(method, url, { key: reader.key, body });
        keys.fails(seen, 403, 'AB03');
        expect(seen.body.error.message).toContain('workspace_service_api_keys.');
        keys.fails(await keys.admin.call(method, url, { key: blind.key, body }), 404, 'AB08');
      }
    });

    it('a member makes, sees, changes and revokes user keys of his own only', async () => {
      const { workspace_id } = keys.admin.a;
      const [mine, his] = [await keys.addUser('member', 'member'), await keys.addUser('member', 'member')];
      const call = await keys.signIn(mine);
      const make = (user_id: string) =>
        call('POST', '/v1/api-keys/workspace/user', { name: 'x', workspace_id, user_id, scopes: ['configs.list'] });
      const own = await make(mine);
      expect(own.status, own.text).toBe(200);
      keys.fails(await make(his), 403, 'AB03', 'user_id');
      const other = await keys.makeKey(['configs.list'], { user_id: his }, 'workspace/user');
      const listed = await call('GET', `/v1/api-keys?workspace_id=${workspace_id}`);
      expect(listed.body.data.map((key: { id: string }) => key.id)).toEqual([own.body.id]);
      const path = `/v1/api-keys/${other.id}`;
      const where = `?workspace_id=${workspace_id}`;
      expect((await call('GET', `${path}${where}`)).status).toBe(404);
      expect((await call('PUT', path, { workspace_id, name: 'y' })).status).toBe(404);
      expect((await call('POST', `${path}/rotate`, { workspace_id })).status).toBe(404);
      expect((await call('DELETE', `${path}${where}`)).status).toBe(404);
    });

    it('nobody gets a user key of somebody above him, neither a new one nor by rotating', async () => {
      const { workspace_id, user_id: owner } = keys.admin.a;
      const people = {
        owner,
        admin: await keys.addUser('member', 'admin'),
        manager: await keys.addUser('member', 'manager'),
        member: await keys.addUser('member', 'member'),
      };
      const manager = await keys.signIn(await keys.addUser('member', 'manager'));
      const scopes = ['workspace_service_api_keys.create', 'workspace_user_api_keys.create', 'completions.write'];
      const body = { name: 'x', workspace_id, scopes };
      const service = (await manager('POST', '/v1/api-keys/workspace/service', body)).body;
      for (const [who, user_id] of Object.entries(people)) {
        const above = who === 'owner' || who === 'admin';
        const wanted = { name: 'x', workspace_id, user_id, scopes: ['completions.write'] };
        for (const answer of [
          await manager('POST', '/v1/api-keys/workspace/user', wanted),
          await create({ user_id, scopes: ['completions.write'] }, service.key, 'workspace/user'),
        ]) {
          if (above) keys.fails(answer, 403, 'AB03', 'user_id');
          else expect([who, answer.status]).toEqual([who, 200]);
        }
        const theirs = await keys.makeKey(['completions.write'], { user_id }, 'workspace/user');
        const rotated = await manager('POST', `/v1/api-keys/${theirs.id}/rotate`, { workspace_id });
        if (above) keys.fails(rotated, 403, 'AB03');
        else expect([who, rotated.status]).toEqual([who, 200]);
      }
    });

    it('a key of somebody above gets no more scopes over people and keys, and does not come back', async () => {
      const { workspace_id } = keys.admin.a;
      const manager = await keys.signIn(await keys.addUser('member', 'manager'));
      const put = (id: string, body: object) => manager('PUT', `/v1/api-keys/${id}`, { workspace_id, ...body });
      const scopes = ['completions.write'];
      const { id } = await keys.makeKey(scopes);
      for (const more of ['workspace_users.update', 'workspaces.update', 'workspace_service_api_keys.rotate']) {
        keys.fails(await put(id, { scopes: [...scopes, more] }), 403, 'AB03');
      }
      expect((await keys.read(id)).scopes).toEqual(scopes);
      expect((await put(id, { scopes: [...scopes, 'configs.list'] })).status).toBe(200);

      const expires_at = new Date(keys.clock.now() + DAY_MS).toISOString();
      const above = await keys.makeKey(['workspace_users.update'], { expires_at });
      keys.fails(await put(above.id, { expires_at: null }), 403, 'AB03');
      expect((await put(above.id, { name: 'renamed' })).status).toBe(200);
      expect((await put(above.id, { scopes: [] })).status).toBe(200);
    });

    it('a rotation policy on a new key needs the update scope of its type', async () => {
      const scopes: string[] = [];
      const maker = await keys.makeKey(['workspace_service_api_keys.create', 'workspace_user_api_keys.update']);
      const rotation_policy = { rotation_period: 'weekly' };
      keys.fails(await create({ scopes, rotation_policy }, maker.key), 403, 'AB03', 'rotation_policy');
      expect((await create({ scopes, rotation_policy: null }, maker.key)).status).toBe(200);
      const both = await keys.makeKey(['workspace_service_api_keys.create', 'workspace_service_api_keys.update']);
      expect((await create({ scopes, rotation_policy }, both.key)).status).toBe(200);
    });

    it('every scope of the catalogue belongs to a type of key', () => {
      const types = ['organisation-service', 'workspace-service', 'workspace-user'] as const;
      expect(new Set(types.flatMap((type) => [...scopesOf(type)]))).toEqual(new Set(ALL_SCOPES));
    });
  });

  describe('reading', () => {
    it('a look-up by ids answers up to 100 keys in one page', async () => {
      const made = await Promise.all(Array.from({ length: 60 }, () => keys.makeKey([])));
      const ids = made.map(({ id }) => id);
      const answer = await keys.admin.call('GET', `/v2/api-keys?ids=${ids.join(',')}`);
      expect(answer.body.total).toBe(60);
      expect(answer.body.data.map(({ id }: { id: string }) => id).sort()).toEqual([...ids].sort());
      const page = await keys.admin.call('GET', `/v2/api-keys?ids=${ids.join(',')}&page_size=7`);
      expect([page.body.total, page.body.data.length]).toEqual([60, 7]);
    });

    it('several states may be asked for at once, as the states are now', async () => {
      const [active, exhausted, expired] = await Promise.all([1, 2, 3].map(() => keys.makeKey([])));
      const set = (id = '', patch: object = {}) =>
        keys.tables.systemWrite((tx) => tx.update('api_keys', { id }, patch));
      await set(exhausted?.id, { status: 'exhausted' });
      await set(expired?.id, { expires_at: keys.clock.now() - 1 });
      const ids = [active, exhausted, expired].map((key) => key?.id).join(',');
      const found = async (status: string) => {
        const answer = await keys.admin.call('GET', `/v1/api-keys?ids=${ids}&status=${status}`);
        return answer.body.data.map((key: { status: string }) => key.status).sort();
      };
      expect(await found('active,expired')).toEqual(['active', 'expired']);
      expect(await found('active,exhausted,expired')).toEqual(['active', 'exhausted', 'expired']);
      expect(await found('exhausted')).toEqual(['exhausted']);
    });

    it('details tell of the workspace’s exemption from the organisation’s guardrails', async () => {
      const { organisation_id, workspace_id } = keys.admin.a;
      const made = await keys.makeKey(['completions.write']);
      expect((await keys.read(made.id)).guardrail_exclusions).toEqual({ input: false, output: false });
      await keys.tables.systemWrite((tx) =>
        tx.insert('guardrail_exclusions', { organisation_id, workspace_id, direction: 'output', created_at: 1 }),
      );
      expect((await keys.read(made.id)).guardrail_exclusions).toEqual({ input: false, output: true });
      const other = await keys.makeKey(['workspaces.list'], {}, 'organisation/service');
      expect((await keys.read(other.id)).guardrail_exclusions).toEqual({ input: false, output: false });
      const list = await keys.admin.call('GET', `/v1/api-keys?ids=${made.id}`);
      expect(list.body.data[0]).not.toHaveProperty('guardrail_exclusions');
    });

    it('alert e-mail addresses are stored, and what is none is refused', async () => {
      const alert_emails = ['ops@alpha.example', 'second@alpha.example'];
      const made = await keys.makeKey([], { alert_emails });
      expect((await keys.read(made.id)).alert_emails).toEqual(alert_emails);
      for (const [value, param] of [
        [['nobody'], 'alert_emails[0]'],
        ['a@b.example', 'alert_emails'],
        [['a@b.example', 3], 'alert_emails[1]'],
      ] as const) {
        keys.fails(await put(made.id, { alert_emails: value }), 400, 'AB01', param);
      }
      expect((await put(made.id, { alert_emails: null })).body).toEqual({});
      expect((await keys.read(made.id)).alert_emails).toEqual([]);
    });

    it('a key carries a checksum: one wrong character is refused before anything is looked up', async () => {
      const made = await keys.makeKey(['workspace_service_api_keys.list']);
      expect(made.key).toMatch(/^slc_wks_[0-9A-Za-z]{12}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}$/);
      const typo = `${made.key.slice(0, 30)}${made.key[30] === 'a' ? 'b' : 'a'}${made.key.slice(31)}`;
      expect(await keys.opens(typo)).toBe(false);
    });
  });

  describe('metadata', () => {
    const schema = {
      type: 'object',
      properties: { team: { type: 'string', enum: ['search', 'ads'] }, stage: { type: 'string', default: 'dev' } },
      required: ['team'],
    };

    it('satisfies the organisation’s schema on create and on update, and its defaults are filled in', async () => {
      const before = await keys.makeKey([], { defaults: { metadata: { any: 'thing' } } });
      await keys.settings({ metadata_schemas: { api_key: schema } });
      keys.fails(await create({ scopes: [] }), 400, 'AB01', 'defaults.metadata.team');
      keys.fails(
        await create({ scopes: [], defaults: { metadata: { team: 'x' } } }),
        400,
        'AB01',
        'defaults.metadata.team',
      );
      const made = await keys.makeKey([], { defaults: { metadata: { team: 'ads', more: '1' } } });
      expect((await keys.read(made.id)).defaults.metadata).toEqual({ team: 'ads', stage: 'dev', more: '1' });
      keys.fails(await put(made.id, { defaults: { metadata: null } }), 400, 'AB01', 'defaults.metadata.team');
      keys.fails(await put(made.id, { defaults: null }), 400, 'AB01', 'defaults.metadata.team');
      expect((await put(before.id, { name: 'renamed' })).body).toEqual({});
      keys.fails(
        await put(before.id, { defaults: { allow_config_override: false } }),
        400,
        'AB01',
        'defaults.metadata.team',
      );
      await keys.settings({});
      expect((await put(made.id, { defaults: null })).body).toEqual({});
      expect((await keys.read(made.id)).defaults).toBeNull();
    });
  });

  describe('user keys', () => {
    const userKey = async (patch: object = {}) => {
      const user_id = await keys.addUser('member', 'member');
      return keys.makeKey([], { user_id, ...patch }, 'workspace/user');
    };

    it('live as long as the settings say, counted from their creation', async () => {
      await keys.settings({ user_api_key_ttl: 3_600, user_api_key_max_ttl: 7_200 });
      const made = await userKey();
      const read = await keys.read(made.id);
      expect(Date.parse(read.expires_at) - Date.parse(read.created_at)).toBe(3_600_000);
      expect(read.expiry_enforced).toBe(1);
      const at = (seconds: number) => new Date(Date.parse(read.created_at) + seconds * 1000).toISOString();
      keys.fails(await put(made.id, { expires_at: at(7_201) }), 400, 'AB01', 'expires_at');
      expect((await put(made.id, { expires_at: at(7_200) })).body).toEqual({});
      expect((await put(made.id, { expires_at: null })).body).toEqual({});
      expect((await keys.read(made.id)).expires_at).toBe(at(7_200));
      const service = await keys.makeKey([]);
      expect(await keys.read(service.id)).toMatchObject({ expires_at: null, expiry_enforced: 0 });
      const user_id = await keys.addUser('member', 'member');
      const late = new Date(keys.clock.now() + 8_000_000).toISOString();
      keys.fails(
        await create({ scopes: [], user_id, expires_at: late }, undefined, 'workspace/user'),
        400,
        'AB01',
        'expires_at',
      );
      await keys.settings({ user_api_key_ttl: 3_600 }, { user_api_key_ttl: 60 });
      const short = await keys.read((await userKey()).id);
      expect(Date.parse(short.expires_at) - Date.parse(short.created_at)).toBe(60_000);
      expect(short.expiry_enforced).toBe(0);
      await keys.settings({});
    });

    it('are as many as the settings allow per user and workspace, also when they are asked for at once', async () => {
      await keys.settings({ user_api_key_count: 2 });
      const user_id = await keys.addUser('member', 'member');
      const make = () => create({ scopes: [], user_id }, undefined, 'workspace/user');
      const answers = await Promise.all([make(), make(), make(), make()]);
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 200, 409, 409]);
      for (const answer of answers.filter(({ status }) => status !== 200)) keys.fails(answer, 409, 'AB07');
      const first = answers.find(({ status }) => status === 200);
      await keys.admin.call('DELETE', `/v1/api-keys/${first?.body.id}`);
      expect((await make()).status).toBe(200);
      await keys.settings({ user_api_key_count: 2 }, { user_api_key_count: -1 });
      expect((await make()).status).toBe(200);
      await keys.settings({});
    });

    it('take the workspace’s config unless they name one', async () => {
      const { workspace_id } = keys.admin.a;
      const config = { name: 'c', workspace_id, config: { retry: { attempts: 1 } } };
      const [one, two] = await Promise.all([1, 2].map(() => keys.admin.call('POST', '/v1/configs', { body: config })));
      const set = (defaults: Record<string, unknown> | null) =>
        keys.tables.systemWrite((tx) => tx.update('workspaces', { id: workspace_id }, { defaults }));
      await set({ user_api_key_config: one?.body.slug });
      expect((await keys.read((await userKey()).id)).defaults.config_id).toBe(one?.body.slug);
      const named = await userKey({ defaults: { config_id: two?.body.id } });
      expect((await keys.read(named.id)).defaults.config_id).toBe(two?.body.slug);
      expect((await keys.read((await keys.makeKey([])).id)).defaults).toBeNull();
      await set(null);
    });

    it('a config of another workspace is unknown to a key, also when an organisation key names it', async () => {
      const other = await keys.addWorkspace('ws-configs');
      const config = { name: 'c', workspace_id: other, config: { retry: { attempts: 1 } } };
      const foreign = await keys.admin.call('POST', '/v1/configs', { body: config });
      const made = await keys.makeKey([]);
      for (const config_id of [foreign.body.slug, foreign.body.id]) {
        keys.fails(await put(made.id, { defaults: { config_id } }), 404, 'AB02', 'defaults.config_id');
        keys.fails(await create({ scopes: [], defaults: { config_id } }), 404, 'AB02', 'defaults.config_id');
      }
    });
  });

  describe('rotation policies', () => {
    const policyOf = async (id: string) => (await keys.read(id)).rotation_policy;
    const userKey = async (rotation_policy?: object | null) => {
      const user_id = await keys.addUser('member', 'member');
      return create({ scopes: [], user_id, rotation_policy }, undefined, 'workspace/user');
    };

    it('refuse what makes no sense, naming the field', async () => {
      const made = await keys.makeKey([]);
      const bad: readonly (readonly [unknown, string])[] = [
        [{}, 'rotation_policy'],
        ['weekly', 'rotation_policy'],
        [{ rotation_period: 'daily' }, 'rotation_policy.rotation_period'],
        [{ rotation_period: null, rotation_period_days: null, next_rotation_at: null }, 'rotation_policy'],
        [{ rotation_period: 'weekly', rotation_period_days: 7 }, 'rotation_policy.rotation_period_days'],
        [{ rotation_period_days: 0 }, 'rotation_policy.rotation_period_days'],
        [{ rotation_period_days: 366 }, 'rotation_policy.rotation_period_days'],
        [{ rotation_period_days: 1.5 }, 'rotation_policy.rotation_period_days'],
        [{ rotation_period_days: '7' }, 'rotation_policy.rotation_period_days'],
        [{ next_rotation_at: 'tomorrow' }, 'rotation_policy.next_rotation_at'],
        [{ next_rotation_at: '2020-01-01T00:00:00Z' }, 'rotation_policy.next_rotation_at'],
        [
          { rotation_period: 'weekly', key_transition_period_ms: 1_799_999 },
          'rotation_policy.key_transition_period_ms',
        ],
        [
          { rotation_period: 'weekly', key_transition_period_ms: 7 * DAY_MS },
          'rotation_policy.key_transition_period_ms',
        ],
        [{ rotation_period: 'weekly', key_transition_period_ms: null }, 'rotation_policy.key_transition_period_ms'],
        [{ rotation_period: 'weekly', status: 'ACTIVE' }, 'rotation_policy.status'],
      ];
      for (const [rotation_policy, param] of bad) {
        keys.fails(await create({ scopes: [], rotation_policy }), 400, 'AB01', param);
        keys.fails(await put(made.id, { rotation_policy }), 400, 'AB01', param);
      }
      expect(await policyOf(made.id)).toBeNull();
    });

    it('a day beside a period wins for the next cycle only; null removes the policy', async () => {
      const day = new Date(keys.clock.now() + 40 * DAY_MS);
      const made = await keys.makeKey([], {
        rotation_policy: { rotation_period: 'monthly', next_rotation_at: day.toISOString() },
      });
      const { next_rotation_at } = await policyOf(made.id);
      expect(next_rotation_at).toBe(`${day.toISOString().slice(0, 10)}T00:00:00.000Z`);
      expect((await keys.row(made.id)).rotation_due_at).toBe(Date.parse(next_rotation_at));
      await keys.rotate(made.id);
      expect((await policyOf(made.id)).next_rotation_at).toMatch(/-01T00:00:00\.000Z$/);
      expect((await put(made.id, { rotation_policy: null })).body).toEqual({});
      expect(await policyOf(made.id)).toBeNull();
      expect((await keys.row(made.id)).rotation_due_at).toBeNull();
    });

    it('an enforced cadence is filled in, and another one is refused', async () => {
      await keys.settings({ user_api_key_rotation_period: 7 });
      const made = await userKey();
      expect(await policyOf(made.body.id)).toMatchObject({
        rotation_period_days: 7,
        key_transition_period_ms: 1_800_000,
      });
      expect(await policyOf((await userKey(null)).body.id)).toMatchObject({ rotation_period_days: 7 });
      expect(await policyOf((await userKey({ rotation_period: 'weekly' })).body.id)).toMatchObject({
        rotation_period: 'weekly',
      });
      for (const other of [{ rotation_period: 'monthly' }, { rotation_period_days: 8 }, { rotation_period_days: 6 }]) {
        keys.fails(await userKey(other), 400, 'AB01', 'rotation_policy');
        keys.fails(await put(made.body.id, { rotation_policy: other }), 400, 'AB01', 'rotation_policy');
      }
      const once = { next_rotation_at: new Date(keys.clock.now() + 3 * DAY_MS).toISOString() };
      keys.fails(await userKey(once), 400, 'AB01', 'rotation_policy');
      expect(await policyOf((await keys.makeKey([])).id)).toBeNull();
      await keys.settings({ user_api_key_rotation_period: 7 }, { user_api_key_rotation_period: 30 });
      expect(await policyOf((await userKey({ rotation_period: 'monthly' })).body.id)).toMatchObject({
        rotation_period: 'monthly',
      });
      await keys.settings({});
    });

    it('while a cadence is enforced the next rotation cannot be moved', async () => {
      await keys.settings({ user_api_key_rotation_period: 30 });
      const made = (await userKey()).body;
      const policy = await policyOf(made.id);
      const days = (n: number) => new Date(keys.clock.now() + n * DAY_MS).toISOString();
      for (const n of [3, 60]) {
        const rotation_policy = { rotation_period_days: 30, next_rotation_at: days(n) };
        keys.fails(await put(made.id, { rotation_policy }), 400, 'AB01', 'rotation_policy.next_rotation_at');
      }
      const { next_rotation_at } = policy;
      const longer = { rotation_period_days: 30, key_transition_period_ms: 3_600_000 };
      expect((await put(made.id, { rotation_policy: { ...longer, next_rotation_at } })).body).toEqual({});
      expect(await policyOf(made.id)).toEqual({ ...policy, ...longer });
      expect((await put(made.id, { rotation_policy: null })).body).toEqual({});
      expect((await policyOf(made.id)).next_rotation_at).toBe(next_rotation_at);
      const past = new Date(keys.clock.now() - DAY_MS).toISOString();
      const due = { ...policy, next_rotation_at: past };
      await keys.tables.systemWrite((tx) => tx.update('api_keys', { id: made.id }, { rotation_policy: due }));
      expect((await put(made.id, { rotation_policy: longer })).body).toEqual({});
      expect((await policyOf(made.id)).next_rotation_at).toBe(past);
      keys.fails(
        await userKey({ rotation_period_days: 30, next_rotation_at: days(31) }),
        400,
        'AB01',
        'rotation_policy.next_rotation_at',
      );
      expect((await userKey({ rotation_period_days: 30, next_rotation_at: days(3) })).status).toBe(200);
      await keys.settings({});
    });

    it('keys from before a cadence was enforced get it from the job, and keep an earlier rotation', async () => {
      const soon = new Date(keys.clock.now() + 3 * DAY_MS).toISOString();
      const bare = (await userKey()).body;
      const slow = (await userKey({ rotation_period_days: 300 })).body;
      const planned = (await userKey({ next_rotation_at: soon })).body;
      const same = (await userKey({ rotation_period_days: 20, key_transition_period_ms: 3_600_000 })).body;
      const service = await keys.makeKey([]);
      const kept = await policyOf(same.id);
      await keys.settings({ user_api_key_rotation_period: 20 });
      await keys.enforce();
      for (const key of [bare, slow]) {
        const { rotation_period_days, next_rotation_at } = await policyOf(key.id);
        expect(rotation_period_days).toBe(20);
        expect(Date.parse(next_rotation_at)).toBeLessThanOrEqual(keys.clock.now() + 20 * DAY_MS);
        expect((await keys.row(key.id)).rotation_due_at).toBe(Date.parse(next_rotation_at));
      }
      expect(await policyOf(planned.id)).toMatchObject({
        rotation_period_days: 20,
        next_rotation_at: `${soon.slice(0, 10)}T00:00:00.000Z`,
      });
      expect(await policyOf(same.id)).toEqual(kept);
      expect(await policyOf(service.id)).toBeNull();
      const row = (await keys.audits()).findLast((one) => one.resource_id === bare.id);
      expect(row).toMatchObject({ action: 'update', user_type: 'system' });
      const { version } = await keys.row(bare.id);
      await keys.enforce();
      expect((await keys.row(bare.id)).version).toBe(version);
      await keys.settings({});
    });
  });

  it('nothing above was an unexpected failure', () => {
    expect(keys.admin.logged.filter((line) => line.includes('"level":"error"'))).toEqual([]);
  });
});
