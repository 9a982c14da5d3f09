/** Structured conditions to those of a statement. Values are always encoded; names are looked up in SCHEMA before they are used. */
import type { Query, Where } from '../ports.ts';
import type { TableName } from '../schema.ts';
import { columnOf, encode, misuse, type Stored } from './columns.ts';
import { all, any, type Condition } from './statement.ts';

const OPERATORS = new Set(['in', 'not', 'gt', 'gte', 'lt', 'lte', 'contains']);
const COMPARISONS = { gt: '>', gte: '>=', lt: '<', lte: '<=' } as const;

/**
 * The condition of a `Where`: all columns must match; true when it is empty.
 *
 * @param absent what `undefined` means: `skip` it (filters of a list), or `refuse`, because a statement that names one
 *   row must not lose the condition that names it
 */
export function conditions(table: TableName, where: Where<TableName>, absent: 'skip' | 'refuse'): Condition {
  const found: Condition[] = [];
  for (const [name, condition] of Object.entries(where) as [string, unknown][]) {
    const { kind } = columnOf(table, name);
    if (condition === undefined) {
      if (absent === 'refuse') throw misuse(`condition on ${table}.${name} is undefined`);
      continue;
    }
    if (condition === null) {
      found.push({ is: 'null', column: name });
    } else if (typeof condition !== 'object') {
      if (kind === 'json' || kind === 'sealed') throw misuse(`${table}.${name} cannot be compared`);
      const value = encode(table, name, condition);
      found.push({ is: 'compared', column: name, operator: '=', value, literal: isLiteral(name, value) });
      // SQLite does not infer it, and most indexes are of what is not archived.
      if (name === 'status' && condition === 'active') {
        found.push({ is: 'compared', column: name, operator: '<>', value: 'archived', literal: true });
      }
    } else {
      found.push(...operators(table, name, kind, condition as Record<string, unknown>));
    }
  }
  return all(found);
}

function operators(table: TableName, name: string, kind: string, given: Record<string, unknown>): Condition[] {
  const out: Condition[] = [];
  for (const [operator, value] of Object.entries(given)) {
    if (!OPERATORS.has(operator)) throw misuse(`unknown operator ${operator} on ${table}.${name}`);
    if (value === undefined) throw misuse(`operator ${operator} on ${table}.${name} has no value`);
    if ((kind === 'json' || kind === 'sealed') && !(operator === 'not' && value === null)) {
      throw misuse(`${table}.${name} cannot be compared`);
    }
    if (operator === 'not') {
      out.push(value === null ? { is: 'null', column: name, not: true } : unequal(table, name, value));
    } else if (operator === 'in') {
      out.push(among(table, name, value));
    } else if (operator === 'contains') {
      if (kind !== 'text' || typeof value !== 'string') throw misuse(`contains needs text on ${table}.${name}`);
      out.push({ is: 'containing', column: name, value: encode(table, name, value) });
    } else {
      const comparison = COMPARISONS[operator as keyof typeof COMPARISONS];
      out.push({ is: 'compared', column: name, operator: comparison, value: encode(table, name, value) });
    }
  }
  if (out.length === 0) throw misuse(`condition on ${table}.${name} is empty`);
  return out;
}

const WORD = /^[a-z_]{1,20}$/;
/** Columns that conditions of partial indexes name. */
const CONDITIONAL = new Set(['status', 'step', 'used']);

/** A fixed word, as `archived`, or nought is in the statement itself: for a parameter no engine uses a partial index. */
function isLiteral(name: string, value: Stored): boolean {
  return CONDITIONAL.has(name) && (value === 0 || (typeof value === 'string' && WORD.test(value)));
}

function unequal(table: TableName, name: string, given: unknown): Condition {
  // A row whose column is null is not equal to a value: plain <> would drop it.
  const operator = columnOf(table, name).nullable ? 'is distinct from' : '<>';
  const value = encode(table, name, given);
  return { is: 'compared', column: name, operator, value, literal: isLiteral(name, value) };
}

function among(table: TableName, name: string, value: unknown): Condition {
  if (!Array.isArray(value)) throw misuse(`in needs a list on ${table}.${name}`);
  const some = value.filter((item) => item !== null).map((item) => encode(table, name, item));
  const alternatives: Condition[] = [];
  if (some.length > 0) alternatives.push({ is: 'among', column: name, values: some });
  if (some.length < value.length) alternatives.push({ is: 'null', column: name });
  return any(alternatives);
}

/** `where` and any of `anyOf`. */
export function filter(table: TableName, query: Pick<Query<TableName>, 'where' | 'anyOf'>): Condition {
  const where = conditions(table, query.where ?? {}, 'skip');
  if (!query.anyOf) return where;
  return all([where, any(query.anyOf.map((one) => conditions(table, one, 'skip')))]);
}
