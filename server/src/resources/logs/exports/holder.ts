/** In whose name an export is written and a file is given out, as it is now: keys are revoked and people leave meanwhile. */
import type { Principal } from '../../../auth/principal.ts';
import { SluiceError } from '../../../kernel/errors.ts';
import type { TenantTx } from '../../../store/ports.ts';

export interface Holder {
  /** Null: a key that acts for nobody. */
  readonly userId: string | null;
  /** Null: a user, whatever key was used. */
  readonly keyId: string | null;
}

/** Who reads, as `reachOf` takes it, and whether a key may read bodies. Of a user the role says so, which `reachOf` asks. */
export interface PresentHolder extends Pick<Principal, 'role' | 'userId'> {
  readonly seesBodies: boolean;
}

/** Throws `forbidden` for one that may do nothing any more. */
export async function presentHolder(
  tx: Pick<TenantTx, 'find' | 'organisation'>,
  { userId, keyId }: Holder,
  now: number,
): Promise<PresentHolder> {
  const { status } = await tx.organisation();
  if (status !== 'active') throw gone('The organisation is suspended.');
  let seesBodies = true;
  if (keyId !== null) {
    const key = await tx.find('api_keys', { id: keyId });
    const over = key === undefined || key.status === 'archived' || key.status === 'expired';
    if (over || (key.expires_at !== null && key.expires_at <= now))
      throw gone('The API key is revoked or has expired.');
    seesBodies = key.scopes.includes('logs.view');
  }
  if (userId === null) return { role: null, userId, seesBodies };
  const user = await tx.find('users', { id: userId });
  if (user?.status !== 'active') throw gone('The user is no longer in the organisation.');
  return { role: user.role, userId, seesBodies };
}

const gone = (message: string) => new SluiceError('forbidden', message);
