import { randomBytes, randomUUID } from 'node:crypto';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { anyRedis, ownRedisMissing, redisMissing, startRedis } from '../../../test/support/redis.ts';
import { systemClock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { silentLog } from '../../kernel/log.ts';
import { cacheSuite } from '../conformance/cache.ts';
import { countersSuite } from '../conformance/counters.ts';
import { feedSuite } from '../conformance/feed.ts';
import { openRedis } from './redis.ts';

const open = (url: string) => openRedis({ url, log: silentLog, clock: systemClock });
/** Where it is not tested how soon a server that is away is given up, on a machine that may be busy. */
const openPatiently = (url: string) => openRedis({ url, log: silentLog, clock: systemClock, timeoutMs: 5_000 });
/** A machine that does other things adds to a wait of 50 ms; one without a time-out has no end. */
const BUSY_MS = 2_000;
const median = (all: readonly number[]) => [...all].sort((a, b) => a - b)[all.length >> 1] ?? 0;

describe.skipIf(redisMissing !== null)(redisMissing ?? 'on a real server', () => {
  countersSuite('Redis', async () => {
    const server = await anyRedis();
    const store = await openPatiently(server.url);
    const close = async () => {
      await store.close();
      await server.close();
    };
    return { counters: store.counters, now: () => Date.now(), close };
  });

  cacheSuite('Redis', async () => {
    const server = await anyRedis();
    const store = await open(server.url);
    const close = async () => {
      await store.close();
      await server.close();
    };
    return { cache: store.cache, pass: (ms) => new Promise((resolve) => setTimeout(resolve, ms)), close };
  });

  feedSuite('Redis', async () => {
    const server = await anyRedis();
    const here = await open(server.url);
    const there = await open(server.url);
    const close = async () => {
      await here.close();
      await there.close();
      await server.close();
    };
    return { nodes: [here.feed, there.feed], close };
  });
});

describe.skipIf(ownRedisMissing !== null)(ownRedisMissing ?? 'on a server of its own', () => {
  countersSuite('Redis, every slot checked as in a cluster', async () => {
    const server = await startRedis({ cluster: true });
    const store = await openPatiently(server.url);
    const close = async () => {
      await store.close();
      await server.close();
    };
    return { counters: store.counters, now: () => Date.now(), close };
  });

  async function setup(opened = openPatiently) {
    const server = await startRedis();
    const store = await opened(server.url);
    onTestFinished(async () => {
      server.resume();
      await store.close();
      await server.close();
    });
    const key = `{${randomUUID()}}:k`;
    const hit = () => store.counters.hit([{ key, amount: 1, limit: 1_000, expiresAt: Date.now() + 60_000 }]);
    const timed = async (work: () => Promise<unknown>) => {
      const start = performance.now();
      const error = await work().then(
        () => null,
        (reason: unknown) => reason,
      );
      return { error, ms: performance.now() - start };
    };
    return { server, ...store, key, hit, timed };
  }

  it('while Redis is down counters refuse within 50 ms, the cache misses, and both recover by themselves', async () => {
    const { server, counters, cache, hit, timed } = await setup(open);
    // 50 ms are soon over on a busy machine, for the first answer too.
    await vi.waitFor(hit, { timeout: 20_000 });
    await cache.set('c', Buffer.from('x'), 60_000);
    await server.kill();
    const waits: number[] = [];
    for (let i = 0; i < 5; i++) {
      const failed = await timed(hit);
      expect(failed.error).toMatchObject({ name: 'SluiceError', kind: 'unavailable' });
      waits.push(failed.ms);
    }
    expect(median(waits)).toBeLessThan(100);
    expect((await timed(() => counters.get(['{a}b']))).error).toMatchObject({ kind: 'unavailable' });
    expect(await cache.get('c')).toBeNull();
    await cache.set('c', Buffer.from('x'), 60_000);
    await cache.delete('c');
    await server.start();
    await vi.waitFor(async () => expect((await hit()).allowed).toBe(true), { timeout: 20_000, interval: 20 });
  });

  it('a server that hangs delays nobody by more than the time-out, and soon nobody at all', async () => {
    const { server, cache, hit, timed } = await setup(open);
    // 50 ms are soon over on a busy machine, for the first answer too.
    await vi.waitFor(hit, { timeout: 20_000 });
    server.pause();
    const first = await timed(hit);
    expect(first.error).toMatchObject({ kind: 'unavailable' });
    expect(first.ms).toBeLessThan(BUSY_MS);
    expect((await timed(() => cache.get('c'))).ms).toBeLessThan(BUSY_MS);
    for (const end = performance.now() + 200; performance.now() < end; ) await timed(hit);
    const later = [];
    for (let i = 0; i < 10; i++) later.push((await timed(hit)).ms);
    expect(median(later)).toBeLessThan(45);
    server.resume();
    await vi.waitFor(async () => expect((await hit()).allowed).toBe(true), { timeout: 20_000, interval: 20 });
  });

  it('a server that is down at the start is no reason not to start', async () => {
    const server = await startRedis();
    onTestFinished(server.close);
    await server.kill();
    const store = await open(server.url);
    onTestFinished(store.close);
    const hits: number[] = [];
    store.feed.subscribe((seq) => hits.push(seq));
    await expect(store.counters.get(['{a}k'])).rejects.toMatchObject({ kind: 'unavailable' });
    await server.start();
    await vi.waitFor(
      async () => {
        expect(await store.counters.get(['{a}k'])).toEqual([0]);
        store.feed.publish(5);
        expect(hits).toContain(5);
      },
      { timeout: 20_000, interval: 20 },
    );
  });

  it('the feed subscribes again after the server came back', async () => {
    const { server, feed } = await setup();
    const seen: number[] = [];
    feed.subscribe((seq) => seen.push(seq));
    await server.kill();
    await server.start();
    let seq = 0;
    await vi.waitFor(
      () => {
        feed.publish(++seq);
        expect(seen.length).toBeGreaterThan(0);
      },
      { timeout: 20_000, interval: 20 },
    );
    feed.publish(1_000);
    await vi.waitFor(() => expect(seen).toContain(1_000), { timeout: 15_000 });
  });

  it('counters go on when the server has forgotten their script; one that was emptied by hand counts anew', async () => {
    const { server, hit, key, counters } = await setup();
    await hit();
    await server.client.script('FLUSH');
    expect((await hit()).used).toEqual([2]);
    await server.client.flushall();
    expect((await hit()).used).toEqual([1]);
    expect(await counters.get([key])).toEqual([1]);
  });

  it('a server that restarts empty is reminded of a window, also by a call that is refused, until it is over', async () => {
    const { server, counters, key } = await setup();
    const window = (limit: number) => [{ key, amount: 1, limit, expiresAt: Date.now() + 60_000 }];
    const restart = async () => {
      await server.kill();
      await server.start();
      await vi.waitFor(() => counters.get([key]), { timeout: 20_000, interval: 20 });
    };
    for (let i = 0; i < 3; i++) await counters.hit(window(3));
    await restart();
    expect(await counters.get([key])).toEqual([0]);
    expect(await counters.hit(window(3))).toEqual({ allowed: false, refusedBy: 0, used: [3] });
    expect(await counters.get([key])).toEqual([3]);
    await counters.add([{ key, amount: -1, expiresAt: Date.now() + 60_000 }]);
    expect((await counters.hit(window(3))).allowed).toBe(true);
    await counters.add([{ key, amount: 1, expiresAt: Date.now() - 1 }]);
    await restart();
    expect((await counters.hit(window(3))).used).toEqual([1]);
  });

  it('what one node takes back is not brought back by another', async () => {
    const { server, counters, key } = await setup();
    const other = await openPatiently(server.url);
    onTestFinished(other.close);
    const window = [{ key, amount: 1, limit: 10, expiresAt: Date.now() + 60_000 }];
    await counters.hit(window);
    await other.counters.hit(window);
    await counters.add([{ key, amount: -1, expiresAt: Date.now() + 60_000 }]);
    expect((await other.counters.hit(window)).used).toEqual([2]);
  });

  it('wrong data under a key counts as nothing and is replaced', async () => {
    const { server, hit, key, counters, cache, feed } = await setup();
    const wrong = [randomBytes(40), 'nan', '-5', '1e400', ''];
    for (const value of wrong) {
      await server.client.set(`sluice:c1:${key}`, value);
      expect(await counters.get([key])).toEqual([0]);
      expect((await hit()).used).toEqual([1]);
    }
    await server.client.del(`sluice:c1:${key}`);
    await server.client.rpush(`sluice:c1:${key}`, 'a');
    expect((await hit()).used).toEqual([1]);

    await cache.set('k', Buffer.from('value'), 60_000);
    const stored = await server.client.getBuffer('sluice:k1:k');
    if (!stored) throw new Error('the cache stored nothing');
    for (let i = 0; i < stored.length; i++) {
      const changed = Buffer.from(stored);
      changed[i] = (changed[i] ?? 0) ^ 0x40;
      await server.client.set('sluice:k1:k', changed);
      expect(await cache.get('k'), `byte ${i}`).toBeNull();
    }
    await server.client.del('sluice:k1:k');
    await server.client.rpush('sluice:k1:k', 'a');
    expect(await cache.get('k')).toBeNull();

    const seen: number[] = [];
    feed.subscribe((seq) => seen.push(seq));
    for (const text of ['x', '-1', '1.5', '']) await server.client.publish('sluice:changes', text);
    await server.client.publish('sluice:changes', '12');
    await vi.waitFor(() => expect(seen).toContain(12), { timeout: 15_000 });
    expect(seen.filter((seq) => seq !== 0)).toEqual([12]);
  });

  it('a window ends by itself, so nothing stays in the server', async () => {
    const { server, key, counters } = await setup();
    await counters.hit([{ key, amount: 1, limit: 10, expiresAt: Date.now() + 80 }]);
    expect(await server.client.pttl(`sluice:c1:${key}`)).toBeGreaterThan(0);
    await vi.waitFor(async () => expect(await server.client.dbsize()).toBe(0), { timeout: 20_000, interval: 20 });
    expect(await counters.get([key])).toEqual([0]);
  });

  it('two nodes share one limit exactly', async () => {
    const { server, counters, key } = await setup();
    const other = await openPatiently(server.url);
    onTestFinished(other.close);
    const expiresAt = Date.now() + 600_000;
    let allowed = 0;
    let unanswered = 0;
    let refused = 0;
    const round = async () => {
      const hits = Array.from({ length: 20 }, (_, i) =>
        (i % 2 ? counters : other.counters).hit([{ key, amount: 1, limit: 77, expiresAt }]),
      );
      for (const result of await Promise.allSettled(hits)) {
        if (result.status === 'fulfilled' && result.value.allowed) allowed += 1;
        else if (result.status === 'fulfilled') refused += 1;
        // On a busy machine an answer may come too late; the server may have counted it all the same.
        else if (result.reason instanceof SluiceError && result.reason.kind === 'unavailable') unanswered += 1;
        else throw result.reason;
      }
    };
    await vi.waitFor(
      async () => {
        await round();
        expect(refused).toBeGreaterThan(100);
      },
      { timeout: 15_000, interval: 1 },
    );
    expect(allowed).toBeLessThanOrEqual(77);
    expect(allowed + unanswered).toBeGreaterThanOrEqual(77);
    await vi.waitFor(async () => expect(await counters.get([key])).toEqual([77]), { timeout: 20_000, interval: 20 });
  });
});

it('a Redis URL that cannot be read stops the start with one line that shows what is allowed', async () => {
  for (const url of ['', 'localhost:6379', 'http://localhost', 'redis']) {
    await expect(open(url)).rejects.toThrow(/SLUICE_REDIS_URL must look like redis:\/\//);
  }
});
