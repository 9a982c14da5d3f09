import type { Closable } from '../kernel/lifecycle.ts';
import type { RunInternalCall } from '../runtime/internal-call.ts';
import type { ObjectHandler } from '../runtime/object-call.ts';
import { createTraining } from './handler.ts';
import type { BatchClaim } from './managed/batch-row.ts';
import { runBatchTurn } from './managed/batch-runner.ts';
import { ManagedBatches } from './managed/batches.ts';
import { ManagedFiles } from './managed/files.ts';
import type { JobClaim, Turn } from './managed/job-services.ts';
import { createManagedJobs } from './managed/jobs.ts';
import type { TrainedKind } from './object-ownership.ts';
import { sandboxTraining } from './sandbox/sandbox.ts';
import type { TrainingServices } from './services.ts';
import { type AccountPlace, listUnowned } from './unowned.ts';
import { runUsageTurn, type UsageClaim } from './usage/work.ts';

/** Files, batches and fine-tuning jobs of one process: the answers to requests, and the turns of work without one. */
export interface OpenTraining extends Closable {
  readonly handler: ObjectHandler;
  /** One turn at a claimed row of `training_jobs`. */
  runJob(claim: JobClaim): Promise<Turn>;
  /** One turn at a claimed row of `batches`, whose lines `runLine` runs. */
  runBatch(claim: BatchClaim, runLine: RunInternalCall): Promise<Turn>;
  /** One turn at a row of `object_usage`. */
  runUsage(claim: UsageClaim): Promise<Turn>;
  /** As `listUnowned`. */
  unowned(place: AccountPlace, kind: TrainedKind, after: string | null, limit: number): ReturnType<typeof listUnowned>;
  /** Finishes or removes what a killed process left of its uploads; for one node at a time. */
  sweep(signal: AbortSignal): Promise<void>;
}

/** What the rest of the process gives; what only this area needs is made here. */
export type SharedServices = Omit<TrainingServices, 'local'>;

/** `wake` tells this process's scheduler, when it has one, that a row was added or changed. */
export function openTraining(shared: SharedServices, wake: (id: string) => void): OpenTraining {
  const { tables, blobs, clock, log } = shared;
  const parts = { tables, blobs, clock, log };
  const services: TrainingServices = { ...shared, local: (tenant) => sandboxTraining(parts, tenant) };
  const files = new ManagedFiles(services);
  const jobs = createManagedJobs(services, { wake });
  const batches = new ManagedBatches({ ...services, wake });
  return {
    handler: createTraining(services, { files, jobs, batches }),
    runJob: (claim) => jobs.run(claim),
    runBatch: (claim, runLine) => runBatchTurn(claim, { ...services, runLine }),
    runUsage: (claim) => runUsageTurn(claim, services),
    unowned: (place, kind, after, limit) => listUnowned(services, place, kind, after, limit),
    async sweep(signal) {
      const { removed, checked } = await files.sweep(signal);
      if (removed + checked > 0) log.info('files that a lost process left were settled', { removed, checked });
    },
    close: () => files.close(),
  };
}
