import { createHash } from 'node:crypto';
import { SluiceError } from '../../kernel/errors.ts';
import type { Log } from '../../kernel/log.ts';
import { type Migration, TYPES, type Types } from './migration.ts';

/** A transaction that no other process's migration can run beside. */
export interface MigrationTx {
  execute(sql: string): Promise<void>;
  rows(sql: string): Promise<readonly Record<string, unknown>[]>;
}

export interface MigrationHost {
  readonly engine: Types['engine'];
  /** Runs `run` in one transaction under the store's migration lock; all or nothing. */
  exclusive(run: (tx: MigrationTx) => Promise<void>): Promise<void>;
  /** Throws before anything is changed when the account of the store may not change its tables. */
  checkRights?(tx: MigrationTx): Promise<void>;
}

/** The statements of a migration as one hash: a released migration that was edited afterwards is found out. */
export function checksumOf(migration: Migration, engine: Types['engine']): string {
  return createHash('sha256').update(migration.statements(TYPES[engine]).join(';\n')).digest('hex');
}

const refused = (message: string, cause?: unknown) => new SluiceError('internal', message, { cause, detail: message });

/**
 * Brings a database up to `list`. Everything happens in one transaction under a lock, so of several processes that start
 * at once one migrates and the others find it done, and a failed migration leaves nothing behind.
 *
 * @param table where the migrations that ran are noted
 */
export async function runMigrations(
  host: MigrationHost,
  table: 'schema_migrations' | 'log_migrations',
  list: readonly Migration[],
  log: Log,
): Promise<void> {
  const types = TYPES[host.engine];
  await host.exclusive(async (tx) => {
    // Asked first where accounts have rights: one that owns nothing and only finds everything done may start, too.
    const noted =
      host.engine === 'postgres'
        ? await tx.rows(`SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = '${table}'`)
        : [];
    if (host.engine === 'postgres' && noted.length === 0) await host.checkRights?.(tx);
    if (noted.length === 0)
      await tx.execute(
        `CREATE TABLE IF NOT EXISTS ${table} (name ${types.text} NOT NULL PRIMARY KEY, checksum ${types.text} NOT NULL)${types.options}`,
      );
    const done = await tx.rows(`SELECT name, checksum FROM ${table} ORDER BY name`);
    check(list, done, host.engine);
    if (done.length > 0 && done.length < list.length) await host.checkRights?.(tx);
    for (const migration of list.slice(done.length)) {
      for (const statement of migration.statements(types)) {
        try {
          await tx.execute(statement);
        } catch (error) {
          const reason = error instanceof Error ? error.message.split('\n')[0] : String(error);
          throw refused(`Migration ${migration.name} failed and was rolled back: ${reason}`, error);
        }
      }
      const checksum = checksumOf(migration, host.engine);
      await tx.execute(`INSERT INTO ${table} (name, checksum) VALUES ('${migration.name}', '${checksum}')`);
      // A new store has had none: each of them would only stand before the first thing that people read.
      log[done.length === 0 ? 'debug' : 'info']('migration applied', { migration: migration.name, table });
    }
  });
}

function check(list: readonly Migration[], done: readonly Record<string, unknown>[], engine: Types['engine']): void {
  done.forEach((row, i) => {
    const known = list[i];
    if (!known || known.name !== row.name) {
      throw refused(
        `The database has migration ${String(row.name)}, which this version does not know. Start the newer version again, or restore a backup from before it.`,
      );
    }
    if (row.checksum !== checksumOf(known, engine)) {
      throw refused(
        `Migration ${known.name} is not the one that this database was made with. Start the version that made it, or restore a backup.`,
      );
    }
  });
}
