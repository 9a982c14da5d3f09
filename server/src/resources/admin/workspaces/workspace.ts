/** The workspace of a path, for every action below it. */

import type { Row } from '../../../store/schema.ts';
import { notFound } from '../../define.ts';
import type { Call } from '../../resource.ts';

/** Complete base paths of workspaces beside the alias. */
export const BASES = ['/v1/admin/workspaces', '/v2/admin/workspaces'] as const;

/** The workspace that the handler has resolved from the path. Archived ones are gone for all but the one who reads them. */
export async function openWorkspace(
  call: Call<unknown, unknown, unknown>,
  { archived = false }: { readonly archived?: boolean } = {},
): Promise<Row<'workspaces'>> {
  const id = call.tenant.workspaceId;
  const row = id === null ? undefined : await call.tx.find('workspaces', { id });
  if (!row || (row.status === 'archived' && !archived)) throw notFound();
  return row;
}
