/** What is being erased, as each question about records leaves it out. */
import { systemTenant } from '../../../auth/tenant.ts';
import type { TenantTx } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import type { SealPlace, Vault } from '../../../store/vault.ts';
import type { ErasedLogs } from '../../../telemetry/log-query.ts';

/** Erasures of an organisation that are under way at the same time: each is a condition of every question. */
export const MOST_PENDING = 200;

/** Where the name of a person, or of what a caller calls a trace, is sealed until it is erased. */
export const subjectPlace = (id: string): SealPlace => ({ table: 'log_erasures', column: 'subject', row: id });

export async function pendingErasures(
  tx: Pick<TenantTx, 'tenant' | 'list'>,
  vault: Pick<Vault, 'open'>,
): Promise<ErasedLogs[]> {
  const rows = await tx.list('log_erasures', { where: { status: 'pending' } });
  return Promise.all(rows.map((row) => erasureOf(row, vault)));
}

/** Rejects with `unavailable` where its subject does not open: what cannot be left out is not shown. */
export async function erasureOf(row: Row<'log_erasures'>, vault: Pick<Vault, 'open'>): Promise<ErasedLogs> {
  const { id, organisation_id, workspace_id, selects, subject, before } = row;
  if (subject === null) throw new Error(`erasure ${id} is done, and says no longer what it selected`);
  const value = await vault.open(systemTenant(organisation_id), subjectPlace(id), subject);
  return { workspaceId: workspace_id, column: selects, value: value.reveal(), before };
}
