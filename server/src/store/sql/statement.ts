/**
 * Statements on one table as data, and their text. The guard of tenant isolation reads the data. Names must be those of
 * SCHEMA: they go into the text. Values go beside it, but for words that are said to be literal.
 */
import { columnOf, misuse, type Stored } from './columns.ts';
import type { Engine } from './engine.ts';

export type Operator = '=' | '<>' | 'is distinct from' | '>' | '>=' | '<' | '<=';

export type Condition =
  | {
      readonly is: 'compared';
      readonly column: string;
      readonly operator: Operator;
      readonly value: Stored;
      /** In the text itself: a fixed word or number of the code's, never a caller's text. */
      readonly literal?: boolean;
    }
  | { readonly is: 'null'; readonly column: string; readonly not?: boolean }
  | { readonly is: 'among'; readonly column: string; readonly values: readonly Stored[] }
  /** Text with `value` in it, case-sensitive. */
  | { readonly is: 'containing'; readonly column: string; readonly value: Stored }
  /** All of none is true, any of none is false. */
  | { readonly is: 'all' | 'any'; readonly of: readonly Condition[] };

export interface Order {
  readonly column: string;
  readonly direction: 'asc' | 'desc';
  /** Says where nulls come, first in a rising order, because the engine would have it otherwise. */
  readonly nulls?: boolean;
  /** Sorts by an expression of the column for which no index is walked. */
  readonly unindexed?: boolean;
}

/** Counts and sums of groups, in place of rows. */
export interface Groups {
  readonly by: readonly string[];
  /** A column of whole numbers, and by what it is divided. */
  readonly slot?: { readonly column: string; readonly step: number };
  readonly sums: readonly string[];
  /** Those of the most rows, and how many. */
  readonly most?: number;
}

export interface Select {
  readonly kind: 'select';
  readonly table: string;
  /** `count`: one row, with the number of rows as `count`. */
  readonly columns: readonly string[] | 'count' | Groups;
  readonly where: Condition;
  readonly orderBy?: readonly Order[];
  readonly limit?: number;
  readonly offset?: number;
}

export interface Insert {
  readonly kind: 'insert';
  readonly table: string;
  readonly values: Readonly<Record<string, Stored>>;
  /** Further rows, with the columns of the first. */
  readonly more?: readonly Readonly<Record<string, Stored>>[];
}

export interface Update {
  readonly kind: 'update';
  readonly table: string;
  readonly values: Readonly<Record<string, Stored>>;
  readonly where: Condition;
}

export interface Remove {
  readonly kind: 'remove';
  readonly table: string;
  readonly where: Condition;
}

export type Statement = Select | Insert | Update | Remove;

export interface Compiled {
  readonly sql: string;
  readonly parameters: readonly Stored[];
}

/** What the texts of the engines differ in. */
export type Dialect = Pick<Engine, 'name' | 'positionFunction' | 'unindexed'>;

/** All that must hold; one condition alone has no parentheses. */
export const all = (of: readonly Condition[]): Condition => (of.length === 1 && of[0] ? of[0] : { is: 'all', of });
export const any = (of: readonly Condition[]): Condition => (of.length === 1 && of[0] ? of[0] : { is: 'any', of });
export const equals = (column: string, value: Stored): Condition => ({
  is: 'compared',
  column,
  operator: '=',
  value,
});

const NAME = /^[a-z_][a-z0-9_]*$/;
const LITERAL = /^[a-z_]{1,20}$/;

/** A name in quotes. Throws `internal` for one that is none. */
export function quoted(name: string): string {
  if (!NAME.test(name)) throw misuse(`a name in a statement is ${JSON.stringify(name)}`);
  return `"${name}"`;
}

/** The n-th parameter of a text, from 1. */
export const placeholder = (engine: Dialect['name'], n: number): string => (engine === 'sqlite' ? '?' : `$${n}`);

/** The text of a statement in the engine's dialect, and its values in the order of their places. */
export function compile(statement: Statement, dialect: Dialect): Compiled {
  const parameters: Stored[] = [];
  const put = (value: Stored) => placeholder(dialect.name, parameters.push(value));
  const where = (condition: Condition) => ` where ${textOf(condition, dialect, put)}`;
  const table = quoted(statement.table);
  let sql: string;
  switch (statement.kind) {
    case 'select': {
      const { columns, orderBy = [], limit, offset } = statement;
      if (isGroups(columns)) {
        sql = groupsText(columns, (what) => `select ${what} from ${table}${where(statement.where)}`, put);
        break;
      }
      const what = columns === 'count' ? 'count(*) as "count"' : columns.map(quoted).join(', ');
      sql = `select ${what} from ${table}${where(statement.where)}`;
      if (orderBy.length > 0)
        sql += ` order by ${orderBy.map((one) => orderText(statement.table, one, dialect)).join(', ')}`;
      if (limit !== undefined) sql += ` limit ${put(limit)}`;
      if (offset !== undefined) sql += ` offset ${put(offset)}`;
      break;
    }
    case 'insert': {
      const columns = Object.keys(statement.values);
      const rows = [statement.values, ...(statement.more ?? [])].map((row) => {
        if (Object.keys(row).length !== columns.length) throw misuse('rows of one insert have different columns');
        return `(${columns.map((column) => put(valueIn(row, column))).join(', ')})`;
      });
      sql = `insert into ${table} (${columns.map(quoted).join(', ')}) values ${rows.join(', ')}`;
      break;
    }
    case 'update': {
      const set = Object.entries(statement.values).map(([column, value]) => `${quoted(column)} = ${put(value)}`);
      sql = `update ${table} set ${set.join(', ')}${where(statement.where)}`;
      break;
    }
    case 'remove':
      sql = `delete from ${table}${where(statement.where)}`;
  }
  return { sql, parameters };
}

function valueIn(row: Readonly<Record<string, Stored>>, column: string): Stored {
  const value = Object.hasOwn(row, column) ? row[column] : undefined;
  if (value === undefined) throw misuse('rows of one insert have different columns');
  return value;
}

const isGroups = (columns: Select['columns']): columns is Groups => typeof columns === 'object' && 'by' in columns;

/** A group of all rows has no row when there are none: `having`. The step is in the text, for the engines must see that both places are one expression. */
function groupsText({ by, slot, sums, most }: Groups, select: (what: string) => string, put: (n: number) => string) {
  const names = by.map(quoted);
  if (slot !== undefined && !(Number.isSafeInteger(slot.step) && slot.step > 0)) throw misuse(`a step is ${slot.step}`);
  const divided = slot === undefined ? [] : [`${quoted(slot.column)} / ${slot.step}`];
  const what = [
    'count(*) as "count"',
    ...divided.map((text) => `${text} as "slot"`),
    ...by.map((name, n) => `${quoted(name)} as "by_${n}"`),
    ...sums.map((name, n) => `sum(${quoted(name)}) as "sum_${n}"`),
  ];
  const groups = [...divided, ...names];
  let sql = select(what.join(', '));
  sql += groups.length === 0 ? ' having count(*) > 0' : ` group by ${groups.join(', ')}`;
  if (most !== undefined) sql += ` order by ${['count(*) desc', ...names].join(', ')} limit ${put(most)}`;
  return sql;
}

function orderText(table: string, { column, direction, nulls, unindexed }: Order, dialect: Dialect): string {
  if (unindexed === true) return `${dialect.unindexed(column, columnOf(table, column).kind)} ${direction}`;
  const place = direction === 'asc' ? ' nulls first' : ' nulls last';
  return `${quoted(column)} ${direction}${nulls === true ? place : ''}`;
}

function textOf(condition: Condition, dialect: Dialect, put: (value: Stored) => string): string {
  switch (condition.is) {
    case 'compared': {
      const { column, operator, value, literal } = condition;
      return `${quoted(column)} ${operator} ${literal === true ? literalText(value) : put(value)}`;
    }
    case 'null':
      return `${quoted(condition.column)} is ${condition.not === true ? 'not null' : 'null'}`;
    case 'among':
      return `${quoted(condition.column)} in (${condition.values.map(put).join(', ')})`;
    case 'containing':
      // Not LIKE: that ignores case on SQLite and has wildcards on both.
      return `${dialect.positionFunction}(${quoted(condition.column)}, ${put(condition.value)}) > 0`;
    case 'all':
    case 'any': {
      if (condition.of.length === 0) return condition.is === 'all' ? '1 = 1' : '1 = 0';
      const parts = condition.of.map((one) => textOf(one, dialect, put));
      return parts.length === 1 ? (parts[0] ?? '') : `(${parts.join(condition.is === 'all' ? ' and ' : ' or ')})`;
    }
  }
}

function literalText(value: Stored): string {
  if (value === 0) return '0';
  if (typeof value === 'string' && LITERAL.test(value)) return `'${value}'`;
  throw misuse(`${JSON.stringify(value)} is no word for the text of a statement`);
}
