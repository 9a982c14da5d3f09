/**
 * The second filter of tenant isolation. It shares no code with the builder of statements: it looks at the
 * finished statement and at the rows that come back, and refuses what does not carry the tenant. It holds when the
 * builder forgets the predicate, and the builder's predicate holds without it.
 */
import type { TenantContext } from '../ports.ts';
import { SCHEMA, SHARED_TABLES, type Table } from '../schema.ts';
import { misuse } from './columns.ts';
import type { Condition, Insert, Statement, Update } from './statement.ts';

/** What must hold for every row: each column its one value, or null where that is said. */
type Terms = readonly { readonly column: string; readonly value: string; readonly orNull?: boolean }[];

function termsOf(table: string, tenant: TenantContext, reads: boolean): Terms {
  if (table === 'organisations') return [{ column: 'id', value: tenant.organisationId }];
  const organisation = { column: 'organisation_id', value: tenant.organisationId };
  const columns = (SCHEMA as unknown as Record<string, Table>)[table]?.columns;
  if (tenant.workspaceId === null || columns?.workspace_id === undefined) return [organisation];
  const orNull = reads && SHARED_TABLES.has(table);
  return [organisation, { column: 'workspace_id', value: tenant.workspaceId, orNull }];
}

/** All that a statement may have. A part that is not here reaches rows of which this guard knows nothing. */
const PARTS: Readonly<Record<Statement['kind'], ReadonlySet<string>>> = {
  select: new Set(['kind', 'table', 'columns', 'where', 'orderBy', 'limit', 'offset']),
  insert: new Set(['kind', 'table', 'values', 'more']),
  update: new Set(['kind', 'table', 'values', 'where']),
  remove: new Set(['kind', 'table', 'where']),
};

/**
 * Throws `internal` unless every row that the statement can touch or leave behind is the tenant's. Only statements on one
 * table pass: in one with a join or a query inside, a condition says nothing of the other table's rows.
 */
export function guardStatement(statement: Statement, table: string, tenant: TenantContext): void {
  const terms = termsOf(table, tenant, statement.kind === 'select');
  const passes =
    statement.table === table &&
    Object.keys(statement).every((part) => PARTS[statement.kind]?.has(part) === true) &&
    isPlain(statement) &&
    (statement.kind === 'insert' ? table !== 'organisations' : true) &&
    terms.every((term) => bounds(statement, term));
  // A workspace reads its organisation and changes nothing of it.
  const above = table === 'organisations' && tenant.workspaceId !== null && statement.kind !== 'select';
  if (!passes || above) throw misuse(`statement that is not bound to the tenant: ${statement.kind} ${table}`);
}

/** Throws `internal` when a row of another tenant came back. */
export function guardRows(
  rows: readonly Readonly<Record<string, unknown>>[],
  table: string,
  tenant: TenantContext,
): void {
  const terms = termsOf(table, tenant, true);
  for (const row of rows) {
    for (const { column, value, orNull } of terms) {
      if (row[column] !== value && !(orNull === true && row[column] === null)) {
        throw misuse('a row of another tenant was read');
      }
    }
  }
}

const rowsOf = (statement: Insert | Update): readonly Insert['values'][] =>
  statement.kind === 'insert' ? [statement.values, ...(statement.more ?? [])] : [statement.values];

/** Whether everything that it writes is a plain value, with no query inside. */
function isPlain(statement: Statement): boolean {
  if (statement.kind !== 'insert' && statement.kind !== 'update') return true;
  return rowsOf(statement).every((row) =>
    Object.values(row).every((value: unknown) => value === null || typeof value !== 'object'),
  );
}

/** True when the term is one of the conditions that must all hold, and no new value breaks it. */
function bounds(statement: Statement, term: Terms[number]): boolean {
  const { column, value } = term;
  if (statement.kind === 'insert') return rowsOf(statement).every((row) => own(row, column) === value);
  if (!holds(statement.where, term)) return false;
  return (
    statement.kind !== 'update' || [undefined, value].includes(own(statement.values, column) as string | undefined)
  );
}

const own = (values: Readonly<Record<string, unknown>>, column: string): unknown =>
  Object.hasOwn(values, column) ? values[column] : undefined;

function holds(condition: Condition, term: Terms[number]): boolean {
  if (condition.is === 'all') return condition.of.some((one) => holds(one, term));
  if (condition.is === 'any') {
    if (condition.of.length === 1 && condition.of[0]) return holds(condition.of[0], term);
    if (term.orNull !== true || condition.of.length === 0) return false;
    return condition.of.every((one) => isNull(one, term.column) || holds(one, term));
  }
  return compares(condition, term);
}

function compares(condition: Condition, { column, value }: Terms[number]): boolean {
  return (
    condition.is === 'compared' &&
    condition.operator === '=' &&
    condition.column === column &&
    condition.value === value
  );
}

function isNull(condition: Condition, column: string): boolean {
  return condition.is === 'null' && condition.not !== true && condition.column === column;
}
