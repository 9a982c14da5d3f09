/** Headers of other gateways' clients that mean nothing here until their prefix is an alias. Read for errors only. */
import type { IncomingHttpHeaders } from 'node:http';

const FOREIGN = /^(x-[a-z0-9]{1,30}-)(?:api-key|provider|config|virtual-key)$/;

/** Prefix and name of the first such header that was sent, or null. `isGiven` sees its value. */
function unread(
  headers: IncomingHttpHeaders,
  isGiven: (value: string) => boolean,
): { readonly name: string; readonly prefix: string } | null {
  for (const [name, value] of Object.entries(headers)) {
    const prefix = FOREIGN.exec(name)?.[1];
    if (prefix !== undefined && prefix !== 'x-gateway-' && typeof value === 'string' && isGiven(value))
      return { name, prefix };
  }
  return null;
}

/** What to say to a caller without a credential: it may have come under the name that another gateway gives it. */
export function noCredential(headers: IncomingHttpHeaders): string {
  const found = unread(headers, (value) => value.startsWith('slc_'));
  if (found === null && headers.authorization?.startsWith('slc_'))
    return 'Authorization holds a key of Sluice without the word Bearer. Send Authorization: Bearer <API_KEY>, or x-gateway-api-key: <API_KEY>.';
  if (found === null)
    return 'No gateway credential was sent. Send x-gateway-api-key: <API_KEY>, or Authorization: Bearer <API_KEY>.';
  return `A gateway key came in ${found.name}, a header that this server does not read. Start it with SLUICE_HEADER_ALIASES=${found.prefix}, or send the key as x-gateway-api-key.`;
}

/** The end of an error about something missing, when a header of another gateway seems to name it; else empty. */
export function unreadHint(headers: IncomingHttpHeaders): string {
  const found = unread(headers, (value) => value !== '');
  if (found === null) return '';
  return ` The header ${found.name} was sent, but this server does not read it: start it with SLUICE_HEADER_ALIASES=${found.prefix}.`;
}
