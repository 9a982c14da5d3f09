/** The stored records of this machine: the keeper that has them, and the journal of this process as far as it is in files. */
import { readdir, stat } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { systemTenant } from '../auth/tenant.ts';
import { type Config, certificateVariables } from '../config.ts';
import { startLeader, takeLease } from '../jobs/leader.ts';
import { FeedbackForgetter } from '../jobs/log-erasures.ts';
import { missingEngine } from '../keeper/engine-package.ts';
import { importOldLogs, takeOverPositions } from '../keeper/import.ts';
import { journalsIn } from '../keeper/journal-reader.ts';
import { KeptJournal } from '../keeper/journal-trimmer.ts';
import type { KeeperClient } from '../keeper/keeper-client.ts';
import { LogKeeper } from '../keeper/keeper-launcher.ts';
import { serveKeeper, WorkerKeeper } from '../keeper/keeper-relay.ts';
import { SignsOfLife } from '../keeper/known-node.ts';
import { NodeLogs } from '../keeper/node-logs.ts';
import { OldFiles } from '../keeper/old-files.ts';
import type { SharedCatalogOptions } from '../keeper/shared-catalog.ts';
import { bodyStore, StoredBodies, type StoredBodiesOptions } from '../keeper/stored-bodies.ts';
import { storedCatalog } from '../keeper/stored-catalog.ts';
import type { Log } from '../kernel/log.ts';
import { LIST_COLUMNS } from '../resources/logs/rows.ts';
import type { Journal } from '../store/disk/journal.ts';
import type { Bus, OldLogs, Tables } from '../store/ports.ts';
import type { LogStore } from '../telemetry/log-query.ts';
import { openSegmentKey } from './body-keys.ts';
import type { Common } from './common.ts';
import type { Shared as SharedParts } from './shared.ts';
import type { Stores } from './stores.ts';

const MEMORY_MB = 512;
const MOST_THREADS = 2;
const LOOK_AGAIN_MS = 60 * 60_000;
const LEFT_BEHIND_MS = 5_000;
/** Of a node that shares its files: others see a record at most five seconds after it was written. */
const SHARED_FLUSH_MS = 4_000;
const SHARED_TICK_MS = 1_000;
const SHARED_START_MS = 1_000;
const REPLACED_EVERY_MS = 60_000;
/** Of one node among all, for a merge. */
const LEAD_MS = 2 * 60_000;
/** At the end, how long the last records may take to reach the others. */
const LEAVE_MS = 5_000;
/** A node that has said nothing for so long is away. */
const LIVES_MS = 15_000;
/** In its name log files are in the blob store: no organisation has such an id. */
const OF_ALL = 'log-files';

export interface Logs {
  readonly keeper: KeeperClient;
  /** What routes ask: the same, which says what other nodes have. */
  readonly store: LogStore;
  /** The same where it is started by this process; null in the others. */
  readonly own: LogKeeper | null;
  readonly journal: KeptJournal;
  /** The files of all nodes are read here, and those of this node by all. */
  readonly shared: boolean;
  /** Reads kept bodies. */
  readonly bodies: StoredBodies;
  /** Gives the last records to the other nodes; within some seconds, and never rejects. */
  leave(): Promise<void>;
  /** Where the keeper sends what it erases. */
  readonly feedback: FeedbackForgetter;
}

/** The first process of a machine has the keeper, which starts with the first need. The others ask that process. */
export async function openLogs(
  common: Common,
  stores: Stores,
  { bus }: Pick<SharedParts, 'bus'>,
  journal: Journal,
  dir: string,
): Promise<Logs> {
  const { config, clock, log, lifecycle, worker } = common;
  const { primary, index } = worker;
  const keptTo = keptToIn(stores.tables);
  const bodies = bodiesOf(common, stores);
  const feedback = new FeedbackForgetter(stores.tables);
  const shared = index === 1 ? await shareFiles(common, stores) : null;
  const { tables, nodeId, storeClock } = stores;
  // Where records of several nodes go to one store elsewhere.
  const sending =
    config.logs === null || tables.engine === 'sqlite'
      ? null
      : (await import('../keeper/known-node.ts')).knownNode(tables, nodeId, storeClock);
  const signs =
    sending === null || index !== 1
      ? null
      : lifecycle.own('signs of life', new SignsOfLife(() => sending.announce(null), clock, log));
  const own = index === 1 ? lifecycle.own('log keeper', keeperOf(common, stores, bodies, shared, feedback)) : null;
  if (own !== null) {
    await moveOldLogs(common, stores, own, keptTo);
    lifecycle.own(
      'old log files',
      new OldFiles({
        tables,
        keeper: own,
        node: shared === null ? nodeId : null,
        days: config.logDays,
        elsewhere: config.logs !== null,
        clock,
        log,
      }),
    );
    // It says its faults now, and sends what a start before has left.
    if (config.logs !== null) own.wake();
    await signs?.begin();
    if (shared !== null) clock.after(SHARED_START_MS, () => own.wake());
    else if (await hasLeftBehind(common)) clock.after(LEFT_BEHIND_MS, () => own.wake());
    if (primary !== null) serveKeeper(primary, own);
  }
  const keeper = own ?? (primary === null ? null : new WorkerKeeper(primary, clock));
  if (keeper === null) throw new Error('a further process has a primary one');
  const kept = new KeptJournal({ journal, dir, keptTo, wake: () => keeper.wake(), clock, log });
  // An embedded store has one node.
  const alone = tables.engine === 'sqlite' || isShared(common, stores);
  const nodes = alone ? keeper : new NodeLogs(keeper, tables, nodeId, config.logs && clock);
  const store = tables.engine === 'sqlite' ? nodes : await openFleetTail(common, stores, bus, { nodes, keeper });
  const leave = async () => {
    const known = shared?.shared ?? sending;
    if (own === null || known === null) return;
    await signs?.close();
    const give = async () => {
      await own.flush();
      const { state } = await own.health();
      // A node with something left on its disk is one that will come back.
      if (config.workers === 1 && state?.bodies.waiting === 0) await known.retire();
    };
    const given = give();
    await Promise.race([given.catch(() => undefined), new Promise<void>((resolve) => clock.after(LEAVE_MS, resolve))]);
  };
  const journalKept = lifecycle.own('kept journal', kept);
  const read = new StoredBodies(bodies, keeper);
  return { keeper, store, own, journal: journalKept, shared: isShared(common, stores), bodies: read, leave, feedback };
}

/** The same, which also follows the requests of other nodes. */
async function openFleetTail(
  { clock, lifecycle, worker }: Common,
  { tables, vault, nodeId, runId, storeClock }: Stores,
  bus: Bus | null,
  { nodes, keeper }: { readonly nodes: LogStore; readonly keeper: KeeperClient },
): Promise<LogStore> {
  const { FleetTail } = await import('../keeper/fleet-tail.ts');
  const others = async () => {
    const seen = await tables.systemRead((tx) => tx.list('log_nodes', {}));
    const since = storeClock.now() - LIVES_MS;
    return seen.filter(({ node, seen_at }) => node !== nodeId && seen_at > since).map(({ node }) => node);
  };
  const columns = [...LIST_COLUMNS, 'organisation_id'];
  const options = { bus, macs: vault, node: nodeId, process: runId, own: keeper, columns, others, clock };
  const tail = lifecycle.own('tail of all nodes', new FleetTail(options, worker.index === 1));
  return {
    page: (...asked) => nodes.page(...asked),
    groups: (...asked) => nodes.groups(...asked),
    count: (...asked) => nodes.count(...asked),
    find: (...asked) => nodes.find(...asked),
    arrived: (...asked) => tail.arrived(...asked),
  };
}

/** Several nodes read each other's log files where they share a database and a blob store, and no other store has records. */
function isShared({ config }: Common, { tables }: Stores): boolean {
  return tables.engine === 'postgres' && config.blobs !== null && config.logs === null;
}

type Shared = Awaited<ReturnType<typeof openShared>>;

/** The files of all nodes; null where each node has its own. Replaced ones are removed by one node for all. */
async function shareFiles(common: Common, stores: Stores): Promise<Shared | null> {
  const { config, clock, log, lifecycle } = common;
  const { tables, node } = stores;
  if (tables.engine === 'sqlite' || config.logs !== null) return null;
  if (!isShared(common, stores)) {
    log.info('of several nodes, each answers about the requests that it served unless SLUICE_BLOBS_URL is set');
    return null;
  }
  const shared = await openShared(common, stores);
  // Its records of the time before its keeper runs are not there yet.
  await shared.shared.announce(null);
  const lead = (signal: AbortSignal) => shared.removeReplaced(signal);
  lifecycle.own(
    'removal of replaced log files',
    startLeader({ tables, clock, log, node, name: 'replaced-log-files', everyMs: REPLACED_EVERY_MS, lead }),
  );
  return shared;
}

async function openShared({ config }: Common, { tables, blobs, nodeId, node, storeClock }: Stores) {
  const { removeReplaced, sharedCatalog } = await import('../keeper/shared-catalog.ts');
  const { spaceKeeper } = await import('../store/disk/files.ts');
  const options: SharedCatalogOptions = {
    tables,
    blobs,
    node: nodeId,
    clock: storeClock,
    tenant: systemTenant(OF_ALL),
    hasSpace: spaceKeeper(config.dataDir, config.diskReserve),
    lead: () => takeLease(tables, 'log-files', node, LEAD_MS),
  };
  return { ...sharedCatalog(options), removeReplaced: (signal: AbortSignal) => removeReplaced(options, signal) };
}

function bodiesOf({ clock }: Common, { tables, blobs, vault }: Stores): StoredBodiesOptions {
  const segmentKey = (...place: readonly [string, string, string]) => openSegmentKey(vault, ...place);
  return { blobs, tables, keys: vault, clock, tenantOf: systemTenant, segmentKey };
}

function keeperOf(
  { config, clock, log }: Common,
  { tables, nodeId }: Stores,
  bodies: StoredBodiesOptions,
  shared: Shared | null,
  feedback: FeedbackForgetter,
): LogKeeper {
  const asShared = shared && {
    shared: shared.shared,
    cacheBytes: config.logsCacheBytes,
    flushMs: SHARED_FLUSH_MS,
    tickMs: SHARED_TICK_MS,
  };
  return new LogKeeper({
    node: nodeId,
    dir: join(config.dataDir, 'logs'),
    spool: join(config.dataDir, 'spool'),
    workers: config.workers,
    memoryMb: MEMORY_MB,
    threads: Math.min(MOST_THREADS, availableParallelism()),
    catalog: shared ?? storedCatalog(tables, nodeId, clock),
    ...asShared,
    bodies: bodyStore(bodies),
    forgetFeedback: (...of) => feedback.forget(...of),
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
