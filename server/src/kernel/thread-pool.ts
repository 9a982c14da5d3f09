/**
 * Work for threads that are few and shared. Each owner has one piece of work under way at most, owners take turns, and no more
 * waits than `PoolLimits` says.
 */
import { SluiceError } from './errors.ts';

export interface PoolLimits {
  readonly threads: number;
  /** Work of one owner that waits. */
  readonly each: number;
  /** Work of all owners together that waits or is under way. */
  readonly all: number;
}

/** What a pool needs of a thread, which has one piece of work at a time. */
export interface PoolThread<W> {
  post(work: W): void;
  end(): void;
}

/** Starts a thread; `answered` or `failed` is called once for each thing that is posted. A thread that failed is gone. */
export type StartThread<W, R> = (answered: (result: R) => void, failed: (error: Error) => void) => PoolThread<W>;

/** Called once in a turn to come, unless the work is dropped before. */
export type Settle<R> = (result: R | Error) => void;

interface Job<W, R> {
  readonly owner: string;
  readonly work: W;
  settle: Settle<R> | null;
}

interface Slot<W, R> {
  readonly thread: PoolThread<W>;
  job: Job<W, R> | null;
}

export class ThreadPool<W, R> {
  readonly #start: StartThread<W, R>;
  readonly #limits: PoolLimits;
  /** Work that is dropped while it is under way ends its thread. Otherwise it runs to its end, for nobody. */
  readonly #endsDropped: boolean;
  readonly #tooMany: () => SluiceError;
  /** Owners in the order of their turns; each has something that waits. */
  readonly #waiting = new Map<string, Job<W, R>[]>();
  readonly #slots: Slot<W, R>[] = [];
  #count = 0;

  /** @param options.tooMany the refusal of what is too much */
  constructor(
    start: StartThread<W, R>,
    limits: PoolLimits,
    options: { readonly endsDropped: boolean; readonly tooMany: () => SluiceError },
  ) {
    this.#start = start;
    this.#limits = limits;
    this.#endsDropped = options.endsDropped;
    this.#tooMany = options.tooMany;
  }

  /** Gives what drops the work. Throws `tooMany` where too much waits. */
  run(owner: string, work: W, settle: Settle<R>): () => void {
    const waiting = this.#waiting.get(owner);
    if ((waiting?.length ?? 0) >= this.#limits.each || this.#count >= this.#limits.all) throw this.#tooMany();
    this.#count += 1;
    const job: Job<W, R> = { owner, work, settle };
    if (waiting === undefined) this.#waiting.set(owner, [job]);
    else waiting.push(job);
    this.#next();
    return () => this.#drop(job);
  }

  /** Ends the threads; what is under way or waits fails. */
  close(): void {
    const error = new SluiceError('unavailable', 'The server is stopping; try again shortly.');
    const jobs = [...this.#waiting.values()].flat();
    this.#waiting.clear();
    for (const { thread, job } of this.#slots.splice(0)) {
      thread.end();
      if (job !== null) jobs.push(job);
    }
    for (const job of jobs) this.#settle(job, error);
  }

  #settle(job: Job<W, R>, result: R | Error): void {
    const { settle } = job;
    if (settle === null) return;
    job.settle = null;
    this.#count -= 1;
    settle(result);
  }

  /** Gives the threads that are free what comes next. */
  #next(): void {
    for (const [owner, jobs] of this.#waiting) {
      if (this.#slots.some(({ job }) => job?.owner === owner)) continue;
      const slot = this.#free();
      if (slot === null) return;
      const job = jobs.shift();
      // The owner that has had a turn waits for those of all others.
      this.#waiting.delete(owner);
      if (jobs.length > 0) this.#waiting.set(owner, jobs);
      if (job === undefined) continue;
      slot.job = job;
      try {
        slot.thread.post(job.work);
      } catch (error) {
        slot.job = null;
        const told = error instanceof Error ? error : new Error('the work could not be posted', { cause: error });
        queueMicrotask(() => this.#settle(job, told));
      }
    }
  }

  #free(): Slot<W, R> | null {
    const idle = this.#slots.find(({ job }) => job === null);
    if (idle !== undefined) return idle;
    if (this.#slots.length >= this.#limits.threads) return null;
    const end = (result: R | Error) => {
      const { job } = slot;
      slot.job = null;
      // A thread that has failed is gone; what it was given is what broke it.
      if (result instanceof Error) this.#remove(slot);
      if (job !== null) this.#settle(job, result);
      this.#next();
    };
    const slot: Slot<W, R> = { thread: this.#start(end, end), job: null };
    this.#slots.push(slot);
    return slot;
  }

  #drop(job: Job<W, R>): void {
    if (job.settle === null) return;
    job.settle = null;
    this.#count -= 1;
    const slot = this.#slots.find((one) => one.job === job);
    if (slot !== undefined) {
      if (!this.#endsDropped) return;
      // Nothing else ends what is under way.
      slot.job = null;
      this.#remove(slot);
      slot.thread.end();
    } else {
      const jobs = this.#waiting.get(job.owner)?.filter((one) => one !== job) ?? [];
      if (jobs.length > 0) this.#waiting.set(job.owner, jobs);
      else this.#waiting.delete(job.owner);
    }
    this.#next();
  }

  #remove(slot: Slot<W, R>): void {
    const at = this.#slots.indexOf(slot);
    if (at >= 0) this.#slots.splice(at, 1);
  }
}
