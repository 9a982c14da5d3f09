/**
 * Patterns over long texts. Linear time is still half a second for a large program over 10⁵ characters, so what is not
 * quick goes to a thread. Threads are few and shared, so that whoever asks for much waits for himself: each owner has one
 * match at work at most, owners take turns, and no more wait than `LIMITS` says.
 */
import { Worker } from 'node:worker_threads';
import { SluiceError } from './errors.ts';
import { matchesPattern } from './pattern.ts';

export interface PoolLimits {
  readonly threads: number;
  /** Matches that wait or are at work, of one owner and of all together. */
  readonly each: number;
  readonly all: number;
}

const LIMITS: PoolLimits = { threads: 2, each: 200, all: 2_000 };

/** What a pool needs of a thread: messages `{ pattern, text }` in, `{ found }` out, one at a time. */
export interface MatchThread {
  post(job: { readonly pattern: string; readonly text: string }): void;
  end(): void;
}

/** Starts a thread; `answered` and `failed` are called once for what was posted. */
export type StartThread = (answered: (found: boolean) => void, failed: (error: Error) => void) => MatchThread;

interface Job {
  readonly owner: string;
  readonly pattern: string;
  readonly text: string;
  settle(found: boolean | Error): void;
}

interface Slot {
  readonly thread: MatchThread;
  job: Job | null;
}

export class MatchPool {
  readonly #start: StartThread;
  readonly #limits: PoolLimits;
  /** Owners in the order of their turns; each has something that waits. */
  readonly #waiting = new Map<string, Job[]>();
  readonly #slots: Slot[] = [];
  #count = 0;

  constructor(start: StartThread, limits: PoolLimits = LIMITS) {
    this.#start = start;
    this.#limits = limits;
  }

  /** Rejects with the reason of `signal`, or with SluiceError('unavailable') where too many wait. */
  match(owner: string, pattern: string, text: string, signal: AbortSignal): Promise<boolean> {
    return new Promise((resolve, reject) => {
      signal.throwIfAborted();
      const own = this.#waiting.get(owner);
      if ((own?.length ?? 0) >= this.#limits.each || this.#count >= this.#limits.all) {
        throw new SluiceError('unavailable', 'Too many long texts wait to be matched; try again shortly.');
      }
      const stop = () => {
        this.#drop(job);
        job.settle(signal.reason instanceof Error ? signal.reason : new Error('the match was stopped'));
        this.#next();
      };
      const job: Job = {
        owner,
        pattern,
        text,
        settle: (found) => {
          this.#count -= 1;
          signal.removeEventListener('abort', stop);
          if (found instanceof Error) reject(found);
          else resolve(found);
        },
      };
      this.#count += 1;
      signal.addEventListener('abort', stop, { once: true });
      if (own === undefined) this.#waiting.set(owner, [job]);
      else own.push(job);
      this.#next();
    });
  }

  /** Gives the threads that are free what comes next. */
  #next(): void {
    for (const [owner, jobs] of this.#waiting) {
      if (this.#slots.some(({ job }) => job?.owner === owner)) continue;
      const slot = this.#free();
      if (slot === null) return;
      const job = jobs.shift();
      // Whoever has had a turn waits for those of all others.
      this.#waiting.delete(owner);
      if (jobs.length > 0) this.#waiting.set(owner, jobs);
      if (job === undefined) continue;
      slot.job = job;
      slot.thread.post(job);
    }
  }

  #free(): Slot | null {
    const idle = this.#slots.find(({ job }) => job === null);
    if (idle !== undefined) return idle;
    if (this.#slots.length >= this.#limits.threads) return null;
    const end = (found: boolean | Error) => {
      const { job } = slot;
      slot.job = null;
      // A thread that has failed is gone; what it was given is what broke it.
      if (found instanceof Error) this.#remove(slot);
      job?.settle(found);
      this.#next();
    };
    const slot: Slot = { thread: this.#start(end, end), job: null };
    this.#slots.push(slot);
    return slot;
  }

  #drop(job: Job): void {
    const slot = this.#slots.find((one) => one.job === job);
    if (slot !== undefined) {
      // Nothing else ends a match that is under way.
      slot.job = null;
      this.#remove(slot);
      slot.thread.end();
      return;
    }
    const jobs = this.#waiting.get(job.owner)?.filter((one) => one !== job) ?? [];
    if (jobs.length > 0) this.#waiting.set(job.owner, jobs);
    else this.#waiting.delete(job.owner);
  }

  #remove(slot: Slot): void {
    const at = this.#slots.indexOf(slot);
    if (at >= 0) this.#slots.splice(at, 1);
  }
}

const startThread: StartThread = (answered, failed) => {
  const worker = new Worker(new URL('./pattern-worker.ts', import.meta.url), {
    resourceLimits: { maxOldGenerationSizeMb: 256 },
  });
  let ended = false;
  // An idle thread must not keep the process alive; a match that is waited for is kept by its caller.
  worker.unref();
  worker.on('message', ({ found }: { found: boolean }) => {
    if (!ended) answered(found);
  });
  worker.on('error', (error) => {
    if (!ended) failed(error instanceof Error ? error : new Error('the matching thread failed'));
    ended = true;
  });
  return {
    post: (job) => worker.postMessage({ pattern: job.pattern, text: job.text }),
    end() {
      ended = true;
      void worker.terminate();
    },
  };
};

const pool = new MatchPool(startThread);

/**
 * Whether `pattern` (one without problem) is found in `text`: at once when that is quick, else in a thread. Rejects with
 * the reason of `signal`, or with SluiceError('unavailable') where too many matches wait.
 *
 * @param owner whose turn it takes: an organisation
 */
export function matchesAnyLength(
  pattern: string,
  text: string,
  { signal, owner }: { readonly signal: AbortSignal; readonly owner: string },
): boolean | Promise<boolean> {
  return matchesPattern(pattern, text) ?? pool.match(owner, pattern, text, signal);
}
