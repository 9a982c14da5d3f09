import { tenantOf } from '../../auth/tenant.ts';
import type { Uses } from '../exchange.ts';

/**
 * Notes whose the objects are that the answer tells to have been made. Where others share the account, the answer ends when
 * that is in the store: its reader may name the object at once. Else it is written behind, for the day the account is shared.
 */
export function noteOwner(x: Uses<'attempt' | 'request', 'log' | 'owners'>): void | Promise<void> {
  const {
    attempt: { creation, target },
    request: { principal },
    services,
  } = x;
  if (creation === null || creation.made.length === 0 || target?.stored == null || principal === null) return;
  const noted = services.owners.note({
    tenant: tenantOf(principal),
    account: target.stored.accountId,
    provider: target.provider.id,
    createdBy: principal.keyId,
    objects: creation.made,
  });
  if (target.stored.shared) return noted;
  noted.catch((error: unknown) => services.log.warn('the owner of an object was not noted', { error: String(error) }));
}
