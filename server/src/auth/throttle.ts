import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { networkOf } from '../kernel/network.ts';

const WINDOW_MS = 60_000;
const FREE_FAILURES = 10;
const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 15 * 60_000;
/** Attempts a second that are looked at although their source is over its limit. */
const LOOKS_A_SECOND = 250;

interface Entry {
  failures: number;
  windowEnds: number;
  /** A failure before this time is answered 429. */
  blockedUntil: number;
  wait: number;
  looks: number;
  looksEnd: number;
}

/**
 * Counts failed attempts per source: ten in a minute are free, then each further one doubles the wait, up to
 * 15 minutes. Only failed attempts wait: a true secret from the same source is never locked out. Forgets a source after
 * 15 quiet minutes, and the oldest one when the map is full. All IPv6 addresses of a /64 are one source.
 */
export class Throttle {
  readonly #clock: Clock;
  readonly #capacity: number;
  readonly #entries = new Map<string, Entry>();

  constructor(clock: Clock, capacity = 10_000) {
    this.#clock = clock;
    this.#capacity = capacity;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Milliseconds until `source` may try again, or 0. */
  blockedFor(source: string): number {
    const entry = this.#entries.get(networkOf(source));
    return entry === undefined ? 0 : Math.max(0, entry.blockedUntil - this.#clock.monotonic());
  }

  /**
   * Whether an attempt may be looked up, which costs a read of the store. A source over its limit has 250 a second: a
   * guesser cannot keep the store busy, and a true secret from the same address gets its turn.
   */
  mayLook(source: string): boolean {
    const entry = this.#entries.get(networkOf(source));
    const now = this.#clock.monotonic();
    if (entry === undefined || entry.blockedUntil <= now) return true;
    if (now >= entry.looksEnd) {
      entry.looks = 0;
      entry.looksEnd = now + 1_000;
    }
    entry.looks += 1;
    return entry.looks <= LOOKS_A_SECOND;
  }

  /**
   * Looks a secret up by `attempt`. When that throws `unauthenticated`, the failure counts for `source`, and past the limit
   * it is thrown as `too_many_requests` with `message`.
   */
  async watch<T>(source: string, message: string, attempt: () => Promise<T>): Promise<T> {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof SluiceError) || error.kind !== 'unauthenticated') throw error;
      this.failed(source);
      const wait = this.blockedFor(source);
      throw wait > 0 ? tooMany(wait, message) : error;
    }
  }

  failed(source: string): void {
    const now = this.#clock.monotonic();
    const who = networkOf(source);
    let entry = this.#entries.get(who);
    if (entry === undefined || now > Math.max(entry.windowEnds, entry.blockedUntil) + LONGEST_WAIT_MS) {
      if (entry === undefined && this.#entries.size >= this.#capacity) this.#evict();
      entry = { failures: 0, windowEnds: now + WINDOW_MS, blockedUntil: 0, wait: FIRST_WAIT_MS, looks: 0, looksEnd: 0 };
      this.#entries.set(who, entry);
    }
    if (now > entry.windowEnds) {
      entry.failures = 0;
      entry.windowEnds = now + WINDOW_MS;
    }
    entry.failures += 1;
    if (entry.failures <= FREE_FAILURES) return;
    entry.blockedUntil = now + entry.wait;
    entry.wait = Math.min(entry.wait * 2, LONGEST_WAIT_MS);
  }

  #evict(): void {
    const oldest = this.#entries.keys().next();
    if (!oldest.done) this.#entries.delete(oldest.value);
  }
}

/** The refusal of a source that failed too often. */
export function tooMany(waitMs: number, message: string): SluiceError {
  return new SluiceError('throttled', message, { retryAfter: Math.max(1, Math.ceil(waitMs / 1000)) });
}
