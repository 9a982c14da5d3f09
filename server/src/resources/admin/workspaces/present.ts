/** Workspaces and their members as they are answered. */
import { roleScopes } from '../../../auth/scopes.ts';
import { securityOf } from '../../../auth/security-settings.ts';
import type { TenantTx } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { flagOf, toIso, toIsoOrNull } from '../../body-fields.ts';
import { shownSettings } from '../../settings/alerts.ts';
import { type UsageOf, usageOf } from '../../usage-counters.ts';
import type { WorkspaceRole } from '../rank.ts';
import { presentDefaults } from './defaults.ts';
import type { MemberRow } from './membership.ts';
import { formatName, type NameFormat } from './name.ts';
import { presentLimits } from './present-limits.ts';

type Workspace = Row<'workspaces'>;

export function presentItem(row: Workspace, format: NameFormat | undefined, usage: UsageOf) {
  return {
    object: 'workspace' as const,
    id: row.id,
    slug: row.slug,
    name: formatName(row.name, format),
    icon: row.icon,
    description: row.description,
    is_default: flagOf(row.is_default),
    status: row.status,
    defaults: presentDefaults(row.defaults),
    usage_limits: presentLimits(row, usage),
    rate_limits: row.rate_limits,
    security_settings: row.security_settings,
    settings: shownSettings(row.settings),
    scim_source_id: row.scim_source_id,
    created_at: toIso(row.created_at),
    last_updated_at: toIso(row.last_updated_at),
  };
}

/** @param members whether the caller may see who belongs to it */
export async function presentDetail(tx: TenantTx, row: Workspace, format: NameFormat | undefined, members: boolean) {
  return {
    ...presentItem(row, format, await usageOf(tx, 'workspace', [row])),
    organisation_id: row.organisation_id,
    created_by: row.created_by,
    creation_source: row.creation_source,
    last_reset_at: toIsoOrNull(row.last_reset_at),
    ...(members ? { users: await presentMembers(tx, row, await membersOf(tx, row.id)) } : {}),
  };
}

function membersOf(tx: TenantTx, workspaceId: string): Promise<MemberRow[]> {
  const where = { workspace_id: workspaceId, status: 'active' as const };
  return tx.list('workspace_members', { where, orderBy: [['created_at', 'desc']] });
}

/** Members with their names and what they may do here; one whose user is gone is left out. */
export async function presentMembers(tx: TenantTx, workspace: Workspace, members: readonly MemberRow[]) {
  const users = await usersOf(tx, members);
  const sources = await sourcesOf(tx, workspace.id, members);
  const security = securityOf(await tx.organisation(), workspace);
  const known = new Map<WorkspaceRole, readonly string[]>();
  const scopesOf = (role: WorkspaceRole) => {
    const scopes = known.get(role) ?? [...roleScopes('member', role, security)].sort();
    known.set(role, scopes);
    return scopes;
  };
  return members.flatMap((member) => {
    const user = users.get(member.user_id);
    if (user === undefined) return [];
    // A user who runs the organisation runs each of its workspaces, whatever their role there.
    const scopes = scopesOf(user.role === 'member' ? member.role : 'admin');
    return [presentMember(member, user, scopes, sources.get(member.user_id) ?? [])];
  });
}

function presentMember(
  member: MemberRow,
  user: Row<'users'>,
  scopes: readonly string[],
  sources: readonly Row<'membership_sources'>[],
) {
  return {
    object: 'workspace-user' as const,
    id: user.id,
    first_name: user.first_name,
    last_name: user.last_name,
    email: user.email,
    org_role: user.role,
    role: member.role,
    status: member.status,
    workspace_id: member.workspace_id,
    sources: sources.map(presentSource),
    scopes,
    settings: null,
    created_at: toIso(member.created_at),
    last_updated_at: toIso(member.last_updated_at),
  };
}

function presentSource({ source, role }: Row<'membership_sources'>) {
  const [kind, id = null] = source.split(':');
  const type = kind === 'invite' || kind === 'sso' || kind === 'scim' ? kind : 'manual';
  return { type, id, role } as const;
}

/** Far below the bind limits of both engines. */
const CHUNK = 1000;

async function sourcesOf(tx: TenantTx, workspaceId: string, members: readonly MemberRow[]) {
  const sources: Row<'membership_sources'>[] = [];
  for (let i = 0; i < members.length; i += CHUNK) {
    const ids = members.slice(i, i + CHUNK).map((member) => member.user_id);
    const where = { workspace_id: workspaceId, user_id: { in: ids } };
    sources.push(...(await tx.list('membership_sources', { where })));
  }
  sources.sort((a, b) => (a.source < b.source ? -1 : 1));
  return Map.groupBy(sources, (source) => source.user_id);
}

async function usersOf(tx: TenantTx, members: readonly MemberRow[]): Promise<Map<string, Row<'users'>>> {
  const users = new Map<string, Row<'users'>>();
  for (let i = 0; i < members.length; i += CHUNK) {
    const ids = members.slice(i, i + CHUNK).map((member) => member.user_id);
    for (const user of await tx.list('users', { where: { id: { in: ids } } })) users.set(user.id, user);
  }
  return users;
}
