/** The address of a user: the one place that changes it, and the link that a user confirms a new one with. */
import type { Clock } from '../../../kernel/clock.ts';
import { SluiceError } from '../../../kernel/errors.ts';
import type { TenantTx } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';

/** Throws 409 when another user of the organisation has this address. */
export async function checkFree(tx: TenantTx, email: string, param: string | null = null): Promise<void> {
  if (!(await tx.find('users', { email, status: 'active' }))) return;
  throw new SluiceError('conflict', `A user of this organisation has the address ${email} already.`, { param });
}

/**
 * Gives an active user another address. Sign-in links that were made before may be in the old mailbox, and other
 * sign-ins may be of its reader: both end, but for the session `keep` (its digest). Throws 409 as `checkFree`; of two
 * users who take one address at the same moment the unique index refuses one.
 */
export async function changeAddress(
  tx: TenantTx,
  clock: Clock,
  user: Row<'users'>,
  email: string,
  keep: string | null,
): Promise<Row<'users'>> {
  await checkFree(tx, email);
  const changed = { ...user, email, last_updated_at: laterThan(user, clock) };
  await tx.update('users', { id: user.id }, { email, last_updated_at: changed.last_updated_at });
  tx.changed({ workspaceId: null, topic: 'users', entityId: user.id });
  const signIns = await tx.list('console_sessions', { where: { user_id: user.id } });
  const ended = signIns.filter(({ digest }) => digest !== keep).map(({ digest }) => digest);
  if (ended.length > 0) {
    await tx.remove('console_sessions', { digest: { in: ended } });
    tx.changed({ workspaceId: null, topic: 'console_sessions', entityId: user.id });
  }
  return changed;
}

/** A time that this row has not had yet: links name the state of the user that they were made for. */
export const laterThan = (user: Row<'users'>, clock: Clock): number => Math.max(clock.now(), user.last_updated_at + 1);
