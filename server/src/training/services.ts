import type { AccountServices } from '../gateway/account-access.ts';
import type { Log } from '../kernel/log.ts';
import type { Pricer } from '../pricing/price.ts';
import type { TrainingAdapter } from '../providers/training.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { Blobs, Scratch, Tables, TenantContext } from '../store/ports.ts';
import type { RecordDraft } from '../telemetry/recorder.ts';

/** What files, batches and jobs may use. Made once in `compose/training.ts`. */
export interface TrainingServices extends AccountServices {
  readonly tables: Tables;
  readonly blobs: Blobs;
  readonly scratch: Scratch;
  readonly log: Log;
  readonly runtime: Runtime;
  readonly pricer: Pricer;
  /** Name of this process in leases. */
  readonly node: string;
  /** Files, jobs and batches of the provider that answers inside the process, for one workspace. */
  readonly local: (tenant: TenantContext) => TrainingAdapter;
  /** Journals a record; resolves when it would survive a kill. The log store keeps one of each key. */
  readonly recordOnce: (key: string, draft: RecordDraft) => Promise<void>;
  /** Largest upload, and largest batch input, bytes. */
  readonly maxUploadBytes: number;
  readonly maxBatchBytes: number;
  /** Of batches that Sluice runs itself. */
  readonly settings?: { readonly concurrency: number };
  /** Bytes that the files of one organisation may have together in Sluice's own store; 0 or absent: any. */
  readonly filesQuota?: number;
}
