import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Log } from '../../kernel/log.ts';
import type { Migration } from '../migrations/migration.ts';
import { type MigrationHost, runMigrations } from '../migrations/run.ts';
import type { Change } from '../ports.ts';
import type { Engine, Execute, Failure, Result, Scope } from '../sql/engine.ts';
import { unavailable } from '../sql/failure.ts';
import { Hints } from '../sql/hints.ts';
import { Pool } from './pool.ts';
import type { ConnectionOptions } from './protocol.ts';
import { type Life, SqliteFailure, SqliteThread, ThreadLost } from './thread.ts';

/** A transaction that lasts longer is rolled back: the one writer must not be held for ever. */
const TRANSACTION_MS = 30_000;
/** How long a write waits for the lock of another process. */
const LOCK_MS = 10_000;
const READERS = 4;
/** Connections: one writes, one answers single look-ups and never waits, the rest hold the snapshots of read transactions. */
const WRITER = 0;
const LOOKUP = 1;
const FIRST_READER = 2;
/** All rows of a list of primary keys: no page, which is found by its order, and no alternatives. */
const IDS = /^(?!.*( limit | or )).* where \("organisation_id" = .* "id" in \(/;

export interface SqliteEngineOptions {
  readonly file: string;
  readonly log: Log;
  readonly clock: Clock;
  readonly migrations: readonly Migration[];
}

/** Of one statement, which binds 32,766 values at most. */
const MAX_CHANGES = 2_000;

export class SqliteEngine implements Engine {
  readonly name = 'sqlite';
  readonly nowSql = "cast(unixepoch('now', 'subsec') * 1000 as integer)";
  readonly positionFunction = 'instr';
  readonly nullsFirst = true;
  readonly rowSecurity = 'none';
  readonly thread: SqliteThread;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #migrations: readonly Migration[];
  readonly #hints: Hints;
  readonly #writer = new Pool([WRITER]);
  readonly #readers = new Pool(Array.from({ length: READERS }, (_, i) => FIRST_READER + i));

  constructor({ file, log, clock, migrations }: SqliteEngineOptions) {
    const shared = { synchronous: 'FULL', pageSize: 4096, secureDelete: true, checkpointPages: 1_000 } as const;
    const reader: ConnectionOptions = { ...shared, readOnly: true, busyTimeoutMs: 5_000, cacheKb: 4_000 };
    // The writer does not wait inside SQLite, which would stop the look-ups of this thread: `#begin` tries again.
    const writer: ConnectionOptions = { ...shared, readOnly: false, busyTimeoutMs: 0, cacheKb: 16_000 };
    const connections = [writer, ...Array.from({ length: 1 + READERS }, () => reader)];
    this.thread = new SqliteThread({ file, connections }, log);
    this.#clock = clock;
    this.#log = log;
    this.#migrations = migrations;
    this.#hints = new Hints(log);
  }

  unindexed(column: string): string {
    return `+"${column}"`;
  }

  /**
   * SQLite has no statistics and expects ten rows of an organisation: for a longer list of ids it would read all of them
   * rather than look each id up.
   */
  tuned(text: string): string {
    return IDS.test(text) ? text.replace('where ("organisation_id" =', 'where (+"organisation_id" =') : text;
  }

  static async open(options: SqliteEngineOptions): Promise<SqliteEngine> {
    const engine = new SqliteEngine(options);
    await engine.thread.open();
    return engine;
  }

  migrate(): Promise<void> {
    const exclusive: MigrationHost['exclusive'] = (run) =>
      this.write(null, async (execute) => {
        await run({
          execute: async (sql) => {
            await execute(sql, []);
          },
          rows: async (sql) => (await execute(sql, [])).rows,
        });
      });
    return runMigrations({ engine: 'sqlite', exclusive }, 'schema_migrations', this.#migrations, this.#log);
  }

  async read<T>(_scope: Scope, run: (execute: Execute) => Promise<T>): Promise<T> {
    return this.#readers.use((connection) => this.#transaction(connection, 'BEGIN', run));
  }

  async write<T>(_scope: Scope, run: (execute: Execute) => Promise<T>): Promise<T> {
    return this.#writer.use((connection) => this.#transaction(connection, 'BEGIN IMMEDIATE', run));
  }

  async eraseRemoved(): Promise<boolean> {
    return this.#writer.use(async () => {
      try {
        // Freed pages keep what older versions deleted, and the write-ahead log keeps old pages until it is cut.
        await this.thread.query(WRITER, 'VACUUM', []);
        const { rows } = await this.thread.query(WRITER, 'PRAGMA wal_checkpoint(TRUNCATE)', []);
        return rows[0]?.busy === 0;
      } catch (error) {
        this.#log.warn('the file of the control store could not be rewritten', { error: String(error) });
        return false;
      }
    });
  }

  async query(_name: string, sql: string, parameters: readonly unknown[]): Promise<Result['rows']> {
    return (await this.thread.query(LOOKUP, sql, parameters)).rows;
  }

  /** There is one writer at a time, so the order of the appends is the order of the commits. */
  async append(execute: Execute, changes: readonly Change[]): Promise<void> {
    const row = `(?, ?, ?, ?, ${this.nowSql})`;
    for (let at = 0; at < changes.length; at += MAX_CHANGES) {
      const some = changes.slice(at, at + MAX_CHANGES);
      await execute(
        `INSERT INTO changes (organisation_id, workspace_id, topic, entity_id, at) VALUES ${some.map(() => row).join(', ')}`,
        some.flatMap(({ organisationId, workspaceId, topic, entityId }) => [
          organisationId,
          workspaceId,
          topic,
          entityId,
        ]),
      );
    }
  }

  onChangeHint(hint: () => void): () => void {
    return this.#hints.add(hint);
  }

  changesCommitted(): void {
    this.#hints.emit();
  }

  classify(error: unknown): Failure {
    return classifySqlite(error);
  }

  async close(): Promise<void> {
    this.#hints.clear();
    await Promise.all([this.#writer.drain(), this.#readers.drain()]);
    await this.thread.close();
  }

  async #transaction<T>(connection: number, mode: string, run: (execute: Execute) => Promise<T>): Promise<T> {
    const life = this.thread.life;
    await begin(this.thread, connection, mode, life, this.#clock);
    let ended: Error | null = null;
    let expire: (error: Error) => void = () => undefined;
    const expired = new Promise<never>((_, reject) => {
      expire = reject;
    });
    expired.catch(() => undefined);
    const cancel = this.#clock.after(TRANSACTION_MS, () => {
      ended = unavailable(`a transaction was open for more than ${TRANSACTION_MS} ms`);
      expire(ended);
    });
    const execute: Execute = (sql, parameters) =>
      ended ? Promise.reject(ended) : this.thread.query(connection, sql, parameters, life);
    try {
      const result = await Promise.race([run(execute), expired]);
      ended = new SluiceError('internal', 'An internal error occurred.', { detail: 'the transaction has ended' });
      await this.thread.query(connection, 'COMMIT', [], life);
      return result;
    } catch (error) {
      ended ??= unavailable('the transaction was rolled back');
      await this.thread.rollback(connection, life).catch(() => undefined);
      throw error;
    } finally {
      cancel();
    }
  }
}

/** Begins a transaction. Waits for the lock of another process without holding up this process's worker thread. */
export async function begin(
  thread: SqliteThread,
  connection: number,
  sql: string,
  life: Life,
  clock: Clock,
): Promise<void> {
  const start = clock.monotonic();
  for (let wait = 1; ; wait = Math.min(wait * 2, 20)) {
    try {
      await thread.query(connection, sql, [], life);
      return;
    } catch (error) {
      if (!isBusy(error) || clock.monotonic() - start > LOCK_MS) throw error;
      await new Promise<void>((resolve) => clock.after(wait, resolve));
    }
  }
}

const primary = (error: unknown) => (error instanceof SqliteFailure ? error.code & 0xff : 0);
const isBusy = (error: unknown) => primary(error) === 5;

const UNIQUE = new Set([2067, 1555, 2579]);
const FOREIGN_KEY = 787;
/** busy, locked, out of memory, read-only, I/O error, corrupt, full, cannot open, lock protocol, not a database. */
const LOST = new Set([5, 6, 7, 8, 10, 11, 13, 14, 15, 26]);

function classifySqlite(error: unknown): Failure {
  if (error instanceof ThreadLost) return { kind: 'unavailable' };
  if (!(error instanceof SqliteFailure)) return { kind: 'other' };
  if (UNIQUE.has(error.code)) return { kind: 'unique', columns: columnsIn(error.message) };
  if (error.code === FOREIGN_KEY) return { kind: 'foreign_key', columns: [] };
  return { kind: LOST.has(primary(error)) ? 'unavailable' : 'other' };
}

/** `UNIQUE constraint failed: configs.organisation_id, configs.slug`. */
function columnsIn(message: string): string[] {
  return (message.split('failed: ')[1] ?? '').split(', ').flatMap((name) => name.split('.')[1] ?? []);
}
