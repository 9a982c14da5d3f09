/** Structured conditions to SQL. Values are always parameters; names are looked up in SCHEMA before they are used. */
import { type Expression, type ExpressionBuilder, type SqlBool, sql } from 'kysely';
import type { Query, Where } from '../ports.ts';
import type { TableName } from '../schema.ts';
import { columnOf, encode, misuse, type Stored } from './columns.ts';
import type { Database, Engine } from './engine.ts';

export type Builder = ExpressionBuilder<Database, string>;

const OPERATORS = new Set(['in', 'not', 'gt', 'gte', 'lt', 'lte', 'contains']);
const COMPARISONS = { gt: '>', gte: '>=', lt: '<', lte: '<=' } as const;

/**
 * The condition of a `Where`: all columns must match; true when it is empty.
 *
 * @param absent what `undefined` means: `skip` it (filters of a list), or `refuse`, because a statement that names one
 *   row must not lose the condition that names it
 */
export function conditions(
  eb: Builder,
  engine: Pick<Engine, 'positionFunction'>,
  table: TableName,
  where: Where<TableName>,
  absent: 'skip' | 'refuse',
): Expression<SqlBool> {
  const all: Expression<SqlBool>[] = [];
  for (const [name, condition] of Object.entries(where) as [string, unknown][]) {
    const { kind } = columnOf(table, name);
    if (condition === undefined) {
      if (absent === 'refuse') throw misuse(`condition on ${table}.${name} is undefined`);
      continue;
    }
    if (condition === null) {
      all.push(eb(name, 'is', null));
    } else if (typeof condition !== 'object') {
      if (kind === 'json' || kind === 'sealed') throw misuse(`${table}.${name} cannot be compared`);
      all.push(eb(name, '=', said(name, encode(table, name, condition))));
      // SQLite does not infer it, and most indexes are of what is not archived.
      if (name === 'status' && condition === 'active') all.push(eb(name, '<>', sql.lit('archived')));
    } else {
      all.push(...operators(eb, engine, table, name, kind, condition as Record<string, unknown>));
    }
  }
  return all.length === 1 && all[0] ? all[0] : eb.and(all);
}

function operators(
  eb: Builder,
  engine: Pick<Engine, 'positionFunction'>,
  table: TableName,
  name: string,
  kind: string,
  given: Record<string, unknown>,
): Expression<SqlBool>[] {
  const out: Expression<SqlBool>[] = [];
  for (const [operator, value] of Object.entries(given)) {
    if (!OPERATORS.has(operator)) throw misuse(`unknown operator ${operator} on ${table}.${name}`);
    if (value === undefined) throw misuse(`operator ${operator} on ${table}.${name} has no value`);
    if ((kind === 'json' || kind === 'sealed') && !(operator === 'not' && value === null)) {
      throw misuse(`${table}.${name} cannot be compared`);
    }
    if (operator === 'not') {
      out.push(value === null ? eb(name, 'is not', null) : unequal(eb, table, name, value));
    } else if (operator === 'in') {
      out.push(among(eb, table, name, value));
    } else if (operator === 'contains') {
      if (kind !== 'text' || typeof value !== 'string') throw misuse(`contains needs text on ${table}.${name}`);
      // Not LIKE: that ignores case on SQLite and has wildcards on both.
      const position = sql.raw(engine.positionFunction);
      out.push(sql<SqlBool>`${position}(${eb.ref(name)}, ${encode(table, name, value)}) > 0`);
    } else {
      out.push(eb(name, COMPARISONS[operator as keyof typeof COMPARISONS], encode(table, name, value)));
    }
  }
  if (out.length === 0) throw misuse(`condition on ${table}.${name} is empty`);
  return out;
}

const WORD = /^[a-z_]{1,20}$/;
/** Columns that conditions of partial indexes name. */
const CONDITIONAL = new Set(['status', 'step', 'used']);

/** A fixed word, as `archived`, or nought is in the statement itself: for a parameter no engine uses a partial index. */
function said(name: string, value: Stored) {
  const word = value === 0 || (typeof value === 'string' && WORD.test(value));
  return word && CONDITIONAL.has(name) ? sql.lit(value) : value;
}

function unequal(eb: Builder, table: TableName, name: string, value: unknown): Expression<SqlBool> {
  const operator = columnOf(table, name).nullable ? 'is distinct from' : '<>';
  // A row whose column is null is not equal to a value: plain <> would drop it.
  return eb(name, operator, said(name, encode(table, name, value)));
}

function among(eb: Builder, table: TableName, name: string, value: unknown): Expression<SqlBool> {
  if (!Array.isArray(value)) throw misuse(`in needs a list on ${table}.${name}`);
  const some = value.filter((item) => item !== null).map((item) => encode(table, name, item));
  const alternatives: Expression<SqlBool>[] = [];
  if (some.length > 0) alternatives.push(eb(name, 'in', some));
  if (some.length < value.length) alternatives.push(eb(name, 'is', null));
  return eb.or(alternatives);
}

/** `where` and any of `anyOf`. */
export function filter(
  eb: Builder,
  engine: Pick<Engine, 'positionFunction'>,
  table: TableName,
  query: Pick<Query<TableName>, 'where' | 'anyOf'>,
): Expression<SqlBool> {
  const where = conditions(eb, engine, table, query.where ?? {}, 'skip');
  if (!query.anyOf) return where;
  return eb.and([where, eb.or(query.anyOf.map((one) => conditions(eb, engine, table, one, 'skip')))]);
}
