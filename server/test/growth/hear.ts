/** Every statement that this process sends to a store, as it is sent. */
import pg from 'pg';
import { SqliteThread } from '../../src/store/sqlite/thread.ts';

export interface Sent {
  readonly sql: string;
  readonly parameters: readonly unknown[];
  /** How its transaction began, on PostgreSQL: it says whose it is. */
  readonly begin: string;
}

/** Notes the statements that pass to the engine, until the answered function is called. */
export function hear(engine: 'sqlite' | 'postgres', note: (sent: Sent) => void): () => void {
  if (engine === 'sqlite') {
    const query = SqliteThread.prototype.query;
    SqliteThread.prototype.query = function (connection, sql, parameters, life) {
      note({ sql, parameters, begin: '' });
      return query.call(this, connection, sql, parameters, life);
    };
    return () => {
      SqliteThread.prototype.query = query;
    };
  }
  const query = pg.Client.prototype.query;
  const begun = new WeakMap<pg.Client, string>();
  pg.Client.prototype.query = function (this: pg.Client, ...args: unknown[]) {
    const [config] = args;
    if (typeof config === 'object' && config !== null && 'text' in config) {
      const { text, values = [] } = config as { text: string; values?: unknown[] };
      if (text.startsWith('BEGIN')) begun.set(this, text);
      else if (text === 'COMMIT' || text === 'ROLLBACK') begun.delete(this);
      else note({ sql: text, parameters: values, begin: begun.get(this) ?? '' });
    }
    return (query as (...all: unknown[]) => unknown).apply(this, args);
  } as typeof query;
  return () => {
    pg.Client.prototype.query = query;
  };
}
