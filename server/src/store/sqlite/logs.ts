import { access, constants } from 'node:fs/promises';
import { type Clock, systemClock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { LOG_MIGRATIONS } from '../migrations/index.ts';
import { type MigrationHost, runMigrations } from '../migrations/run.ts';
import type { JournalPosition, LogQuery, LogSink, LogWalk, StoredLog, TenantContext } from '../ports.ts';
import { misuse } from '../sql/columns.ts';
import { storeError } from '../sql/failure.ts';
import {
  countLogs,
  findLog,
  forgetLogs,
  type LogStatement,
  listLogs,
  organisationAfter,
  parseLogs,
  walkLogs,
} from '../sql/logs.ts';
import { begin, classifySqlite } from './engine.ts';
import { INSERT_LOGS } from './protocol.ts';
import { SqliteThread } from './thread.ts';

export interface SqliteLogsOptions {
  /** Path of the database file; it is made when missing. */
  readonly file: string;
  readonly log: Log;
  readonly clock?: Clock;
}

/**
 * Request logs in one SQLite file. A commit may be lost in a power cut (`synchronous=NORMAL`): the position is lost with
 * it, so the journal delivers those records again. Several processes may write to the file; each batch is one transaction.
 */
export async function openSqliteLogs({ file, log, clock = systemClock }: SqliteLogsOptions): Promise<LogSink> {
  const sink = new SqliteLogs(file, log, clock);
  await sink.open();
  return sink;
}

/** A thread that nothing is asked of for so long ends. To start it again costs tens of milliseconds, on its own. */
const REST_MS = 5_000;
/** The same after a start, which asks for the position of a journal and no more. */
const FIRST_REST_MS = 1_000;

class SqliteLogs implements LogSink {
  readonly #file: string;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #writer: SqliteThread;
  /** Its own thread, so that a slow search never delays an insert; started by the first search. */
  readonly #reader: SqliteThread;

  constructor(file: string, log: Log, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
    const shared = {
      synchronous: 'NORMAL',
      busyTimeoutMs: 10_000,
      cacheKb: 8_000,
      pageSize: 8192,
      // Millions of records pass; they hold no secrets.
      secureDelete: false,
      checkpointPages: 2_000,
    } as const;
    const rest = { clock, afterMs: REST_MS, firstMs: FIRST_REST_MS };
    this.#file = file;
    this.#writer = new SqliteThread({ file, connections: [{ ...shared, readOnly: false }] }, log, rest);
    this.#reader = new SqliteThread({ file, connections: [{ ...shared, readOnly: true }] }, log, rest);
  }

  async open(): Promise<void> {
    await this.#writer.open();
  }

  async migrate(): Promise<void> {
    const thread = this.#writer;
    const exclusive: MigrationHost['exclusive'] = async (run) => {
      const { life } = thread;
      await begin(thread, 0, 'BEGIN IMMEDIATE', life, this.#clock);
      try {
        await run({
          execute: (sql) => thread.script(0, sql, life),
          rows: async (sql) => (await thread.query(0, sql, [], life)).rows,
        });
        await thread.query(0, 'COMMIT', [], life);
      } catch (error) {
        await thread.rollback(0, life).catch(() => undefined);
        throw error;
      }
    };
    await this.#told('insert', () =>
      runMigrations({ engine: 'sqlite', exclusive }, 'log_migrations', LOG_MIGRATIONS, this.#log),
    );
  }

  /** `synchronous=NORMAL` syncs at checkpoints only. One that a long search holds up has not reached the end of the log. */
  async settle(): Promise<boolean> {
    const { rows } = await this.#told('insert', () => this.#writer.query(0, 'PRAGMA wal_checkpoint(PASSIVE)', []));
    const [row] = rows;
    return row !== undefined && Number(row.busy) === 0 && Number(row.log) === Number(row.checkpointed);
  }

  async insert(journal: string, lines: Buffer, position: JournalPosition): Promise<void> {
    const parameters = [journal, position.segment, position.offset, lines];
    await this.#told('insert', () => this.#writer.run(0, INSERT_LOGS, parameters));
  }

  async position(journal: string): Promise<JournalPosition | null> {
    const [row] = await this.#rows(this.#writer, {
      sql: 'SELECT segment, position FROM journals WHERE name = ?',
      parameters: [journal],
    });
    return row ? { segment: row.segment as string, offset: row.position as number } : null;
  }

  async find(tenant: TenantContext, id: string): Promise<StoredLog | null> {
    return parseLogs(tenant, await this.#rows(this.#reader, findLog(tenant, id)), misuse)[0] ?? null;
  }

  async list(tenant: TenantContext, query: LogQuery): Promise<{ total: number; rows: StoredLog[] }> {
    const [counted, rows] = await Promise.all([
      this.#rows(this.#reader, countLogs(tenant, query)),
      this.#rows(this.#reader, listLogs(tenant, query, 'sqlite')),
    ]);
    return { total: Number(counted[0]?.total), rows: parseLogs(tenant, rows, misuse) };
  }

  async walk(tenant: TenantContext, query: LogWalk): Promise<StoredLog[]> {
    return parseLogs(tenant, await this.#rows(this.#reader, walkLogs(tenant, query)), misuse);
  }

  async forget(organisationId: string | null, before: number, limit: number): Promise<number> {
    const { sql, parameters } = forgetLogs(organisationId, before, limit, 'sqlite');
    return this.#told('insert', async () => (await this.#writer.query(0, sql, parameters)).affected);
  }

  async organisationAfter(organisationId: string): Promise<string | null> {
    const [row] = await this.#rows(this.#writer, organisationAfter(organisationId));
    return (row?.organisation_id as string | undefined) ?? null;
  }

  async count(): Promise<number> {
    const [row] = await this.#rows(this.#reader, { sql: 'SELECT count(*) AS total FROM logs', parameters: [] });
    return Number(row?.total);
  }

  async ping(): Promise<void> {
    // A probe wakes no thread: the next request opens the file again, as it did at the start.
    if (this.#writer.resting) return this.#told('read', () => access(this.#file, constants.R_OK | constants.W_OK));
    await this.#rows(this.#writer, { sql: 'SELECT 1', parameters: [] });
  }

  async close(): Promise<void> {
    await this.#reader.close();
    await this.#writer.close();
  }

  async #rows(thread: SqliteThread, { sql, parameters }: LogStatement) {
    return this.#told('read', async () => (await thread.query(0, sql, parameters)).rows);
  }

  async #told<T>(verb: 'read' | 'insert', work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw storeError({ classify: classifySqlite }, error, 'logs', verb);
    }
  }
}
