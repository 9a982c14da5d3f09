/**
 * Roles that keys give: every route that gives one, every role, and keys that lack one scope of it. A key gives nobody
 * more than it has itself.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { refused } from '../../../test/support/accounts.ts';
import { type AdminHarness, type Answer, emptyTables, startAdmin } from '../../../test/support/admin.ts';
import { addUser } from '../../../test/support/people.ts';
import { mintKey } from '../../auth/key-format.ts';
import { roleScopes, scopesOf } from '../../auth/scopes.ts';
import { SECURITY_DEFAULTS } from '../../auth/security-settings.ts';
import { systemClock } from '../../kernel/clock.ts';
import { uuidv7 } from '../../kernel/id.ts';
import { apiKeyRow, secretRow } from '../../store/conformance/rows.ts';
import type { Row } from '../../store/schema.ts';
import { ACTIONS } from '../catalog.ts';

let api: AdminHarness;
beforeAll(async () => {
  api = await startAdmin(await emptyTables('sqlite'), { admin: { requestsPerMinute: 100_000 } });
});
afterAll(() => api.close());

type Type = Row<'api_keys'>['type'];
const MARKS = { 'organisation-service': 'org', 'workspace-service': 'wks', 'workspace-user': 'usr' } as const;
type WorkspaceRole = 'admin' | 'manager' | 'member';

/** A key of organisation A that an administrator made, straight in the store: its scopes may be any. */
async function keyWith(type: Type, scopes: Iterable<string>): Promise<string> {
  const { organisation_id, workspace_id, user_id } = api.a;
  const minted = mintKey(MARKS[type]);
  const row = apiKeyRow(organisation_id, uuidv7(systemClock), {
    type,
    workspace_id: type === 'organisation-service' ? null : workspace_id,
    user_id: type === 'workspace-user' ? user_id : null,
    scopes: [...scopes],
    status: 'active',
    created_by: null,
  });
  await api.tables.systemWrite(async (tx) => {
    await tx.insert('api_keys', row);
    await tx.insert('api_key_secrets', secretRow(organisation_id, row.id, minted.publicId, { digest: minted.digest }));
  });
  return minted.key;
}

const person = (role: 'admin' | 'member' = 'member') => addUser(api.tables, api.a.organisation_id, { role });

async function member(role: WorkspaceRole) {
  const user = await person();
  await api.tables.systemWrite((tx) =>
    tx.insert('workspace_members', {
      organisation_id: api.a.organisation_id,
      workspace_id: api.a.workspace_id,
      user_id: user.id,
      role,
      status: 'active',
      created_at: 0,
      last_updated_at: 0,
    }),
  );
  return user;
}

let addresses = 0;
const address = () => `person${++addresses}@x.example`;
const inWorkspace = (role: string) => [{ id: api.a.workspace_id, role }];

interface Way {
  /** Id of the action. */
  readonly id: string;
  readonly scope: string;
  readonly types: readonly Type[];
  readonly roles: readonly string[];
  readonly level: 'organisation' | 'workspace';
  give(key: string, role: string): Promise<Answer>;
}

const ORGANISATION: readonly Type[] = ['organisation-service'];
const ALL: readonly Type[] = ['organisation-service', 'workspace-service', 'workspace-user'];
const IN_WORKSPACE: readonly WorkspaceRole[] = ['admin', 'manager', 'member'];
const other = (role: string): WorkspaceRole => (role === 'member' ? 'manager' : 'member');

/** An invite that stands already, as an administrator has sent it. */
async function sent(body: Record<string, unknown>): Promise<string> {
  const made = await api.call('POST', '/v1/admin/users/invites', { body: { email: address(), ...body } });
  expect(made.status, made.text).toBe(200);
  return made.body.id;
}

const members = () => `/v1/admin/workspaces/${api.a.workspace_id}/users`;

const SSO = '/v1/admin/organisation/sso-clients';
let clients = 0;
/** A registration at an identity provider, which an administrator made where nothing says otherwise. */
const register = (key: string | undefined, mappings: readonly object[]) => {
  const body = { name: `Provider ${++clients}`, issuer: 'https://issuer.example', client_id: 'c', client_secret: 's' };
  return api.call('POST', SSO, { ...(key && { key }), body: { ...body, group_mappings: mappings } });
};
const ofGroup = (role: string) => [{ group: 'staff', role }];
const ofGroupIn = (role: string) => [{ group: 'staff', workspace_id: api.a.workspace_id, workspace_role: role }];

/** What the members of a group at an identity provider become. */
const mappingWays: readonly Way[] = [
  { level: 'organisation', roles: ['admin'], mappings: ofGroup } as const,
  { level: 'workspace', roles: IN_WORKSPACE, mappings: ofGroupIn } as const,
].flatMap(({ level, roles, mappings }): Way[] => {
  const shared = { scope: 'organisation_settings.update', types: ORGANISATION, roles, level };
  const update = async (key: string, role: string) => {
    const { body } = await register(undefined, []);
    const answer = await api.call('PUT', `${SSO}/${body.id}`, { key, body: { group_mappings: mappings(role) } });
    await api.call('DELETE', `${SSO}/${body.id}`);
    return answer;
  };
  return [
    { ...shared, id: 'sso_clients.create', give: (key, role) => register(key, mappings(role)) },
    { ...shared, id: 'sso_clients.update', give: update },
  ];
});

/** Every route on which a role is given, at both levels where a body has both. */
const WAYS: readonly Way[] = [
  {
    id: 'invites.create',
    scope: 'organisation_users.create',
    types: ORGANISATION,
    roles: ['admin'],
    level: 'organisation',
    give: (key, role) =>
      api.call('POST', '/v1/admin/users/invites', { key, body: { email: address(), role, workspaces: [] } }),
  },
  {
    id: 'invites.create',
    scope: 'organisation_users.create',
    types: ORGANISATION,
    roles: IN_WORKSPACE,
    level: 'workspace',
    give: (key, role) => {
      const body = { email: address(), role: 'member', workspaces: inWorkspace(role) };
      return api.call('POST', '/v1/admin/users/invites', { key, body });
    },
  },
  {
    id: 'invites.resend',
    scope: 'organisation_users.create',
    types: ORGANISATION,
    roles: ['admin'],
    level: 'organisation',
    give: async (key, role) =>
      api.call('POST', `/v1/admin/users/invites/${await sent({ role, workspaces: [] })}/resend`, { key }),
  },
  {
    id: 'invites.resend',
    scope: 'organisation_users.create',
    types: ORGANISATION,
    roles: IN_WORKSPACE,
    level: 'workspace',
    give: async (key, role) => {
      const id = await sent({ role: 'member', workspaces: inWorkspace(role) });
      return api.call('POST', `/v1/admin/users/invites/${id}/resend`, { key });
    },
  },
  {
    id: 'users.update',
    scope: 'organisation_users.update',
    types: ORGANISATION,
    roles: ['admin'],
    level: 'organisation',
    give: async (key, role) => api.call('PUT', `/v1/admin/users/${(await person()).id}`, { key, body: { role } }),
  },
  {
    id: 'users.update',
    scope: 'organisation_users.update',
    types: ORGANISATION,
    roles: IN_WORKSPACE,
    level: 'workspace',
    give: async (key, role) =>
      api.call('PUT', `/v1/admin/users/${(await person()).id}`, { key, body: { workspaces: inWorkspace(role) } }),
  },
  {
    id: 'workspace-users.create',
    scope: 'workspace_users.create',
    types: ALL,
    roles: IN_WORKSPACE,
    level: 'workspace',
    give: async (key, role) =>
      api.call('POST', members(), { key, body: { users: [{ id: (await person()).id, role }] } }),
  },
  {
    id: 'workspace-users.update',
    scope: 'workspace_users.update',
    types: ALL,
    roles: IN_WORKSPACE,
    level: 'workspace',
    give: async (key, role) =>
      api.call('PUT', `${members()}/${(await member(other(role))).id}`, { key, body: { role } }),
  },
  {
    id: 'workspaces.create',
    scope: 'workspaces.create',
    types: ORGANISATION,
    roles: ['member'],
    level: 'workspace',
    give: async (key) =>
      api.call('POST', '/v1/admin/workspaces', { key, body: { name: address(), users: [(await person()).id] } }),
  },
  {
    id: 'scim-workspaces.create',
    scope: 'workspaces.update',
    types: ORGANISATION,
    roles: IN_WORKSPACE,
    level: 'workspace',
    give: (key, role) => {
      const body = { workspace_id: api.a.workspace_id, role, scim_group_name: `Group ${address()}` };
      return api.call('POST', '/v1/scim/workspaces', { key, body });
    },
  },
  ...mappingWays,
];

const cells = WAYS.flatMap((way) =>
  way.types.flatMap((type) => way.roles.map((role) => ({ way, type, role, name: `${way.id} ${way.level}` }))),
);
const scopesIn = (way: Way, role: string) =>
  way.level === 'organisation'
    ? roleScopes(role as 'admin', null, SECURITY_DEFAULTS)
    : roleScopes('member', role as WorkspaceRole, SECURITY_DEFAULTS);

describe('a key gives only roles whose scopes it holds', () => {
  it('every action whose body names a role is in this table', () => {
    const given = ACTIONS.filter(({ body, writes }) => {
      if (!writes || body === null) return false;
      const schema = JSON.stringify(z.toJSONSchema(body, { io: 'input', unrepresentable: 'any' }));
      return /"enum":\["admin","(?:manager|member)"|"role":\{/.test(schema);
    }).map(({ id }) => id);
    const known = new Set(WAYS.map(({ id }) => id));
    expect(given.length).toBeGreaterThan(3);
    expect(given.filter((id) => !known.has(id))).toEqual([]);
  });

  it.each(cells)('$name by a $type key: $role', async ({ way, type, role }) => {
    const possible = [...scopesOf(type)];
    const needed = scopesIn(way, role);
    const lone = await way.give(await keyWith(type, [way.scope]), role);
    refused(lone, 403, 'AB03', lone.body.error.param);
    expect(lone.body.error.message).toMatch(/^A key can give only roles whose scopes it holds\./);

    const whole = await way.give(await keyWith(type, possible), role);
    // Keys of users can make no keys, and every role in a workspace can: nobody gets that from them.
    expect(whole.status, whole.text).toBe(type === 'workspace-user' ? 403 : 200);
    if (type === 'workspace-user') return;

    // One scope short of the role: which one differs from cell to cell, so that together they are many.
    const held = possible.filter((scope) => needed.has(scope) && scope !== way.scope);
    for (let at = cells.findIndex((cell) => cell.way === way) % 7; at < held.length; at += 7) {
      const short = possible.filter((scope) => scope !== held[at]);
      const answer = await way.give(await keyWith(type, short), role);
      expect(answer.status, `${held[at]}: ${answer.text}`).toBe(403);
      expect(answer.body.error.message).toContain(String(held[at]));
    }
  });

  it('an organisation key that can make no workspace keys gives no role that uses the gateway', async () => {
    const scopes = [...scopesOf('organisation-service')].filter(
      (scope) => !/^workspace_.*_api_keys\.create$/.test(scope),
    );
    const answer = await api.call('POST', '/v1/admin/users/invites', {
      key: await keyWith('organisation-service', scopes),
      body: { email: address(), role: 'member', workspaces: inWorkspace('member') },
    });
    refused(answer, 403, 'AB03', 'workspaces[0].role');
    expect(answer.body.error.message).toContain('workspace_user_api_keys.create');
  });

  it('members of the organisation without a workspace are invited with that one scope', async () => {
    const key = await keyWith('organisation-service', ['organisation_users.create']);
    const body = { email: address(), role: 'member', workspaces: [] };
    expect((await api.call('POST', '/v1/admin/users/invites', { key, body })).status).toBe(200);
  });

  it('what a user has already is not given: a key without the scopes may send it again', async () => {
    const key = await keyWith('organisation-service', ['organisation_users.update']);
    const manager = await member('manager');
    const body = { role: 'member', workspaces: inWorkspace('manager') };
    expect((await api.call('PUT', `/v1/admin/users/${manager.id}`, { key, body })).status).toBe(200);
  });
});
