/**
 * Each filter of tenant isolation holds when the others are off: every verb on every table, aimed at another
 * organisation and, for a tenant bound to a workspace, at another workspace of its own organisation.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MIGRATIONS } from '../migrations/index.ts';
import { TYPES } from '../migrations/migration.ts';
import { type TenantContext, unsafeTenant, type Where } from '../ports.ts';
import { SCHEMA, SHARED_TABLES, type Table, type TableName, type TenantTable } from '../schema.ts';
import type { Engine, Execute } from '../sql/engine.ts';
import { SqlTables } from '../sql/tables.ts';
import { type Filters, Session, systemTx } from '../sql/transaction.ts';
import { organisationRow, tenantRows } from './rows.ts';
import { seedTenants, tenantsConformance } from './tenants.ts';

export interface EngineUnderTest {
  /** Migrated and empty. */
  readonly engine: Engine;
  close(): Promise<void>;
}

/** Attempts per filter. */
const RUNS = 200;

type Loose = Record<string, unknown>;

const WIDE = unsafeTenant('org-a', null);
const BOUND = unsafeTenant('org-a', 'ws-a1');
const WORKSPACES = { 'ws-a1': 'org-a', 'ws-a2': 'org-a', 'ws-b1': 'org-b' } as const;
type Victim = 'ws-a2' | 'ws-b1';

const SCHEMAS = SCHEMA as unknown as Record<string, Table>;
const TENANT_TABLES = Object.keys(SCHEMAS).filter((name) => SCHEMAS[name]?.tenant === 'organisation') as TenantTable[];
const bound = (table: string) => SCHEMAS[table]?.columns.workspace_id !== undefined;

const VERBS = ['find', 'list', 'count', 'totals', 'update', 'move', 'remove', 'insert', 'refer'] as const;
type Verb = (typeof VERBS)[number];
/** What the condition names: the victim's row by its key, all of the victim's, everything, the victim as an alternative. */
const AIMS = ['key', 'owner', 'all', 'either'] as const;
type Aim = (typeof AIMS)[number];

interface Attempt {
  readonly table: TenantTable;
  readonly verb: Verb;
  readonly aim: Aim;
  readonly tenant: TenantContext;
  readonly victim: Victim;
}

/** Attempts that mean something: another workspace is another tenant only for one that is bound, and in tables with one. */
const attempts: fc.Arbitrary<Attempt> = fc
  .record({
    table: fc.constantFrom(...TENANT_TABLES),
    verb: fc.constantFrom(...VERBS),
    aim: fc.constantFrom(...AIMS),
    tenant: fc.constantFrom(WIDE, BOUND),
    victim: fc.constantFrom<Victim>('ws-a2', 'ws-b1'),
  })
  .filter(({ table, tenant, victim }) => victim === 'ws-b1' || (tenant === BOUND && bound(table)));

/** References of a table to others that carry the organisation: column and parent. */
const REFERENCES = new Map<string, { column: string; parent: string }[]>();
for (const statement of MIGRATIONS.flatMap((migration) => migration.statements(TYPES.sqlite))) {
  const name = /^CREATE TABLE (\w+)/.exec(statement)?.[1];
  if (name === undefined) continue;
  const found = [...statement.matchAll(/FOREIGN KEY \(organisation_id, (\w+)\) REFERENCES (\w+)/g)];
  REFERENCES.set(
    name,
    found.map(([, column = '', parent = '']) => ({ column, parent })),
  );
}

/** The same engine, in which the database does not know whose a transaction is and keeps nothing apart. */
function withoutRowSecurity(engine: Engine): Engine {
  return {
    name: engine.name,
    nowSql: engine.nowSql,
    positionFunction: engine.positionFunction,
    nullsFirst: engine.nullsFirst,
    unindexed: (column, kind) => engine.unindexed(column, kind),
    tuned: (text) => engine.tuned(text),
    rowSecurity: engine.rowSecurity,
    migrate: () => engine.migrate(),
    eraseRemoved: (tables) => engine.eraseRemoved(tables),
    read: (_scope, run) => engine.read(null, run),
    write: (_scope, run, queue) => engine.write(null, run, queue),
    query: (name, sql, parameters) => engine.query(name, sql, parameters),
    append: (execute, changes) => engine.append(execute, changes),
    onChangeHint: (hint) => engine.onChangeHint(hint),
    changesCommitted: () => engine.changesCommitted(),
    classify: (error) => engine.classify(error),
    close: () => engine.close(),
  };
}

/** What an attempt came to; null when it did not reach anything of another tenant's. */
type Leak = string | null;

class Rollback extends Error {
  readonly leak: Leak;
  constructor(leak: Leak) {
    super('rolled back');
    this.leak = leak;
  }
}

/** Rolls everything back, whatever happened. A refusal is no leak. */
async function leakOf(
  engine: Engine,
  filters: Filters & { readonly database: boolean },
  attempt: Attempt,
): Promise<Leak> {
  try {
    await engine.write(filters.database ? attempt.tenant : null, async (execute) => {
      const session = new Session(engine, execute, attempt.tenant, true, filters);
      const system = async () => {
        if (engine.name === 'postgres') {
          await execute('RESET ROLE', []);
          await execute("SELECT set_config('sluice.organisation', '*', true)", []);
        }
        return new Session(engine, execute, null, false);
      };
      throw new Rollback(await tried(session, system, attempt));
    });
  } catch (error) {
    if (error instanceof Rollback) return error.leak;
    expect(error).toMatchObject({ name: 'SluiceError', kind: expect.not.stringMatching('unavailable') });
    return null;
  }
  throw new Error('the transaction was committed');
}

async function tried(session: Session, system: () => Promise<Session>, attempt: Attempt): Promise<Leak> {
  const { table, verb, aim, tenant, victim } = attempt;
  const theirs = tenantRows(WORKSPACES[victim], victim)[table] as unknown as Loose;
  const key = Object.fromEntries((SCHEMAS[table]?.key ?? []).map((name) => [name, theirs[name]])) as Where<TenantTable>;
  const owner = (victim === 'ws-b1' ? { organisation_id: 'org-b' } : { workspace_id: 'ws-a2' }) as Where<TenantTable>;
  const where = { key, owner, all: {}, either: key }[aim];
  const query = aim === 'either' ? { anyOf: [owner, key] } : { where };
  const foreign = (row: Loose, reading: boolean) => {
    if (row.organisation_id !== 'org-a') return true;
    if (tenant === WIDE || !bound(table) || row.workspace_id === 'ws-a1') return false;
    return !(reading && SHARED_TABLES.has(table) && row.workspace_id === null);
  };
  const seen = (rows: readonly unknown[]) => (rows.some((row) => foreign(row as Loose, true)) ? `${verb} read` : null);
  const all = async () => (await (await system()).list(table)) as unknown as Loose[];
  const changed = async () => {
    const rows = (await all()).filter((row) => foreign(row, false)).map((row) => JSON.stringify(row));
    return JSON.stringify(rows.sort()) === expected(attempt, foreign) ? null : `${verb} changed`;
  };
  const patch = patchOf(table);

  switch (verb) {
    case 'find': {
      const row = await session.find(table, where);
      return seen(row === undefined ? [] : [row]);
    }
    case 'list':
      return seen(await session.list(table, query));
    case 'count': {
      const counted = await session.count(table, query);
      const matches = (await (await system()).list(table, query)) as unknown as Loose[];
      return counted > matches.filter((row) => !foreign(row, true)).length ? 'counted' : null;
    }
    case 'totals': {
      const groups = await session.totals(table, query);
      const matches = (await (await system()).list(table, query)) as unknown as Loose[];
      const counted = groups.reduce((sum, { count }) => sum + count, 0);
      return counted > matches.filter((row) => !foreign(row, true)).length ? 'added up' : null;
    }
    case 'update':
      await session.update(table, where, patch as never);
      return changed();
    case 'move': {
      // Own rows, given away.
      const to = victim === 'ws-b1' ? { organisation_id: 'org-b' } : { workspace_id: 'ws-a2' };
      await session.update(table, {}, to as never);
      return changed();
    }
    case 'remove':
      await session.remove(table, where);
      return changed();
    case 'insert': {
      const row = tenantRows(WORKSPACES[victim], victim, '-new')[table] as unknown as Loose;
      const fresh = table === 'workspaces' ? { ...row, id: 'fresh', slug: 'fresh' } : row;
      const parents = { ...fresh, ...parentsOf(table, victim) };
      if (table === 'audit_heads') await (await system()).count(table);
      if (aim === 'key' || aim === 'owner') await session.insert(table, parents as never);
      else {
        const mine = { ...tenantRows('org-a', 'ws-a1', '-new')[table], ...parentsOf(table, 'ws-a1') };
        await session.insertAll(table, (aim === 'all' ? [parents] : [mine, parents]) as never);
      }
      return changed();
    }
    case 'refer': {
      // Refused by the reference itself, whatever filter is on.
      const references = REFERENCES.get(table) ?? [];
      if (references.length === 0 || victim === 'ws-a2') return null;
      const { column, parent } = references[AIMS.indexOf(aim) % references.length] as (typeof references)[number];
      const id = (tenantRows('org-b', 'ws-b1') as unknown as Record<string, Loose>)[parent]?.id;
      if (aim === 'either') {
        const own = tenantRows('org-a', 'ws-a1')[table] as unknown as Loose;
        const mine = Object.fromEntries((SCHEMAS[table]?.key ?? []).map((name) => [name, own[name]]));
        return (await session.update(table, mine as Where<TenantTable>, { [column]: id } as never)) > 0
          ? 'referred'
          : null;
      }
      const own = tenantRows('org-a', 'ws-a1', '-new')[table] as unknown as Loose;
      await session.insert(table, { ...own, ...parentsOf(table, 'ws-a1'), [column]: id } as never);
      return 'referred';
    }
  }
}

/** The references of a table to the rows that a workspace has. */
function parentsOf(table: string, workspace: keyof typeof WORKSPACES): Loose {
  const rows = tenantRows(WORKSPACES[workspace], workspace) as unknown as Record<string, Loose>;
  return Object.fromEntries((REFERENCES.get(table) ?? []).map(({ column, parent }) => [column, rows[parent]?.id]));
}

/** A change of any column that says nothing of the tenant. */
function patchOf(table: TenantTable): Loose {
  const columns = SCHEMAS[table]?.columns ?? {};
  const time = Object.keys(columns).find((name) => columns[name]?.kind === 'time');
  return time === undefined ? { seq: 7 } : { [time]: 7 };
}

function expected({ table }: Attempt, foreign: (row: Loose, reading: boolean) => boolean): string {
  const rows = (Object.keys(WORKSPACES) as (keyof typeof WORKSPACES)[])
    .filter((workspace) => table !== 'audit_heads' || workspace !== 'ws-a2')
    .map((workspace) => stored(tenantRows(WORKSPACES[workspace], workspace)[table] as unknown as Loose, table))
    .filter((row) => foreign(row, false));
  return JSON.stringify(rows.map((row) => JSON.stringify(row)).sort());
}

/** Columns in the order of SCHEMA, as rows come back. */
function stored(row: Loose, table: string): Loose {
  return Object.fromEntries(Object.keys(SCHEMAS[table]?.columns ?? {}).map((name) => [name, row[name]]));
}

/** @param rowSecurity whether the database has a filter of its own */
export function filtersConformance(name: string, rowSecurity: boolean, open: () => Promise<EngineUnderTest>): void {
  describe(`filters: ${name}`, () => {
    let store: EngineUnderTest;
    let engine: Engine;
    beforeAll(async () => {
      store = await open();
      engine = store.engine;
      await engine.write(null, async (execute: Execute) => {
        const tx = systemTx(new Session(engine, execute, null, true));
        for (const organisation of ['org-a', 'org-b']) await tx.insert('organisations', organisationRow(organisation));
        for (const [workspace, organisation] of Object.entries(WORKSPACES)) {
          for (const [table, row] of Object.entries(tenantRows(organisation, workspace))) {
            if (table === 'audit_heads' && workspace === 'ws-a2') continue;
            await tx.insert(table as TableName, row as never);
          }
        }
      });
    });
    afterAll(() => store.close());

    const none = async (filters: Filters & { readonly database: boolean }) => {
      await fc.assert(
        fc.asyncProperty(attempts, async (attempt) => {
          expect(await leakOf(engine, filters, attempt)).toBeNull();
        }),
        { numRuns: RUNS },
      );
    };

    it('the predicate alone: no verb on any table reaches another tenant', () =>
      none({ predicate: true, guard: false, database: false }));

    it('the guard of statements alone: no verb on any table reaches another tenant', () =>
      none({ predicate: false, guard: true, database: false }));

    if (rowSecurity)
      it('row-level security alone: no verb on any table reaches another tenant', async () => {
        expect(engine.rowSecurity).toBe('enforced');
        await none({ predicate: false, guard: false, database: true });
      });

    it('all together: no verb on any table reaches another tenant', () =>
      none({ predicate: true, guard: true, database: true }));

    it('without any filter the same attempts do reach it: they would be seen', async () => {
      const filters = { predicate: false, guard: false, database: false };
      const leaks = new Map<Verb, number>();
      for (const attempt of fc.sample(attempts, { numRuns: RUNS, seed: 1 })) {
        const leak = await leakOf(engine, filters, attempt);
        if (leak !== null) leaks.set(attempt.verb, (leaks.get(attempt.verb) ?? 0) + 1);
      }
      for (const verb of VERBS) {
        if (verb === 'refer') expect(leaks.get(verb), verb).toBeUndefined();
        else expect(leaks.get(verb), verb).toBeGreaterThan(0);
      }
    });

    it('an organisation is read by its own tenants only, and changed by those of the whole organisation', async () => {
      for (const guard of [true, false]) {
        const filters = { predicate: true, guard };
        const as = <T>(tenant: TenantContext, run: (session: Session) => Promise<T>) =>
          engine.write(tenant, (execute) => run(new Session(engine, execute, tenant, true, filters)));
        expect((await as(BOUND, (session) => session.organisation())).id).toBe('org-a');
        await as(WIDE, (session) => session.updateOrganisation({ name: `renamed ${guard}` }));
        expect((await as(WIDE, (session) => session.organisation())).name).toBe(`renamed ${guard}`);
        await expect(as(BOUND, (session) => session.updateOrganisation({ name: 'taken' }))).rejects.toMatchObject({
          kind: 'internal',
        });
      }
      const rows = await engine.read(null, (execute) =>
        new Session(engine, execute, null, false).list('organisations'),
      );
      expect(rows.map((row) => row.name)).toEqual(['renamed false', 'org-b']);
    });
  });
}

/** The whole suite of tenants with one filter alone: it is not only safe, it shows each tenant what is its own. */
export function aloneConformance(
  name: string,
  filter: 'predicate' | 'row-level security',
  open: () => Promise<EngineUnderTest>,
): void {
  describe(`${filter} alone: ${name}`, () => {
    let store: EngineUnderTest;
    let tables: SqlTables;
    beforeAll(async () => {
      store = await open();
      tables =
        filter === 'predicate'
          ? new SqlTables(withoutRowSecurity(store.engine), { predicate: true, guard: false })
          : new SqlTables(store.engine, { predicate: false, guard: false });
      await seedTenants(tables);
    });
    afterAll(() => store.close());
    tenantsConformance(() => tables);
  });
}
