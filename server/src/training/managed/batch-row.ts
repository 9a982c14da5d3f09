/** What the row of a gateway-managed batch holds beside the public batch. */
import type { HeldCaller } from '../../auth/held-caller.ts';
import { BATCH_STAMPS } from '../../operations/batch-states.ts';
import { type Batch, type BatchRequest, type BatchStatus, FINAL_BATCH } from '../../operations/training.ts';
import type { ObjectCall } from '../../runtime/object-call.ts';
import type { SystemTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { ObjectUse } from '../usage/use.ts';
import type { BatchFault } from './batch-input.ts';

export type BatchRow = Row<'batches'>;

/** `batches.request`: what was asked, and how it is to be run. */
export interface BatchWork extends HeldCaller {
  /** Without `body`. */
  readonly batch: Omit<BatchRequest, 'body'>;
  /** `gateway_options`. */
  readonly options: Readonly<Record<string, string>>;
  readonly dropParams: readonly string[];
  /** API key that created the batch: its present rights and limits count for every line. Null: a token or user did. */
  readonly keyId: string | null;
  /** `provider`: the provider's own batch. `lines`: Sluice runs them itself. */
  readonly mode: 'provider' | 'lines';
}

/** A request that is tried again. */
export interface Retry {
  readonly line: number;
  readonly offset: number;
  /** Failures so far; waiting for a rate limit of Sluice is none. */
  readonly tries: number;
  /** Milliseconds since the epoch. */
  readonly at: number;
}

/** `batches.progress`: what earlier turns left behind for later ones. */
export interface BatchProgress {
  /** Milliseconds since the epoch. */
  readonly expiresAt: number;
  /** First line that was not begun. */
  readonly next: { readonly line: number; readonly offset: number };
  readonly retries: readonly Retry[];
  /** Requests under way at the same time in the next turn; fewer after limits or the provider's rate refused some. */
  readonly width: number;
  /** No further request is begun before: a limit holds, or the provider asked for it. Milliseconds since the epoch. */
  readonly notBefore?: number;
  /** Decided: how the batch ends once its files are written. */
  readonly end: {
    readonly status: 'completed' | 'failed' | 'expired' | 'cancelled';
    /** Of lines that have no result. */
    readonly unrun: { readonly code: string; readonly message: string };
    readonly fault: BatchFault | null;
  } | null;
  /**
   * Ids of the two files, new for every writing: a worker that lost the row and does not know it yet must not write over
   * the files of the one that ended the batch. Noted before the first byte, so that the next writing can remove them.
   */
  readonly output: string | null;
  readonly errors: string | null;
  /** Provider mode. `begun`: an upload or a submission may have happened that was not noted. */
  readonly begun: 'upload' | 'start' | null;
  readonly uploaded: string | null;
  /** Whether the provider was asked to cancel. */
  readonly told: boolean;
  /** What the provider's batch used, once its output was read. */
  readonly used?: ObjectUse;
}

export const workOf = (row: BatchRow): BatchWork => row.request as unknown as BatchWork;
export const progressOf = (row: BatchRow): BatchProgress => row.progress as unknown as BatchProgress;
export const publicOf = (row: BatchRow): Batch => row.batch as unknown as Batch;
export const stored = (value: object): Record<string, unknown> => value as Record<string, unknown>;

/** The batch without request fields nobody may see, as adapters take it. */
export function requestOf(row: BatchRow, inputFile: string): BatchRequest {
  const { batch } = workOf(row);
  // As when it was asked whether the provider can run it: metadata stays with Sluice.
  return { ...batch, input_file_id: inputFile, completion_window: '24h', metadata: null, body: {} };
}

export const seconds = (ms: number): number => Math.floor(ms / 1000);

/**
 * A row that a worker holds, as the scheduler gives it (`jobs/claim.ts`): writes reach the row only while it is held,
 * and reject otherwise.
 */
export interface BatchClaim {
  readonly row: BatchRow;
  /** Aborted when the row must be let go of. */
  readonly signal: AbortSignal;
  /** Aborted when somebody asked to cancel the batch. */
  readonly cancelled: AbortSignal;
  /** `now`: milliseconds since the epoch by the store's clock. */
  write(change: (tx: SystemTx, row: BatchRow, now: number) => Promise<Partial<BatchRow>>): Promise<BatchRow>;
}

/** How a turn ended: due again after so many milliseconds, or nothing is left to do. */
export type Turn = { readonly again: number } | 'done';

/** Columns of a change of status; a status already in force keeps its time. `more`: other fields of the public batch. */
export function changed(row: BatchRow, status: BatchStatus, now: number, more: object = {}): Partial<BatchRow> {
  const stamp = BATCH_STAMPS[status];
  const stamps = stamp !== undefined && row.status !== status ? { [stamp]: seconds(now) } : {};
  return { status, batch: { ...row.batch, status, ...stamps, ...more }, last_updated_at: now };
}

/** The status the row may take now: a batch that is being cancelled stays so until its end. */
export function statusOf(row: BatchRow, wanted: BatchStatus): BatchStatus {
  return row.status === 'cancelling' && !FINAL_BATCH.has(wanted) ? 'cancelling' : wanted;
}

/** What a provider's own batch has said no guardrail has seen; of a batch that is gone nobody knows. */
export function refuseUnjudged(call: Pick<ObjectCall, 'unjudged'>, row: BatchRow | undefined): void {
  if (call.unjudged != null && (row === undefined || workOf(row).mode === 'provider')) throw call.unjudged;
}

/** The batch that a file with this name is an output of; null for any other name. */
export const batchOfOutput = (filename: string): string | null =>
  /^(gw_batch_[\w-]+)_(?:output|error)\.jsonl$/.exec(filename)?.[1] ?? null;
