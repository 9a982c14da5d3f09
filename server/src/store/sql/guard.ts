/**
 * The second filter of tenant isolation (rule G-02). It shares no code with the builder of statements: it looks at the
 * finished statement and at the rows that come back, and refuses what does not carry the tenant. It holds when the
 * builder forgets the predicate, and the builder's predicate holds without it.
 */
import {
  AndNode,
  BinaryOperationNode,
  ColumnNode,
  DeleteQueryNode,
  InsertQueryNode,
  type OperationNode,
  OperatorNode,
  ParensNode,
  PrimitiveValueListNode,
  ReferenceNode,
  type RootOperationNode,
  SelectQueryNode,
  UpdateQueryNode,
  ValueListNode,
  ValueNode,
  ValuesNode,
} from 'kysely';
import { misuse } from './columns.ts';

/** Throws `internal` unless every row the statement can touch belongs to the organisation. */
export function guardStatement(statement: RootOperationNode, organisationId: string): void {
  if (InsertQueryNode.is(statement)) {
    if (insertsOnly(statement, organisationId)) return;
  } else if (
    (SelectQueryNode.is(statement) || UpdateQueryNode.is(statement) || DeleteQueryNode.is(statement)) &&
    statement.where &&
    holds(statement.where.where, organisationId)
  ) {
    return;
  }
  throw misuse(`statement without the tenant's organisation: ${statement.kind}`);
}

/** Throws `internal` when a row of another organisation came back. */
export function guardRows(rows: readonly { readonly organisation_id?: unknown }[], organisationId: string): void {
  for (const row of rows) {
    if (row.organisation_id !== organisationId) throw misuse('a row of another organisation was read');
  }
}

/** True when `organisation_id = <the tenant's>` is one of the conditions that must all hold. */
function holds(node: OperationNode, organisationId: string): boolean {
  if (ParensNode.is(node)) return holds(node.node, organisationId);
  if (AndNode.is(node)) return holds(node.left, organisationId) || holds(node.right, organisationId);
  return (
    BinaryOperationNode.is(node) &&
    OperatorNode.is(node.operator) &&
    node.operator.operator === '=' &&
    ReferenceNode.is(node.leftOperand) &&
    ColumnNode.is(node.leftOperand.column) &&
    node.leftOperand.column.column.name === 'organisation_id' &&
    ValueNode.is(node.rightOperand) &&
    node.rightOperand.value === organisationId
  );
}

function insertsOnly(statement: InsertQueryNode, organisationId: string): boolean {
  const at = statement.columns?.findIndex((column) => column.column.name === 'organisation_id') ?? -1;
  if (at < 0 || !statement.values || !ValuesNode.is(statement.values)) return false;
  return statement.values.values.every((row) => {
    if (PrimitiveValueListNode.is(row)) return row.values[at] === organisationId;
    const value = ValueListNode.is(row) ? row.values[at] : undefined;
    return value !== undefined && ValueNode.is(value) && value.value === organisationId;
  });
}
