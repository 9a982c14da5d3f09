import type { Principal } from '../../auth/principal.ts';
import { clientAddress } from '../../http/client-address.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Exchange } from '../exchange.ts';
import { misspelt } from '../misspelt.ts';
import { noCredential } from '../unread-headers.ts';

const CREDENTIALS = ['x-gateway-api-key', 'authorization', 'x-api-key'] as const;

/**
 * Finds the gateway credential: `x-gateway-api-key`, else `Authorization: Bearer`, else the `x-api-key` of
 * Anthropic clients when it holds a gateway key. What is left of the two is the caller's own provider token.
 */
export function authenticate(x: Exchange): void | Promise<void> {
  if (x.request.refusal !== null) throw x.request.refusal;
  // A console session and the key of a batch are authenticated before the exchange is made.
  if (x.request.principal !== null) return authorise(x, x.request.principal);
  refuseRepeated(x);
  const own = x.request.header('x-gateway-api-key');
  const bearer = bearerOf(x.request.header('authorization'));
  const apiKey = x.request.header('x-api-key');
  let token: string;
  if (own !== undefined) {
    token = own;
    x.request.callerToken = foreign(bearer) ?? foreign(apiKey);
  } else if (bearer !== null && (bearer.startsWith('slc_') || !apiKey?.startsWith('slc_'))) {
    token = bearer;
    x.request.credentialHeader = 'authorization';
    x.request.callerToken = foreign(apiKey);
  } else if (apiKey?.startsWith('slc_')) {
    token = apiKey;
    x.request.credentialHeader = 'x-api-key';
    x.request.callerToken = foreign(bearer);
  } else {
    throw new SluiceError('unauthenticated', noCredential(x.request.incoming.headers));
  }
  const principal = x.services.authenticator.authenticate(token, clientAddress(x.request.incoming));
  if (principal instanceof Promise) return principal.then((known) => authorise(x, known));
  authorise(x, principal);
}

/** A provider token, or null: a gateway key sent in a second header as well must not reach a provider. */
function foreign(token: string | null | undefined): string | null {
  return token == null || token.startsWith('slc_') ? null : token;
}

/** What credentials that are bound to no workspace are called in refusals. */
const UNBOUND: Partial<Record<Principal['kind'], string>> = {
  operator: 'the operator key',
  deployment: 'the client_auth of a deployment',
};

function authorise(x: Exchange, principal: Principal): void {
  x.request.principal = principal;
  if (principal.workspaceId === null || principal.kind === 'operator') {
    const given = UNBOUND[principal.kind] ?? 'an organisation key';
    const wanted =
      x.request.operation.family === 'proxy'
        ? 'Sluice has no such path, and to pass it on to a provider it needs a key bound to a workspace'
        : 'Inference needs a key bound to a workspace';
    throw (
      misspelt(x) ??
      new SluiceError(
        'forbidden',
        `${wanted}; this is ${given}. Send a key that begins with slc_wks_ or slc_usr_; POST /v1/api-keys/workspace/service makes one.`,
      )
    );
  }
  const scopes = principal.scopes;
  if (scopes.has('completions.write')) return;
  const { readScopes } = x.request.operation;
  if (readScopes.some((scope) => scopes.has(scope))) return;
  const mistaken = misspelt(x);
  if (mistaken !== null) throw mistaken;
  throw new SluiceError('forbidden', `This key lacks the scope ${readScopes[0] ?? 'completions.write'}.`);
}

function bearerOf(value: string | undefined): string | null {
  if (value === undefined) return null;
  return /^bearer /i.test(value) ? value.slice(7).trim() || null : null;
}

/** Node joins or drops repeated headers; two credentials must never be read as one. */
function refuseRepeated(x: Exchange): void {
  const raw = x.request.incoming.rawHeaders;
  let seen = 0;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] ?? '';
    const index =
      name.length === 17 || name.length === 13 || name.length === 9
        ? CREDENTIALS.indexOf(name.toLowerCase() as never)
        : -1;
    if (index === -1) continue;
    if (seen & (1 << index))
      throw new SluiceError('bad_call', `The header ${CREDENTIALS[index]} was sent more than once; send exactly one.`);
    seen |= 1 << index;
  }
}
