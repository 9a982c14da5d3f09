/** Nodes that keep records where all nodes read them: one that was not ended has its last records on its own disk. */
import type { Clock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import type { Tables } from '../store/ports.ts';

export interface KnownNode {
  /** This node lives, and all that it recorded before a time (milliseconds since the epoch) is there; null: no more than before. */
  announce(completeTo: number | null): Promise<void>;
  /** This node ends, and all that it recorded is there. */
  retire(): Promise<void>;
}

/** @param clock the same on all nodes */
export function knownNode(tables: Tables, node: string, clock: Pick<Clock, 'now'>): KnownNode {
  return {
    async announce(completeTo) {
      const seen = { seen_at: clock.now() };
      const patch = completeTo === null ? seen : { ...seen, complete_to: completeTo };
      await tables.systemWrite(async (tx) => {
        if ((await tx.update('log_nodes', { node }, patch)) > 0) return;
        await tx.insert('log_nodes', { node, complete_to: completeTo ?? seen.seen_at, ...seen });
      });
    },
    async retire() {
      await tables.systemWrite((tx) => tx.remove('log_nodes', { node }));
    },
  };
}

const BEAT_MS = 5_000;

/** Says again and again that this node lives, where its keeper has nothing to say for it. */
export class SignsOfLife implements Closable {
  readonly #announce: () => Promise<void>;
  readonly #clock: Pick<Clock, 'after'>;
  readonly #log: Log;
  #cancel: () => void = () => undefined;
  #saying: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(announce: () => Promise<void>, clock: Pick<Clock, 'after'>, log: Log) {
    this.#announce = announce;
    this.#clock = clock;
    this.#log = log;
  }

  /** The first one; rejects where it cannot be said. */
  async begin(): Promise<void> {
    await this.#announce();
    this.#later();
  }

  /** Resolves when none is under way, and none follows. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancel();
    await this.#saying;
  }

  #later(): void {
    if (this.#closed) return;
    this.#cancel = this.#clock.after(BEAT_MS, () => {
      this.#saying = this.#announce()
        .catch((error: unknown) => this.#log.debug('a sign of life could not be stored', { error }))
        .finally(() => this.#later());
    });
  }
}
