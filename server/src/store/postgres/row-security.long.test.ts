import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { postgresDatabase } from '../../../test/support/postgres.ts';
import { systemClock } from '../../kernel/clock.ts';
import { type Log, silentLog } from '../../kernel/log.ts';
import { aloneConformance, filtersConformance } from '../conformance/filters.ts';
import { apiKeyRow, configRow, organisationRow, secretRow, userRow, workspaceRow } from '../conformance/rows.ts';
import { tablesConformance } from '../conformance/tables.ts';
import { MIGRATIONS } from '../migrations/index.ts';
import { type Tables, unsafeTenant } from '../ports.ts';
import { SCHEMA, SHARED_TABLES, type Table } from '../schema.ts';
import { SqlTables } from '../sql/tables.ts';
import { PostgresEngine } from './engine.ts';
import { CONTROL_RULES } from './row-security.ts';
import { openPostgresTables } from './tables.ts';

const A = unsafeTenant('org-a', null);
const B = unsafeTenant('org-b', null);
const SCHEMAS = SCHEMA as unknown as Record<string, Table>;

/** Runs SQL as the superuser of the test's server. */
async function asSuperuser(url: string, ...statements: string[]): Promise<Record<string, unknown>[]> {
  const client = new pg.Client(url);
  await client.connect();
  let rows: Record<string, unknown>[] = [];
  try {
    for (const statement of statements) rows = (await client.query(statement)).rows;
    return rows;
  } finally {
    await client.end();
  }
}

/** URL of the same database for another account, which is made. Roles are the server's, so its name is the test's own. */
async function account(url: string, attributes: string, owner = true): Promise<string> {
  const at = new URL(url);
  const name = `u${randomBytes(6).toString('hex')}`;
  await asSuperuser(
    url,
    `CREATE ROLE ${name} LOGIN PASSWORD 'secret' ${attributes}`,
    `GRANT ${owner ? 'ALL' : 'USAGE'} ON SCHEMA public TO ${name}`,
  );
  at.username = name;
  at.password = 'secret';
  return at.href;
}

/** Accounts of a database, by what they are. All of them own the tables they make, as one account does by default. */
const ACCOUNTS: Readonly<Record<string, (url: string) => Promise<string>>> = {
  'a superuser': async (url) => url,
  'an account without attributes that owns the tables': (url) => account(url, ''),
  'an account with BYPASSRLS that may create roles': (url) => account(url, 'BYPASSRLS CREATEROLE'),
};

const engineFor = (url: string, log: Log = silentLog) =>
  new PostgresEngine({ url, log, clock: systemClock, poolSize: 4, migrations: MIGRATIONS });

for (const [name, accountOf] of Object.entries(ACCOUNTS)) {
  const open = async () => {
    const engine = engineFor(await accountOf(await postgresDatabase()));
    await engine.migrate();
    return { engine, close: () => engine.close() };
  };
  filtersConformance(`postgres as ${name}`, true, open);
  aloneConformance(`postgres as ${name}`, 'predicate', open);
  aloneConformance(`postgres as ${name}`, 'row-level security', open);
}

tablesConformance('postgres as an account without attributes', async () => {
  const superuser = await postgresDatabase();
  const url = await account(superuser, '');
  const opened: Tables[] = [];
  const another = async () => {
    const tables = await openPostgresTables({ url, log: silentLog });
    opened.push(tables);
    return tables;
  };
  return {
    tables: await another(),
    another,
    execute: async (sql) => {
      await asSuperuser(superuser, 'SET session_replication_role = replica', sql, 'ANALYZE');
    },
    close: async () => {
      for (const tables of opened) await tables.close();
    },
  };
});

describe('policies', () => {
  let superuser: string;
  let url: string;
  beforeAll(async () => {
    superuser = await postgresDatabase();
    url = await account(superuser, '');
    const store = await openPostgresTables({ url, log: silentLog });
    await store.migrate();
    await store.close();
  });

  it('every table has forced row-level security and the policies of SCHEMA', async () => {
    const tables = await asSuperuser(
      superuser,
      `SELECT relname AS name, relrowsecurity AND relforcerowsecurity AS forced FROM pg_class
       WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace AND relname NOT LIKE '%migrations' ORDER BY 1`,
    );
    const names = Object.keys(SCHEMA).sort();
    expect(tables).toEqual(names.map((name) => ({ name, forced: true })));

    const found = await asSuperuser(superuser, 'SELECT * FROM pg_policies ORDER BY tablename, policyname');
    const by = (table: string) => found.filter((policy) => policy.tablename === table);
    for (const name of names) {
      const policies = by(name);
      const commands = policies.map((policy) => [policy.policyname, policy.cmd]);
      for (const policy of policies) {
        expect(policy, name).toMatchObject({ permissive: 'PERMISSIVE', roles: expect.stringContaining('public') });
      }
      expect(commands[0], name).toEqual(['sluice_system', 'ALL']);
      const table = SCHEMAS[name];
      if (table?.tenant !== 'organisation') continue;
      const shared = SHARED_TABLES.has(name) ? [['sluice_tenant_select', 'SELECT']] : [];
      expect(commands.slice(1), name).toEqual([['sluice_tenant_all', 'ALL'], ...shared]);
      const [, all] = policies;
      for (const condition of [all?.qual, all?.with_check]) {
        expect(condition, name).toMatch(/organisation_id = .*sluice\.organisation/);
        if (table.columns.workspace_id) expect(condition, name).toMatch(/workspace_id = .*sluice\.workspace/);
        else expect(condition, name).not.toContain('workspace');
      }
    }
    const outOfReach = names.filter((name) => by(name).length === 1);
    const logs = ['body_chunks', 'log_files', 'log_hours', 'log_nodes', 'log_positions'];
    const others = ['audit_anchors', 'leases', 'ledger_positions', 'meta', 'operator_keys'];
    // Before a user has said who they are, and of which organisation: clients and requests of any, digests of one moment.
    const signIns = ['oauth_clients', 'oauth_devices', 'oauth_requests', 'used_challenges'];
    expect(outOfReach).toEqual([...others, ...logs, ...signIns].sort());
    // A row that names its organisation is behind policies. Seals of the audit log and kept logs are system code's alone.
    const named = outOfReach.filter((name) => SCHEMAS[name]?.columns.organisation_id !== undefined);
    expect(named).toEqual(['audit_anchors', 'body_chunks', 'log_hours']);
  });

  it('a second start changes nothing, and one that finds a difference mends it', async () => {
    const told: string[] = [];
    const log: Log = { ...silentLog, info: (message) => told.push(message) };
    const start = async () => {
      const tables = await openPostgresTables({ url, log });
      await tables.migrate();
      await tables.close();
    };
    await start();
    expect(told).toEqual([]);
    await asSuperuser(
      superuser,
      'DROP POLICY sluice_tenant_all ON configs',
      'ALTER TABLE users NO FORCE ROW LEVEL SECURITY',
      'ALTER TABLE files DISABLE ROW LEVEL SECURITY',
      'CREATE POLICY sluice_old ON batches USING (true)',
    );
    await start();
    expect(told).toEqual(['row-level security applied']);
    const [answer] = await asSuperuser(
      superuser,
      `SELECT (SELECT count(*)::int FROM pg_policies WHERE policyname = 'sluice_old') AS old,
        (SELECT count(*)::int FROM pg_policies WHERE tablename = 'configs') AS configs,
        (SELECT bool_and(relrowsecurity AND relforcerowsecurity) FROM pg_class
          WHERE relname IN ('users', 'files')) AS forced`,
    );
    expect(answer).toEqual({ old: 0, configs: 2, forced: true });
    await start();
    expect(told).toHaveLength(1);
  });

  it('rules cover every table, and no table twice', () => {
    expect(CONTROL_RULES.map(({ table }) => table)).toEqual(Object.keys(SCHEMA));
  });
});

async function twoOrganisations(tables: Tables): Promise<void> {
  await tables.systemWrite(async (tx) => {
    for (const organisation of ['org-a', 'org-b']) {
      await tx.insert('organisations', organisationRow(organisation));
      await tx.insert('workspaces', workspaceRow(organisation, `ws-${organisation}`));
      await tx.insert('configs', configRow(organisation, `ws-${organisation}`, `config-${organisation}`));
      await tx.insert('api_keys', apiKeyRow(organisation, `key-${organisation}`));
      await tx.insert('api_key_secrets', secretRow(organisation, `key-${organisation}`, `secret-${organisation}`));
    }
  });
}

describe.each(Object.entries(ACCOUNTS))('as %s', (name, accountOf) => {
  let url: string;
  let engine: PostgresEngine;
  let tables: Tables;
  beforeAll(async () => {
    url = await accountOf(await postgresDatabase());
    engine = engineFor(url);
    tables = new SqlTables(engine);
    await tables.migrate();
    await twoOrganisations(tables);
  });
  afterAll(() => tables.close());

  it('row-level security is enforced: raw SQL of a tenant sees its rows, and installation-wide tables not at all', async () => {
    expect(tables.rowSecurity).toBe('enforced');
    await engine.write(A, async (execute) => {
      const ids = async (table: string) => (await execute(`SELECT id FROM ${table}`, [])).rows.map((row) => row.id);
      expect(await ids('configs')).toEqual(['config-org-a']);
      expect(await ids('organisations')).toEqual(['org-a']);
      expect((await execute('UPDATE configs SET name = $1', ['mine'])).affected).toBe(1);
    });
    for (const table of ['operator_keys', 'leases', 'meta', 'changes']) {
      const read = engine.read(A, async (execute) => (await execute(`SELECT * FROM ${table}`, [])).rows);
      // Without the right, or without rows.
      expect(await read.catch((error: Error) => error.message)).toSatisfy(
        (answer: unknown) => String(answer).includes('permission denied') || JSON.stringify(answer) === '[]',
      );
    }
    const row =
      'INSERT INTO configs SELECT $1, $2, workspace_id, $1, name, 0, status, owner_id, updated_by, version_id, 1, 1 FROM configs';
    await expect(engine.write(A, (execute) => execute(row, ['x', 'org-b']))).rejects.toThrow(/row-level security/);
    await expect(
      engine.write(A, (execute) => execute("UPDATE configs SET organisation_id = 'org-b'", [])),
    ).rejects.toThrow(/row-level security/);
  });

  it('a change is announced for the own organisation only, and read by system code', async () => {
    const start = await tables.lastChange();
    await tables.write(A, async (tx) => tx.changed({ workspaceId: null, topic: 'configs', entityId: 'x' }));
    expect(await tables.changesAfter(start, 10)).toMatchObject([{ organisationId: 'org-a', entityId: 'x' }]);
    const change = { organisationId: 'org-b', workspaceId: null, topic: 'configs', entityId: 'x' } as const;
    await expect(engine.write(A, (execute) => engine.append(execute, [change]))).rejects.toThrow(/row-level security/);
  });

  it('keys of all organisations are found', async () => {
    expect((await tables.findKey('secret-org-a'))?.organisation.id).toBe('org-a');
    expect((await tables.findKey('secret-org-b'))?.key.id).toBe('key-org-b');
    expect(await tables.findKey('secret-org-c')).toBeUndefined();
  });

  it('an id is never more than an id: quotes end nothing, and the sign for all is refused', async () => {
    for (const id of ["org-a'; SET sluice.organisation = '*", "\\'", 'org"a', '', 'org-a\n']) {
      expect(await tables.read(unsafeTenant(id, null), (tx) => tx.count('configs'))).toBe(0);
      expect(await tables.read(unsafeTenant('org-a', id), (tx) => tx.count('configs'))).toBe(0);
    }
    for (const id of ['*', 'org\0a']) {
      for (const tenant of [unsafeTenant(id, null), unsafeTenant('org-a', id)]) {
        await expect(tables.read(tenant, (tx) => tx.count('configs'))).rejects.toMatchObject({ kind: 'internal' });
      }
    }
  });

  it('what a transaction said ends with it: over one connection, as a pooler in transaction mode gives it out', async () => {
    const one = new PostgresEngine({ url, log: silentLog, clock: systemClock, poolSize: 1, migrations: MIGRATIONS });
    const rows = async () => (await one.pool.query('SELECT id FROM configs')).rows.length;
    const state = async () => {
      const { rows: found } = await one.pool.query(
        `SELECT nullif(current_setting('sluice.organisation', true), '') AS o,
          nullif(current_setting('sluice.workspace', true), '') AS w,
          session_user = current_user AS self`,
      );
      return found[0];
    };
    const outside = await rows();
    expect(outside).toBe(name.includes('without') ? 0 : 2);
    for (const turn of [
      () => one.read(A, (execute) => execute('SELECT 1', [])),
      () => one.write(B, (execute) => execute('UPDATE configs SET name = $1', ['b'])),
      () => one.write(A, () => Promise.reject(new Error('given up'))).catch(() => undefined),
      () => one.write(A, (execute) => execute('SELECT no_column', [])).catch(() => undefined),
      () => one.read(null, (execute) => execute('SELECT 1', [])),
      () => one.query('configs_alone', 'SELECT id FROM configs', []),
    ]) {
      await turn();
      expect(await state()).toEqual({ o: null, w: null, self: true });
      expect(await rows()).toBe(outside);
    }
    await one.close();
  });
});

describe('accounts', () => {
  it('nothing said, nothing seen: a plain owner that forgets to say whose it is has no rows, and writes none', async () => {
    const url = await account(await postgresDatabase(), '');
    const tables = await openPostgresTables({ url, log: silentLog });
    await tables.migrate();
    await twoOrganisations(tables);
    const client = new pg.Client(url);
    await client.connect();
    for (const table of Object.keys(SCHEMA)) {
      expect((await client.query(`SELECT * FROM ${table}`)).rows, table).toEqual([]);
      expect((await client.query(`DELETE FROM ${table}`)).rowCount, table).toBe(0);
    }
    // The workspace was not said.
    await client.query("BEGIN; SET LOCAL sluice.organisation = 'org-a'");
    expect((await client.query('SELECT * FROM configs')).rows).toEqual([]);
    await client.query('ROLLBACK');
    await expect(client.query(`INSERT INTO operator_keys VALUES ('x', 'x', 1)`)).rejects.toThrow(/row-level security/);
    // What pg_dump says of itself: better no dump than half of one.
    await client.query('SET row_security = off');
    await expect(client.query('SELECT * FROM configs')).rejects.toThrow(/row-level security/);
    await client.end();
    // And with the setting that docs/guides/operations.md names for it.
    const dump = new pg.Client({ connectionString: url, options: '-c sluice.organisation=*' });
    await dump.connect();
    expect((await dump.query('SELECT * FROM configs')).rows).toHaveLength(2);
    await dump.end();
    expect(await tables.systemRead((tx) => tx.count('configs'))).toBe(2);
    await tables.close();
  });

  it('an account that owns nothing works with granted rights, and starts when there is nothing to migrate', async () => {
    const superuser = await postgresDatabase();
    const owner = await account(superuser, '');
    const made = await openPostgresTables({ url: owner, log: silentLog });
    await made.migrate();
    const app = await account(superuser, '', false);
    const role = new URL(app).username;
    await asSuperuser(
      superuser,
      `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ${role}`,
      `GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO ${role}`,
    );
    const tables = await openPostgresTables({ url: app, log: silentLog });
    await tables.migrate();
    expect(tables.rowSecurity).toBe('enforced');
    await twoOrganisations(tables);
    await tables.write(A, async (tx) => {
      await tx.insert('users', userRow('org-a', 'user-a'));
      await tx.updateOrganisation({ name: 'renamed' });
      tx.changed({ workspaceId: null, topic: 'users', entityId: 'user-a' });
    });
    expect(await tables.read(B, (tx) => tx.count('users'))).toBe(0);
    const raw = await new PostgresEngine({
      url: app,
      log: silentLog,
      clock: systemClock,
      poolSize: 1,
      migrations: MIGRATIONS,
    });
    expect(await raw.read(B, async (execute) => (await execute('SELECT id FROM configs', [])).rows)).toEqual([
      { id: 'config-org-b' },
    ]);
    await raw.close();

    await asSuperuser(superuser, 'DROP POLICY sluice_system ON configs');
    const late = await openPostgresTables({ url: app, log: silentLog });
    await expect(late.migrate()).rejects.toThrow(
      `belong to the PostgreSQL account "${new URL(owner).username}", and "${role}" does not own them`,
    );
    await made.migrate();
    await late.migrate();
    for (const each of [late, tables, made]) await each.close();
  });

  it('an account above row-level security that may not create a role is told of, once per store, and guarded still', async () => {
    const superuser = await postgresDatabase();
    const url = await account(superuser, 'BYPASSRLS');
    const told: string[] = [];
    const log: Log = { ...silentLog, warn: (message) => told.push(message) };
    const engine = engineFor(url, log);
    const tables = new SqlTables(engine);
    await tables.migrate();
    expect(tables.rowSecurity).toBe('bypassed');
    expect(told).toEqual([expect.stringContaining('BYPASSRLS')]);
    await twoOrganisations(tables);
    expect(await tables.read(A, (tx) => tx.count('configs'))).toBe(1);

    // The right is given later: the next start makes the role.
    await asSuperuser(superuser, `ALTER ROLE ${new URL(url).username} CREATEROLE`);
    await tables.migrate();
    expect(tables.rowSecurity).toBe('enforced');
    expect(told).toHaveLength(1);
    expect(await engine.read(A, async (execute) => (await execute('SELECT id FROM configs', [])).rows)).toHaveLength(1);
    await tables.close();
  });

  it('the role of tenants cannot log in and has no right on what no tenant reaches', async () => {
    const url = await postgresDatabase();
    const store = await openPostgresTables({ url, log: silentLog });
    await store.migrate();
    await store.close();
    const [role] = await asSuperuser(
      url,
      `SELECT rolname, rolcanlogin, rolsuper, rolbypassrls, rolcreaterole FROM pg_roles
       WHERE rolname = 'sluice_tenant_' || (SELECT oid FROM pg_database WHERE datname = current_database())`,
    );
    const name = String(role?.rolname);
    expect(role).toMatchObject({ rolcanlogin: false, rolsuper: false, rolbypassrls: false, rolcreaterole: false });
    const granted = await asSuperuser(
      url,
      `SELECT table_name AS name, string_agg(privilege_type, ',' ORDER BY privilege_type) AS may
       FROM information_schema.role_table_grants WHERE grantee = '${name}' GROUP BY 1`,
    );
    const may = Object.fromEntries(granted.map((row) => [row.name, row.may]));
    const tenant = Object.keys(SCHEMA).filter((table) => SCHEMAS[table]?.tenant === 'organisation');
    const all = 'DELETE,INSERT,SELECT,UPDATE';
    expect(may).toEqual({
      ...Object.fromEntries(tenant.map((table) => [table, all])),
      organisations: 'SELECT',
      changes: 'INSERT',
    });
    const columns = await asSuperuser(
      url,
      `SELECT column_name AS name FROM information_schema.column_privileges
       WHERE grantee = '${name}' AND table_name = 'organisations' AND privilege_type = 'UPDATE' ORDER BY 1`,
    );
    expect(columns.map((row) => row.name)).toEqual(['last_updated_at', 'name', 'settings']);
  });
});
