/** What a node asks of the store, each in one transaction: reservations for a batch of requests, and its leases renewed. */
import type { Clock } from '../../kernel/clock.ts';
import type { SluiceError } from '../../kernel/errors.ts';
import { uuidv7 } from '../../kernel/id.ts';
import { admits, grantOf } from './bucket-math.ts';
import { BucketTransaction, type BucketTx, byId } from './bucket-transaction.ts';
import { keyOf, type LeaseShare, type LimitCharge, type LocalBucket } from './held-reservation.ts';
import type { LimitSpec } from './limit-spec.ts';
import { exceeded } from './usage-refusal-text.ts';

/** A lease drawn ahead is this part of the limit; none is drawn once `NEAR` of the limit is committed. */
const AHEAD = 1 / 256;
export const NEAR = 0.9;

export interface LeaseOptions {
  readonly clock: Clock;
  readonly node: string;
  readonly leaseMs: number;
}

/** One that waits for an answer: a request, or a part of one that grows `by` so much. */
export interface GrantRequest {
  readonly charges: readonly LimitCharge[];
  readonly grows: { readonly part: LeaseShare; readonly by: number } | null;
}

/** A bucket that a batch needs, and what of the node's lease goes back before anything is granted. */
export interface BucketRequest {
  readonly key: string;
  readonly local: LocalBucket;
  spec: LimitSpec;
  readonly surplus: number;
  /** '' when the node has none. */
  readonly lease: string;
}

/** A bucket without room, of which something may come back. */
export interface FullBucket {
  readonly key: string;
  /** Whether other nodes, or what outlives its request, hold a part of it. */
  readonly byOthers: boolean;
}

export interface Grants {
  /** What each asker has, per charge; or why not. */
  readonly answers: readonly (SluiceError | readonly number[])[];
  /** Of those that were refused: by which bucket, when something of it is not used but only reserved. */
  readonly taken: readonly (FullBucket | undefined)[];
  /** What was used and reserved, per charge, when it was granted. */
  readonly seen: readonly (readonly number[])[];
  readonly locals: readonly {
    readonly bucket: string;
    readonly window: number;
    readonly lease: string;
    readonly leased: boolean;
    readonly resetsAt: number | null;
    readonly near: boolean;
    readonly most: number;
    readonly ahead: number;
    /** Of the limit, what nobody has now. */
    readonly open: number;
    readonly refusal: SluiceError | null;
  }[];
}

interface Open {
  readonly transaction: BucketTransaction;
  readonly spec: LimitSpec;
  readonly lease: string;
  /** Whether the lease is the one the node had. */
  readonly same: boolean;
  /** What the requests of the batch take, all together. */
  wanted: number;
  /** Whether any of them is admitted, also for nothing. */
  admitted: boolean;
}

/** Only reads, computes and writes: it may run again. */
export async function grantAll(
  tx: BucketTx,
  place: { readonly organisationId: string; readonly workspaceId: string },
  askers: readonly GrantRequest[],
  ordered: readonly BucketRequest[],
  { clock, node, leaseMs }: LeaseOptions,
): Promise<Grants> {
  const now = await tx.now();
  const transactions = new Map<string, Open>();
  const rows = await byId(tx, 'usage_buckets', ordered.map(({ local }) => local.bucket).filter(Boolean));
  const leases = await byId(tx, 'reservations', ordered.map(({ lease }) => lease).filter(Boolean));
  for (const { key, local, spec, surplus, lease } of ordered) {
    const transaction = await BucketTransaction.open(tx, place, spec, clock, now, {
      row: rows.get(local.bucket),
      leases,
    });
    const same = lease !== '' && transaction.row.window_no === local.window;
    if (same) await transaction.release(tx, lease, surplus);
    transactions.set(key, { transaction, spec, lease: same ? lease : uuidv7(clock), same, wanted: 0, admitted: false });
  }
  const find = (charge: LimitCharge) => transactions.get(keyOf(place.workspaceId, charge.spec));
  // What runs already comes before what is new.
  const grown = askers.map(({ charges, grows }) => {
    const [charge] = charges;
    const open = grows === null || charge === undefined ? undefined : find(charge);
    if (grows === null || open === undefined || !open.same || open.lease !== grows.part.lease) return 0;
    open.wanted += grows.by;
    return grows.by;
  });
  const seen = askers.map((): number[] => []);
  const taken: (FullBucket | undefined)[] = [];
  const answers = askers.map(({ charges, grows }, n): SluiceError | number[] => {
    if (grows !== null) return [grown[n] ?? 0];
    const mine = charges.map(find);
    for (const one of mine) {
      if (one === undefined) continue;
      const committed = one.transaction.committed + one.wanted;
      const { used, reserved, credit_limit: limit } = one.transaction.row;
      if (!admits(committed, limit)) {
        const byOthers = reserved > one.transaction.heldBy(one.lease);
        if (admits(used, limit)) taken[n] = { key: keyOf(place.workspaceId, one.spec), byOthers };
        return exceeded(one.spec, one.transaction.row, now, committed);
      }
    }
    return charges.map((charge, i) => {
      const one = mine[i];
      if (one === undefined) return 0;
      const committed = one.transaction.committed + one.wanted;
      seen[n]?.push(committed);
      const amount = grantOf(charge, one.transaction.row.credit_limit, committed);
      one.wanted += amount;
      one.admitted = true;
      return amount;
    });
  });
  const locals: Grants['locals'][number][] = [];
  for (const { key } of ordered) {
    const open = transactions.get(key);
    if (open === undefined) continue;
    const { transaction, lease, same, wanted, admitted, spec } = open;
    const limit = transaction.row.credit_limit;
    const near = transaction.committed + wanted > limit * NEAR;
    const most = Math.floor(limit * AHEAD);
    // The request is refused: a value that was never used leaves nothing, or refused callers would fill the store with them.
    const unused = transaction.fresh && !admitted;
    const ahead = near || unused ? 0 : most;
    const leased = same || wanted + ahead > 0;
    const held = { id: lease, node, expiresAt: now + leaseMs };
    if (leased) await transaction.grant(tx, held, wanted + ahead, now);
    // Only a limit that is used up is refused from memory: what others have reserved may come back any time.
    const refusal = transaction.row.used >= limit ? exceeded(spec, transaction.row, now, transaction.committed) : null;
    if (!unused) await transaction.close(tx, now);
    const { id: bucket, window_no: window, resets_at: resetsAt } = transaction.row;
    const left = limit - transaction.committed;
    locals.push({ bucket, window, lease, leased, resetsAt, near, most, ahead, open: left, refusal });
  }
  return { answers, taken, seen, locals };
}

/** A lease that is kept, and what of it goes back. */
export interface Renewal {
  readonly local: LocalBucket;
  readonly lease: string;
  readonly back: number;
}

/** The leases that are still alive. Only reads, computes and writes. */
export async function renewAll(
  tx: BucketTx,
  renewals: readonly Renewal[],
  { clock, leaseMs }: Pick<LeaseOptions, 'clock' | 'leaseMs'>,
): Promise<ReadonlySet<string>> {
  const now = await tx.now();
  const alive = new Set<string>();
  const ids = renewals.map(({ lease }) => lease);
  const held = await byId(tx, 'reservations', ids);
  const buckets = await byId(
    tx,
    'usage_buckets',
    [...held.values()].map((row) => row.bucket_id),
  );
  for (const { lease, back } of renewals) {
    const row = held.get(lease);
    if (row === undefined) continue;
    const bucket = back === 0 ? undefined : buckets.get(row.bucket_id);
    if (back > 0 && (bucket === undefined || bucket.window_no !== row.window_no)) continue;
    alive.add(lease);
    if (bucket === undefined) continue;
    const transaction = BucketTransaction.of(bucket, clock, held);
    await transaction.release(tx, lease, back);
    await transaction.close(tx, now);
  }
  if (alive.size > 0) await tx.update('reservations', { id: { in: [...alive] } }, { expires_at: now + leaseMs });
  return alive;
}
