import type { Clock } from '../kernel/clock.ts';
import { countLiveNodes } from '../limits/live-nodes.ts';
import type { LocalShare } from '../limits/rate-limits.ts';
import { countersByClock } from '../store/ipc/ipc.ts';
import { memoryCache } from '../store/memory/cache.ts';
import { memoryCounters } from '../store/memory/counters.ts';
import type { Bus, Cache, Counters, Feed } from '../store/ports.ts';
import type { Common, WorkerRole } from './common.ts';
import type { Stores } from './stores.ts';

/** Answers kept in a process that has no Redis. */
const CACHE_BYTES = 64 * 1024 * 1024;

/** What nodes share beside the stores: over Redis, else as far as one machine or process reaches. */
export interface Shared {
  readonly counters: Counters;
  /** Of windows of this process alone, for when the shared ones are away; null where `counters` are of this machine. */
  readonly share: LocalShare | null;
  readonly cache: Cache;
  /** Null: changes are looked for, and told by nothing. */
  readonly feed: Feed | null;
  /** Null: processes of other nodes are not reached. */
  readonly bus: Bus | null;
  /** Null: there is no Redis. */
  readonly redis: { ping(): Promise<unknown> } | null;
}

/** Connects to Redis when it is configured. */
export async function openShared(common: Common, { storeClock }: Stores): Promise<Shared> {
  const { config, clock, log, lifecycle, worker } = common;
  if (config.redisUrl === null) {
    const counters = lifecycle.own('counters', countersOfMachine(worker, storeClock, clock));
    const cache = lifecycle.own('cache', memoryCache({ clock, maxBytes: CACHE_BYTES }));
    return { counters, share: null, cache, feed: worker.shared?.feed ?? null, bus: null, redis: null };
  }
  const { openRedis } = await import('../store/redis/redis.ts');
  const redis = lifecycle.own('redis', await openRedis({ url: config.redisUrl, log, clock: storeClock }));
  const { counters, cache, feed, bus } = redis;
  // With Redis away every node admits its share of a limit.
  const nodes = lifecycle.own('live nodes', countLiveNodes({ counters, clock: storeClock }));
  return { counters, share: { counters: memoryCounters({ clock: storeClock }), nodes }, cache, feed, bus, redis };
}

/** Counters that the processes of this machine share, or this process alone has. */
function countersOfMachine({ shared }: WorkerRole, windows: Clock, machine: Clock): Counters {
  return shared === null ? memoryCounters({ clock: windows }) : countersByClock(shared.counters, windows, machine);
}
