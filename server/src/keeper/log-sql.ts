/**
 * Questions of `telemetry/log-query.ts` as statements of DuckDB. Text of a statement is made of constants and of names in
 * `LOG_COLUMNS`; whatever a caller gave is a parameter. Each statement proves whose records it took in: rows tell their
 * organisation and workspace, groups count the foreign ones by a second, separate condition.
 */
import { type LogColumn, logColumn, METADATA_COLUMNS } from '../telemetry/log-columns.ts';
import type {
  LogFilter,
  LogGroupKey,
  LogGroupQuery,
  LogMeasure,
  LogPageQuery,
  LogPlace,
  LogScope,
  LogSelection,
} from '../telemetry/log-query.ts';

export type SqlValue = string | bigint | number | boolean;

export interface Statement {
  readonly sql: string;
  readonly values: readonly SqlValue[];
}

/** Columns that prove whose a row is; measures and keys have other names. */
export const PROOF = { organisation: 'proof_organisation', workspace: 'proof_workspace', foreign: 'proof_foreign' };

/** Collects parameters; each is named by its place. */
class Parameters {
  readonly values: SqlValue[] = [];

  add(value: SqlValue): string {
    return `$${this.values.push(value)}`;
  }

  list(values: readonly SqlValue[]): string {
    return values.map((value) => this.add(value)).join(', ');
  }
}

function columnOf(name: string): LogColumn {
  const found = logColumn(name);
  if (found === undefined) throw new TypeError(`the records have no column ${JSON.stringify(name)}`);
  return found;
}

const quoted = (name: string) => `"${columnOf(name).name}"`;

const INTEGER = /^-?\d{1,15}$/;

function inList(column: LogColumn, values: readonly string[], parameters: Parameters): string {
  const fit: readonly SqlValue[] =
    column.type === 'integer' ? values.filter((value) => INTEGER.test(value)).map(BigInt) : values;
  return fit.length === 0 ? 'FALSE' : `"${column.name}" IN (${parameters.list(fit)})`;
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
    return `${value} IN (${parameters.list(filter.in)})`;
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
  return reserved === undefined ? `"metadata"[${parameters.add(key)}]` : `"${reserved}"`;
}

function ofScope({ organisationId, workspaceIds, userId }: LogScope, parameters: Parameters): string {
  const parts = [`"organisation_id" = ${parameters.add(organisationId)}`];
  if (workspaceIds !== null) {
    parts.push(workspaceIds.length === 0 ? 'FALSE' : `"workspace_id" IN (${parameters.list(workspaceIds)})`);
  }
  if (userId !== null) parts.push(`"user_id" = ${parameters.add(userId)}`);
  return parts.join(' AND ');
}

/** True for a record that is not of the scope; written apart from `ofScope`, so that a fault in one shows in the other. */
function foreign({ organisationId, workspaceIds, userId }: LogScope, parameters: Parameters): string {
  const parts = [`"organisation_id" IS DISTINCT FROM ${parameters.add(organisationId)}`];
  if (workspaceIds !== null) {
    const known = workspaceIds.map((id) => `"workspace_id" IS NOT DISTINCT FROM ${parameters.add(id)}`);
    parts.push(known.length === 0 ? 'TRUE' : `NOT (${known.join(' OR ')})`);
  }
  if (userId !== null) parts.push(`"user_id" IS DISTINCT FROM ${parameters.add(userId)}`);
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
export function pageStatement(source: string, selection: LogSelection, query: LogPageQuery): Statement {
  const parameters = new Parameters();
  const columns = [...new Set(['id', 'time', ...query.columns])].map(quoted).join(', ');
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
  const parameters = new Parameters();
  const names = [...new Set(columns)].map(quoted).join(', ');
  const rows = `rowid > ${parameters.add(BigInt(after))} AND rowid <= ${parameters.add(BigInt(last))}`;
  const where = selected(selection, parameters);
  const most = parameters.add(BigInt(limit));
  const sql = `SELECT ${names}, ${SHOWN}, count(*) OVER () AS "matches" FROM ${table} WHERE ${rows} AND ${where} ORDER BY rowid LIMIT ${most}`;
  return { sql, values: parameters.values };
}

/** The place of one record, counted from 0 in order of time, behind a place. */
export function nthStatement(source: string, selection: LogSelection, behind: LogPlace | null, n: number): Statement {
  const parameters = new Parameters();
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
): Statement {
  const parameters = new Parameters();
  const where = [selected(selection, parameters)];
  if (behind !== null) where.push(after(behind, parameters));
  if (before !== null) {
    const at = parameters.add(BigInt(before.time));
    where.push(`"time" <= ${at} AND ("time" < ${at} OR "id" < ${parameters.add(before.id)})`);
  }
  const names = [...new Set(['id', 'time', ...columns])].map(quoted).join(', ');
  const sql = `SELECT ${names}, ${SHOWN} FROM ${source} WHERE ${where.join(' AND ')} ORDER BY "time" ASC, "id" ASC`;
  return { sql, values: parameters.values };
}

function after({ time, id }: LogPlace, parameters: Parameters): string {
  const at = parameters.add(BigInt(time));
  return `"time" >= ${at} AND ("time" > ${at} OR "id" > ${parameters.add(id)})`;
}

/** All columns of one record. */
export function findStatement(source: string, scope: LogScope, id: string): Statement {
  const parameters = new Parameters();
  const where = `${ofScope(scope, parameters)} AND "id" = ${parameters.add(id)} AND "time" >= ${parameters.add(whole(scope.keptSince, Math.ceil) ?? 0n)}`;
  return { sql: `SELECT *, ${SHOWN} FROM ${source} WHERE ${where} LIMIT 1`, values: parameters.values };
}

export function countStatement(source: string, selection: LogSelection, most: number): Statement {
  const parameters = new Parameters();
  const where = selected(selection, parameters);
  const limit = parameters.add(BigInt(most + 1));
  const count = `count(*) FILTER (WHERE ${foreign(selection.scope, parameters)}) AS ${PROOF.foreign}`;
  const taken = `SELECT "organisation_id", "workspace_id", "user_id" FROM ${source} WHERE ${where} LIMIT ${limit}`;
  return { sql: `SELECT count(*) AS "n", ${count} FROM (${taken})`, values: parameters.values };
}

/** The place of `time` among the bounds, as a tree of comparisons: a year of days costs nine of them. */
function bucket(bounds: readonly number[], parameters: Parameters): string {
  const places = bounds.map((bound) => parameters.add(whole(bound, Math.ceil) ?? 0n));
  // Place -1 and the last one lie outside of all buckets.
  const tree = (low: number, high: number): string => {
    if (low === high) return low < 0 || low >= bounds.length - 1 ? 'NULL' : String(low);
    const middle = Math.ceil((low + high) / 2);
    return `CASE WHEN "time" < ${places[middle]} THEN ${tree(low, middle - 1)} ELSE ${tree(middle, high)} END`;
  };
  return tree(-1, bounds.length - 1);
}

function keyOf(key: LogGroupKey, parameters: Parameters): string {
  if ('bounds' in key) return bucket(key.bounds, parameters);
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
  if (of !== 'quantile') return `${of}(${name})${filter}`;
  if (q === undefined || !(q >= 0 && q <= 1)) throw new TypeError('a quantile is from 0 to 1');
  return approximate
    ? `approx_quantile(${name}, ${share(q)})${filter}`
    : `quantile_disc(${name}, ${share(q)})${filter}`;
}

/** DuckDB takes a constant only; of a number between 0 and 1 this text is one. */
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
): Statement {
  const parameters = new Parameters();
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
  const limit = query.limit === undefined ? '' : ` LIMIT ${parameters.add(BigInt(query.limit))}`;
  const offset = query.offset === undefined ? '' : ` OFFSET ${parameters.add(BigInt(query.offset))}`;
  const page = `SELECT * FROM g WHERE "whole" = 0 ORDER BY ${orderOf(query, names)}${limit}${offset}`;
  const sql = `WITH g AS MATERIALIZED (${grouped}), p AS MATERIALIZED (${page}) SELECT *, (SELECT count(*) FROM g WHERE "whole" = 0) AS "groups" FROM (SELECT * FROM g WHERE "whole" <> 0 UNION ALL SELECT * FROM p) ORDER BY "whole" DESC, ${orderOf(query, names)}`;
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
