/** Log files past their days: each node removes those on its own disk, and starts no keeper to find that there are none. */
import type { Clock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import type { Tables } from '../store/ports.ts';
import type { KeeperClient } from './keeper-client.ts';

const EVERY_MS = 60 * 60_000;
const DAY_MS = 86_400_000;

export interface OldFilesOptions {
  readonly tables: Tables;
  readonly keeper: Pick<KeeperClient, 'forgetBefore'>;
  /** The node on whose disk they are; null: files of all nodes. */
  readonly node: string | null;
  /** Days that records are kept; 0: for ever. */
  readonly days: number;
  /** Whether records are in a store elsewhere, too: it is looked at by the keeper. */
  readonly elsewhere: boolean;
  readonly clock: Clock;
  readonly log: Log;
}

export class OldFiles implements Closable {
  readonly #options: OldFilesOptions;
  #cancel: () => void = () => undefined;
  #closed = false;

  constructor(options: OldFilesOptions) {
    this.#options = options;
    if (options.days > 0) this.#later();
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#cancel();
  }

  #later(): void {
    const { clock, log } = this.#options;
    this.#cancel = clock.after(EVERY_MS, () => {
      this.#forget()
        .catch((error: unknown) => log.warn('old log files could not be removed yet', { error }))
        .finally(() => {
          if (!this.#closed) this.#later();
        });
    });
  }

  async #forget(): Promise<void> {
    const { tables, keeper, node, days, elsewhere, clock } = this.#options;
    const before = clock.now() - days * DAY_MS;
    const day = { lt: Math.floor(before / DAY_MS) };
    const where = node === null ? { day, remove_at: 0 } : { day, node };
    const old = await tables.systemRead((tx) => tx.list('log_files', { where, limit: 1 }));
    if (elsewhere || old.length > 0) await keeper.forgetBefore(before);
  }
}
