/** A worker thread: owns the connections to one file and runs one statement after the other. */
import { closeSync, openSync } from 'node:fs';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { parentPort, workerData } from 'node:worker_threads';
import {
  type Answer,
  CLOSE,
  type ConnectionOptions,
  type Opened,
  QUERY,
  type Request,
  ROLLBACK,
  SCRIPT,
  type Value,
  type WorkerOptions,
} from './protocol.ts';

const STATEMENTS = 256;

interface Prepared {
  readonly statement: StatementSync;
  /** Null for statements that answer no rows. */
  readonly columns: readonly string[] | null;
}

class Connection {
  readonly db: DatabaseSync;
  /** Oldest use first. */
  readonly #prepared = new Map<string, Prepared>();

  constructor(file: string, options: ConnectionOptions) {
    this.db = new DatabaseSync(file, { timeout: 10_000 });
    this.db.exec(`PRAGMA page_size = ${options.pageSize}`);
    this.db.exec('PRAGMA journal_mode = WAL');
    this.db.exec(`PRAGMA wal_autocheckpoint = ${options.checkpointPages}`);
    this.db.exec(`PRAGMA synchronous = ${options.synchronous}`);
    this.db.exec('PRAGMA foreign_keys = ON');
    this.db.exec('PRAGMA trusted_schema = OFF');
    this.db.exec('PRAGMA temp_store = MEMORY');
    this.db.exec(`PRAGMA cache_size = -${options.cacheKb}`);
    this.db.exec('PRAGMA journal_size_limit = 67108864');
    if (options.secureDelete) this.db.exec('PRAGMA secure_delete = ON');
    if (options.readOnly) this.db.exec('PRAGMA query_only = ON');
    this.db.exec(`PRAGMA busy_timeout = ${options.busyTimeoutMs}`);
  }

  prepare(sql: string): Prepared {
    let found = this.#prepared.get(sql);
    if (found) {
      this.#prepared.delete(sql);
    } else {
      const statement = this.db.prepare(sql);
      const columns = statement.columns().map((column) => column.name);
      if (columns.length > 0) statement.setReturnArrays(true);
      found = { statement, columns: columns.length > 0 ? columns : null };
      if (this.#prepared.size >= STATEMENTS) {
        const oldest = this.#prepared.keys().next();
        if (!oldest.done) this.#prepared.delete(oldest.value);
      }
    }
    this.#prepared.set(sql, found);
    return found;
  }

  rollback(): void {
    if (this.db.isTransaction) this.db.exec('ROLLBACK');
  }

  close(): void {
    this.#prepared.clear();
    this.rollback();
    this.db.close();
  }
}

const NONE: readonly string[] = [];

function run(request: Request): Answer {
  const [id, at, operation, sql, parameters] = request;
  const connection = connections[at];
  if (!connection) return [id, false, `no connection ${at}`, 0];
  try {
    switch (operation) {
      case QUERY: {
        const { statement, columns } = connection.prepare(sql);
        if (columns === null) return [id, true, NONE, [], Number(statement.run(...parameters).changes)];
        return [id, true, columns, statement.all(...parameters) as unknown as Value[][], 0];
      }
      case SCRIPT:
        connection.db.exec(sql);
        return [id, true, NONE, [], 0];
      case ROLLBACK:
        connection.rollback();
        return [id, true, NONE, [], 0];
      case CLOSE:
        for (const each of connections.splice(0)) each.close();
        return [id, true, NONE, [], 0];
    }
  } catch (error) {
    const known = error as { message?: string; errcode?: number };
    return [id, false, String(known.message ?? error), known.errcode ?? 0];
  }
}

const port = parentPort;
if (!port) throw new Error('this file is a worker thread');
const { file, connections: wanted } = workerData as WorkerOptions;
const connections: Connection[] = [];
let failure: string | null = null;
try {
  // SQLite gives its side files the mode of the main file: keys and logs are for the owner only.
  closeSync(openSync(file, 'a', 0o600));
  for (const options of wanted) connections.push(new Connection(file, options));
} catch (error) {
  failure = error instanceof Error ? error.message : String(error);
}
port.on('message', (requests: readonly Request[]) => {
  // Without connections there is nothing to answer: the other side ends this thread and refuses what it sent.
  if (failure !== null) return;
  const answers = requests.map(run);
  port.postMessage(answers);
  if (requests.some((request) => request[2] === CLOSE)) port.close();
});
port.postMessage({ failure } satisfies Opened);
