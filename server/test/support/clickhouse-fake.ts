/**
 * What Sluice sends to ClickHouse, checked: the form of each request, its statement, its parameters and settings. Batches are
 * read and kept by their tokens. What does not fit is answered with 500 and noted in `faults`.
 */
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
        : this.#ask(body.toString().trim(), given);
      end(200, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
    } catch (error) {
      this.faults.push(String(error));
      end(500, `Code: 1002. DB::Exception: ${error} (UNKNOWN)`);
    }
  }

  #must(holds: boolean, what: string): void {
    if (!holds) throw new Error(`the request is not as it must be: ${what}`);
  }

  #ask(body: string, given: Readonly<Record<string, string>>): readonly Row[] {
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
    this.#must(Number(given.max_execution_time) <= 6, 'a limit of time');
    this.asked.push({ sql, params });
    if (sql.startsWith('SELECT version')) return [{ version: this.version }];
    if (sql.includes('system.columns')) return this.columns.map((name) => ({ name }));
    if (sql.includes('system.parts')) return this.partitions.map((partition) => ({ partition: String(partition) }));
    if (sql.startsWith('SELECT DISTINCT "node"')) {
      const nodes = String(params.nodes);
      return this.rows
        .filter(({ node, seq }) => seq === 1 && nodes.includes(`'${node}'`))
        .map(({ node }) => ({ node }));
    }
    return sql.startsWith('SELECT') ? this.answer({ sql, params }) : [];
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
