/** Addresses that a directory may provision: those of the organisation's domains, where it lists any. */
import { isObject } from '../kernel/json.ts';
import type { Row } from '../store/schema.ts';
import { ScimError } from './errors.ts';

/** Throws `invalidValue` for an address outside the domains that the organisation lists. */
export function checkDomain({ settings }: Pick<Row<'organisations'>, 'settings'>, email: string): void {
  const section: unknown = settings.auth_settings;
  const listed: unknown = isObject(section) ? section.allowed_domains : null;
  if (!Array.isArray(listed) || listed.length === 0) return;
  const domain = email.slice(email.lastIndexOf('@') + 1);
  const allowed = listed.some((one: unknown) => {
    const name = isObject(one) && typeof one.domain === 'string' ? one.domain.toLowerCase() : null;
    if (name === null) return false;
    return domain === name || (isObject(one) && one.allow_subdomains === true && domain.endsWith(`.${name}`));
  });
  if (allowed) return;
  throw new ScimError(
    'invalidValue',
    'The attribute userName must be an address of a domain that the organisation lists (auth_settings.allowed_domains).',
  );
}
