/** Who calls in the matrix: every kind of credential, good and bad, as rows in the store and headers on the wire. */
import { ConsoleSessions } from '../../src/auth/console-session.ts';
import { type KeyType, mintKey } from '../../src/auth/key-format.ts';
import { roleScopes, scopesOf } from '../../src/auth/scopes.ts';
import { SECURITY_DEFAULTS } from '../../src/auth/security-settings.ts';
import { sessionRow, tokenDigest } from '../../src/auth/session-rows.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { base62, checksum } from '../../src/kernel/id.ts';
import { apiKeyRow, organisationRow, secretRow, userRow, workspaceRow } from '../../src/store/conformance/rows.ts';
import type { SystemTx, Tables } from '../../src/store/ports.ts';
import type { Row } from '../../src/store/schema.ts';
import { issuer } from '../support/tokens.ts';
import { MAKERS, newId, type Tenant } from './world.ts';

export const PUBLIC_URL = 'http://127.0.0.1:1';

export type KeyKind = Row<'api_keys'>['type'];
export const KEY_KINDS: readonly KeyKind[] = ['organisation-service', 'workspace-service', 'workspace-user'];
const MARKS: Readonly<Record<KeyKind, KeyType>> = {
  'organisation-service': 'org',
  'workspace-service': 'wks',
  'workspace-user': 'usr',
};

/** A caller whose credential is good. */
export interface Caller {
  readonly name: string;
  readonly headers: Readonly<Record<string, string>>;
  /** What it may do somewhere: by key type and role. */
  readonly scopes: ReadonlySet<string>;
  /** The one tenant that it is bound to; null for a whole organisation. */
  readonly bound: Tenant | null;
  /** A signed-in member: bound to the workspaces joined, and must name one. */
  readonly member: boolean;
  /** Comes with a cookie: what is open to keys only asks it for one. */
  readonly signedIn: boolean;
  /** Objects that its own calls name. */
  readonly own: Tenant;
}

/** A credential that opens nothing. */
export interface Refused {
  readonly name: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly status: 401 | 403;
}

export interface NewKey {
  readonly kind: KeyKind;
  readonly scopes: Iterable<string>;
  readonly tenant: Tenant;
  readonly userId?: string;
  readonly more?: Partial<Row<'api_keys'>>;
  readonly secret?: Partial<Row<'api_key_secrets'>>;
}

/** Inserts a key and answers its text. */
export async function addKey(tx: SystemTx, key: NewKey): Promise<string> {
  const minted = mintKey(MARKS[key.kind]);
  const id = newId();
  await tx.insert(
    'api_keys',
    apiKeyRow(key.tenant.organisationId, id, {
      name: `Caller ${key.kind}`,
      type: key.kind,
      scopes: [...key.scopes],
      workspace_id: key.kind === 'organisation-service' ? null : key.tenant.workspaceId,
      user_id: key.kind === 'workspace-user' ? (key.userId ?? key.tenant.objects.user.id) : null,
      ...key.more,
    }),
  );
  const digest = { digest: minted.digest, ...key.secret };
  await tx.insert('api_key_secrets', secretRow(key.tenant.organisationId, id, minted.publicId, digest));
  return minted.key;
}

type Role = Row<'users'>['role'];
type WorkspaceRole = Row<'workspace_members'>['role'];

export async function addUser(
  tx: SystemTx,
  tenant: Pick<Tenant, 'organisationId' | 'workspaceId'>,
  role: Role,
  inWorkspace: WorkspaceRole | null,
  status: 'active' | 'archived' = 'active',
): Promise<string> {
  const id = newId();
  const user = userRow(tenant.organisationId, id, { role, status, email: `${id}@example.com`, first_name: 'A caller' });
  await tx.insert('users', user);
  if (inWorkspace !== null) {
    await tx.insert('workspace_members', {
      organisation_id: tenant.organisationId,
      workspace_id: tenant.workspaceId,
      user_id: id,
      role: inWorkspace,
      status,
      created_at: 1,
      last_updated_at: 1,
    });
  }
  return id;
}

/** A session, written as signing in writes it; answers the cookie's token. */
export async function addSession(
  tx: SystemTx,
  tenant: Pick<Tenant, 'organisationId'>,
  userId: string,
): Promise<string> {
  const token = base62(43);
  const now = systemClock.now();
  const own = { digest: tokenDigest(token), organisationId: tenant.organisationId, userId } as const;
  await tx.insert('console_sessions', sessionRow({ ...own, kind: 'session' }, now, now + 3_600_000));
  return token;
}

/** What a role may do where no security setting was changed. */
const rightsOf = (role: Role, inWorkspace: WorkspaceRole | null) => roleScopes(role, inWorkspace, SECURITY_DEFAULTS);

const withKey = (key: string) => ({ 'x-gateway-api-key': key });

export interface People {
  readonly refused: readonly Refused[];
  readonly callers: readonly Caller[];
  readonly sessions: ConsoleSessions;
}

/** Makes the credentials. `a1` and `a2` are workspaces of one organisation, `b1` is of another. */
export async function makePeople(
  tables: Tables,
  { a1, a2, b1 }: Readonly<Record<'a1' | 'a2' | 'b1', Tenant>>,
): Promise<People> {
  const sessions = new ConsoleSessions({ tables, clock: systemClock, publicUrl: () => PUBLIC_URL });
  const made = await tables.systemWrite(async (tx) => {
    const full = (kind: KeyKind, tenant: Tenant, more: Partial<NewKey> = {}) =>
      addKey(tx, { kind, tenant, scopes: scopesOf(kind), ...more });
    const owner = await addUser(tx, a1, 'owner', null);
    const admin = await addUser(tx, a1, 'admin', null);
    const members: [WorkspaceRole, string][] = [];
    for (const role of ['admin', 'manager', 'member'] as const)
      members.push([role, await addUser(tx, a1, 'member', role)]);
    const removed = await addUser(tx, a1, 'member', 'member', 'archived');
    const left = await addUser(tx, a1, 'member', null);
    const suspended: Tenant = await suspendedTenant(tx, a1);
    const past = 1_700_000_000_000;
    return {
      owner: await addSession(tx, a1, owner),
      admin: await addSession(tx, a1, admin),
      members: await sequence(members, async ([role, id]) => [role, await addSession(tx, a1, id)] as const),
      removedSession: await addSession(tx, a1, removed),
      refused: {
        expired: await full('organisation-service', a1, { more: { expires_at: past } }),
        'expired by status': await full('workspace-service', a1, { more: { status: 'expired' } }),
        'rotated out': await full('organisation-service', a1, { secret: { expires_at: past } }),
        archived: await full('organisation-service', a1, { more: { status: 'archived' } }),
        'of a removed user': await full('workspace-user', a1, { userId: removed }),
        'of a user who left the workspace': await full('workspace-user', a1, { userId: left }),
      },
      suspended: await full('organisation-service', suspended),
      organisation: await full('organisation-service', a1),
      workspace: await full('workspace-service', a1),
      otherWorkspace: await full('workspace-service', a2),
      deployment: await addDeployment(tx, a1),
      otherOrganisation: await full('organisation-service', b1),
      ownersKey: await full('workspace-user', a1, { userId: owner }),
      membersKey: await full('workspace-user', a1, { userId: members[2]?.[1] ?? '' }),
      token: await addTokens(tx, a1),
    };
  });
  const signedIn = async (token: string) => {
    const cookie = `${sessions.cookieName}=${token}`;
    const session = await sessions.find(cookie);
    return { cookie, origin: PUBLIC_URL, 'x-csrf-token': session?.csrf ?? '' };
  };
  const wrong = withChecksum(made.organisation);
  const caller = (name: string, headers: Caller['headers'], scopes: ReadonlySet<string>, own: Tenant, more: object) =>
    ({
      name,
      headers,
      scopes,
      own,
      bound: null,
      member: false,
      signedIn: 'cookie' in headers,
      ...more,
    }) satisfies Caller;
  const key = (name: string, text: string, kind: KeyKind, own: Tenant, scopes = scopesOf(kind)) =>
    caller(name, withKey(text), scopes, own, { bound: kind === 'organisation-service' ? null : own });
  const both = (kind: KeyKind, role: ReadonlySet<string>) =>
    new Set([...scopesOf(kind)].filter((one) => role.has(one)));
  return {
    sessions,
    refused: [
      { name: 'no credential', headers: {}, status: 401 },
      { name: 'malformed key', headers: withKey('slc_org_not_a_key'), status: 401 },
      { name: 'wrong checksum', headers: withKey(wrong), status: 401 },
      { name: 'unknown key', headers: withKey(mintKey('org').key), status: 401 },
      { name: 'known id, other secret', headers: withKey(otherSecret(made.organisation)), status: 401 },
      ...Object.entries(made.refused).map(([name, text]) => ({
        name: `key ${name}`,
        headers: withKey(text),
        status: 401 as const,
      })),
      { name: 'session of a removed user', headers: await signedIn(made.removedSession), status: 401 },
      { name: 'key of a suspended organisation', headers: withKey(made.suspended), status: 403 },
    ],
    callers: [
      key('organisation-service key', made.organisation, 'organisation-service', a1),
      key('workspace-service key', made.workspace, 'workspace-service', a1),
      key("owner's user key", made.ownersKey, 'workspace-user', a1),
      key(
        "member's user key",
        made.membersKey,
        'workspace-user',
        a1,
        both('workspace-user', rightsOf('member', 'member')),
      ),
      caller('signed-in owner', await signedIn(made.owner), rightsOf('owner', null), a1, {}),
      caller('signed-in admin', await signedIn(made.admin), rightsOf('admin', null), a1, {}),
      ...(await sequence(made.members, async ([role, token]) =>
        caller(`signed-in member, workspace ${role}`, await signedIn(token), rightsOf('member', role), a1, {
          bound: a1,
          member: true,
        }),
      )),
      caller('deployment', withKey(made.deployment.key), scopesOf('deployment'), made.deployment.own, {}),
      caller('token of the organisation', withKey(made.token), scopesOf('token'), a1, { bound: a1 }),
      key('key of another workspace', made.otherWorkspace, 'workspace-service', a2),
      key('key of another organisation', made.otherOrganisation, 'organisation-service', b1),
    ],
  };
}

/** A deployment that knows its `client_auth`; its own calls name itself. */
async function addDeployment(tx: SystemTx, tenant: Tenant): Promise<{ key: string; own: Tenant }> {
  const [like] = MAKERS.deployments(tenant);
  if (like === undefined) throw new Error('no deployment');
  const { key, publicId, digest } = mintKey('dep');
  const deployment = { id: newId(), slug: `dc-${tenant.canary}` };
  const auth = { client_auth_id: publicId, client_auth_digest: digest };
  await tx.insert('deployments', { ...like, ...deployment, ...auth, is_default: false });
  return { key, own: { ...tenant, objects: { ...tenant.objects, deployment } } };
}

/** Lets the organisation take tokens, and answers one of all scopes. */
async function addTokens(tx: SystemTx, tenant: Tenant): Promise<string> {
  const key = issuer('matrix');
  const organisation = await tx.find('organisations', { id: tenant.organisationId });
  const jwt = { version: 'matrix', jwks: { keys: [key.jwk] } };
  const settings = { block_inline_config: true, ...organisation?.settings, auth_settings: { jwt } };
  await tx.update('organisations', { id: tenant.organisationId }, { settings });
  return key.token({
    exp: Math.floor(systemClock.now() / 1_000) + 3_600,
    gateway_oid: tenant.organisationId,
    gateway_workspace: tenant.workspaceId,
    scopes: [...scopesOf('token')],
  });
}

async function suspendedTenant(tx: SystemTx, like: Tenant): Promise<Tenant> {
  const organisationId = newId();
  const workspaceId = newId();
  await tx.insert('organisations', organisationRow(organisationId, { status: 'suspended', slug: 'suspended' }));
  await tx.insert('workspaces', workspaceRow(organisationId, workspaceId, { slug: 'suspended' }));
  return { ...like, organisationId, workspaceId };
}

async function sequence<T, R>(items: readonly T[], run: (item: T) => Promise<R>): Promise<R[]> {
  const out: R[] = [];
  for (const item of items) out.push(await run(item));
  return out;
}

/** The same key with a checksum that does not fit. */
function withChecksum(key: string): string {
  return key.slice(0, -1) + (key.endsWith('0') ? '1' : '0');
}

/** A well-formed key that has the public id of this one and a secret of its own. */
function otherSecret(key: string): string {
  const body = key.slice(0, 21) + mintKey('org').key.slice(21, 64);
  return `${body}_${checksum(body)}`;
}
