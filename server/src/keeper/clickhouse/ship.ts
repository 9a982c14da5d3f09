/** Log files on their way to ClickHouse, in batches that are the same each time: one that came before is not stored again. */
import { unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { LOG_COLUMNS } from '../../telemetry/log-columns.ts';
import type { LogFile } from '../catalog.ts';
import { type Connection, type Engine, literal, NO_ROWS, rowsOf } from '../engine.ts';
import { type ClickHouse, MOST_OF_BATCH } from './store.ts';
import { knownOf } from './table.ts';

export interface ShipOptions {
  readonly engine: Engine;
  readonly store: ClickHouse;
  /** The keeper's own directory, and the ending of what goes when a keeper starts. */
  readonly dir: string;
  readonly unfinished: string;
}

const COLUMNS = LOG_COLUMNS.map(({ name, type }) =>
  type === 'map'
    ? `coalesce("${name}", CAST(MAP {} AS MAP(VARCHAR, VARCHAR))) AS "${name}", "${name}" IS NOT NULL AS "${knownOf(name)}"`
    : `"${name}"`,
).join(', ');

/** Resolves when all records of a file are in ClickHouse, each once. */
export function shipFile({ engine, store, dir, unfinished }: ShipOptions) {
  return async ({ id, records, minTime, maxTime }: LogFile, path: string): Promise<void> => {
    await store.ready();
    const batch = join(dir, `batch-${id}${unfinished}`);
    // By name: a file of an older version lacks columns, which are null there.
    const rows = `${NO_ROWS} UNION ALL BY NAME SELECT * FROM read_parquet(${literal(path)}, file_row_number = true)`;
    const connection = await engine.connect();
    try {
      for (let from = 0; from < records; from += MOST_OF_BATCH) {
        const within = `SELECT * FROM (${rows}) WHERE "file_row_number" >= ${from} AND "file_row_number" < ${from + MOST_OF_BATCH}`;
        const deeds = await firstsOf(connection, within);
        const again = deeds.length === 0 ? [] : await store.recorded(deeds, { from: minTime, to: maxTime });
        const fresh =
          again.length === 0
            ? within
            : `${within} AND NOT ("seq" = 1 AND "node" IN (${again.map(literal).join(', ')}))`;
        await connection.run(
          `COPY (SELECT ${COLUMNS} FROM (${fresh})) TO ${literal(batch)} (FORMAT parquet, COMPRESSION zstd)`,
        );
        await store.insert(batch, `${id}/${from}`);
      }
    } finally {
      connection.closeSync();
      await unlink(batch).catch(() => undefined);
    }
  };
}

/** The processes whose first record is among these: a deed that a worker was killed after may be recorded again, as a first. */
async function firstsOf(connection: Connection, rows: string): Promise<string[]> {
  const found = await rowsOf(connection, { sql: `SELECT DISTINCT "node" FROM (${rows}) WHERE "seq" = 1`, values: [] });
  return found.map(({ node }) => String(node));
}
