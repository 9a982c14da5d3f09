import type { IncomingMessage } from 'node:http';
import { SluiceError } from '../kernel/errors.ts';

const CREDENTIALS = ['x-gateway-api-key', 'authorization', 'x-api-key'] as const;

/** What the headers of a request say beside its gateway credential. */
export interface CredentialHeaders {
  /** Header the gateway credential came in: its value must never leave. */
  credentialHeader: string;
  /** Credential of another service that the caller brought itself; null without one. */
  callerToken: string | null;
}

/**
 * Finds the gateway credential: `x-gateway-api-key`, else `Authorization: Bearer`, else the `x-api-key` of
 * Anthropic clients when it holds a gateway key. The one of the two that is left is the caller's own token of another service.
 * Null: none was sent. Throws `malformed_call` for one that was sent twice.
 */
export function gatewayCredential(request: IncomingMessage, into: CredentialHeaders): string | null {
  refuseRepeated(request);
  const own = headerOf(request, 'x-gateway-api-key');
  const bearer = bearerOf(headerOf(request, 'authorization'));
  const apiKey = headerOf(request, 'x-api-key');
  if (own !== undefined) {
    into.callerToken = foreign(bearer, own) ?? foreign(apiKey, own);
    return own;
  }
  if (bearer !== null && (bearer.startsWith('slc_') || !apiKey?.startsWith('slc_'))) {
    into.credentialHeader = 'authorization';
    into.callerToken = foreign(apiKey, bearer);
    return bearer;
  }
  if (!apiKey?.startsWith('slc_')) return null;
  into.credentialHeader = 'x-api-key';
  into.callerToken = foreign(bearer, apiKey);
  return apiKey;
}

function headerOf(request: IncomingMessage, name: string): string | undefined {
  const value = request.headers[name];
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** A token of another service, or null: a gateway credential sent in a second header as well must not reach anybody. */
function foreign(token: string | null | undefined, own: string): string | null {
  return token == null || token === own || token.startsWith('slc_') ? null : token;
}

function bearerOf(value: string | undefined): string | null {
  if (value === undefined) return null;
  return /^bearer /i.test(value) ? value.slice(7).trim() || null : null;
}

/** Node joins or drops repeated headers; two credentials must never be read as one. */
function refuseRepeated({ rawHeaders: raw }: IncomingMessage): void {
  let seen = 0;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] ?? '';
    const index =
      name.length === 17 || name.length === 13 || name.length === 9
        ? CREDENTIALS.indexOf(name.toLowerCase() as never)
        : -1;
    if (index === -1) continue;
    if (seen & (1 << index))
      throw new SluiceError(
        'malformed_call',
        `The header ${CREDENTIALS[index]} was sent more than once; send exactly one.`,
      );
    seen |= 1 << index;
  }
}
