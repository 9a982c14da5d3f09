/**
 * The scope catalogue as data and what roles may do. Nothing else in the code spells a list of
 * scopes: guards, key creation, OpenAPI and the console read this table.
 */
import type { Principal, PrincipalKind } from './principal.ts';
import type { SecurityKey, SecuritySettings } from './security-settings.ts';

type Actions = string;

const ALL5 = 'create read update delete list';
const ROTATE = `${ALL5} rotate`;
const LISTED = 'read update list';

/** Resource, then the actions of an organisation-service, a workspace-service and a workspace-user key. */
const CATALOGUE: readonly (readonly [string, Actions, Actions, Actions])[] = [
  ['organisation_users', ALL5, '', ''],
  ['organisation_service_api_keys', ROTATE, '', ''],
  ['organisation_settings', 'read update', '', ''],
  ['organisation_guardrails', ALL5, '', ''],
  ['organisation_exclusions', 'update list', '', ''],
  ['organisation_log_destinations', ALL5, '', ''],
  ['audit_logs', 'list', '', ''],
  ['plugins', 'create update list', '', ''],
  ['deployments', ALL5, '', ''],
  ['secret_references', ALL5, '', ''],
  ['workspaces', ALL5, LISTED, LISTED],
  ['workspace_service_api_keys', ROTATE, ROTATE, ''],
  ['workspace_user_api_keys', ROTATE, ROTATE, ''],
  ['workspace_users', ALL5, ALL5, ALL5],
  ['prompts', `${ALL5} publish`, `${ALL5} publish render`, `${ALL5} publish render`],
  ['configs', ALL5, ALL5, ALL5],
  ['guardrails', ALL5, `${ALL5} invoke`, `${ALL5} invoke`],
  ['virtual_keys', `${ALL5} copy duplicate`, `${ALL5} copy duplicate`, `${ALL5} copy duplicate`],
  ['providers', ALL5, ALL5, ALL5],
  ['policies', ALL5, ALL5, ALL5],
  ['organisation_integrations', ALL5, 'list', 'list'],
  ['organisation_mcp_integrations', ALL5, 'list', 'list'],
  ['organisation_agent_integrations', ALL5, 'list', 'list'],
  ['workspace_integrations', ALL5, ALL5, ALL5],
  ['workspace_mcp_integrations', ALL5, ALL5, ALL5],
  ['workspace_agent_integrations', ALL5, ALL5, ALL5],
  ['agent_servers', ALL5, ALL5, ALL5],
  ['mcp_servers', ALL5, ALL5, ALL5],
  ['analytics', 'view', 'view', 'view'],
  ['logs', 'list export view', 'list export view write', 'list export view write'],
  ['log_destinations', ALL5, ALL5, ''],
  ['completions', '', 'write', 'write'],
  ['mcp', '', 'invoke', 'invoke'],
  ['agents', '', 'invoke', 'invoke'],
  ['agent_server_skills', LISTED, LISTED, LISTED],
  ['agent_integration_skills', LISTED, LISTED, LISTED],
  ['agent_server_user_access', LISTED, LISTED, LISTED],
  ['models', '', 'list', 'list'],
  ['feedbacks', '', 'read write', 'read write'],
];

function column(index: 1 | 2 | 3): ReadonlySet<string> {
  const scopes = new Set<string>();
  for (const row of CATALOGUE) {
    for (const action of row[index].split(' ')) if (action !== '') scopes.add(`${row[0]}.${action}`);
  }
  return scopes;
}

const ORGANISATION = column(1);
const WORKSPACE = column(2);
const USER = column(3);
const EMPTY: ReadonlySet<string> = new Set();
/** A deployment reads itself, and no other. */
const DEPLOYMENT: ReadonlySet<string> = new Set(['deployments.read']);
/** What a token may carry: what a workspace-service key may, and a scope that only tokens have. */
export const TOKEN: ReadonlySet<string> = new Set([...WORKSPACE, 'logs.read']);

/** Every scope of the catalogue. A route that names another one stops the start. */
export const SCOPES: ReadonlySet<string> = new Set([...ORGANISATION, ...WORKSPACE, ...USER]);

/** Every scope that a key of this type may carry; empty for the operator, all for a signed-in user. */
export function scopesOf(kind: PrincipalKind): ReadonlySet<string> {
  switch (kind) {
    case 'organisation-service':
      return ORGANISATION;
    case 'workspace-service':
      return WORKSPACE;
    case 'workspace-user':
    case 'oauth':
      return USER;
    case 'user':
      return SCOPES;
    case 'deployment':
      return DEPLOYMENT;
    case 'token':
      return TOKEN;
    case 'operator':
    case 'scim':
      return EMPTY;
  }
}

/** A workspace admin or manager: everything inside a workspace, and reading the people of the organisation. */
const MANAGER: ReadonlySet<string> = new Set([...WORKSPACE, ...USER, 'organisation_users.read']);

/**
 * A workspace member: reads and lists, sends traffic, and writes keys, virtual keys, providers, configs, prompts and
 * guardrails; what of it is left is for the security settings to say.
 */
const MEMBER: ReadonlySet<string> = new Set([
  ...[...USER].filter((scope) => /\.(read|list|view|invoke)$/.test(scope)),
  ...[...USER].filter((scope) => /^(completions|feedbacks|logs)\.write$/.test(scope)),
  ...[...USER].filter((scope) => /^(virtual_keys|providers|configs|prompts|guardrails)\./.test(scope)),
  ...[...WORKSPACE].filter((scope) => scope.startsWith('workspace_user_api_keys.')),
  'organisation_users.read',
  'logs.export',
]);

type Restricted = 'member' | 'manager' | 'organisation admin';

const VIEW = 'read list';
const WRITE = 'create update delete';
const LOGS = 'logs.list logs.view logs.export';
const ANALYTICS = 'analytics.view';
const VIEW_KEYS = each('workspace_service_api_keys workspace_user_api_keys', VIEW);
const WRITE_KEYS = each('workspace_service_api_keys workspace_user_api_keys', `${WRITE} rotate`);
const VIEW_ACCOUNTS = each('virtual_keys providers', VIEW);
const WRITE_ACCOUNTS = `${each('virtual_keys providers', WRITE)} virtual_keys.copy virtual_keys.duplicate`;

/**
 * Security setting, whom it concerns, and the scopes that are lost where it is off. Settings that are not
 * named here take no scope away: they decide what an answer shows (`roleSight`).
 */
const RESTRICTIONS: readonly (readonly [SecurityKey, Restricted, string])[] = [
  ['membersViewLogs', 'member', LOGS],
  ['managersViewLogs', 'manager', LOGS],
  ['organisationAdminsViewLogs', 'organisation admin', LOGS],
  ['membersViewAnalytics', 'member', ANALYTICS],
  ['managersViewAnalytics', 'manager', ANALYTICS],
  ['membersViewApiKeys', 'member', VIEW_KEYS],
  ['membersWriteApiKeys', 'member', WRITE_KEYS],
  ['managersViewApiKeys', 'manager', VIEW_KEYS],
  ['managersWriteApiKeys', 'manager', WRITE_KEYS],
  ['membersViewConfigs', 'member', each('configs', VIEW)],
  ['membersWriteConfigs', 'member', each('configs', WRITE)],
  ['managersViewConfigs', 'manager', each('configs', VIEW)],
  ['managersWriteConfigs', 'manager', each('configs', WRITE)],
  ['membersViewPrompts', 'member', each('prompts', VIEW)],
  ['membersWritePrompts', 'member', each('prompts', `${WRITE} publish`)],
  ['managersViewPrompts', 'manager', each('prompts', VIEW)],
  ['managersWritePrompts', 'manager', each('prompts', `${WRITE} publish`)],
  ['membersViewGuardrails', 'member', each('guardrails', VIEW)],
  ['membersWriteGuardrails', 'member', each('guardrails', WRITE)],
  ['managersViewGuardrails', 'manager', each('guardrails', VIEW)],
  ['managersWriteGuardrails', 'manager', each('guardrails', WRITE)],
  ['membersViewVirtualKeys', 'member', VIEW_ACCOUNTS],
  ['membersWriteVirtualKeys', 'member', WRITE_ACCOUNTS],
  ['managersViewVirtualKeys', 'manager', VIEW_ACCOUNTS],
  ['managersWriteVirtualKeys', 'manager', WRITE_ACCOUNTS],
  ['managersWriteWsIntegrations', 'manager', each('workspace_integrations', WRITE)],
  ['managersWriteWsMcpIntegrations', 'manager', each('workspace_mcp_integrations', WRITE)],
  ['managersWriteMcpServers', 'manager', each('mcp_servers', WRITE)],
  ['managersUpdateWs', 'manager', 'workspaces.update'],
  ['managersWriteWsUsers', 'manager', each('workspace_users', WRITE)],
];

/** Every action of every resource, as scopes. */
function each(resources: string, actions: string): string {
  return resources
    .split(' ')
    .flatMap((resource) => actions.split(' ').map((action) => `${resource}.${action}`))
    .join(' ');
}

/**
 * What a role may do under the security settings that hold where it is used (`securityOf`). The owner may do everything,
 * everywhere; so may an organisation admin, but for what the settings of organisation admins withhold. A member may do
 * only what the role in the workspace gives, and nothing outside one (`workspace` null); a workspace admin is never restricted.
 */
export function roleScopes(
  role: 'owner' | 'admin' | 'member',
  workspace: 'admin' | 'manager' | 'member' | null,
  security: SecuritySettings,
): ReadonlySet<string> {
  if (role === 'owner') return SCOPES;
  if (role === 'admin') return restricted(SCOPES, 'organisation admin', security);
  if (workspace === null) return EMPTY;
  if (workspace === 'admin') return MANAGER;
  return restricted(workspace === 'manager' ? MANAGER : MEMBER, workspace, security);
}

/** What of the requests of others a caller may see. */
export interface Sight {
  /** The setting that leaves only the caller's own requests; null where all are seen. */
  readonly ownOnly: SecurityKey | null;
  /** The setting that hides the metadata of requests; null where it is shown. */
  readonly noMetadata: SecurityKey | null;
}

export const WHOLE_SIGHT: Sight = { ownOnly: null, noMetadata: null };

/** Settings that take no scope away: they decide what answers about requests show. */
const SIGHT: Readonly<Record<Restricted, { readonly all: SecurityKey | null; readonly metadata: SecurityKey }>> = {
  member: { all: 'membersViewAllData', metadata: 'membersViewLogMetadata' },
  manager: { all: 'managersViewAllData', metadata: 'managersViewLogMetadata' },
  'organisation admin': { all: null, metadata: 'organisationAdminsViewLogMetadata' },
};

/** What a role sees of requests where these settings hold; roles as for `roleScopes`. */
export function roleSight(
  role: 'owner' | 'admin' | 'member',
  workspace: 'admin' | 'manager' | 'member' | null,
  security: SecuritySettings,
): Sight {
  const whom = role === 'admin' ? 'organisation admin' : role === 'owner' || workspace === 'admin' ? null : workspace;
  if (whom === null) return WHOLE_SIGHT;
  const { all, metadata } = SIGHT[whom];
  return {
    ownOnly: all !== null && !security[all] ? all : null,
    noMetadata: security[metadata] ? null : metadata,
  };
}

function restricted(scopes: ReadonlySet<string>, whom: Restricted, security: SecuritySettings): ReadonlySet<string> {
  const left = new Set(scopes);
  for (const [setting, concerned, lost] of RESTRICTIONS) {
    if (concerned !== whom || security[setting]) continue;
    for (const scope of lost.split(' ')) left.delete(scope);
  }
  return left;
}

/** Scopes that exist for workspace keys only: an organisation key can never hold them. */
const WORKSPACE_ONLY = [...WORKSPACE, ...USER].filter((scope) => !ORGANISATION.has(scope));

/**
 * The scopes this caller may put on a key: those it holds. An organisation-service key that may create
 * workspace keys may also grant the scopes that no organisation key can hold (`completions.write` and its like),
 * because it has authority over every workspace and could not create a useful key otherwise.
 */
export function grantable(principal: Pick<Principal, 'kind' | 'scopes'>): ReadonlySet<string> {
  if (principal.kind !== 'organisation-service') return principal.scopes;
  const mayCreate =
    principal.scopes.has('workspace_service_api_keys.create') || principal.scopes.has('workspace_user_api_keys.create');
  return mayCreate ? new Set([...principal.scopes, ...WORKSPACE_ONLY]) : principal.scopes;
}

/** Comes with every role in a workspace, and no workspace key can hold it. */
const READS_PEOPLE = 'organisation_users.read';

/**
 * The first scope that keeps a key from giving a role, or null when it holds all that the role brings. Where
 * an organisation key lacks only what no such key can hold, the scope that stands for it is named: making user keys.
 */
export function missingForRole(
  key: Pick<Principal, 'kind' | 'scopes'>,
  scopesOfRole: ReadonlySet<string>,
): string | null {
  const own = grantable(key);
  const possible = scopesOf(key.kind);
  const missing = [...scopesOfRole].filter((scope) => !own.has(scope));
  const addable = missing.find((scope) => possible.has(scope));
  if (addable !== undefined) return addable;
  if (key.kind === 'organisation-service') return missing.length === 0 ? null : 'workspace_user_api_keys.create';
  return missing.find((scope) => scope !== READS_PEOPLE) ?? null;
}

/** The two sets' common members. */
export function intersect(a: Iterable<string>, b: ReadonlySet<string>): ReadonlySet<string> {
  const common = new Set<string>();
  for (const scope of a) if (b.has(scope)) common.add(scope);
  return common;
}
