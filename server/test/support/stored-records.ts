/** Records of servers, as tests look at them: out of the journals of one that runs, or by a log keeper over a data directory. */
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { KeeperClient } from '../../src/keeper/keeper-client.ts';
import { LogKeeper } from '../../src/keeper/keeper-launcher.ts';
import { storedCatalog } from '../../src/keeper/stored-catalog.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { nextTurn } from '../../src/kernel/turns.ts';
import { copyRecord } from '../../src/store/disk/journal-line.ts';
import type { StoredLog } from '../../src/store/ports.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { LOG_COLUMNS, recordOfRow } from '../../src/telemetry/log-columns.ts';
import type { LogPage, LogPageQuery, LogPlace } from '../../src/telemetry/log-query.ts';
import { NO_BODIES } from './log-keeper.ts';

/** Every record in the journals of a data directory, in the order of writing. A server younger than a minute has all there. */
export async function journalRecords(dataDir: string): Promise<StoredLog[]> {
  // What the same process has recorded in this turn is written at its end.
  await nextTurn();
  await nextTurn();
  const spool = join(dataDir, 'spool');
  const records: StoredLog[] = [];
  for (const folder of await readdir(spool).catch(() => [])) {
    if (!folder.startsWith('journal')) continue;
    const names = (await readdir(join(spool, folder))).filter((name) => name.endsWith('.journal')).sort();
    for (const name of names) {
      const bytes = await readFile(join(spool, folder, name)).catch(() => Buffer.alloc(0));
      for (let at = 0, feed = bytes.indexOf(10); feed >= 0; at = feed + 1, feed = bytes.indexOf(10, at)) {
        const line = Buffer.allocUnsafe(feed - at + 1);
        const end = copyRecord(bytes, at, feed, line, 0);
        if (end >= 0) records.push(JSON.parse(line.toString('utf8', 0, end)) as StoredLog);
      }
    }
  }
  return records;
}

/** Of a workspace, newest first; with `most`, about so many of them. Those of a server that is older than a minute may be in files: then its keeper is asked. */
export async function workspaceRecords(
  dataDir: string,
  keeper: KeeperClient,
  organisationId: string,
  workspaceId: string,
  most = Number.POSITIVE_INFINITY,
): Promise<StoredLog[]> {
  if (await isKept(dataDir)) return keptBy(keeper, organisationId, workspaceId, most);
  return (await journalRecords(dataDir))
    .filter((record) => record.organisation_id === organisationId && record.workspace_id === workspaceId)
    .reverse()
    .sort((one, other) => other.time - one.time);
}

/** Reading a longer journal again and again costs more than asking the keeper. */
const LONG_BYTES = 1 << 20;

/** Whether records are in files, or so many in the journal that the keeper is to be asked. */
async function isKept(dataDir: string): Promise<boolean> {
  const files = await readdir(join(dataDir, 'logs')).catch(() => []);
  if (files.some((name) => name.endsWith('.parquet'))) return true;
  const journal = join(dataDir, 'spool', 'journal');
  let bytes = 0;
  for (const name of await readdir(journal).catch(() => [])) bytes += (await stat(join(journal, name))).size;
  return bytes > LONG_BYTES;
}

/** The number of all records of a server with an embedded store. */
export async function countRecords(dataDir: string, keeper: KeeperClient): Promise<number> {
  if (!(await isKept(dataDir))) return (await journalRecords(dataDir)).length;
  await keeper.flush();
  const control = new DatabaseSync(join(dataDir, 'control.db'), { readOnly: true });
  const found = control.prepare('SELECT sum(records) AS records FROM log_files').get();
  control.close();
  return Number(found?.records);
}

/** A node of an installation: its data directory, and its database where that is not in there. */
export interface Node {
  readonly dataDir: string;
  readonly databaseUrl?: string | null;
}

/** What the usage limit of an owner has counted, in the unit of its type: micro-dollars of cost. Of a server that has ended. */
export async function usedOf({ dataDir, databaseUrl = null }: Node, ownerId: string): Promise<number> {
  const tables =
    databaseUrl === null
      ? await openSqliteTables({ file: join(dataDir, 'control.db'), log: silentLog })
      : await openPostgresTables({ url: databaseUrl, log: silentLog });
  const rows = await tables.systemRead((tx) => tx.list('usage_buckets', { where: { owner_id: ownerId } }));
  await tables.close();
  return rows.reduce((sum, { used }) => sum + used, 0);
}

/** A keeper of its own over the directory of a server that has ended. */
export async function withKeeper<T>(
  { dataDir, databaseUrl = null }: Node,
  run: (keeper: LogKeeper) => Promise<T>,
): Promise<T> {
  const log = silentLog;
  const tables =
    databaseUrl === null
      ? await openSqliteTables({ file: join(dataDir, 'control.db'), log })
      : await openPostgresTables({ url: databaseUrl, log });
  const node = (await readFile(join(dataDir, 'node-id'), 'utf8')).trim();
  const keeper = new LogKeeper({
    node,
    dir: join(dataDir, 'logs'),
    spool: join(dataDir, 'spool'),
    workers: 1,
    memoryMb: 512,
    threads: 2,
    catalog: storedCatalog(tables, node, systemClock),
    bodies: NO_BODIES,
    forgetFeedback: async () => 0,
    clock: systemClock,
    log,
  });
  try {
    return await run(keeper);
  } finally {
    await keeper.close();
    await tables.close();
  }
}

const DAY_MS = 86_400_000;

/** All of an organisation's records of the last year, newest first, as a keeper answers them. */
export function keptRecords(
  node: Node,
  organisationId: string,
  workspaceId: string | null = null,
): Promise<StoredLog[]> {
  return withKeeper(node, (keeper) => keptBy(keeper, organisationId, workspaceId));
}

async function keptBy(
  keeper: KeeperClient,
  organisationId: string,
  workspaceId: string | null,
  most = Number.POSITIVE_INFINITY,
): Promise<StoredLog[]> {
  const workspaceIds = workspaceId === null ? null : [workspaceId];
  const scope = { organisationId, workspaceIds, userId: null, keptSince: 0, erased: [] };
  const to = systemClock.now() + DAY_MS;
  const columns = LOG_COLUMNS.map(({ name }) => name);
  const records: StoredLog[] = [];
  let behind: LogPlace | null = null;
  do {
    const query: LogPageQuery = { columns, order: 'newest', limit: 1_000, behind };
    const page: LogPage = await keeper.page({ scope, from: to - 365 * DAY_MS, to, where: [] }, query);
    records.push(...page.rows.map(recordOfRow));
    behind = page.next;
  } while (behind !== null && records.length < most);
  return records;
}
