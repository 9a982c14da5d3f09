import { createHash } from 'node:crypto';
import type pg from 'pg';
import type { Log } from '../../kernel/log.ts';
import { openPool, transaction } from './client.ts';

/** First half of the advisory locks of queues: any fixed number that others are unlikely to use. */
const QUEUE_LOCKS = 731_058_203;
/** Queues of this process whose turn is taken or waited for at the same time. */
const CONNECTIONS = 4;

/**
 * Work by the name of a queue, one after another. Within a process the turn is taken here, so that only one connection
 * waits for the other processes, whose turn the lock decides.
 *
 * The lock is held by a transaction on a separate connection. Taken inside the work's transaction it would be younger
 * than its snapshot; taken by the session it would be left behind on whatever connection a pooler in transaction mode had
 * lent for that one statement.
 */
export class Queues {
  readonly #url: string;
  readonly #log: Log;
  /** Beside the pool of the work, which may be full of those that wait here. */
  #pool: pg.Pool | null = null;
  readonly #last = new Map<string, Promise<unknown>>();

  constructor(url: string, log: Log) {
    this.#url = url;
    this.#log = log;
  }

  /** In several queues at once: the place in all of them is taken now, so that no two wait for each other. */
  async run<T>(queues: readonly string[], work: () => Promise<T>): Promise<T> {
    const before = queues.map((queue) => this.#last.get(queue));
    const mine = (async () => {
      for (const one of before) await one?.catch(() => undefined);
      return this.#locked(queues, work);
    })();
    for (const queue of queues) this.#last.set(queue, mine);
    try {
      return await mine;
    } finally {
      for (const queue of queues) if (this.#last.get(queue) === mine) this.#last.delete(queue);
    }
  }

  async #locked<T>(queues: readonly string[], work: () => Promise<T>): Promise<T> {
    this.#pool ??= openPool(this.#url, CONNECTIONS, this.#log);
    const locks = queues.map((queue) => createHash('sha256').update(queue).digest().readInt32BE());
    // In the same order on every node, for the same reason.
    const taken = [...new Set(locks)]
      .sort((a, b) => a - b)
      .map((lock) => `pg_advisory_xact_lock(${QUEUE_LOCKS}, ${lock})`);
    let done: { readonly value: T } | null = null;
    try {
      return await transaction(this.#pool, `BEGIN; SELECT ${taken.join(', ')}`, async () => {
        done = { value: await work() };
        return done.value;
      });
    } catch (error) {
      // The work is committed; only its turn ended badly.
      if (done !== null) return (done as { readonly value: T }).value;
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.#pool?.end();
  }
}
