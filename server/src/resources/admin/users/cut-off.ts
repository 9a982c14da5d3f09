/** The one place that takes everything from a user by which they, or a program of theirs, come in. */
import type { Clock } from '../../../kernel/clock.ts';
import type { TenantTx } from '../../../store/ports.ts';
import { archiveKeys } from '../../api-keys/archive.ts';
import { cancelInvites, cancelInvitesTo } from '../invites/cancel.ts';
import { endMemberships } from '../workspaces/membership.ts';

/** What becomes of the places that a user has in workspaces. */
interface Places {
  /** They come back with the user: a directory has deactivated the user. Else they are forgotten. */
  readonly keepsSources?: boolean;
}

/**
 * Ends a user's memberships, API keys, sign-ins, passkeys, unused links, open invites (those they sent and one to their address),
 * and what they gave OAuth clients, in the transaction that removes or deactivates the user, and tells every node. The next
 * request with any of them is refused; requests that were admitted before end as they would. The user's row is the caller's to
 * change. Who adds a table of credentials of users adds its line here.
 */
export async function cutOff(
  { tx, clock }: { readonly tx: TenantTx; readonly clock: Clock },
  userId: string,
  { keepsSources = false }: Places = {},
): Promise<void> {
  await endMemberships({ tx, clock }, userId);
  if (!keepsSources) await tx.remove('membership_sources', { user_id: userId });
  await archiveKeys(tx, clock, { user_id: userId });
  if ((await tx.remove('console_sessions', { user_id: userId })) > 0) {
    tx.changed({ workspaceId: null, topic: 'console_sessions', entityId: userId });
  }
  await tx.remove('oauth_codes', { user_id: userId });
  if ((await tx.remove('oauth_families', { user_id: userId })) > 0) {
    tx.changed({ workspaceId: null, topic: 'oauth_families', entityId: userId });
  }
  await tx.remove('passkeys', { user_id: userId });
  // A directory sees the user as inactive from now on.
  await tx.update('scim_users', { user_id: userId }, { active: false });
  await cancelInvites({ tx, clock }, userId);
  const user = await tx.find('users', { id: userId });
  if (user !== undefined) await cancelInvitesTo({ tx, clock }, user.email);
  tx.changed({ workspaceId: null, topic: 'users', entityId: userId });
}
