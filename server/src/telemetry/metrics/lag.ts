import type { Clock } from '../../kernel/clock.ts';
import type { Closable } from '../../kernel/lifecycle.ts';

/** Between two looks, milliseconds. */
const EVERY_MS = 250;
/** Looks that the longest delay is taken of: 15 seconds. */
const LOOKS = 60;

/** What must be looked at all the time, because it is over by the time that somebody asks. */
export class Lag implements Closable {
  readonly #clock: Clock;
  readonly #late = new Float64Array(LOOKS);
  readonly #unshipped: () => number;
  readonly #shipped: () => number;
  #looks = 0;
  #due = 0;
  #lastShipped = -1;
  #movedAt: number;
  #cancel: () => void = () => {};

  /**
   * @param waiting bytes in the journal that the log store does not have
   * @param shipped records that it has taken, since the start
   */
  constructor(clock: Clock, waiting: () => number, shipped: () => number) {
    this.#clock = clock;
    this.#unshipped = waiting;
    this.#shipped = shipped;
    this.#movedAt = clock.monotonic();
    this.#wait();
  }

  /** Longest delay of a timer in the last 15 seconds, seconds. */
  eventLoop(): number {
    return this.#late.reduce((most, late) => Math.max(most, late), 0) / 1_000;
  }

  /** Seconds for which something waits and nothing was taken. */
  log(): number {
    this.#look();
    return (this.#clock.monotonic() - this.#movedAt) / 1_000;
  }

  async close(): Promise<void> {
    this.#cancel();
  }

  #wait(): void {
    this.#due = this.#clock.monotonic() + EVERY_MS;
    this.#cancel = this.#clock.after(EVERY_MS, () => {
      this.#late[this.#looks % LOOKS] = Math.max(0, this.#clock.monotonic() - this.#due);
      this.#looks += 1;
      this.#look();
      this.#wait();
    });
  }

  #look(): void {
    const shipped = this.#shipped();
    if (this.#unshipped() > 0 && shipped === this.#lastShipped) return;
    this.#lastShipped = shipped;
    this.#movedAt = this.#clock.monotonic();
  }
}
