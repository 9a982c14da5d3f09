/** Rows of records into ClickHouse, by the way that log files go. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { shipFile } from '../../src/keeper/clickhouse/ship.ts';
import type { ClickHouse } from '../../src/keeper/clickhouse/store.ts';
import { type Engine, literal, recordsIn } from '../../src/keeper/engine.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import type { StoredLog } from '../../src/store/ports.ts';
import { LOG_COLUMNS } from '../../src/telemetry/log-columns.ts';
import type { LogRow } from '../../src/telemetry/log-query.ts';

const TYPES = { text: 'VARCHAR', json: 'VARCHAR', integer: 'BIGINT', boolean: 'BOOLEAN', map: 'MAP(VARCHAR, VARCHAR)' };

/** DuckDB, ClickHouse, and a directory for files between them. */
export interface Between {
  readonly engine: Engine;
  readonly store: ClickHouse;
  readonly dir: string;
}

/** Records as the journal has them. */
export async function sendRecords(between: Between, records: readonly StoredLog[]): Promise<void> {
  const file = join(between.dir, `${uuidv7(systemClock)}.ndjson`);
  await writeFile(file, records.map((record) => `${JSON.stringify(record)}\n`).join(''));
  await send(between, recordsIn(file), records.length);
}

/** Rows as the log store answers them. */
export async function sendRows(between: Between, rows: readonly LogRow[]): Promise<void> {
  const file = join(between.dir, `${uuidv7(systemClock)}.ndjson`);
  await writeFile(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const columns = LOG_COLUMNS.map(({ name, type }) => `${literal(name)}: ${literal(TYPES[type])}`).join(', ');
  await send(
    between,
    `SELECT * FROM read_json(${literal(file)}, format = 'newline_delimited', columns = {${columns}})`,
    rows.length,
  );
}

async function send({ engine, store, dir }: Between, rows: string, records: number): Promise<void> {
  if (records === 0) return;
  const id = uuidv7(systemClock);
  const path = join(dir, `${id}.parquet`);
  const connection = await engine.connect();
  await connection.run(`COPY (${rows}) TO ${literal(path)} (FORMAT parquet)`);
  connection.closeSync();
  const place = 'disk' as const;
  const file = {
    id,
    node: 'n',
    place,
    day: 0,
    level: 0,
    minTime: 0,
    maxTime: 2 ** 43,
    records,
    bytes: 0,
    damaged: false,
  };
  await shipFile({ engine, store, dir, unfinished: '.unfinished' })(file, path);
}
