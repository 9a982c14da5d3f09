import type { Clock } from '../../kernel/clock.ts';
import type { Counters, WindowHit, WindowResult } from '../ports.ts';

interface Count {
  value: number;
  expiresAt: number;
}

/** Entries looked at per call, so expired windows leave without a pass over all of them. */
const SWEEP = 4;

class MemoryCounters implements Counters {
  readonly #clock: Clock;
  readonly #counts = new Map<string, Count>();
  #sweep = this.#counts.entries();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Number of windows held, expired ones included. */
  get size(): number {
    return this.#counts.size;
  }

  async hit(windows: readonly WindowHit[]): Promise<WindowResult> {
    const now = this.#clock.now();
    this.#clean(now);
    let refusedBy = -1;
    const before: number[] = [];
    for (const [index, { key, amount, limit, expiresAt }] of windows.entries()) {
      const used = this.#value(key, now);
      if (used + amount > limit) {
        refusedBy = index;
        break;
      }
      // Taken at once, so two windows with one key see each other; a later refusal gives everything back.
      before.push(used);
      this.#set(key, used + amount, expiresAt, now);
    }
    for (let index = refusedBy - 1; index >= 0; index--) {
      const window = windows[index];
      if (window) this.#set(window.key, before[index] ?? 0, window.expiresAt, now);
    }
    return { allowed: refusedBy < 0, refusedBy, used: windows.map(({ key }) => this.#value(key, now)) };
  }

  async add(windows: readonly Omit<WindowHit, 'limit'>[]): Promise<void> {
    const now = this.#clock.now();
    this.#clean(now);
    for (const { key, amount, expiresAt } of windows) this.#add(key, amount, expiresAt, now);
  }

  async get(keys: readonly string[]): Promise<number[]> {
    const now = this.#clock.now();
    return keys.map((key) => this.#value(key, now));
  }

  async close(): Promise<void> {
    this.#counts.clear();
  }

  #value(key: string, now: number): number {
    const count = this.#counts.get(key);
    return count && count.expiresAt > now ? count.value : 0;
  }

  #add(key: string, amount: number, expiresAt: number, now: number): void {
    this.#set(key, this.#value(key, now) + amount, expiresAt, now);
  }

  #set(key: string, value: number, expiresAt: number, now: number): void {
    if (expiresAt <= now) {
      this.#counts.delete(key);
      return;
    }
    const count = this.#counts.get(key);
    if (count) {
      count.value = Math.max(0, value);
      count.expiresAt = expiresAt;
    } else {
      this.#counts.set(key, { value: Math.max(0, value), expiresAt });
    }
  }

  #clean(now: number): void {
    for (let i = 0; i < SWEEP; i++) {
      const next = this.#sweep.next();
      if (next.done) {
        this.#sweep = this.#counts.entries();
        return;
      }
      const [key, count] = next.value;
      if (count.expiresAt <= now) this.#counts.delete(key);
    }
  }
}

/** Counters of this process alone: what one node without Redis limits by. */
export function memoryCounters({ clock }: { readonly clock: Clock }): Counters & { readonly size: number } {
  return new MemoryCounters(clock);
}
