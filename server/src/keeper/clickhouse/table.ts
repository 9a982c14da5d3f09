/** The table of the records in ClickHouse, made of `LOG_COLUMNS`: what it is made with, and what an older one lacks. */
import { LOG_COLUMNS, type LogColumn } from '../../telemetry/log-columns.ts';

export const TABLE = 'sluice_logs';
export const DAY_MS = 86_400_000;

/** Every record has these; the table is sorted by two more, which may be null. */
const NEVER_NULL = new Set(['id', 'time', 'node', 'seq']);

export interface TableColumn {
  readonly name: string;
  readonly type: string;
}

/** A map is never null there: beside it a column says whether the record had one. */
export const knownOf = (map: string) => `${map}_known`;

function typeOf({ name, type, group }: LogColumn): string {
  switch (type) {
    case 'text':
      if (NEVER_NULL.has(name)) return 'String';
      return group ? 'LowCardinality(Nullable(String))' : 'Nullable(String)';
    case 'json':
      return 'Nullable(String)';
    case 'integer':
      return NEVER_NULL.has(name) ? 'Int64' : 'Nullable(Int64)';
    case 'boolean':
      return 'Nullable(Bool)';
    case 'map':
      return 'Map(String, String)';
  }
}

export const TABLE_COLUMNS: readonly TableColumn[] = LOG_COLUMNS.flatMap((column) => {
  const own = { name: column.name, type: typeOf(column) };
  return column.type === 'map' ? [own, { name: knownOf(column.name), type: 'Bool' }] : [own];
});

const defined = ({ name, type }: TableColumn) => `"${name}" ${type} CODEC(ZSTD(1))`;

/** Looked up without the columns that the table is sorted by. */
const LOOKED_UP = ['id', 'trace_id', 'node'];
const indexed = (name: string) => `INDEX "by_${name}" "${name}" TYPE bloom_filter(0.01) GRANULARITY 1`;

/** A batch that comes again within a week is not stored again: that is longer than any retry. */
const WEEK_S = 604_800;
const BATCHES = 10_000;

export const CREATE_TABLE = `CREATE TABLE IF NOT EXISTS ${TABLE} (
${[...TABLE_COLUMNS.map(defined), ...LOOKED_UP.map(indexed)].join(',\n')}
) ENGINE = MergeTree
PARTITION BY intDiv("time", ${DAY_MS})
ORDER BY ("organisation_id", "workspace_id", "time", "id")
SETTINGS allow_nullable_key = 1, non_replicated_deduplication_window = ${BATCHES}, replicated_deduplication_window = ${BATCHES}, replicated_deduplication_window_seconds = ${WEEK_S}`;

/** Statements that add the columns which a table of an older version lacks. */
export function addColumns(there: ReadonlySet<string>): string[] {
  return TABLE_COLUMNS.filter(({ name }) => !there.has(name)).map(
    (column) => `ALTER TABLE ${TABLE} ADD COLUMN IF NOT EXISTS ${defined(column)}`,
  );
}
