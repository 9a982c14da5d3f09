import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { postgresDatabase } from '../../../test/support/postgres.ts';
import { TcpProxy } from '../../../test/support/proxy.ts';
import { systemClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import { apiKeyRow, organisationRow, userRow } from '../conformance/rows.ts';
import { tablesConformance } from '../conformance/tables.ts';
import { MIGRATIONS } from '../migrations/index.ts';
import { type Tables, unsafeTenant } from '../ports.ts';
import { SqlTables } from '../sql/tables.ts';
import { PostgresEngine } from './engine.ts';
import { openPostgresTables } from './tables.ts';

tablesConformance('postgres', async () => {
  const url = await postgresDatabase();
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
      const client = new pg.Client(url);
      await client.connect();
      // Without the checks of references, which are not under test here and take most of the time.
      await client.query('SET session_replication_role = replica');
      await client.query(sql);
      await client.query('ANALYZE');
      await client.end();
    },
    close: async () => {
      for (const tables of opened) await tables.close();
    },
  };
});

describe('PostgreSQL', () => {
  const A = unsafeTenant('org-a', null);
  const unavailable = expect.objectContaining({ name: 'SluiceError', kind: 'unavailable' });
  let url: string;
  let proxy: TcpProxy;
  let engine: PostgresEngine;
  let tables: Tables;
  /** Another node, which reaches the store without the proxy. */
  let elsewhere: Tables;

  beforeAll(async () => {
    url = await postgresDatabase();
    const direct = new URL(url);
    proxy = await TcpProxy.start(Number(direct.port));
    const through = new URL(url);
    through.port = String(proxy.port);
    const shared = { log: silentLog, clock: systemClock, poolSize: 4, migrations: MIGRATIONS };
    engine = new PostgresEngine({ ...shared, url: through.href });
    tables = new SqlTables(engine);
    await tables.migrate();
    elsewhere = await openPostgresTables({ url, log: silentLog });
    await tables.systemWrite((tx) => tx.insert('organisations', organisationRow('org-a')));
  });
  afterAll(async () => {
    await tables.close();
    await elsewhere.close();
    await proxy.close();
  });

  const announce = (on: Tables) =>
    on.write(A, async (tx) => tx.changed({ workspaceId: null, topic: 'configs', entityId: 'x' }));

  it('tells other nodes of a change at once', async () => {
    let heard = () => {};
    const hint = new Promise<void>((resolve) => {
      heard = resolve;
    });
    const stop = tables.onChangeHint(() => heard());
    await engine.listening();
    await announce(elsewhere);
    await hint;
    stop();
  });

  it('a store that goes away makes everything unavailable quickly, and all works again when it is back', async () => {
    let inside = () => {};
    const entered = new Promise<void>((resolve) => {
      inside = resolve;
    });
    let cut = () => {};
    const isCut = new Promise<void>((resolve) => {
      cut = resolve;
    });
    const writing = tables.write(A, async (tx) => {
      await tx.insert('users', userRow('org-a', 'lost'));
      inside();
      await isCut;
      await tx.insert('users', userRow('org-a', 'lost-too'));
    });
    const refused = expect(writing).rejects.toEqual(unavailable);
    await entered;
    const start = performance.now();
    await proxy.down();
    cut();
    await refused;
    await expect(tables.findKey('x')).rejects.toEqual(unavailable);
    await expect(tables.ping()).rejects.toEqual(unavailable);
    await expect(tables.read(A, (tx) => tx.count('users'))).rejects.toEqual(unavailable);
    expect(performance.now() - start).toBeLessThan(2_000);

    await proxy.up();
    expect(await tables.findKey('x')).toBeUndefined();
    expect(await tables.read(A, (tx) => tx.count('users'))).toBe(0);
    await tables.write(A, (tx) => tx.insert('users', userRow('org-a', 'after')));
  });

  it('the listener comes back by itself and hints, because changes may have been missed meanwhile', async () => {
    let hints = 0;
    let heard = () => {};
    const stop = tables.onChangeHint(() => {
      hints++;
      heard();
    });
    const next = () =>
      new Promise<void>((resolve) => {
        heard = resolve;
      });
    // It may be between two attempts from the test before: a hint says that it listens.
    while (hints === 0) {
      const hint = next();
      await announce(elsewhere);
      await Promise.race([hint, elsewhere.ping()]);
    }
    await proxy.down();
    await announce(elsewhere);
    const back = next();
    await proxy.up();
    await back;
    stop();
  });

  it('connections that the server ends are replaced', async () => {
    await Promise.all([tables.ping(), tables.ping(), tables.ping()]);
    const admin = new pg.Client(url);
    await admin.connect();
    await admin.query(
      'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()',
    );
    await admin.end();
    const outcomes = await Promise.allSettled(Array.from({ length: 8 }, () => tables.ping()));
    for (const outcome of outcomes) if (outcome.status === 'rejected') expect(outcome.reason).toEqual(unavailable);
    await tables.ping();
  });

  it('a whole number beyond 2^53 is an error and never rounded', async () => {
    await expect(engine.query('big', 'SELECT 9007199254740993::bigint AS n', [])).rejects.toThrow(/2\^53/);
    expect(await engine.query('max', 'SELECT 9007199254740991::bigint AS n', [])).toEqual([
      { n: Number.MAX_SAFE_INTEGER },
    ]);
    await tables.ping();
  });

  it('writes of one queue on two nodes run one after another and undo none, others beside them', async () => {
    await tables.write(A, (tx) => tx.insert('api_keys', apiKeyRow('org-a', 'counted', { version: 0 })));
    let runs = 0;
    const add = (on: Tables) =>
      on.write(
        A,
        async (tx) => {
          runs++;
          const key = await tx.find('api_keys', { id: 'counted' });
          await tx.update('api_keys', { id: 'counted' }, { version: (key?.version ?? 0) + 1 });
        },
        { queue: 'org-a' },
      );
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    const { promise: entered, resolve: enter } = Promise.withResolvers<void>();
    const holding = async () => {
      enter();
      await held;
    };
    const first = tables.write(A, holding, { queue: 'org-a' });
    await entered;
    const all = Array.from({ length: 20 }, (_, i) => add(i % 2 === 0 ? tables : elsewhere));
    await tables.write(A, (tx) => tx.count('users'), { queue: 'org-b' });
    expect(runs).toBe(0);
    release();
    await Promise.all([first, ...all]);
    expect(runs).toBe(20);
    expect((await tables.read(A, (tx) => tx.find('api_keys', { id: 'counted' })))?.version).toBe(20);
  });

  it('no lock outlives its transaction, which is all that a pooler in transaction mode keeps together', async () => {
    await tables.write(A, (tx) => tx.insert('users', userRow('org-a', 'queued')), { queue: 'org-a' });
    const refused = tables.write(A, () => Promise.reject(new Error('given up')), { queue: 'org-a' });
    await expect(refused).rejects.toThrow('given up');
    // The server is shared with other suites, each in a database of its own.
    const own = '(SELECT oid FROM pg_database WHERE datname = current_database())';
    const held = `SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND classid = 731058203 AND database = ${own}`;
    expect(await engine.query('locks', held, [])).toEqual([{ n: 0 }]);
  });

  it('a transaction that collides every time is given up and says so', async () => {
    await tables.write(A, (tx) => tx.insert('users', userRow('org-a', 'contended')));
    const stranger = new pg.Client(url);
    await stranger.connect();
    let runs = 0;
    const colliding = tables.write(A, async (tx) => {
      runs++;
      await tx.find('users', { id: 'contended' });
      await stranger.query(`UPDATE users SET first_name = 'run ${runs}' WHERE id = 'contended'`);
      await tx.update('users', { id: 'contended' }, { first_name: 'mine' });
    });
    await expect(colliding).rejects.toEqual(unavailable);
    expect(runs).toBe(20);
    await stranger.end();
  });

  it('a write that others undo again and again runs while no other does, and they after it', async () => {
    await tables.write(A, (tx) => tx.insert('users', userRow('org-a', 'starved')));
    const others: Promise<number>[] = [];
    let runs = 0;
    await tables.write(A, async (tx) => {
      runs++;
      await tx.find('users', { id: 'starved' });
      const other = elsewhere.write(A, (own) => own.update('users', { id: 'starved' }, { last_name: `run ${runs}` }));
      others.push(other);
      if (runs <= 6) await other;
      // Long enough for the other one to get in between, could it.
      else for (let i = 0; i < 50; i++) await tx.count('users');
      await tx.update('users', { id: 'starved' }, { first_name: 'mine' });
    });
    expect(runs).toBe(7);
    expect(await Promise.all(others)).toEqual(others.map(() => 1));
    const user = await tables.read(A, (tx) => tx.find('users', { id: 'starved' }));
    expect(user).toMatchObject({ first_name: 'mine', last_name: 'run 7' });
  });
});
