import { SluiceError } from '../kernel/errors.ts';

/**
 * The gateway credential of a request: `x-gateway-api-key` (or the same header under an alias prefix), else the bearer
 * token of `Authorization`; there a deployment's `client_auth` may also be bare or the password of Basic. Reads the raw header list, because Node joins repeated headers and hides the second copy.
 * Answers null when there is none; throws `validation` when a credential header is present twice, or when
 * a header and its alias differ.
 *
 * @param rawHeaders `IncomingMessage.rawHeaders`: name, value, name, value, …
 * @param aliases prefixes read like `x-gateway-`, lower case, for example `x-portkey-`
 */
export function readCredential(rawHeaders: readonly string[], aliases: readonly string[] = []): string | null {
  let key: string | null = null;
  let keyName = '';
  let authorization: string | null = null;
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const raw = rawHeaders[i] ?? '';
    // Cheap filter: credential names start with `x` or are `authorization`, in any case.
    const first = raw.charCodeAt(0) | 32;
    if (first !== 120 && first !== 97) continue;
    const name = raw.toLowerCase();
    const value = rawHeaders[i + 1] ?? '';
    if (name === 'authorization') {
      if (authorization !== null) throw twice('Authorization');
      authorization = value;
    } else if (name === 'x-gateway-api-key' || isAlias(name, aliases)) {
      if (key !== null && (name === keyName || value !== key)) throw twice('x-gateway-api-key');
      key = value;
      keyName = name;
    }
  }
  return key ?? bearer(authorization) ?? deployment(authorization);
}

function isAlias(name: string, aliases: readonly string[]): boolean {
  return aliases.length > 0 && name.endsWith('api-key') && aliases.some((prefix) => name === `${prefix}api-key`);
}

function bearer(value: string | null): string | null {
  if (value === null || value.length < 7 || value.slice(0, 7).toLowerCase() !== 'bearer ') return null;
  return value.slice(7).trim();
}

/** The `client_auth` of a deployment, also sent as `Authorization: <client_auth>`, or as the password of Basic. */
function deployment(value: string | null): string | null {
  if (value === null) return null;
  if (value.startsWith(CLIENT_AUTH)) return value;
  const encoded = /^basic ([A-Za-z0-9+/]{1,512}={0,2})$/i.exec(value)?.[1];
  if (encoded === undefined) return null;
  const pair = Buffer.from(encoded, 'base64').toString('latin1');
  const password = pair.slice(pair.indexOf(':') + 1);
  return password.startsWith(CLIENT_AUTH) ? password : null;
}

const CLIENT_AUTH = 'slc_dep_';

function twice(header: string): SluiceError {
  return new SluiceError('validation', `Send exactly one ${header} header.`);
}
