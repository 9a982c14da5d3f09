import type { Clock } from './clock.ts';
import type { Log, LogFields } from './log.ts';

/** How many lines at once, and how many a second after that. */
export interface NoteBound {
  readonly burst: number;
  readonly perSecond: number;
}

/** Counts what may be written: refilled by time, with what was left out since the last time. */
export class Bound {
  readonly #clock: Clock;
  readonly #bound: NoteBound;
  #left: number;
  #at: number;
  #suppressed = 0;

  constructor(clock: Clock, bound: NoteBound) {
    this.#clock = clock;
    this.#bound = bound;
    this.#left = bound.burst;
    this.#at = clock.monotonic();
  }

  /** Null: not this one. Else how many were left out since the last that was written. */
  take(): number | null {
    const { burst, perSecond } = this.#bound;
    const now = this.#clock.monotonic();
    this.#left = Math.min(burst, this.#left + ((now - this.#at) / 1000) * perSecond);
    this.#at = now;
    if (this.#left < 1) {
      this.#suppressed += 1;
      return null;
    }
    this.#left -= 1;
    const suppressed = this.#suppressed;
    this.#suppressed = 0;
    return suppressed;
  }
}

/** What operators look for in the log when callers complain. */
export const NOTES = {
  limit: 'a limit refused a request',
  guardrail: 'a guardrail refused a request',
  breaker: 'a target was left out by its circuit breaker',
  dns: 'a host name could not be looked up',
} as const;

export type NoteKind = keyof typeof NOTES;

/** One warning for each such event, bounded for each kind by itself, so that a flood fills neither a disk nor the log. */
export type Notes = (kind: NoteKind, fields: LogFields) => void;

/** Of one kind: 20 lines at once, then one a second, about 30 MB a day at most. */
const BOUND: NoteBound = { burst: 20, perSecond: 1 };

export const silentNotes: Notes = () => {};

export function createNotes(log: Log, clock: Clock, bound = BOUND): Notes {
  const bounds = new Map<NoteKind, Bound>();
  return (kind, fields) => {
    let own = bounds.get(kind);
    if (own === undefined) {
      own = new Bound(clock, bound);
      bounds.set(kind, own);
    }
    const suppressed = own.take();
    if (suppressed === null) return;
    log.warn(NOTES[kind], suppressed === 0 ? { ...fields } : { ...fields, suppressed });
  };
}
