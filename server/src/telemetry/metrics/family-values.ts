import type { Clock } from '../../kernel/clock.ts';
import { nextTurn } from '../../kernel/turns.ts';
import type { FamilyName } from './families.ts';

/** The numbers of one combination of label values, as `Cell` has them. */
export interface CellValues {
  readonly labels: readonly string[];
  readonly values: ArrayLike<number>;
}

/** A family with what is to be shown of it. */
export interface FamilyValues {
  readonly name: FamilyName;
  readonly labels: readonly string[];
  readonly cells: readonly CellValues[];
}

/** After so many milliseconds the rest waits for the next turn of the event loop: with what the runtime adds, 2 ms at most. */
const SLICE_MS = 0.5;

/** Work that may be long, with turns of the event loop between its slices. */
export class Slices {
  readonly #clock: Clock;
  #began: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#began = clock.monotonic();
  }

  /** Whether the loop was held long enough. */
  due(): boolean {
    return this.#clock.monotonic() - this.#began >= SLICE_MS;
  }

  async next(): Promise<void> {
    await nextTurn();
    this.#began = this.#clock.monotonic();
  }
}
