import { beforeEach, describe, expect, it } from 'vitest';
import { testExchange } from '../../../test/support/exchange.ts';
import { TestClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import type { Config } from '../../resources/configs/schema.ts';
import { memoryCache } from '../../store/memory/cache.ts';
import type { Cache } from '../../store/ports.ts';
import type { Exchange } from '../exchange.ts';
import { balance, draw } from './balance.ts';
import { type BalanceNode, type RouteNode, routeOf } from './route.ts';

const nodeOf = (weights: readonly number[], sticky?: object): BalanceNode => {
  const targets = weights.map((weight, i) => ({ provider: `@p${i}`, weight }));
  const strategy = { mode: 'loadbalance', ...(sticky === undefined ? {} : { sticky: { enabled: true, ...sticky } }) };
  const { root } = routeOf({ strategy, targets } as unknown as Config);
  if (root.kind !== 'loadbalance') throw new Error(root.kind);
  return root;
};

describe('a draw', () => {
  it('never takes a target without a weight, however the fractions of the others add up', () => {
    for (let n = 2; n < 40; n++) {
      const { targets } = nodeOf([0, ...Array.from({ length: n }, (_, i) => 1 / (i + 3)), 0]);
      for (const random of [0, Number.EPSILON, 0.5, 1 - Number.EPSILON / 2])
        expect(draw(targets, random).weight).toBeGreaterThan(0);
    }
  });

  it('falls back to targets that are left out when none is left, and still not to one without a weight', async () => {
    const x = testExchange({}, { random: () => 0.99 });
    const node = nodeOf([1, 0]);
    const { pick } = await balance(x, node, 'c', ({ weight }) => weight === 0);
    expect(pick.path).toBe('config.targets[0]');
  });
});

describe('sessions', () => {
  let clock: TestClock;
  let cache: Cache;
  const TTL = { ttl: 600, hash_fields: ['metadata.user'] };

  beforeEach(() => {
    clock = new TestClock();
    cache = memoryCache({ clock, maxBytes: 1_000_000 });
  });

  const of = (user: string, dryRun = false) => {
    const x = testExchange({ url: '/', body: Buffer.from('{}') }, { cache, clock, log: silentLog, random: () => 0 });
    x.request.metadata = { user };
    x.request.dryRun = dryRun;
    return x;
  };
  const any = () => true;
  const pathOf = async (x: Exchange, node: BalanceNode, mayCall: (target: RouteNode) => boolean = any, place = 'c') =>
    (await balance(x, node, place, mayCall)).pick.path;
  const users = Array.from({ length: 40 }, (_, i) => `user ${i}`);

  it('last for their time from the first request on, then are drawn anew', async () => {
    const node = nodeOf([1, 1, 1], TTL);
    const first = await Promise.all(users.map((user) => pathOf(of(user), node)));
    await clock.advance(599_000);
    expect(await Promise.all(users.map((user) => pathOf(of(user), node)))).toEqual(first);
    await clock.advance(2_000);
    expect(await Promise.all(users.map((user) => pathOf(of(user), node)))).not.toEqual(first);
  });

  it('go elsewhere when their target is left out, and stay there when it is back', async () => {
    const node = nodeOf([1, 1], TTL);
    const before = await pathOf(of('one'), node);
    const after = await pathOf(of('one'), node, ({ path }) => path !== before);
    expect(after).not.toBe(before);
    expect(await pathOf(of('one'), node)).toBe(after);
  });

  it('of another config, or another group of it, are others', async () => {
    const inner = { mode: 'loadbalance', sticky: { enabled: true, ...TTL } };
    const group = { strategy: inner, targets: [{ provider: '@a' }, { provider: '@b' }] };
    const { root } = routeOf({ strategy: { mode: 'fallback' }, targets: [group, group] } as unknown as Config);
    const [one, two] = root.kind === 'fallback' ? (root.targets as BalanceNode[]) : [];
    if (one === undefined || two === undefined) throw new Error('no groups');
    const index = async (node: BalanceNode, place: string) =>
      Promise.all(users.map(async (user) => (await pathOf(of(user), node, any, place)).slice(-2)));
    const first = await index(one, 'c');
    expect(await index(two, 'c')).not.toEqual(first);
    expect(await index(one, 'd')).not.toEqual(first);
  });

  it('are not begun by a dry run', async () => {
    const kept: string[] = [];
    const inner = cache;
    cache = {
      get: (key) => inner.get(key),
      set: (key, value, ttlMs) => {
        kept.push(value.toString());
        return inner.set(key, value, ttlMs);
      },
      delete: (key) => inner.delete(key),
      close: () => inner.close(),
    };
    const node = nodeOf([1, 1], TTL);
    const dry = await pathOf(of('one', true), node);
    expect(kept).toEqual([]);
    expect(await pathOf(of('one'), node)).toBe(dry);
    expect(kept).toEqual([dry.slice(-2, -1)]);
  });

  it('are drawn by their values alone while the cache is away', async () => {
    const away = () => Promise.reject(new Error('away'));
    cache = { ...cache, get: away, set: away };
    const node = nodeOf([1, 1, 1], TTL);
    const first = await Promise.all(users.map((user) => pathOf(of(user), node)));
    expect(await Promise.all(users.map((user) => pathOf(of(user), node)))).toEqual(first);
    expect(new Set(first).size).toBe(3);
  });
});
