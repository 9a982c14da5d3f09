/**
 * Questions of `telemetry/log-query.ts` as statements of DuckDB, or of another engine by its dialect. Text of a statement is
 * made of constants and of names in `LOG_COLUMNS`; whatever a caller gave is a parameter. Each statement proves whose records it took in: rows tell their
 * organisation and workspace, groups count the foreign ones by a second, separate condition.
 */
import { type LogColumn, logColumn, METADATA_COLUMNS } from '../telemetry/log-columns.ts';
import type {
  ErasedLogs,
  LogFilter,
  LogGroupKey,
  LogGroupQuery,
  LogMeasure,
  LogPageQuery,
  LogPlace,
  LogScope,
  LogSelection,
} from '../telemetry/log-query.ts';

/** Lists are of engines that take one as a parameter. */
export type SqlValue = string | bigint | number | boolean | readonly string[] | readonly bigint[];

export interface Statement {
  readonly sql: string;
  /** By their places, from 1. */
  readonly values: readonly SqlValue[];
}

/** What engines write differently. Texts that are given are expressions; `add` makes a parameter of a value. */
export interface Dialect {
  /** Whether a page is found by its ids, and its columns are read then. */
  readonly pageInTwoSteps: boolean;
  /** The n-th parameter of a statement, from 1. */
  parameter(n: number, value: SqlValue): string;
  /** The right side of `IN`, of one value or more. */
  set(values: readonly string[] | readonly bigint[], add: (value: SqlValue) => string): string;
  /** A column among those of an answer. */
  shown(column: LogColumn): string;
  /** The value of a key in the metadata; null where there is none. */
  metadataValue(key: string): string;
  /** True where a column has another value or none. */
  differs(column: string, value: string): string;
  /** The place of `time` among ascending bounds; null outside of all. */
  bucket(bounds: readonly bigint[], add: (value: SqlValue) => string): string;
  /** A column of numbers as it is added up: of no records there is no sum. */
  measured(column: string): string;
  /** The smallest value that is not below this share of the values, a literal. */
  quantile(column: string, share: string, filter: string): string;
  approximateQuantile(column: string, share: string, filter: string): string;
  /** Of the sums by groups and over all (`whole`): that over all, and a page of the others with `groups`, the number of them. */
  groupPage(grouped: string, order: string, limit: string | null, offset: string | null): string;
}

export const duckDb: Dialect = {
  pageInTwoSteps: false,
  parameter: (n) => `$${n}`,
  set: (values, add) => `(${values.map(add).join(', ')})`,
  shown: ({ name }) => `"${name}"`,
  metadataValue: (key) => `"metadata"[${key}]`,
  differs: (column, value) => `${column} IS DISTINCT FROM ${value}`,
  bucket: (bounds, add) => {
    // A tree of comparisons: a year of days costs nine of them. Place -1 and the last one lie outside of all buckets.
    const places = bounds.map(add);
    const tree = (low: number, high: number): string => {
      if (low === high) return low < 0 || low >= bounds.length - 1 ? 'NULL' : String(low);
      const middle = Math.ceil((low + high) / 2);
      return `CASE WHEN "time" < ${places[middle]} THEN ${tree(low, middle - 1)} ELSE ${tree(middle, high)} END`;
    };
    return tree(-1, bounds.length - 1);
  },
  measured: (column) => column,
  quantile: (column, share, filter) => `quantile_disc(${column}, ${share})${filter}`,
  approximateQuantile: (column, share, filter) => `approx_quantile(${column}, ${share})${filter}`,
  groupPage: (grouped, order, limit, offset) => {
    const bounds = (limit === null ? '' : ` LIMIT ${limit}`) + (offset === null ? '' : ` OFFSET ${offset}`);
    const page = `SELECT * FROM g WHERE "whole" = 0 ORDER BY ${order}${bounds}`;
    return `WITH g AS MATERIALIZED (${grouped}), p AS MATERIALIZED (${page}) SELECT *, (SELECT count(*) FROM g WHERE "whole" = 0) AS "groups" FROM (SELECT * FROM g WHERE "whole" <> 0 UNION ALL SELECT * FROM p) ORDER BY "whole" DESC, ${order}`;
  },
};

/** Columns that prove whose a row is; measures and keys have other names. */
export const PROOF = { organisation: 'proof_organisation', workspace: 'proof_workspace', foreign: 'proof_foreign' };

/** Collects parameters; each is named by its place. */
class Parameters {
  readonly dialect: Dialect;
  readonly values: SqlValue[] = [];
  /** Answers the parameter of a value. */
  readonly add = (value: SqlValue): string => this.dialect.parameter(this.values.push(value), value);

  constructor(dialect: Dialect) {
    this.dialect = dialect;
  }

  set(values: readonly string[] | readonly bigint[]): string {
    return this.dialect.set(values, this.add);
  }
}

function columnOf(name: string): LogColumn {
  const found = logColumn(name);
  if (found === undefined) throw new TypeError(`the records have no column ${JSON.stringify(name)}`);
  return found;
}

const quoted = (name: string) => `"${columnOf(name).name}"`;

const shown = (names: readonly string[], dialect: Dialect) =>
  [...new Set(names)].map((name) => dialect.shown(columnOf(name))).join(', ');

const INTEGER = /^-?\d{1,15}$/;

function inList(column: LogColumn, values: readonly string[], parameters: Parameters): string {
  const fit = column.type === 'integer' ? values.filter((value) => INTEGER.test(value)).map(BigInt) : values;
  return fit.length === 0 ? 'FALSE' : `"${column.name}" IN ${parameters.set(fit)}`;
}

/** Every whole number from `value` on, or up to it; null when `value` bounds none. */
function whole(value: number | undefined, round: (value: number) => number): bigint | null {
  if (value === undefined || Number.isNaN(value)) return null;
  const bounded = Math.min(Math.max(round(value), -Number.MAX_SAFE_INTEGER), Number.MAX_SAFE_INTEGER);
  return BigInt(bounded);
}

function range(column: LogColumn, min: bigint | null, max: bigint | null, parameters: Parameters): string {
  if (column.type !== 'integer') throw new TypeError(`column ${column.name} has no range`);
  const parts = [`"${column.name}" IS NOT NULL`];
  if (min !== null) parts.push(`"${column.name}" >= ${parameters.add(min)}`);
  if (max !== null) parts.push(`"${column.name}" <= ${parameters.add(max)}`);
  return parts.join(' AND ');
}

function condition(filter: LogFilter, parameters: Parameters): string {
  if ('anyOf' in filter) {
    if (filter.anyOf.length === 0) return 'FALSE';
    return `(${filter.anyOf.map((all) => `(${conditions(all, parameters)})`).join(' OR ')})`;
  }
  if ('metadata' in filter) {
    // Before the key is a parameter: one that no text names is refused.
    if ('in' in filter && filter.in.length === 0) return 'FALSE';
    const value = metadataValue(filter.metadata, parameters);
    if ('known' in filter) return `${value} IS ${filter.known ? 'NOT ' : ''}NULL`;
    return `${value} IN ${parameters.set(filter.in)}`;
  }
  const column = columnOf(filter.column);
  if ('in' in filter) return inList(column, filter.in, parameters);
  if ('is' in filter) return `"${column.name}" = ${parameters.add(filter.is)}`;
  if ('known' in filter) return `"${column.name}" IS ${filter.known ? 'NOT ' : ''}NULL`;
  return range(column, whole(filter.min, Math.ceil), whole(filter.max, Math.floor), parameters);
}

function conditions(filters: readonly LogFilter[], parameters: Parameters): string {
  return filters.length === 0 ? 'TRUE' : filters.map((filter) => condition(filter, parameters)).join(' AND ');
}

/** A reserved key has a column, which reads less than all metadata. */
function metadataValue(key: string, parameters: Parameters): string {
  const reserved = METADATA_COLUMNS.get(key);
  return reserved === undefined ? parameters.dialect.metadataValue(parameters.add(key)) : `"${reserved}"`;
}

function ofScope({ organisationId, workspaceIds, userId, erased }: LogScope, parameters: Parameters): string {
  const parts = [`"organisation_id" = ${parameters.add(organisationId)}`];
  if (workspaceIds !== null) {
    parts.push(workspaceIds.length === 0 ? 'FALSE' : `"workspace_id" IN ${parameters.set(workspaceIds)}`);
  }
  if (userId !== null) parts.push(`"user_id" = ${parameters.add(userId)}`);
  // A value that is not known is not the one that is erased.
  for (const one of erased) parts.push(`NOT coalesce(${isErased(one, parameters)}, FALSE)`);
  return parts.join(' AND ');
}

function isErased({ workspaceId, column, value, before }: ErasedLogs, parameters: Parameters): string {
  const parts = [
    `${quoted(column)} = ${parameters.add(value)}`,
    `"time" < ${parameters.add(whole(before, Math.ceil) ?? 0n)}`,
  ];
  if (workspaceId !== null) parts.push(`"workspace_id" = ${parameters.add(workspaceId)}`);
  return `(${parts.join(' AND ')})`;
}

/** What an erasure needs to know of the records that it selects, for a table of these columns. */
export function erasedStatement(
  source: string,
  organisationId: string,
  erased: ErasedLogs,
  dialect: Dialect = duckDb,
): Statement {
  const parameters = new Parameters(dialect);
  const where = `"organisation_id" = ${parameters.add(organisationId)} AND ${isErased(erased, parameters)}`;
  const columns = ERASED_COLUMNS.map(quoted).join(', ');
  return { sql: `SELECT ${columns} FROM ${source} WHERE ${where}`, values: parameters.values };
}

export const ERASED_COLUMNS = ['node', 'seq', 'id', 'workspace_id', 'trace_id', 'body_chunk'] as const;

/** True for a record that is not of the scope; written apart from `ofScope`, so that a fault in one shows in the other. */
function foreign({ organisationId, workspaceIds, userId }: LogScope, parameters: Parameters): string {
  const differs = (column: string, value: string) => parameters.dialect.differs(column, parameters.add(value));
  const parts = [differs('"organisation_id"', organisationId)];
  if (workspaceIds !== null) {
    const others = workspaceIds.map((id) => differs('"workspace_id"', id));
    parts.push(others.length === 0 ? 'TRUE' : `(${others.join(' AND ')})`);
  }
  if (userId !== null) parts.push(differs('"user_id"', userId));
  return `(${parts.join(' OR ')})`;
}

function selected({ scope, from, to, where }: LogSelection, parameters: Parameters): string {
  const first = whole(Math.max(from, scope.keptSince), Math.ceil) ?? 0n;
  const end = whole(to, Math.ceil) ?? 0n;
  return [
    ofScope(scope, parameters),
    `"time" >= ${parameters.add(first)} AND "time" < ${parameters.add(end)}`,
    conditions(where, parameters),
  ].join(' AND ');
}

const SHOWN = `"organisation_id" AS ${PROOF.organisation}, "workspace_id" AS ${PROOF.workspace}`;

/** Rows of a page: `limit` and one more, which tells that there is a next page. `source` is a relation of the keeper. */
export function pageStatement(
  source: string,
  selection: LogSelection,
  query: LogPageQuery,
  dialect: Dialect = duckDb,
): Statement {
  const parameters = new Parameters(dialect);
  const columns = shown(['id', 'time', ...query.columns], dialect);
  const where = [selected(selection, parameters)];
  const down = query.order === 'newest';
  if (query.behind !== null) {
    const { time, id } = query.behind;
    const at = parameters.add(BigInt(time));
    const sign = down ? '<' : '>';
    where.push(`"time" ${sign}= ${at} AND ("time" ${sign} ${at} OR "id" ${sign} ${parameters.add(id)})`);
  }
  const direction = down ? 'DESC' : 'ASC';
  const limit = parameters.add(BigInt(query.limit + 1));
  const sql = `SELECT ${columns}, ${SHOWN} FROM ${source} WHERE ${where.join(' AND ')} ORDER BY "time" ${direction}, "id" ${direction} LIMIT ${limit}`;
  return { sql, values: parameters.values };
}

/** The columns of rows of a page, between the first and the last of which no time lies outside. At least one. */
export function rowsStatement(
  source: string,
  selection: LogSelection,
  places: readonly LogPlace[],
  { columns, order }: Pick<LogPageQuery, 'columns' | 'order'>,
  dialect: Dialect,
): Statement {
  const parameters = new Parameters(dialect);
  const names = shown(['id', 'time', ...columns], dialect);
  const times = places.map(({ time }) => time);
  const span = { ...selection, from: Math.min(...times), to: Math.max(...times) + 1, where: [] };
  const where = `${selected(span, parameters)} AND "id" IN ${parameters.set(places.map(({ id }) => id))}`;
  const direction = order === 'newest' ? 'DESC' : 'ASC';
  const sql = `SELECT ${names}, ${SHOWN} FROM ${source} WHERE ${where} ORDER BY "time" ${direction}, "id" ${direction}`;
  return { sql, values: parameters.values };
}

/**
 * Rows of one table of the tail in the order in which they came to it, behind row `after` and up to row `last`, with the number
 * of all that there are as `matches`.
 */
export function arrivalsStatement(
  table: string,
  selection: LogSelection,
  columns: readonly string[],
  { after, last, limit }: { readonly after: number; readonly last: number; readonly limit: number },
): Statement {
  const parameters = new Parameters(duckDb);
  const names = shown(columns, duckDb);
  const rows = `rowid > ${parameters.add(BigInt(after))} AND rowid <= ${parameters.add(BigInt(last))}`;
  const where = selected(selection, parameters);
  const most = parameters.add(BigInt(limit));
  const sql = `SELECT ${names}, ${SHOWN}, count(*) OVER () AS "matches" FROM ${table} WHERE ${rows} AND ${where} ORDER BY rowid LIMIT ${most}`;
  return { sql, values: parameters.values };
}

/** The place of one record, counted from 0 in order of time, behind a place. */
export function nthStatement(
  source: string,
  selection: LogSelection,
  behind: LogPlace | null,
  n: number,
  dialect: Dialect = duckDb,
): Statement {
  const parameters = new Parameters(dialect);
  const where = [selected(selection, parameters)];
  if (behind !== null) where.push(after(behind, parameters));
  const offset = parameters.add(BigInt(n));
  const sql = `SELECT "time", "id", ${SHOWN} FROM ${source} WHERE ${where.join(' AND ')} ORDER BY "time" ASC, "id" ASC LIMIT 1 OFFSET ${offset}`;
  return { sql, values: parameters.values };
}

/** All rows between two places, in order of time; those of the places themselves are not among them. */
export function spanStatement(
  source: string,
  selection: LogSelection,
  columns: readonly string[],
  behind: LogPlace | null,
  before: LogPlace | null,
  dialect: Dialect = duckDb,
): Statement {
  const parameters = new Parameters(dialect);
  const where = [selected(selection, parameters)];
  if (behind !== null) where.push(after(behind, parameters));
  if (before !== null) {
    const at = parameters.add(BigInt(before.time));
    where.push(`"time" <= ${at} AND ("time" < ${at} OR "id" < ${parameters.add(before.id)})`);
  }
  const names = shown(['id', 'time', ...columns], dialect);
  const sql = `SELECT ${names}, ${SHOWN} FROM ${source} WHERE ${where.join(' AND ')} ORDER BY "time" ASC, "id" ASC`;
  return { sql, values: parameters.values };
}

function after({ time, id }: LogPlace, parameters: Parameters): string {
  const at = parameters.add(BigInt(time));
  return `"time" >= ${at} AND ("time" > ${at} OR "id" > ${parameters.add(id)})`;
}

/** All columns of one record. */
export function findStatement(source: string, scope: LogScope, id: string, dialect: Dialect = duckDb): Statement {
  const parameters = new Parameters(dialect);
  const where = `${ofScope(scope, parameters)} AND "id" = ${parameters.add(id)} AND "time" >= ${parameters.add(whole(scope.keptSince, Math.ceil) ?? 0n)}`;
  return { sql: `SELECT *, ${SHOWN} FROM ${source} WHERE ${where} LIMIT 1`, values: parameters.values };
}

export function countStatement(
  source: string,
  selection: LogSelection,
  most: number,
  dialect: Dialect = duckDb,
): Statement {
  const parameters = new Parameters(dialect);
  const where = selected(selection, parameters);
  const limit = parameters.add(BigInt(most + 1));
  const count = `count(*) FILTER (WHERE ${foreign(selection.scope, parameters)}) AS ${PROOF.foreign}`;
  const taken = `SELECT "organisation_id", "workspace_id", "user_id" FROM ${source} WHERE ${where} LIMIT ${limit}`;
  return { sql: `SELECT count(*) AS "n", ${count} FROM (${taken})`, values: parameters.values };
}

function keyOf(key: LogGroupKey, parameters: Parameters): string {
  if ('bounds' in key) {
    const bounds = key.bounds.map((bound) => whole(bound, Math.ceil) ?? 0n);
    return parameters.dialect.bucket(bounds, parameters.add);
  }
  if ('metadata' in key) return metadataValue(key.metadata, parameters);
  const { name, type } = columnOf(key.column);
  return type === 'boolean' ? `CAST("${name}" AS VARCHAR)` : `"${name}"`;
}

function measured(measure: LogMeasure, approximate: boolean, parameters: Parameters): string {
  const { of, column, q, where } = measure;
  const filter = where === undefined ? '' : ` FILTER (WHERE ${conditions(where, parameters)})`;
  if (of === 'count') return `count(*)${filter}`;
  if (column === undefined) throw new TypeError(`measure ${of} needs a column`);
  const name = quoted(column);
  if (of === 'distinct') return `count(DISTINCT ${name})${filter}`;
  if (columnOf(column).type !== 'integer') throw new TypeError(`measure ${of} needs a column of numbers`);
  const { dialect } = parameters;
  const numbers = dialect.measured(name);
  if (of !== 'quantile') return `${of}(${numbers})${filter}`;
  if (q === undefined || !(q >= 0 && q <= 1)) throw new TypeError('a quantile is from 0 to 1');
  return approximate
    ? dialect.approximateQuantile(numbers, share(q), filter)
    : dialect.quantile(numbers, share(q), filter);
}

/** Engines take a constant only; of a number between 0 and 1 this text is one. */
const share = (q: number) => q.toFixed(6);

/**
 * Groups in the asked order, and one row with `whole` = 1 that sums up all records. Keys are `k0`, `k1`, measures `m0` and
 * on, `n` the records; `groups` is the number of all groups.
 */
export function groupsStatement(
  source: string,
  selection: LogSelection,
  query: LogGroupQuery,
  approximate: boolean,
  dialect: Dialect = duckDb,
): Statement {
  const parameters = new Parameters(dialect);
  const keys = query.by.map((key, i) => `${keyOf(key, parameters)} AS "k${i}"`);
  const names = query.by.map((_, i) => `"k${i}"`);
  const columns = columnsOf(query).map((name) => `"${name}"`);
  const taken = [...new Set(['"organisation_id"', '"workspace_id"', '"user_id"', ...columns]), ...keys].join(', ');
  const inner = `SELECT ${taken} FROM ${source} WHERE ${selected(selection, parameters)}`;
  const measures = query.measures.map((each, i) => `${measured(each, approximate, parameters)} AS "m${i}"`);
  const numbers = [
    ...measures,
    'count(*) AS "n"',
    `count(*) FILTER (WHERE ${foreign(selection.scope, parameters)}) AS ${PROOF.foreign}`,
  ].join(', ');
  if (names.length === 0) return { sql: `SELECT ${numbers} FROM (${inner})`, values: parameters.values };
  const wholeRow = `GROUPING(${names.join(', ')}) AS "whole"`;
  const sets = `GROUP BY GROUPING SETS ((${names.join(', ')}), ())`;
  const grouped = `SELECT ${names.join(', ')}, ${numbers}, ${wholeRow} FROM (${inner}) ${sets}`;
  const limit = query.limit === undefined ? null : parameters.add(BigInt(query.limit));
  const offset = query.offset === undefined ? null : parameters.add(BigInt(query.offset));
  const sql = dialect.groupPage(grouped, orderOf(query, names), limit, offset);
  return { sql, values: parameters.values };
}

function orderOf({ order, measures }: LogGroupQuery, names: readonly string[]): string {
  const ties = names.map((name) => `${name} ASC NULLS LAST`);
  if (order === undefined) return ties.join(', ');
  const direction = `${order.descending ? 'DESC' : 'ASC'} NULLS LAST`;
  if (typeof order.by === 'number') {
    const name = names[order.by];
    if (name === undefined) throw new TypeError('the groups have no such key to be ordered by');
    return [`${name} ${direction}`, ...ties].join(', ');
  }
  const place = measures.findIndex(({ as }) => as === order.by);
  if (place < 0) throw new TypeError('the groups have no such measure to be ordered by');
  return [`"m${place}" ${direction}`, ...ties].join(', ');
}

/** The columns that measures read. */
function columnsOf({ measures }: LogGroupQuery): string[] {
  const names: string[] = [];
  const visit = (filters: readonly LogFilter[]): void => {
    for (const filter of filters) {
      if ('anyOf' in filter) filter.anyOf.forEach(visit);
      else if ('metadata' in filter) names.push(METADATA_COLUMNS.get(filter.metadata) ?? 'metadata');
      else names.push(columnOf(filter.column).name);
    }
  };
  for (const { column, where } of measures) {
    if (column !== undefined) names.push(columnOf(column).name);
    visit(where ?? []);
  }
  return names;
}
