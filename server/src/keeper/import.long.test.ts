import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { type KeeperUnderTest, recent, recordOfNow, startKeeper } from '../../test/support/log-keeper.ts';
import { writeOldPostgres, writeOldSqlite } from '../../test/support/old-log-store.ts';
import { postgresDatabase } from '../../test/support/postgres.ts';
import { systemClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import type { OldLogs } from '../store/ports.ts';
import { openOldPostgresLogs } from '../store/postgres/old-logs.ts';
import { openOldSqliteLogs } from '../store/sqlite/old-logs.ts';
import { importOldLogs, takeOverPositions } from './import.ts';

let under: KeeperUnderTest;
afterEach(() => under.close());

const RECORDS = 250;
const some = (from: number, count: number) =>
  Array.from({ length: count }, (_, i) => recordOfNow(from + i, { node: 'old', client: { sdk: 'é\ud800' } }));
const count = () => under.keeper.count(recent(), 1_000_000);
const keptTo = (journal: string) =>
  under.tables.systemRead(async (tx) => {
    const found = await tx.find('log_positions', { journal });
    return found === undefined ? null : { segment: found.segment, offset: found.position };
  });

async function opened(engine: 'sqlite' | 'postgres'): Promise<() => Promise<OldLogs>> {
  if (engine === 'sqlite') {
    const file = join(under.dir, 'logs.db');
    writeOldSqlite(file, some(1, RECORDS));
    return async () => (await openOldSqliteLogs(file, silentLog)) ?? expect.fail('there is no file');
  }
  const url = await postgresDatabase();
  await writeOldPostgres(url, some(1, RECORDS));
  return async () => (await openOldPostgresLogs(url, silentLog)) ?? expect.fail('there are no tables');
}

const settings = (old: OldLogs, signal = new AbortController().signal) => {
  const spool = join(under.dir, 'spool');
  const flush = () => under.keeper.flush();
  return { old, spool, keptTo, flush, clock: systemClock, log: silentLog, signal, sliceRecords: 60 };
};

describe.each(['sqlite', 'postgres'] as const)('records of an older version on %s', (engine) => {
  it('are in files once, and the old store has none', async () => {
    under = await startKeeper();
    const old = await (await opened(engine))();
    expect(await importOldLogs(settings(old))).toBe(RECORDS);
    expect(await count()).toBe(RECORDS);
    expect(await importOldLogs(settings(old))).toBe(0);
    expect(await count()).toBe(RECORDS);
    if (engine === 'sqlite') expect(existsSync(join(under.dir, 'logs.db'))).toBe(false);
    else expect(await old.read(null, 10)).toEqual([]);
    await old.close();
  });

  it('are in files once also where it dies at any step of the way', async () => {
    under = await startKeeper();
    const open = await opened(engine);
    for (let death = 1, done = false; !done; death++) {
      const real = await open();
      const ending = new AbortController();
      let steps = 0;
      // A process that dies does nothing more, and its signal ends the loop without a wait.
      const step = async <T>(run: () => Promise<T>): Promise<T> => {
        if (++steps >= death) {
          ending.abort();
          throw new Error('killed');
        }
        return run();
      };
      const old: OldLogs = {
        ...real,
        read: (...of) => step(() => real.read(...of)),
        remove: (keys) => step(() => real.remove(keys)),
        end: async () => undefined,
      };
      const all = settings(old, ending.signal);
      const flush = () => step(all.flush);
      await importOldLogs({ ...all, flush, keptTo: (journal) => step(() => keptTo(journal)) }).catch(() => undefined);
      done = !ending.signal.aborted;
      await real.close();
      expect(death).toBeLessThan(80);
    }
    expect(await count()).toBe(RECORDS);
    await under.keeper.flush();
    expect(await count()).toBe(RECORDS);
    const left = readdirSync(join(under.dir, 'spool', 'journal-imported'));
    expect(left.filter((name) => name.endsWith('.json') || name.endsWith('.unfinished'))).toEqual([]);
  }, 60_000);
});

it('what an older version had stored of a journal is not read from it again', async () => {
  under = await startKeeper();
  await under.write(...some(1, 5));
  const end = under.journal.tail();
  await under.write(...some(6, 2));
  writeOldSqlite(join(under.dir, 'logs.db'), some(1, 5), [{ journal: under.journal.name, ...end }]);
  const old = (await openOldSqliteLogs(join(under.dir, 'logs.db'), silentLog)) ?? expect.fail('there is no file');
  await takeOverPositions(join(under.dir, 'spool'), old, async (journal, { segment, offset }) => {
    await under.tables.systemWrite((tx) => tx.insert('log_positions', { journal, segment, position: offset }));
  });
  expect(await count()).toBe(2);
  expect(await importOldLogs(settings(old))).toBe(5);
  expect(await count()).toBe(7);
});

it('an installation that had no older version has nothing to move', async () => {
  under = await startKeeper();
  expect(await openOldSqliteLogs(join(under.dir, 'logs.db'), silentLog)).toBeNull();
  expect(await openOldPostgresLogs(await postgresDatabase(), silentLog)).toBeNull();
});
