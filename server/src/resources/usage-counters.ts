/** What usage limits have counted: for answers, and for updates that reset, raise or lower them. */
import type { Clock } from '../kernel/clock.ts';
import { BucketTransaction } from '../limits/ledger/bucket-transaction.ts';
import { type LimitSpec, limitSpec, MAX_UNITS, shownAmount } from '../limits/ledger/limit-spec.ts';
import type { TenantTx } from '../store/ports.ts';
import type { LimitOwner, Row, UsageLimit } from '../store/schema.ts';
import { toIsoOrNull } from './body-fields.ts';

type Bucket = Row<'usage_buckets'>;

/** The counter of a limit of an owner; undefined while nothing was counted. */
export type UsageOf = (ownerId: string, limit: UsageLimit) => Bucket | undefined;

/** The counters of the owners of a page, in one query. `several` where an owner has more than one limit. */
export async function usageOf(
  tx: TenantTx,
  kind: LimitOwner,
  owners: readonly { readonly id: string; readonly usage_limits: unknown }[],
): Promise<UsageOf> {
  const limited = owners.filter((owner) => owner.usage_limits !== null).map(({ id }) => id);
  if (limited.length === 0) return () => undefined;
  const rows = await tx.list('usage_buckets', { where: { owner_kind: kind, owner_id: { in: limited } } });
  const byKey = new Map(rows.map((row) => [`${row.owner_id} ${row.bucket_key}`, row]));
  const several = kind === 'workspace';
  return (id, limit) => {
    const spec = limitSpec({ kind, id, label: '', at: 0 }, limit, several);
    return spec === null ? undefined : byKey.get(`${id} ${spec.bucketKey}`);
  };
}

/** The counters of the limits that workspaces have on an integration, by workspace, in one query. */
export async function accessUsage(
  tx: TenantTx,
  integrationId: string,
): Promise<(workspaceId: string, limit: UsageLimit) => Bucket | undefined> {
  const rows = await tx.list('usage_buckets', { where: { owner_kind: 'integration', owner_id: integrationId } });
  const byKey = new Map(rows.map((row) => [`${row.workspace_id} ${row.bucket_key}`, row]));
  return (workspaceId, limit) => {
    const spec = limitSpec({ kind: 'integration', id: integrationId, label: '', at: 0 }, limit);
    return spec === null ? undefined : byKey.get(`${workspaceId} ${spec.bucketKey}`);
  };
}

/**
 * Gives the counters of an owner to the one that takes its place. Requests of the old one that still run are counted
 * by the same rows.
 */
export async function moveUsage(
  tx: TenantTx,
  from: { readonly kind: LimitOwner; readonly id: string },
  to: { readonly kind: LimitOwner; readonly id: string },
): Promise<void> {
  const mine = { owner_kind: from.kind, owner_id: from.id } as const;
  await tx.update('usage_buckets', mine, { owner_kind: to.kind, owner_id: to.id });
}

/** A usage limit as it is answered, with what it has counted. */
export function presentUsage(
  limit: UsageLimit,
  bucket: Bucket | undefined,
  row: { readonly exhausted: boolean; readonly lastResetAt: number | null },
) {
  const type = limit.type ?? 'cost';
  return {
    ...limit,
    type,
    ...(bucket === undefined || (bucket.resets_at === null && limit.next_usage_reset_at == null)
      ? {}
      : { next_usage_reset_at: toIsoOrNull(bucket.resets_at) }),
    current_usage: bucket === undefined ? 0 : shownAmount(bucket.type, bucket.used),
    status: bucket?.status ?? (row.exhausted ? ('exhausted' as const) : ('active' as const)),
    last_reset_at: toIsoOrNull(latest(bucket?.last_reset_at ?? null, row.lastResetAt)),
  };
}

/** The later of two times. */
export function latest(a: number | null, b: number | null): number | null {
  return a === null ? b : b === null ? a : Math.max(a, b);
}

/** An owner's row as an update leaves it. */
export interface ChangedOwner {
  readonly kind: LimitOwner;
  readonly id: string;
  readonly label: string;
  readonly at: number;
  readonly usage_limits: UsageLimit | readonly UsageLimit[] | null;
  /** Where the limit holds, for an owner that has one in each workspace. */
  readonly workspaceId?: string;
}

/**
 * Makes the counters of an owner follow an update of its row, in the same transaction: new limits hold at once, a raised
 * one opens what was exhausted, and `reset` begins anew. True when a limit is used up all the same, null when nothing was counted yet.
 */
export async function followUpdate(
  tx: TenantTx,
  clock: Clock,
  owner: ChangedOwner,
  reset: boolean,
): Promise<boolean | null> {
  const buckets = await tx.list('usage_buckets', {
    where: {
      owner_kind: owner.kind,
      owner_id: owner.id,
      ...(owner.workspaceId === undefined ? {} : { workspace_id: owner.workspaceId }),
    },
  });
  if (buckets.length === 0) return null;
  const now = clock.now();
  const specs = new Map<string, LimitSpec>();
  const limits = [owner.usage_limits ?? []].flat() as UsageLimit[];
  for (const limit of limits) {
    const one = limitSpec(owner, limit, owner.kind === 'workspace');
    if (one !== null) specs.set(one.bucketKey, one);
  }
  let exhausted = false;
  for (const bucket of buckets) {
    const transaction = BucketTransaction.of(bucket, clock);
    transaction.turn(now);
    const next = specs.get(bucket.bucket_key);
    if (next !== undefined) transaction.adopt({ ...next, at: Math.max(next.at, bucket.terms_at + 1) }, now);
    else if (bucket.credit_limit !== MAX_UNITS) transaction.retire(now);
    if (reset && next !== undefined) transaction.reset(now);
    exhausted ||= next !== undefined && transaction.row.status === 'exhausted';
    await transaction.close(tx, now);
  }
  return exhausted;
}

/** The same for what has one limit and a status in its row: the patch gets the status that the counter says. */
export async function followPatch(
  call: { readonly tx: TenantTx; readonly clock: Clock },
  kind: LimitOwner,
  row: Pick<Row<'api_keys'>, 'id' | 'status' | 'usage_limits'> & { readonly label: string },
  patch: { status?: Row<'api_keys'>['status']; usage_limits?: UsageLimit | null },
  reset: boolean,
): Promise<void> {
  if (patch.usage_limits === undefined && !reset) return;
  const limit = patch.usage_limits === undefined ? row.usage_limits : patch.usage_limits;
  const owner = { kind, id: row.id, label: row.label, at: call.clock.now(), usage_limits: limit };
  const exhausted = await followUpdate(call.tx, call.clock, owner, reset);
  if (exhausted === null) return;
  if (exhausted) {
    if (patch.status === 'active' || (patch.status === undefined && row.status === 'active'))
      patch.status = 'exhausted';
  } else if (row.status === 'exhausted' && patch.status === undefined) patch.status = 'active';
}
