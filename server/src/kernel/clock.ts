/** Time is given, never taken: everything that waits or stamps gets a Clock. Tests use `TestClock`. */
export interface Clock {
  /** Wall clock, milliseconds since the Unix epoch. */
  now(): number;
  /** Monotonic milliseconds with fractions, for durations only. */
  monotonic(): number;
  /** Runs `fn` once after `ms`; the returned function cancels it. Does not keep the process alive. */
  after(ms: number, fn: () => void): () => void;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(ms, fn) {
    const timer = setTimeout(fn, ms);
    timer.unref();
    return () => clearTimeout(timer);
  },
};

/** A timer that keeps the process alive, unlike those of a clock itself. */
export function holdFor(clock: Clock, ms: number, fn: () => void): void {
  const hold = setInterval(() => {}, 1 << 30);
  clock.after(ms, () => {
    clearInterval(hold);
    fn();
  });
}

/** A clock that moves only when told to. Timers fire in order of their due time while it advances. */
export class TestClock implements Clock {
  #now: number;
  #timers: { due: number; order: number; fn: () => void }[] = [];
  #order = 0;

  constructor(start = Date.UTC(2026, 0, 1)) {
    this.#now = start;
  }

  now(): number {
    return this.#now;
  }

  monotonic(): number {
    return this.#now;
  }

  after(ms: number, fn: () => void): () => void {
    const timer = { due: this.#now + ms, order: this.#order++, fn };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  /** Moves time forward by `ms`, firing what falls due; promises settle between timers. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (;;) {
      const next = this.#timers
        .filter((timer) => timer.due <= end)
        .sort((a, b) => a.due - b.due || a.order - b.order)[0];
      if (!next) break;
      this.#timers = this.#timers.filter((timer) => timer !== next);
      this.#now = Math.max(this.#now, next.due);
      next.fn();
      await new Promise((resolve) => setImmediate(resolve));
    }
    this.#now = end;
  }

  /** Moves the wall clock without firing timers, as a clock jump does. */
  jump(ms: number): void {
    this.#now += ms;
  }
}
