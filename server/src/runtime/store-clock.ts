/**
 * The store's time on this node. What several nodes must agree on, such as when a key expires, goes by the
 * store's clock: a node whose own clock is minutes off, or is set while it runs, neither prolongs a key nor ends it early.
 */
import type { Clock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import type { Tables } from '../store/ports.ts';

const EVERY_MS = 1_000;
/** Differences up to this, and half the time of the call, are the measurement's own: time would only go back and forth. */
const NOISE_MS = 10;
/** A node whose clock is further off than this logs a warning at its start. */
const SKEW_MS = 2_000;

export interface StoreClock extends Clock, Closable {
  /** How far this node's own clock is ahead of the store's, milliseconds. */
  skew(): number;
  /** Asks the store now. Never rejects: while it is away, time goes on from what was known. */
  sync(): Promise<void>;
}

/**
 * A clock whose `now` is the store's, carried on by the node's monotonic clock and compared every second. Timers and
 * durations are the node's. Resolves after the first comparison.
 */
export async function startStoreClock(options: {
  readonly tables: Pick<Tables, 'now'>;
  readonly clock: Clock;
  readonly log: Log;
}): Promise<StoreClock> {
  const { tables, clock, log } = options;
  /** Store time less monotonic time. Until the store was asked, this node's own. */
  let offset = clock.now() - clock.monotonic();
  let known = false;
  let closed = false;
  let cancel = () => {};
  let running: Promise<void> | null = null;

  async function compare(): Promise<void> {
    const asked = clock.monotonic();
    let time: number;
    try {
      time = await tables.now();
    } catch {
      // The parts that need the store will say that it is away.
      return;
    }
    const answered = clock.monotonic();
    const first = !known;
    known = true;
    const measured = time - (asked + answered) / 2;
    const change = measured - offset;
    const skew = clock.now() - clock.monotonic() - measured;
    if (first && Math.abs(skew) > SKEW_MS)
      log.warn("this node's clock is not that of the store; records and limits go by the store's", {
        ahead_ms: Math.round(skew),
      });
    if (Math.abs(change) <= NOISE_MS + (answered - asked) / 2) return;
    offset = measured;
    if (!first) log.warn('the clock of the store and that of this node have moved apart', { ms: Math.round(change) });
  }

  function sync(): Promise<void> {
    running ??= compare().finally(() => {
      running = null;
    });
    return running;
  }

  const poll = () => {
    void sync().finally(() => {
      if (!closed) cancel = clock.after(EVERY_MS, poll);
    });
  };
  await sync();
  cancel = clock.after(EVERY_MS, poll);

  return {
    now: () => Math.round(offset + clock.monotonic()),
    monotonic: () => clock.monotonic(),
    after: (ms, fn) => clock.after(ms, fn),
    sync,
    skew: () => Math.round(clock.now() - clock.monotonic() - offset),
    async close() {
      closed = true;
      cancel();
      await running;
    },
  };
}
