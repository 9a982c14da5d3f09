/**
 * What security settings take from whom and give to whom, against a table written by hand and kept apart from
 * the code; overrides by workspaces; the life of a sign-in. On both stores.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { ok, refused } from '../../test/support/accounts.ts';
import { type AdminHarness, emptyTables, startAdmin } from '../../test/support/admin.ts';
import { addUser, PUBLIC_URL, signIn } from '../../test/support/people.ts';
import { systemClock, TestClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import { action } from '../resources/resource.ts';
import { checkWorkspaceSecurity } from '../resources/settings/settings.ts';
import { apiKeyRow, secretRow, workspaceRow } from '../store/conformance/rows.ts';
import { ConsoleSessions, createLink } from './console-session.ts';
import { mintKey } from './key-format.ts';
import { scopesOf } from './scopes.ts';
import { categoryOf, OVERRIDE_CATEGORIES, SECURITY_DEFAULTS, SECURITY_KEYS } from './security-settings.ts';

type Role = 'owner' | 'organisation admin' | 'workspace admin' | 'manager' | 'member';
const ROLES: readonly Role[] = ['owner', 'organisation admin', 'workspace admin', 'manager', 'member'];

/** Setting, whether it is on unless set, the one role that it concerns, and the scopes that hang on it. */
const TABLE: readonly (readonly [string, 'on' | 'off', Role, string])[] = [
  ['membersViewLogs', 'on', 'member', 'logs.export logs.list logs.view'],
  ['managersViewLogs', 'on', 'manager', 'logs.export logs.list logs.view'],
  ['organisationAdminsViewLogs', 'on', 'organisation admin', 'logs.export logs.list logs.view'],
  ['membersViewLogMetadata', 'on', 'member', ''],
  ['managersViewLogMetadata', 'on', 'manager', ''],
  ['organisationAdminsViewLogMetadata', 'on', 'organisation admin', ''],
  ['membersViewAllData', 'on', 'member', ''],
  ['managersViewAllData', 'on', 'manager', ''],
  ['membersViewAnalytics', 'on', 'member', 'analytics.view'],
  ['managersViewAnalytics', 'on', 'manager', 'analytics.view'],
  ['membersViewApiKeys', 'on', 'member', 'workspace_user_api_keys.list workspace_user_api_keys.read'],
  [
    'membersWriteApiKeys',
    'on',
    'member',
    'workspace_user_api_keys.create workspace_user_api_keys.delete workspace_user_api_keys.rotate workspace_user_api_keys.update',
  ],
  [
    'managersViewApiKeys',
    'on',
    'manager',
    'workspace_service_api_keys.list workspace_service_api_keys.read workspace_user_api_keys.list workspace_user_api_keys.read',
  ],
  [
    'managersWriteApiKeys',
    'on',
    'manager',
    'workspace_service_api_keys.create workspace_service_api_keys.delete workspace_service_api_keys.rotate workspace_service_api_keys.update ' +
      'workspace_user_api_keys.create workspace_user_api_keys.delete workspace_user_api_keys.rotate workspace_user_api_keys.update',
  ],
  ['membersViewConfigs', 'on', 'member', 'configs.list configs.read'],
  ['membersWriteConfigs', 'off', 'member', 'configs.create configs.delete configs.update'],
  ['managersViewConfigs', 'on', 'manager', 'configs.list configs.read'],
  ['managersWriteConfigs', 'on', 'manager', 'configs.create configs.delete configs.update'],
  ['membersViewPrompts', 'on', 'member', 'prompts.list prompts.read'],
  ['membersWritePrompts', 'off', 'member', 'prompts.create prompts.delete prompts.publish prompts.update'],
  ['managersViewPrompts', 'on', 'manager', 'prompts.list prompts.read'],
  ['managersWritePrompts', 'on', 'manager', 'prompts.create prompts.delete prompts.publish prompts.update'],
  ['membersViewGuardrails', 'on', 'member', 'guardrails.list guardrails.read'],
  ['membersWriteGuardrails', 'off', 'member', 'guardrails.create guardrails.delete guardrails.update'],
  ['managersViewGuardrails', 'on', 'manager', 'guardrails.list guardrails.read'],
  ['managersWriteGuardrails', 'on', 'manager', 'guardrails.create guardrails.delete guardrails.update'],
  ['membersViewVirtualKeys', 'on', 'member', 'providers.list providers.read virtual_keys.list virtual_keys.read'],
  [
    'membersWriteVirtualKeys',
    'on',
    'member',
    'providers.create providers.delete providers.update ' +
      'virtual_keys.copy virtual_keys.create virtual_keys.delete virtual_keys.duplicate virtual_keys.update',
  ],
  ['managersViewVirtualKeys', 'on', 'manager', 'providers.list providers.read virtual_keys.list virtual_keys.read'],
  [
    'managersWriteVirtualKeys',
    'on',
    'manager',
    'providers.create providers.delete providers.update ' +
      'virtual_keys.copy virtual_keys.create virtual_keys.delete virtual_keys.duplicate virtual_keys.update',
  ],
  [
    'managersWriteWsIntegrations',
    'on',
    'manager',
    'workspace_integrations.create workspace_integrations.delete workspace_integrations.update',
  ],
  [
    'managersWriteWsMcpIntegrations',
    'on',
    'manager',
    'workspace_mcp_integrations.create workspace_mcp_integrations.delete workspace_mcp_integrations.update',
  ],
  ['managersWriteMcpServers', 'on', 'manager', 'mcp_servers.create mcp_servers.delete mcp_servers.update'],
  ['managersUpdateWs', 'on', 'manager', 'workspaces.update'],
  ['managersWriteWsUsers', 'on', 'manager', 'workspace_users.create workspace_users.delete workspace_users.update'],
];

/** Setting and category, one of each category that a workspace can set switches of. */
const OF_CATEGORY = [
  ['membersViewLogs', 'logs'],
  ['membersViewAnalytics', 'analytics'],
  ['membersViewApiKeys', 'api_keys'],
  ['membersViewConfigs', 'configs'],
  ['membersViewPrompts', 'prompts'],
  ['membersViewGuardrails', 'guardrails'],
  ['membersViewVirtualKeys', 'providers'],
  ['managersWriteMcpServers', 'integrations'],
  ['managersUpdateWs', 'workspace'],
] as const;

const words = (text: string) => text.split(' ').filter((word) => word !== '');

/** Answers the scopes that the call came with; every role but nobody may ask. */
const echo = action({
  id: 'test.scopes',
  method: 'GET',
  path: '/test/scopes',
  summary: 'Scopes',
  tag: 'Test',
  auth: 'key_or_login',
  scopes: ['completions.write'],
  tenant: 'workspace',
  params: null,
  query: z.strictObject({ workspace_id: z.string().optional() }),
  body: null,
  response: z.array(z.string()),
  writes: false,
  audit: null,
  run: async ({ principal }) => [...principal.scopes].sort(),
});

interface Person {
  readonly role: Role;
  readonly id: string;
  /** Signed in to the console. */
  readonly headers: Record<string, string>;
  /** A user key of this person with every scope that user keys may have. */
  readonly key: string;
}

describe('the table of settings', () => {
  it('names every setting once, with its default', () => {
    expect(TABLE.map(([key]) => key).sort()).toEqual([...SECURITY_KEYS].sort());
    for (const [key, value] of TABLE) {
      expect([key, SECURITY_DEFAULTS[key as keyof typeof SECURITY_DEFAULTS]]).toEqual([key, value === 'on']);
    }
  });
});

describe.each(['sqlite', 'postgres'] as const)('security settings on %s', (engine) => {
  let api: AdminHarness;
  let sessions: ConsoleSessions;
  let people: readonly Person[];
  let elsewhere: { readonly id: string; readonly slug: string };

  const organisation = () => api.a.organisation_id;
  const settings = async (body: object) => ok(await api.call('PUT', '/v1/admin/organisation/settings', { body }));
  const security = (workspaceId: string, security_settings: Record<string, unknown>) =>
    api.tables.systemWrite(async (tx) => {
      await tx.update('workspaces', { id: workspaceId }, { security_settings });
      tx.changed({ organisationId: organisation(), workspaceId, topic: 'workspaces', entityId: workspaceId });
      api.authenticator.invalidateAll();
    });

  /** Scopes of a person in a workspace, signed in over HTTP, in the console's own calls, and with the user key. */
  const heldBy = async (person: Person, workspaceId = api.a.workspace_id) => {
    // As the change feed does on a server: a session that was read while a setting was off is up to a second old.
    sessions.invalidate();
    const signedIn: string[] = ok(
      await api.call('GET', `/v1/test/scopes?workspace_id=${workspaceId}`, { key: null, headers: person.headers }),
    );
    const session = await sessions.find(person.headers.cookie);
    if (session === null) throw new Error('not signed in');
    const console = [...(await sessions.inWorkspace(session.principal, workspaceId)).scopes].sort();
    const key: string[] =
      workspaceId === api.a.workspace_id ? ok(await api.call('GET', '/v1/test/scopes', { key: person.key })) : [];
    return { signedIn, console, key };
  };

  beforeAll(async () => {
    const tables = await emptyTables(engine);
    sessions = new ConsoleSessions({ tables, clock: systemClock, publicUrl: () => PUBLIC_URL });
    api = await startAdmin(tables, { admin: { sessions }, rows: [echo] });
    elsewhere = { id: uuidv7(systemClock), slug: 'ws-elsewhere' };
    const workspaces = [api.a.workspace_id, elsewhere.id];
    await tables.systemWrite((tx) =>
      tx.insert('workspaces', workspaceRow(organisation(), elsewhere.id, { slug: elsewhere.slug })),
    );
    people = await Promise.all(
      ROLES.map(async (role): Promise<Person> => {
        const user =
          role === 'owner'
            ? { id: api.a.user_id, organisation_id: organisation() }
            : await addUser(tables, organisation(), { role: role === 'organisation admin' ? 'admin' : 'member' });
        const minted = mintKey('usr');
        const keyId = uuidv7(systemClock);
        await tables.systemWrite(async (tx) => {
          const now = systemClock.now();
          for (const workspace_id of workspaces) {
            if (role === 'owner' || role === 'organisation admin') break;
            await tx.insert('workspace_members', {
              organisation_id: organisation(),
              workspace_id,
              user_id: user.id,
              role: role === 'workspace admin' ? 'admin' : role,
              status: 'active',
              created_at: now,
              last_updated_at: now,
            });
          }
          const owned = { workspace_id: api.a.workspace_id, user_id: user.id, type: 'workspace-user' as const };
          const scopes = [...scopesOf('workspace-user')];
          await tx.insert('api_keys', apiKeyRow(organisation(), keyId, { ...owned, scopes }));
          await tx.insert(
            'api_key_secrets',
            secretRow(organisation(), keyId, minted.publicId, { digest: minted.digest }),
          );
        });
        return { role, id: user.id, headers: await signIn(tables, sessions, user), key: minted.key };
      }),
    );
  });

  afterAll(() => api?.close());

  const person = (role: Role): Person => {
    const found = people.find((one) => one.role === role);
    if (found === undefined) throw new Error(role);
    return found;
  };

  it('each setting moves exactly its scopes, of its role only: signed in, in the console and with user keys', async () => {
    const before = new Map<Role, Awaited<ReturnType<typeof heldBy>>>();
    for (const one of people) before.set(one.role, await heldBy(one));
    for (const [setting, value, concerned, scopes] of TABLE) {
      await settings({ security_settings: { [setting]: value === 'off' } });
      for (const one of people) {
        const [was, is] = [before.get(one.role), await heldBy(one)];
        for (const channel of ['signedIn', 'console', 'key'] as const) {
          const moved = words(scopes).filter((scope) => channel !== 'key' || scopesOf('workspace-user').has(scope));
          const expected = one.role === concerned ? moved : [];
          const [less, more] = value === 'on' ? [was, is] : [is, was];
          const lost = (less?.[channel] ?? []).filter((scope) => !more?.[channel].includes(scope));
          const gained = (more?.[channel] ?? []).filter((scope) => !less?.[channel].includes(scope));
          expect([setting, one.role, channel, lost, gained]).toEqual([setting, one.role, channel, expected, []]);
        }
      }
      await settings({ security_settings: { [setting]: null } });
    }
    for (const one of people) expect(await heldBy(one)).toEqual(before.get(one.role));
  }, 120_000);

  it('everything switched off leaves owners and workspace admins whole, and admins all but the logs', async () => {
    const whole = await heldBy(person('workspace admin'));
    await settings({ security_settings: Object.fromEntries(SECURITY_KEYS.map((key) => [key, false])) });
    expect(await heldBy(person('workspace admin'))).toEqual(whole);
    const [owner, admin] = [await heldBy(person('owner')), await heldBy(person('organisation admin'))];
    expect(owner.signedIn.filter((scope) => !admin.signedIn.includes(scope))).toEqual([
      'logs.export',
      'logs.list',
      'logs.view',
    ]);
    // What is left to a member: sending traffic, and reading what no setting speaks of.
    const member = await heldBy(person('member'));
    expect(member.signedIn).toContain('completions.write');
    expect(member.signedIn.filter((scope) => /\.(create|update|delete)$/.test(scope))).toEqual([]);
    await settings({ security_settings: null });
  });

  it('decide calls of the administration API, from the next call on', async () => {
    const { headers, key } = person('member');
    const workspace_id = api.a.workspace_id;
    const list = (more: object) => api.call('GET', `/v1/configs?workspace_id=${workspace_id}`, more);
    const create = (more: object) =>
      api.call('POST', '/v1/configs', {
        ...more,
        body: { name: 'mine', config: { retry: { attempts: 1 } }, workspace_id },
      });
    const codes = async () => {
      const answers = [await list({ key }), await list({ key: null, headers })];
      return [...answers, await create({ key }), await create({ key: null, headers })].map(({ status }) => status);
    };
    expect(await codes()).toEqual([200, 200, 403, 403]);
    await settings({ security_settings: { membersViewConfigs: false, membersWriteConfigs: true } });
    expect(await codes()).toEqual([403, 403, 200, 200]);
    await settings({ security_settings: null });
    expect(await codes()).toEqual([200, 200, 403, 403]);
  });

  it('never restrict service keys, which no role stands behind', async () => {
    const before = ok(await api.call('GET', '/v1/test/scopes', { key: api.a.workspace_api_key }));
    await settings({ security_settings: Object.fromEntries(SECURITY_KEYS.map((key) => [key, false])) });
    expect(ok(await api.call('GET', '/v1/test/scopes', { key: api.a.workspace_api_key }))).toEqual(before);
    await settings({ security_settings: null });
  });

  it('the settings themselves are for owners and admins: members get 403, whatever their workspace says', async () => {
    for (const one of people) {
      const expected = ['owner', 'organisation admin'].includes(one.role) ? 200 : 403;
      const read = await api.call('GET', '/v1/admin/organisation/settings', { key: null, headers: one.headers });
      const write = await api.call('PUT', '/v1/admin/organisation/settings', {
        key: null,
        headers: one.headers,
        body: {},
      });
      const withKey = await api.call('GET', '/v1/admin/organisation/settings', { key: one.key });
      expect([one.role, read.status, write.status, withKey.status]).toEqual([one.role, expected, expected, 403]);
    }
  });

  it('what is withheld from organisation admins only an owner, or a key that may read logs, gives back', async () => {
    const path = '/v1/admin/organisation/settings';
    const as = (role: Role, body: object) => api.call('PUT', path, { key: null, headers: person(role).headers, body });
    const minted = mintKey('org');
    const keyId = uuidv7(systemClock);
    await api.tables.systemWrite(async (tx) => {
      await tx.insert('api_keys', apiKeyRow(organisation(), keyId, { scopes: ['organisation_settings.update'] }));
      await tx.insert('api_key_secrets', secretRow(organisation(), keyId, minted.publicId, { digest: minted.digest }));
    });
    for (const key of ['organisationAdminsViewLogs', 'organisationAdminsViewLogMetadata']) {
      const param = `security_settings.${key}`;
      ok(await as('organisation admin', { security_settings: { [key]: false } }));
      // Reading them is not enough to undo them, in whatever way it is asked for.
      refused(await as('organisation admin', { security_settings: { [key]: true } }), 403, 'AB03', param);
      refused(await as('organisation admin', { security_settings: { [key]: null } }), 403, 'AB03', param);
      refused(await as('organisation admin', { security_settings: null }), 403, 'AB03', param);
      refused(await api.call('PUT', path, { key: minted.key, body: { security_settings: null } }), 403, 'AB03', param);
      ok(await as('organisation admin', { security_settings: { [key]: false, membersViewLogs: true } }));
      ok(await as('owner', { security_settings: { [key]: true } }));
      await settings({ security_settings: { [key]: false } });
      await settings({ security_settings: null });
    }
  });

  it('exemptions from guardrails are for keys of the organisation: no signed-in user sees or sets them', async () => {
    for (const one of people) {
      const path = '/v1/workspace-exclusions/input-guardrails';
      const read = await api.call('GET', path, { key: null, headers: one.headers });
      const write = await api.call('PUT', path, { key: null, headers: one.headers, body: { workspaces: [] } });
      expect([one.role, read.status, write.status]).toEqual([one.role, 401, 401]);
    }
  });

  describe('a workspace', () => {
    it.each(OF_CATEGORY)('decides about %s only while the category %s is open to it', async (setting, category) => {
      const entry = TABLE.find(([key]) => key === setting);
      const [, , concerned = 'member', scopes = ''] = entry ?? [];
      const [scope = ''] = words(scopes);
      const has = async (workspaceId: string) =>
        (await heldBy(person(concerned), workspaceId)).signedIn.includes(scope);
      await security(api.a.workspace_id, { [setting]: false });
      expect([await has(api.a.workspace_id), await has(elsewhere.id)]).toEqual([true, true]);
      // Opening every other category does not open this one.
      const others = OVERRIDE_CATEGORIES.filter((other) => other !== category);
      await settings({ workspace_overrides: Object.fromEntries(others.map((other) => [other, true])) });
      await security(api.a.workspace_id, { [setting]: false });
      expect(await has(api.a.workspace_id)).toBe(true);
      await settings({ workspace_overrides: null });
      await settings({ workspace_overrides: { [category]: true } });
      expect([await has(api.a.workspace_id), await has(elsewhere.id)]).toEqual([false, true]);
      const key = (await heldBy(person(concerned))).key;
      if (scopesOf('workspace-user').has(scope)) expect(key).not.toContain(scope);
      // What the organisation forbids, the workspace may allow again.
      await settings({ security_settings: { [setting]: false } });
      await security(api.a.workspace_id, { [setting]: true });
      expect([await has(api.a.workspace_id), await has(elsewhere.id)]).toEqual([true, false]);
      await settings({ workspace_overrides: { [category]: false } });
      expect(await has(api.a.workspace_id)).toBe(false);
      await settings({ workspace_overrides: null, security_settings: null });
      await security(api.a.workspace_id, {});
    });

    it('may keep its logs from organisation admins, but not give back what the organisation keeps from them', async () => {
      const has = async () => (await heldBy(person('organisation admin'))).signedIn.includes('logs.view');
      await settings({ workspace_overrides: { logs: true } });
      await security(api.a.workspace_id, { organisationAdminsViewLogs: false });
      expect(await has()).toBe(false);
      await settings({ security_settings: { organisationAdminsViewLogs: false } });
      await security(api.a.workspace_id, { organisationAdminsViewLogs: true });
      expect(await has()).toBe(false);
      await settings({ workspace_overrides: null, security_settings: null });
      await security(api.a.workspace_id, {});
      expect(await has()).toBe(true);
    });

    it('is refused a setting of a category that is not open, and nothing is written', async () => {
      const path = `/v1/admin/workspaces/${api.a.workspace_slug}`;
      const put = (security_settings: unknown) => api.call('PUT', path, { body: { security_settings } });
      await settings({ workspace_overrides: { logs: true } });
      refused(await put({ membersViewConfigs: false }), 400, 'AB01', 'security_settings.membersViewConfigs');
      refused(
        await put({ membersViewLogs: false, membersViewConfigs: false }),
        400,
        'AB01',
        'security_settings.membersViewConfigs',
      );
      refused(await put({ export_settings: { deniedFields: [] } }), 400, 'AB01', 'security_settings.export_settings');
      refused(
        await put({ data_plane_security_settings: { block_inline_config: true } }),
        400,
        'AB01',
        'security_settings.data_plane_security_settings',
      );
      expect((await heldBy(person('member'))).signedIn).toContain('logs.view');
      ok(await put({ membersViewLogs: false }));
      for (const held of Object.values(await heldBy(person('member')))) expect(held).not.toContain('logs.view');
      ok(await put({ membersViewLogs: null }));
      for (const held of Object.values(await heldBy(person('member')))) expect(held).toContain('logs.view');
      await settings({ workspace_overrides: null });
    });
  });
});

describe('category × state: what a workspace may set', () => {
  const keys = [...SECURITY_KEYS, 'export_settings', 'data_plane_security_settings'] as const;
  const values: Readonly<Record<string, unknown>> = {
    export_settings: { deniedFields: ['cost'] },
    data_plane_security_settings: { block_inline_config: true },
  };
  const refusal = (open: readonly string[], patch: object): string | null => {
    const workspace_overrides = Object.fromEntries(OVERRIDE_CATEGORIES.map((name) => [name, open.includes(name)]));
    try {
      checkWorkspaceSecurity({ settings: { block_inline_config: true, workspace_overrides } }, patch);
      return null;
    } catch (error) {
      if (!(error instanceof SluiceError) || error.kind !== 'validation') throw error;
      return error.param;
    }
  };

  it.each(keys)('%s: with its own category open, and with no other', (key) => {
    const category = categoryOf(key);
    for (const value of [values[key] ?? false, null]) {
      expect(refusal([category], { [key]: value })).toBeNull();
      expect(refusal([], { [key]: value })).toBe(`security_settings.${key}`);
      const others = OVERRIDE_CATEGORIES.filter((name) => name !== category);
      expect(refusal(others, { [key]: value })).toBe(`security_settings.${key}`);
    }
    expect(refusal([], { [key]: undefined })).toBeNull();
  });
});

describe.each(['sqlite', 'postgres'] as const)('session_settings.max_session_ttl on %s', (engine) => {
  it('ends older sign-ins with 401 within a second, counted from signing in; a new sign-in works', async () => {
    const clock = new TestClock(systemClock.now());
    const tables = await emptyTables(engine);
    const sessions = new ConsoleSessions({ tables, clock, publicUrl: () => PUBLIC_URL });
    const api = await startAdmin(tables, { clock, admin: { sessions } });
    try {
      const owner = { id: api.a.user_id, organisation_id: api.a.organisation_id };
      const signIn = async () => {
        const { token } = await createLink(tables, clock, owner);
        const signedIn = await sessions.exchange(token);
        return { cookie: `${sessions.cookieName}=${signedIn.token}` };
      };
      const status = async (headers: Record<string, string>) => {
        const answer = await api.call('GET', '/v1/admin/organisation/settings', { key: null, headers });
        return answer.status === 401 ? answer.body.error.code : answer.status;
      };
      const limit = async (max_session_ttl: number | null) =>
        ok(
          await api.call('PUT', '/v1/admin/organisation/settings', { body: { session_settings: { max_session_ttl } } }),
        );
      const older = await signIn();
      await clock.advance(3_600_000);
      expect(await status(older)).toBe(200);
      const newer = await signIn();
      await limit(900);
      await clock.advance(1_000);
      expect([await status(older), await status(newer)]).toEqual(['AB05', 200]);
      // Using a session does not prolong it.
      for (let i = 0; i < 8; i++) {
        await clock.advance(99_000);
        expect(await status(newer)).toBe(200);
      }
      await clock.advance(106_999);
      expect(await status(newer)).toBe(200);
      await clock.advance(1);
      expect(await status(newer)).toBe('AB05');
      expect(await status(await signIn())).toBe(200);
      // Without a limit the sign-in lives for its twelve hours again.
      await limit(null);
      await clock.advance(1_000);
      expect(await status(newer)).toBe(200);
      await clock.advance(12 * 3_600_000);
      expect(await status(newer)).toBe('AB05');
    } finally {
      await api.close();
    }
  });
});
