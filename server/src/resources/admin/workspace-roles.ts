/** Lists of workspaces with a role in each, as users and invites name them. */
import { z } from 'zod';
import type { TenantTx } from '../../store/ports.ts';
import { findWorkspace, refuse, unknownReference } from '../common.ts';
import { reference } from '../fields.ts';
import type { WorkspaceRole } from './rank.ts';

/** Far more than an organisation has; each costs two look-ups. */
const MAX_WORKSPACES = 500;

export const workspaceRoles = z
  .array(
    z.strictObject({
      id: reference.describe('Slug or UUID.'),
      role: z.enum(['admin', 'manager', 'member']),
    }),
  )
  .max(MAX_WORKSPACES, `must name at most ${MAX_WORKSPACES} workspaces`);

export interface WorkspaceRoleRow {
  readonly workspace_id: string;
  readonly role: WorkspaceRole;
}

/** The list with UUIDs. 404 `AB02` for a workspace that is not the organisation's, 400 for one that is named twice. */
export async function readWorkspaceRoles(
  tx: TenantTx,
  given: z.output<typeof workspaceRoles>,
): Promise<WorkspaceRoleRow[]> {
  const rows: WorkspaceRoleRow[] = [];
  const seen = new Set<string>();
  for (const [index, { id, role }] of given.entries()) {
    const param = `workspaces[${index}].id`;
    const workspace = await findWorkspace(tx, id);
    if (!workspace) throw unknownReference(param, 'workspace');
    if (seen.has(workspace.id)) throw refuse(param, 'names a workspace that the list names already');
    seen.add(workspace.id);
    rows.push({ workspace_id: workspace.id, role });
  }
  return rows;
}
