import { randomInt, randomUUID } from 'node:crypto';
import type pg from 'pg';
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Log } from '../../kernel/log.ts';
import type { Migration } from '../migrations/migration.ts';
import { type MigrationHost, type MigrationTx, runMigrations } from '../migrations/run.ts';
import type { Change, RowSecurity } from '../ports.ts';
import type { TableName } from '../schema.ts';
import type { Engine, Execute, Failure, Result, Scope } from '../sql/engine.ts';
import { Hints } from '../sql/hints.ts';
import {
  alone,
  classifyPostgres,
  openPool,
  PostgresFailure,
  RunAgain,
  send,
  transaction,
  unusablePostgres,
} from './client.ts';
import { Listener } from './listener.ts';
import { Queues } from './queues.ts';
import {
  applyRowSecurity,
  CONTROL_RULES,
  checkRights,
  SYSTEM_SCOPE,
  type TableRules,
  Tenancy,
} from './row-security.ts';

const CHANNEL = 'sluice_changes';
/** Advisory lock keys of this product: any fixed numbers that others are unlikely to use. */
const CHANGES_LOCK = 7_310_582_001;
const MIGRATION_LOCK = 7_310_582_002;
const ATTEMPTS = 20;
/** How long a table that is rewritten may wait for other nodes, which wait for it meanwhile. */
const ERASE_LOCK_MS = 5_000;
/** A migration of many rows, or the wait for another node's, may take longer than any statement of the running product. */
const MIGRATION_MS = 6 * 3_600_000;

const READ = 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY';
/**
 * A sequential scan takes a predicate lock on the whole table, so that on small tables every two writers would collide:
 * index scans lock what they read.
 */
const SCANS = 'SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off';
/**
 * Predicate locks on indexes are as coarse as their pages, and what is new lies in few of them: writers that have nothing
 * to do with each other may undo one that takes longer, again and again. After `PATIENCE` attempts a write therefore runs
 * while no other does. The lock is taken by LOCK TABLE, because that alone leaves the snapshot for after the wait, on a
 * table that no write changes; readers are not concerned.
 */
const BEGIN = 'BEGIN ISOLATION LEVEL SERIALIZABLE; LOCK TABLE meta IN';
const AMONG_OTHERS = `${BEGIN} ROW SHARE MODE; ${SCANS}`;
const BY_ITSELF = `${BEGIN} EXCLUSIVE MODE; ${SCANS}`;
const PATIENCE = 6;

const NOW = 'cast(floor(extract(epoch from clock_timestamp()) * 1000) as bigint)';

/**
 * Takes the lock, then numbers the rows: `seq` is assigned to what comes out of the join with the lock. The lock is held
 * until the commit is visible, so whoever appends next gets a higher seq and is seen later. One statement, because every
 * writer of the cluster waits while one holds the lock.
 */
const APPEND = `WITH held AS MATERIALIZED (SELECT pg_advisory_xact_lock($1)),
told AS MATERIALIZED (SELECT pg_notify($2, $3))
INSERT INTO changes (organisation_id, workspace_id, topic, entity_id, at)
SELECT c.organisation_id, c.workspace_id, c.topic, c.entity_id, ${NOW}
FROM held, told, unnest($4::text[], $5::text[], $6::text[], $7::text[])
  WITH ORDINALITY AS c (organisation_id, workspace_id, topic, entity_id, n)
ORDER BY c.n`;

export interface PostgresEngineOptions {
  readonly url: string;
  readonly log: Log;
  readonly clock: Clock;
  readonly poolSize: number;
  readonly migrations: readonly Migration[];
}

export class PostgresEngine implements Engine {
  readonly name = 'postgres';
  readonly nowSql = NOW;
  readonly positionFunction = 'strpos';
  readonly nullsFirst = false;
  readonly pool: pg.Pool;
  readonly #options: PostgresEngineOptions;
  readonly #tenancy: Tenancy;
  readonly #queues: Queues;
  readonly #hints: Hints;
  /** Marks notifications of this process, which has told its own listeners already. */
  readonly #self = randomUUID();
  #listener: Listener | null = null;
  #closing: Promise<void> | null = null;

  constructor(options: PostgresEngineOptions) {
    this.#options = options;
    this.pool = openPool(options.url, options.poolSize, options.log);
    this.#tenancy = new Tenancy(this.pool);
    this.#queues = new Queues(options.url, options.log);
    this.#hints = new Hints(options.log);
  }

  get rowSecurity(): RowSecurity {
    return this.#tenancy.rowSecurity;
  }

  unindexed(column: string, kind: string): string {
    return kind === 'int' || kind === 'time' ? `"${column}" + 0` : `"${column}" || ''`;
  }

  tuned(text: string): string {
    return text;
  }

  async migrate(): Promise<void> {
    const { url, migrations, log } = this.#options;
    await migratePostgres(this.pool, url, 'schema_migrations', migrations, CONTROL_RULES, log);
    await this.#tenancy.look();
    this.#tenancy.warn(log);
  }

  async read<T>(scope: Scope, run: (execute: Execute) => Promise<T>): Promise<T> {
    return transaction(this.pool, `${READ}; ${await this.#tenancy.enter(scope)}`, run);
  }

  write<T>(scope: Scope, run: (execute: Execute) => Promise<T>, queue?: string | readonly string[]): Promise<T> {
    if (queue === undefined || queue.length === 0) return this.#write(scope, run);
    return this.#queues.run(typeof queue === 'string' ? [queue] : queue, () => this.#write(scope, run));
  }

  async #write<T>(scope: Scope, run: (execute: Execute) => Promise<T>): Promise<T> {
    const enter = await this.#tenancy.enter(scope);
    for (let attempt = 1; ; attempt++) {
      const begin = attempt > PATIENCE ? BY_ITSELF : AMONG_OTHERS;
      try {
        return await transaction(this.pool, `${begin}; ${enter}`, run);
      } catch (error) {
        if (!(error instanceof RunAgain)) throw error;
        if (attempt >= ATTEMPTS) {
          throw new SluiceError('unavailable', 'Too many changes of the same objects at once. Try again in a moment.', {
            retryAfter: 1,
            cause: error,
            detail: `serialisation failures in ${ATTEMPTS} attempts`,
          });
        }
        // The first attempts collide with each other again unless they spread.
        const wait = randomInt(1, 2 + Math.min(2 ** attempt, 100));
        await new Promise<void>((resolve) => this.#options.clock.after(wait, resolve));
      }
    }
  }

  /** What a row said before stays in the file of its table until the file is written anew. */
  async eraseRemoved(tables: readonly TableName[]): Promise<boolean> {
    const { log } = this.#options;
    const names = tables.join(', ');
    const client = await this.pool.connect();
    const ask = (text: string) => send(client, { text, query_timeout: MIGRATION_MS } as pg.QueryConfig);
    const files = async () => {
      const of = tables.map((name) => `pg_relation_filenode('${name}') AS "${name}"`);
      return (await ask(`SELECT ${of.join(', ')}`)).rows[0] ?? {};
    };
    try {
      await ask('SET statement_timeout = 0');
      await ask(`SET lock_timeout = ${ERASE_LOCK_MS}`);
      const before = await files();
      await ask(`VACUUM (FULL) ${names}`);
      const after = await files();
      // A table of another role is passed over without an error.
      if (tables.every((name) => before[name] !== after[name])) return true;
      log.warn('tables were not rewritten; their owner can do it', { statement: `VACUUM (FULL) ${names}` });
    } catch (error) {
      log.warn('tables could not be rewritten', { statement: `VACUUM (FULL) ${names}`, error: String(error) });
    } finally {
      // Its settings are not those of the pool.
      client.release(true);
    }
    return false;
  }

  async query(name: string, text: string, parameters: readonly unknown[]): Promise<Result['rows']> {
    const statement = { name, text, values: parameters as unknown[] };
    // An account above row-level security needs no transaction to be let in.
    if (await this.#tenancy.above()) return (await send(this.pool, statement)).rows;
    return (await alone(this.pool, `BEGIN READ ONLY; ${SYSTEM_SCOPE}`, statement)).rows;
  }

  async append(execute: Execute, changes: readonly Change[]): Promise<void> {
    await execute(APPEND, [
      CHANGES_LOCK,
      CHANNEL,
      this.#self,
      changes.map((change) => change.organisationId),
      changes.map((change) => change.workspaceId),
      changes.map((change) => change.topic),
      changes.map((change) => change.entityId),
    ]);
  }

  onChangeHint(hint: () => void): () => void {
    const { url, clock, log } = this.#options;
    this.#listener ??= new Listener({
      url,
      clock,
      log,
      channel: CHANNEL,
      heard: (payload) => {
        if (payload !== this.#self) this.#hints.emit();
      },
    });
    return this.#hints.add(hint);
  }

  /** Resolves when the listener of `onChangeHint` has tried to connect. */
  async listening(): Promise<void> {
    await this.#listener?.ready();
  }

  changesCommitted(): void {
    this.#hints.emit();
  }

  classify(error: unknown): Failure {
    return classifyPostgres(error, (index) => this.#tenancy.uniqueColumns(index));
  }

  close(): Promise<void> {
    this.#closing ??= (async () => {
      this.#hints.clear();
      await this.#listener?.close();
      await this.#queues.close();
      await this.pool.end();
    })();
    return this.#closing;
  }
}

/**
 * Runs a list of migrations under the migration lock and then makes row-level security what `rules` say; errors are one
 * clear line without the password.
 */
async function migratePostgres(
  pool: pg.Pool,
  url: string,
  table: 'schema_migrations' | 'log_migrations',
  migrations: readonly Migration[],
  rules: readonly TableRules[],
  log: Log,
): Promise<void> {
  const exclusive: MigrationHost['exclusive'] = (run) =>
    transaction(
      pool,
      // A migration that changes rows would find none outside the system's scope.
      `BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; ${SYSTEM_SCOPE}`,
      async (execute) => {
        await execute('SELECT pg_advisory_xact_lock($1)', [MIGRATION_LOCK]);
        const tx: MigrationTx = {
          execute: async (sql) => {
            await execute(sql, []);
          },
          rows: async (sql) => (await execute(sql, [])).rows,
        };
        await run(tx);
        const changed = await applyRowSecurity(tx, rules);
        if (changed.length > 0) log.info('row-level security applied', { tables: changed.length });
      },
      MIGRATION_MS,
    );
  try {
    const host: MigrationHost = { engine: 'postgres', exclusive, checkRights: (tx) => checkRights(tx, rules) };
    await runMigrations(host, table, migrations, log);
  } catch (error) {
    if (!(error instanceof PostgresFailure)) throw error;
    throw unusablePostgres(url, error);
  }
}
