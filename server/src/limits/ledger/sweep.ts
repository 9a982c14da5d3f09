/** What time does to buckets: leases end, windows turn. Anyone may do it at any time; each happens once. */
import type { Clock } from '../../kernel/clock.ts';
import type { Tables } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { BucketTransaction } from './bucket-transaction.ts';
import { bucketQueue } from './held-reservation.ts';
import { nextReset, periodOf } from './limit-spec.ts';

const PAGE = 200;
const FORGET_MS = 7 * 86_400_000;

export interface SweepOptions {
  readonly tables: Tables;
  readonly clock: Clock;
}

/** Puts back what ended leases still hold, and turns windows that are over. True when there may be more. */
export async function sweepBuckets({ tables, clock }: SweepOptions): Promise<boolean> {
  const { ended, due, policies } = await tables.systemRead(async (tx) => {
    const now = await tx.now();
    return {
      ended: await tx.list('reservations', {
        where: { expires_at: { lte: now } },
        orderBy: [['expires_at', 'asc']],
        limit: PAGE,
      }),
      due: await tx.list('usage_buckets', {
        where: { resets_at: { lte: now } },
        orderBy: [['resets_at', 'asc']],
        limit: PAGE,
      }),
      policies: await tx.list('usage_policies', {
        where: { next_usage_reset_at: { lte: now } },
        orderBy: [['next_usage_reset_at', 'asc']],
        limit: PAGE,
      }),
    };
  });
  const work = new Map<string, { readonly workspaceId: string; readonly leases: string[] }>();
  for (const { id, workspace_id: workspaceId } of due) work.set(id, { workspaceId, leases: [] });
  for (const { bucket_id: bucket, workspace_id: workspaceId, id } of ended) {
    const entry = work.get(bucket) ?? { workspaceId, leases: [] };
    entry.leases.push(id);
    work.set(bucket, entry);
  }
  for (const [bucket, { workspaceId, leases }] of work) {
    await tables.systemWrite(
      async (tx) => {
        const now = await tx.now();
        const row = await tx.find('usage_buckets', { id: bucket });
        if (row === undefined) return;
        if (isForgotten(row, now)) {
          await tx.remove('usage_buckets', { id: bucket });
          return;
        }
        const transaction = BucketTransaction.of(row, clock);
        transaction.turn(now);
        const over = { id: { in: leases }, expires_at: { lte: now } };
        const still = leases.length === 0 ? [] : await tx.list('reservations', { where: over });
        for (const { id, amount } of still) await transaction.release(tx, id, amount, 'expiry');
        await transaction.close(tx, now);
        if (still.length > 0) await tx.remove('reservations', over);
      },
      { queue: bucketQueue(workspaceId) },
    );
  }
  for (const { id } of policies) await advancePolicy(tables, id);
  return ended.length === PAGE || due.length === PAGE || policies.length === PAGE;
}

/**
 * One of many values of a policy, whose window ends with nothing in it, as those before. Callers choose such values: without
 * this they would fill the store. One that comes back begins anew, which is what its turn would have made of it.
 */
function isForgotten(row: Row<'usage_buckets'>, now: number): boolean {
  return (
    row.owner_kind === 'policy' &&
    row.resets_at !== null &&
    row.resets_at <= now &&
    row.period !== null &&
    row.used === 0 &&
    row.reserved === 0 &&
    row.last_updated_at < now - FORGET_MS
  );
}

/**
 * The dates that a policy shows; its buckets turn by their own. Nothing is announced: the limit specs of nodes hold the
 * former date, from which `firstReset` finds the same next one.
 */
async function advancePolicy(tables: Tables, id: string): Promise<void> {
  await tables.systemWrite(async (tx) => {
    const now = await tx.now();
    const row = await tx.find('usage_policies', { id });
    const due = row?.next_usage_reset_at;
    if (row === undefined || due == null || due > now) return;
    const patch = { last_reset_at: due, next_usage_reset_at: nextReset(periodOf(row), due, now) };
    await tx.update('usage_policies', { id, next_usage_reset_at: due }, patch);
  });
}
