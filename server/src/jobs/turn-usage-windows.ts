/**
 * What time does to usage limits, done by one leader: windows turn, leases of nodes that are gone end, and alerts are
 * raised, each once for each window. Requests turn windows themselves; a limit that nobody uses waits for this.
 */
import type { Closable } from '../kernel/lifecycle.ts';
import { sweepBuckets } from '../limits/ledger/sweep.ts';
import { type RaiseOptions, raiseAlerts } from './alerts/raise.ts';
import { startLeader } from './leader.ts';
import { pause } from './pause.ts';

const EVERY_MS = 2_000;

export function turnUsageWindows(options: RaiseOptions & { readonly node: string }): Closable {
  const { tables, clock, log, node } = options;
  return startLeader({
    tables,
    clock,
    log,
    node,
    name: 'usage-limits',
    everyMs: 10_000,
    lead: async (signal) => {
      while (!signal.aborted) {
        const more = await sweepBuckets({ tables, clock });
        await raiseAlerts(options);
        if (!more) await pause(clock, EVERY_MS, signal);
      }
    },
  });
}
