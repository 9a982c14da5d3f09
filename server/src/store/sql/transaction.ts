import type {
  Change,
  OrganisationPatch,
  Query,
  SystemTx,
  TenantContext,
  TenantTx,
  Totals,
  TotalsQuery,
  Where,
} from '../ports.ts';
import { type Row, SHARED_TABLES, type TableName } from '../schema.ts';
import { columnsOf, decodeRow, encodePatch, encodeRow, misuse, type Stored, tableOf } from './columns.ts';
import type { Engine, Execute, Result, Scope, Verb } from './engine.ts';
import { storeError } from './failure.ts';
import { guardRows, guardStatement } from './guard.ts';
import { all, any, type Condition, compile, equals, type Order, type Statement } from './statement.ts';
import { conditions, filter } from './where.ts';

/** Stands for "no limit" where SQLite wants one before an offset. */
const NO_LIMIT = Number.MAX_SAFE_INTEGER;

/** Values of one insert: a third of what the engines bind. */
const MAX_VALUES = 10_000;

/** Which of the filters of tenant isolation that work on statements are on. Only the test that proves each one alone turns one off. */
export interface Filters {
  readonly predicate: boolean;
  readonly guard: boolean;
}

const BOTH: Filters = { predicate: true, guard: true };

type Loose = Record<string, unknown>;

/**
 * The statements of one transaction. A statement that failed ends the transaction on PostgreSQL, so it does on SQLite
 * too: later statements throw the same error, and `settle` throws it even when the caller swallowed it.
 */
export class Session {
  readonly #engine: Engine;
  readonly #send: Execute;
  readonly #scope: Scope;
  readonly #writable: boolean;
  readonly #filters: Filters;
  readonly changes: Change[] = [];
  #failed: Error | null = null;
  #ended = false;

  constructor(engine: Engine, execute: Execute, scope: Scope, writable: boolean, filters: Filters = BOTH) {
    this.#engine = engine;
    this.#send = execute;
    this.#scope = scope;
    this.#writable = writable;
    this.#filters = filters;
  }

  async find<N extends TableName>(table: N, where: Where<N>): Promise<Row<N> | undefined> {
    const rows = await this.#select(table, { limit: 1 }, conditions(table, where, 'refuse'));
    return rows[0];
  }

  async list<N extends TableName>(table: N, query: Query<N> = {}): Promise<Row<N>[]> {
    return this.#select(table, query, filter(table, query as Query<TableName>));
  }

  async #select<N extends TableName>(table: N, query: Query<N>, where: Condition): Promise<Row<N>[]> {
    const { columns, key } = tableOf(table);
    const order = new Map<string, Order>();
    const orderBy = query.orderBy ?? [];
    if (orderBy.length === 0 && (query.limit ?? 1) > 1) throw misuse(`a part of ${table} is listed in no order`);
    for (const [name, direction] of orderBy) {
      if (!Object.hasOwn(columns, name)) throw misuse(`unknown column ${table}.${name}`);
      if (direction !== 'asc' && direction !== 'desc') throw misuse(`unknown direction ${String(direction)}`);
      if (order.has(name)) continue;
      // Where nulls stand is the one thing in which the engines' orders differ. To say it costs PostgreSQL its index.
      const nulls = columns[name]?.nullable === true && !this.#engine.nullsFirst && !excludesNull(query.where, name);
      order.set(name, { column: name, direction, nulls });
    }
    for (const name of key) {
      if (order.has(name)) continue;
      // Without statistics SQLite walks the whole index of the key rather than sort the few rows of a better one.
      order.set(name, { column: name, direction: 'asc', unindexed: orderBy.length === 0 });
    }
    const limit = query.limit === undefined ? undefined : wholeNumber(query.limit);
    const skips = query.offset !== undefined && query.offset > 0;
    const { rows } = await this.#run(table, 'read', {
      kind: 'select',
      table,
      columns: columnsOf(table),
      where: this.#within(table, 'read', where),
      orderBy: [...order.values()],
      ...(limit === undefined ? {} : { limit }),
      ...(skips ? { limit: limit ?? NO_LIMIT, offset: wholeNumber(query.offset ?? 0) } : {}),
    });
    if (this.#scope && this.#filters.guard) guardRows(rows, table, this.#scope);
    return rows.map((row) => decodeRow(table, row));
  }

  async count<N extends TableName>(table: N, query: Pick<Query<N>, 'where' | 'anyOf'> = {}): Promise<number> {
    const where = this.#within(table, 'read', filter(table, query as Pick<Query<TableName>, 'where'>));
    const { rows } = await this.#run(table, 'read', { kind: 'select', table, columns: 'count', where });
    return Number(rows[0]?.count);
  }

  async totals<N extends TableName>(table: N, query: TotalsQuery<N>): Promise<Totals[]> {
    const { columns } = tableOf(table);
    const { by = [], slot, sums = [], most } = query;
    const check = (name: string, ...kinds: readonly string[]) => {
      const kind = Object.hasOwn(columns, name) ? columns[name]?.kind : undefined;
      if (kind === undefined || !kinds.includes(kind))
        throw misuse(`${table}.${name} cannot be added up or grouped by`);
    };
    for (const name of by) check(name, 'text', 'int');
    for (const name of sums) check(name, 'int');
    if (slot !== undefined) check(slot.column, 'time');
    const where = this.#within(table, 'read', filter(table, query as Pick<Query<TableName>, 'where'>));
    const { rows } = await this.#run(table, 'read', {
      kind: 'select',
      table,
      columns: {
        by,
        sums,
        ...(slot === undefined ? {} : { slot: { column: slot.column, step: slot.stepMs } }),
        ...(most === undefined ? {} : { most: wholeNumber(most) }),
      },
      where,
    });
    const value = (name: string, stored: unknown) =>
      stored === null ? null : columns[name]?.kind === 'int' ? Number(stored) : String(stored);
    return rows.map((row) => ({
      count: Number(row.count),
      slot: slot === undefined ? null : Number(row.slot),
      by: Object.fromEntries(by.map((name, n) => [name, value(name, row[`by_${n}`])])),
      sums: Object.fromEntries(sums.map((name, n) => [name, Number(row[`sum_${n}`])])),
    }));
  }

  async insert<N extends TableName>(table: N, row: Row<N>): Promise<void> {
    const values = encodeRow(table, row as Loose);
    this.#owns(table, row as Loose, true);
    await this.#run(table, 'insert', { kind: 'insert', table, values });
  }

  async insertAll<N extends TableName>(table: N, rows: readonly Row<N>[]): Promise<void> {
    const most = Math.floor(MAX_VALUES / columnsOf(table).length);
    for (let at = 0; at < rows.length; at += most) {
      const [values, ...more] = rows.slice(at, at + most).map((row) => {
        this.#owns(table, row as Loose, true);
        return encodeRow(table, row as Loose);
      });
      if (values !== undefined) await this.#run(table, 'insert', { kind: 'insert', table, values, more });
    }
  }

  async update<N extends TableName>(table: N, where: Where<N>, patch: Partial<Row<N>>): Promise<number> {
    const values = encodePatch(table, patch as Loose);
    this.#owns(table, patch as Loose, false);
    if (Object.keys(values).length === 0) return this.count(table, { where });
    const condition = this.#within(table, 'update', conditions(table, where, 'refuse'));
    return (await this.#run(table, 'update', { kind: 'update', table, values, where: condition })).affected;
  }

  async remove<N extends TableName>(table: N, where: Where<N>): Promise<number> {
    const condition = this.#within(table, 'remove', conditions(table, where, 'refuse'));
    return (await this.#run(table, 'remove', { kind: 'remove', table, where: condition })).affected;
  }

  async organisation(): Promise<Row<'organisations'>> {
    const id = this.#scope?.organisationId ?? '';
    const table = 'organisations';
    const where = equals('id', id);
    const { rows } = await this.#guarded(table, 'read', { kind: 'select', table, columns: columnsOf(table), where });
    const row = rows[0];
    if (row?.id !== id) throw misuse(`organisation ${id} does not exist`);
    return decodeRow('organisations', row);
  }

  async updateOrganisation(patch: OrganisationPatch): Promise<void> {
    const { name, settings, last_updated_at } = patch;
    if (this.#scope === null || this.#scope.workspaceId !== null) {
      throw misuse('only an organisation-wide tenant changes its organisation');
    }
    const table = 'organisations';
    const values = encodePatch(table, { name, settings, last_updated_at });
    if (Object.keys(values).length === 0) return;
    await this.#guarded(table, 'update', {
      kind: 'update',
      table,
      values,
      where: equals('id', this.#scope.organisationId),
    });
  }

  async now(): Promise<number> {
    const { rows } = await this.#execute('meta', 'read', `select ${this.#engine.nowSql} as now`, []);
    return Number(rows[0]?.now);
  }

  changed(change: Change): void {
    this.#usable(true);
    this.changes.push(change);
  }

  /** Appends the collected changes, then ends the session. Throws what a statement of it threw. */
  async settle(): Promise<void> {
    if (this.#failed) throw this.#failed;
    if (this.changes.length > 0) {
      try {
        await this.#engine.append(this.#send, this.changes);
      } catch (error) {
        throw storeError(this.#engine, error, 'changes', 'insert');
      }
    }
    this.#ended = true;
  }

  /** No statement runs after this. */
  end(): void {
    this.#ended = true;
  }

  /** The tenant's predicate, and what the statement asks for beside it. */
  #within(table: string, verb: Verb, asked: Condition): Condition {
    const scope = this.#scope;
    if (!scope || !this.#filters.predicate) return asked;
    const needed = [equals('organisation_id', scope.organisationId)];
    const workspace = tableOf(table).columns.workspace_id;
    if (scope.workspaceId !== null && workspace) {
      const own = equals('workspace_id', scope.workspaceId);
      const shared = verb === 'read' && SHARED_TABLES.has(table);
      needed.push(shared ? any([own, { is: 'null', column: 'workspace_id' }]) : own);
    }
    return all([...needed, asked]);
  }

  /** A row that is written stays within the tenant. */
  #owns(table: string, values: Loose, whole: boolean): void {
    const scope = this.#scope;
    if (!scope || !this.#filters.predicate) return;
    const { columns } = tableOf(table);
    const check = (name: string, expected: string) => {
      if (!columns[name] || (!whole && values[name] === undefined)) return;
      if (values[name] !== expected) throw misuse(`${table}.${name} is not the tenant's`);
    };
    check('organisation_id', scope.organisationId);
    if (scope.workspaceId !== null) check('workspace_id', scope.workspaceId);
  }

  #usable(writing: boolean): void {
    if (this.#ended) throw misuse('a transaction was used after its end');
    if (this.#failed) throw this.#failed;
    if (writing && !this.#writable) throw misuse('a read transaction cannot write');
  }

  #run(table: TableName, verb: Verb, statement: Statement): Promise<Result> {
    if (this.#scope) {
      if (tableOf(table).tenant !== 'organisation') throw misuse(`${table} is not reachable by a tenant`);
    }
    return this.#guarded(table, verb, statement);
  }

  #guarded(table: TableName, verb: Verb, statement: Statement): Promise<Result> {
    if (this.#scope && this.#filters.guard) guardStatement(statement, table, this.#scope);
    const { sql, parameters } = compile(statement, this.#engine);
    return this.#execute(table, verb, this.#engine.tuned(sql), parameters);
  }

  async #execute(table: TableName, verb: Verb, sql: string, parameters: readonly Stored[]): Promise<Result> {
    this.#usable(verb !== 'read');
    try {
      return await this.#send(sql, parameters);
    } catch (error) {
      const known = storeError(this.#engine, error, table, verb);
      this.#failed ??= known;
      throw known;
    }
  }
}

/** Whether a condition keeps out rows whose column is null. */
function excludesNull(where: Where<TableName> | undefined, name: string): boolean {
  const condition = (where as Loose | undefined)?.[name];
  if (condition === undefined || condition === null) return false;
  if (typeof condition !== 'object') return true;
  return 'gt' in condition || 'gte' in condition || 'lt' in condition || 'lte' in condition;
}

function wholeNumber(value: number): number {
  if (!Number.isSafeInteger(value) || value < 0) throw misuse(`limit and offset are whole numbers, not ${value}`);
  return value;
}

/** The tenant's view of a session. */
export function tenantTx(session: Session, tenant: TenantContext): TenantTx {
  return {
    tenant,
    find: (table, where) => session.find(table, where),
    list: (table, query) => session.list(table, query),
    count: (table, query) => session.count(table, query),
    totals: (table, query) => session.totals(table, query),
    insert: (table, row) => session.insert(table, row),
    insertAll: (table, rows) => session.insertAll(table, rows),
    update: (table, where, patch) => session.update(table, where, patch),
    remove: (table, where) => session.remove(table, where),
    organisation: () => session.organisation(),
    updateOrganisation: (patch) => session.updateOrganisation(patch),
    changed: (change) => session.changed({ ...change, organisationId: tenant.organisationId }),
    now: () => session.now(),
  };
}

/** The view of system code. */
export function systemTx(session: Session): SystemTx {
  return {
    find: (table, where) => session.find(table, where),
    list: (table, query) => session.list(table, query),
    count: (table, query) => session.count(table, query),
    insert: (table, row) => session.insert(table, row),
    update: (table, where, patch) => session.update(table, where, patch),
    remove: (table, where) => session.remove(table, where),
    changed: (change) => session.changed(change),
    now: () => session.now(),
  };
}
