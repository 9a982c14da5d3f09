/**
 * The rows of files that Sluice keeps, and the bytes that each workspace has of them, in the same transaction: the quota
 * of an organisation costs the same however many files there are. The one place that adds and removes such rows; a
 * workspace that is deleted takes both along.
 */
import type { TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';

/** A tenant's transaction or the system's. */
type FileTx = Pick<TenantTx, 'find' | 'insert' | 'update' | 'remove' | 'list'>;

/**
 * Of the transaction, where several may add at once: on PostgreSQL those that are not queued undo each other.
 */
export const filesQueue = (organisationId: string): string => `files ${organisationId}`;

export async function addFile(tx: FileTx, row: Row<'files'>): Promise<void> {
  await count(tx, row, row.bytes);
  await tx.insert('files', row);
}

/** Whether there was such a file. */
export async function removeFile(tx: FileTx, id: string): Promise<boolean> {
  const row = await tx.find('files', { id });
  if (row === undefined) return false;
  await count(tx, row, -row.bytes);
  return (await tx.remove('files', { id })) > 0;
}

/** Bytes that the organisation's files have together: one row a workspace is read. */
export async function bytesOf(tx: FileTx, organisationId: string): Promise<number> {
  const totals = await tx.list('file_totals', { where: { organisation_id: organisationId } });
  return totals.reduce((sum, { bytes }) => sum + bytes, 0);
}

async function count(tx: FileTx, { organisation_id, workspace_id }: Row<'files'>, more: number): Promise<void> {
  const place = { organisation_id, workspace_id };
  const total = await tx.find('file_totals', place);
  const bytes = Math.max(0, (total?.bytes ?? 0) + more);
  if (total === undefined) await tx.insert('file_totals', { ...place, bytes });
  else await tx.update('file_totals', place, { bytes });
}
