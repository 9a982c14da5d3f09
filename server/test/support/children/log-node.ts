/**
 * What a server has of logs, without the server: writes records to a journal and keeps them, until it is killed. Argument: its
 * settings as JSON. Says on the channel to its parent up to which number of its sequence records would survive a kill, which
 * process its keeper is, and how many records that one missed.
 */
import { join } from 'node:path';
import { KeptJournal } from '../../../src/keeper/journal-trimmer.ts';
import { LogKeeper } from '../../../src/keeper/keeper-launcher.ts';
import { storedCatalog } from '../../../src/keeper/stored-catalog.ts';
import { type Clock, systemClock } from '../../../src/kernel/clock.ts';
import { silentLog } from '../../../src/kernel/log.ts';
import { openJournal } from '../../../src/store/disk/journal.ts';
import { openPostgresTables } from '../../../src/store/postgres/tables.ts';
import { openSqliteTables } from '../../../src/store/sqlite/tables.ts';
import { NO_BODIES, recordOfNow } from '../log-keeper.ts';

export interface LogNodeSettings {
  /** Of journals and files. */
  readonly dir: string;
  /** Where the control store is: the directory of an SQLite file, or else the URL. */
  readonly control: string;
  readonly databaseUrl: string | null;
  /** Name of this run in records. */
  readonly node: string;
}

export interface LogNodeSays {
  readonly node: string;
  readonly upTo: number;
  readonly keeper: number | null;
  readonly gaps: number;
}

const BATCH = 20;
/** The keeper may need longer than the kills leave it: then it is waited for. */
const MOST_WAITING = 4 << 20;
/** What takes seconds in a server takes a part of them here: letting go of segments, and waiting after a death. */
const FASTER = 25;
const PAUSE_MS = 4;

const { dir, control, databaseUrl, node } = JSON.parse(process.argv[2] ?? '{}') as LogNodeSettings;
process.once('disconnect', () => process.exit(0));
const log = silentLog;
const clock: Clock = { ...systemClock, after: (ms, fn) => systemClock.after(ms / FASTER, fn) };
const spool = join(dir, 'spool');
const tables =
  databaseUrl === null
    ? await openSqliteTables({ file: join(control, 'control.db'), log })
    : await openPostgresTables({ url: databaseUrl, log });
const journal = await openJournal({ dir: join(spool, 'journal'), clock: systemClock, log, segmentBytes: 100_000 });
const keeper = new LogKeeper({
  node: 'node',
  dir: join(dir, 'logs'),
  spool,
  workers: 1,
  memoryMb: 128,
  threads: 1,
  tickMs: 20,
  flushMs: 100,
  flushRecords: 500,
  catalog: storedCatalog(tables, 'node', systemClock),
  bodies: NO_BODIES,
  forgetFeedback: async () => 0,
  clock,
  log,
});
new KeptJournal({
  journal,
  dir: join(spool, 'journal'),
  keptTo: (name) =>
    tables.systemRead(async (tx) => {
      const found = await tx.find('log_positions', { journal: name });
      return found === undefined ? null : { segment: found.segment, offset: found.position };
    }),
  wake: () => keeper.wake(),
  clock,
  log,
});

for (let upTo = 0; ; ) {
  keeper.wake();
  // A server refuses requests meanwhile.
  if (!journal.failing && journal.depth() < MOST_WAITING) {
    const first = upTo;
    await Promise.all(
      Array.from({ length: BATCH }, (_, i) => {
        const text = JSON.stringify(recordOfNow(first + i + 1, { node }));
        return new Promise<void>((resolve) => journal.append(text, resolve));
      }),
    );
    upTo += BATCH;
  }
  process.send?.({ node, upTo, keeper: keeper.pid, gaps: keeper.gaps } satisfies LogNodeSays, () => undefined);
  await new Promise<void>((resolve) => setTimeout(resolve, PAUSE_MS));
}
