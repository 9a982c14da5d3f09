/** Pairs of tokens: the next one, and whether one is alive. */
import { readCredential } from '../../auth/credential.ts';
import { refreshPair, type TokenPair } from '../../auth/session-families.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { appendAudit } from '../../resources/audit-logs/chain.ts';
import { consoleEntry } from '../audit.ts';
import type { SignInCall } from './call.ts';

interface Refresh {
  readonly refresh_token: string;
  readonly organisation_id?: string | undefined;
}

export async function refresh({
  deps,
  body,
  request,
}: SignInCall<Refresh>): Promise<TokenPair & { readonly object: 'refresh' }> {
  const { tables, clock, vault, sessions } = deps;
  try {
    const pair = await refreshPair(
      {
        tables,
        clock,
        onReuse: async (tx, { organisationId, userId }) => {
          const deed = { request, action: 'manage', resource: 'auth.refresh_reuse', status: 401 } as const;
          const entry = consoleEntry({ clock, vault }, { ...deed, organisationId, userId, resourceId: userId });
          await appendAudit(tx, vault, entry);
        },
      },
      body.refresh_token,
      body.organisation_id ?? null,
    );
    return { object: 'refresh', ...pair };
  } catch (error) {
    // A family may have ended: at once on this node.
    sessions.invalidate();
    throw error;
  }
}

export async function validateToken({
  query,
  request,
  signedIn,
}: SignInCall<unknown, { readonly organisation_id?: string | undefined }>): Promise<{
  object: 'validate-token';
  is_valid: boolean;
}> {
  const token = readCredential(request.raw.rawHeaders);
  if (token === null && request.headers.cookie === undefined)
    throw new SluiceError('unauthenticated', 'Send the auth_token in Authorization: Bearer, or the cookie.');
  const found = await signedIn();
  const wanted = query.organisation_id ?? found?.principal.organisationId;
  const alive = found !== null && (token === null || token.startsWith('slc_sat_'));
  return { object: 'validate-token', is_valid: alive && wanted === found.principal.organisationId };
}
