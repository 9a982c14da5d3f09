import type { Clock } from '../kernel/clock.ts';

const WINDOW_MS = 60_000;
const FREE_FAILURES = 10;
const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 15 * 60_000;

interface Entry {
  failures: number;
  windowEnds: number;
  /** No attempt is looked at before this time. */
  blockedUntil: number;
  wait: number;
}

/**
 * Counts failed attempts per source (rule A-07): ten in a minute are free, then each further one doubles the wait, up to
 * 15 minutes. Forgets a source after 15 quiet minutes, and the oldest one when the map is full.
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
    const entry = this.#entries.get(source);
    return entry === undefined ? 0 : Math.max(0, entry.blockedUntil - this.#clock.monotonic());
  }

  failed(source: string): void {
    const now = this.#clock.monotonic();
    let entry = this.#entries.get(source);
    if (entry === undefined || now > Math.max(entry.windowEnds, entry.blockedUntil) + LONGEST_WAIT_MS) {
      if (entry === undefined && this.#entries.size >= this.#capacity) this.#evict();
      entry = { failures: 0, windowEnds: now + WINDOW_MS, blockedUntil: 0, wait: FIRST_WAIT_MS };
      this.#entries.set(source, entry);
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
