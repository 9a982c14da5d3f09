import type { Closable } from '../../kernel/lifecycle.ts';
import type { Change, RowSecurity, TenantContext } from '../ports.ts';
import type { TableName } from '../schema.ts';

/** What the statements of a transaction may touch: one tenant's rows, or everything (null: system code). */
export type Scope = TenantContext | null;

/** What a statement was doing, for the meaning of a refused foreign key. */
export type Verb = 'read' | 'insert' | 'update' | 'remove';

/** A statement's failure in the words of no engine. */
export type Failure =
  | { readonly kind: 'unique' | 'foreign_key'; readonly columns: readonly string[] }
  /** Lost, refused, overloaded or too slow: the caller may try again. */
  | { readonly kind: 'unavailable' }
  | { readonly kind: 'other' };

export interface Result {
  readonly rows: Record<string, unknown>[];
  /** Rows inserted, changed or removed. */
  readonly affected: number;
}

/** Runs one statement in the transaction it belongs to; several at once run one after the other. */
export type Execute = (sql: string, parameters: readonly unknown[]) => Promise<Result>;

/** The few things in which the two engines differ, behind which `SqlTables` does not know which one it has. */
export interface Engine extends Closable {
  readonly name: 'sqlite' | 'postgres';
  /** SQL expression: milliseconds since the epoch by the store's clock. */
  readonly nowSql: string;
  /** SQL function (text, part) that answers the 1-based position of `part`, or 0; case-sensitive, no wildcards. */
  readonly positionFunction: 'instr' | 'strpos';
  /** Whether nulls come first in a rising order, and last in a falling one, unless a statement says otherwise. */
  readonly nullsFirst: boolean;
  /** SQL expression: the column, as a thing to sort by for which no index is walked. */
  unindexed(column: string, kind: string): string;
  /** The finished text of a statement, changed only in how its rows are found. */
  tuned(text: string): string;
  migrate(): Promise<void>;
  /**
   * Which filter backs the predicate of tenant statements, inside the database: none on SQLite. The guard of
   * statements (`sql/guard.ts`) is there on both engines. Known after `migrate()`.
   */
  readonly rowSecurity: RowSecurity;
  /** One snapshot, no writes. The database itself keeps the rows out that are not in `scope`, where it can. */
  read<T>(scope: Scope, run: (execute: Execute) => Promise<T>): Promise<T>;
  /**
   * One transaction, committed when `run` resolves. May call `run` again after a serialisation failure; with a `queue`,
   * waits for those before it in the same one.
   */
  write<T>(scope: Scope, run: (execute: Execute) => Promise<T>, queue?: string | readonly string[]): Promise<T>;
  /** See `Tables.eraseRemoved`. */
  eraseRemoved(tables: readonly TableName[]): Promise<boolean>;
  /** One reading statement of system code on its own, prepared under `name`. */
  query(name: string, sql: string, parameters: readonly unknown[]): Promise<Result['rows']>;
  /**
   * The last statement of a transaction with changes: appends them to the feed so that the order of `seq` is the order in
   * which the commits become visible, and tells other nodes at commit, where the engine can.
   */
  append(execute: Execute, changes: readonly Change[]): Promise<void>;
  /** Calls back after commits with changes, on this node or, where the engine can tell, on others. */
  onChangeHint(hint: () => void): () => void;
  /** Called after a commit with changes of this node. */
  changesCommitted(): void;
  classify(error: unknown): Failure;
}
