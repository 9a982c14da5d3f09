/**
 * Which keys a caller may be given (rule P-02): a user key acts with its owner's role, and a service key stands as high
 * as the user it goes back to. Whoever is handed the key of somebody above him would act with a role above his own,
 * within scopes that he has himself.
 */
import { SluiceError } from '../../kernel/errors.ts';
import type { TenantTx } from '../../store/ports.ts';
import { checkRank, rankOf, rankOfKey } from '../admin/rank.ts';
import type { Call } from '../resource.ts';
import type { KeyRow } from './secrets.ts';

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

/** Scopes with which a service key does what its role decides: over people, keys and what managers are withheld. */
const RANKED = /(?:_users|_api_keys)\.(?:create|update|delete|rotate)$|^workspaces\.update$/;

/** Whether what the scope allows also depends on how high its holder stands. */
export const isRanked = (scope: string): boolean => RANKED.test(scope);

/**
 * Refuses with 403 to hand out a key that stands above the caller, in the organisation or in its workspace. A service key
 * without scopes that its role matters for is anybody's who holds its scopes.
 */
export async function checkMayGet(call: Call<unknown, unknown, unknown>, key: KeyRow): Promise<void> {
  if (key.user_id === null && !key.scopes.some(isRanked)) return;
  if (key.workspace_id === null) return checkRank(await rankOf(call), await rankOfKey(call.tx, key.id), null);
  if (key.user_id !== null) return checkOutranks(call, key.workspace_id, key.user_id, null);
  const { workspace_id: place, id } = key;
  if ((await ownRank(call, place)) >= (await rankOfServiceKey(call.tx, place, id))) return;
  throw new SluiceError(
    'forbidden',
    'You cannot get this key: it goes back to somebody whose role in the workspace is above your own.',
  );
}

/** That of the signed-in user, or of the service key that calls. */
async function ownRank({ principal, tx }: Pick<Call, 'principal' | 'tx'>, workspaceId: string): Promise<number> {
  if (principal.userId !== null) return rankOfUser(tx, workspaceId, principal.userId);
  return rankOfServiceKey(tx, workspaceId, principal.keyId);
}

/** That of the user whom a service key goes back to; a key that goes back to nobody is an admin's. */
async function rankOfServiceKey(tx: TenantTx, workspaceId: string, keyId: string | null): Promise<number> {
  let behind = keyId;
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
