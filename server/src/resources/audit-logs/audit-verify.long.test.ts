/** `sluice audit verify` beside a running server: what it prints and how it exits. */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { migratedDatabase } from '../../../test/support/postgres.ts';
import { startServer, type TestServer } from '../../../test/support/server.ts';
import { audit } from '../../cli/audit.ts';
import { systemClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import { loadKeyring } from '../../store/keyring.ts';
import type { Tables } from '../../store/ports.ts';
import { openPostgresTables } from '../../store/postgres/tables.ts';
import type { Row } from '../../store/schema.ts';
import { openSqliteTables } from '../../store/sqlite/tables.ts';
import { appendAudit, systemEntry } from './chain.ts';
import { forgetAudit } from './retention.ts';

const BIN = join(import.meta.dirname, '../../../bin/sluice.mjs');

describe.each(['sqlite', 'postgres'] as const)('sluice audit verify on %s', (engine) => {
  let server: TestServer;
  let tables: Tables;
  let env: Record<string, string>;
  let organisation: string;
  let databaseUrl: string | null;

  beforeAll(async () => {
    const url = engine === 'postgres' ? await migratedDatabase() : null;
    databaseUrl = url;
    env = url === null ? {} : { SLUICE_DATABASE_URL: url };
    server = await startServer(env);
    tables =
      url === null
        ? await openSqliteTables({ file: join(server.dataDir, 'control.db'), log: silentLog })
        : await openPostgresTables({ url, log: silentLog });
    organisation = server.first.organisation_id;
    const masterKeyFile = join(server.dataDir, 'master.key');
    const macs = await loadKeyring({ masterKeyFile, create: false });
    const deed = { organisationId: organisation, workspaceId: null, action: 'update', resource: 'configs' } as const;
    // More rows than are read at a time.
    await tables.systemWrite(async (tx) => {
      for (let i = 0; i < 205; i++) {
        const entry = systemEntry(systemClock, { ...deed, resourceId: String(i), before: null, after: null });
        await appendAudit(tx, macs, entry);
      }
    });
    for (let i = 0; i < 5; i++) await server.admin('POST', '/configs', { name: '' });
  });

  afterAll(async () => {
    await tables?.close();
    await server?.stop();
  });

  const run = (args: readonly string[], more: Record<string, string> = {}) =>
    new Promise<{ code: number | string; out: string; err: string }>((resolve) => {
      const options = { env: { PATH: process.env.PATH, SLUICE_DATA_DIR: server.dataDir, ...env, ...more } };
      execFile(process.execPath, [BIN, 'audit', ...args], options, (error, out, err) =>
        resolve({ code: error?.code ?? 0, out, err }),
      );
    });
  const verify = (...args: string[]) => run(['verify', ...args]);

  const at = async (seq: number): Promise<Row<'audit_log'>> => {
    const row = await tables.systemRead((tx) => tx.find('audit_log', { organisation_id: organisation, seq }));
    if (!row) throw new Error(`no row ${seq}`);
    return row;
  };

  it('says of every organisation that its log is whole, and exits with 0', async () => {
    const made = await server.admin(
      'POST',
      '/operator/organisations',
      { name: 'Second', owner: { email: 'two@x.example', first_name: 'T', last_name: 'W' } },
      server.first.operator_api_key,
    );
    const { code, out } = await verify();
    expect(code).toBe(0);
    expect(out).toContain(`${organisation} ("My organisation"): ok, 210 rows\n  row 210: ${(await at(210)).hash}\n`);
    expect(out).toContain(`${made.body.organisation_id} ("Second"): ok, 1 rows\n`);
  });

  it('verifies while the server writes', async () => {
    const writing = Promise.all(Array.from({ length: 20 }, () => server.admin('POST', '/configs', { name: '' })));
    expect((await verify('--organisation', organisation)).code).toBe(0);
    await writing;
    expect((await verify(`--organisation=${organisation}`)).out).toContain('ok, 230 rows');
  });

  it('names the first row that was changed, and the first that is missing, and exits with 1', async () => {
    const row = await at(205);
    const where = { id: row.id, organisation_id: organisation };
    await tables.systemWrite((tx) => tx.update('audit_log', where, { client_ip: '192.0.2.1' }));
    const changed = await verify();
    expect(changed.code).toBe(1);
    expect(changed.out).toContain(`BROKEN after 204 good rows: row 205 (id ${row.id}) is not what was written there.`);
    expect(changed.out).toContain('("Second"): ok');
    await tables.systemWrite((tx) => tx.remove('audit_log', where));
    const removed = await verify('--organisation', organisation);
    expect([removed.code, removed.out]).toEqual([1, expect.stringContaining('204 good rows: row 205 is missing.')]);
    await tables.systemWrite((tx) => tx.insert('audit_log', row));
    const last = await at(230);
    await tables.systemWrite((tx) => tx.remove('audit_log', { id: last.id, organisation_id: organisation }));
    expect((await verify()).out).toContain('row 230 is missing at the end.');
    await tables.systemWrite((tx) => tx.insert('audit_log', last));
    expect((await verify()).code).toBe(0);
  });

  it('says from which row the log begins after older ones were removed, and that the rest is whole', async () => {
    const masterKeyFile = join(server.dataDir, 'master.key');
    const macs = await loadKeyring({ masterKeyFile, create: false });
    const { timestamp } = await at(5);
    const kept = await tables.systemRead((tx) => tx.list('audit_log', { where: { organisation_id: organisation } }));
    const old = kept.filter((row) => row.timestamp < timestamp).length;
    await forgetAudit(tables, macs, organisation, timestamp);
    const { code, out } = await verify('--organisation', organisation);
    const from = old === 0 ? '' : `, from row ${old + 1} on; older rows were removed (SLUICE_AUDIT_DAYS)`;
    expect([code, out]).toEqual([0, expect.stringContaining(`ok, ${230 - old} rows${from}\n  row 230: `)]);
    await forgetAudit(tables, macs, organisation, systemClock.now() + 1);
    expect((await verify()).out).toContain('ok, 0 rows, from row 231 on');
    await server.admin('POST', '/configs', { name: '' });
    expect((await verify()).out).toContain('ok, 1 rows, from row 231 on');
  });

  it('knows rows of a former master key as long as it is given, and says which one it misses', async () => {
    const former = (await readFile(join(server.dataDir, 'master.key'), 'utf8')).trim();
    const fresh = randomBytes(32).toString('base64');
    expect((await run(['verify'], { SLUICE_MASTER_KEY: `${fresh},${former}` })).code).toBe(0);
    const file = join(server.dataDir, 'other.key');
    await writeFile(file, fresh);
    const missed = await run(['verify'], { SLUICE_MASTER_KEY_FILE: file });
    expect(missed.code).toBe(1);
    const keyId = (await at(231)).hash?.split('.')[0];
    expect(missed.out).toContain(`row 230 was signed with master key ${keyId}, which is not given`);
  });

  it('exits with 2 and one line when it cannot look', async () => {
    const { code, err } = await verify('--organisation=x');
    expect([code, err]).toEqual([2, 'sluice: There is no organisation x in this store.\n']);
  });

  it('exits with 2 for a directory that holds no store, which it leaves as it was, and for one that is none', async () => {
    const dir = await mkdtemp(join(server.dataDir, 'elsewhere-'));
    const elsewhere = { SLUICE_DATA_DIR: dir, SLUICE_DATABASE_URL: '' };
    const file = join(dir, 'control.db');
    const none = await run(['verify'], elsewhere);
    expect([none.code, none.err]).toEqual([
      2,
      `sluice: There is no ${file}: check SLUICE_DATA_DIR or SLUICE_DATABASE_URL, or start Sluice once first.\n`,
    ]);
    expect(await readdir(dir)).toEqual([]);
    await writeFile(file, 'This is no database. '.repeat(1000));
    expect((await run(['verify'], elsewhere)).code).toBe(2);
  });

  it.each([
    ['another word', ['check'], 'usage: npm run sluice -- audit verify'],
    ['nothing', [], 'usage: npm run sluice -- audit verify'],
    ['no id', ['verify', '--organisation'], '--organisation needs one id'],
    ['two ids', ['verify', '--organisation=a', '--organisation=b'], '--organisation needs one value.'],
    ['an unknown flag', ['verify', '--since=1'], '--since'],
    ['no master key', ['verify', '--master-key-file=/nonexistent/key'], '/nonexistent/key does not exist'],
  ])('refuses %s', async (_title, args, message) => {
    const settings = [
      `--data-dir=${server.dataDir}`,
      ...(databaseUrl === null ? [] : [`--database-url=${databaseUrl}`]),
    ];
    const quiet = { out: () => undefined, err: () => undefined };
    await expect(audit([...args, ...(args[0] === 'verify' ? settings : [])], quiet)).rejects.toThrow(message);
  });
});
