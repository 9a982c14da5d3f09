/** Workspaces are changed and deleted, and what follows. */
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { createRuntime } from '../../src/runtime/runtime.ts';
import { plainVault } from '../support/admin.ts';
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
  shared,
  useWorkspaces,
} from '../support/workspaces.ts';

describe.each(['sqlite', 'postgres'] as const)('workspaces on %s', (engine) => {
  useWorkspaces(engine);

  const makeConfig = async (workspaceId: string): Promise<{ id: string; slug: string }> =>
    ok(await call('POST', '/v1/configs', { name: 'Team', config: { provider: '@a' }, workspace_id: workspaceId }));

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
      shared.push({ to: 'workspaces', id, name: 'pp-greeting' });
      for (const body of [undefined, { force_delete: true }]) {
        const answer = await call('DELETE', `${PATH}/${id}`, body);
        refused(answer, 409, 'AB07');
        expect(answer.body.error.message).toContain('shared prompt pp-greeting');
      }
      ok(await call('GET', '/v1/configs', undefined, key));
      shared.length = 0;
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
