import type pg from 'pg';
import type { Log } from '../../kernel/log.ts';
import { LOG_MIGRATIONS } from '../migrations/index.ts';
import type { JournalPosition, LogQuery, LogSink, LogWalk, StoredLog, TenantContext } from '../ports.ts';
import { misuse } from '../sql/columns.ts';
import type { Scope } from '../sql/engine.ts';
import { storeError } from '../sql/failure.ts';
import {
  countLogs,
  findLog,
  forgetLogs,
  type LogStatement,
  listLogs,
  organisationAfter,
  parseLogs,
  TRACE_LENGTH,
  walkLogs,
} from '../sql/logs.ts';
import { alone, classifyPostgres, openPool, send, transaction } from './client.ts';
import { migratePostgres } from './engine.ts';
import { LOG_RULES, SYSTEM_SCOPE, Tenancy } from './row-security.ts';

/** A second connection lets a search run while a batch is stored; more would only queue on the same disk. */
const CONNECTIONS = 4;

export interface PostgresLogsOptions {
  readonly url: string;
  readonly log: Log;
}

/**
 * Request logs in a PostgreSQL, the one of the control tables or another. A commit does not wait for the disk
 * (`synchronous_commit=off`): the journal keeps what the stored position does not cover.
 */
export async function openPostgresLogs({ url, log }: PostgresLogsOptions): Promise<LogSink> {
  return new PostgresLogs(url, log);
}

/**
 * The lines as one JSON array: the server takes them apart, which costs this process nothing. `json` keeps the text of
 * each record as it was written.
 */
const INSERT = `INSERT INTO logs (node, seq, id, time, organisation_id, workspace_id, trace_id, record)
SELECT r.node, r.seq, r.id, r.time, r.organisation_id, r.workspace_id, left(r.trace_id, ${TRACE_LENGTH}), line::text
FROM json_array_elements($1::json) AS line,
  json_to_record(line) AS r(node text, seq bigint, id text, time bigint, organisation_id text, workspace_id text, trace_id text)
ON CONFLICT (node, seq) DO NOTHING`;

const POSITION = `INSERT INTO journals (name, segment, position) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET segment = excluded.segment, position = excluded.position`;

class PostgresLogs implements LogSink {
  readonly #url: string;
  readonly #log: Log;
  readonly #pool: pg.Pool;
  readonly #tenancy: Tenancy;
  #closing: Promise<void> | null = null;

  constructor(url: string, log: Log) {
    this.#url = url;
    this.#log = log;
    this.#pool = openPool(url, CONNECTIONS, log);
    this.#tenancy = new Tenancy(this.#pool);
  }

  async migrate(): Promise<void> {
    await migratePostgres(this.#pool, this.#url, 'log_migrations', LOG_MIGRATIONS, LOG_RULES, this.#log);
    await this.#tenancy.look();
  }

  async insert(journal: string, lines: Buffer, position: JournalPosition): Promise<void> {
    const batch = `[${lines.toString('utf8').split('\n').slice(0, -1).map(storable).join(',')}]`;
    await this.#told('insert', () =>
      transaction(this.#pool, `BEGIN; SET LOCAL synchronous_commit = off; ${SYSTEM_SCOPE}`, async (execute) => {
        if (lines.length > 0) await execute(INSERT, [batch]);
        await execute(POSITION, [journal, position.segment, position.offset]);
      }),
    );
  }

  async position(journal: string): Promise<JournalPosition | null> {
    const [row] = await this.#rows(null, {
      sql: 'SELECT segment, position FROM journals WHERE name = ?',
      parameters: [journal],
    });
    return row ? { segment: row.segment as string, offset: row.position as number } : null;
  }

  async find(tenant: TenantContext, id: string): Promise<StoredLog | null> {
    return parseLogs(tenant, await this.#rows(tenant, findLog(tenant, id)), misuse)[0] ?? null;
  }

  async list(tenant: TenantContext, query: LogQuery): Promise<{ total: number; rows: StoredLog[] }> {
    const [counted, rows] = await Promise.all([
      this.#rows(tenant, countLogs(tenant, query)),
      this.#rows(tenant, listLogs(tenant, query, 'postgres')),
    ]);
    return { total: Number(counted[0]?.total), rows: parseLogs(tenant, rows, misuse) };
  }

  async walk(tenant: TenantContext, query: LogWalk): Promise<StoredLog[]> {
    return parseLogs(tenant, await this.#rows(tenant, walkLogs(tenant, query)), misuse);
  }

  async forget(organisationId: string | null, before: number, limit: number): Promise<number> {
    const { sql, parameters } = forgetLogs(organisationId, before, limit, 'postgres');
    const text = numbered(sql);
    return this.#told('insert', () =>
      transaction(this.#pool, `BEGIN; SET LOCAL synchronous_commit = off; ${SYSTEM_SCOPE}`, async (execute) => {
        return (await execute(text, [...parameters])).affected;
      }),
    );
  }

  async organisationAfter(organisationId: string): Promise<string | null> {
    const [row] = await this.#rows(null, organisationAfter(organisationId));
    return (row?.organisation_id as string | undefined) ?? null;
  }

  async count(): Promise<number> {
    const [row] = await this.#rows(null, { sql: 'SELECT count(*) AS total FROM logs', parameters: [] });
    return Number(row?.total);
  }

  async ping(): Promise<void> {
    await this.#told('read', () => send(this.#pool, { text: 'SELECT 1' }));
  }

  close(): Promise<void> {
    this.#closing ??= this.#pool.end();
    return this.#closing;
  }

  async #rows(scope: Scope, { sql, parameters }: LogStatement) {
    const text = numbered(sql);
    return this.#told('read', async () => {
      const begin = `BEGIN READ ONLY; ${await this.#tenancy.enter(scope)}`;
      return (await alone(this.#pool, begin, { text, values: [...parameters] })).rows;
    });
  }

  async #told<T>(verb: 'read' | 'insert', work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw storeError({ classify: classifyPostgres }, error, 'logs', verb);
    }
  }
}

function numbered(sql: string): string {
  let n = 0;
  return sql.replace(/\?/g, () => `$${++n}`);
}

/** U+0000 and half surrogate pairs are JSON, but not text of PostgreSQL: one such record would refuse its whole batch. */
function storable(line: string): string {
  if (!line.includes('\\u0000') && !line.includes('\\ud') && !line.includes('\\uD')) return line;
  return JSON.stringify(clean(JSON.parse(line)));
}

function clean(value: unknown): unknown {
  if (typeof value === 'string') return value.replaceAll('\0', '\ufffd').toWellFormed();
  if (Array.isArray(value)) return value.map(clean);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [clean(key), clean(inner)]));
}
