/**
 * Why somebody belongs to a workspace. A membership may have several sources; its role is the highest that they give, and it
 * ends with the last of them. All that adds or ends memberships goes through here.
 */
import { SluiceError } from '../../../kernel/errors.ts';
import type { TenantTx } from '../../../store/ports.ts';
import type { MembershipSource, Row } from '../../../store/schema.ts';
import type { AutoKey } from '../../api-keys/auto.ts';
import { isAbove, type WorkspaceRole } from '../rank.ts';
import { type Settling, settle } from './membership.ts';

/** What one source says of users in a workspace. */
interface Given extends Settling {
  readonly workspaceId: string;
  readonly source: MembershipSource;
}

/** Far below the bind limits of both engines. */
const CHUNK = 1000;

/**
 * Says that a source gives users a role in a workspace, in place of what it gave them before. Rights to do so, and that the
 * users exist, are the caller's to check. Answers the user keys that were made.
 */
export async function setSources(
  given: Given & { readonly role: WorkspaceRole; readonly userIds: readonly string[] },
): Promise<AutoKey[]> {
  await addSources(given);
  return settle(given, given);
}

/** `setSources` for one user; the key that was made, if any. */
export async function setSource(
  given: Given & { readonly role: WorkspaceRole; readonly userId: string },
): Promise<AutoKey | null> {
  const [key] = await setSources({ ...given, userIds: [given.userId] });
  return key ?? null;
}

/** Takes a source away from users. Who has no other is no member any more, and loses the user keys of the workspace. */
export async function removeSources(given: Given & { readonly userIds: readonly string[] }): Promise<void> {
  const { tx, workspaceId, source, userIds } = given;
  for (const some of chunksOf(userIds)) {
    await tx.remove('membership_sources', { workspace_id: workspaceId, user_id: { in: some }, source });
  }
  await settle(given, given);
}

/**
 * Gives a user a role by hand. The hand decides over invites and claims; 409 where a SCIM group gives a higher role.
 *
 * @param param field of the request that asks for it
 */
export async function setByHand(
  place: Settling & { readonly workspaceId: string; readonly userId: string },
  role: WorkspaceRole,
  param: string | null,
): Promise<void> {
  const { tx, workspaceId, userId } = place;
  const here = { workspace_id: workspaceId, user_id: userId };
  const sources = await tx.list('membership_sources', { where: here });
  const above = sources.find((one) => isOfGroup(one) && isAbove(one.role, role));
  if (above !== undefined) {
    const message = `A SCIM group makes this user ${above.role} here. Take the user out of the group in your directory, or delete the group’s mapping (GET /v1/scim/workspaces).`;
    throw new SluiceError('conflict', message, { param });
  }
  await removeAllButGroups(tx, here, sources);
  await setSource({ ...place, source: 'manual', role });
}

/** Ends a membership by hand; 409 where a SCIM group gives it, for the group would still say so. */
export async function endByHand(
  place: Settling & { readonly workspaceId: string; readonly userId: string },
  param: string | null,
): Promise<void> {
  const { tx, workspaceId, userId } = place;
  const here = { workspace_id: workspaceId, user_id: userId };
  const sources = await tx.list('membership_sources', { where: here });
  if (sources.some(isOfGroup)) {
    const message =
      'A SCIM group gives this membership. Take the user out of the group in your directory, or delete the group’s mapping (GET /v1/scim/workspaces).';
    throw new SluiceError('conflict', message, { param });
  }
  await tx.remove('membership_sources', here);
  await settle(place, { workspaceId, userIds: [userId] });
}

/** Makes all memberships of a user what their sources say: of one who is active again, or has come back. */
export async function settleUser(settling: Settling, userId: string): Promise<void> {
  const sources = await settling.tx.list('membership_sources', { where: { user_id: userId } });
  for (const workspaceId of new Set(sources.map((one) => one.workspace_id))) {
    await settle(settling, { workspaceId, userIds: [userId] });
  }
}

/** What a source has given in a workspace is from now on as given by hand. Memberships and roles stay. */
export async function keepByHand({ tx, clock, workspaceId, source }: Given): Promise<void> {
  const rows = await tx.list('membership_sources', { where: { workspace_id: workspaceId, source } });
  for (let at = 0; at < rows.length; at += CHUNK) {
    const part = rows.slice(at, at + CHUNK);
    const some = part.map((row) => row.user_id);
    const here = { workspace_id: workspaceId, user_id: { in: some } };
    const manual = await tx.list('membership_sources', { where: { ...here, source: 'manual' } });
    const byHand = new Map(manual.map((row) => [row.user_id, row.role]));
    const now = clock.now();
    // Whose own role is as high keeps it; the source takes the place of a lower one.
    const doubled = part.filter((row) => byHand.has(row.user_id));
    const lower = doubled.filter(({ user_id: id, role }) => !isAbove(role, byHand.get(id) ?? role));
    const higher = doubled.filter((row) => !lower.includes(row));
    for (const [gone, whose] of [
      [source, lower],
      ['manual', higher],
    ] as const) {
      const ids = whose.map((row) => row.user_id);
      if (ids.length > 0) await tx.remove('membership_sources', { ...here, user_id: { in: ids }, source: gone });
    }
    await tx.update('membership_sources', { ...here, source }, { source: 'manual', last_updated_at: now });
  }
}

const isOfGroup = ({ source }: Pick<Row<'membership_sources'>, 'source'>): boolean => source.startsWith('scim:');

async function removeAllButGroups(
  tx: TenantTx,
  here: { workspace_id: string; user_id: string },
  sources: readonly Row<'membership_sources'>[],
): Promise<void> {
  const gone = sources.filter((one) => one.source !== 'manual' && !isOfGroup(one)).map((one) => one.source);
  if (gone.length > 0) await tx.remove('membership_sources', { ...here, source: { in: gone } });
}

/**
 * Writes the sources alone: `settle` or `settleUser` makes memberships of them. In statements that do not grow with users.
 */
export async function addSources(
  given: Given & { readonly role: WorkspaceRole; readonly userIds: readonly string[] },
): Promise<void> {
  const { tx, clock, workspaceId, source, role, userIds } = given;
  const now = clock.now();
  for (const some of chunksOf(userIds)) {
    const here = { workspace_id: workspaceId, user_id: { in: some }, source };
    const before = new Map((await tx.list('membership_sources', { where: here })).map((row) => [row.user_id, row]));
    const other = some.filter((userId) => before.has(userId) && before.get(userId)?.role !== role);
    if (other.length > 0) {
      await tx.update('membership_sources', { ...here, user_id: { in: other } }, { role, last_updated_at: now });
    }
    const fresh = some.filter((userId) => !before.has(userId));
    await tx.insertAll(
      'membership_sources',
      fresh.map((userId) => ({
        organisation_id: tx.tenant.organisationId,
        workspace_id: workspaceId,
        user_id: userId,
        source,
        role,
        created_at: now,
        last_updated_at: now,
      })),
    );
  }
}

function chunksOf(ids: readonly string[]): string[][] {
  const all = [...new Set(ids)];
  return Array.from({ length: Math.ceil(all.length / CHUNK) }, (_none, n) => all.slice(n * CHUNK, (n + 1) * CHUNK));
}
