import type { Clock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import type { Feed, SequencedChange, Tables } from '../store/ports.ts';

const BATCH = 1000;
/** After so long without a look (a machine that slept) changes may have been removed unread (`jobs/retention.ts`). */
const MISSED_MS = 12 * 3_600_000;

export interface Watch extends Closable {
  /** Reads and applies everything committed so far. */
  catchUp(): Promise<void>;
  /** Milliseconds since the last successful read of the change feed. */
  age(): number;
}

/**
 * Follows the change feed: hints (this process, the database, Redis) wake it, and it polls every second besides, so a
 * lost hint costs at most a second. Changes are applied in commit order; applying one twice is harmless.
 */
export async function startWatch(options: {
  readonly tables: Tables;
  readonly feed: Feed | null;
  readonly clock: Clock;
  readonly log: Log;
  readonly pollMs?: number;
  readonly apply: (changes: readonly SequencedChange[]) => void;
  /** Changes may be gone that were never applied: nothing that was kept may be believed. */
  readonly missed?: () => void;
  /** Everything committed before this time of `Clock.monotonic` has been applied. */
  readonly confirmed?: (readAt: number) => void;
}): Promise<Watch> {
  const { tables, feed, clock, log, apply, pollMs = 1000 } = options;
  let seq = await tables.lastChange();
  let lastRead = clock.monotonic();
  let lastSeen = clock.now();
  let running: Promise<void> | null = null;
  let again = false;
  let closed = false;
  let failing = false;

  async function drain(): Promise<void> {
    do {
      again = false;
      for (;;) {
        const readAt = clock.monotonic();
        const changes = await tables.changesAfter(seq, BATCH);
        lastRead = readAt;
        const now = clock.now();
        if (now - lastSeen > MISSED_MS) options.missed?.();
        lastSeen = now;
        if (failing) log.info('the change feed is readable again');
        failing = false;
        const last = changes.at(-1);
        if (last !== undefined) {
          apply(changes);
          seq = last.seq;
        }
        if (changes.length === BATCH) continue;
        options.confirmed?.(readAt);
        break;
      }
    } while (again && !closed);
    // In the same turn as the look at `again`: a hint that came between them would join a run that reads no more.
    running = null;
  }

  function wake(): Promise<void> {
    if (closed) return Promise.resolve();
    if (running !== null) {
      again = true;
      return running;
    }
    running = drain().catch((error: unknown) => {
      running = null;
      if (!failing) log.warn('the change feed cannot be read', { error: String(error) });
      failing = true;
    });
    return running;
  }

  const unhint = tables.onChangeHint(() => {
    void wake();
    feed?.publish(seq + 1);
  });
  const unsubscribe = feed?.subscribe(() => void wake());
  let cancel = () => {};
  const poll = () => {
    if (closed) return;
    void wake().finally(() => {
      if (!closed) cancel = clock.after(pollMs, poll);
    });
  };
  cancel = clock.after(pollMs, poll);

  return {
    catchUp: wake,
    age: () => clock.monotonic() - lastRead,
    async close() {
      closed = true;
      cancel();
      unhint();
      unsubscribe?.();
      await running;
    },
  };
}
