import type { Change } from '../store/ports.ts';

/** Kept changes; a reader that is further behind takes everything for changed. */
const MOST = 1_000;

export interface NotedChange {
  readonly change: Change;
  readonly number: number;
}

/** Changes in their order, for readers that come when they like. */
export class ChangeLog {
  #changes: NotedChange[] = [];
  #begin = 0;

  /** Where the next change will be. */
  end = 0;

  add(change: Change, number: number): void {
    this.#changes.push({ change, number });
    this.end += 1;
    if (this.#changes.length <= 2 * MOST) return;
    this.#begin += this.#changes.length - MOST;
    this.#changes = this.#changes.slice(-MOST);
  }

  /** What was added since the log ended at `end`; null when that is not kept any more. */
  after(end: number): readonly NotedChange[] | null {
    return end < this.#begin ? null : this.#changes.slice(end - this.#begin);
  }
}
