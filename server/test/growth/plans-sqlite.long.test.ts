/** What SQLite visits for each statement of the product. It has no statistics, so that an empty database tells all. */
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import { MIGRATIONS } from '../../src/store/migrations/index.ts';
import { TYPES } from '../../src/store/migrations/migration.ts';
import { EXCUSES, excused, SMALL, shapeOf, WAITING } from './excuses.ts';
import { type Statement, statementsOf } from './statements.ts';

function database(): DatabaseSync {
  const db = new DatabaseSync(':memory:');
  for (const migration of MIGRATIONS) {
    for (const statement of migration.statements(TYPES.sqlite)) db.exec(statement);
  }
  return db;
}

/** With long lists of values: for those SQLite takes other ways than for the short ones of a test. */
function crowded(sql: string): string {
  return sql.replace(/ in \((\?(, )?)+\)/g, ` in (${Array(100).fill('?').join(', ')})`);
}

/** What is wrong with how a statement is carried out; null for nothing. */
function faultOf(db: DatabaseSync, sql: string): string | null {
  const steps = db
    .prepare(`EXPLAIN QUERY PLAN ${crowded(sql)}`)
    .all()
    .map(({ detail }) => String(detail));
  const paged = / order by "/.test(sql) && / limit /.test(sql);
  const [, from = ''] = / from "(\w+)"/.exec(sql) ?? [];
  const sorted = steps.includes('USE TEMP B-TREE FOR ORDER BY') && !SMALL.has(from);
  for (const step of steps) {
    const [, table = ''] = /^SCAN (\w+)/.exec(step) ?? [];
    // The newest row or two of an index, from its end.
    const end = paged && !sorted && !/ where (?!1 = 1 order)/.test(sql);
    const [, index = ''] = / INDEX (\w+)/.exec(step) ?? [];
    if (WAITING.has(index)) continue;
    if (table !== '' && table !== 'CONSTANT' && !SMALL.has(table) && !end) return `reads all of ${table}: ${step}`;
    const [, of = ''] = /^SEARCH (\w+) .*\(organisation_id=\?\)$/.exec(step) ?? [];
    if (of !== '' && !SMALL.has(of) && !(paged && !sorted)) return `reads all of an organisation: ${step}`;
  }
  return paged && sorted ? `sorts all for one page: ${steps.join('; ')}` : null;
}

const reads = ({ sql }: Statement) => !/^insert/i.test(sql);

describe('what a statement visits does not grow with the number of tenants, objects or values, on SQLite', () => {
  it('of all that is sent; each exception has its reason, and none is out of date', async () => {
    const db = database();
    const found: string[] = [];
    const used = new Set<string>();
    let seen = 0;
    await statementsOf('sqlite', async (statements) => {
      for (const { sql, by } of statements.filter(reads)) {
        seen += 1;
        const fault = faultOf(db, sql);
        if (fault === null) continue;
        const excuse = excused(shapeOf(sql));
        if (excuse === null) found.push(`${shapeOf(sql)}\n  ${fault}\n  first sent by ${by}`);
        else used.add(excuse);
      }
    });
    expect(found.join('\n')).toBe('');
    expect(EXCUSES.map(([, why]) => why).filter((why) => !used.has(why))).toEqual([]);
    expect(seen).toBeGreaterThan(250);
  }, 120_000);

  it('a scan, a walk through an organisation and a sort for a page would be found', () => {
    const db = database();
    const all = `select * from "usage_buckets" where "unpriced" = ?`;
    const tenant = `select * from "configs" where "organisation_id" = ? and "name" = ?`;
    const sort = `select * from "api_keys" where ("organisation_id" = ? and "status" <> 'archived') order by "name" asc limit ?`;
    const page = sort.replace('"name" asc', '"created_at" desc, "id" asc');
    expect([all, tenant, sort].map((sql) => faultOf(db, sql)?.slice(0, 9))).toEqual([
      'reads all',
      'reads all',
      'reads all',
    ]);
    expect(faultOf(db, page)).toBeNull();
  });
});
