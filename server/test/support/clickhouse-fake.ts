/**
 * What Sluice sends to ClickHouse, checked: the form of each request, its statement, its parameters and settings. Batches are
 * read and kept by their tokens. What does not fit is answered with 500 and noted in `faults`.
 */
import { createHash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LogStoreAddress } from '../../src/keeper/clickhouse/store.ts';
import { openEngine, rowsOf } from '../../src/keeper/engine.ts';
import { LOG_COLUMNS } from '../../src/telemetry/log-columns.ts';

type Row = Readonly<Record<string, unknown>>;

export interface AskedStatement {
  readonly sql: string;
  readonly params: Readonly<Record<string, string>>;
}

const STATEMENTS = [
  /^SELECT version\(\) AS "version"$/,
  /^SELECT "name" FROM system\.columns WHERE "database" = currentDatabase\(\) AND "table" = \{table:String\}$/,
  /^SELECT DISTINCT "partition" FROM system\.parts WHERE "active" AND "database" = currentDatabase\(\) AND "table" = \{table:String\}$/,
  /^SELECT DISTINCT "node" FROM sluice_logs WHERE "seq" = 1 AND "node" IN \{nodes:Array\(String\)\} AND "time" BETWEEN/,
  /^CREATE TABLE IF NOT EXISTS sluice_logs \([^;]*\) ENGINE = MergeTree\nPARTITION BY intDiv\("time", 86400000\)\nORDER BY \("organisation_id", "workspace_id", "time", "id"\)/,
  /^ALTER TABLE sluice_logs ADD COLUMN IF NOT EXISTS "\w+" [A-Za-z(), 0-9]+$/,
  /^ALTER TABLE sluice_logs DROP PARTITION \d+$/,
  // Erasure: of one organisation, before a time, and a name by its digest.
  /^ALTER TABLE sluice_logs DELETE WHERE "organisation_id" = \{p1:String\} AND "time" < \{p2:Int64\}( AND "workspace_id" = \{p3:String\})? AND ("(id|api_key_id)" = \{p\d:String\}|hex\(SHA256\(concat\(\{p\d:String\}, "(end_user|trace_id)"\)\)\) = \{p\d:String\})$/,
  /^SELECT count\(\*\) AS "parts" FROM system\.parts WHERE NOT "active" AND "database" = currentDatabase\(\) AND "table" = \{table:String\} AND toUnixTimestamp\("remove_time"\) <= \{before:Int64\}$/,
  // Questions: the tenant first, whatever else is asked.
  /^(?:WITH|SELECT) .* FROM sluice_logs WHERE "organisation_id" = \{p\d+:String\} AND /s,
];

export class FakeClickHouse {
  version = '26.3.1.1';
  password = 'a password';
  database = 'logs';
  /** Columns that the table has; empty: there is no table. */
  columns: readonly string[] = [];
  partitions: readonly number[] = [];
  /** What questions are answered. */
  answer: (asked: AskedStatement) => readonly Row[] = () => [];
  /** Parts that a removal of rows has replaced. */
  oldParts = 0;
  /** Called before rows are removed, and after it: a server that dies then. */
  removing: (when: 'before' | 'after') => Promise<void> = async () => undefined;
  /** Called before a batch is answered, which is stored already: a server that dies then. */
  stored: (token: string) => Promise<void> = async () => undefined;
  readonly asked: AskedStatement[] = [];
  /** Rows of each batch. */
  readonly batches = new Map<string, readonly Row[]>();
  readonly faults: string[] = [];
  readonly #server = createServer((request, response) => void this.#serve(request, response));
  #dir = '';
  #port = 0;

  get address(): LogStoreAddress {
    return { secure: false, host: `127.0.0.1:${this.#port}`, user: 'writer', password: 'a password', database: 'logs' };
  }

  /** All rows, of each batch once. */
  get rows(): Row[] {
    return [...this.batches.values()].flat();
  }

  async start(): Promise<this> {
    if (this.#dir === '') this.#dir = await mkdtemp(join(tmpdir(), 'sluice-fake-clickhouse-'));
    await new Promise<void>((resolve) => this.#server.listen(this.#port, '127.0.0.1', resolve));
    this.#port = (this.#server.address() as AddressInfo).port;
    return this;
  }

  /** It is away; `start` brings it back at the same address. */
  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  async close(): Promise<void> {
    if (this.#server.listening) await this.stop();
    await rm(this.#dir, { recursive: true, force: true });
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const end = (status: number, text: string) => response.writeHead(status).end(text);
    try {
      const url = new URL(request.url ?? '/', 'http://fake');
      const given = Object.fromEntries(url.searchParams);
      this.#must(request.method === 'POST' && url.pathname === '/', `${request.method} ${url.pathname}`);
      this.#must(/^sluice clickhouse-js\//.test(String(request.headers['user-agent'])), 'the name of the program');
      const login = `Basic ${Buffer.from(`writer:${this.password}`).toString('base64')}`;
      if (request.headers.authorization !== login) {
        return void end(403, 'Code: 516. DB::Exception: writer: Authentication failed. (AUTHENTICATION_FAILED)');
      }
      if (given.database !== this.database) {
        return void end(404, `Code: 81. DB::Exception: Database ${given.database} does not exist. (UNKNOWN_DATABASE)`);
      }
      const body = Buffer.concat(chunks);
      const rows = given.query?.startsWith('INSERT')
        ? await this.#insert(given.query, given, body)
        : await this.#ask(body.toString().trim(), given);
      end(200, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
    } catch (error) {
      this.faults.push(String(error));
      end(500, `Code: 1002. DB::Exception: ${error} (UNKNOWN)`);
    }
  }

  #must(holds: boolean, what: string): void {
    if (!holds) throw new Error(`the request is not as it must be: ${what}`);
  }

  async #ask(body: string, given: Readonly<Record<string, string>>): Promise<readonly Row[]> {
    const sql = body.replace(/\s*FORMAT JSONEachRow$/, '');
    const params = Object.fromEntries(
      Object.entries(given).flatMap(([name, value]) => (name.startsWith('param_') ? [[name.slice(6), value]] : [])),
    );
    this.#must(
      STATEMENTS.some((each) => each.test(sql)),
      sql,
    );
    this.#must(!sql.includes("'"), 'no text is written into a statement');
    const named = new Set([...sql.matchAll(/\{(\w+):/g)].map(([, name]) => name));
    this.#must(named.size === Object.keys(params).length, `parameters of ${sql}`);
    for (const name of named) this.#must(name !== undefined && Object.hasOwn(params, name), `parameter ${name}`);
    const patient = given.http_headers_progress_interval_ms === '10000';
    this.#must(Number(given.max_execution_time) <= (patient ? 3_600 : 6), 'a limit of time');
    this.asked.push({ sql, params });
    if (sql.includes('AS "parts"')) return [{ parts: this.oldParts }];
    if (sql.startsWith('SELECT version')) return [{ version: this.version }];
    if (sql.includes('system.columns')) return this.columns.map((name) => ({ name }));
    if (sql.includes('system.parts')) return this.partitions.map((partition) => ({ partition: String(partition) }));
    if (sql.startsWith('SELECT DISTINCT "node"')) {
      const nodes = String(params.nodes);
      return this.rows
        .filter(({ node, seq }) => seq === 1 && nodes.includes(`'${node}'`))
        .map(({ node }) => ({ node }));
    }
    if (sql.startsWith('ALTER') && sql.includes(' DELETE ')) {
      this.#must(given.mutations_sync === '2', 'a removal that all replicas have carried out');
      await this.removing('before');
      this.#remove(sql, params);
      await this.removing('after');
    }
    if (patient && sql.startsWith('SELECT')) return this.#selected(sql, params);
    return sql.startsWith('SELECT') ? this.answer({ sql, params }) : [];
  }

  #remove(sql: string, params: Readonly<Record<string, string>>): void {
    const value = (name = '') => params[name] ?? '';
    const [, workspace] = /"workspace_id" = \{(\w+):/.exec(sql) ?? [];
    const [, plain = '', by] = /"(id|api_key_id)" = \{(\w+):/.exec(sql) ?? [];
    const [, salt, hashed = '', digest] = /concat\(\{(\w+):String\}, "(\w+)"\)\)\) = \{(\w+):/.exec(sql) ?? [];
    const goes = (row: Row): boolean => {
      if (row.organisation_id !== value('p1') || Number(row.time) >= Number(value('p2'))) return false;
      if (workspace !== undefined && row.workspace_id !== value(workspace)) return false;
      if (by !== undefined) return row[plain] === value(by);
      const text = `${value(salt)}${row[hashed]}`;
      return createHash('sha256').update(text).digest('hex').toUpperCase() === value(digest);
    };
    for (const [token, rows] of this.batches) {
      this.batches.set(
        token,
        rows.filter((row) => !goes(row)),
      );
    }
  }

  /** Answers what an erasure asks of the records that it selects: how many, their chunks, their traces. */
  #selected(sql: string, params: Readonly<Record<string, string>>): readonly Row[] {
    const inner =
      /FROM \(SELECT [^()]* FROM sluice_logs WHERE "organisation_id" = \{p1:String\} AND \("(\w+)" = \{p2:String\} AND "time" < \{p3:Int64\}(?: AND "workspace_id" = \{(p4):String\})?\)\)/;
    const [, column = '', workspace] = inner.exec(sql) ?? [];
    this.#must(column !== '', `what is erased: ${sql}`);
    const rows = this.rows.filter(
      (row) =>
        row.organisation_id === params.p1 &&
        row[column] === params.p2 &&
        Number(row.time) < Number(params.p3) &&
        (workspace === undefined || row.workspace_id === params[workspace]),
    );
    if (sql.startsWith('SELECT count(*) AS "n"')) return [{ n: rows.length }];
    const [, a = '', b = '', offset] =
      /^SELECT DISTINCT "(\w+)" AS a, "(\w+)" AS b .* ORDER BY ALL LIMIT 1000 OFFSET (\d+)$/s.exec(sql) ?? [];
    this.#must(a !== '', sql);
    const pairs = rows.filter((row) => row[a] !== null && row[b] !== null).map((row) => `${row[a]} ${row[b]}`);
    const page = [...new Set(pairs)].sort().slice(Number(offset), Number(offset) + 1000);
    return page.map((pair) => ({ a: pair.split(' ')[0], b: pair.split(' ')[1] }));
  }

  async #insert(query: string, given: Readonly<Record<string, string>>, body: Buffer): Promise<readonly Row[]> {
    const columns = [...LOG_COLUMNS.map(({ name }) => name), 'metadata_known'].sort();
    const [, list = ''] = /^INSERT INTO sluice_logs \(([\w, ]+)\) FORMAT Parquet$/.exec(query.trim()) ?? [];
    this.#must(list.split(', ').sort().join() === columns.join(), query);
    const { insert_deduplication_token: token = '', async_insert, insert_deduplicate } = given;
    this.#must(/^[0-9a-f-]{36}\/\d+$/.test(token), `token ${token}`);
    this.#must(async_insert === '0' && insert_deduplicate === '1', 'a batch that counts once');
    const rows = await this.#read(body);
    const days = new Set(rows.map(({ time }) => Math.floor(Number(time) / 86_400_000)));
    this.#must(rows.length > 0 && rows.length <= 50_000 && days.size === 1, `${rows.length} rows of ${days.size} days`);
    if (!this.batches.has(token)) this.batches.set(token, rows);
    await this.stored(token);
    return [];
  }

  async #read(body: Buffer): Promise<Row[]> {
    const file = join(this.#dir, 'batch.parquet');
    await writeFile(file, body);
    const engine = await openEngine({ memory: '64MB', threads: 1, temporary: this.#dir });
    const connection = await engine.connect();
    try {
      return await rowsOf(connection, { sql: `SELECT * FROM read_parquet('${file}')`, values: [] });
    } finally {
      connection.closeSync();
      engine.closeSync();
    }
  }
}
