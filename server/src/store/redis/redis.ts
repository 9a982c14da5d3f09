import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Closable } from '../../kernel/lifecycle.ts';
import type { Log } from '../../kernel/log.ts';
import type { Bus, Cache, Counters, Feed } from '../ports.ts';
import { RedisBus } from './bus.ts';
import { RedisCache } from './cache.ts';
import { COMMAND_TIMEOUT_MS, Connection } from './connection.ts';
import { RedisCounters } from './counters.ts';
import { RedisFeed } from './feed.ts';

export interface RedisStore extends Closable {
  readonly counters: Counters;
  readonly cache: Cache;
  readonly feed: Feed;
  readonly bus: Bus;
  /** Throws SluiceError('unavailable') with place, cause and what to do while the server does not answer within a second. */
  ping(): Promise<void>;
}

/**
 * Counters, cache and change hints shared by several nodes, on Redis 6.2 or Valkey and newer. A server that is down
 * at the start or later is no error here: counters throw SluiceError('unavailable') within 20 ms, the cache misses, the
 * feed is silent, and all recover by themselves. Windows of counters go by `clock`. Throws SluiceError('validation') for a URL it cannot read.
 */
export async function openRedis({
  url,
  log,
  clock,
  timeoutMs = COMMAND_TIMEOUT_MS,
}: {
  readonly url: string;
  readonly log: Log;
  readonly clock: Clock;
  /** Longest a command may wait for its answer. */
  readonly timeoutMs?: number;
}): Promise<RedisStore> {
  const commands = new Connection(url, log, 'commands', timeoutMs);
  const subscriber = new Connection(url, log, 'feed', timeoutMs);
  const feed = new RedisFeed(commands, subscriber, log);
  await Promise.all([commands.firstConnect(), subscriber.firstConnect()]);
  return {
    counters: new RedisCounters(commands, clock),
    cache: new RedisCache(commands),
    feed,
    bus: new RedisBus(commands, subscriber, log),
    async ping() {
      await commands.client.ping().catch((error: Error) => {
        // The client's own error says only that it is not connected.
        const cause = commands.client.status === 'ready' ? error.message : commands.reason || error.message;
        throw new SluiceError(
          'unavailable',
          `The Redis at ${new URL(url).host} cannot be used: ${cause.replace(/\.$/, '')}. Start it, or correct SLUICE_REDIS_URL.`,
          { cause: error },
        );
      });
    },
    async close() {
      await feed.close();
      commands.close();
      subscriber.close();
    },
  };
}
