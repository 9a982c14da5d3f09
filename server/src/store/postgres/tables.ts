import { type Clock, systemClock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { MIGRATIONS } from '../migrations/index.ts';
import type { Tables } from '../ports.ts';
import { SqlTables } from '../sql/tables.ts';
import { PostgresEngine } from './engine.ts';

export interface PostgresTablesOptions {
  /** `postgresql://user:password@host:port/database`, with the parameters of libpq. */
  readonly url: string;
  readonly log: Log;
  /** Most connections at once, beside one that listens for changes and up to four that hold turns of queues. Default 10. */
  readonly poolSize?: number;
  readonly clock?: Clock;
}

/** The control tables in a PostgreSQL (15 or newer). Connects when first used; call `migrate()` before anything else. */
export async function openPostgresTables(options: PostgresTablesOptions): Promise<Tables> {
  const { url, log, poolSize = 10, clock = systemClock } = options;
  return new SqlTables(new PostgresEngine({ url, log, poolSize, clock, migrations: MIGRATIONS }));
}
