import { createHash } from 'node:crypto';
import { systemTenant } from '../../auth/tenant.ts';
import { adapterContext } from '../../gateway/account-access.ts';
import type { AdapterContext, TrainingAdapter } from '../../providers/training.ts';
import type { RunInternalCall } from '../../runtime/internal-call.ts';
import type { Account } from '../../runtime/object-call.ts';
import { accountOfStored, adapterOf } from '../account.ts';
import { type ObjectOwnership, ownershipOf } from '../object-ownership.ts';
import type { TrainingServices } from '../services.ts';
import { type BatchRow, workOf } from './batch-row.ts';
import { NAMES } from './job-services.ts';

/** An account's adapter, ready to be called without a request. */
export interface OpenAccount {
  readonly account: Account;
  readonly adapter: TrainingAdapter;
  readonly context: AdapterContext;
  /** Whose the provider's objects are; null where it keeps workspaces apart itself. */
  readonly ledger: ObjectOwnership | null;
  /** Texts that must not be passed on. */
  readonly secrets: readonly string[];
}

/** What batches need; `TrainingServices` fits. */
export interface BatchServices
  extends Pick<
    TrainingServices,
    | 'tables'
    | 'blobs'
    | 'clock'
    | 'log'
    | 'maxBatchBytes'
    | 'runtime'
    | 'egress'
    | 'fetcher'
    | 'tokens'
    | 'local'
    | 'pricer'
  > {
  readonly settings?: Partial<BatchSettings>;
}

/** What turns at batches need besides. */
export interface TurnServices extends BatchServices {
  readonly runLine: RunInternalCall;
}

/**
 * The account of a batch as it is now, without a request; throws `out_of_service` when it cannot be used any more.
 * Uploads are named after the batch, and ids the adapter asks for are the same each time, so that providers that
 * know a request again by its token do so after a restart, too.
 */
export async function openAccount(services: BatchServices, row: BatchRow, signal: AbortSignal): Promise<OpenAccount> {
  const snapshot = await services.runtime.workspace(row.organisation_id, row.workspace_id);
  const account = await accountOfStored(services, snapshot, row.provider_slug);
  const { options, dropParams } = workOf(row);
  const context = adapterContext(services, account, {
    organisationId: row.organisation_id,
    header: headerOf(row.id, options),
    dropParams: new Set(dropParams),
    signal,
  });
  const tenant = systemTenant(row.organisation_id, row.workspace_id);
  return {
    account,
    adapter: adapterOf(services, account, tenant),
    context: { ...context, uuid: uuidsOf(row.id) },
    ledger: ownershipOf(services, account, { tenant, createdBy: row.created_by }),
    secrets: account.secrets,
  };
}

/** Of what is uploaded for a batch. */
export const inputName = (batchId: string): string => `${batchId}.jsonl`;

/** Gateway headers of a batch; those that name an uploaded object give the batch's own name. */
export function headerOf(batchId: string, options: Readonly<Record<string, string>>) {
  return (name: string): string | undefined =>
    NAMES.has(name) ? inputName(batchId) : Object.hasOwn(options, name) ? options[name] : undefined;
}

export function uuidsOf(batchId: string): () => string {
  let count = 0;
  return () => {
    const hex = createHash('sha256').update(`${batchId} uuid ${count++}`).digest('hex');
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
  };
}

export interface BatchSettings {
  /** Requests that are under way at the same time, for each batch; fewer while limits or the provider refuse some. */
  readonly concurrency: number;
  /** Milliseconds until a request that failed is tried again, twice as many each time; its answer may ask for more. */
  readonly retryMs: number;
  /** Further tries of a request that failed in a way that may pass. */
  readonly retries: number;
  /** Milliseconds a batch may take in all. */
  readonly expiresMs: number;
  /** Milliseconds between looks at a provider's batch: first and longest. */
  readonly pollMs: readonly [first: number, most: number];
  /** Largest request of a line, bytes. */
  readonly maxLineBytes: number;
  /** Turns that may fail before an upload or a submission is given up. */
  readonly attempts: number;
}

const BATCH_DEFAULTS: BatchSettings = {
  concurrency: 50,
  retryMs: 5_000,
  retries: 3,
  expiresMs: 24 * 60 * 60_000,
  pollMs: [5_000, 60_000],
  maxLineBytes: 32 * 1024 * 1024,
  // With waits that grow to five minutes: about twenty minutes.
  attempts: 12,
};

export const settingsOf = (services: Pick<BatchServices, 'settings'>): BatchSettings => ({
  ...BATCH_DEFAULTS,
  ...services.settings,
});
