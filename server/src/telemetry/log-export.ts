/**
 * Exports of the stored records: the fields that a file may have, how a row is written in each format, and what the log store
 * does for an export. The fields are those of the contract and come from `LOG_COLUMNS` where a column has the same value.
 */
import type { Readable } from 'node:stream';
import type { MissingBodies } from './bodies/presented.ts';
import { LOG_COLUMNS } from './log-columns.ts';
import type { LogCoverage, LogPlace, LogRow, LogSelection } from './log-query.ts';

export type ExportFormat = 'jsonl' | 'csv' | 'parquet';
export const EXPORT_FORMATS = ['jsonl', 'csv', 'parquet'] as const satisfies readonly ExportFormat[];

/** Fields of an export, in the order of the contract. */
export const EXPORT_FIELD_IDS = [
  'id',
  'trace_id',
  'created_at',
  'request',
  'response',
  'is_success',
  'ai_org',
  'ai_model',
  'req_units',
  'res_units',
  'total_units',
  'request_url',
  'cost',
  'cost_currency',
  'response_time',
  'response_status_code',
  'mode',
  'config',
  'prompt_slug',
  'metadata',
] as const;

export type ExportFieldId = (typeof EXPORT_FIELD_IDS)[number];
export type ExportValue = string | number | boolean | null | object;

/** The bodies of a request, as they are kept. */
export interface LogBodies {
  readonly request: object | null;
  readonly response: object | null;
}

/** What a row is written with. */
export interface Given {
  /** What paths of requests are behind, `https://sluice.example`. */
  readonly origin: string;
  readonly bodies: LogBodies | null;
  /** Why a body that is asked for is null; null where none is. */
  readonly missing?: MissingBodies | null;
}

interface Field {
  readonly columns: readonly string[];
  /** Its type in Parquet. */
  readonly type: 'VARCHAR' | 'BIGINT' | 'DOUBLE' | 'BOOLEAN' | 'TIMESTAMPTZ' | 'MAP(VARCHAR, VARCHAR)';
  value(row: LogRow, given: Given): ExportValue;
}

const MICROS_PER_CENT = 10_000;
/** Types of Parquet. */
export const TYPES = {
  text: 'VARCHAR',
  integer: 'BIGINT',
  boolean: 'BOOLEAN',
  map: 'MAP(VARCHAR, VARCHAR)',
  json: 'VARCHAR',
} as const;

const numberIn = (row: LogRow, name: string): number | null => {
  const value = row[name];
  return typeof value === 'number' ? value : null;
};

/** Fields whose value is another one than the column's. */
const MADE: Partial<Record<ExportFieldId, Field>> = {
  created_at: {
    columns: ['time'],
    type: 'TIMESTAMPTZ',
    value: (row) => new Date(numberIn(row, 'time') ?? 0).toISOString(),
  },
  request: { columns: [], type: 'VARCHAR', value: (_row, { bodies }) => bodies?.request ?? null },
  response: { columns: [], type: 'VARCHAR', value: (_row, { bodies }) => bodies?.response ?? null },
  is_success: {
    columns: ['status'],
    type: 'BOOLEAN',
    value: (row) => {
      const status = numberIn(row, 'status');
      return status === null ? null : status < 400;
    },
  },
  request_url: {
    columns: ['path'],
    type: 'VARCHAR',
    value: ({ path }, { origin }) => (typeof path === 'string' ? origin + path : null),
  },
  cost: {
    columns: ['cost_micros'],
    type: 'DOUBLE',
    value: (row) => {
      const micros = numberIn(row, 'cost_micros');
      return micros === null ? null : micros / MICROS_PER_CENT;
    },
  },
  cost_currency: { columns: [], type: 'VARCHAR', value: () => 'USD' },
  response_time: {
    columns: ['latency_us'],
    type: 'BIGINT',
    value: (row) => {
      const micros = numberIn(row, 'latency_us');
      return micros === null ? null : Math.floor(micros / 1_000 + 0.5);
    },
  },
};

function fieldOf(id: ExportFieldId): Field {
  const made = MADE[id];
  if (made !== undefined) return made;
  const column = LOG_COLUMNS.find(({ contract }) => contract === id);
  if (column === undefined) throw new TypeError(`no column is the field ${id}`);
  return { columns: [column.name], type: TYPES[column.type], value: (row) => row[column.name] ?? null };
}

/** A column that files with bodies have behind those that were asked for. */
const REASON = 'bodies_reason';
type Column = ExportFieldId | typeof REASON;

const FIELDS: ReadonlyMap<Column, Field> = new Map<Column, Field>([
  ...EXPORT_FIELD_IDS.map((id) => [id, fieldOf(id)] as const),
  [REASON, { columns: [], type: 'VARCHAR', value: (_row, { missing }) => missing ?? null }],
]);

function field(id: Column): Field {
  const found = FIELDS.get(id);
  if (found === undefined) throw new TypeError(`exports have no field ${JSON.stringify(id)}`);
  return found;
}

/** Whether files of these fields have bodies. */
export const wantsBodies = (fields: readonly string[]): boolean =>
  fields.includes('request') || fields.includes('response');

const columnsOf = (fields: readonly ExportFieldId[]): readonly Column[] =>
  wantsBodies(fields) ? [...fields, REASON] : fields;

/** The value of one field. */
export const exportValue = (id: ExportFieldId, row: LogRow, given: Given): ExportValue => field(id).value(row, given);

/** The columns that these fields are made of; bodies have others beside them. */
export function exportColumns(fields: readonly ExportFieldId[]): string[] {
  return [...new Set(fields.flatMap((id) => field(id).columns))];
}

/** Names and types of the columns of a Parquet file. */
export function parquetColumns(fields: readonly ExportFieldId[]): readonly (readonly [string, Field['type']])[] {
  return columnsOf(fields).map((id) => [id, field(id).type]);
}

/** What comes before the first row; empty in JSON Lines. `bom` is the mark by which spreadsheets know UTF-8. */
export function exportHead(format: 'jsonl' | 'csv', fields: readonly ExportFieldId[], bom: boolean): string {
  return format === 'csv' ? `${bom ? '\uFEFF' : ''}${columnsOf(fields).map(csvCell).join(',')}\r\n` : '';
}

/** One row as a line, with its end. */
export function exportLine(
  format: 'jsonl' | 'csv',
  fields: readonly ExportFieldId[],
  row: LogRow,
  given: Given,
): string {
  const columns = columnsOf(fields);
  const values = columns.map((id) => field(id).value(row, given));
  if (format === 'csv') return `${values.map(csvCell).join(',')}\r\n`;
  return `${JSON.stringify(Object.fromEntries(columns.map((id, at) => [id, values[at]])))}\n`;
}

/** What makes spreadsheets take a text for a formula, or cut it off: the full-width forms are made narrow on import. */
const FORMULA = /^[=+\-@\t\r\n\0＝＋－＠]/;

/** A cell of CSV. Numbers stay numbers; a text is quoted, and one that a spreadsheet would run gets an apostrophe in front. */
function csvCell(value: ExportValue): string {
  if (value === null) return '';
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return `"${(FORMULA.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
}

/** What one part of a file is made of. */
export interface ExportPlan {
  readonly format: ExportFormat;
  readonly fields: readonly ExportFieldId[];
  readonly origin: string;
  readonly bom: boolean;
  /** The part has the rows behind this one, oldest first; null: it is the first part, which has the head of the file. */
  readonly behind: LogPlace | null;
  /** Rows that are left out before the first part. */
  readonly skip: number;
  readonly limit: number;
  /** How bodies are read; null where no field is one. */
  readonly bodies: ExportBodies | null;
}

/** What a reader sees of kept bodies. */
export interface ExportBodies {
  /** Milliseconds since the epoch: bodies of requests before it are past their days. */
  readonly since: number;
  /** Without what tells of the metadata of a request. */
  readonly noMetadata: boolean;
  /** A part ends behind the row with which it has so many bytes. */
  readonly partBytes: number;
}

/** A file that waits on this machine's disk. */
export interface ExportFile {
  readonly bytes: number;
  /** Lower-case hexadecimal. */
  readonly sha256: string;
  /** From the first byte; once. */
  read(): Readable;
  /** It is not needed any more. */
  remove(): Promise<void>;
}

export interface ExportPart extends ExportFile {
  readonly rows: number;
  /** The part's last row; null: no row is behind it. */
  readonly next: LogPlace | null;
  /** Ranges of which files could not be read: the part lacks their rows. */
  readonly incomplete: LogCoverage['incomplete'];
}

/** Writes the rows of a selection to files. What it is asked for twice has the same bytes, while no record comes or goes. */
export interface LogExporter {
  part(selection: LogSelection, plan: ExportPlan): Promise<ExportPart>;
  /** One Parquet file of several, whose rows stay in their order. */
  join(parts: AsyncIterable<Readable>): Promise<ExportFile>;
}
