/** The stored records of this machine: the keeper that has them, and the journal of this process as far as it is in files. */
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { systemTenant } from '../auth/tenant.ts';
import type { KeeperClient } from '../keeper/keeper-client.ts';
import { KeptJournal } from '../keeper/kept-journal.ts';
import { LogKeeper } from '../keeper/log-keeper.ts';
import { bodyStore, StoredBodies, type StoredBodiesOptions } from '../keeper/stored-bodies.ts';
import { storedCatalog } from '../keeper/stored-catalog.ts';
import { serveKeeper, WorkerKeeper } from '../keeper/worker-keeper.ts';
import type { Journal } from '../store/disk/journal.ts';
import { openSegmentKey } from './body-keys.ts';
import type { Common } from './common.ts';
import type { Stores } from './stores.ts';

const MEMORY_MB = 512;
const MOST_THREADS = 2;

export interface Logs {
  readonly keeper: KeeperClient;
  readonly journal: KeptJournal;
  /** Reads kept bodies. */
  readonly bodies: StoredBodies;
}

/** The first process of a machine has the keeper, which starts with the first need. The others ask that process. */
export function openLogs(common: Common, stores: Stores, journal: Journal): Logs {
  const { clock, log, lifecycle, worker } = common;
  const { tables } = stores;
  const bodies = bodiesOf(common, stores);
  const keeper =
    worker.primary !== null && worker.index > 1
      ? new WorkerKeeper(worker.primary, clock)
      : lifecycle.own('log keeper', keeperOf(common, stores, bodies));
  if (worker.primary !== null && worker.index === 1) serveKeeper(worker.primary, keeper);
  const keptTo = (name: string) =>
    tables.systemRead(async (tx) => {
      const found = await tx.find('log_positions', { journal: name });
      return found === undefined ? null : { segment: found.segment, offset: found.position };
    });
  const kept = new KeptJournal({ journal, keptTo, wake: () => keeper.wake(), clock, log });
  const readsBodies = new StoredBodies(bodies, keeper);
  return { keeper, journal: lifecycle.own('kept journal', kept), bodies: readsBodies };
}

function bodiesOf({ clock }: Common, { tables, blobs, vault }: Stores): StoredBodiesOptions {
  const segmentKey = (...place: readonly [string, string, string]) => openSegmentKey(vault, ...place);
  return { blobs, tables, keys: vault, clock, tenantOf: systemTenant, segmentKey };
}

function keeperOf({ config, clock, log }: Common, { tables, nodeId }: Stores, bodies: StoredBodiesOptions): LogKeeper {
  return new LogKeeper({
    dir: join(config.dataDir, 'logs'),
    spool: join(config.dataDir, 'spool'),
    workers: config.workers,
    memoryMb: MEMORY_MB,
    threads: Math.min(MOST_THREADS, availableParallelism()),
    catalog: storedCatalog(tables, nodeId, clock),
    bodies: bodyStore(bodies),
    clock,
    log,
  });
}
