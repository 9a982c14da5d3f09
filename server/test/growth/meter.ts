/**
 * What statements cost, counted and not timed, so that a loaded machine says the same as an idle one: on SQLite the steps of
 * its virtual machine, on PostgreSQL the rows that a plan visits. How deep an index is shows in neither.
 */
import sqlite from '@sqlite.org/sqlite-wasm';
import pg from 'pg';
import type { Sent } from './hear.ts';
import type { Store } from './stores.ts';

export interface Meter {
  /** What the statement costs in the store as it was when the meter was opened. Nothing of it stays. */
  cost(sent: Sent): Promise<number>;
  close(): Promise<void>;
}

/** Statements that make a row: they cost what the number of rows says. */
const ADDS = /^insert/i;

/** A copy of the store's file inside SQLite's own WebAssembly build, which tells the steps of a statement. */
export async function openSqliteMeter(store: Store): Promise<Meter> {
  const { capi, wasm, oo1, version } = await sqlite();
  if (version.libVersion !== process.versions.sqlite) {
    process.stderr.write(`counted by SQLite ${version.libVersion}; Node.js has ${process.versions.sqlite}\n`);
  }
  const open = (file: Buffer) => {
    // Not in write-ahead mode, which needs a file.
    file.fill(1, 18, 20);
    const made = new oo1.DB(':memory:');
    const at = wasm.alloc(file.length);
    wasm.heap8u().set(file, Number(at));
    const flags = capi.SQLITE_DESERIALIZE_FREEONCLOSE | capi.SQLITE_DESERIALIZE_RESIZEABLE;
    made.checkRc(capi.sqlite3_deserialize(made.pointer ?? 0, 'main', at, file.length, file.length, flags));
    return made;
  };
  const db = open(store.file());
  return {
    cost: async ({ sql, parameters }) => {
      if (ADDS.test(sql)) return 1;
      db.exec('BEGIN');
      const statement = db.prepare(sql);
      try {
        if (parameters.length > 0) statement.bind(parameters as (string | number | null)[]);
        while (statement.step());
        return capi.sqlite3_stmt_status(statement.pointer ?? 0, capi.SQLITE_STMTSTATUS_VM_STEP, 0);
      } finally {
        statement.finalize();
        db.exec('ROLLBACK');
      }
    },
    close: async () => {
      db.close();
    },
  };
}

interface Plan {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number;
  readonly 'Rows Removed by Index Recheck'?: number;
  readonly Plans?: readonly Plan[];
}

/** Rows that the scans of a plan visit, and one for each look-up. */
function visits(plan: Plan): number {
  const { 'Node Type': type, 'Relation Name': table, 'Actual Loops': loops } = plan;
  const rows =
    plan['Actual Rows'] + (plan['Rows Removed by Filter'] ?? 0) + (plan['Rows Removed by Index Recheck'] ?? 0);
  const own = table === undefined || type === 'ModifyTable' ? 0 : loops * (1 + rows);
  return (plan.Plans ?? []).reduce((sum, child) => sum + visits(child), own);
}

/** `small`: a table of a few pages PostgreSQL would read whole, which says nothing of how the cost grows. */
export async function openPostgresMeter(store: Store, small: boolean): Promise<Meter> {
  const db = new pg.Client({ connectionString: store.url });
  await db.connect();
  return {
    cost: async ({ sql, parameters, begin }) => {
      if (ADDS.test(sql)) return 1;
      // Whose it is: row-level security is a part of the plan.
      await db.query(begin === '' ? 'BEGIN' : begin);
      try {
        if (small) await db.query('SET LOCAL enable_seqscan = off');
        const { rows } = await db.query({
          text: `EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ${sql}`,
          values: [...parameters],
        });
        return Math.round(visits(rows[0]['QUERY PLAN'][0].Plan));
      } finally {
        await db.query('ROLLBACK');
      }
    },
    close: () => db.end(),
  };
}
