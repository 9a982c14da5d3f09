import type { Random } from '../kernel/random.ts';

export interface BackOff {
  /** Milliseconds of the first wait. */
  readonly first: number;
  readonly most: number;
  /** Each wait is this many times the one before. */
  readonly factor: number;
}

/**
 * Milliseconds before try `n + 1` after `n` failures in a row, from 1: between half and the whole of the exponential
 * step, so that those who failed together do not come back together.
 */
export function backOff({ first, most, factor }: BackOff, n: number, random: Random): number {
  const step = Math.min(most, first * factor ** Math.max(0, n - 1));
  return Math.ceil(step * (0.5 + random() / 2));
}
