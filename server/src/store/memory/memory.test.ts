import { describe, expect, it } from 'vitest';
import { TestClock } from '../../kernel/clock.ts';
import { cacheSuite } from '../conformance/cache.ts';
import { countersSuite } from '../conformance/counters.ts';
import { feedSuite } from '../conformance/feed.ts';
import { memoryCache } from './cache.ts';
import { memoryCounters } from './counters.ts';
import { memoryFeed } from './feed.ts';

countersSuite('in memory', async () => {
  const clock = new TestClock();
  return { counters: memoryCounters({ clock }), now: () => clock.now() };
});

cacheSuite('in memory', async () => {
  const clock = new TestClock();
  return { cache: memoryCache({ clock, maxBytes: 1 << 20 }), pass: (ms) => clock.advance(ms) };
});

feedSuite('in memory', async () => {
  const feed = memoryFeed();
  return { nodes: [feed, feed] };
});

describe('counters in memory', () => {
  it('starts a window again from 0 once its end has passed', async () => {
    const clock = new TestClock();
    const counters = memoryCounters({ clock });
    const hit = () => counters.hit([{ key: 'k', amount: 1, limit: 1, expiresAt: clock.now() + 1_000 }]);
    expect((await hit()).allowed).toBe(true);
    expect((await hit()).allowed).toBe(false);
    await clock.advance(1_000);
    expect((await hit()).allowed).toBe(true);
  });

  it('does not grow with windows that are over', async () => {
    const clock = new TestClock();
    const counters = memoryCounters({ clock });
    for (let i = 0; i < 20_000; i++) {
      await counters.hit([{ key: `k${i}`, amount: 1, limit: 1, expiresAt: clock.now() + 100 }]);
      clock.jump(1);
    }
    expect(counters.size).toBeLessThan(1_000);
  });
});

describe('cache in memory', () => {
  it('stays within its bytes and gives up the least recently used first', async () => {
    const clock = new TestClock();
    const cache = memoryCache({ clock, maxBytes: 12_000 });
    const value = Buffer.alloc(1_000);
    for (let i = 0; i < 20; i++) {
      await cache.get('k0');
      await cache.set(`k${i}`, value, 60_000);
    }
    const held = [];
    for (let i = 0; i < 20; i++) if (await cache.get(`k${i}`)) held.push(i);
    expect(held).toEqual([0, 13, 14, 15, 16, 17, 18, 19]);
  });

  it('does not take a value larger than all it may hold, and drops the one it would have replaced', async () => {
    const cache = memoryCache({ clock: new TestClock(), maxBytes: 10_000 });
    await cache.set('other', Buffer.from('o'), 60_000);
    await cache.set('k', Buffer.from('small'), 60_000);
    await cache.set('k', Buffer.alloc(20_000), 60_000);
    expect(await cache.get('k')).toBeNull();
    expect((await cache.get('other'))?.toString()).toBe('o');
  });

  it('holds no more memory than its bound, however many large and small answers come', async () => {
    const maxBytes = 4 * 1024 * 1024;
    const cache = memoryCache({ clock: new TestClock(), maxBytes });
    const sizes = [1_500, 300_000, 200, 4_000, 1_000_000, 1_500, 64_000];
    const keys: string[] = [];
    for (let i = 0; i < 4000; i++) {
      // At first large and small ones, then small ones only, between what else a process needs for a moment.
      if (i === 1000) sizes.splice(0, 7, 1_500, 200);
      Buffer.allocUnsafe(3_000);
      const key = `answer ${i}`;
      keys.push(key);
      await cache.set(key, Buffer.allocUnsafe(sizes[i % sizes.length] ?? 0), 60_000);
      if (i % 200 !== 199) continue;
      let held = 0;
      const memories = new Set<ArrayBufferLike>();
      for (const one of keys.splice(0)) {
        const value = await cache.get(one);
        if (value === null) continue;
        keys.push(one);
        // Memory that a value shares with others stays as long as any of them.
        if (!memories.has(value.buffer)) held += value.buffer.byteLength;
        memories.add(value.buffer);
      }
      expect(held).toBeGreaterThan(i < 1000 ? maxBytes / 2 : 0);
      expect(held).toBeLessThanOrEqual(maxBytes);
    }
  });
});
