/** Whether several workspaces can use an integration: then what is at its provider account has owners. */
import type { TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';

type Sharable = Pick<Row<'integrations'>, 'id' | 'workspace_id' | 'global_workspace_access'>;

/** Entries of other workspaces that are looked at; with as many, the account counts as shared. */
const MOST = 100;

/** Whether a workspace without its own entry may use the integration. */
function isOpenToAll({ workspace_id, global_workspace_access: access }: Omit<Sharable, 'id'>): boolean {
  return workspace_id === null && (access === null || access.enabled === true);
}

/** Ids of those integrations that an active workspace besides `workspaceId` can use. `tx` must be organisation-wide. */
export async function sharedIntegrations(
  tx: TenantTx,
  workspaceId: string,
  integrations: readonly Sharable[],
): Promise<ReadonlySet<string>> {
  const shared = new Set<string>();
  const sharable = integrations.filter(({ workspace_id }) => workspace_id === null);
  if (sharable.length === 0) return shared;
  const others = { id: { not: workspaceId }, status: 'active' } as const;
  // In the order of an index: one row is read, not all that an organisation has.
  const other = await tx.list('workspaces', { where: others, orderBy: [['created_at', 'desc']], limit: 1 });
  if (other.length === 0) return shared;
  for (const integration of sharable) {
    if ((await countOthers(tx, workspaceId, integration)) > 0) shared.add(integration.id);
  }
  return shared;
}

/** How many active workspaces besides one can use the integration; with as many as `MOST` exceptions, at least two. */
async function countOthers(tx: TenantTx, workspaceId: string, integration: Sharable): Promise<number> {
  const open = isOpenToAll(integration);
  const entries = await tx.list('integration_workspaces', {
    where: { integration_id: integration.id, enabled: !open, workspace_id: { not: workspaceId } },
    orderBy: [['workspace_id', 'asc']],
    limit: MOST,
  });
  if (entries.length === MOST) return MOST;
  const ids = entries.map((entry) => entry.workspace_id);
  const active = { status: 'active' } as const;
  const named = ids.length === 0 ? 0 : await tx.count('workspaces', { where: { ...active, id: { in: ids } } });
  if (!open) return named;
  return (await tx.count('workspaces', { where: { ...active, id: { not: workspaceId } } })) - named;
}

/**
 * Tells the nodes that a workspace that came or went may have made accounts of others shared, or theirs alone: their
 * snapshots say which. Called when the change is in the store. Costs a few reads for each integration of the organisation
 * that one or two workspaces use.
 */
export async function tellSharing(tx: TenantTx, workspaceId: string): Promise<void> {
  const integrations = await tx.list('integrations', { where: { workspace_id: null, status: 'active' } });
  for (const integration of integrations) {
    const own = await tx.find('integration_workspaces', { integration_id: integration.id, workspace_id: workspaceId });
    if (!(own?.enabled ?? isOpenToAll(integration))) continue;
    // With two others that keep their access, nothing changes for anybody.
    if ((await countOthers(tx, workspaceId, integration)) > 1) continue;
    tx.changed({ workspaceId: null, topic: 'integrations', entityId: integration.id });
  }
}
