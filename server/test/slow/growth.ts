/**
 * How the cost of what the store does grows: `npm run bench:growth -- [--bar 1.3] [--rounds 40] [--sizes S,M,L]`.
 *
 * The same reads on SQLite stores of three sizes, the least time of many rounds (other work of the machine only adds). Fails
 * when a row that should be constant costs more than `bar` times what it costs in the smallest store, and 0.3 ms on top.
 * What each statement reads, without any time, is told by `server/test/growth/`.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { parseArgs } from 'node:util';
import { systemTenant } from '../../src/auth/tenant.ts';
import { dueRows } from '../../src/jobs/claim.ts';
import { forget } from '../../src/jobs/retention.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { sweepBooks } from '../../src/limits/ledger/sweep.ts';
import { loadWorkspace } from '../../src/resources/openable.ts';
import {
  apiKeyRow,
  configRow,
  organisationRow,
  secretRow,
  tenantRows,
  workspaceRow,
} from '../../src/store/conformance/rows.ts';
import type { Tables } from '../../src/store/ports.ts';
import { SCHEMA, type TableName } from '../../src/store/schema.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { plainVault } from '../support/admin.ts';
import { usagePolicyRow } from '../support/policies.ts';

const { values } = parseArgs({
  options: {
    bar: { type: 'string', default: '1.3' },
    rounds: { type: 'string', default: '40' },
    sizes: { type: 'string', default: 'S,M,L' },
  },
});
const bar = Number(values.bar);
const rounds = Number(values.rounds);
/** Milliseconds that a row may cost more whatever it costs: the clock of a busy machine is no better. */
const SLACK = 0.3;

interface Size {
  readonly organisations: number;
  /** Of each organisation. */
  readonly workspaces: number;
  readonly keys: number;
  readonly policies: number;
  /** Values of the one policy that is looked at. */
  readonly counters: number;
}

const SIZES: Readonly<Record<string, Size>> = {
  S: { organisations: 1, workspaces: 1, keys: 13, policies: 1, counters: 100 },
  M: { organisations: 1, workspaces: 101, keys: 10_000, policies: 1_000, counters: 50_000 },
  L: { organisations: 10, workspaces: 500, keys: 20_000, policies: 1_000, counters: 500_000 },
};

/** Rows like `row`, numbered by `i` from 1, with the expressions of `own`. */
function fill(table: TableName, row: object, count: number, own: Readonly<Record<string, string>>): string {
  const given = row as Record<string, unknown>;
  const names = Object.keys(SCHEMA[table].columns);
  const expressions = names.map((name) => {
    const value = given[name];
    if (own[name] !== undefined) return own[name];
    if (value === null || value === undefined || typeof value === 'number') return String(value ?? null);
    if (typeof value === 'boolean') return value ? '1' : '0';
    return `'${typeof value === 'string' ? value : JSON.stringify(value)}'`;
  });
  return `INSERT INTO ${table} (${names.join(', ')})
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${count}) SELECT ${expressions.join(', ')} FROM n`;
}

/** The first workspace has the same configs and policies at every size; everything else is around it. */
async function open(size: Size, dir: string): Promise<Tables> {
  const file = join(dir, 'control.db');
  const tables = await openSqliteTables({ file, log: silentLog });
  await tables.migrate();
  const db = new DatabaseSync(file, { timeout: 10_000 });
  db.exec('PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF; BEGIN');
  const { organisations, workspaces, keys, policies, counters } = size;
  const now = Date.now();
  for (let o = 1; o <= organisations; o++) {
    const org = `org-${o}`;
    const of = (count: number) => `'${org}-ws-' || (i % ${count} + 1)`;
    const fills = [
      fill('organisations', organisationRow(org), 1, {}),
      fill('workspaces', workspaceRow(org, ''), workspaces, { id: of(workspaces), slug: of(workspaces) }),
      fill('configs', configRow(org, '', ''), workspaces * 5, {
        id: `'${org}-config-' || i`,
        slug: `'${org}-config-' || i`,
        version_id: `'${org}-version-' || i`,
        workspace_id: of(workspaces),
        created_at: 'i',
      }),
      fill('api_keys', apiKeyRow(org, ''), keys, {
        id: `'${org}-key-' || i`,
        workspace_id: of(workspaces),
        created_at: 'i',
      }),
      fill('api_key_secrets', secretRow(org, '', ''), keys, {
        id: `'${org}-s-' || i`,
        api_key_id: `'${org}-key-' || i`,
      }),
      fill('usage_policies', usagePolicyRow({ organisation_id: org, workspace_id: '' }, '', []), policies, {
        id: `'${org}-policy-' || i`,
        workspace_id: of(workspaces === 1 ? 1 : Math.min(workspaces, policies)),
        created_at: 'i',
      }),
    ];
    for (const sql of fills) db.exec(sql);
  }
  const bucket = tenantRows('org-1', 'org-1-ws-1', 'x').usage_buckets;
  const owner = { owner_kind: "'policy'", owner_id: "'org-1-policy-0'", workspace_id: "'org-1-ws-1'" };
  db.exec(
    fill('usage_buckets', bucket ?? {}, counters, {
      ...owner,
      organisation_id: "'org-1'",
      id: "'b-' || i",
      bucket_key: "'user:' || i",
      value_key: "'user:' || i",
      period: "'monthly'",
      reserved: '0',
      used: '1',
      resets_at: String(now + 20 * 86_400_000),
      last_updated_at: String(now),
      created_at: 'i',
    }),
  );
  db.exec('COMMIT; PRAGMA wal_checkpoint(TRUNCATE)');
  db.close();
  return tables;
}

type Row = readonly [name: string, law: 'constant' | 'linear', run: (tables: Tables) => Promise<unknown>];
const all = systemTenant('org-1');
const WHERE = { status: { not: 'archived' } } as const;
const ROWS: readonly Row[] = [
  ['key of a request', 'constant', (tables) => tables.findKey('org-1-s-7')],
  [
    'compile of one workspace',
    'constant',
    (tables) => tables.read(all, (tx) => loadWorkspace(tx, plainVault, 'org-1-ws-1')),
  ],
  ['sweep of usage limits', 'constant', (tables) => sweepBooks({ tables, clock: systemClock })],
  ['look for due work', 'constant', (tables) => dueRows(tables, 'batches', Date.now(), 10)],
  ['retention', 'constant', (tables) => forget({ tables })],
  [
    'config by its slug',
    'constant',
    (tables) => tables.read(all, (tx) => tx.find('configs', { slug: 'org-1-config-3', ...WHERE })),
  ],
  ['page of keys', 'constant', (tables) => page(tables, 'api_keys', WHERE)],
  ['page of workspaces', 'constant', (tables) => page(tables, 'workspaces', { status: 'active' })],
  ['page of policies', 'constant', (tables) => page(tables, 'usage_policies', WHERE)],
  [
    'page of counters of a policy',
    'constant',
    (tables) =>
      page(tables, 'usage_buckets', { owner_kind: 'policy', owner_id: 'org-1-policy-0', workspace_id: 'org-1-ws-1' }),
  ],
  ['number of keys', 'linear', (tables) => tables.read(all, (tx) => tx.count('api_keys', { where: WHERE }))],
];

function page(tables: Tables, table: 'api_keys' | 'workspaces' | 'usage_policies' | 'usage_buckets', where: object) {
  return tables.read(all, (tx) => tx.list(table, { where, orderBy: [['created_at', 'desc']], limit: 10 }));
}

async function least(run: () => Promise<unknown>): Promise<number> {
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < rounds; i++) {
    const began = performance.now();
    await run();
    best = Math.min(best, performance.now() - began);
  }
  return best;
}

const names = values.sizes.split(',');
const measured = new Map<string, number[]>();
for (const name of names) {
  const size = SIZES[name];
  if (size === undefined) throw new Error(`there is no size ${name}: S, M or L`);
  const dir = mkdtempSync(join(tmpdir(), 'sluice-growth-'));
  const tables = await open(size, dir);
  try {
    for (const [row, , run] of ROWS) measured.set(row, [...(measured.get(row) ?? []), await least(() => run(tables))]);
  } finally {
    await tables.close();
    rmSync(dir, { recursive: true, force: true });
  }
}

let broken = 0;
for (const [row, law] of ROWS) {
  const times = measured.get(row) ?? [];
  const [first = 0] = times;
  const worst = Math.max(...times);
  const holds = law === 'linear' || worst <= first * bar + SLACK;
  if (!holds) broken += 1;
  const shown = names.map((name, i) => `${name} ${(times[i] ?? 0).toFixed(2)}`).join('  ');
  process.stdout.write(
    `${row.padEnd(30)} ${law.padEnd(8)} ms: ${shown}  × ${(worst / first).toFixed(2)}${holds ? '' : '  BROKEN'}\n`,
  );
}
if (broken > 0) {
  process.stderr.write(`${broken} rows cost more in a larger store\n`);
  process.exitCode = 1;
}
