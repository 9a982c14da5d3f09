/** Work beside requests, a part of the composition root: what falls due, and the clean-up that one node does for all. */
import { purgeIdempotencyKeys } from './admin/idempotency.ts';
import { startLeader } from './jobs/leader.ts';
import { forget, forgetOld, type OldOptions } from './jobs/retention.ts';
import type { Scheduler } from './jobs/scheduler.ts';
import type { Closable, Lifecycle } from './kernel/lifecycle.ts';
import { purgeVectors } from './llm/cache/similar.ts';
import type { ObjectAnswer, ObjectCall, ObjectHandler } from './runtime/object-call.ts';
import { purgeOwners } from './runtime/owners.ts';
import type { OpenTraining, SharedServices } from './training/open.ts';

/** Rows one process works on at the same time: jobs mostly wait for their provider, batches mostly call it. */
const JOBS_AT_ONCE = 16;
const BATCHES_AT_ONCE = 8;
const USAGE_AT_ONCE = 4;
const SWEEP_FILES_MS = 60 * 60_000;
const SWEEP_ANSWERS_MS = 5 * 60_000;
const FORGET_OLD_MS = 60 * 60_000;

/** Read when the first file, batch or job is asked for or falls due: most nodes never need it, and idle memory counts. */
export class Training implements ObjectHandler, Closable {
  readonly #services: SharedServices;
  readonly #wake: (id: string) => void;
  #opened: Promise<OpenTraining> | null = null;

  constructor(services: SharedServices, wake: (id: string) => void) {
    this.#services = services;
    this.#wake = wake;
  }

  get isOpen(): boolean {
    return this.#opened !== null;
  }

  open(): Promise<OpenTraining> {
    this.#opened ??= import('./training/open.ts').then(({ openTraining }) => openTraining(this.#services, this.#wake));
    return this.#opened;
  }

  async handle(call: ObjectCall): Promise<ObjectAnswer> {
    return (await this.open()).handler.handle(call);
  }

  async close(): Promise<void> {
    await (await this.#opened)?.close();
  }
}

/** What is kept for so long and no longer. */
export type Kept = Pick<OldOptions, 'logs' | 'macs' | 'logDays' | 'auditDays'>;

/** The work of `jobs` nodes: turns at jobs and batches that are due, and the clean-up that one node does for all. */
export function startWork(
  lifecycle: Lifecycle,
  scheduler: Scheduler,
  training: Training,
  services: SharedServices,
  kept: Kept,
): void {
  const { tables, clock, log, node } = services;
  scheduler.add({
    table: 'training_jobs',
    concurrency: JOBS_AT_ONCE,
    run: async (claim) => (await training.open()).runJob(claim),
  });
  scheduler.add({
    table: 'batches',
    concurrency: BATCHES_AT_ONCE,
    run: async (claim) => (await training.open()).runBatch(claim),
  });
  scheduler.add({
    table: 'object_usage',
    concurrency: USAGE_AT_ONCE,
    run: async (claim) => (await training.open()).runUsage(claim),
  });
  lifecycle.own('due work', scheduler);
  scheduler.start();
  lifecycle.own(
    'file sweep',
    startLeader({
      tables,
      clock,
      log,
      node,
      name: 'file-sweep',
      everyMs: SWEEP_FILES_MS,
      async lead(signal) {
        const kept = training.isOpen || (await tables.systemRead((tx) => tx.count('files'))) > 0;
        if (kept) await (await training.open()).sweep(signal);
      },
    }),
  );
  lifecycle.own(
    'kept answers',
    startLeader({
      tables,
      clock,
      log,
      node,
      name: 'kept-answers',
      everyMs: SWEEP_ANSWERS_MS,
      async lead(signal) {
        await purgeIdempotencyKeys(tables);
        await purgeVectors(tables);
        await forget({ tables, signal });
        await purgeOwners(tables);
      },
    }),
  );
  if (kept.logDays === 0 && kept.auditDays === 0) return;
  lifecycle.own(
    'old records',
    startLeader({
      tables,
      clock,
      log,
      node,
      name: 'old-records',
      everyMs: FORGET_OLD_MS,
      lead: (signal) => forgetOld({ tables, log, ...kept, signal }),
    }),
  );
}
