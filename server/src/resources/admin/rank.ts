/** How high a caller stands in the organisation, and whom it may therefore touch (rules P-02, P-03). */
import { SluiceError } from '../../kernel/errors.ts';
import type { Where } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { Call } from '../resource.ts';

export type OrganisationRole = Row<'users'>['role'];

const RANKS: Record<OrganisationRole, number> = { member: 1, admin: 2, owner: 3 };

/** A key made by a key made by a key …: nobody does that this often on purpose. */
const MAX_LINKS = 16;

/** Of a transaction, the tenant's or the system's. */
interface Finds {
  find(table: 'api_keys', where: Where<'api_keys'>): Promise<Row<'api_keys'> | undefined>;
  find(table: 'users', where: Where<'users'>): Promise<Row<'users'> | undefined>;
}

/**
 * The role that the caller acts with, as it is in this transaction: the credential may have been read before a change.
 * Throws 401 when the signed-in user is gone.
 */
export async function rankOf(call: Call<unknown, unknown, unknown>): Promise<OrganisationRole> {
  const { principal, tx } = call;
  if (principal.kind !== 'user') return rankOfKey(tx, principal.keyId);
  const user = principal.userId === null ? undefined : await tx.find('users', { id: principal.userId });
  if (user?.status === 'active') return user.role;
  throw new SluiceError('unauthenticated', 'Your account was removed. Ask an administrator to invite you again.');
}

/**
 * A key stands as high as the user it goes back to, through the keys that made it; one that goes back to nobody as high
 * as an admin: owners are for owners. So do the keys of an owner who was removed. Whoever else was removed leaves his
 * keys where he stood, or those of somebody who was demoted would rise again when he goes.
 */
export async function rankOfKey(tx: Finds, keyId: string | null): Promise<OrganisationRole> {
  let behind = keyId;
  for (let link = 0; link < MAX_LINKS; link++) {
    if (behind === null) return 'admin';
    const key: Row<'api_keys'> | undefined = await tx.find('api_keys', { id: behind });
    if (key === undefined) {
      const user = await tx.find('users', { id: behind });
      if (user === undefined) return 'admin';
      return user.status !== 'active' && user.role === 'owner' ? 'admin' : user.role;
    }
    behind = key.created_by;
  }
  return 'member';
}

/**
 * Whether the user or key that invited somebody could still do so: it is there, may invite, and stands as high as the
 * role. A key that has expired was there for its time; one that was revoked is not there.
 */
export async function mayStillInvite(tx: Finds, inviterId: string, role: OrganisationRole): Promise<boolean> {
  const key = await tx.find('api_keys', { id: inviterId });
  if (key !== undefined) {
    if (key.status === 'archived' || !key.scopes.includes('organisation_users.create')) return false;
    return RANKS[await rankOfKey(tx, key.id)] >= RANKS[role];
  }
  const user = await tx.find('users', { id: inviterId });
  return user?.status === 'active' && user.role !== 'member' && RANKS[user.role] >= RANKS[role];
}

/** Refuses with 403 to give, take or touch a role above the caller's own. */
export function checkRank(own: OrganisationRole, role: OrganisationRole, param: string | null): void {
  if (RANKS[role] <= RANKS[own]) return;
  throw new SluiceError('forbidden', `This concerns the role ${role}, which is above your own (${own}).`, { param });
}
