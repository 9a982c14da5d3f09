import { join } from 'node:path';
import { cloudVariable, readCloudFile } from '../config.ts';
import { createFetcher } from '../http/background-fetcher.ts';
import type { EgressGuard } from '../http/egress-guard.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Pricer } from '../pricing/price.ts';
import { createTokenCache } from '../providers/token-cache.ts';
import type { ObjectAnswer, ObjectCall, ObjectHandler } from '../runtime/object-call.ts';
import type { Runtime } from '../runtime/runtime.ts';
import { openDiskScratch } from '../store/disk/scratch.ts';
import type { Recorder } from '../telemetry/recorder.ts';
import type { OpenTraining, SharedServices } from '../training/open.ts';
import type { Common } from './common.ts';
import type { Stores } from './stores.ts';

/** Largest input file of a batch. */
const MAX_BATCH_BYTES = 100 * 1024 * 1024;

/** Read when the first file, batch or job is asked for or falls due: most nodes never need it, and idle memory counts. */
export class Training implements ObjectHandler, Closable {
  readonly services: SharedServices;
  readonly #wake: (id: string) => void;
  #opened: Promise<OpenTraining> | null = null;

  constructor(services: SharedServices, wake: (id: string) => void) {
    this.services = services;
    this.#wake = wake;
  }

  get isOpen(): boolean {
    return this.#opened !== null;
  }

  open(): Promise<OpenTraining> {
    this.#opened ??= import('../training/open.ts').then(({ openTraining }) => openTraining(this.services, this.#wake));
    return this.#opened;
  }

  async handle(call: ObjectCall): Promise<ObjectAnswer> {
    return (await this.open()).handler.handle(call);
  }

  async close(): Promise<void> {
    await (await this.#opened)?.close();
  }
}

interface Parts {
  readonly egress: EgressGuard;
  readonly runtime: Runtime;
  readonly pricer: Pricer;
  readonly recorder: Recorder;
  /** Tells this process's scheduler, when it has one, that a row was added or changed. */
  readonly wake: (id: string) => void;
}

/** Files, batches and fine-tuning jobs of this process. */
export async function openTraining(common: Common, { tables, blobs, node }: Stores, parts: Parts): Promise<Training> {
  const { config, clock, log, lifecycle } = common;
  const { egress, runtime, pricer, recorder, wake } = parts;
  const services: SharedServices = {
    tables,
    blobs,
    scratch: await openDiskScratch({ dir: join(config.dataDir, 'scratch'), clock, reserveBytes: config.diskReserve }),
    clock,
    log,
    egress,
    fetcher: lifecycle.own('calls off the hot path', createFetcher({ egress, clock })),
    runtime,
    pricer,
    tokens: createTokenCache(() => clock.now()),
    ambient: config.cloudIdentity ? { variable: cloudVariable, file: readCloudFile } : null,
    node,
    recordOnce: (key, draft) => new Promise((resolve) => recorder.once(key, draft, resolve)),
    maxUploadBytes: config.maxUploadBytes,
    maxBatchBytes: MAX_BATCH_BYTES,
    settings: { concurrency: config.batchConcurrency },
    filesQuota: config.filesQuota,
  };
  return lifecycle.own('files, batches and jobs', new Training(services, wake));
}
