/**
 * The part of DuckDB that the keeper uses. The package is optional, so its types are said here and it is loaded by name:
 * a platform without it compiles, starts and serves.
 */
import { LOG_COLUMNS, type LogColumn } from '../telemetry/log-columns.ts';
import type { LogRow, LogValue } from '../telemetry/log-query.ts';
import type { SqlValue, Statement } from './log-sql.ts';

interface Reader {
  getRowObjectsJS(): Record<string, unknown>[];
}

interface Streamed {
  /** Some 2,000 rows at a time. */
  yieldRowObjectJs(): AsyncIterable<Record<string, unknown>[]>;
}

export interface Connection {
  run(sql: string, values?: SqlValue[]): Promise<unknown>;
  runAndReadAll(sql: string, values?: SqlValue[]): Promise<Reader>;
  stream(sql: string, values?: SqlValue[]): Promise<Streamed>;
  interrupt(): void;
  closeSync(): void;
}

export interface Engine {
  connect(): Promise<Connection>;
  closeSync(): void;
}

interface Package {
  readonly DuckDBInstance: { create(path: string, options: Record<string, string>): Promise<Engine> };
}

const PACKAGE = '@duckdb/node-api';

/**
 * An engine without a database file. `temporary` is a directory for what does not fit into `memory` (`512MB`). Rejects
 * where the package is not installed or does not fit the platform.
 */
export async function openEngine(options: {
  readonly memory: string;
  readonly threads: number;
  readonly temporary: string;
  /** Rows of files stay in their order where a statement does not sort them. */
  readonly ordered?: boolean;
}): Promise<Engine> {
  const { DuckDBInstance } = (await import(PACKAGE)) as Package;
  const engine = await DuckDBInstance.create(':memory:', {
    memory_limit: options.memory,
    threads: String(options.threads),
    temp_directory: options.temporary,
    max_temp_directory_size: '4GB',
    preserve_insertion_order: String(options.ordered === true),
    autoinstall_known_extensions: 'false',
    autoload_known_extensions: 'false',
    allow_community_extensions: 'false',
  });
  const connection = await engine.connect();
  // Where each column is in a file is read once: no file ever changes.
  await connection.run('SET GLOBAL parquet_metadata_cache = true');
  connection.closeSync();
  return engine;
}

/** Rows with whole numbers as numbers, and maps as objects. */
export async function rowsOf(connection: Connection, { sql, values }: Statement): Promise<Record<string, LogValue>[]> {
  const reader = await connection.runAndReadAll(sql, [...values]);
  return plainRows(reader.getRowObjectsJS());
}

/** The same of a long answer, some rows at a time. */
export async function* streamOf(
  connection: Connection,
  { sql, values }: Statement,
): AsyncGenerator<Record<string, LogValue>[]> {
  const streamed = await connection.stream(sql, [...values]);
  for await (const rows of streamed.yieldRowObjectJs()) yield plainRows(rows);
}

function plainRows(rows: Record<string, unknown>[]): Record<string, LogValue>[] {
  for (const row of rows) for (const name in row) row[name] = plain(row[name]);
  return rows as Record<string, LogValue>[];
}

function plain(value: unknown): LogValue {
  if (typeof value === 'bigint') return Number(value);
  if (Array.isArray(value)) {
    // A map without a prototype: what callers name their keys is never one of Object's own.
    const map: Record<string, string> = Object.create(null);
    for (const { key, value: of } of value as { key: string; value: string }[]) map[key] = of;
    return { ...map };
  }
  return (value ?? null) as LogValue;
}

/** The columns alone, of a row that holds more. */
export function rowWith(columns: readonly string[], row: Readonly<Record<string, LogValue>>): LogRow {
  return Object.fromEntries(columns.map((name) => [name, row[name] ?? null]));
}

const TYPES: Readonly<Record<LogColumn['type'], string>> = {
  text: 'VARCHAR',
  integer: 'BIGINT',
  boolean: 'BOOLEAN',
  map: 'MAP(VARCHAR, VARCHAR)',
  json: 'VARCHAR',
};

/** Makes an empty table of the columns. */
export function tableOf(name: string): string {
  return `CREATE TABLE ${name} (${LOG_COLUMNS.map((each) => `"${each.name}" ${TYPES[each.type]}`).join(', ')})`;
}

/** A relation without rows that has every column: beside it, files of an older version answer null for what they lack. */
export const NO_ROWS = `SELECT ${LOG_COLUMNS.map((each) => `CAST(NULL AS ${TYPES[each.type]}) AS "${each.name}"`).join(', ')} WHERE FALSE`;

/** A text as a literal of SQL; for names of files that the keeper itself made. */
export const literal = (text: string) => `'${text.replaceAll("'", "''")}'`;

/** What members of the record are read as: a member with a whole column as JSON, others by the parts that are asked for. */
function memberTypes(): ReadonlyMap<string, string> {
  const types = new Map<string, string>();
  for (const { type, from, times } of LOG_COLUMNS) {
    for (const [member, below] of from) {
      if (below === undefined)
        types.set(member, type === 'json' ? 'JSON' : times === undefined ? TYPES[type] : 'DOUBLE');
    }
  }
  for (const { from } of LOG_COLUMNS) {
    for (const [member] of from) if (!types.has(member)) types.set(member, 'JSON');
  }
  return types;
}

const MEMBERS = memberTypes();

function valueAt([member, below]: LogColumn['from'][number], type: string): string {
  if (below === undefined) return `"${member}"`;
  if (MEMBERS.get(member) === TYPES.map) return `"${member}"[${literal(below)}]`;
  return `TRY_CAST(json_extract_string("${member}", ${literal(`$.${below}`)}) AS ${type})`;
}

function valueOfColumn({ type, from, sum, times, absent }: LogColumn): string {
  const parts = from.map((path) => valueAt(path, TYPES[type]));
  const all =
    sum === true
      ? `CASE WHEN coalesce(${parts.join(', ')}) IS NULL THEN NULL ELSE ${parts.map((part) => `coalesce(${part}, 0)`).join(' + ')} END`
      : parts.length === 1
        ? (parts[0] ?? 'NULL')
        : `coalesce(${parts.join(', ')})`;
  const scaled = times === undefined ? all : `CAST(floor(${all} * ${times} + 0.5) AS BIGINT)`;
  // JSON's own null is a value to DuckDB.
  const known = type === 'json' ? `nullif(CAST(${scaled} AS VARCHAR), 'null')` : scaled;
  return absent === undefined ? known : `coalesce(${known}, ${literal(absent)})`;
}

const PROJECTION = LOG_COLUMNS.map((each) => `${valueOfColumn(each)} AS "${each.name}"`).join(', ');
const READ_AS = [...MEMBERS].map(([member, type]) => `${literal(member)}: ${literal(type)}`).join(', ');

/** The columns of the records in a file with one JSON text a line. It fails as a whole where one line does not fit. */
export function recordsIn(file: string): string {
  return `SELECT ${PROJECTION} FROM read_json(${literal(file)}, format = 'newline_delimited', columns = {${READ_AS}}, maximum_object_size = 4194304)`;
}
