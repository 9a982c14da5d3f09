/**
 * Which keys a caller may be given: a user key acts with its owner's role, and a service key ranks as high
 * as the user it goes back to. A caller that gets the key of a higher user would act with a higher role, within the
 * scopes that the caller has.
 */
import { SluiceError } from '../../kernel/errors.ts';
import { checkRank, isAbove, rankOf, rankOfKey, roleIn, roleOfKey, roleOfUser } from '../admin/rank.ts';
import type { Call } from '../resource.ts';
import type { KeyRow } from './secrets.ts';

/** Refuses with 403 to hand out a key of a user whose role in the workspace is above the caller's. */
export async function checkOutranks(
  call: Pick<Call, 'principal' | 'tx'>,
  workspaceId: string,
  ownerId: string,
  param: string | null,
): Promise<void> {
  if (call.principal.userId === ownerId) return;
  if (!isAbove(await roleOfUser(call.tx, workspaceId, ownerId), await roleIn(call, workspaceId))) return;
  throw new SluiceError('forbidden', 'You cannot get a key of a user whose role in the workspace is above yours.', {
    param,
  });
}

/** Scopes with which a service key does what its role decides: over people, keys and what managers are withheld. */
const RANKED = /(?:_users|_api_keys)\.(?:create|update|delete|rotate)$|^workspaces\.update$/;

/** Whether what the scope allows also depends on how high its holder stands. */
export const isRanked = (scope: string): boolean => RANKED.test(scope);

/**
 * Refuses with 403 to hand out a key that ranks above the caller, in the organisation or in its workspace. A service key
 * without scopes that its role matters for is anybody's who holds its scopes.
 */
export async function checkMayGet(call: Call<unknown, unknown, unknown>, key: KeyRow): Promise<void> {
  if (key.user_id === null && !key.scopes.some(isRanked)) return;
  if (key.workspace_id === null) return checkRank(await rankOf(call), await rankOfKey(call.tx, key.id), null);
  if (key.user_id !== null) return checkOutranks(call, key.workspace_id, key.user_id, null);
  const { workspace_id: place, id } = key;
  if (!isAbove(await roleOfKey(call.tx, place, id), await roleIn(call, place))) return;
  throw new SluiceError(
    'forbidden',
    'You cannot get this key: it belongs to a user whose role in the workspace is above yours.',
  );
}
