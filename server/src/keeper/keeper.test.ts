import { mkdir, mkdtemp, rm, rmdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { recordOfNow } from '../../test/support/log-keeper.ts';
import { systemClock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import { silentLog } from '../kernel/log.ts';
import { type Journal, openJournal } from '../store/disk/journal.ts';
import type { LogCatalogChange } from './catalog.ts';
import { type Connection, openEngine, rowsOf } from './engine.ts';
import { Keeper } from './keeper.ts';
import { relationOf } from './queries.ts';

interface Under {
  readonly keeper: Keeper;
  /** That of the keeper. */
  readonly connection: Connection;
  readonly journals: readonly Journal[];
  readonly changes: readonly LogCatalogChange[];
  /** Of the first journal. */
  readonly dir: string;
  write(to: number, more?: Record<string, unknown>): Promise<void>;
  /** How many records the files and tables have. */
  count(): Promise<number>;
}

/** A keeper in this process over new journals. `before` is called before each statement of the keeper's own. */
async function open(names: readonly string[], before: (sql: string) => void | Promise<void>): Promise<Under> {
  const dir = await mkdtemp(join(tmpdir(), 'sluice-keeper-'));
  const journals = await Promise.all(
    names.map((name) => openJournal({ dir: join(dir, 'spool', name), clock: systemClock, log: silentLog })),
  );
  const engine = await openEngine({ memory: '256MB', threads: 2, temporary: join(dir, 'temporary') });
  onTestFinished(async () => {
    await Promise.all(journals.map((journal) => journal.close()));
    engine.closeSync();
    await rm(dir, { recursive: true });
  });
  const connections: Connection[] = [];
  const watched = {
    closeSync: () => undefined,
    async connect() {
      const own = await engine.connect();
      connections.push(own);
      const run = own.run.bind(own);
      own.run = async (sql, values) => {
        await before(sql);
        return run(sql, values);
      };
      return own;
    },
  };
  const changes: LogCatalogChange[] = [];
  const keeper = await Keeper.open({
    node: 'one',
    dir: join(dir, 'logs'),
    spool: join(dir, 'spool'),
    engine: watched,
    catalog: {
      load: async () => ({ files: [], positions: [] }),
      commit: async (change) => void changes.push(change),
    },
    clock: systemClock,
    log: silentLog,
    newId: () => uuidv7(systemClock),
    onGap: () => undefined,
    workers: names.length,
  });
  const [connection] = connections;
  if (connection === undefined) throw new Error('the keeper has a connection');
  let seq = 0;
  return {
    keeper,
    connection,
    journals,
    changes,
    dir: join(dir, 'spool', names[0] ?? ''),
    write: (to, of) =>
      new Promise<void>((resolve) =>
        journals[to]?.append(JSON.stringify(recordOfNow(++seq, { organisation_id: 'org-a', ...of })), resolve),
      ),
    async count() {
      const { files, tails, release } = await keeper.pin(0, Number.MAX_SAFE_INTEGER);
      const sql = `SELECT count(*) AS n FROM ${relationOf(files, tails)}`;
      const [row] = await rowsOf(connection, { sql, values: [] });
      release();
      return Number(row?.n);
    },
  };
}

it('a question has the records that were written before it, also while the journals are being read', async () => {
  let asked: Promise<{ tails: readonly string[] }> | null = null;
  let chunks = 0;
  const under: Under = await open(['journal', 'journal-2'], async (sql) => {
    // The records of the second journal are being added: the first has been passed.
    if (!/^INSERT INTO tail_/.test(sql) || ++chunks !== 2 || asked !== null) return;
    await under.write(0);
    asked = under.keeper.pin(0, Number.MAX_SAFE_INTEGER);
  });
  await Promise.all([under.write(0), under.write(1)]);
  await under.keeper.tick();
  expect(asked).not.toBeNull();
  const { tails } = (await asked) as unknown as { tails: readonly string[] };
  const [row] = await rowsOf(under.connection, { sql: `SELECT count(*) AS n FROM ${tails[0]}`, values: [] });
  expect(row).toEqual({ n: 3 });
});

it('records that could not be read for want of room are read when there is some, and none twice', async () => {
  let full = false;
  const under = await open(['journal'], (sql) => {
    if (full && /^INSERT INTO /.test(sql)) throw new Error('IO Error: No space left on device');
  });
  await under.write(0);
  await under.keeper.tick();
  full = true;
  for (let i = 0; i < 3; i++) {
    await under.write(0);
    await expect(under.keeper.tick()).rejects.toThrow('No space');
  }
  full = false;
  await under.write(0);
  expect(await under.count()).toBe(5);
  await under.keeper.flush();
  expect(await under.count()).toBe(5);
  expect(under.changes.flatMap(({ add }) => add.map(({ records }) => records))).toEqual([5]);
});

it('records before a segment that cannot be read are read again when it can', async () => {
  const under = await open(['journal'], () => undefined);
  await under.write(0);
  const segment = join(under.dir, '999999999999.journal');
  await mkdir(segment);
  await expect(under.keeper.tick()).rejects.toThrow('EISDIR');
  await rmdir(segment);
  expect(await under.count()).toBe(1);
});
