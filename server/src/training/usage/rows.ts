/**
 * The rows of `object_usage`: one for each batch or fine-tuning job that a provider runs, made before the provider hears
 * of it. What the object used is booked in the transaction that moves its row on, so it is booked once.
 *
 *     wait (Sluice's own object, until it ends) ─╮
 *     watch ⟲ (a provider's object) ─────────────┴▶ record ▶ done
 */
import type { Clock } from '../../kernel/clock.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { BucketTx } from '../../limits/ledger/bucket-transaction.ts';
import { type DeferredUse, settleDeferred } from '../../limits/ledger/job-usage.ts';
import type { LimitSpec } from '../../limits/ledger/limit-spec.ts';
import type { ObjectCall } from '../../runtime/object-call.ts';
import type { Row } from '../../store/schema.ts';
import type { ObjectUse } from './use.ts';

export type UsageRow = Row<'object_usage'>;
export type UsageStep = 'wait' | 'watch' | 'record' | 'done';

/** `object_usage.about`: what its record says, and how it is read. */
export interface UsageAbout {
  readonly operation: 'batch_create' | 'finetune_create';
  /** Of the request that made the object. */
  readonly requestId: string;
  readonly keyId: string | null;
  readonly userId: string | null;
  readonly provider: string;
  readonly model: string | null;
  /** Of a batch. */
  readonly endpoint: string | null;
  readonly metadata: Readonly<Record<string, string>> | null;
  /** Gateway headers that the provider's calls need. */
  readonly headers: Readonly<Record<string, string>>;
  /** Milliseconds since the epoch: when it is given up. */
  readonly until: number;
}

export const aboutOf = (row: UsageRow): UsageAbout => row.about as unknown as UsageAbout;
export const limitSpecsOf = (row: UsageRow): readonly LimitSpec[] => row.terms as unknown as readonly LimitSpec[];
export const useOf = (row: UsageRow): ObjectUse | null => row.result as unknown as ObjectUse | null;
const stored = (value: object): Record<string, unknown> => value as Record<string, unknown>;

/** Headers that say where a provider's files lie; adapters ask for them when they read an output. */
const PLACES = [
  'x-gateway-object-store-bucket',
  'x-gateway-cloud-storage-bucket-name',
  'x-gateway-amz-server-side-encryption',
  'x-gateway-amz-server-side-encryption-aws-kms-key-id',
] as const;

/** A batch may take a day, and a provider a while to tell its end; a job is followed for a month. */
const PATIENCE_MS = { batch: 3 * 24 * 60 * 60_000, job: 31 * 24 * 60 * 60_000 } as const;

/** A row for an object that `call` is about to make. */
export function usageRow(
  call: ObjectCall,
  parts: {
    readonly kind: UsageRow['kind'];
    /** `wait` when Sluice follows the object by itself. */
    readonly step: 'wait' | 'watch';
    /** Of Sluice's own object; absent: a new one. */
    readonly id?: string;
    readonly slug: string;
    readonly account: string;
    readonly provider: string;
    readonly model: string | null;
    readonly endpoint: string | null;
    readonly specs: readonly LimitSpec[];
    readonly metadata: Readonly<Record<string, string>> | null;
    readonly dueAt: number;
  },
  clock: Clock,
  now: number,
): UsageRow {
  const headers: Record<string, string> = {};
  for (const name of PLACES) {
    const value = call.header(name);
    if (value !== undefined) headers[name] = value;
  }
  const about: UsageAbout = {
    operation: parts.kind === 'batch' ? 'batch_create' : 'finetune_create',
    requestId: call.id,
    keyId: call.principal.keyId,
    userId: call.principal.userId,
    provider: parts.provider,
    model: parts.model,
    endpoint: parts.endpoint,
    metadata: parts.metadata,
    headers,
    until: now + PATIENCE_MS[parts.kind],
  };
  return {
    id: parts.id ?? uuidv7(clock),
    organisation_id: call.principal.organisationId,
    workspace_id: call.snapshot.workspaceId,
    kind: parts.kind,
    provider_slug: parts.slug,
    account: parts.account,
    object_id: parts.id ?? '',
    terms: [...parts.specs],
    about: stored(about),
    result: null,
    step: parts.step,
    cancel_requested: false,
    failures: 0,
    due_at: parts.dueAt,
    holder: null,
    held_until: 0,
    created_by: call.principal.keyId,
    created_at: now,
    last_updated_at: now,
  };
}

export const placeOf = (row: Pick<UsageRow, 'id' | 'organisation_id' | 'workspace_id'>) => ({
  organisationId: row.organisation_id,
  workspaceId: row.workspace_id,
  id: row.id,
});

/** Books what the object of a row used. Answers the columns to write in the same transaction. */
export async function booked(
  tx: BucketTx,
  row: UsageRow,
  use: ObjectUse,
  clock: Clock,
  now: number,
): Promise<Pick<UsageRow, 'step' | 'result' | 'last_updated_at'>> {
  const used: DeferredUse = {
    cost: use.cost,
    carry: use.carry,
    tokens: use.usage === null ? 0 : use.usage.input + use.usage.output,
    requests: use.requests,
    unpriced: use.unpriced,
  };
  await settleDeferred(tx, placeOf(row), limitSpecsOf(row), used, clock, now);
  return { step: 'record' satisfies UsageStep, result: stored(use), last_updated_at: now };
}

/** Books the end of Sluice's own object, in the transaction that ends it. The second end of one object changes nothing. */
export async function endObject(tx: BucketTx, id: string, use: ObjectUse, clock: Clock, now: number): Promise<void> {
  const row = await tx.find('object_usage', { id });
  if (row === undefined || row.step !== ('wait' satisfies UsageStep)) return;
  await tx.update('object_usage', { id }, { ...(await booked(tx, row, use, clock, now)), due_at: 0 });
}
