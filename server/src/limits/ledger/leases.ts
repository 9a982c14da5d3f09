/** The leases of a node in memory: what requests take of them, and how they are renewed and given back. */
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import type { Tables } from '../../store/ports.ts';
import { NEAR, type Renewal, renewAll } from './grant-or-refuse.ts';
import { bucketQueue, type LeaseShare, type LimitCharge, type LocalBucket } from './held-reservation.ts';

/** Leases are renewed when this part of their time is over. */
const RENEW = 1 / 3;
const IDLE_MS = 1_000;
const FORGET_MS = 60_000;
/** Leases whose renewals share one transaction. */
const BATCH = 256;

export interface LeaseKeeping {
  readonly tables: Tables;
  /** The store's time. */
  readonly clock: Clock;
  readonly log: Log;
  readonly leaseMs: number;
  /** Whether all that is unspent goes back. */
  readonly giveUp: boolean;
}

/** Renews leases, gives back what is idle or near its limit, and forgets what nobody asks for. */
export async function keepLeases(held: Map<string, LocalBucket>, options: LeaseKeeping): Promise<void> {
  const { clock, log } = options;
  const now = clock.monotonic();
  const byWorkspace = new Map<string, LocalBucket[]>();
  for (const local of held.values()) {
    const idle = now - local.usedAt;
    if (local.available === 0 && local.holders === 0) {
      if (idle > FORGET_MS) held.delete(local.key);
      continue;
    }
    if (now >= local.leaseUntil) {
      local.available = 0;
      continue;
    }
    const workspaceId = local.key.slice(0, local.key.indexOf(' '));
    const list = byWorkspace.get(workspaceId);
    if (list === undefined) byWorkspace.set(workspaceId, [local]);
    else list.push(local);
  }
  for (const [workspaceId, locals] of byWorkspace) {
    for (let at = 0; at < locals.length; at += BATCH) {
      await renew(workspaceId, locals.slice(at, at + BATCH), now, options).catch((error: unknown) =>
        log.warn('leases of usage limits could not be renewed', { error: String(error) }),
      );
    }
  }
}

async function renew(
  workspaceId: string,
  locals: readonly LocalBucket[],
  now: number,
  options: LeaseKeeping,
): Promise<void> {
  const { tables, clock, leaseMs, giveUp } = options;
  const ids = locals.map((local) => local.bucket);
  const rows = new Map(
    (await tables.systemRead((tx) => tx.list('usage_buckets', { where: { id: { in: ids } } }))).map((row) => [
      row.id,
      row,
    ]),
  );
  const renewals: Renewal[] = [];
  for (const local of locals) {
    const row = rows.get(local.bucket);
    if (row === undefined || row.window_no !== local.window) {
      // The window has turned, or was reset by hand: the old lease is worth nothing.
      local.available = 0;
      local.leaseUntil = 0;
      continue;
    }
    const near = row.used + row.reserved > row.credit_limit * NEAR;
    const idle = now - local.usedAt > IDLE_MS;
    const back = near || idle || giveUp ? local.available : 0;
    const due = local.leaseUntil - now < leaseMs * (1 - RENEW);
    local.near ||= near;
    local.open = row.credit_limit - row.used - row.reserved;
    if (back === 0 && !due) continue;
    local.available -= back;
    renewals.push({ local, lease: local.lease, back });
  }
  if (renewals.length === 0) return;
  renewals.sort((a, b) => (a.local.key < b.local.key ? -1 : 1));
  const asked = clock.monotonic();
  let alive: ReadonlySet<string>;
  try {
    alive = await tables.systemWrite((tx) => renewAll(tx, renewals, { clock, leaseMs }), {
      queue: bucketQueue(workspaceId),
    });
  } catch (error) {
    // The parts that were to go back may have gone: the leases are left to their end.
    for (const { local, lease, back } of renewals) if (local.lease === lease && back > 0) local.leaseUntil = 0;
    throw error;
  }
  for (const { local, lease } of renewals) {
    if (local.lease !== lease) continue;
    if (alive.has(lease)) local.leaseUntil = asked + leaseMs;
    else {
      local.available = 0;
      local.leaseUntil = 0;
    }
  }
}

/** Whether what is known of a bucket is of the present window, by the present spec. */
export function isFresh(local: LocalBucket, { spec }: LimitCharge, now: number): boolean {
  return spec.at === local.specAt && now < local.resetsAt;
}

/** Whether the lease in memory has room. What may use more than it says asks the store where the limit is near. */
export function covers(local: LocalBucket, charge: LimitCharge, now: number, monotonic: number): boolean {
  return (
    isFresh(local, charge, now) &&
    monotonic < local.leaseUntil &&
    local.available >= Math.max(charge.amount, 1) &&
    !(local.near && !charge.bounded)
  );
}

export function takeFrom(local: LocalBucket, charge: LimitCharge): LeaseShare {
  local.available -= charge.amount;
  local.holders += 1;
  return partOf(local, charge, charge.amount);
}

export function partOf(local: LocalBucket, charge: LimitCharge, amount: number): LeaseShare {
  const { lease, bucket, window } = local;
  return { charge, local, lease, bucket, window, amount, wanted: 0, growing: false, ended: false, servedAt: 0 };
}

/** Of a request that is served although neither lease nor store has anything for it. */
export function servedPart(local: LocalBucket, charge: LimitCharge, servedAt: number): LeaseShare {
  return { ...partOf(local, charge, 0), lease: '', servedAt };
}
