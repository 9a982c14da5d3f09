/** How high a caller stands in the organisation, and whom it may therefore touch (rules P-02, P-03). */
import { SluiceError } from '../../kernel/errors.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { Call } from '../resource.ts';

export type OrganisationRole = Row<'users'>['role'];

const RANKS: Record<OrganisationRole, number> = { member: 1, admin: 2, owner: 3 };

/** A key made by a key made by a key …: nobody does that this often on purpose. */
const MAX_LINKS = 16;

/**
 * The role that the caller acts with, as it is in this transaction: the credential may have been read before a change.
 * A key stands as high as the user it goes back to, through the keys that made it. One that goes back to nobody who is
 * still there stands as high as an admin: owners are for owners. Throws 401 when the signed-in user is gone.
 */
export async function rankOf(call: Call<unknown, unknown, unknown>): Promise<OrganisationRole> {
  const { principal, tx } = call;
  if (principal.kind === 'user') {
    const user = await activeUser(tx, principal.userId);
    if (user) return user.role;
    throw new SluiceError('unauthenticated', 'Your account was removed. Ask an administrator to invite you again.');
  }
  let behind = principal.keyId;
  for (let link = 0; link < MAX_LINKS && behind !== null; link++) {
    const key: Row<'api_keys'> | undefined = await tx.find('api_keys', { id: behind });
    if (key === undefined) return (await activeUser(tx, behind))?.role ?? 'admin';
    behind = key.created_by;
  }
  return 'admin';
}

async function activeUser(tx: TenantTx, id: string | null): Promise<Row<'users'> | undefined> {
  return id === null ? undefined : tx.find('users', { id, status: 'active' });
}

/** Refuses with 403 to give, take or touch a role above the caller's own. */
export function checkRank(own: OrganisationRole, role: OrganisationRole, param: string | null): void {
  if (RANKS[role] <= RANKS[own]) return;
  throw new SluiceError('forbidden', `This concerns the role ${role}, which is above your own (${own}).`, { param });
}
