/** Who belongs to a workspace: joining, leaving, and what goes with them. Users, invites and members share it. */
import type { Clock } from '../../../kernel/clock.ts';
import type { TenantTx } from '../../../store/ports.ts';
import type { InvitedKey, Row } from '../../../store/schema.ts';
import { archiveKeys } from '../../api-keys/archive.ts';
import { type AutoKey, autoCreateUserKey } from '../../api-keys/auto.ts';
import type { WorkspaceRole } from '../rank.ts';

export type MemberRow = Row<'workspace_members'>;

/** Whose membership, and where. */
interface Place {
  readonly tx: TenantTx;
  readonly clock: Clock;
  readonly workspaceId: string;
  readonly userId: string;
}

/** The active membership of a user, if there is one. */
export function findMember(
  tx: TenantTx,
  workspaceId: string,
  userId: string,
): Promise<Row<'workspace_members'> | undefined> {
  return tx.find('workspace_members', { workspace_id: workspaceId, user_id: userId, status: 'active' });
}

export interface Joining extends Place {
  readonly role: WorkspaceRole;
  /** User or key that lets the user in. */
  readonly actorId: string;
  /** What an invite asked for. */
  readonly asked?: InvitedKey | null;
}

/**
 * Makes a user a member with this role, also one who left before, and gives them the user key that the settings want.
 * Rights to do so and the user's existence are the caller's to check. Answers the key that was made.
 */
export async function joinWorkspace(joining: Joining): Promise<AutoKey | null> {
  const { tx, clock, workspaceId, userId, role, actorId, asked } = joining;
  const before = await tx.find('workspace_members', { workspace_id: workspaceId, user_id: userId });
  const now = clock.now();
  if (before === undefined) {
    await tx.insert('workspace_members', {
      organisation_id: tx.tenant.organisationId,
      workspace_id: workspaceId,
      user_id: userId,
      role,
      status: 'active',
      created_at: now,
      last_updated_at: now,
    });
  } else {
    const rejoined = before.status === 'active' ? {} : { created_at: now };
    const patch = { role, status: 'active' as const, last_updated_at: now, ...rejoined };
    await tx.update('workspace_members', { workspace_id: workspaceId, user_id: userId }, patch);
  }
  tx.changed({ workspaceId, topic: 'workspace_members', entityId: userId });
  return autoCreateUserKey({ tx, clock, workspaceId, userId, actorId, ...(asked === undefined ? {} : { asked }) });
}

/** Gives a member another role. */
export async function changeRole({ tx, clock, workspaceId, userId }: Place, role: WorkspaceRole): Promise<void> {
  const patch = { role, last_updated_at: clock.now() };
  await tx.update('workspace_members', { workspace_id: workspaceId, user_id: userId }, patch);
  tx.changed({ workspaceId, topic: 'workspace_members', entityId: userId });
}

/** Ends a membership and the user's keys in this workspace, both at once for the next request. */
export async function leaveWorkspace({ tx, clock, workspaceId, userId }: Place): Promise<void> {
  const patch = { status: 'archived' as const, last_updated_at: clock.now() };
  await tx.update('workspace_members', { workspace_id: workspaceId, user_id: userId }, patch);
  tx.changed({ workspaceId, topic: 'workspace_members', entityId: userId });
  await archiveKeys(tx, clock, { workspace_id: workspaceId, user_id: userId, type: 'workspace-user' });
}
