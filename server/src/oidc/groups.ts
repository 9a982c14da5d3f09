/** What the groups of a provider give: a role in the organisation, and memberships of workspaces. */
import type { Clock } from '../kernel/clock.ts';
import { cancelInvites } from '../resources/admin/invites/cancel.ts';
import { isAbove } from '../resources/admin/rank.ts';
import { removeSources, setSource } from '../resources/admin/workspaces/sources.ts';
import type { TenantTx } from '../store/ports.ts';
import type { GroupMapping, Row } from '../store/schema.ts';
import type { Account } from './accounts.ts';
import type { Person } from './claims.ts';

type SsoClient = Row<'sso_clients'>;
type InWorkspace = Extract<GroupMapping, { workspace_id: string }>;

/**
 * Follows the groups of a sign-in. They decide over what the mappings of this client gave before, and over nothing else: an
 * owner stays one, and what was given by hand, by an invite or by a directory stays. Answers what the audit log is to say.
 */
export async function followGroups(
  tx: TenantTx,
  clock: Clock,
  client: SsoClient,
  account: Account,
  { groups, groupProblem }: Person,
): Promise<Record<string, unknown>> {
  const { user } = account;
  const source = `sso:${client.id}` as const;
  const given = await tx.list('membership_sources', { where: { user_id: user.id, source } });
  if (client.group_mappings.length === 0 && given.length === 0 && account.identity.given_role === null) return {};
  // One truth for each user: who a directory provisions has the groups that the directory says.
  if ((await tx.count('scim_users', { where: { user_id: user.id } })) > 0)
    return { groups: 'a directory manages them' };
  if (groups === null) return { groups: groupProblem };
  const held = new Set(groups);
  const matching = client.group_mappings.filter(({ group }) => held.has(group));
  const role = await followRole(tx, clock, client, account, matching);
  const wanted = await workspacesOf(tx, matching);
  for (const [workspaceId, workspaceRole] of wanted) {
    await setSource({ tx, clock, workspaceId, userId: user.id, source, role: workspaceRole });
  }
  for (const { workspace_id: workspaceId } of given) {
    if (!wanted.has(workspaceId)) await removeSources({ tx, clock, workspaceId, userIds: [user.id], source });
  }
  return { role, workspaces: [...wanted].map(([id, workspaceRole]) => ({ id, role: workspaceRole })) };
}

/** The highest role of each workspace that is still there. */
async function workspacesOf(
  tx: TenantTx,
  matching: readonly GroupMapping[],
): Promise<Map<string, InWorkspace['workspace_role']>> {
  const wanted = new Map<string, InWorkspace['workspace_role']>();
  for (const mapping of matching) {
    if (!('workspace_id' in mapping)) continue;
    const before = wanted.get(mapping.workspace_id);
    if (before === undefined || isAbove(mapping.workspace_role, before)) {
      wanted.set(mapping.workspace_id, mapping.workspace_role);
    }
  }
  if (wanted.size === 0) return wanted;
  const there = await tx.list('workspaces', { where: { id: { in: [...wanted.keys()] }, status: 'active' } });
  const ids = new Set(there.map(({ id }) => id));
  return new Map([...wanted].filter(([id]) => ids.has(id)));
}

/** The role in the organisation afterwards. A role that no group gave is not taken away by one that is missing. */
async function followRole(
  tx: TenantTx,
  clock: Clock,
  client: SsoClient,
  { user, identity }: Account,
  matching: readonly GroupMapping[],
): Promise<Row<'users'>['role']> {
  const roles = matching.flatMap((mapping) => ('role' in mapping ? [mapping.role] : []));
  const given = roles.includes('admin') ? 'admin' : roles.includes('member') ? 'member' : null;
  const { issuer, subject } = identity;
  if (given !== identity.given_role) await tx.update('user_identities', { issuer, subject }, { given_role: given });
  if (user.role === 'owner') return 'owner';
  const raised = given === 'admin' && user.role === 'member' && !isAbove('admin', client.vouched_role);
  const lowered = given !== 'admin' && identity.given_role === 'admin' && user.role === 'admin';
  if (!raised && !lowered) return user.role;
  const role = raised ? 'admin' : 'member';
  await tx.update('users', { id: user.id }, { role, last_updated_at: clock.now() });
  if (lowered) await cancelInvites({ tx, clock }, user.id);
  tx.changed({ workspaceId: null, topic: 'users', entityId: user.id });
  return role;
}
