/** Nodes that share their log files: each with its journal, its keeper and its questions, over one PostgreSQL and one bucket. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemTenant } from '../../src/auth/tenant.ts';
import { operatorHttp } from '../../src/http/operator-http.ts';
import { takeLease } from '../../src/jobs/leader.ts';
import type { SharedLogFiles } from '../../src/keeper/catalog.ts';
import { type Engine, openEngine } from '../../src/keeper/engine.ts';
import { Keeper } from '../../src/keeper/keeper.ts';
import { LogQueries } from '../../src/keeper/queries.ts';
import { removeReplaced, type SharedCatalogOptions, sharedCatalog } from '../../src/keeper/shared-catalog.ts';
import { type Clock, systemClock, TestClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { openJournal } from '../../src/store/disk/journal.ts';
import type { Blobs, StoredLog, Tables } from '../../src/store/ports.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import { openS3Blobs } from '../../src/store/s3/blobs.ts';
import { type KeeperUnderTest, startKeeper } from './log-keeper.ts';
import { logRecord } from './log-record.ts';
import { migratedDatabase } from './postgres.ts';
import { S3_KEYS, S3_REGION, type S3Server, startS3Server } from './s3-server.ts';

export interface FleetNode {
  readonly name: string;
  readonly dir: string;
  readonly queries: LogQueries;
  readonly keeper: Keeper;
  /** Records of this node, durable when it resolves. */
  write(...records: readonly StoredLog[]): Promise<void>;
  /** A record of now that no other has the id of. */
  record(more?: Record<string, unknown>): StoredLog;
  /** Reads, writes files and gives them to all, as its process does each second. */
  work(): Promise<void>;
  /** Its keeper ends as if killed, and another one begins on the same disk. */
  restart(): Promise<void>;
}

export interface LogFleet {
  readonly clock: TestClock;
  readonly tables: Tables;
  readonly s3: S3Server;
  /** Keys of log files in the bucket. */
  objects(): string[];
  /** Parts of the way between keepers and the shared files that a test takes over. */
  readonly faults: { wrap: (shared: SharedLogFiles, node: string) => SharedLogFiles };
  start(name: string, more?: { readonly cacheBytes?: number; readonly flushMs?: number }): Promise<FleetNode>;
  /** As a leader does for all. */
  removeReplaced(): Promise<void>;
  close(): Promise<void>;
}

/** Everything of an organisation. */
export const everything = (organisationId = 'org-a') => {
  const scope = { organisationId, workspaceIds: null, userId: null, keptSince: 0, erased: [] };
  return { scope, from: Date.UTC(2026, 0, 1) - 86_400_000, to: Date.UTC(2026, 0, 10), where: [] };
};

export async function startBucket(): Promise<{ readonly s3: S3Server; readonly blobs: Blobs }> {
  const s3 = await startS3Server({ buckets: ['blobs'] });
  const blobs = await openS3Blobs({
    bucket: 'blobs',
    prefix: '',
    region: S3_REGION,
    endpoint: s3.url,
    pathStyle: true,
    credentials: { ...S3_KEYS, sessionToken: null },
    variable: () => undefined,
    file: async () => '',
    http: operatorHttp(),
    clock: systemClock,
    log: silentLog,
  });
  return { s3, blobs };
}

function catalogOptions(tables: Tables, blobs: Blobs, node: string, clock: Clock): SharedCatalogOptions {
  return {
    tables,
    blobs,
    node,
    clock,
    tenant: systemTenant('log-files'),
    hasSpace: async () => undefined,
    lead: () => takeLease(tables, 'log-files', node, 120_000),
  };
}

export type SharingNode = KeeperUnderTest & { readonly name: string };

/** Nodes whose keepers are processes, as in a server. */
export async function startSharingNodes(names: readonly string[]): Promise<SharingNode[]> {
  const tables = await openPostgresTables({ url: await migratedDatabase(), log: silentLog });
  await tables.migrate();
  const { s3, blobs } = await startBucket();
  let open = names.length;
  return Promise.all(
    names.map(async (name) => {
      const files = sharedCatalog(catalogOptions(tables, blobs, name, systemClock));
      const settings = { cacheBytes: 1 << 30, flushMs: 100, tickMs: 20 };
      const under = await startKeeper({ node: name, catalog: files, shared: files.shared, ...settings });
      const { close, tables: own } = under;
      const end = async () => {
        Object.assign(under, { tables: own });
        await close();
        if (--open > 0) return;
        await tables.close();
        await blobs.close();
        await s3.stop();
      };
      return Object.assign(under, { name, tables, close: end });
    }),
  );
}

export async function startLogFleet(): Promise<LogFleet> {
  const clock = new TestClock(Date.UTC(2026, 0, 2, 12));
  const tables = await openPostgresTables({ url: await migratedDatabase(), log: silentLog });
  await tables.migrate();
  const { s3, blobs } = await startBucket();
  const ends: (() => Promise<unknown>)[] = [() => tables.close(), () => s3.stop(), () => blobs.close()];
  const catalogOf = (node: string) => catalogOptions(tables, blobs, node, clock);
  const fleet: LogFleet = {
    clock,
    tables,
    s3,
    objects: () => s3.keys('blobs'),
    faults: { wrap: (shared) => shared },
    start: async (name, { cacheBytes = 1 << 30, flushMs = 4_000 } = {}) => {
      const dir = await mkdtemp(join(tmpdir(), `sluice-fleet-${name}-`));
      const journal = await openJournal({ dir: join(dir, 'spool', 'journal'), clock: systemClock, log: silentLog });
      const engine: Engine = await openEngine({ memory: '256MB', threads: 1, temporary: join(dir, 'spill') });
      const open = () => {
        const { shared, ...catalog } = sharedCatalog(catalogOf(name));
        return Keeper.open({
          node: name,
          dir: join(dir, 'logs'),
          spool: join(dir, 'spool'),
          engine,
          catalog,
          clock,
          log: silentLog,
          newId: () => uuidv7(clock),
          onGap: () => undefined,
          workers: 1,
          flushMs,
          shared: { store: fleet.faults.wrap(shared, name), cacheBytes },
        });
      };
      let keeper = await open();
      const ask = () => ({
        connect: () => engine.connect(),
        pin: (from: number, to: number) => keeper.pin(from, to),
        damaged: () => keeper.findDamaged(),
        log: silentLog,
        clock,
      });
      let seq = 0;
      let queries = new LogQueries(ask());
      ends.unshift(async () => {
        await keeper.close();
        engine.closeSync();
        await journal.close();
        await rm(dir, { recursive: true });
      });
      return {
        name,
        dir,
        get queries() {
          return queries;
        },
        get keeper() {
          return keeper;
        },
        write: async (...records) => {
          await Promise.all(
            records.map((record) => new Promise<void>((done) => journal.append(JSON.stringify(record), done))),
          );
        },
        record: (more = {}) => {
          const node = `run-${name}`;
          return logRecord(++seq, { id: uuidv7(clock), time: clock.now(), node, workspace_id: 'ws-a1', ...more });
        },
        work: async () => {
          await keeper.tick();
          await keeper.settled();
        },
        restart: async () => {
          // What it had under way finds its connection closed: as little as a kill leaves.
          await keeper.close().catch(() => undefined);
          keeper = await open();
          queries = new LogQueries(ask());
        },
      };
    },
    removeReplaced: () => removeReplaced(catalogOf('leader'), new AbortController().signal),
    close: async () => {
      for (const end of ends) await end();
    },
  };
  return fleet;
}
