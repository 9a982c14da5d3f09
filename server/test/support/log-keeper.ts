/** A log keeper with a real journal, a real control store and its own process, in a directory of the test's. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { BodyStore } from '../../src/keeper/body-keeper.ts';
import { LogKeeper, type LogKeeperOptions } from '../../src/keeper/keeper-launcher.ts';
import { storedCatalog } from '../../src/keeper/stored-catalog.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { type Log, silentLog } from '../../src/kernel/log.ts';
import { type Journal, openJournal } from '../../src/store/disk/journal.ts';
import type { StoredLog, Tables } from '../../src/store/ports.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import type { LogSelection } from '../../src/telemetry/log-query.ts';
import { logRecord } from './log-record.ts';

const DAY_MS = 86_400_000;

/** Everything of one organisation, of yesterday and today. */
export function recent(organisationId = 'org-a'): LogSelection {
  const now = systemClock.now();
  const scope = { organisationId, workspaceIds: null, userId: null, keptSince: 0, erased: [] };
  return { scope, from: now - DAY_MS, to: now + DAY_MS, where: [] };
}

export const NO_BODIES: BodyStore = {
  segmentKey: async () => null,
  chunkKey: () => Promise.reject(new Error('no bodies are kept here')),
  readKey: async () => null,
  put: () => Promise.reject(new Error('no bodies are kept here')),
  get: async () => false,
};

export interface KeeperUnderTest {
  readonly dir: string;
  readonly tables: Tables;
  readonly journal: Journal;
  keeper: LogKeeper;
  /** Another keeper over the same directory, as after a restart of the server. */
  restart(settings?: Partial<LogKeeperOptions>): Promise<LogKeeper>;
  /** Records with (node, seq) of their own; resolves when they would survive a kill. */
  write(...records: readonly StoredLog[]): Promise<void>;
  /** Kills the keeper's process and waits until it is gone. */
  kill(): Promise<void>;
  close(): Promise<void>;
}

export async function startKeeper(
  settings: Partial<LogKeeperOptions> & { readonly segmentBytes?: number } = {},
): Promise<KeeperUnderTest> {
  const { segmentBytes, ...options } = settings;
  const dir = await mkdtemp(join(tmpdir(), 'sluice-keeper-'));
  const log: Log = options.log ?? silentLog;
  const tables = await openSqliteTables({ file: join(dir, 'control.db'), log });
  await tables.migrate();
  const spool = join(dir, 'spool');
  const journal = await openJournal({
    dir: join(spool, 'journal'),
    clock: systemClock,
    log,
    ...(segmentBytes === undefined ? {} : { segmentBytes }),
  });
  const make = (changed: Partial<LogKeeperOptions> = {}) =>
    new LogKeeper({
      node: 'node',
      dir: join(dir, 'logs'),
      spool,
      workers: 1,
      memoryMb: 256,
      threads: 2,
      tickMs: 20,
      catalog: storedCatalog(tables, 'node', systemClock),
      bodies: NO_BODIES,
      forgetFeedback: async () => 0,
      clock: systemClock,
      log,
      ...options,
      ...changed,
    });
  const under: KeeperUnderTest = {
    dir,
    tables,
    journal,
    keeper: make(),
    async restart(changed) {
      await under.keeper.close();
      under.keeper = make(changed);
      return under.keeper;
    },
    async write(...records) {
      await Promise.all(
        records.map((record) => new Promise<void>((resolve) => journal.append(JSON.stringify(record), resolve))),
      );
    },
    async kill() {
      const { pid } = under.keeper;
      if (pid === null) return;
      process.kill(pid, 'SIGKILL');
      while (under.keeper.pid === pid)
        await once(process, 'nothing', { signal: AbortSignal.timeout(5) }).catch(() => 0);
    },
    async close() {
      await under.keeper.close();
      await journal.close();
      await tables.close();
      await rm(dir, { recursive: true });
    },
  };
  return under;
}

/** A record of now that no other has the id of. */
export function recordOfNow(seq: number, more: Record<string, unknown> = {}): StoredLog {
  return logRecord(seq, { id: uuidv7(systemClock), time: systemClock.now(), workspace_id: 'ws-a1', ...more });
}
