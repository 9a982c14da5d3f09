import { systemTenant, tenantOf } from '../../auth/tenant.ts';
import { adapterContext } from '../../gateway/account-access.ts';
import type { AdapterContext, TrainingAdapter } from '../../providers/training.ts';
import type { Account, ObjectCall } from '../../runtime/object-call.ts';
import type { SystemTx, TenantContext } from '../../store/ports.ts';
import { accountOfStored, adapterOf } from '../account.ts';
import type { TrainingServices } from '../services.ts';
import { digest, type JobRow, requestOf } from './job-row.ts';

/** What running jobs needs; `TrainingServices` fits. */
export type JobServices = Pick<
  TrainingServices,
  'tables' | 'blobs' | 'scratch' | 'clock' | 'log' | 'runtime' | 'egress' | 'fetcher' | 'tokens' | 'local' | 'pricer'
>;

export interface JobSettings {
  /** Milliseconds between looks at a provider's job: first and longest. */
  readonly pollMs: readonly [first: number, most: number];
  /** Failures in a row until a job is given up: the provider cannot be reached, will not let us in, or we are at fault. */
  readonly patience: { readonly unreachable: number; readonly refused: number; readonly internal: number };
  /** Milliseconds a cancel call waits for the provider's word. */
  readonly cancelMs: number;
}

export const JOB_DEFAULTS: JobSettings = {
  // The first looks come soon: a short job is seen in each of its states.
  pollMs: [1_000, 60_000],
  // With waits that grow to five minutes: about a day, a quarter of an hour, half an hour.
  patience: { unreachable: 300, refused: 10, internal: 12 },
  cancelMs: 20_000,
};

/** A row that a worker holds, as the scheduler gives it (`jobs/claim.ts`). */
export interface JobClaim {
  readonly row: JobRow;
  /** Aborted when the row must be let go of. */
  readonly signal: AbortSignal;
  /** Aborted when somebody asked to cancel the job after the row was claimed. */
  readonly cancelled: AbortSignal;
  /** Reaches the row only while it is held, and rejects otherwise. `now`: milliseconds by the store's clock. */
  write(change: (tx: SystemTx, row: JobRow, now: number) => Promise<Partial<JobRow>>): Promise<JobRow>;
}

/** How a turn ended: due again after so many milliseconds, or nothing is left to do. */
export type Turn = { readonly again: number } | 'done';

/** An account ready to be called. */
export interface Connection {
  readonly account: Account;
  readonly adapter: TrainingAdapter;
  readonly context: AdapterContext;
  readonly tenant: TenantContext;
}

export const tenantOfRow = (row: JobRow): TenantContext => systemTenant(row.organisation_id, row.workspace_id);

/**
 * The account of a job as it is now, without a request. The context gives the same ids in the same order each time:
 * providers that know a request again by its token do so after a restart, too. `filename` names what is uploaded.
 */
export async function connect(
  services: JobServices,
  row: JobRow,
  options: { readonly signal?: AbortSignal; readonly filename?: string } = {},
): Promise<Connection> {
  const snapshot = await services.runtime.workspace(row.organisation_id, row.workspace_id);
  const account = await accountOfStored(services, snapshot, row.provider_slug);
  const tenant = tenantOfRow(row);
  const { headers, dropParams } = requestOf(row);
  const context = adapterContext(services, account, {
    organisationId: row.organisation_id,
    header: headerOf(headers, options.filename),
    dropParams: new Set(dropParams),
    ...(options.signal === undefined ? null : { signal: options.signal }),
  });
  return {
    account,
    tenant,
    adapter: adapterOf(services, account, tenant),
    context: { ...context, uuid: uuids(row.id) },
  };
}

/** The same within a request, whose account was found the way every request finds it. */
export function connectCall(
  services: JobServices,
  call: ObjectCall,
  account: Account,
  options: { readonly jobId: string; readonly headers: Readonly<Record<string, string>>; readonly filename?: string },
): Connection {
  const tenant = tenantOf(call.principal, call.snapshot.workspaceId);
  const context = adapterContext(services, account, {
    organisationId: tenant.organisationId,
    header: headerOf(options.headers, options.filename),
    dropParams: call.dropParams,
    signal: call.signal,
    attempted: (attempt) => call.attempted(attempt),
    moved: call.moved,
  });
  return {
    account,
    tenant,
    adapter: adapterOf(services, account, tenant),
    context: { ...context, uuid: uuids(options.jobId) },
  };
}

/** Stored objects are named after the job: two files never get one name, and what a lost worker left is found again. */
function headerOf(headers: Readonly<Record<string, string>>, filename: string | undefined) {
  return (name: string): string | undefined =>
    filename !== undefined && NAMES.has(name) ? filename : Object.hasOwn(headers, name) ? headers[name] : undefined;
}

/** Headers that would name the uploaded object. */
export const NAMES: ReadonlySet<string> = new Set(['x-gateway-provider-file-name', 'x-gateway-aws-s3-object-key']);

function uuids(jobId: string): () => string {
  let count = 0;
  return () => {
    const hex = digest(jobId, 'uuid', String(count++));
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
  };
}
