/** Exports of request logs: who writes their files, and what one node does for all. */
import { join } from 'node:path';
import { startLeader } from '../jobs/leader.ts';
import type { ExportOptions } from '../jobs/log-exports.ts';
import type { Scheduler } from '../jobs/scheduler.ts';
import { pendingErasures } from '../resources/logs/erasures/pending.ts';
import { KEPT_LOGS } from '../resources/logs/reach.ts';
import { Services } from '../resources/services.ts';
import type { Common } from './common.ts';
import type { Front } from './front.ts';
import type { Spools } from './spools.ts';
import type { Stores } from './stores.ts';
import type { Training } from './training.ts';

const SWEEP_MS = 60 * 60_000;
/** `concurrency`: files that one process writes at the same time. */
export const EXPORT_TURNS = {
  table: 'log_exports',
  concurrency: 2,
  retry: { first: 1_000, most: 60_000, factor: 2 },
} as const;

interface Parts {
  readonly stores: Stores;
  readonly spools: Spools;
  readonly front: Front;
  readonly training: Training;
}

/**
 * Adds the work on files to the process that has the keeper, and the sweep of what is old. Before the scheduler starts.
 * What that needs is loaded for the first export.
 */
export function startLogExports(common: Common, parts: Parts, scheduler: Scheduler): void {
  const { config, clock, log, lifecycle, worker } = common;
  const { stores, spools, front, training } = parts;
  const { tables, node, vault } = stores;
  const { blobs } = training.services;
  const { keeper } = spools.logs;
  if (worker.index === 1) {
    const options: Omit<ExportOptions, 'exporter'> = {
      tables,
      blobs,
      store: keeper,
      services: new Services().provide(KEPT_LOGS, {
        store: keeper,
        days: config.logDays,
        erased: (tx) => pendingErasures(tx, vault),
      }),
      clock,
      log,
      origin: () => front.publicUrl().replace(/\/+$/, ''),
      maxRows: config.exportMaxRows,
      bodiesDays: config.bodiesDays,
    };
    scheduler.add({
      ...EXPORT_TURNS,
      run: async (claim) => {
        const { exportTurn } = await import('../jobs/log-exports.ts');
        const { KeeperExporter } = await import('../keeper/exporter.ts');
        const exporter = new KeeperExporter(keeper, join(config.dataDir, 'logs'), clock);
        return exportTurn({ ...options, exporter }, claim);
      },
    });
  }
  const lead = async (signal: AbortSignal) => {
    if ((await tables.systemRead((tx) => tx.count('log_exports'))) === 0) return;
    const { sweepExports } = await import('../jobs/log-exports.ts');
    await sweepExports({ tables, blobs }, signal);
  };
  lifecycle.own(
    'sweep of exports',
    startLeader({ tables, clock, log, node, name: 'log-exports', everyMs: SWEEP_MS, lead }),
  );
}
