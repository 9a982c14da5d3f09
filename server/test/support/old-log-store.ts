/** Request logs as versions before the log keeper stored them. */
import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import type { StoredLog } from '../../src/store/ports.ts';

const tables = (text: string, int: string, options: string) => [
  `CREATE TABLE logs (node ${text} NOT NULL, seq ${int} NOT NULL, id ${text} NOT NULL, time ${int} NOT NULL,
    organisation_id ${text}, workspace_id ${text}, trace_id ${text}, record TEXT NOT NULL, PRIMARY KEY (node, seq))${options}`,
  `CREATE TABLE journals (name ${text} NOT NULL PRIMARY KEY, segment ${text} NOT NULL, position ${int} NOT NULL)${options}`,
];
const COLUMNS = ['node', 'seq', 'id', 'time', 'organisation_id', 'workspace_id', 'trace_id'] as const;
const valuesOf = (record: StoredLog) => [...COLUMNS.map((name) => record[name] ?? null), JSON.stringify(record)];

export interface OldPosition {
  readonly journal: string;
  readonly segment: string;
  readonly offset: number;
}

/** Writes the file `logs.db` with these records. */
export function writeOldSqlite(
  file: string,
  records: readonly StoredLog[],
  positions: readonly OldPosition[] = [],
): void {
  const db = new DatabaseSync(file);
  db.exec('PRAGMA journal_mode = WAL');
  for (const sql of tables('TEXT', 'INTEGER', ' STRICT')) db.exec(sql);
  db.exec('BEGIN');
  const insert = db.prepare('INSERT INTO logs VALUES (?, ?, ?, ?, ?, ?, ?, ?)');
  for (const record of records) insert.run(...(valuesOf(record) as (string | number | null)[]));
  const place = db.prepare('INSERT INTO journals VALUES (?, ?, ?)');
  for (const { journal, segment, offset } of positions) place.run(journal, segment, offset);
  db.exec('COMMIT');
  db.close();
}

/** Makes the tables in a database of PostgreSQL. */
export async function writeOldPostgres(url: string, records: readonly StoredLog[]): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  for (const sql of tables('TEXT', 'BIGINT', '')) await client.query(sql);
  await addOldPostgres(client, records);
  await client.end();
}

async function addOldPostgres(client: pg.Client, records: readonly StoredLog[]): Promise<void> {
  for (const record of records) {
    await client.query('INSERT INTO logs VALUES ($1, $2, $3, $4, $5, $6, $7, $8)', valuesOf(record));
  }
}
