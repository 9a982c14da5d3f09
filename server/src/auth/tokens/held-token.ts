/** The rights of a token for work that goes on after its request, as the lines of a batch do: what is kept, and what it is worth now. */
import { SluiceError } from '../../kernel/errors.ts';
import type { Tables } from '../../store/ports.ts';
import { jwtSettingsOf } from '../jwt-settings.ts';
import type { KeyRights } from '../key-principal.ts';
import type { Principal } from '../principal.ts';
import { systemTenant } from '../tenant.ts';

/** As JSON. It holds no token: what it says was verified when the work was made. */
export interface HeldToken
  extends Pick<Principal, 'userId' | 'defaults' | 'rateLimits' | 'usageLimits' | 'limitOwner' | 'changedAt'> {
  readonly scopes: readonly string[];
  readonly version: string;
}

/** Null for other principals. */
export function heldToken(principal: Principal): HeldToken | null {
  const { kind, tokenVersion: version, userId, defaults, rateLimits, usageLimits, limitOwner, changedAt } = principal;
  if (kind !== 'token' || version === undefined || limitOwner === undefined) return null;
  const scopes = [...principal.scopes];
  return { version, userId, scopes, defaults, rateLimits, usageLimits, limitOwner, changedAt: changedAt ?? 0 };
}

/**
 * The present rights of work that a token began, also after the token has expired. They end with the organisation's settings of
 * tokens, whose change withdraws keys; with the workspace; and with the user that the token spoke for.
 */
export async function rightsOfToken(
  tables: Pick<Tables, 'read'>,
  work: { readonly organisationId: string; readonly workspaceId: string; readonly token: HeldToken },
): Promise<KeyRights> {
  const { organisationId, workspaceId, token } = work;
  const { scopes, version, ...held } = token;
  const { organisation, workspace, user, member } = await tables.read(systemTenant(organisationId), async (tx) => ({
    organisation: await tx.organisation(),
    workspace: await tx.find('workspaces', { id: workspaceId }),
    user: held.userId === null ? null : await tx.find('users', { id: held.userId }),
    member:
      held.userId === null
        ? null
        : await tx.find('workspace_members', { workspace_id: workspaceId, user_id: held.userId, status: 'active' }),
  }));
  const principal: Principal = {
    ...held,
    kind: 'token',
    keyId: null,
    keyName: null,
    organisationId,
    workspaceId,
    role: null,
    scopes: new Set(scopes),
    tokenVersion: version,
    expiresAt: null,
  };
  const refused = (message: string): KeyRights => ({ principal, refusal: new SluiceError('forbidden', message) });
  if (organisation.status !== 'active')
    return refused('This organisation is suspended. Ask the operator of this installation.');
  if (jwtSettingsOf(organisation)?.version !== version)
    return refused('The organisation has changed auth_settings.jwt, which ends what its tokens began.');
  if (workspace?.status !== 'active') return refused('The workspace of the token is gone.');
  const left = user !== null && (user?.status !== 'active' || (user.role === 'member' && member === undefined));
  if (left) return refused('The user whom the token spoke for has left.');
  return { principal, refusal: null };
}
