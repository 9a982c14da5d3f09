/**
 * What groups of a directory mean for workspaces: the mappings of a group are kept true as its members change. Each function
 * runs in the transaction of the change, in statements that do not grow with users.
 */
import type { Clock } from '../../kernel/clock.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { addSources, removeSources, setSources, settleUser } from '../admin/workspaces/sources.ts';
import { sourceOf } from './groups.ts';

interface Call {
  readonly tx: TenantTx;
  readonly clock: Clock;
}

/** Far below the bind limits of both engines. */
const CHUNK = 1000;

/**
 * Users have come into a group: they get its workspaces. Where the organisation wants it, those whom the directory had
 * deactivated come back.
 */
export async function entered({ tx, clock }: Call, groupId: string, userIds: readonly string[]): Promise<void> {
  const organisation = await tx.organisation();
  if (organisation.settings.group_based_user_provisioning === true) await bringBack({ tx, clock }, userIds);
  await placed({ tx, clock }, groupId, userIds);
}

/** The same where no user comes back by it: the users themselves say whether they are active. */
export async function placed({ tx, clock }: Call, groupId: string, userIds: readonly string[]): Promise<void> {
  for (const { workspace_id: workspaceId, role } of await mappingsOf(tx, groupId)) {
    await setSources({ tx, clock, workspaceId, source: sourceOf(groupId), role, userIds });
  }
}

/** Users have left a group: memberships that nothing else gives end, with the user keys of those workspaces. */
export async function left({ tx, clock }: Call, groupId: string, userIds: readonly string[]): Promise<void> {
  for (const { workspace_id: workspaceId } of await mappingsOf(tx, groupId)) {
    await removeSources({ tx, clock, workspaceId, source: sourceOf(groupId), userIds });
  }
}

/** A group is about to be deleted: its mappings go, and the memberships that nothing else gives. No user and no workspace does. */
export async function ended({ tx, clock }: Call, groupId: string): Promise<void> {
  const members = await tx.list('scim_group_members', { where: { group_id: groupId } });
  await left(
    { tx, clock },
    groupId,
    members.map((member) => member.user_id),
  );
  await tx.remove('scim_mappings', { group_id: groupId });
}

/**
 * A user who was deactivated is active again: memberships that were given by hand, by invites, by claims and by groups are
 * back. Keys are not; where the settings want one, a new one is made.
 */
export async function returned({ tx, clock }: Call, userId: string): Promise<void> {
  const places = await tx.list('scim_group_members', { where: { user_id: userId } });
  for (let at = 0; at < places.length; at += CHUNK) {
    const ids = places.slice(at, at + CHUNK).map((place) => place.group_id);
    for (const mapping of await tx.list('scim_mappings', { where: { group_id: { in: ids } } })) {
      const { workspace_id: workspaceId, group_id: groupId, role } = mapping;
      await addSources({ tx, clock, workspaceId, source: sourceOf(groupId), role, userIds: [userId] });
    }
  }
  await settleUser({ tx, clock }, userId);
}

function mappingsOf(tx: TenantTx, groupId: string): Promise<Row<'scim_mappings'>[]> {
  return tx.list('scim_mappings', { where: { group_id: groupId } });
}

/** Makes users active again whom the directory had deactivated; not one whose address another user has by now. */
async function bringBack({ tx, clock }: Call, userIds: readonly string[]): Promise<void> {
  for (let at = 0; at < userIds.length; at += CHUNK) {
    const some = userIds.slice(at, at + CHUNK);
    const managed = await tx.list('scim_users', { where: { user_id: { in: some }, active: false } });
    if (managed.length === 0) continue;
    const ids = managed.map((one) => one.user_id);
    const away = await tx.list('users', { where: { id: { in: ids }, status: 'archived' } });
    const emails = away.map((user) => user.email);
    const taken = await tx.list('users', { where: { email: { in: emails }, status: 'active' } });
    const others = new Set(taken.map((user) => user.email));
    const back = away.filter((user) => !others.has(user.email)).map((user) => user.id);
    if (back.length === 0) continue;
    const now = clock.now();
    await tx.update('users', { id: { in: back } }, { status: 'active', last_updated_at: now });
    await tx.update('scim_users', { user_id: { in: back } }, { active: true, last_updated_at: now });
    for (const userId of back) {
      tx.changed({ workspaceId: null, topic: 'users', entityId: userId });
      await returned({ tx, clock }, userId);
    }
  }
}
