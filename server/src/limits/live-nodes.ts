/** How many nodes share the counters, so that each knows its share of a limit while they are away. */
import type { Clock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Counters } from '../store/ports.ts';

/** Every node counts itself once in each of these, on the clock that all share. */
const SLOT_MS = 5_000;
const LOOK_MS = SLOT_MS / 2;

export interface LiveNodes extends Closable {
  /** Nodes that were there in the last slots, this one included. Stays as it was while the counters are away. */
  readonly count: number;
}

export function countLiveNodes({ counters, clock }: { counters: Counters; clock: Clock }): LiveNodes {
  let count = 1;
  let counted = -1;
  /** The most that was seen in each of the last slots: counters that come back empty have forgotten who was there. */
  let most = new Map<number, number>();
  let closed = false;
  let cancel = () => {};

  async function look(): Promise<void> {
    const slot = Math.floor(clock.now() / SLOT_MS);
    const key = (at: number) => `{nodes}:${at}`;
    if (slot !== counted) {
      counted = slot;
      await counters.add([{ key: key(slot), amount: 1, expiresAt: (slot + 3) * SLOT_MS }]);
    }
    // Of the slots that are over, one may have been forgotten in part; the running one knows of a node that has just come.
    const seen = await counters.get([key(slot - 1), key(slot)]);
    const of = (at: number, now = 0) => [at, Math.max(most.get(at) ?? 0, now)] as const;
    // After a while without them, those that were there before are given the time to come back.
    if (count > 1 && !most.has(slot - 1) && !most.has(slot)) most.set(slot, count);
    most = new Map([of(slot - 2), of(slot - 1, seen[0]), of(slot, seen[1])]);
    count = Math.max(1, ...most.values());
  }

  const poll = () => {
    void look()
      .catch(() => undefined)
      .finally(() => {
        if (!closed) cancel = clock.after(LOOK_MS, poll);
      });
  };
  poll();

  return {
    get count() {
      return count;
    },
    async close() {
      closed = true;
      cancel();
    },
  };
}
