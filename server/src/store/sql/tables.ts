import type {
  RowSecurity,
  SequencedChange,
  SystemTx,
  Tables,
  TenantContext,
  TenantTx,
  WriteOptions,
} from '../ports.ts';
import type { Row, TableName } from '../schema.ts';
import { columnsOf, decodeRow } from './columns.ts';
import type { Engine, Execute, Scope } from './engine.ts';
import { storeError, unavailable } from './failure.ts';
import { compile, placeholder, quoted } from './statement.ts';
import { type Filters, Session, systemTx, tenantTx } from './transaction.ts';

/** `Tables` over either engine. */
export class SqlTables implements Tables {
  readonly engine: 'sqlite' | 'postgres';
  readonly #engine: Engine;
  readonly #filters: Filters | undefined;
  readonly #statements: ReturnType<typeof statements>;

  /** @param filters only for tests that prove each filter of tenant isolation alone */
  constructor(engine: Engine, filters?: Filters) {
    this.engine = engine.name;
    this.#engine = engine;
    this.#filters = filters;
    this.#statements = statements(engine);
  }

  get rowSecurity(): RowSecurity {
    return this.#engine.rowSecurity;
  }

  migrate(): Promise<void> {
    return this.#engine.migrate();
  }

  eraseRemoved(tables: readonly TableName[]): Promise<boolean> {
    return this.#engine.eraseRemoved(tables);
  }

  read<T>(tenant: TenantContext, run: (tx: TenantTx) => Promise<T>): Promise<T> {
    return this.#read(tenant, (execute) => {
      const session = new Session(this.#engine, execute, tenant, false, this.#filters);
      return { session, result: run(tenantTx(session, tenant)) };
    });
  }

  write<T>(tenant: TenantContext, run: (tx: TenantTx) => Promise<T>, options?: WriteOptions): Promise<T> {
    return this.#write(tenant, options, (execute) => {
      const session = new Session(this.#engine, execute, tenant, true, this.#filters);
      return { session, run: () => run(tenantTx(session, tenant)) };
    });
  }

  systemRead<T>(run: (tx: SystemTx) => Promise<T>): Promise<T> {
    return this.#read(null, (execute) => {
      const session = new Session(this.#engine, execute, null, false);
      return { session, result: run(systemTx(session)) };
    });
  }

  systemWrite<T>(run: (tx: SystemTx) => Promise<T>, options?: WriteOptions): Promise<T> {
    return this.#write(null, options, (execute) => {
      const session = new Session(this.#engine, execute, null, true);
      return { session, run: () => run(systemTx(session)) };
    });
  }

  async findKey(publicId: string) {
    const [row] = await this.#query(this.#statements.findKey, [publicId]);
    if (!row) return undefined;
    return {
      secret: decodeRow('api_key_secrets', row, 's_'),
      key: decodeRow('api_keys', row, 'k_'),
      organisation: decodeRow('organisations', row, 'o_'),
    };
  }

  async changesAfter(seq: number, limit: number): Promise<SequencedChange[]> {
    const rows = await this.#query(this.#statements.changesAfter, [seq, limit]);
    return rows.map((stored) => {
      const row: Row<'changes'> = decodeRow('changes', stored);
      return {
        seq: row.seq,
        organisationId: row.organisation_id,
        workspaceId: row.workspace_id,
        // A newer version may write topics that this one does not know; nothing here depends on them.
        topic: row.topic as TableName,
        entityId: row.entity_id,
      };
    });
  }

  async lastChange(): Promise<number> {
    const [row] = await this.#query(this.#statements.lastChange, []);
    return Number(row?.seq ?? 0);
  }

  onChangeHint(hint: () => void): () => void {
    return this.#engine.onChangeHint(hint);
  }

  async now(): Promise<number> {
    const [row] = await this.#query(this.#statements.now, []);
    return Number(row?.now);
  }

  async ping(): Promise<void> {
    await this.#query(this.#statements.ping, []);
  }

  close(): Promise<void> {
    return this.#engine.close();
  }

  async #read<T>(scope: Scope, start: (execute: Execute) => { session: Session; result: Promise<T> }): Promise<T> {
    return this.#guarded(() =>
      this.#engine.read(scope, async (execute) => {
        const { session, result } = start(execute);
        try {
          return await result;
        } finally {
          session.end();
        }
      }),
    );
  }

  async #write<T>(
    scope: Scope,
    options: WriteOptions | undefined,
    start: (execute: Execute) => { session: Session; run: () => Promise<T> },
  ): Promise<T> {
    let changed = false;
    const result = await this.#guarded(() =>
      this.#engine.write(
        scope,
        async (execute) => {
          const { session, run } = start(execute);
          try {
            const value = await run();
            await session.settle();
            changed = session.changes.length > 0;
            return value;
          } finally {
            session.end();
          }
        },
        options?.queue,
      ),
    );
    if (changed) this.#engine.changesCommitted();
    return result;
  }

  /** Errors of begin and commit are the store's; errors of `run` pass as they are. */
  async #guarded<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw this.#engine.classify(error).kind === 'unavailable' ? unavailable(error) : error;
    }
  }

  async #query(statement: NamedStatement, parameters: readonly unknown[]) {
    try {
      return await this.#engine.query(statement.name, statement.sql, parameters);
    } catch (error) {
      throw storeError(this.#engine, error, statement.name, 'read');
    }
  }
}

interface NamedStatement {
  readonly name: string;
  readonly sql: string;
}

/** Statements that never change, written once. */
function statements(engine: Engine) {
  const { nowSql } = engine;
  const named = (name: string, sql: string): NamedStatement => ({ name, sql });
  const prefixed = (table: 'api_key_secrets' | 'api_keys' | 'organisations', prefix: string) =>
    columnsOf(table).map((column) => `"${prefix}".${quoted(column)} as ${quoted(`${prefix}_${column}`)}`);
  const found = [...prefixed('api_key_secrets', 's'), ...prefixed('api_keys', 'k'), ...prefixed('organisations', 'o')];
  const changesAfter = compile(
    {
      kind: 'select',
      table: 'changes',
      columns: columnsOf('changes'),
      where: { is: 'compared', column: 'seq', operator: '>', value: 0 },
      orderBy: [{ column: 'seq', direction: 'asc' }],
      limit: 1,
    },
    engine,
  );
  return {
    findKey: named(
      'sluice_find_key',
      `select ${found.join(', ')} from "api_key_secrets" as "s" ` +
        'inner join "api_keys" as "k" on "k"."organisation_id" = "s"."organisation_id" and "k"."id" = "s"."api_key_id" ' +
        'inner join "organisations" as "o" on "o"."id" = "s"."organisation_id" ' +
        `where "s"."id" = ${placeholder(engine.name, 1)}`,
    ),
    changesAfter: named('sluice_changes_after', changesAfter.sql),
    lastChange: named('sluice_last_change', 'select "seq" from "changes" order by "seq" desc limit 1'),
    now: named('sluice_now', `select ${nowSql} as now`),
    ping: named('sluice_ping', 'select 1 as ok'),
  };
}
