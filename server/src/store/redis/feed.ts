import type { Log } from '../../kernel/log.ts';
import type { Feed } from '../ports.ts';
import type { Connection } from './connection.ts';

const CHANNEL = 'sluice:changes';

/** Hints over publish and subscribe. Every new connection subscribes again by itself. */
export class RedisFeed implements Feed {
  readonly #publisher: Connection;
  readonly #listeners = new Set<(seq: number) => void>();

  constructor(publisher: Connection, subscriber: Connection, log: Log) {
    this.#publisher = publisher;
    const { client } = subscriber;
    const subscribe = (): void => {
      client.subscribe(CHANNEL).catch(() => {
        // A connection that cannot subscribe is as good as none; the next one tries again.
        client.disconnect(true);
      });
    };
    client.on('ready', subscribe);
    if (client.status === 'ready') subscribe();
    client.on('message', (channel: string, text: string) => {
      if (channel !== CHANNEL) return;
      const seq = Number(text);
      if (!Number.isSafeInteger(seq) || seq < 0) return;
      for (const listener of this.#listeners) {
        try {
          listener(seq);
        } catch (error) {
          log.error('a listener of the change feed failed', { error });
        }
      }
    });
  }

  publish(seq: number): void {
    this.#publisher.run((client) => client.publish(CHANNEL, String(seq))).catch(() => undefined);
  }

  subscribe(onHint: (seq: number) => void): () => void {
    const listener = (seq: number): void => onHint(seq);
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  async close(): Promise<void> {
    this.#listeners.clear();
  }
}
