import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { postgresDatabase } from '../../../test/support/postgres.ts';
import { systemClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import { apiKeyRow, organisationRow, workspaceRow } from '../conformance/rows.ts';
import { PostgresEngine } from '../postgres/engine.ts';
import { openPostgresTables } from '../postgres/tables.ts';
import { type Column, SCHEMA, type Table } from '../schema.ts';
import type { Engine, Execute } from '../sql/engine.ts';
import { SqliteEngine } from '../sqlite/engine.ts';
import { openSqliteTables } from '../sqlite/tables.ts';
import { dueRotations } from './0005-due-rotations.ts';
import { owners } from './0009-owners.ts';
import { MIGRATIONS } from './index.ts';
import { type Migration, TYPES } from './migration.ts';
import { checksumOf } from './run.ts';

const dir = mkdtempSync(join(tmpdir(), 'sluice-migrations-'));
afterAll(() => rmSync(dir, { recursive: true }));
let files = 0;
const file = () => join(dir, `${++files}.db`);

interface Described {
  readonly type: string;
  readonly nullable: boolean;
  readonly key: boolean;
}

/** What SCHEMA says of every column, in the type names of an engine. */
function promised(engine: 'sqlite' | 'postgres'): Record<string, Record<string, Described>> {
  const names =
    engine === 'sqlite'
      ? { text: 'TEXT', int: 'INTEGER', bool: 'INTEGER' }
      : { text: 'text', int: 'bigint', bool: 'smallint' };
  const stored: Record<Column<unknown>['kind'], string> = {
    text: names.text,
    json: names.text,
    sealed: names.text,
    int: names.int,
    time: names.int,
    bool: names.bool,
  };
  return Object.fromEntries(
    Object.entries(SCHEMA as unknown as Record<string, Table>).map(([table, { columns, key }]) => [
      table,
      Object.fromEntries(
        Object.entries(columns).map(([name, { kind, nullable }]) => [
          name,
          { type: stored[kind], nullable, key: key.includes(name) },
        ]),
      ),
    ]),
  );
}

function sqliteTables(path: string): Record<string, Record<string, Described>> {
  const db = new DatabaseSync(path, { readOnly: true });
  const tables = db
    .prepare(
      "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'schema_migrations'",
    )
    .all() as { name: string }[];
  const found = Object.fromEntries(
    tables.map(({ name }) => {
      const columns = db.prepare(`PRAGMA table_info(${name})`).all() as Record<string, unknown>[];
      const describe = (column: Record<string, unknown>): Described => ({
        type: String(column.type),
        // SQLite reports an INTEGER PRIMARY KEY, which is never null, as nullable.
        nullable: column.notnull === 0 && column.pk === 0,
        key: Number(column.pk) > 0,
      });
      return [name, Object.fromEntries(columns.map((column) => [column.name, describe(column)]))];
    }),
  );
  db.close();
  return found;
}

async function postgresTables(url: string): Promise<Record<string, Record<string, Described>>> {
  const client = new pg.Client(url);
  await client.connect();
  const { rows } = await client.query(`
    SELECT c.table_name, c.column_name, c.data_type, c.is_nullable, c.collation_name,
      EXISTS (SELECT 1 FROM information_schema.table_constraints t
        JOIN information_schema.key_column_usage k USING (constraint_schema, constraint_name)
        WHERE t.constraint_type = 'PRIMARY KEY' AND t.table_name = c.table_name AND k.column_name = c.column_name) AS key
    FROM information_schema.columns c
    WHERE c.table_schema = 'public' AND c.table_name <> 'schema_migrations'`);
  await client.end();
  const found: Record<string, Record<string, Described>> = {};
  for (const row of rows) {
    expect(row.collation_name, `${row.table_name}.${row.column_name}`).toBe(row.data_type === 'text' ? 'C' : null);
    found[row.table_name] ??= {};
    const table = found[row.table_name] as Record<string, Described>;
    table[row.column_name] = { type: row.data_type, nullable: row.is_nullable === 'YES', key: row.key };
  }
  return found;
}

describe('the migrated tables are those of SCHEMA', () => {
  it('on SQLite', async () => {
    const path = file();
    const tables = await openSqliteTables({ file: path, log: silentLog });
    await tables.migrate();
    await tables.close();
    expect(sqliteTables(path)).toEqual(promised('sqlite'));
  });

  it('on PostgreSQL', async () => {
    const url = await postgresDatabase();
    const tables = await openPostgresTables({ url, log: silentLog });
    await tables.migrate();
    await tables.close();
    expect(await postgresTables(url)).toEqual(promised('postgres'));
  });

  it('and every reference between tenant tables carries the organisation', () => {
    for (const statement of MIGRATIONS.flatMap((migration) => migration.statements(TYPES.sqlite))) {
      for (const [, columns, parent] of statement.matchAll(/FOREIGN KEY \(([^)]*)\) REFERENCES (\w+)/g)) {
        if (parent === 'organisations') expect(columns).toBe('organisation_id');
        else expect(columns).toMatch(/^organisation_id, /);
      }
    }
  });
});

describe('a released migration never changes', () => {
  it('the names of the migrations are in order and unlike', () => {
    const names = MIGRATIONS.map((migration) => migration.name);
    expect(names).toEqual([...new Set(names)].sort());
    expect(new Set(names.map((name) => name.slice(0, 4))).size).toBe(names.length);
    for (const name of names) expect(name).toMatch(/^\d{4}-[a-z0-9-]+$/);
  });
});

/** Names that follow the migrations of this version, however many there are. */
const last = Number(MIGRATIONS.at(-1)?.name.slice(0, 4));
const after = (n: number, title: string) => `${String(last + n).padStart(4, '0')}-${title}`;
const extra: Migration = { name: after(1, 'more'), statements: ({ int }) => [`CREATE TABLE more (n ${int})`] };
const broken: Migration = {
  name: after(2, 'broken'),
  statements: ({ int }) => [`CREATE TABLE half (n ${int})`, 'CREATE TABLE half (again)'],
};

describe.each(['sqlite', 'postgres'] as const)('migrations on %s', (name) => {
  let open: (migrations: readonly Migration[]) => Promise<Engine>;
  const engines: Engine[] = [];
  beforeAll(async () => {
    const at = name === 'sqlite' ? file() : await postgresDatabase();
    open = async (migrations) => {
      const shared = { log: silentLog, clock: systemClock, migrations };
      const engine =
        name === 'sqlite'
          ? await SqliteEngine.open({ ...shared, file: at })
          : new PostgresEngine({ ...shared, url: at, poolSize: 2 });
      engines.push(engine);
      return engine;
    };
  });
  afterAll(async () => {
    for (const engine of engines) await engine.close();
  });
  const noted = (engine: Engine) =>
    engine.query('noted', 'SELECT name, checksum FROM schema_migrations ORDER BY name', []);

  it('run in order, once each, in one of several processes that start together', async () => {
    const all = await Promise.all([open([...MIGRATIONS, extra]), open([...MIGRATIONS, extra]), open(MIGRATIONS)]);
    await (all[2] as Engine).migrate();
    await Promise.all([all[0], all[1]].map((engine) => (engine as Engine).migrate()));
    expect((await noted(all[0] as Engine)).map((row) => row.name)).toEqual(
      [...MIGRATIONS, extra].map((migration) => migration.name),
    );
  });

  it('that fail leave nothing behind and say which one in one line', async () => {
    const engine = await open([...MIGRATIONS, extra, broken]);
    const error = await engine.migrate().catch((thrown: Error) => thrown);
    expect(error).toMatchObject({ name: 'SluiceError' });
    expect((error as Error).message).toMatch(/^Migration \d{4}-broken failed and was rolled back: [^\n]+$/);
    expect(await noted(engine)).toHaveLength(MIGRATIONS.length + 1);
    await expect(engine.query('half', 'SELECT * FROM half', [])).rejects.toThrow(/half/);
  });

  it('refuse a database of a newer version, in one line that says what to do', async () => {
    const error = await (await open(MIGRATIONS)).migrate().catch((thrown: Error) => thrown);
    expect((error as Error).message).toMatch(/^[^\n]*\d{4}-more[^\n]*newer version[^\n]*$/);
  });

  it('refuse a migration that was edited after it ran', async () => {
    const edited: Migration = { ...extra, statements: () => ['CREATE TABLE more (n TEXT)'] };
    expect(checksumOf(edited, name)).not.toBe(checksumOf(extra, name));
    const error = await (await open([...MIGRATIONS, edited])).migrate().catch((thrown: Error) => thrown);
    expect((error as Error).message).toMatch(/^Migration \d{4}-more is not the one [^\n]+$/);
  });
});

describe.each(['sqlite', 'postgres'] as const)(
  'rotation policies from before rotations were carried out, on %s',
  (name) => {
    it('become due on their day, and in a week when that has passed or is near; keys without one never', async () => {
      const shared = { log: silentLog, clock: systemClock, migrations: MIGRATIONS };
      const engine: Engine =
        name === 'sqlite'
          ? await SqliteEngine.open({ ...shared, file: file() })
          : new PostgresEngine({ ...shared, url: await postgresDatabase(), poolSize: 2 });
      await engine.migrate();
      const week = 7 * 86_400_000;
      const from = systemClock.now();
      const far = from - (from % 86_400_000) + 2 * week;
      const policy = (time: number) => ({
        rotation_period: 'weekly' as const,
        rotation_period_days: null,
        next_rotation_at: new Date(time).toISOString(),
        key_transition_period_ms: 3_600_000,
        status: 'ACTIVE' as const,
      });
      const own = { user_id: null, created_by: null, rotation_due_at: null };
      const keys = [
        apiKeyRow('o', 'far', { ...own, rotation_policy: policy(far) }),
        apiKeyRow('o', 'past', { ...own, rotation_policy: policy(from - week) }),
        apiKeyRow('o', 'revoked', { ...own, rotation_policy: policy(far), status: 'archived' }),
        apiKeyRow('o', 'without', own),
      ].map((row) => ({ ...row, workspace_id: null, type: 'organisation-service' }));

      await engine.write(null, async (execute) => {
        for (const [table, row] of [['organisations', organisationRow('o')], ...keys.map((key) => ['api_keys', key])]) {
          const values = Object.entries(row as object).map(([, value]) =>
            typeof value === 'object' && value !== null
              ? JSON.stringify(value)
              : typeof value === 'boolean'
                ? +value
                : value,
          );
          const places = values.map((_, i) => (name === 'sqlite' ? '?' : `$${i + 1}`)).join();
          await execute(`INSERT INTO ${table} (${Object.keys(row as object).join()}) VALUES (${places})`, values);
        }
        for (const statement of dueRotations.statements(TYPES[name])) await execute(statement, []);
      });
      const rows = await engine.query('due', 'SELECT id, rotation_due_at FROM api_keys ORDER BY id', []);
      await engine.close();
      const due = new Map(
        rows.map((row) => [row.id, row.rotation_due_at === null ? null : Number(row.rotation_due_at)]),
      );
      expect([due.get('far'), due.get('revoked'), due.get('without')]).toEqual([far, null, null]);
      expect(Math.abs((due.get('past') ?? 0) - from - week)).toBeLessThan(60_000);
    });
  },
);

describe.each(['sqlite', 'postgres'] as const)('owners of objects from before more kinds had one, on %s', (name) => {
  it('keep what they own', async () => {
    const before = MIGRATIONS.slice(0, MIGRATIONS.indexOf(owners));
    const place = name === 'sqlite' ? file() : await postgresDatabase();
    const open = async (migrations: readonly Migration[]): Promise<Engine> => {
      const shared = { log: silentLog, clock: systemClock, migrations };
      return name === 'sqlite'
        ? SqliteEngine.open({ ...shared, file: place })
        : new PostgresEngine({ ...shared, url: place, poolSize: 2 });
    };
    const old = await open(before);
    await old.migrate();
    const insert = async (execute: Execute, table: string, row: object) => {
      const values = Object.values(row).map((value) =>
        typeof value === 'object' && value !== null
          ? JSON.stringify(value)
          : typeof value === 'boolean'
            ? +value
            : value,
      );
      const places = values.map((_, i) => (name === 'sqlite' ? '?' : `$${i + 1}`)).join();
      await execute(`INSERT INTO ${table} (${Object.keys(row).join()}) VALUES (${places})`, values);
    };
    await old.write(null, async (execute) => {
      await insert(execute, 'organisations', organisationRow('o'));
      await insert(execute, 'workspaces', workspaceRow('o', 'w'));
      const owner = { organisation_id: 'o', workspace_id: 'w', account: 'a', provider: 'openai' };
      const made = { created_by: null, created_at: 1 };
      await insert(execute, 'object_owners', { ...owner, kind: 'file', object_id: 'file-1', ...made });
    });
    await old.close();
    const engine = await open(MIGRATIONS);
    await engine.migrate();
    const rows = await engine.query('kept', 'SELECT workspace_id, kind, object_id FROM object_owners', []);
    await engine.close();
    expect(rows.map((row) => ({ ...row }))).toEqual([{ workspace_id: 'w', kind: 'file', object_id: 'file-1' }]);
  });
});

describe('an upgrade on PostgreSQL by an account without the rights', () => {
  const start = async (url: string, migrations: readonly Migration[]) => {
    const engine = new PostgresEngine({ url, log: silentLog, clock: systemClock, poolSize: 2, migrations });
    const error = await engine.migrate().then(
      () => null,
      (thrown: Error) => thrown,
    );
    await engine.close();
    return error?.message;
  };
  const accountOf = async (url: string, ...grants: string[]) => {
    const at = new URL(url);
    at.username = `u${randomBytes(6).toString('hex')}`;
    at.password = 'secret';
    const client = new pg.Client(url);
    await client.connect();
    await client.query(`CREATE ROLE ${at.username} LOGIN PASSWORD 'secret'`);
    for (const grant of grants) await client.query(`${grant} TO ${at.username}`);
    await client.end();
    return at;
  };

  it('says whose the tables are and which account starts the new version, and changes nothing', async () => {
    const url = await postgresDatabase();
    expect(await start(url, MIGRATIONS)).toBeUndefined();
    const app = await accountOf(
      url,
      'GRANT USAGE, CREATE ON SCHEMA public',
      'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public',
    );
    expect(await start(app.href, MIGRATIONS)).toBeUndefined();
    const owner = new URL(url).username;
    expect(await start(app.href, [...MIGRATIONS, extra])).toBe(
      `This version has to change tables that belong to the PostgreSQL account "${owner}", and "${app.username}" does not own them. Start this version once with "${owner}" in SLUICE_DATABASE_URL, then again with "${app.username}".`,
    );
    expect(await start(url, [...MIGRATIONS, extra])).toBeUndefined();
    expect(await start(app.href, [...MIGRATIONS, extra])).toBeUndefined();
  });

  it('says what to grant where a new database takes no tables from it', async () => {
    const app = await accountOf(await postgresDatabase(), 'GRANT USAGE ON SCHEMA public');
    expect(await start(app.href, MIGRATIONS)).toMatch(
      new RegExp(
        `may not make tables in the schema public\\..* GRANT USAGE, CREATE ON SCHEMA public TO "${app.username}"\\.$`,
      ),
    );
  });
});

describe('a store that cannot be opened', () => {
  it('says which file, in one line: no SQLite file, a missing folder', async () => {
    const path = file();
    writeFileSync(path, 'this is not a database, but long enough to look like a file of some kind'.repeat(10));
    for (const bad of [path, join(dir, 'missing', 'x.db')]) {
      const error = await openSqliteTables({ file: bad, log: silentLog }).catch((thrown: Error) => thrown);
      expect((error as Error).message).toMatch(/^The database file [^\n]+ cannot be opened: [^\n]+$/);
      expect((error as Error).message).toContain(bad);
    }
  });

  it('says which PostgreSQL, in one line without the password', async () => {
    const url = new URL(await postgresDatabase());
    const wrong = new URL(url);
    wrong.password = 'hunter2hunter2';
    const missing = new URL(url);
    missing.pathname = '/no-such-database';
    const nobody = 'postgresql://u:hunter2hunter2@127.0.0.1:1/db';
    for (const bad of [wrong.href, missing.href, nobody]) {
      const store = await openPostgresTables({ url: bad, log: silentLog });
      const error = await store.migrate().catch((thrown: Error) => thrown);
      expect((error as Error).message).toMatch(
        /^The PostgreSQL at 127\.0\.0\.1:\d+\/[a-z0-9_-]+ cannot be used: [^\n]+$/,
      );
      expect(JSON.stringify(error) + String((error as Error).stack)).not.toContain('hunter2');
      await store.close();
    }
  });

  it('files of SQLite are for their owner only', async () => {
    const path = file();
    const tables = await openSqliteTables({ file: path, log: silentLog });
    await tables.migrate();
    for (const suffix of ['', '-wal', '-shm']) expect(statSync(path + suffix).mode & 0o777).toBe(0o600);
    await tables.close();
  });
});
