/**
 * Whose user keys a caller may be given (rule P-02): a user key acts with its owner's role, so whoever is handed the key
 * of somebody above him would act with a role above his own, within scopes that he has himself.
 */
import { SluiceError } from '../../kernel/errors.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { Call } from '../resource.ts';

const ADMIN = 3;
const RANKS = { member: 1, manager: 2, admin: ADMIN } as const;

/** A key made by a key made by a key …: nobody does that this often on purpose. */
const MAX_LINKS = 16;

/** Refuses with 403 to hand out a key of a user whose role in the workspace is above the caller's. */
export async function checkOutranks(
  call: Pick<Call, 'principal' | 'tx'>,
  workspaceId: string,
  ownerId: string,
  param: string | null,
): Promise<void> {
  const { principal, tx } = call;
  if (principal.userId === ownerId) return;
  if ((await ownRank(call, workspaceId)) >= (await rankOfUser(tx, workspaceId, ownerId))) return;
  throw new SluiceError(
    'forbidden',
    'You cannot get a key of somebody whose role in the workspace is above your own.',
    {
      param,
    },
  );
}

/** That of the signed-in user, or of the user whom a service key goes back to; a key that goes back to nobody is an admin's. */
async function ownRank({ principal, tx }: Pick<Call, 'principal' | 'tx'>, workspaceId: string): Promise<number> {
  if (principal.userId !== null) return rankOfUser(tx, workspaceId, principal.userId);
  let behind = principal.keyId;
  for (let link = 0; link < MAX_LINKS; link++) {
    if (behind === null) return ADMIN;
    const key = await tx.find('api_keys', { id: behind });
    // No key that is seen here: a user, or a key of the organisation.
    if (key === undefined)
      return (await tx.find('users', { id: behind })) ? rankOfUser(tx, workspaceId, behind) : ADMIN;
    if (key.workspace_id === null) return ADMIN;
    behind = key.created_by;
  }
  return 0;
}

/** Whoever runs the organisation is an admin in every workspace; somebody who has left keeps the role he had. */
async function rankOfUser(tx: TenantTx, workspaceId: string, userId: string): Promise<number> {
  const user = await tx.find('users', { id: userId });
  if (user !== undefined && user.role !== 'member') return ADMIN;
  const member = await tx.find('workspace_members', { workspace_id: workspaceId, user_id: userId });
  return member === undefined ? 0 : RANKS[member.role];
}
