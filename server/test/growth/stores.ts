/** Stores of three sizes, on either engine, filled around an organisation that the administration API made. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import { silentLog } from '../../src/kernel/log.ts';
import {
  apiKeyRow,
  configRow,
  organisationRow,
  secretRow,
  tenantRows,
  userRow,
  workspaceRow,
} from '../../src/store/conformance/rows.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import { SCHEMA, type TableName } from '../../src/store/schema.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { type AdminHarness, startAdmin } from '../support/admin.ts';
import { usagePolicyRow } from '../support/policies.ts';

export interface Size {
  readonly organisations: number;
  /** Of each organisation. */
  readonly workspaces: number;
  readonly keys: number;
  readonly policies: number;
  /** Of the one organisation that is looked at. */
  readonly users: number;
  /** Values of one policy; request logs; audit rows; files; lines of one batch; changes of the feed; alerts: as many each. */
  readonly things: number;
  /** Policies of one workspace, for the index that requests are matched with. */
  readonly indexed: number;
}

/** The smallest has a little more than one page of everything, those of sweeps too, so that pages of all sizes are full. */
export const SIZES = {
  S: { organisations: 1, workspaces: 13, keys: 13, policies: 13, users: 13, things: 600, indexed: 10 },
  M: { organisations: 1, workspaces: 101, keys: 10_000, policies: 1_000, users: 1_000, things: 10_000, indexed: 1_000 },
  L: {
    organisations: 10,
    workspaces: 500,
    keys: 20_000,
    policies: 1_000,
    users: 20_000,
    things: 100_000,
    indexed: 10_000,
  },
} as const satisfies Readonly<Record<string, Size>>;

export type SizeName = keyof typeof SIZES;

/** What the looked-at workspace has of each kind at every size; everything else is around it. */
const OWN = 12;
/** Of the oldest request log and audit row; each later one is a millisecond younger. */
const BEGIN = 1_700_000_000_000;

export interface Store {
  readonly engine: 'sqlite' | 'postgres';
  readonly size: Size;
  readonly admin: AdminHarness;
  /** Of the policy that has very many values. */
  readonly policyId: string;
  readonly batchId: string;
  /** A public id of a key. */
  readonly secretId: string;
  readonly configSlug: string;
  /** Contents of the database file, on SQLite. */
  readonly file: () => Buffer;
  /** Of the database, on PostgreSQL. */
  readonly url: string;
  close(): Promise<void>;
}

const quoted = (value: unknown): string =>
  `'${(typeof value === 'string' ? value : JSON.stringify(value)).replaceAll("'", "''")}'`;

/** Rows like `row`, numbered by `i` from 1, with the expressions of `own`. */
function fill(table: string, row: object, count: number, own: Readonly<Record<string, string>>): string {
  const given = row as Record<string, unknown>;
  const names = table in SCHEMA ? Object.keys(SCHEMA[table as TableName].columns) : Object.keys(given);
  const used = table === 'changes' ? names.filter((name) => name !== 'seq') : names;
  const expressions = used.map((name) => {
    const value = given[name];
    if (own[name] !== undefined) return own[name];
    if (value === null || value === undefined || typeof value === 'number') return String(value ?? null);
    return typeof value === 'boolean' ? String(Number(value)) : quoted(value);
  });
  return `INSERT INTO ${table} (${used.map((name) => `"${name}"`).join(', ')})
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${count}) SELECT ${expressions.join(', ')} FROM n`;
}

const uuid = (of: number, i: string) => `'0000000${of}-0000-4000-8000-1' || (10000000000 + ${i})`;

/** The statements that make a store large. `first` is the organisation that is looked at, with its workspace. */
function fillsOf(
  size: Size,
  first: { readonly organisation_id: string; readonly workspace_id: string },
): readonly string[] {
  const { organisations, workspaces, keys, policies, users, things } = size;
  const control: string[] = [];
  for (let o = 1; o <= organisations; o++) {
    const org = o === 1 ? first.organisation_id : `00000000-0000-4000-8000-00000000000${o % 10}`;
    const id = uuid(o % 10, 'i');
    const spread = uuid(o % 10, `(i % ${workspaces} + 1)`);
    const workspace_id = o === 1 ? `CASE WHEN i <= ${OWN} THEN '${first.workspace_id}' ELSE ${spread} END` : spread;
    const stamps = { created_at: 'i', last_updated_at: 'i' };
    if (o > 1) control.push(fill('organisations', organisationRow(org), 1, {}));
    control.push(
      fill('workspaces', workspaceRow(org, ''), workspaces, { id, slug: `'${o}-workspace-' || i`, ...stamps }),
      fill('configs', configRow(org, '', ''), workspaces * 5, {
        ...stamps,
        id,
        slug: `'${o}-config-' || i`,
        version_id: id,
        workspace_id,
      }),
      fill('config_versions', tenantRows(org, '').config_versions, workspaces * 5, {
        id,
        config_id: id,
        created_at: 'i',
      }),
      fill('api_keys', apiKeyRow(org, ''), keys, { ...stamps, id }),
      fill('api_key_secrets', secretRow(org, '', ''), keys, { id: `'S${o}-' || i`, api_key_id: id }),
      fill('usage_policies', usagePolicyRow({ organisation_id: org, workspace_id: '' }, '', []), policies, {
        ...stamps,
        id,
        workspace_id,
      }),
      // A request of one of them is enough for an account of its files.
      fill('file_totals', { organisation_id: org, bytes: 1 }, workspaces, { workspace_id: spread }),
    );
  }
  const { organisation_id: org, workspace_id: ws } = first;
  const rows = tenantRows(org, ws, 'x');
  const now = Date.now();
  const id = uuid(1, 'i');
  const stamps = { created_at: 'i', last_updated_at: String(now) };
  const policy = `'${idOf(1)}'`;
  control.push(
    fill('users', userRow(org, ''), users, { id, email: "'u' || i || '@example.com'", created_at: 'i' }),
    fill('usage_buckets', rows.usage_buckets, things, {
      ...stamps,
      id,
      owner_kind: "'policy'",
      owner_id: policy,
      bucket_key: "'user:' || i",
      value_key: "'user:' || i",
      period: "'monthly'",
      reserved: '0',
      used: '1',
      resets_at: String(now + 20 * 86_400_000),
    }),
    fill('audit_log', rows.audit_log, things, { id, timestamp: `${BEGIN} + i`, seq: 'NULL' }),
    fill('files', rows.files, things, { id: "'gw_file_' || i", created_at: 'i' }),
    fill('batch_results', { ...rows.batch_results, batch_id: rows.batches.id }, things, { line: 'i' }),
    fill('changes', { organisation_id: org, workspace_id: ws, topic: 'configs', entity_id: 'x', at: now }, things, {}),
    fill('alert_deliveries', rows.alert_deliveries, things, {
      id,
      owner_id: policy,
      bucket_id: id,
      next_at: 'NULL',
      delivered_at: 'i',
      created_at: String(now),
    }),
    fill('idempotency_keys', rows.idempotency_keys, things, {
      key: "'key-' || i",
      expires_at: String(now + 86_400_000),
    }),
    fill('object_owners', rows.object_owners, things, { object_id: "'object-' || i" }),
    fill('console_sessions', rows.console_sessions, things, {
      digest: "'digest-' || i",
      expires_at: String(now + 86_400_000),
    }),
  );
  return control;
}

/** The id that `fill` gave to the row of this number in the organisation that is looked at. */
export function idOf(number: number): string {
  return `00000001-0000-4000-8000-1${10_000_000_000 + number}`;
}

export async function openSqlite(size: Size, dir: string): Promise<Store> {
  const path = join(dir, 'control.db');
  const tables = await openSqliteTables({ file: path, log: silentLog });
  await tables.migrate();
  const admin = await startAdmin(tables);
  const db = new DatabaseSync(path, { timeout: 10_000 });
  db.exec('PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF; BEGIN');
  for (const sql of fillsOf(size, admin.a)) db.exec(sql);
  db.exec('COMMIT; PRAGMA wal_checkpoint(TRUNCATE)');
  db.close();
  return { ...known(size, admin), engine: 'sqlite', file: () => readFileSync(path), url: '' };
}

export async function openPostgres(size: Size, url: string): Promise<Store> {
  const tables = await openPostgresTables({ url, log: silentLog });
  await tables.migrate();
  const admin = await startAdmin(tables);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query('SET session_replication_role = replica; SET synchronous_commit = off');
  for (const sql of fillsOf(size, admin.a)) await client.query(sql);
  // As autovacuum does: without it an index says nothing of which rows are visible.
  await client.query('VACUUM ANALYZE');
  await client.end();
  return { ...known(size, admin), engine: 'postgres', file: () => Buffer.alloc(0), url };
}

function known(size: Size, admin: AdminHarness) {
  return {
    size,
    admin,
    policyId: idOf(1),
    batchId: tenantRows(admin.a.organisation_id, admin.a.workspace_id, 'x').batches.id,
    secretId: 'S1-7',
    configSlug: '1-config-3',
    close: () => admin.close(),
  };
}
