/** User keys that are made for whoever joins a workspace, on both engines. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DAY_MS, type KeyHarness, startKeys, type WorkspaceRole } from '../../../test/support/api-keys.ts';
import { roleScopes, scopesOf } from '../../auth/scopes.ts';
import { SECURITY_DEFAULTS } from '../../auth/security-settings.ts';
import { systemTenant } from '../../auth/tenant.ts';
import type { InvitedKey } from '../../store/schema.ts';
import { autoCreateUserKeys } from './auto.ts';

describe.each(['sqlite', 'postgres'] as const)('auto-created user keys on %s', (engine) => {
  let keys: KeyHarness;
  let team: string;

  beforeAll(async () => {
    keys = await startKeys(engine);
    team = await keys.addWorkspace('ws-team');
  });

  afterAll(async () => {
    await keys?.close();
  });

  const join = async (userId: string, workspaceId = team, asked: InvitedKey | null = null) => {
    const [made] = await keys.tables.write(systemTenant(keys.admin.a.organisation_id), (tx) =>
      autoCreateUserKeys({ tx, clock: keys.clock, workspaceId, userIds: [userId], actorId: 'actor', asked }),
    );
    return made ?? null;
  };
  const joined = async (role: WorkspaceRole = 'member', asked: InvitedKey | null = null, workspaceId = team) => {
    const userId = await keys.addUser('member', role, workspaceId);
    const made = await join(userId, workspaceId, asked);
    return { userId, made, row: made === null ? null : await keys.row(made.id) };
  };
  const set = (settings: Record<string, unknown>) =>
    keys.tables.systemWrite((tx) => tx.update('workspaces', { id: team }, { settings }));

  it('are made only where the settings want them, the workspace’s before the organisation’s', async () => {
    expect((await joined()).made).toBeNull();
    await keys.settings({ user_api_key_auto_create: true });
    const { made, row, userId } = await joined();
    expect(made?.key).toMatch(/^slc_usr_/);
    expect(row).toMatchObject({
      type: 'workspace-user',
      workspace_id: team,
      user_id: userId,
      creation_mode: 'auto',
      created_by: 'actor',
      status: 'active',
    });
    expect(await keys.opens(made?.key ?? '')).toBe(true);
    expect(await keys.read(made?.id ?? '')).toMatchObject({ creation_mode: 'auto' });
    await set({ user_api_key_auto_create: false });
    expect((await joined()).made).toBeNull();
    await keys.settings({});
    await set({ user_api_key_auto_create: true });
    expect((await joined()).made).not.toBeNull();
    await set({});
  });

  it('of the default workspace are ruled by a setting of their own', async () => {
    const { workspace_id } = keys.admin.a;
    await keys.settings({ user_api_key_auto_create: true });
    expect((await joined('member', null, workspace_id)).made).toBeNull();
    await keys.settings({ default_workspace_user_api_key_auto_create: true });
    expect((await joined('member', null, workspace_id)).made).not.toBeNull();
    expect((await joined()).made).toBeNull();
  });

  it('carry the scopes of the role, or those of the settings that the role has', async () => {
    await keys.settings({ user_api_key_auto_create: true });
    for (const role of ['member', 'manager', 'admin'] as const) {
      const held = roleScopes('member', role, SECURITY_DEFAULTS);
      const { row } = await joined(role);
      expect(new Set(row?.scopes)).toEqual(new Set([...scopesOf('workspace-user')].filter((scope) => held.has(scope))));
    }
    const allowed = {
      user_api_key_auto_create: true,
      user_api_key_auto_create_scopes: ['completions.write', 'configs.delete'],
    };
    await keys.settings(allowed);
    expect((await joined()).row?.scopes).toEqual(['completions.write']);
    expect((await joined('manager')).row?.scopes).toEqual(['completions.write', 'configs.delete']);
    await set({ user_api_key_auto_create_scopes: ['models.list'] });
    expect((await joined()).row?.scopes).toEqual(['models.list']);
    await set({ user_api_key_auto_create_scopes: [] });
    expect((await joined()).row?.scopes).toEqual([]);
    await set({});
  });

  it('have no scope that the settings took away before the key was there', async () => {
    const scopes = ['completions.write', 'models.list', 'configs.list'];
    for (let round = 0; round < 10; round++) {
      await keys.settings({ user_api_key_auto_create: true, user_api_key_auto_create_scopes: scopes });
      const userId = await keys.addUser('member', 'member', team);
      const [made] = await Promise.all([
        join(userId),
        keys.settings({ user_api_key_auto_create: true, user_api_key_auto_create_scopes: ['models.list'] }),
      ]);
      // Either order is one of two transactions; a mix of both settings would be neither.
      const { scopes: got } = await keys.row(made?.id ?? '');
      expect([JSON.stringify(scopes), JSON.stringify(['models.list'])]).toContain(JSON.stringify(got));
    }
  });

  it('take expiry, rotation and config from the settings', async () => {
    const config = await keys.admin.call('POST', '/v1/configs', {
      body: { name: 'c', workspace_id: team, config: { retry: { attempts: 1 } } },
    });
    await keys.tables.systemWrite((tx) =>
      tx.update('workspaces', { id: team }, { defaults: { user_api_key_config: config.body.slug } }),
    );
    await keys.settings({ user_api_key_auto_create: true, user_api_key_ttl: 86_400, user_api_key_rotation_period: 7 });
    const { row } = await joined();
    expect((row?.expires_at ?? 0) - (row?.created_at ?? 0)).toBe(DAY_MS);
    expect(row?.rotation_policy).toMatchObject({ rotation_period_days: 7 });
    expect(row?.rotation_due_at).toBe(Date.parse(String(row?.rotation_policy?.next_rotation_at)));
    expect(row?.defaults).toEqual({ config_id: config.body.slug });
    await keys.tables.systemWrite((tx) => tx.update('workspaces', { id: team }, { defaults: null }));
  });

  it('are one per user and workspace, and never more than user_api_key_count', async () => {
    await keys.settings({ user_api_key_auto_create: true, user_api_key_count: 1 });
    const { userId, made } = await joined();
    expect(await join(userId)).toBeNull();
    expect(await join(userId, team, { scopes: ['models.list'] })).toBeNull();
    await keys.tables.systemWrite((tx) => tx.update('api_keys', { id: made?.id ?? '' }, { status: 'archived' }));
    expect(await join(userId)).not.toBeNull();
  });

  it('what an invite asked for is made whatever the settings say, within the role and the allowed scopes', async () => {
    await keys.settings({ user_api_key_auto_create: false });
    const asked = { name: 'First key', scopes: ['completions.write', 'configs.delete', 'models.list'] };
    const { row } = await joined('member', { ...asked, defaults: { metadata: { team: 'x' } } });
    expect(row).toMatchObject({
      name: 'First key',
      scopes: ['completions.write', 'models.list'],
      defaults: { metadata: { team: 'x' } },
      creation_mode: 'auto',
    });
    await keys.settings({ user_api_key_auto_create_scopes: ['models.list'] });
    expect((await joined('member', asked)).row?.scopes).toEqual(['models.list']);
  });

  it('metadata that the organisation’s schema wants keeps nobody from joining', async () => {
    const schema = { type: 'object', properties: { stage: { type: 'string', default: 'dev' } } };
    await keys.settings({ user_api_key_auto_create: true, metadata_schemas: { api_key: schema } });
    expect((await joined()).row?.defaults).toEqual({ metadata: { stage: 'dev' } });
    await keys.settings({
      user_api_key_auto_create: true,
      metadata_schemas: { api_key: { ...schema, required: ['team'] } },
    });
    expect((await joined()).row?.defaults).toBeNull();
  });

  it('nobody who is gone, and no workspace that is gone, gets one', async () => {
    await keys.settings({ user_api_key_auto_create: true });
    const userId = await keys.addUser('member', 'member', team);
    await keys.tables.systemWrite((tx) => tx.update('users', { id: userId }, { status: 'archived' }));
    expect(await join(userId)).toBeNull();
    expect(await join(keys.admin.b.user_id)).toBeNull();
    expect(await join(keys.admin.a.user_id, keys.admin.b.workspace_id)).toBeNull();
  });

  it('a user who never saw the key rotates it to get one', async () => {
    await keys.settings({ user_api_key_auto_create: true });
    const { userId, made } = await joined();
    const call = await keys.signIn(userId);
    const answer = await call('POST', `/v1/api-keys/${made?.id}/rotate`, { workspace_id: team });
    expect(answer.status, answer.text).toBe(200);
    expect(await keys.opens(answer.body.key)).toBe(true);
  });
});
