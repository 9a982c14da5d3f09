import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { BodyLog } from '../gateway/body-log.ts';
import { settlementSink } from '../limits/ledger/journal.ts';
import { adoptJournals } from '../store/disk/adopt.ts';
import { BodyJournal } from '../store/disk/body-journal.ts';
import { type Journal, openJournal } from '../store/disk/journal.ts';
import { type LazyJournal, openLazyJournal } from '../store/disk/lazy-journal.ts';
import { createRecorder, type Recorder } from '../telemetry/recorder.ts';
import { segmentKey } from './body-keys.ts';
import type { Common } from './common.ts';
import { type Logs, openLogs } from './logs.ts';
import type { Shared } from './shared.ts';
import type { Stores } from './stores.ts';

/** How soon what was used is in the store: until then it counts as reserved. */
const SETTLE_MS = 20;
/** Bytes of kept bodies that may wait on the disk for the log keeper, of all processes together. */
const MOST_BODIES = 1 << 30;

/** What this process has answered, on its way into the stores. */
export interface Spools {
  /** Records of requests. */
  readonly journal: Journal;
  readonly logs: Logs;
  readonly recorder: Recorder;
  /** What requests used under usage limits. */
  readonly settlements: LazyJournal;
  /** Bodies of requests that are kept. */
  readonly bodyJournal: BodyJournal;
  readonly bodyLog: BodyLog;
}

/** Opens both journals; the first process also ships the ledgers that processes which are no more have left behind. */
export async function openSpools(common: Common, stores: Stores, shared: Pick<Shared, 'bus'>): Promise<Spools> {
  const { config, clock, log, lifecycle, worker, metrics } = common;
  const { tables, runId, vault } = stores;
  const spool = join(config.dataDir, 'spool');
  await mkdir(spool, { recursive: true, mode: 0o700 });
  const dir = join(spool, numbered('journal', worker.index));
  const journal = lifecycle.own('journal', await openJournal({ dir, clock, log }));
  const logs = await openLogs(common, stores, shared, journal, dir);
  const sink = settlementSink({ tables, clock });
  const settlements = lifecycle.own(
    'ledger journal',
    await openLazyJournal({
      dir: join(spool, numbered('ledger', worker.index)),
      sink,
      clock,
      log,
      everyMs: SETTLE_MS,
    }),
  );
  const bodyJournal = lifecycle.own(
    'journal of bodies',
    new BodyJournal({
      dir: join(spool, numbered('bodies', worker.index)),
      clock,
      log,
      keyOf: (name, segment) => segmentKey(vault, name, segment),
      maxBytes: Math.floor(MOST_BODIES / config.workers),
    }),
  );
  if (worker.index === 1) {
    const { workers } = config;
    lifecycle.own('adopted ledgers', adoptJournals(spool, /^ledger-(\d+)$/, { workers, sink, clock, log }));
  }
  return {
    journal,
    logs,
    recorder: createRecorder(runId, journal, metrics),
    settlements,
    bodyJournal,
    bodyLog: new BodyLog({
      journal: bodyJournal,
      clock,
      rule: config.logBodies,
      maxBytes: config.logBodyBytes,
      maskedHeaders: config.maskedHeaders,
    }),
  };
}

/** Folder of one of the processes that share a data directory. */
function numbered(name: string, index: number): string {
  return index === 1 ? name : `${name}-${index}`;
}
