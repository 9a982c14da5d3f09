/** The rights of an API key as its rows are now, for whoever knows the key's id: authentication, and work in its name. */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Principal } from './principal.ts';
import { intersect, roleScopes, scopesOf } from './scopes.ts';
import { securityOf } from './security-settings.ts';
import { systemTenant } from './tenant.ts';

/** Null when the key's workspace or owner is gone. */
export async function principalOfRow(
  tables: Pick<Tables, 'read'>,
  key: Row<'api_keys'>,
  organisation: Row<'organisations'>,
): Promise<Principal | null> {
  const { workspace_id: workspaceId, user_id: userId } = key;
  let role: Principal['role'] = null;
  let limit = scopesOf(key.type);
  if (workspaceId !== null || userId !== null) {
    const { workspace, user, member } = await tables.read(systemTenant(organisation.id), async (tx) => ({
      workspace: workspaceId === null ? undefined : await tx.find('workspaces', { id: workspaceId }),
      user: userId === null ? undefined : await tx.find('users', { id: userId }),
      member:
        userId === null || workspaceId === null
          ? undefined
          : await tx.find('workspace_members', { workspace_id: workspaceId, user_id: userId }),
    }));
    if (workspaceId !== null && workspace?.status !== 'active') return null;
    if (userId !== null) {
      if (user?.status !== 'active') return null;
      const inWorkspace = member?.status === 'active' ? member.role : null;
      if (user.role === 'member' && inWorkspace === null) return null;
      role = user.role;
      limit = intersect(limit, roleScopes(user.role, inWorkspace, securityOf(organisation, workspace ?? null)));
    }
  }
  return {
    kind: key.type,
    keyId: key.id,
    keyName: key.name,
    organisationId: organisation.id,
    workspaceId,
    userId,
    role,
    scopes: intersect(key.scopes, limit),
    defaults: key.defaults ?? {},
    rateLimits: key.rate_limits ?? [],
    usageLimits: key.usage_limits,
    changedAt: key.last_updated_at,
    expiresAt: key.expires_at,
  };
}

/** Whose work it is, and why the key may not do it any more. */
export interface KeyRights {
  readonly principal: Principal;
  readonly refusal: SluiceError | null;
}

/**
 * The present rights of a key for work that was begun in its name: read anew each time, and refused with the errors of
 * authentication when the key was revoked, has expired, or its owner, workspace or organisation is gone or suspended.
 */
export async function rightsOfKey(
  tables: Pick<Tables, 'read'>,
  clock: Clock,
  work: { readonly organisationId: string; readonly workspaceId: string; readonly keyId: string },
): Promise<KeyRights> {
  const { organisationId, workspaceId, keyId } = work;
  const { key, organisation } = await tables.read(systemTenant(organisationId), async (tx) => ({
    key: await tx.find('api_keys', { id: keyId }),
    organisation: await tx.organisation(),
  }));
  const nobody: Principal = {
    kind: key?.type ?? 'workspace-service',
    keyId,
    keyName: key?.name ?? null,
    organisationId,
    workspaceId,
    userId: key?.user_id ?? null,
    role: null,
    scopes: new Set(),
    defaults: {},
    rateLimits: [],
    usageLimits: null,
    expiresAt: null,
  };
  const refused = (message: string): KeyRights => ({
    principal: nobody,
    refusal: new SluiceError('unauthenticated', message),
  });
  if (key === undefined || key.status === 'archived') return refused('The API key has been revoked.');
  if (key.status === 'expired' || (key.expires_at !== null && key.expires_at <= clock.now())) {
    return refused('The API key has expired.');
  }
  if (organisation.status !== 'active') {
    return {
      principal: nobody,
      refusal: new SluiceError('forbidden', 'This organisation is suspended. Ask the operator of this installation.'),
    };
  }
  const principal = await principalOfRow(tables, key, organisation);
  if (principal === null || principal.workspaceId !== workspaceId) {
    return refused('The API key has lost its workspace or its owner.');
  }
  return { principal, refusal: null };
}
