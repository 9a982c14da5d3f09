import { isSignInToken } from '../../auth/key-format.ts';
import type { Principal } from '../../auth/principal.ts';
import { gatewayCredential } from '../../gateway/credential.ts';
import { noCredential } from '../../gateway/unread-headers.ts';
import { clientAddress } from '../../http/client-address.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { HeadUses } from '../exchange.ts';
import { misspelt } from '../misspelt.ts';

/**
 * Finds who calls: by the gateway credential of the headers, on some operations by a sign-in, unless that was done before the
 * exchange was made.
 */
export function authenticate(x: HeadUses<'request', 'authenticator' | 'paths' | 'signIns'>): void | Promise<void> {
  if (x.request.refusal !== null) throw x.request.refusal;
  // A console session and the key of a batch are authenticated before the exchange is made.
  if (x.request.principal !== null) return authorise(x, x.request.principal);
  const { incoming, operation } = x.request;
  const token = gatewayCredential(incoming, x.request);
  if (operation.signIn && (incoming.headers.cookie !== undefined || (token !== null && isSignInToken(token))))
    return signedIn(x, token);
  if (token === null) throw new SluiceError('unauthenticated', noCredential(incoming.headers));
  const principal = x.services.authenticator.authenticate(token, clientAddress(incoming));
  if (principal instanceof Promise) return principal.then((known) => authorise(x, known));
  authorise(x, principal);
}

/** With a cookie, or with the token of a sign-in. */
async function signedIn(
  x: HeadUses<'request', 'authenticator' | 'paths' | 'signIns'>,
  token: string | null,
): Promise<void> {
  const { authenticator, signIns } = x.services;
  const { incoming } = x.request;
  if (token !== null && !isSignInToken(token)) {
    const principal = await authenticator.authenticate(token, clientAddress(incoming));
    await signIns.check(incoming, token, principal);
    return authorise(x, principal);
  }
  const principal = await signIns.find(incoming, token);
  if (principal !== null) return authorise(x, principal);
  const wrong = token === null ? noCredential(incoming.headers) : 'This token of a sign-in is not valid or has ended.';
  throw new SluiceError(
    'unauthenticated',
    `${wrong} Or sign in again: the cookie of the console and an auth_token count here.`,
  );
}

/** What credentials that are bound to no workspace are called in refusals. */
const UNBOUND: Partial<Record<Principal['kind'], string>> = {
  operator: 'the operator key',
  deployment: 'the client_auth of a deployment',
};

function authorise(x: HeadUses<'request', 'paths'>, principal: Principal): void {
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
