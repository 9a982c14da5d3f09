/** How many times in a window the total is noted. */
const NOTES = 5;

/**
 * Whether bytes keep coming: at least so many a second over each window. What came before does not count, so bytes
 * that are sent at once do not pay for silence after them.
 */
export class RateFloor {
  readonly #bytesPerMs: number;
  readonly #windowMs: number;
  /** Times and totals, oldest first. */
  readonly #times: number[] = [0];
  readonly #totals: number[] = [0];

  /** @param rate bytes a second */
  constructor(rate: number, windowMs: number) {
    this.#bytesPerMs = rate / 1000;
    this.#windowMs = windowMs;
  }

  /** False when too little came: `total` bytes in the `ms` since the begin. The first window is free. */
  keeps(ms: number, total: number): boolean {
    const times = this.#times;
    const totals = this.#totals;
    while (times.length > 1 && (times[1] as number) <= ms - this.#windowMs) {
      times.shift();
      totals.shift();
    }
    const since = ms - (times[0] as number);
    const got = total - (totals[0] as number);
    if (ms - (times.at(-1) as number) >= this.#windowMs / NOTES) {
      times.push(ms);
      totals.push(total);
    }
    return since < this.#windowMs || got >= since * this.#bytesPerMs;
  }
}
