/** Erasure of stored requests: on each node, by the process that has the keeper. */
import { unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { type ErasureOptions, LogErasures } from '../jobs/log-erasures.ts';
import { isOutgoing, journalSegments } from '../keeper/journal-segments.ts';
import type { Common } from './common.ts';
import type { Spools } from './spools.ts';
import type { Stores } from './stores.ts';

/** Within these times a record is in a file: of this machine, and of other nodes that share the store. */
const SETTLE_MS = 15_000;
const SETTLE_NODES_MS = 180_000;

/** Null in all processes but one. */
export function startLogErasures(common: Common, stores: Stores, spools: Spools): LogErasures | null {
  const { config, log, lifecycle, worker } = common;
  const { tables, storeClock, vault, nodeId } = stores;
  if (worker.index !== 1) return null;
  const spool = join(config.dataDir, 'spool');
  const erasures = new LogErasures({
    tables,
    vault,
    eraser: spools.logs.keeper,
    feedback: spools.logs.feedback,
    node: nodeId,
    // Files are replaced by the time of all nodes.
    clock: storeClock,
    log,
    segments: () => journalSegments(spool),
    async giveUp(segments) {
      const outgoing = segments.filter(isOutgoing);
      if (outgoing.length === 0) return;
      log.warn('records that a collector has not taken are given up: they are to be erased', { segments: outgoing });
      for (const path of outgoing) await unlink(join(spool, path)).catch(() => undefined);
    },
    place: placeOf(common, stores),
    settleMs: tables.engine === 'postgres' ? SETTLE_NODES_MS : SETTLE_MS,
  });
  return lifecycle.own('erasure of stored requests', erasures);
}

function placeOf({ config }: Common, { tables }: Stores): ErasureOptions['place'] {
  if (config.logs !== null) return 'elsewhere';
  return tables.engine === 'postgres' && config.blobs !== null ? 'files' : null;
}
