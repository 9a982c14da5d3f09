/** How high a caller stands in a workspace (rule P-02): nobody grants, changes or takes a role above his own. */
import { SluiceError } from '../../../kernel/errors.ts';
import type { TenantTx } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import type { Call } from '../../resource.ts';
import { findMember, type WorkspaceRole } from './membership.ts';

const RANKS: Record<WorkspaceRole, number> = { member: 1, manager: 2, admin: 3 };

/** A key made by a key made by a key …: nobody does that this often on purpose. */
const MAX_LINKS = 16;

/**
 * The role that the caller acts with in the workspace of the path, as it is in this transaction. Whoever runs the
 * organisation is an admin everywhere; a service key stands as high as the user it goes back to, or an admin when an
 * organisation key made it.
 */
export async function roleIn(call: Call<unknown, unknown, unknown>, workspaceId: string): Promise<WorkspaceRole> {
  const { principal, tx } = call;
  if (principal.kind === 'organisation-service') return 'admin';
  if (principal.kind !== 'workspace-service') {
    if (principal.role === 'owner' || principal.role === 'admin') return 'admin';
    return (await findMember(tx, workspaceId, principal.userId ?? ''))?.role ?? 'member';
  }
  let behind = principal.keyId;
  for (let link = 0; link < MAX_LINKS && behind !== null; link++) {
    const key: Row<'api_keys'> | undefined = await tx.find('api_keys', { id: behind });
    if (key === undefined) return roleOfMaker(tx, workspaceId, behind);
    if (key.workspace_id === null) return 'admin';
    behind = key.created_by;
  }
  return 'member';
}

/** A user keeps the role he had: his keys outlive him. What is no user is an organisation key, which a workspace cannot see. */
async function roleOfMaker(tx: TenantTx, workspaceId: string, id: string): Promise<WorkspaceRole> {
  const user = await tx.find('users', { id });
  if (user === undefined || user.role !== 'member') return 'admin';
  const joined = await tx.find('workspace_members', { workspace_id: workspaceId, user_id: id });
  return joined?.role ?? 'member';
}

/** Refuses with 403 what concerns a role above the caller's own. */
export function checkRole(own: WorkspaceRole, role: WorkspaceRole, param: string | null): void {
  if (RANKS[role] <= RANKS[own]) return;
  throw new SluiceError('forbidden', `This concerns the role ${role}, which is above your own (${own}).`, { param });
}
