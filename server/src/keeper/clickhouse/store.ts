/**
 * ClickHouse as the store of records: batches go there, and questions are answered from there. The official client is loaded
 * by name, because only a keeper that has the setting needs it.
 */
import { createReadStream } from 'node:fs';
import type { Readable } from 'node:stream';
import { SluiceError } from '../../kernel/errors.ts';
import type { Log } from '../../kernel/log.ts';
import type { Connection } from '../engine.ts';
import type { SqlValue } from '../log-sql.ts';
import { faultOf, type Place, reasonOf, tooOld } from './faults.ts';
import { addColumns, CREATE_TABLE, DAY_MS, knownOf, TABLE, TABLE_COLUMNS } from './table.ts';

/** Where it is, and who asks. */
export interface LogStoreAddress {
  /** Whether by TLS. */
  readonly secure: boolean;
  /** `host:port` */
  readonly host: string;
  readonly user: string;
  readonly password: string;
  readonly database: string;
}

interface Answer {
  json(): Promise<unknown[]>;
  stream(): AsyncIterable<readonly { json(): unknown }[]>;
}

interface Asked {
  readonly query: string;
  readonly query_params?: Readonly<Record<string, SqlValue>>;
  readonly abort_signal?: AbortSignal;
  readonly clickhouse_settings?: Readonly<Record<string, string | number>>;
}

interface Client {
  query(params: Asked & { readonly format: 'JSONEachRow' }): Promise<Answer>;
  command(params: Asked): Promise<unknown>;
  insert(params: {
    readonly table: string;
    readonly columns: readonly string[];
    readonly values: Readable;
    readonly format: 'Parquet';
    readonly clickhouse_settings: Readonly<Record<string, string | number>>;
  }): Promise<unknown>;
  close(): Promise<void>;
}

interface Package {
  createClient(options: Readonly<Record<string, unknown>>): Client;
}

const PACKAGE = '@clickhouse/client';
const REQUEST_MS = 30_000;
/** The client's level for no lines at all. */
const NO_LINES = 127;
const MOST_SOCKETS = 10;
const AGAIN_S = 5;
/** Rows of one batch: ClickHouse makes one block of it, so that a batch is stored whole or not at all. */
export const MOST_OF_BATCH = 50_000;

/** What questions rely on, whatever the profile of the user says. */
const READING = {
  max_execution_time: 6,
  output_format_json_quote_64bit_integers: 0,
  cast_keep_nullable: 1,
  group_by_use_nulls: 0,
  transform_null_in: 0,
  count_distinct_implementation: 'uniqExact',
  prefer_column_name_to_alias: 0,
};

const WRITING = {
  max_execution_time: 30,
  async_insert: 0,
  insert_deduplicate: 1,
  max_insert_threads: 1,
  max_insert_block_size: MOST_OF_BATCH,
  min_insert_block_size_rows: MOST_OF_BATCH,
  min_insert_block_size_bytes: 0,
};

/** Of what may take minutes: the server says meanwhile that it is at it. */
const PATIENT = {
  max_execution_time: 3_600,
  send_progress_in_http_headers: 1,
  http_headers_progress_interval_ms: '10000',
};
/** Its clock and that of the control store. */
const SKEW_MS = 60_000;

type Row = Record<string, unknown>;

class TooOld extends Error {}

export class ClickHouse {
  readonly #address: LogStoreAddress;
  readonly #log: Log;
  #client: Promise<Client> | null = null;
  #made: Promise<void> | null = null;
  #why: string | null = null;

  constructor(address: LogStoreAddress, log: Log) {
    this.#address = address;
    this.#log = log;
  }

  /** Why it does not serve, a line that says what to do; null: it does, as far as is known. */
  get why(): string | null {
    return this.#why;
  }

  /** Resolves when it is there, is recent enough and has the table. Rejects with `unavailable`. */
  async ready(): Promise<void> {
    this.#made ??= this.#make();
    await this.#made;
  }

  /** Looks whether it is there again. */
  async retry(): Promise<void> {
    await this.#heard(async (client) => void (await client.command({ query: 'SELECT version() AS "version"' })));
  }

  /** Its version; changes nothing. Rejects with a line that says what is wrong and what to do. */
  async look(): Promise<string> {
    try {
      return (await this.#look()).version;
    } catch (error) {
      const said = error instanceof TooOld ? error.message : reasonOf(error, this.#place);
      throw new Error(`ClickHouse at ${this.#address.host} cannot be used. ${said}`, { cause: error });
    }
  }

  /** Stores a Parquet file of `MOST_OF_BATCH` rows of one day at most; again under the same token, it stores nothing. */
  async insert(path: string, token: string): Promise<void> {
    const insert = async (client: Client) => {
      await client.insert({
        table: TABLE,
        columns: TABLE_COLUMNS.map(({ name }) => name),
        values: createReadStream(path),
        format: 'Parquet',
        clickhouse_settings: { ...WRITING, insert_deduplication_token: token },
      });
    };
    await this.#heard(insert).catch((error: unknown) => {
      throw error instanceof SluiceError ? error : this.#away(error instanceof Error ? error.message : '', error);
    });
  }

  /** Which of these processes have their first record, within a day of these times (milliseconds since the epoch). */
  async recorded(nodes: readonly string[], { from, to }: { readonly from: number; readonly to: number }) {
    return this.#heard(async (client) => {
      const query = `SELECT DISTINCT "node" FROM ${TABLE} WHERE "seq" = 1 AND "node" IN {nodes:Array(String)} AND "time" BETWEEN {from:Int64} AND {to:Int64}`;
      const query_params = { nodes, from: BigInt(from - DAY_MS), to: BigInt(to + DAY_MS) };
      const answer = await client.query({ query, query_params, format: 'JSONEachRow' });
      return ((await answer.json()) as { node: string }[]).map(({ node }) => node);
    });
  }

  /** Removes days that ended before a time, whole and without a mutation. Answers how many. */
  async forgetBefore(time: number): Promise<number> {
    const day = Math.floor(time / DAY_MS);
    return this.#heard(async (client) => {
      const query = `SELECT DISTINCT "partition" FROM system.parts WHERE "active" AND "database" = currentDatabase() AND "table" = {table:String}`;
      const answer = await client.query({ query, query_params: { table: TABLE }, format: 'JSONEachRow' });
      const days = ((await answer.json()) as { partition: string }[])
        .map(({ partition }) => Number(partition))
        .filter((each) => Number.isSafeInteger(each) && each < day);
      for (const each of days) await client.command({ query: `ALTER TABLE ${TABLE} DROP PARTITION ${each}` });
      return days.length;
    });
  }

  /** Removes rows for good. Resolves when all replicas have written their parts anew; where this rejects, they may go on. */
  remove(where: string, values: readonly SqlValue[]): Promise<void> {
    const query = `ALTER TABLE ${TABLE} DELETE WHERE ${where}`;
    const clickhouse_settings = { ...PATIENT, mutations_sync: 2 };
    return this.#heard(
      async (client) => void (await client.command({ query, query_params: paramsOf(values), clickhouse_settings })),
    );
  }

  /** Whether no part is left that was replaced before a time (milliseconds since the epoch). */
  isClear(before: number): Promise<boolean> {
    return this.#heard(async (client) => {
      const query = `SELECT count(*) AS "parts" FROM system.parts WHERE NOT "active" AND "database" = currentDatabase() AND "table" = {table:String} AND toUnixTimestamp("remove_time") <= {before:Int64}`;
      const query_params = { table: TABLE, before: BigInt(Math.ceil((before + SKEW_MS) / 1_000)) };
      const answer = await client.query({ query, query_params, format: 'JSONEachRow' });
      const [row] = (await answer.json()) as { parts: number }[];
      return Number(row?.parts) === 0;
    });
  }

  /** A connection, as questions use one, or as one that may take minutes does. It holds no socket between them. */
  connect({ patient = false } = {}): Connection {
    let under = new AbortController();
    const ask = <T>(sql: string, values: readonly SqlValue[], read: (answer: Answer) => Promise<T>): Promise<T> => {
      under = new AbortController();
      const { signal } = under;
      const query_params = paramsOf(values);
      const more = patient ? { clickhouse_settings: PATIENT } : {};
      return this.#heard(async (client) =>
        read(await client.query({ query: sql, query_params, format: 'JSONEachRow', abort_signal: signal, ...more })),
      );
    };
    return {
      run: (sql, values = []) => ask(sql, values, (answer) => answer.json()),
      runAndReadAll: async (sql, values = []) => {
        const rows = (await ask(sql, values, (answer) => answer.json())) as Row[];
        return { getRowObjectsJS: () => rows.map(plainRow) };
      },
      stream: async (sql, values = []) => {
        const answer = await ask(sql, values, async (found) => found);
        return { yieldRowObjectJs: () => this.#rowsOf(answer) };
      },
      interrupt: () => under.abort(),
      closeSync: () => undefined,
    };
  }

  async close(): Promise<void> {
    const client = await this.#client?.catch(() => null);
    await client?.close();
  }

  async *#rowsOf(answer: Answer): AsyncGenerator<Row[]> {
    try {
      for await (const rows of answer.stream()) yield rows.map((row) => plainRow(row.json() as Row));
    } catch (error) {
      throw this.#failed(error);
    }
  }

  async #heard<T>(work: (client: Client) => Promise<T>): Promise<T> {
    await this.ready();
    try {
      const answer = await work(await this.#connected());
      this.#serves();
      return answer;
    } catch (error) {
      throw this.#failed(error);
    }
  }

  async #make(): Promise<void> {
    try {
      const { columns } = await this.#look();
      const client = await this.#connected();
      for (const query of columns.size === 0 ? [CREATE_TABLE] : addColumns(columns)) await client.command({ query });
      this.#serves();
    } catch (error) {
      // Looked at again by the next one who needs it.
      this.#made = null;
      throw this.#away(error instanceof TooOld ? error.message : reasonOf(error, this.#place), error);
    }
  }

  async #look(): Promise<{ readonly version: string; readonly columns: ReadonlySet<string> }> {
    const client = await this.#connected();
    const rowsOf = async (query: string, query_params: Record<string, string>) =>
      (await (await client.query({ query, query_params, format: 'JSONEachRow' })).json()) as Row[];
    const [found] = await rowsOf('SELECT version() AS "version"', {});
    const version = String(found?.version);
    const old = tooOld(version);
    if (old !== null) throw new TooOld(old);
    const columns = await rowsOf(
      'SELECT "name" FROM system.columns WHERE "database" = currentDatabase() AND "table" = {table:String}',
      { table: TABLE },
    );
    return { version, columns: new Set(columns.map(({ name }) => String(name))) };
  }

  #connected(): Promise<Client> {
    this.#client ??= this.#open();
    return this.#client;
  }

  async #open(): Promise<Client> {
    const { secure, host, user, password, database } = this.#address;
    const { createClient } = (await import(PACKAGE)) as Package;
    return createClient({
      url: `${secure ? 'https' : 'http'}://${host}`,
      username: user,
      password,
      database,
      application: 'sluice',
      request_timeout: REQUEST_MS,
      max_open_connections: MOST_SOCKETS,
      // A question about thousands of traces is longer than a URL may be.
      use_multipart_params_auto: true,
      log: { level: NO_LINES },
      clickhouse_settings: READING,
    });
  }

  #serves(): void {
    if (this.#why !== null) this.#log.info('ClickHouse stores the logs again', { host: this.#address.host });
    this.#why = null;
  }

  /** A statement was not carried out: by the server, which serves others, or because it is away. */
  #failed(error: unknown): Error {
    if (error instanceof Error && /abort/i.test(`${error.name} ${error.message}`)) {
      return new SluiceError('unavailable', 'The question was ended.', { cause: error });
    }
    const fault = faultOf(error);
    if (fault === 'busy') {
      return new SluiceError(
        'unavailable',
        'The logs have too much to do right now. Ask for a shorter range of time.',
        {
          retryAfter: AGAIN_S,
          cause: error,
        },
      );
    }
    const reason = reasonOf(error, this.#place);
    return fault === 'refused' ? new Error(reason, { cause: error }) : this.#away(reason, error);
  }

  /** The log says why, once for each reason. The error is for callers. */
  #away(reason: string, cause: unknown): SluiceError {
    const why = `ClickHouse at ${this.#address.host} does not store the logs. ${reason}`;
    if (this.#why !== why) this.#log.warn(why);
    this.#why = why;
    return new SluiceError(
      'unavailable',
      'The logs cannot be read because their store is away. GET /v1/operator/health says why.',
      { retryAfter: AGAIN_S, cause },
    );
  }

  get #place(): Place {
    const { host, database, user } = this.#address;
    return { host, database, user };
  }
}

function paramsOf(values: readonly SqlValue[]): Readonly<Record<string, SqlValue>> {
  return Object.fromEntries(values.map((value, i) => [`p${i + 1}`, value]));
}

function plainRow(row: Row): Row {
  const known = row[knownOf('metadata')];
  return known === false ? { ...row, metadata: null } : row;
}
