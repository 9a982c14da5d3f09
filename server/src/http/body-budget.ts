import { totalmem } from 'node:os';
import { type Clock, systemClock } from '../kernel/clock.ts';
import { FairShares } from '../kernel/fair-shares.ts';
import { Turns } from '../kernel/turns.ts';

/** Bodies up to this size are not counted: their number is bounded by the requests under way. */
export const FREE_BYTES = 64 * 1024;

/**
 * Bytes of bodies that may be held at once. Every body has its own limit, but many requests could together hold more than
 * the process has; past its share of this bound an organisation's large bodies are refused until others of it are done.
 */
export class BodyBudget {
  readonly shares: FairShares;

  /** In which large bodies and answers are read and worked on. */
  readonly turns: Turns;

  constructor(max: number, clock: Clock = systemClock) {
    this.turns = new Turns(clock);
    this.shares = new FairShares('bytes of bodies', max);
  }

  get held(): number {
    return this.shares.held;
  }

  /** Counts a body that grew from `before` to `now` bytes. False, and nothing counted, when that would be too much. */
  grow(holder: string, before: number, now: number): boolean {
    const more = counted(now) - counted(before);
    if (more === 0) return true;
    if (more > 0) return this.shares.take(holder, more);
    this.shares.give(holder, -more);
    return true;
  }

  /** A body of this size is not needed any more. */
  release(holder: string, size: number): void {
    if (size > FREE_BYTES) this.shares.give(holder, size);
  }
}

const counted = (size: number): number => (size > FREE_BYTES ? size : 0);

/** Bytes of request bodies one process may hold: its share of a quarter of the memory there is. */
export function bodyMemory(workers: number): number {
  const limit = process.constrainedMemory();
  const total = limit > 0 ? Math.min(limit, totalmem()) : totalmem();
  return Math.floor(total / 4 / Math.max(1, workers));
}
