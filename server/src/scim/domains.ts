/** Addresses that a directory may provision: those of the organisation's domains, where it lists any. */
import { coveringDomains } from '../resources/settings/domains.ts';
import type { TenantTx } from '../store/ports.ts';
import { ScimError } from './errors.ts';

/** Throws `invalidValue` for an address outside the verified domains, where the organisation lists any domain. */
export async function checkDomain(tx: TenantTx, email: string): Promise<void> {
  if ((await tx.count('organisation_domains', {})) === 0) return;
  if ((await coveringDomains(tx, email)).length > 0) return;
  throw new ScimError(
    'invalidValue',
    'The attribute userName must be an address of a verified domain of the organisation (auth_settings.allowed_domains).',
  );
}
