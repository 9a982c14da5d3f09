/**
 * Who belongs to a workspace. What gives somebody a place is in `membership_sources`; this makes memberships of it, and what
 * goes with them: user keys.
 */
import type { Clock } from '../../../kernel/clock.ts';
import type { TenantTx } from '../../../store/ports.ts';
import type { InvitedKey, Row } from '../../../store/schema.ts';
import { archiveKeys } from '../../api-keys/archive.ts';
import { type AutoKey, autoCreateUserKeys } from '../../api-keys/auto.ts';
import { isAbove, type WorkspaceRole } from '../rank.ts';

export type MemberRow = Row<'workspace_members'>;

/** Far below the bind limits of both engines. */
const CHUNK = 1000;

/** The active membership of a user, if there is one. */
export function findMember(
  tx: TenantTx,
  workspaceId: string,
  userId: string,
): Promise<Row<'workspace_members'> | undefined> {
  return tx.find('workspace_members', { workspace_id: workspaceId, user_id: userId, status: 'active' });
}

/** In which transaction memberships change, and on whose behalf. */
export interface Settling {
  readonly tx: TenantTx;
  readonly clock: Clock;
  /** User or key that lets users in; default each user themselves. */
  readonly actorId?: string;
  /** The key that an invite asked for. */
  readonly asked?: InvitedKey | null;
}

/**
 * Makes memberships what their sources say: of many users in one workspace, or of one user in many. A user without a source,
 * or who is not active, is no member: the membership ends with the user's keys there. Who becomes a member gets the user key
 * that the settings want; these keys are answered. Statements do not grow with users; nodes learn of it by the feed.
 */
export async function settle(
  settling: Settling,
  places: { readonly workspaceId: string; readonly userIds: readonly string[] },
): Promise<AutoKey[]> {
  const { workspaceId } = places;
  const keys: AutoKey[] = [];
  for (let at = 0; at < places.userIds.length; at += CHUNK) {
    keys.push(...(await settleSome(settling, workspaceId, places.userIds.slice(at, at + CHUNK))));
  }
  return keys;
}

async function settleSome(settling: Settling, workspaceId: string, userIds: readonly string[]): Promise<AutoKey[]> {
  const { tx, clock } = settling;
  const here = { workspace_id: workspaceId, user_id: { in: [...userIds] } };
  const wanted = await rolesBySources(tx, workspaceId, userIds);
  const rows = new Map((await tx.list('workspace_members', { where: here })).map((row) => [row.user_id, row]));
  const joining: string[] = [];
  const changed: string[] = [];
  const ended: string[] = [];
  const byRole = new Map<WorkspaceRole, { readonly back: string[]; readonly other: string[] }>();
  const fresh: MemberRow[] = [];
  const now = clock.now();
  for (const userId of new Set(userIds)) {
    const role = wanted.get(userId);
    const row = rows.get(userId);
    if (role === undefined) {
      if (row?.status === 'active') ended.push(userId);
      continue;
    }
    if (row?.status === 'active' && row.role === role) continue;
    const same = byRole.get(role) ?? { back: [], other: [] };
    byRole.set(role, same);
    if (row === undefined) fresh.push(newMember(tx, workspaceId, userId, role, now));
    else (row.status === 'active' ? same.other : same.back).push(userId);
    if (row?.status === 'active') changed.push(userId);
    else joining.push(userId);
  }
  await tx.insertAll('workspace_members', fresh);
  for (const [role, { back, other }] of byRole) {
    const patch = { role, status: 'active' as const, last_updated_at: now };
    if (back.length > 0) await tx.update('workspace_members', of(workspaceId, back), { ...patch, created_at: now });
    if (other.length > 0) await tx.update('workspace_members', of(workspaceId, other), patch);
  }
  if (ended.length > 0) {
    await tx.update('workspace_members', of(workspaceId, ended), { status: 'archived', last_updated_at: now });
    await archiveKeys(tx, clock, { ...of(workspaceId, ended), type: 'workspace-user' });
    // What they gave programs there must not come back with a later membership.
    await tx.remove('oauth_codes', of(workspaceId, ended));
    if ((await tx.remove('oauth_families', of(workspaceId, ended))) > 0) {
      tx.changed({ workspaceId, topic: 'oauth_families', entityId: workspaceId });
    }
  }
  announce(tx, workspaceId, [...joining, ...changed, ...ended]);
  return joining.length === 0 ? [] : autoCreateUserKeys({ ...settling, workspaceId, userIds: joining });
}

const of = (workspaceId: string, userIds: readonly string[]) => ({
  workspace_id: workspaceId,
  user_id: { in: [...userIds] },
});

/** One change says it of many users: each costs every node a look at all keys that it holds. */
function announce(tx: TenantTx, workspaceId: string, userIds: readonly string[]): void {
  const [userId] = userIds;
  if (userId === undefined) return;
  const entityId = userIds.length === 1 ? userId : workspaceId;
  tx.changed({ workspaceId, topic: 'workspace_members', entityId });
}

/** The highest role that sources give each of these users, in an active workspace; none for users who are not active. */
async function rolesBySources(
  tx: TenantTx,
  workspaceId: string,
  userIds: readonly string[],
): Promise<Map<string, WorkspaceRole>> {
  const roles = new Map<string, WorkspaceRole>();
  const sources = await tx.list('membership_sources', { where: of(workspaceId, userIds) });
  if (sources.length === 0) return roles;
  const active = await tx.list('users', { where: { id: { in: [...userIds] }, status: 'active' } });
  const living = new Set(active.map((user) => user.id));
  for (const { user_id: userId, role } of sources) {
    const other = roles.get(userId);
    if (living.has(userId) && (other === undefined || isAbove(role, other))) roles.set(userId, role);
  }
  return roles;
}

function newMember(tx: TenantTx, workspaceId: string, userId: string, role: WorkspaceRole, now: number): MemberRow {
  return {
    organisation_id: tx.tenant.organisationId,
    workspace_id: workspaceId,
    user_id: userId,
    role,
    status: 'active',
    created_at: now,
    last_updated_at: now,
  };
}

/** Ends all memberships of a user. Their keys are the caller's to revoke: they may have some where they never joined. */
export async function endMemberships({ tx, clock }: Settling, userId: string): Promise<void> {
  const active = { user_id: userId, status: 'active' as const };
  const joined = await tx.list('workspace_members', { where: active });
  if (joined.length === 0) return;
  await tx.update('workspace_members', active, { status: 'archived', last_updated_at: clock.now() });
  for (const { workspace_id: workspaceId } of joined) {
    tx.changed({ workspaceId, topic: 'workspace_members', entityId: userId });
  }
}
