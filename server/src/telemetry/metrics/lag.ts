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
  #looks = 0;
  #due = 0;
  #cancel: () => void = () => {};

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#wait();
  }

  /** Longest delay of a timer in the last 15 seconds, seconds. */
  eventLoop(): number {
    return this.#late.reduce((most, late) => Math.max(most, late), 0) / 1_000;
  }

  async close(): Promise<void> {
    this.#cancel();
  }

  #wait(): void {
    this.#due = this.#clock.monotonic() + EVERY_MS;
    this.#cancel = this.#clock.after(EVERY_MS, () => {
      this.#late[this.#looks % LOOKS] = Math.max(0, this.#clock.monotonic() - this.#due);
      this.#looks += 1;
      this.#wait();
    });
  }
}
