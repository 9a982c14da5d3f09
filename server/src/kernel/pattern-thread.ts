import { Worker } from 'node:worker_threads';
import { matchesPattern } from './pattern.ts';

/**
 * Patterns over long texts. Linear time is still half a second for a large program over 10⁵ characters, so what is not
 * quick goes to one thread that is started when it is first needed. A match whose caller has given up ends the thread;
 * the others that wait are given to the next one.
 */

interface Job {
  readonly id: number;
  readonly pattern: string;
  readonly text: string;
  settle(found: boolean | Error): void;
}

let worker: Worker | null = null;
let nextId = 0;
/** In order: the first one is being matched. */
const waiting = new Map<number, Job>();

function begin(): Worker {
  const made = new Worker(new URL('./pattern-worker.ts', import.meta.url), {
    resourceLimits: { maxOldGenerationSizeMb: 256 },
  });
  // An idle thread must not keep the process alive; a match that is waited for is kept by its caller.
  made.unref();
  made.on('message', ({ id, found }: { id: number; found: boolean }) => waiting.get(id)?.settle(found));
  made.on('error', (error) => {
    if (worker !== made) return;
    worker = null;
    // The one at work is what broke it.
    const [first] = waiting.values();
    first?.settle(error instanceof Error ? error : new Error('the matching thread failed'));
    restart();
  });
  return made;
}

function restart(): void {
  void worker?.terminate();
  worker = null;
  if (waiting.size === 0) return;
  worker = begin();
  for (const { id, pattern, text } of waiting.values()) worker.postMessage({ id, pattern, text });
}

/**
 * Whether `pattern` (one without problem) is found in `text`: at once when that is quick, else in the thread. Rejects with
 * the reason of `signal`.
 */
export function matchesAnyLength(pattern: string, text: string, signal: AbortSignal): boolean | Promise<boolean> {
  const quick = matchesPattern(pattern, text);
  if (quick !== null) return quick;
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const id = nextId++;
    const stop = () => {
      const first = waiting.keys().next().value === id;
      job.settle(signal.reason instanceof Error ? signal.reason : new Error('the match was stopped'));
      if (first) restart();
    };
    const job: Job = {
      id,
      pattern,
      text,
      settle(found) {
        waiting.delete(id);
        signal.removeEventListener('abort', stop);
        if (found instanceof Error) reject(found);
        else resolve(found);
      },
    };
    waiting.set(id, job);
    signal.addEventListener('abort', stop, { once: true });
    worker ??= begin();
    worker.postMessage({ id, pattern, text });
  });
}
