/** Who began work that goes on after its request, where no key did: a token, or a user who was signed in. */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Tables } from '../store/ports.ts';
import { type KeyRights, rightsOfKey } from './key-principal.ts';
import type { Principal } from './principal.ts';
import { roleScopes } from './scopes.ts';
import { securityOf } from './security-settings.ts';
import { systemTenant } from './tenant.ts';
import { type HeldToken, heldToken, rightsOfToken } from './tokens/held-token.ts';

/** As JSON, in the row of the work. Empty for keys. */
export interface HeldCaller {
  readonly token?: HeldToken;
  /** Of a user who was signed in. The sign-in may end; the user's place in the workspace counts. */
  readonly userId?: string;
}

export interface Work extends HeldCaller {
  readonly organisationId: string;
  readonly workspaceId: string;
  readonly keyId: string | null;
}

/** What of a caller is kept beside `keyId`. */
export function heldCaller(principal: Principal): HeldCaller {
  const { kind, userId } = principal;
  if (kind === 'user' && userId !== null) return { userId };
  const token = heldToken(principal);
  return token === null ? {} : { token };
}

/** The same, of a row that holds more. */
export const callerOf = ({ token, userId }: HeldCaller): HeldCaller => ({
  ...(token === undefined ? {} : { token }),
  ...(userId === undefined ? {} : { userId }),
});

/** What a refusal calls it. */
export const nameOfCaller = ({ keyId, token }: Pick<Work, 'keyId' | 'token'>): string =>
  keyId !== null ? 'API key' : token !== undefined ? 'token' : 'user';

/** The present rights of the user or key that began the work; null where that is not known. */
export async function rightsOfCaller(
  tables: Pick<Tables, 'read'>,
  clock: Clock,
  work: Work,
): Promise<KeyRights | null> {
  const { keyId, token, userId, organisationId, workspaceId } = work;
  const place = { organisationId, workspaceId };
  if (keyId !== null) return rightsOfKey(tables, clock, { ...place, keyId });
  if (token !== undefined) return rightsOfToken(tables, { ...place, token });
  return userId === undefined ? null : rightsOfUser(tables, { ...place, userId });
}

/** They end with the user, the user's membership, the workspace, and a suspended organisation. */
async function rightsOfUser(
  tables: Pick<Tables, 'read'>,
  { organisationId, workspaceId, userId }: { organisationId: string; workspaceId: string; userId: string },
): Promise<KeyRights> {
  const { organisation, workspace, user, member } = await tables.read(systemTenant(organisationId), async (tx) => ({
    organisation: await tx.organisation(),
    workspace: await tx.find('workspaces', { id: workspaceId, status: 'active' }),
    user: await tx.find('users', { id: userId, status: 'active' }),
    member: await tx.find('workspace_members', { workspace_id: workspaceId, user_id: userId, status: 'active' }),
  }));
  const role = user?.role ?? null;
  const inWorkspace = role === 'member' ? (member?.role ?? null) : 'admin';
  const principal: Principal = {
    kind: 'user',
    keyId: null,
    keyName: null,
    organisationId,
    workspaceId,
    userId,
    role,
    scopes: role === null ? new Set() : roleScopes(role, inWorkspace, securityOf(organisation, workspace ?? null)),
    defaults: {},
    rateLimits: [],
    usageLimits: null,
    expiresAt: null,
  };
  const refused = (message: string): KeyRights => ({ principal, refusal: new SluiceError('forbidden', message) });
  if (organisation.status !== 'active')
    return refused('This organisation is suspended. Ask the operator of this installation.');
  if (workspace === undefined) return refused('The workspace is gone.');
  if (role === null || inWorkspace === null) return refused('The user has left the workspace.');
  return { principal, refusal: null };
}
