import type { Log } from '../../kernel/log.ts';
import type { Bus } from '../ports.ts';
import type { Connection } from './connection.ts';

/** Messages over publish and subscribe. Every new connection subscribes again by itself. */
export class RedisBus implements Bus {
  readonly #publisher: Connection;
  readonly #subscriber: Connection;
  readonly #log: Log;
  readonly #listeners = new Map<string, (text: string) => void>();

  constructor(publisher: Connection, subscriber: Connection, log: Log) {
    this.#publisher = publisher;
    this.#subscriber = subscriber;
    this.#log = log;
    const { client } = subscriber;
    client.on('ready', () => {
      for (const channel of this.#listeners.keys()) this.#subscribe(channel);
    });
    client.on('message', (channel: string, text: string) => {
      try {
        this.#listeners.get(channel)?.(text);
      } catch (error) {
        this.#log.error('a message of another node could not be taken', { channel, error });
      }
    });
  }

  async send(channel: string, text: string): Promise<boolean> {
    return this.#publisher
      .run((client) => client.publish(channel, text))
      .then(
        () => true,
        () => false,
      );
  }

  listen(channel: string, onMessage: (text: string) => void): () => void {
    this.#listeners.set(channel, onMessage);
    if (this.#subscriber.client.status === 'ready') this.#subscribe(channel);
    return () => {
      this.#listeners.delete(channel);
      this.#subscriber.client.unsubscribe(channel).catch(() => undefined);
    };
  }

  #subscribe(channel: string): void {
    // A connection that cannot subscribe is as good as none; the next one tries again.
    this.#subscriber.client.subscribe(channel).catch(() => this.#subscriber.client.disconnect(true));
  }
}
