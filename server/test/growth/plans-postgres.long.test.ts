/**
 * What PostgreSQL visits for each statement of the product, on a store whose statistics say that every table has a million
 * rows, of ten organisations with twenty workspaces each.
 */
import pg from 'pg';
import { describe, expect, it } from 'vitest';
import type { Column } from '../../src/store/column.ts';
import { SCHEMA } from '../../src/store/schema.ts';
import { migratedDatabase } from '../support/postgres.ts';
import { EXCUSES, excused, SMALL, shapeOf, WAITING } from './excuses.ts';
import { type Statement, statementsOf } from './statements.ts';

const ROWS = 1_000_000;
/** Rows that may be sorted for a page of them. */
const FEW = 200;
/** Different values of a column, where a name says more than its kind. What refers to something is one of a hundred. */
const distinctOf = (name: string, kind: string): number => {
  if (name === 'organisation_id') return 10;
  if (name === 'workspace_id') return 20;
  if (kind === 'bool') return 2;
  if (WORDS.test(name)) return 4;
  if (name === 'account' || (/_id$/.test(name) && !/^(object|request|trace)_id$/.test(name))) return 100;
  return -0.9;
};
/** Columns of a handful of values. */
const WORDS =
  /status|type|kind|role|direction|period|step$|target|unit|purpose|method|action|topic|granted_by|level|mode/;

const TABLES = Object.entries(SCHEMA).map(([name, { columns }]) => [name, columns] as const) as readonly (readonly [
  string,
  Readonly<Record<string, Column<unknown>>>,
])[];

/** Tells the planner what a large installation would; nothing of it outlives the transaction of `db`. */
async function grow(db: pg.Client): Promise<void> {
  // A row of nothing is enough for a page.
  const { rows: checks } = await db.query(
    `SELECT conrelid::regclass::text AS "table", conname AS name FROM pg_constraint
    WHERE contype = 'c' AND connamespace = current_schema()::regnamespace`,
  );
  for (const { table, name } of checks) await db.query(`ALTER TABLE ${table} DROP CONSTRAINT "${name}"`);
  for (const [table, columns] of TABLES) {
    if (SMALL.has(table)) continue;
    // Log tables may be in another database.
    const { rows: there } = await db.query(`SELECT to_regclass('${table}') IS NOT NULL AS there`);
    if (!there[0].there) continue;
    // A table without a page has no rows whatever its statistics say.
    const { rows } = await db.query(`SELECT pg_relation_size('${table}')::int AS bytes`);
    if (rows[0].bytes === 0) {
      const values = Object.values(columns).map(({ kind, nullable }) => {
        if (nullable) return 'NULL';
        return kind === 'text' || kind === 'sealed' ? "''" : kind === 'json' ? "'{}'" : '0';
      });
      const names = Object.keys(columns).map((name) => `"${name}"`);
      await db.query('SET LOCAL session_replication_role = replica');
      await db.query(
        `INSERT INTO ${table} (${names.join(', ')}) OVERRIDING SYSTEM VALUE VALUES (${values.join(', ')})`,
      );
    }
    await db.query('UPDATE pg_class SET relpages = 1, reltuples = $2 WHERE oid = $1::regclass', [table, ROWS]);
    await db.query('DELETE FROM pg_statistic WHERE starelid = $1::regclass', [table]);
    for (const [name, { kind, nullable }] of Object.entries(columns)) {
      const slots = [1, 2, 3, 4, 5].map(() => '0').join(', ');
      await db.query(
        `INSERT INTO pg_statistic (starelid, staattnum, stainherit, stanullfrac, stawidth, stadistinct,
          stakind1, stakind2, stakind3, stakind4, stakind5, staop1, staop2, staop3, staop4, staop5,
          stacoll1, stacoll2, stacoll3, stacoll4, stacoll5)
        SELECT attrelid, attnum, false, $3, 16, $4, ${slots}, ${slots}, ${slots}
        FROM pg_attribute WHERE attrelid = $1::regclass AND attname = $2`,
        [table, name, nullable ? 0.3 : 0, distinctOf(name, kind)],
      );
    }
  }
}

interface Plan {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Index Name'?: string;
  readonly 'Index Cond'?: string;
  readonly Filter?: string;
  /** Rows that the planner expects. */
  readonly 'Plan Rows': number;
  readonly Plans?: readonly Plan[];
}

/** Columns by which an index is entered: those from its first one on that a condition bounds. */
function entered(cond: string, columns: readonly string[]): string[] {
  const bounds = [...cond.matchAll(/\(*"?(\w+)"?\)*(?:::\w+)? (=|<=?|>=?|IS) /g)].map(([, name, by]) => ({ name, by }));
  const out: string[] = [];
  for (const column of columns) {
    const of = bounds.filter(({ name }) => name === column);
    // A row of columns is compared as a whole: `ROW(a, b) > ROW(1, 2)`.
    if (of.length === 0) break;
    out.push(column);
    if (of.every(({ by }) => by !== '=')) break;
  }
  return out;
}

function faultIn(plan: Plan, indexes: ReadonlyMap<string, readonly string[]>, paged: boolean): string | null {
  const { 'Node Type': type, 'Relation Name': table = '', 'Index Cond': cond = '', 'Index Name': index = '' } = plan;
  // One page of an index, from its end on.
  const walks = paged || type === 'Limit';
  if (table !== '' && !SMALL.has(table)) {
    if (type === 'Seq Scan') return `reads all of ${table}`;
    if (type.startsWith('Index') && !WAITING.has(index)) {
      const by = entered(cond, indexes.get(index) ?? []);
      if (by.length === 0 && !(walks && plan.Filter === undefined)) return `reads all of ${index}: ${cond}`;
      if (by.join() === 'organisation_id' && !walks) return `reads all of an organisation: ${index} ${cond}`;
    }
  }
  // In steps only rows of one moment are sorted.
  if (paged && type === 'Sort' && plan['Plan Rows'] > FEW) return `sorts ${plan['Plan Rows']} rows for one page`;
  // What sorts or groups takes all that comes from below.
  const stays = walks && (type === 'Incremental Sort' || !/Sort|Aggregate|Hash/.test(type));
  for (const child of plan.Plans ?? []) {
    const fault = faultIn(child, indexes, stays);
    if (fault !== null) return fault;
  }
  return null;
}

async function open(url: string) {
  const db = new pg.Client({ connectionString: url });
  await db.connect();
  await db.query('BEGIN; SET LOCAL enable_bitmapscan = off; SET LOCAL statement_timeout = 0');
  await grow(db);
  const { rows } = await db.query(
    `SELECT c.relname AS name, array_agg(a.attname::text ORDER BY k.n) AS columns
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid, unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, n)
    JOIN LATERAL (SELECT attname FROM pg_attribute WHERE attrelid = i.indrelid AND attnum = k.attnum) a ON true
    WHERE c.relnamespace = current_schema()::regnamespace GROUP BY c.relname`,
  );
  const [tenants] = (
    await db.query(`SELECT 'sluice_tenant_' || oid AS role FROM pg_database WHERE datname = current_database()`)
  ).rows;
  const role = String(tenants.role);
  const indexes = new Map(rows.map(({ name, columns }) => [name as string, columns as string[]]));
  return {
    async faultOf({ sql, parameters, begin }: Pick<Statement, 'sql' | 'parameters' | 'begin'>): Promise<string | null> {
      // Whose it is: row-level security keeps some conditions out of an index. Without it the numbers of rows are right.
      const scope = begin.split('; ').filter((part) => /^SET LOCAL sluice\./.test(part));
      if (begin.includes('SET LOCAL ROLE')) scope.push(`SET LOCAL ROLE ${role}`);
      for (const say of scope.length === 0 ? [''] : ['', scope.join('; ')]) {
        await db.query('SAVEPOINT one');
        if (say !== '') await db.query(say);
        const { rows: told } = await db.query({ text: `EXPLAIN (FORMAT JSON) ${sql}`, values: [...parameters] });
        await db.query('ROLLBACK TO SAVEPOINT one');
        const fault = faultIn(told[0]['QUERY PLAN'][0].Plan, indexes, false);
        if (fault !== null) return fault;
      }
      return null;
    },
    close: () => db.end(),
  };
}

/** Not what PostgreSQL is asked about itself at the start. */
const looks = ({ sql }: Statement) => !/^insert|\bpg_(class|roles|index|notify)\b/i.test(sql);

describe('what a statement visits does not grow with the number of tenants, objects or values, on PostgreSQL', () => {
  it('of all that is sent; each exception has its reason, and none is out of date', async () => {
    const found: string[] = [];
    const used = new Set<string>();
    let seen = 0;
    await statementsOf('postgres', async (statements, url) => {
      const planner = await open(url);
      try {
        for (const statement of statements.filter(looks)) {
          seen += 1;
          const fault = await planner.faultOf(statement);
          if (fault === null) continue;
          const shape = shapeOf(statement.sql);
          const excuse = excused(shape);
          if (excuse === null) found.push(`${shape}\n  ${fault}\n  first sent by ${statement.by}`);
          else used.add(excuse);
        }
      } finally {
        await planner.close();
      }
    });
    expect(found.join('\n')).toBe('');
    expect(EXCUSES.map(([, why]) => why).filter((why) => !used.has(why))).toEqual([]);
    expect(seen).toBeGreaterThan(250);
  }, 240_000);

  it('a scan, a walk through an organisation and a sort for a page would be found', async () => {
    const url = await migratedDatabase();
    const planner = await open(url);
    const found = async (sql: string) =>
      (await planner.faultOf({ sql, parameters: [], begin: '' }))?.slice(0, 9) ?? null;
    const org = `"organisation_id" = 'o'`;
    const sort = `select * from "api_keys" where (${org} and "status" <> 'archived') order by "name" asc limit 10`;
    try {
      expect(await found(`select * from "usage_buckets" where "unpriced" = 1`)).toBe('reads all');
      expect(await found(`select * from "configs" where ${org} and "name" = 'x'`)).toBe('reads all');
      expect(await found(sort)).toMatch(/^(reads all|sorts \d+)/);
      expect(await found(sort.replace('"name" asc', '"created_at" desc, "id" asc'))).toBeNull();
    } finally {
      await planner.close();
    }
  });
});
