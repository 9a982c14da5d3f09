import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { recordOfNow } from '../../test/support/log-keeper.ts';
import { systemClock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import { silentLog } from '../kernel/log.ts';
import { openJournal } from '../store/disk/journal.ts';
import { type Connection, openEngine } from './engine.ts';
import { Keeper } from './keeper.ts';

it('a question has the records that were written before it, also while the journals are being read', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'sluice-keeper-'));
  const journalOf = (name: string) =>
    openJournal({ dir: join(dir, 'spool', name), clock: systemClock, log: silentLog });
  const [first, second] = [await journalOf('journal'), await journalOf('journal-2')];
  const engine = await openEngine({ memory: '256MB', threads: 1, temporary: join(dir, 'temporary') });
  onTestFinished(async () => {
    await Promise.all([first.close(), second.close()]);
    engine.closeSync();
    await rm(dir, { recursive: true });
  });
  let seq = 0;
  const write = (to: typeof first) =>
    new Promise<void>((resolve) =>
      to.append(JSON.stringify(recordOfNow(++seq, { organisation_id: 'org-a' })), resolve),
    );

  let asked: Promise<{ tails: readonly string[] }> | null = null;
  let keeper: Keeper | null = null;
  let chunks = 0;
  let connection: Connection | null = null;
  const watched = {
    ...engine,
    async connect() {
      const own = await engine.connect();
      connection = own;
      const run = own.run.bind(own);
      own.run = async (sql, values) => {
        // The records of the second journal are being added: the first has been passed.
        if (/^INSERT INTO tail_/.test(sql) && ++chunks === 2 && asked === null) {
          await write(first);
          asked = (keeper as Keeper).pin(0, Number.MAX_SAFE_INTEGER);
        }
        return run(sql, values);
      };
      return own;
    },
  };
  keeper = await Keeper.open({
    node: 'one',
    dir: join(dir, 'logs'),
    spool: join(dir, 'spool'),
    engine: watched as never,
    catalog: { load: async () => ({ files: [], positions: [] }), commit: async () => undefined } as never,
    clock: systemClock,
    log: silentLog,
    newId: () => uuidv7(systemClock),
    onGap: () => undefined,
    workers: 2,
  });
  await Promise.all([write(first), write(second)]);
  await keeper.tick();
  expect(asked).not.toBeNull();
  const { tails } = (await asked) as unknown as { tails: readonly string[] };
  const rows = await (connection as unknown as Connection).runAndReadAll(`SELECT count(*) AS n FROM ${tails[0]}`);
  expect(rows.getRowObjectsJS()).toEqual([{ n: 3n }]);
});
