/**
 * The second filter of tenant isolation. It shares no code with the builder of statements: it looks at the
 * finished statement and at the rows that come back, and refuses what does not carry the tenant. It holds when the
 * builder forgets the predicate, and the builder's predicate holds without it.
 */
import {
  AndNode,
  BinaryOperationNode,
  ColumnNode,
  ColumnUpdateNode,
  DeleteQueryNode,
  IdentifierNode,
  InsertQueryNode,
  type OperationNode,
  OperatorNode,
  OrNode,
  ParensNode,
  PrimitiveValueListNode,
  ReferenceNode,
  type RootOperationNode,
  SelectQueryNode,
  TableNode,
  UpdateQueryNode,
  ValueListNode,
  ValueNode,
  ValuesNode,
} from 'kysely';
import type { TenantContext } from '../ports.ts';
import { SCHEMA, SHARED_TABLES, type Table } from '../schema.ts';
import { misuse } from './columns.ts';

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

/**
 * Throws `internal` unless every row that the statement can touch or leave behind is the tenant's. Only statements on one
 * table pass: in one with a join or a query inside, a condition says nothing of the other table's rows.
 */
export function guardStatement(statement: RootOperationNode, table: string, tenant: TenantContext): void {
  const terms = termsOf(table, tenant, SelectQueryNode.is(statement));
  const passes =
    tableOf(statement) === table &&
    !reachesFurther(statement) &&
    (InsertQueryNode.is(statement)
      ? table !== 'organisations' && terms.every((term) => inserts(statement, term))
      : terms.every((term) => bounds(statement, term)));
  // A workspace reads its organisation and changes nothing of it.
  const above = table === 'organisations' && tenant.workspaceId !== null && !SelectQueryNode.is(statement);
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

/** The one table of a statement, or null. */
function tableOf(statement: RootOperationNode): string | null {
  let node: OperationNode | undefined;
  if (InsertQueryNode.is(statement)) node = statement.into;
  else if (UpdateQueryNode.is(statement)) node = statement.table;
  else if (SelectQueryNode.is(statement) || DeleteQueryNode.is(statement)) {
    const froms = statement.from?.froms ?? [];
    node = froms.length === 1 ? froms[0] : undefined;
  }
  if (node === undefined || !TableNode.is(node)) return null;
  const { identifier, schema } = node.table;
  return schema === undefined && IdentifierNode.is(identifier) ? identifier.name : null;
}

/** Parts in which a statement reaches rows that its own condition does not bind. */
const FURTHER = ['joins', 'with', 'setOperations', 'using', 'onConflict', 'onDuplicateKey', 'fetch'] as const;

function reachesFurther(statement: RootOperationNode): boolean {
  const parts = statement as unknown as Readonly<Record<string, unknown>>;
  if (FURTHER.some((part) => parts[part] !== undefined)) return true;
  if (UpdateQueryNode.is(statement) && statement.from !== undefined) return true;
  return Object.entries(parts).some(([name, part]) => name !== 'kind' && holdsQuery(part));
}

function holdsQuery(part: unknown): boolean {
  if (typeof part !== 'object' || part === null) return false;
  if (Array.isArray(part)) return part.some(holdsQuery);
  if ((part as OperationNode).kind?.endsWith('QueryNode')) return true;
  return Object.values(part).some(holdsQuery);
}

/** True when the term is one of the conditions that must all hold, and no new value breaks it. */
function bounds(statement: RootOperationNode, term: Terms[number]): boolean {
  if (!(SelectQueryNode.is(statement) || UpdateQueryNode.is(statement) || DeleteQueryNode.is(statement))) return false;
  if (!statement.where || !holds(statement.where.where, term)) return false;
  if (!UpdateQueryNode.is(statement)) return true;
  return (statement.updates ?? []).every((update) => {
    if (!ColumnUpdateNode.is(update) || !ColumnNode.is(update.column)) return false;
    if (update.column.column.name !== term.column) return true;
    return ValueNode.is(update.value) && update.value.value === term.value;
  });
}

function holds(node: OperationNode, term: Terms[number]): boolean {
  if (ParensNode.is(node)) return holds(node.node, term);
  if (AndNode.is(node)) return holds(node.left, term) || holds(node.right, term);
  if (OrNode.is(node) && term.orNull === true) {
    const either = (one: OperationNode) => compares(one, term) || isNull(one, term.column) || holds(one, term);
    return either(node.left) && either(node.right);
  }
  return compares(node, term);
}

function compares(node: OperationNode, { column, value }: Terms[number]): boolean {
  return operation(node, '=', column) && ValueNode.is(node.rightOperand) && node.rightOperand.value === value;
}

function isNull(node: OperationNode, column: string): boolean {
  return operation(node, 'is', column) && ValueNode.is(node.rightOperand) && node.rightOperand.value === null;
}

function operation(node: OperationNode, operator: string, column: string): node is BinaryOperationNode {
  return (
    BinaryOperationNode.is(node) &&
    OperatorNode.is(node.operator) &&
    node.operator.operator === operator &&
    ReferenceNode.is(node.leftOperand) &&
    ColumnNode.is(node.leftOperand.column) &&
    node.leftOperand.column.column.name === column
  );
}

function inserts(statement: InsertQueryNode, { column, value }: Terms[number]): boolean {
  const at = statement.columns?.findIndex((one) => one.column.name === column) ?? -1;
  if (at < 0 || !statement.values || !ValuesNode.is(statement.values)) return false;
  return statement.values.values.every((row) => {
    if (PrimitiveValueListNode.is(row)) return row.values[at] === value;
    const given = ValueListNode.is(row) ? row.values[at] : undefined;
    return given !== undefined && ValueNode.is(given) && given.value === value;
  });
}
