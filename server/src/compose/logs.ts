/** The stored records of this machine: the keeper that has them, and the journal of this process as far as it is in files. */
import { readdir, stat } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { systemTenant } from '../auth/tenant.ts';
import { type Config, certificateVariables } from '../config.ts';
import { startLeader } from '../jobs/leader.ts';
import { missingEngine } from '../keeper/engine-package.ts';
import { importOldLogs, takeOverPositions } from '../keeper/import.ts';
import { journalsIn } from '../keeper/journal-reader.ts';
import type { KeeperClient } from '../keeper/keeper-client.ts';
import { KeptJournal } from '../keeper/kept-journal.ts';
import { LogKeeper } from '../keeper/log-keeper.ts';
import { NodeLogs } from '../keeper/node-logs.ts';
import { OldFiles } from '../keeper/old-files.ts';
import { bodyStore, StoredBodies, type StoredBodiesOptions } from '../keeper/stored-bodies.ts';
import { storedCatalog } from '../keeper/stored-catalog.ts';
import { serveKeeper, WorkerKeeper } from '../keeper/worker-keeper.ts';
import type { Log } from '../kernel/log.ts';
import type { Journal } from '../store/disk/journal.ts';
import type { OldLogs, Tables } from '../store/ports.ts';
import type { LogStore } from '../telemetry/log-query.ts';
import { openSegmentKey } from './body-keys.ts';
import type { Common } from './common.ts';
import type { Stores } from './stores.ts';

const MEMORY_MB = 512;
const MOST_THREADS = 2;
const LOOK_AGAIN_MS = 60 * 60_000;
const LEFT_BEHIND_MS = 5_000;

export interface Logs {
  readonly keeper: KeeperClient;
  /** What routes ask: the same, which says what other nodes have. */
  readonly store: LogStore;
  /** The same where it is started by this process; null in the others. */
  readonly own: LogKeeper | null;
  readonly journal: KeptJournal;
  /** Reads kept bodies. */
  readonly bodies: StoredBodies;
}

/** The first process of a machine has the keeper, which starts with the first need. The others ask that process. */
export async function openLogs(common: Common, stores: Stores, journal: Journal, dir: string): Promise<Logs> {
  const { config, clock, log, lifecycle, worker } = common;
  const { primary, index } = worker;
  const keptTo = keptToIn(stores.tables);
  const bodies = bodiesOf(common, stores);
  const own = index === 1 ? lifecycle.own('log keeper', keeperOf(common, stores, bodies)) : null;
  if (own !== null) {
    await moveOldLogs(common, stores, own, keptTo);
    const { tables, nodeId: node } = stores;
    lifecycle.own(
      'old log files',
      new OldFiles({ tables, keeper: own, node, days: config.logDays, elsewhere: config.logs !== null, clock, log }),
    );
    // It says its faults now, and sends what a start before has left.
    if (config.logs !== null) own.wake();
    if (await hasLeftBehind(common)) clock.after(LEFT_BEHIND_MS, () => own.wake());
    if (primary !== null) serveKeeper(primary, own);
  }
  const keeper = own ?? (primary === null ? null : new WorkerKeeper(primary, clock));
  if (keeper === null) throw new Error('a further process has a primary one');
  const kept = new KeptJournal({ journal, dir, keptTo, wake: () => keeper.wake(), clock, log });
  // An embedded store has one node.
  const { tables, nodeId } = stores;
  const store = tables.engine === 'postgres' ? new NodeLogs(keeper, tables, nodeId) : keeper;
  const journalKept = lifecycle.own('kept journal', kept);
  return { keeper, store, own, journal: journalKept, bodies: new StoredBodies(bodies, keeper) };
}

function bodiesOf({ clock }: Common, { tables, blobs, vault }: Stores): StoredBodiesOptions {
  const segmentKey = (...place: readonly [string, string, string]) => openSegmentKey(vault, ...place);
  return { blobs, tables, keys: vault, clock, tenantOf: systemTenant, segmentKey };
}

function keeperOf({ config, clock, log }: Common, { tables, nodeId }: Stores, bodies: StoredBodiesOptions): LogKeeper {
  return new LogKeeper({
    node: nodeId,
    dir: join(config.dataDir, 'logs'),
    spool: join(config.dataDir, 'spool'),
    workers: config.workers,
    memoryMb: MEMORY_MB,
    threads: Math.min(MOST_THREADS, availableParallelism()),
    catalog: storedCatalog(tables, nodeId, clock),
    bodies: bodyStore(bodies),
    clock,
    log,
    missing: missingEngine(),
    store: config.logs && { ...config.logs, password: config.logs.password.reveal() },
    env: certificateVariables(),
  });
}

/** Whether processes that are no more, of a start with more workers, have left records. */
async function hasLeftBehind({ config }: Common): Promise<boolean> {
  const spool = join(config.dataDir, 'spool');
  for (const { dir, worker } of await journalsIn(spool)) {
    if (worker <= config.workers) continue;
    const segments = (await readdir(dir)).filter((name) => name.endsWith('.journal'));
    for (const name of segments) if ((await stat(join(dir, name))).size > 0) return true;
  }
  return false;
}

type KeptTo = ReturnType<typeof keptToIn>;

function keptToIn(tables: Tables) {
  return (journal: string) =>
    tables.systemRead(async (tx) => {
      const found = await tx.find('log_positions', { journal });
      return found === undefined ? null : { segment: found.segment, offset: found.position };
    });
}

/** Records of a version before the keeper become log files, in the background. */
async function moveOldLogs(common: Common, { tables, node }: Stores, keeper: LogKeeper, keptTo: KeptTo): Promise<void> {
  const { config, clock, log, lifecycle } = common;
  const old = await openOldLogs(config, log);
  if (old === null) return;
  lifecycle.own('log store of an older version', old);
  const spool = join(config.dataDir, 'spool');
  await takeOverPositions(spool, old, async (journal, { segment, offset }) => {
    await tables.systemWrite(async (tx) => {
      const there = await tx.find('log_positions', { journal });
      if (there === undefined) await tx.insert('log_positions', { journal, segment, position: offset });
    });
  });
  // Nodes of an older version may still write to a database that they share: it is looked at again.
  const lead = async (signal: AbortSignal) => {
    await importOldLogs({ old, spool, keptTo, flush: () => keeper.flush(), clock, log, signal });
  };
  lifecycle.own(
    'move of old records',
    startLeader({ tables, clock, log, node, name: 'old-records-to-files', everyMs: LOOK_AGAIN_MS, lead }),
  );
}

async function openOldLogs(config: Config, log: Log): Promise<OldLogs | null> {
  if (config.databaseUrl === null) {
    const { openOldSqliteLogs } = await import('../store/sqlite/old-logs.ts');
    return openOldSqliteLogs(join(config.dataDir, 'logs.db'), log);
  }
  const { openOldPostgresLogs } = await import('../store/postgres/old-logs.ts');
  return openOldPostgresLogs(config.databaseUrl, log);
}
