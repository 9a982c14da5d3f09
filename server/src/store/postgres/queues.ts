import { createHash } from 'node:crypto';
import type { AdvisoryLock } from './client.ts';

/** First half of the advisory locks of queues: any fixed number that others are unlikely to use. */
const QUEUE_LOCKS = 731_058_203;

/**
 * Work by the name of a queue, one after another. Within a process the turn is taken here, so that only one connection
 * of the pool waits for the other processes, whose turn the lock decides.
 */
export class Queues {
  readonly #last = new Map<string, Promise<unknown>>();

  async run<T>(queue: string, work: (lock: AdvisoryLock) => Promise<T>): Promise<T> {
    const before = this.#last.get(queue);
    const mine = (async () => {
      await before?.catch(() => undefined);
      return work([QUEUE_LOCKS, createHash('sha256').update(queue).digest().readInt32BE()]);
    })();
    this.#last.set(queue, mine);
    try {
      return await mine;
    } finally {
      if (this.#last.get(queue) === mine) this.#last.delete(queue);
    }
  }
}
