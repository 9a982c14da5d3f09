/**
 * Usage of what outlives its request: batches and fine-tuning jobs that a provider runs for hours. Nothing of it is in a
 * node's memory: what is reserved and what is booked are changes of buckets in the caller's transaction, so that they
 * happen exactly as often as the row that they are written beside. The limit specs are those of the creation, kept with the
 * object: metadata that changes later does not move it to another bucket.
 */
import type { Clock } from '../../kernel/clock.ts';
import type { LimitType, UnpricedRule } from '../../store/schema.ts';
import { BucketTransaction, type BucketTx } from './bucket-transaction.ts';
import type { LimitSpec } from './limit-spec.ts';
import { exceeded } from './usage-refusal-text.ts';

/** Whole micro-dollars with picodollars beside them, tokens, requests. */
export interface DeferredUse {
  readonly cost: number;
  readonly carry: number;
  readonly tokens: number;
  readonly requests: number;
  /** Of `cost` limits: how much of it has no known price. */
  readonly unpriced: number;
}

export interface DeferredPlace {
  readonly organisationId: string;
  readonly workspaceId: string;
  /** Of the object, unique among all. */
  readonly id: string;
}

const leaseOf = ({ id }: DeferredPlace, bucket: string): string => `late ${id} ${bucket}`;

/** The buckets of the limits that still exist, always in the same order. */
async function transactionsOf(
  tx: BucketTx,
  place: DeferredPlace,
  specs: readonly LimitSpec[],
  clock: Clock,
  now: number,
) {
  const found: { readonly transaction: BucketTransaction; readonly spec: LimitSpec }[] = [];
  for (const one of specs) {
    const row = await tx.find('usage_buckets', {
      organisation_id: place.organisationId,
      workspace_id: place.workspaceId,
      owner_kind: one.ownerKind,
      owner_id: one.ownerId,
      bucket_key: one.bucketKey,
    });
    if (row === undefined || found.some(({ transaction }) => transaction.id === row.id)) continue;
    const transaction = BucketTransaction.of(row, clock);
    transaction.turn(now);
    found.push({ transaction, spec: one });
  }
  return found.sort((a, b) => (a.transaction.id < b.transaction.id ? -1 : 1));
}

function partOf(type: LimitType, use: Pick<DeferredUse, 'cost' | 'tokens' | 'requests'>): number {
  const amount = type === 'cost' ? use.cost : type === 'tokens' ? use.tokens : use.requests;
  return Math.max(0, Math.min(Number.MAX_SAFE_INTEGER, Math.round(amount)));
}

/**
 * Reserves an estimate under every limit until `settleDeferred`, or until `expiresAt` at the latest. Throws
 * `usage_limit_exceeded` when one of them has nothing left. Repeated for the same object it changes nothing.
 */
export async function reserveDeferred(
  tx: BucketTx,
  place: DeferredPlace,
  specs: readonly LimitSpec[],
  estimate: Pick<DeferredUse, 'cost' | 'tokens' | 'requests'>,
  expiresAt: number,
  clock: Clock,
  now: number,
): Promise<void> {
  for (const { transaction, spec: one } of await transactionsOf(tx, place, specs, clock, now)) {
    const id = leaseOf(place, transaction.id);
    if ((await tx.find('reservations', { id })) !== undefined) continue;
    if (!transaction.admits) throw exceeded(one, transaction.row, now, transaction.committed);
    const amount = partOf(one.type, estimate);
    if (amount > 0) await transaction.grant(tx, { id, node: 'late', expiresAt }, amount, now);
    await transaction.close(tx, now);
  }
}

/**
 * Books what an object used in the windows of now, and gives back what was reserved for it. Call it in the transaction
 * that marks the object as accounted for. A limit that was deleted is skipped.
 */
export async function settleDeferred(
  tx: BucketTx,
  place: DeferredPlace,
  specs: readonly LimitSpec[],
  used: DeferredUse,
  clock: Clock,
  now: number,
): Promise<void> {
  for (const { transaction, spec: one } of await transactionsOf(tx, place, specs, clock, now)) {
    const lease = leaseOf(place, transaction.id);
    const held = await tx.find('reservations', { id: lease });
    const own = one.type === 'cost' ? ruled(one.unpriced, used) : { ...used, carry: 0, unpriced: 0 };
    await transaction.settle(tx, {
      window: transaction.row.window_no,
      lease,
      reserved: held?.amount ?? 0,
      used: partOf(one.type, own),
      carry: own.carry,
      requests: used.requests,
      unpriced: own.unpriced,
      giveBack: true,
    });
    await transaction.close(tx, now);
    if (held !== undefined) await tx.remove('reservations', { id: lease });
  }
}

/** A limit that prices the unknown itself (dollars per million tokens) counts that; the classes are not known here. */
function ruled(rule: UnpricedRule | null, used: DeferredUse): DeferredUse {
  if (used.unpriced === 0 || used.tokens === 0 || rule === null || typeof rule === 'string') return used;
  return { ...used, cost: used.cost + Math.ceil(used.tokens * Math.max(rule.input, rule.output)), unpriced: 0 };
}
