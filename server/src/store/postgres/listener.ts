import pg from 'pg';
import type { Clock } from '../../kernel/clock.ts';
import type { Closable } from '../../kernel/lifecycle.ts';
import type { Log } from '../../kernel/log.ts';
import { connectionOptions } from './client.ts';

const FIRST_WAIT_MS = 100;
const MAX_WAIT_MS = 5_000;

export interface ListenerOptions {
  readonly url: string;
  readonly channel: string;
  readonly clock: Clock;
  readonly log: Log;
  /** Called with the payload of each notification, and with '' after a reconnect, when some may have been missed. */
  readonly heard: (payload: string) => void;
}

/** One connection that LISTENs and comes back by itself. */
export class Listener implements Closable {
  readonly #options: ListenerOptions;
  #client: pg.Client | null = null;
  #wait = FIRST_WAIT_MS;
  #cancel: (() => void) | null = null;
  #closed = false;
  #connecting: Promise<void>;

  constructor(options: ListenerOptions) {
    this.#options = options;
    this.#connecting = this.#connect(false);
  }

  /** Resolves when the first attempt to connect is over, well or not. */
  ready(): Promise<void> {
    return this.#connecting;
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#cancel?.();
    await this.#connecting;
    await this.#client?.end().catch(() => undefined);
    this.#client = null;
  }

  async #connect(again: boolean): Promise<void> {
    const { url, channel, log, heard } = this.#options;
    const client = new pg.Client(connectionOptions(url));
    let over = false;
    const lost = (error?: Error) => {
      if (over) return;
      over = true;
      if (this.#client === client) this.#client = null;
      void client.end().catch(() => undefined);
      if (this.#closed) return;
      log.warn('the change listener lost PostgreSQL and will connect again', { error: error?.message });
      this.#cancel = this.#options.clock.after(this.#wait, () => {
        this.#connecting = this.#connect(true);
      });
      this.#wait = Math.min(this.#wait * 2, MAX_WAIT_MS);
    };
    client.on('error', lost);
    client.on('end', () => lost());
    client.on('notification', (message) => heard(message.payload ?? ''));
    try {
      await client.connect();
      await client.query(`LISTEN ${channel}`);
      this.#client = client;
      this.#wait = FIRST_WAIT_MS;
      if (again) heard('');
    } catch (error) {
      lost(error as Error);
    }
  }
}
