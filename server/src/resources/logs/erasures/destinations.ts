/** Which log destinations an erasure does not reach. */
import type { TenantTx } from '../../../store/ports.ts';

/** More than an organisation and its workspaces have as a rule. */
const MOST = 1_000;

/** In a context of the whole organisation: those of the place that were fed, and those that are on: what these were sent in the last seconds is not noted yet. */
export async function fedDestinations(tx: Pick<TenantTx, 'list'>, workspaceId: string | null): Promise<string[]> {
  const rows = await tx.list('log_destinations', {
    orderBy: [
      ['created_at', 'desc'],
      ['id', 'desc'],
    ],
    limit: MOST,
  });
  const reached = rows.filter(({ workspace_id: of }) => workspaceId === null || of === null || of === workspaceId);
  const fed = new Set<string>();
  for (const { id, enabled } of reached) {
    const feeds = enabled ? [] : await tx.list('log_destination_feeds', { where: { destination_id: id } });
    if (enabled || feeds.some(({ delivered }) => delivered > 0)) fed.add(id);
  }
  return [...fed];
}
