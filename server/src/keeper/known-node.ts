/** Nodes that keep records where all nodes read them: one that was not ended has its last records on its own disk. */
import type { Clock } from '../kernel/clock.ts';
import type { Tables } from '../store/ports.ts';

export interface KnownNode {
  /** This node lives, and all that it recorded before a time (milliseconds since the epoch) is there; null: no more than before. */
  announce(completeTo: number | null): Promise<void>;
  /** This node ends, and all that it recorded is there. */
  retire(): Promise<void>;
}

/** @param clock the same on all nodes */
export function knownNode(tables: Tables, node: string, clock: Pick<Clock, 'now'>): KnownNode {
  return {
    async announce(completeTo) {
      const seen = { seen_at: clock.now() };
      const patch = completeTo === null ? seen : { ...seen, complete_to: completeTo };
      await tables.systemWrite(async (tx) => {
        if ((await tx.update('log_nodes', { node }, patch)) > 0) return;
        await tx.insert('log_nodes', { node, complete_to: completeTo ?? seen.seen_at, ...seen });
      });
    },
    async retire() {
      await tables.systemWrite((tx) => tx.remove('log_nodes', { node }));
    },
  };
}
