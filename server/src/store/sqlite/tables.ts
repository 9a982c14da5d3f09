import { type Clock, systemClock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { MIGRATIONS } from '../migrations/index.ts';
import type { Tables } from '../ports.ts';
import { SqlTables } from '../sql/tables.ts';
import { SqliteEngine } from './engine.ts';

export interface SqliteTablesOptions {
  /** Path of the database file; it is made when missing. `-wal` and `-shm` are beside it while it is open. */
  readonly file: string;
  readonly log: Log;
  readonly clock?: Clock;
}

/**
 * The control tables in one SQLite file. Several processes may open it at once. Rejects with one clear line when the
 * file cannot be opened. Call `migrate()` before anything else.
 */
export async function openSqliteTables({ file, log, clock = systemClock }: SqliteTablesOptions): Promise<Tables> {
  const engine = await SqliteEngine.open({ file, log, clock, migrations: MIGRATIONS });
  return new SqlTables(engine);
}
