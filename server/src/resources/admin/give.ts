/**
 * Giving roles: a caller that gives one ranks at least as high, and a key also holds every scope that the
 * role brings. Else a key that may only invite would make itself an administrator.
 */
import { missingForRole, roleScopes } from '../../auth/scopes.ts';
import { securityOf } from '../../auth/security-settings.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Where } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import {
  type Caller,
  checkRank,
  type Finds,
  isAbove,
  type OrganisationRole,
  rankOf,
  rankOfKey,
  roleIn,
} from './rank.ts';
import type { WorkspaceRoleRow } from './workspace-roles.ts';

type Key = Parameters<typeof missingForRole>[0];
type Organisation = Pick<Row<'organisations'>, 'settings'>;

interface FindsPlaces extends Finds {
  find: Finds['find'] & ((table: 'workspaces', where: Where<'workspaces'>) => Promise<Row<'workspaces'> | undefined>);
}

/** Refuses with 403 to give a role in the organisation that the caller has no right to give. */
export async function checkGives(call: Caller, role: OrganisationRole, param: string | null): Promise<void> {
  checkRank(await rankOf(call), role, param);
  if (call.principal.kind === 'user') return;
  refuseMissing(missingFor(call.principal, await call.tx.organisation(), role), role, param);
}

/** Refuses with 403 to give a role in a workspace that the caller has no right to give. */
export async function checkGivesIn(call: Caller, given: WorkspaceRoleRow, param: string | null): Promise<void> {
  const { principal, tx } = call;
  checkRank(await roleIn(call, given.workspace_id), given.role, param);
  if (principal.kind === 'user') return;
  refuseMissing(await missingIn(principal, tx, await tx.organisation(), given), given.role, param);
}

/**
 * Whether the user or key that invited somebody could still do so: it is there, may invite, stands as high as the
 * role, and a key holds the scopes of all roles. A key that has expired was there for its time; one that was revoked is
 * not there.
 */
export async function mayStillInvite(
  tx: FindsPlaces,
  organisation: Organisation,
  invite: Pick<Row<'invites'>, 'invited_by' | 'role' | 'workspaces'>,
): Promise<boolean> {
  const { invited_by: inviterId, role } = invite;
  const key = await tx.find('api_keys', { id: inviterId });
  if (key === undefined) {
    const user = await tx.find('users', { id: inviterId });
    return user?.status === 'active' && user.role !== 'member' && !isAbove(role, user.role);
  }
  if (key.status === 'archived' || !key.scopes.includes('organisation_users.create')) return false;
  if (isAbove(role, await rankOfKey(tx, key.id))) return false;
  const held: Key = { kind: key.type, scopes: new Set(key.scopes) };
  if (missingFor(held, organisation, role) !== null) return false;
  for (const given of invite.workspaces) {
    if ((await missingIn(held, tx, organisation, given)) !== null) return false;
  }
  return true;
}

/** A member of the organisation has no rights outside of workspaces. */
function missingFor(key: Key, organisation: Organisation, role: OrganisationRole): string | null {
  return missingForRole(key, roleScopes(role, null, securityOf(organisation, null)));
}

async function missingIn(
  key: Key,
  tx: FindsPlaces,
  organisation: Organisation,
  { workspace_id: id, role }: WorkspaceRoleRow,
): Promise<string | null> {
  const workspace = await tx.find('workspaces', { id });
  return missingForRole(key, roleScopes('member', role, securityOf(organisation, workspace ?? null)));
}

function refuseMissing(missing: string | null, role: string, param: string | null): void {
  if (missing === null) return;
  throw new SluiceError(
    'forbidden',
    `A key can give only roles whose scopes it holds. The role ${role} needs ${missing}, which this key lacks.`,
    { param },
  );
}
