import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { TestClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import { apiKeyRow, organisationRow, userRow } from '../conformance/rows.ts';
import { tablesConformance } from '../conformance/tables.ts';
import { MIGRATIONS } from '../migrations/index.ts';
import { type Tables, unsafeTenant } from '../ports.ts';
import { SqlTables } from '../sql/tables.ts';
import { SqliteEngine } from './engine.ts';
import { openSqliteTables } from './tables.ts';

tablesConformance('sqlite', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-sqlite-'));
  const file = join(dir, 'control.db');
  const opened: Tables[] = [];
  const another = async () => {
    const tables = await openSqliteTables({ file, log: silentLog });
    opened.push(tables);
    return tables;
  };
  return {
    tables: await another(),
    another,
    execute: async (sql) => {
      const db = new DatabaseSync(file, { timeout: 5_000 });
      db.exec(sql);
      db.close();
    },
    close: async () => {
      for (const tables of opened) await tables.close();
      rmSync(dir, { recursive: true });
    },
  };
});

describe('SQLite', () => {
  const A = unsafeTenant('org-a', null);
  const unavailable = expect.objectContaining({ name: 'SluiceError', kind: 'unavailable' });
  let dir: string;
  let file: string;
  let clock: TestClock;
  let engine: SqliteEngine;
  let tables: Tables;
  beforeEach(async () => {
    dir = mkdtempSync(join(tmpdir(), 'sluice-sqlite-'));
    file = join(dir, 'control.db');
    clock = new TestClock();
    engine = await SqliteEngine.open({ file, log: silentLog, clock, migrations: MIGRATIONS });
    tables = new SqlTables(engine);
    await tables.migrate();
    await tables.systemWrite((tx) => tx.insert('organisations', organisationRow('org-a')));
  });
  afterEach(async () => {
    await tables.close();
    rmSync(dir, { recursive: true });
  });

  it('a worker thread that dies makes what it had unavailable, keeps what was committed, and comes back', async () => {
    await tables.write(A, (tx) => tx.insert('users', userRow('org-a', 'committed')));
    const reading = tables.findKey('x').catch((error: unknown) => error);
    const writing = tables.write(A, async (tx) => {
      await tx.insert('users', userRow('org-a', 'lost'));
      await engine.thread.kill();
      await tx.insert('users', userRow('org-a', 'in-no-transaction'));
    });
    await expect(writing).rejects.toEqual(unavailable);
    expect([undefined, unavailable]).toContainEqual(await reading);
    const users = await tables.read(A, (tx) => tx.list('users'));
    expect(users.map((user) => user.id)).toEqual(['committed']);
    await tables.write(A, (tx) => tx.insert('users', userRow('org-a', 'after')));
  });

  it('requests under way when the worker thread dies are refused at once, not left waiting', async () => {
    const requests = Array.from({ length: 50 }, () =>
      tables.findKey('x').then(
        () => 'answered',
        (error: unknown) => error,
      ),
    );
    await engine.thread.kill();
    for (const outcome of await Promise.all(requests)) expect(['answered', unavailable]).toContainEqual(outcome);
  });

  it('gives up a transaction that does not end in 30 seconds, and lets the next writer in', async () => {
    const entered = Promise.withResolvers<void>();
    const proceed = Promise.withResolvers<void>();
    const late = Promise.withResolvers<unknown>();
    const stuck = tables.write(A, async (tx) => {
      await tx.insert('users', userRow('org-a', 'stuck'));
      entered.resolve();
      await proceed.promise;
      late.resolve(tx.insert('users', userRow('org-a', 'late')).catch((error: unknown) => error));
    });
    const given = expect(stuck).rejects.toEqual(unavailable);
    const next = tables.write(A, (tx) => tx.insert('users', userRow('org-a', 'next')));
    await entered.promise;
    await clock.advance(30_001);
    await given;
    await next;
    proceed.resolve();
    expect(await late.promise).toBeInstanceOf(Error);
    expect((await tables.read(A, (tx) => tx.list('users'))).map((user) => user.id)).toEqual(['next']);
  });

  it('a look-up does not wait for a writer, nor for readers that hold all snapshots', async () => {
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    const holding = [
      tables.write(A, () => held),
      ...Array.from({ length: 8 }, () =>
        tables.read(A, async (tx) => {
          await tx.count('users');
          await held;
        }),
      ),
    ];
    expect(await tables.findKey('x')).toBeUndefined();
    expect(await tables.lastChange()).toBe(0);
    release();
    await Promise.all(holding);
  });

  it('several processes write to one file at the same time and lose nothing', async () => {
    const other = await openSqliteTables({ file, log: silentLog });
    await other.write(A, (tx) => tx.insert('api_keys', apiKeyRow('org-a', 'counter', { version: 0 })));
    const script = `
      const { openSqliteTables } = await import(${JSON.stringify(new URL('./tables.ts', import.meta.url).href)});
      const { unsafeTenant } = await import(${JSON.stringify(new URL('../ports.ts', import.meta.url).href)});
      const log = { debug() {}, info() {}, warn() {}, error() {} };
      const tables = await openSqliteTables({ file: ${JSON.stringify(file)}, log });
      await tables.migrate();
      for (let i = 0; i < 40; i++) {
        await tables.write(unsafeTenant('org-a', null), async (tx) => {
          const { version } = await tx.find('api_keys', { id: 'counter' });
          await tx.update('api_keys', { id: 'counter' }, { version: version + 1 });
          tx.changed({ workspaceId: null, topic: 'api_keys', entityId: 'counter' });
        });
      }
      await tables.close();`;
    const children = [1, 2, 3].map(() => {
      const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
        stdio: ['ignore', 'ignore', 'pipe'],
      });
      return Promise.all([text(child.stderr), new Promise((resolve) => child.once('exit', resolve))]);
    });
    for (const [stderr, code] of await Promise.all(children)) expect([code, stderr]).toEqual([0, '']);
    expect((await other.read(A, (tx) => tx.find('api_keys', { id: 'counter' })))?.version).toBe(120);
    const changes = await other.changesAfter(0, 1_000);
    expect(changes).toHaveLength(120);
    await other.close();
  });

  it('a commit survives the process being killed', async () => {
    const script = `
      const { openSqliteTables } = await import(${JSON.stringify(new URL('./tables.ts', import.meta.url).href)});
      const { unsafeTenant } = await import(${JSON.stringify(new URL('../ports.ts', import.meta.url).href)});
      const { userRow } = await import(${JSON.stringify(new URL('../conformance/rows.ts', import.meta.url).href)});
      const log = { debug() {}, info() {}, warn() {}, error() {} };
      const tables = await openSqliteTables({ file: ${JSON.stringify(file)}, log });
      for (let i = 0; ; i++) {
        await tables.write(unsafeTenant('org-a', null), (tx) => tx.insert('users', userRow('org-a', 'k' + i)));
        process.stdout.write(i + '\\n');
      }`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let output = '';
    child.stdout.on('data', (chunk) => {
      output += chunk;
      if (output.split('\n').length > 30) child.kill('SIGKILL');
    });
    await new Promise((resolve) => child.once('close', resolve));
    const acknowledged = output.split('\n').filter((line) => /^\d+$/.test(line)).length;
    const stored = await tables.read(A, (tx) => tx.count('users'));
    expect(acknowledged).toBeGreaterThan(20);
    expect(stored).toBeGreaterThanOrEqual(acknowledged);
  });
});
