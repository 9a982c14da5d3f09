/**
 * The thread for large bodies: 31 MB are read and written again in a tenth of a second, which no other request should wait
 * for. The first of them starts it. Organisations take turns.
 */
import { Worker } from 'node:worker_threads';
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Closable } from '../../kernel/lifecycle.ts';
import type { Log } from '../../kernel/log.ts';
import { type PoolLimits, type PoolThread, type StartThread, ThreadPool } from '../../kernel/thread-pool.ts';
import { type Done, errorOf, type Job, type Reply } from './jobs.ts';

/** The bytes that wait are bounded as bodies are (`http/body-budget.ts`); this bounds the memory around them. */
const LIMITS: PoolLimits = { threads: 1, each: 2_000, all: 10_000 };
/** A hundred times what the worst body takes; the first one also waits for the thread to start. */
const MOST_MS = 30_000;

/** A job with the memory that goes over with it. */
export interface Posted {
  readonly job: Job;
  readonly memory: readonly ArrayBuffer[];
}

export class LargeBodies implements Closable {
  readonly #pool: ThreadPool<Posted, Reply>;

  constructor(clock: Clock, log: Log, start: StartThread<Posted, Reply> = startThread(clock, log), limits = LIMITS) {
    const tooMany = () =>
      new SluiceError('out_of_service', 'Too many large bodies wait to be worked on. Try again shortly.', {
        retryAfter: 1,
      });
    this.#pool = new ThreadPool(start, limits, { endsDropped: false, tooMany });
  }

  /**
   * Does a job for an organisation and gives what drops it. `settle` is called once, unless it is dropped: with the result, the
   * error that the job threw, or SluiceError('out_of_service') where the thread could not do it.
   */
  run<J extends Job>(
    owner: string,
    posted: { readonly job: J; readonly memory: readonly ArrayBuffer[] },
    settle: (done: Done<J> | Error) => void,
  ): () => void {
    return this.#pool.run(owner, posted, (reply) => {
      if (reply instanceof Error) settle(unavailable(reply));
      else settle('failure' in reply ? errorOf(reply.failure) : (reply.done as Done<J>));
    });
  }

  close(): Promise<void> {
    this.#pool.close();
    return Promise.resolve();
  }
}

function unavailable(cause: Error): SluiceError {
  if (cause instanceof SluiceError && cause.kind === 'out_of_service') return cause;
  const message = 'A body of this request is large, and the thread that works on large bodies failed. Try again.';
  return new SluiceError('out_of_service', message, { retryAfter: 1, cause, detail: cause.message });
}

/** Starts the thread of `worker.ts`. */
export const startThread =
  (clock: Clock, log: Log, path = new URL('./worker.ts', import.meta.url)): StartThread<Posted, Reply> =>
  (answered, failed): PoolThread<Posted> => {
    const worker = new Worker(path, { execArgv: [] });
    let late: (() => void) | null = null;
    let ended = false;
    const end = (error: Error | null) => {
      late?.();
      late = null;
      if (ended) return;
      ended = true;
      if (error === null) return;
      log.error('the thread for large bodies ended', { error: error.message });
      failed(error);
    };
    // An idle thread must not keep the process alive; a request that waits is kept by its socket.
    worker.unref();
    worker.on('message', (reply: Reply) => {
      late?.();
      late = null;
      if (!ended) answered(reply);
    });
    worker.on('error', (error) => end(error instanceof Error ? error : new Error(String(error))));
    worker.on('exit', (code) => end(new Error(`the thread exited with ${code}`)));
    return {
      post({ job, memory }) {
        worker.postMessage(job, [...memory]);
        late = clock.after(MOST_MS, () => {
          void worker.terminate();
          end(new Error(`a large body took longer than ${MOST_MS / 1000} s`));
        });
      },
      end() {
        end(null);
        void worker.terminate();
      },
    };
  };
