/**
 * Patterns over long texts. Linear time is still half a second for a large program over 10⁵ characters, so what is not
 * quick goes to a thread. Threads are few and shared, so that whoever asks for much waits for himself: each owner has one
 * match at work at most, owners take turns, and no more wait than `LIMITS` says.
 */
import { Worker } from 'node:worker_threads';
import { SluiceError } from './errors.ts';
import { matchesPattern } from './pattern.ts';
import { type PoolLimits, type StartThread, ThreadPool } from './thread-pool.ts';

const LIMITS: PoolLimits = { threads: 2, each: 200, all: 2_000 };

/** What a thread is asked: whether the pattern is found in the text. */
export interface Match {
  readonly pattern: string;
  readonly text: string;
}

export class MatchPool {
  readonly #pool: ThreadPool<Match, boolean>;

  constructor(start: StartThread<Match, boolean>, limits: PoolLimits = LIMITS) {
    const tooMany = () => new SluiceError('unavailable', 'Too many long texts wait to be matched; try again shortly.');
    this.#pool = new ThreadPool(start, limits, { endsDropped: true, tooMany });
  }

  /** Rejects with the reason of `signal`, or with SluiceError('unavailable') where too many wait. */
  match(owner: string, pattern: string, text: string, signal: AbortSignal): Promise<boolean> {
    return new Promise((resolve, reject) => {
      signal.throwIfAborted();
      const drop = this.#pool.run(owner, { pattern, text }, (found) => {
        signal.removeEventListener('abort', stop);
        if (found instanceof Error) reject(found);
        else resolve(found);
      });
      const stop = () => {
        reject(signal.reason instanceof Error ? signal.reason : new Error('the match was stopped'));
        drop();
      };
      signal.addEventListener('abort', stop, { once: true });
    });
  }
}

const startThread: StartThread<Match, boolean> = (answered, failed) => {
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
