/** Turns of the event loop for what is large, so that one organisation's bodies leave the loop to the others. */
import type { Clock } from './clock.ts';

/** Resolves in the next turn of the event loop: the sockets of all others are served before. */
export const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Work in steps, and what comes of it: each `yield` is a place where others may have the event loop. */
export type Steps<T> = Generator<void, T>;

/** For how many milliseconds steps may follow each other in one turn. */
const STEPS_MS = 4;

/** Takes the steps one behind the other, for what is small or nobody waits for. */
export function atOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}

/**
 * Takes the steps in as many turns of the event loop as they need, four milliseconds or one step each. Never to be called
 * within a write transaction: on SQLite all other writes would wait for every one of these turns.
 */
export async function inTurns<T>(steps: Steps<T>, clock: Pick<Clock, 'monotonic'>): Promise<T> {
  let began = clock.monotonic();
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
    if (clock.monotonic() - began < STEPS_MS) continue;
    await nextTurn();
    began = clock.monotonic();
  }
}

/** A turn of so many milliseconds is as short as any other work. */
const SHORT_MS = 0.1;
/** How many times as long as its turn an organisation waits for its next one: it has a quarter of the loop at most. */
const REST = 3;
/** So long after a request of somebody else there are others to wait for. */
const OTHERS_MS = 1_000;

interface Holder {
  readonly name: string;
  readonly waiting: (() => void)[];
  /** Monotonic milliseconds until which it has no turn. */
  rests: number;
}

/**
 * Runs what waits one by one, each in a turn of the event loop for itself: between two of them the sockets of all others are
 * served. Holders, which are organisations, are served in order, and each in the order in which it came. Who has
 * held the loop rests for three times as long, unless there is nobody else.
 */
export class Turns {
  readonly #clock: Clock;
  readonly #waiting = new Map<string, Holder>();
  #runs = false;
  #next: (() => void) | null = null;
  #current: Holder | null = null;
  #began = 0;
  #running = false;
  #wake: (() => void) | null = null;
  #last = '';
  #changed = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Called with each request: whether there are others than one holder. */
  saw(holder: string): void {
    if (holder === this.#last) return;
    this.#last = holder;
    this.#changed = this.#clock.monotonic();
  }

  /** Runs `work` in a turn to come. It is run also when what asked for it is over by then, and must not throw. */
  take(holder: string, work: () => void): void {
    const own = this.#of(holder);
    own.waiting.push(work);
    this.#start();
  }

  /** Resolves in a turn to come; what follows at once belongs to it. */
  wait(holder: string): Promise<void> {
    return new Promise((resolve) => this.take(holder, resolve));
  }

  /** The holder has held the loop for so many milliseconds. Within its own turn that is counted already. */
  spent(holder: string, ms: number): void {
    if (ms > SHORT_MS && !(this.#running && this.#current?.name === holder)) this.#charge(this.#of(holder), ms);
  }

  #of(holder: string): Holder {
    let own = this.#waiting.get(holder);
    if (own === undefined) {
      own = { name: holder, waiting: [], rests: 0 };
      this.#waiting.set(holder, own);
    }
    return own;
  }

  #charge(own: Holder, ms: number): void {
    const now = this.#clock.monotonic();
    if (now - this.#changed < OTHERS_MS) own.rests = Math.max(own.rests, now) + REST * ms;
  }

  #start(): void {
    if (this.#runs) return;
    this.#runs = true;
    this.#wake?.();
    this.#wake = null;
    this.#choose();
  }

  /** The work and what measures it run one behind the other, with nothing but the work's own promises between them. */
  #choose(): void {
    const now = this.#clock.monotonic();
    let soonest = Number.POSITIVE_INFINITY;
    for (const [name, own] of this.#waiting) {
      const work = own.waiting[0];
      if (own.rests > now) {
        if (work !== undefined) soonest = Math.min(soonest, own.rests);
        continue;
      }
      this.#waiting.delete(name);
      if (work === undefined) continue;
      own.waiting.shift();
      this.#waiting.set(name, own);
      this.#current = own;
      this.#next = work;
      setImmediate(this.#run);
      setImmediate(this.#measure);
      return;
    }
    this.#runs = false;
    if (soonest < Number.POSITIVE_INFINITY)
      this.#wake = this.#clock.after(Math.max(1, soonest - now), () => {
        this.#wake = null;
        this.#start();
      });
  }

  readonly #run = (): void => {
    this.#began = this.#clock.monotonic();
    this.#running = true;
    this.#next?.();
    this.#next = null;
  };

  readonly #measure = (): void => {
    this.#running = false;
    const ms = this.#clock.monotonic() - this.#began;
    const own = this.#current;
    if (own !== null) {
      if (ms > SHORT_MS) this.#charge(own, ms);
      // A holder that has had a turn waits for those of all others.
      this.#waiting.delete(own.name);
      this.#waiting.set(own.name, own);
      this.#current = null;
    }
    this.#choose();
  };
}
