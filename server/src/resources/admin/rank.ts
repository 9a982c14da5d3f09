/** How high a caller ranks in the organisation and in a workspace, and whom it may therefore touch. */
import { SluiceError } from '../../kernel/errors.ts';
import type { Where } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { Call } from '../resource.ts';

export type OrganisationRole = Row<'users'>['role'];
export type WorkspaceRole = Row<'workspace_members'>['role'];

/** One order for both: a workspace has no owner, an organisation no managers. */
const RANKS: Record<OrganisationRole | WorkspaceRole, number> = { member: 1, manager: 2, admin: 3, owner: 4 };

/** A key made by a key made by a key …: no administrator does that this often on purpose. */
const MAX_LINKS = 16;

/** Of a transaction, the tenant's or the system's. */
export interface Finds {
  find(table: 'api_keys', where: Where<'api_keys'>): Promise<Row<'api_keys'> | undefined>;
  find(table: 'users', where: Where<'users'>): Promise<Row<'users'> | undefined>;
}

export type Caller = Pick<Call<unknown, unknown, unknown>, 'principal' | 'tx'>;

/** Refuses with 403 to give, take or touch a role above the caller's own. */
export function checkRank<R extends OrganisationRole | WorkspaceRole>(own: R, role: R, param: string | null): void {
  if (!isAbove(role, own)) return;
  throw new SluiceError('forbidden', `This concerns the role ${role}, which is above your own (${own}).`, { param });
}

/** Whether the first role ranks above the second, both of the organisation or both of a workspace. */
export function isAbove<R extends OrganisationRole | WorkspaceRole>(role: R, other: R): boolean {
  return RANKS[role] > RANKS[other];
}

/**
 * The role in the organisation that the caller acts with, as it is in this transaction: the credential may have been read
 * before a change. Throws 401 when the signed-in user is gone.
 */
export async function rankOf({ principal, tx }: Caller): Promise<OrganisationRole> {
  if (principal.kind !== 'user') return rankOfKey(tx, principal.keyId);
  const user = principal.userId === null ? undefined : await tx.find('users', { id: principal.userId });
  if (user?.status === 'active') return user.role;
  throw new SluiceError('unauthenticated', 'Your account was removed. Ask an administrator to invite you again.');
}

/**
 * A key ranks as high as the user it goes back to, through the keys that made it; one that goes back to nobody as high
 * as an admin: owners are for owners. So do the keys of an owner who was removed. The keys of other removed
 * users keep their rank, or those of a demoted user would rise again when this user is removed.
 */
export async function rankOfKey(tx: Finds, keyId: string | null): Promise<OrganisationRole> {
  const maker = await makerOf(tx, keyId);
  if (maker === 'nobody') return 'admin';
  if (maker === 'lost') return 'member';
  return maker.status !== 'active' && maker.role === 'owner' ? 'admin' : maker.role;
}

/**
 * The user whom a key goes back to; `nobody` when its first key has no maker, or none that is seen here.
 *
 * @param stop keys that count as made by nobody
 */
async function makerOf(
  tx: Finds,
  keyId: string | null,
  stop: (key: Row<'api_keys'>) => boolean = () => false,
): Promise<Row<'users'> | 'nobody' | 'lost'> {
  let behind = keyId;
  for (let link = 0; link < MAX_LINKS; link++) {
    if (behind === null) return 'nobody';
    const key: Row<'api_keys'> | undefined = await tx.find('api_keys', { id: behind });
    if (key === undefined) return (await tx.find('users', { id: behind })) ?? 'nobody';
    if (stop(key)) return 'nobody';
    behind = key.created_by;
  }
  return 'lost';
}

/** The role that the caller acts with in a workspace, as it is in this transaction. */
export async function roleIn({ principal, tx }: Caller, workspaceId: string): Promise<WorkspaceRole> {
  if (principal.kind === 'organisation-service') return 'admin';
  if (principal.userId === null) return roleOfKey(tx, workspaceId, principal.keyId);
  return roleOfUser(tx, workspaceId, principal.userId, { status: 'active' });
}

/**
 * A service key ranks as high as the user it goes back to, also after this user left: keys outlive their user. One that an
 * organisation key made, which a workspace cannot see, is an admin's.
 */
export async function roleOfKey(tx: Caller['tx'], workspaceId: string, keyId: string | null): Promise<WorkspaceRole> {
  const maker = await makerOf(tx, keyId, (key) => key.workspace_id === null);
  if (maker === 'nobody') return 'admin';
  return maker === 'lost' ? 'member' : roleOfUser(tx, workspaceId, maker.id);
}

/**
 * A user's role in a workspace: a user who runs the organisation is an admin everywhere, one who is no member a member.
 *
 * @param membership which membership counts; by default also one that has ended
 */
export async function roleOfUser(
  tx: Caller['tx'],
  workspaceId: string,
  userId: string,
  membership: { readonly status?: 'active' } = {},
): Promise<WorkspaceRole> {
  const user = await tx.find('users', { id: userId });
  if (user !== undefined && user.role !== 'member') return 'admin';
  const where = { workspace_id: workspaceId, user_id: userId, ...membership };
  return (await tx.find('workspace_members', where))?.role ?? 'member';
}
