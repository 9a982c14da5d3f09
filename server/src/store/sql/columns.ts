/** Rows to stored values and back, driven by SCHEMA. The stored forms are the same on both engines. */
import { SluiceError } from '../../kernel/errors.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import { type Column, type Row, SCHEMA, type Table, type TableName } from '../schema.ts';

/** What a statement carries and answers. */
export type Stored = string | number | null;

/** A programming error in a call of the store; the caller of the API learns nothing of it. */
export function misuse(detail: string): SluiceError {
  return new SluiceError('internal', 'An internal error occurred. Try again; if it stays, tell the operator.', {
    detail,
  });
}

export function tableOf(name: string): Table {
  if (!Object.hasOwn(SCHEMA, name)) throw misuse(`unknown table ${name}`);
  return SCHEMA[name as TableName] as unknown as Table;
}

export function columnOf(table: string, name: string): Column<unknown> {
  const { columns } = tableOf(table);
  const column = Object.hasOwn(columns, name) ? columns[name] : undefined;
  if (!column) throw misuse(`unknown column ${table}.${name}`);
  return column;
}

const names = new Map<string, readonly string[]>();

/** Columns of a table in the order of SCHEMA. */
export function columnsOf(table: string): readonly string[] {
  let found = names.get(table);
  if (!found) {
    found = Object.keys(tableOf(table).columns);
    names.set(table, found);
  }
  return found;
}

/**
 * The stored form of a value. Throws `internal` for a value of the wrong type and `validation` for text with U+0000,
 * which PostgreSQL cannot hold.
 */
export function encode(table: string, name: string, value: unknown): Stored {
  const { kind, nullable } = columnOf(table, name);
  if (value === null || value === undefined) {
    if (nullable && value === null) return null;
    throw misuse(`${table}.${name} must not be ${value === null ? 'null' : 'left out'}`);
  }
  switch (kind) {
    case 'text':
    case 'sealed':
      if (typeof value !== 'string') break;
      if (value.includes('\0')) {
        throw new SluiceError('validation', `${name} must not contain the character U+0000. Remove it.`, {
          param: name,
        });
      }
      return value;
    case 'int':
    case 'time':
      if (!Number.isSafeInteger(value)) break;
      return value as number;
    case 'bool':
      if (typeof value !== 'boolean') break;
      return value ? 1 : 0;
    case 'json':
      return JSON.stringify(value);
  }
  throw misuse(`${table}.${name} holds ${kind}, not ${typeof value}`);
}

/** The value as the code sees it. */
export function decode(kind: Column<unknown>['kind'], value: unknown): unknown {
  if (value === null) return null;
  if (kind === 'json') return parseExact(value as string);
  if (kind === 'bool') return value !== 0;
  return value;
}

/** Every column of the row, encoded; a missing nullable column is stored as null, an unknown one is refused. */
export function encodeRow(table: string, row: Record<string, unknown>): Record<string, Stored> {
  for (const name of Object.keys(row)) columnOf(table, name);
  const out: Record<string, Stored> = {};
  for (const name of columnsOf(table)) out[name] = encode(table, name, row[name] ?? null);
  return out;
}

/** `undefined` in a patch means: not part of it. */
export function encodePatch(table: string, patch: Record<string, unknown>): Record<string, Stored> {
  const out: Record<string, Stored> = {};
  for (const [name, value] of Object.entries(patch)) {
    if (value !== undefined) out[name] = encode(table, name, value);
  }
  return out;
}

/** A row of `table` from a result whose columns carry `prefix`. */
export function decodeRow<N extends TableName>(table: N, stored: Record<string, unknown>, prefix = ''): Row<N> {
  const columns = tableOf(table).columns;
  const row: Record<string, unknown> = {};
  for (const name of columnsOf(table)) {
    row[name] = decode((columns[name] as Column<unknown>).kind, stored[prefix + name]);
  }
  return row as Row<N>;
}
