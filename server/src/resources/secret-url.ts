/**
 * Addresses whose path and query let callers in, as those of webhooks do. They are stored as an envelope with scheme and host
 * beside it, which is all that answers show, and with a keyed digest that tells whether two of them are the same.
 */
import { Secret } from '../kernel/secret.ts';
import type { TenantContext } from '../store/ports.ts';
import { isEnvelope, type SealPlace, type Vault } from '../store/vault.ts';
import { maskOf, REFUSED_MASK } from './body-fields.ts';
import { refuse } from './common.ts';
import type { Call } from './resource.ts';

/** Alerts are delivered from copies, so an envelope opens anywhere in its organisation. */
const placeOf = ({ organisationId }: TenantContext): SealPlace => ({
  table: 'alerts',
  column: 'webhook_url',
  row: organisationId,
});

const MASK = /\*{7}/;
const SEPARATOR = ' ';

/** The address as it is stored. */
export async function sealUrl(vault: Vault, tenant: TenantContext, url: string): Promise<string> {
  const { origin } = new URL(url);
  const { digest } = vault.mac('alert address', Buffer.from(`${tenant.organisationId}\n${url}`, 'utf8'));
  return [await vault.seal(tenant, placeOf(tenant), new Secret(url)), origin, digest.toString('hex', 0, 8)].join(
    SEPARATOR,
  );
}

/** What was sealed; an address that an older version stored is answered as it is. Throws SluiceError('unavailable'). */
export async function openUrl(vault: Pick<Vault, 'open'>, tenant: TenantContext, stored: string): Promise<string> {
  if (!isEnvelope(stored)) return stored;
  return (await vault.open(tenant, placeOf(tenant), stored.split(SEPARATOR)[0] ?? '')).reveal();
}

/** As it is answered: scheme and host, and a mask. */
export function shownUrl(stored: string): string {
  const [envelope = '', origin = ''] = isEnvelope(stored) ? stored.split(SEPARATOR) : ['', URL.parse(stored)?.origin];
  return `${origin}/${maskOf(envelope)}`;
}

/** The same for the same address, whatever envelope holds it. */
export const sameness = (stored: string): string => (isEnvelope(stored) ? (stored.split(SEPARATOR)[2] ?? '') : stored);

/**
 * An address of a body as it is stored; null and undefined stay what they are. The shown form of `before` keeps it. Throws 400
 * for other masks, and for an address that no call may go to.
 */
export async function storedUrl<T extends string | null | undefined>(
  { vault, tenant, checkHost }: Pick<Call, 'vault' | 'tenant' | 'checkHost'>,
  url: T,
  before: string | null | undefined,
  param: string,
): Promise<string | Extract<T, null | undefined>> {
  if (url == null) return url as Extract<T, null | undefined>;
  if (before != null && url === shownUrl(before)) return before;
  if (MASK.test(url)) throw refuse(param, REFUSED_MASK);
  const problem = checkHost(url);
  if (problem !== null) throw refuse(param, problem);
  return sealUrl(vault, tenant, url);
}
