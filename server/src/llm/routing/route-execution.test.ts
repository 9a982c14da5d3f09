import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { testExchange } from '../../../test/support/exchange.ts';
import { anyRedis, redisMissing } from '../../../test/support/redis.ts';
import { systemClock, TestClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import { silentNotes } from '../../kernel/notes.ts';
import type { Config } from '../../resources/configs/schema.ts';
import { memoryCache } from '../../store/memory/cache.ts';
import type { Cache } from '../../store/ports.ts';
import { openRedis, type RedisStore } from '../../store/redis/redis.ts';
import type { AttemptResult } from '../state/attempt-result.ts';
import { Breakers } from './breaker.ts';
import { type Leaf, type RouteNode, routeOf } from './route.ts';
import { newRouteExecution, plannedLeaves, runNode } from './route-execution.ts';

const DONE: AttemptResult = { kind: 'done' };

const leavesOf = (node: RouteNode): Leaf[] => (node.kind === 'target' ? [node] : node.targets.flatMap(leavesOf));

const ownCache = () => memoryCache({ clock: new TestClock(), maxBytes: 1e6 });

/** One process, as far as the way through a config sees it. */
class Node {
  readonly clock: TestClock;
  readonly breakers: Breakers;
  readonly cache: Cache;
  random = 0;

  constructor(cache: Cache, clock = new TestClock()) {
    this.cache = cache;
    this.clock = clock;
    this.breakers = new Breakers(clock);
  }

  /** Walks the config once; `call` answers for a target, whose path is told. */
  async walk(config: Config, user: string | null, call: (path: string) => Promise<number> | number): Promise<string[]> {
    const { clock, breakers, cache } = this;
    const called: string[] = [];
    const random = () => this.random;
    const x = testExchange({}, { clock, breakers, cache, random, log: silentLog, notes: silentNotes });
    x.request.metadata = user === null ? null : { user };
    x.outcome.status = 200;
    const execution = newRouteExecution(x, routeOf(config), 'ws v1');
    x.execution = execution;
    const run = async (leaf: Leaf): Promise<AttemptResult> => {
      // As a target is tried: told before anything is waited for.
      const told = leaf.breaker === null ? null : breakers.begin(`${execution.breakers} ${leaf.path}`, leaf.breaker);
      called.push(leaf.path);
      const status = await call(leaf.path);
      told?.({ status, late: false });
      x.outcome.status = status;
      return DONE;
    };
    await plannedLeaves(x, execution, execution.route.root);
    await runNode(x, execution, { run, passOver: () => {} }, execution.route.root);
    return called;
  }

  /** Opens the breaker of a target by the failures that its config asks for. */
  open(config: Config, at: number): void {
    const leaf = leavesOf(routeOf(config).root)[at] as Leaf;
    if (leaf.breaker === null) throw new Error('no breaker');
    for (let i = 0; i < (leaf.breaker.failures ?? 1); i++)
      this.breakers.begin(`ws v1 ${leaf.path}`, leaf.breaker)({ status: 503, late: false });
  }
}

const cb_config = { failure_threshold: 2, cooldown_interval: 30_000 };
const config = (
  strategy: Config['strategy'],
  targets: Config[] = [{ provider: '@a' }, { provider: '@b' }],
): Config => ({
  ...(strategy === undefined ? {} : { strategy }),
  targets,
  cb_config,
});
const sticky = { enabled: true, hash_fields: ['metadata.user'], ttl: 600 };
const [A, B] = ['config.targets[0]', 'config.targets[1]'];

describe('a target that may be tried again', () => {
  const kinds: [string, Config][] = [
    ['fallback', config({ mode: 'fallback' })],
    ['load balancer', config({ mode: 'loadbalance' }, [{ provider: '@a', weight: 1e6 }, { provider: '@b' }])],
    [
      'load balancer with sessions',
      config({ mode: 'loadbalance', sticky }, [
        { provider: '@a', weight: 1e9 },
        { provider: '@b', weight: 1 },
      ]),
    ],
    [
      'fallback of load balancers',
      config({ mode: 'fallback' }, [
        { strategy: { mode: 'loadbalance' }, targets: [{ provider: '@a' }, { provider: '@c', weight: 0 }] },
        { provider: '@b' },
      ]),
    ],
  ];

  it.each(kinds)(
    '%s: is tried by one of all requests that come together, which the others do without',
    async (_title, one) => {
      const node = new Node(ownCache());
      node.open(one, 0);
      node.clock.jump(30_000);
      let answer: () => void = () => {};
      const answered = new Promise<void>((resolve) => {
        answer = resolve;
      });
      const first = leavesOf(routeOf(one).root)[0]?.path;
      const walks = Array.from({ length: 20 }, () =>
        node.walk(one, 'u', async (path) => {
          if (path === first) await answered;
          return 200;
        }),
      );
      // All others are through while the one still waits.
      await Promise.race([Promise.all(walks.slice(1)), new Promise((resolve) => setTimeout(resolve, 5_000))]);
      answer();
      const called = (await Promise.all(walks)).flat();
      expect(called.filter((path) => path === first)).toHaveLength(1);
      expect(called).toHaveLength(20);
      // Its success brings it back for all.
      expect(await node.walk(one, 'v', () => 200)).toEqual([first]);
    },
  );
});

/** Users whose values draw the first target. */
async function usersOfFirst(one: Config): Promise<string[]> {
  const users: string[] = [];
  for (let i = 0; users.length < 5; i++) {
    const alone = new Node(ownCache());
    const [path] = await alone.walk(one, `user ${i}`, () => 200);
    if (path === A) users.push(`user ${i}`);
  }
  return users;
}

describe('sessions', () => {
  const one = config({ mode: 'loadbalance', sticky });

  it('two nodes without a shared cache send a session to the same target, whatever they would draw', async () => {
    const nodes = [0.1, 0.9].map((random) => {
      const node = new Node(ownCache());
      node.random = random;
      return node;
    });
    const seen = new Set<string>();
    for (let i = 0; i < 20; i++) {
      const [first, second] = await Promise.all(nodes.map((node) => node.walk(one, `user ${i}`, () => 200)));
      expect(second).toEqual(first);
      seen.add(String(first));
    }
    expect(seen.size).toBe(2);
  });

  describe.skipIf(redisMissing !== null)(`over Redis${redisMissing === null ? '' : `, ${redisMissing}`}`, () => {
    let redis: { url: string; close(): Promise<void> };
    const stores: RedisStore[] = [];
    beforeAll(async () => {
      redis = await anyRedis();
      const options = { url: redis.url, log: silentLog, clock: systemClock, timeoutMs: 5_000 };
      for (let i = 0; i < 2; i++) stores.push(await openRedis(options));
    });
    afterAll(async () => {
      for (const store of stores) await store.close();
      await redis?.close();
    });

    /** Walks, and waits until what was kept of it is there: commands of one node are carried out in order. */
    const walked = async (node: Node, target: Config, user: string) => {
      const [path] = await node.walk(target, user, () => 200);
      await node.cache.get('');
      return path;
    };

    it('a node follows a session where another node has sent it, also when its own draw says otherwise', async () => {
      const [first, second] = stores.map((store) => new Node(store.cache)) as [Node, Node];
      const users = await usersOfFirst(one);
      first.open(one, 0);
      for (const user of users) {
        expect(await walked(first, one, user)).toBe(B);
        // The second node knows of no failure.
        expect(await walked(second, one, user)).toBe(B);
        expect(await walked(second, one, user)).toBe(B);
      }
    });

    it('a session whose target a node leaves out moves, and all nodes follow', async () => {
      const [first, second] = stores.map((store) => new Node(store.cache)) as [Node, Node];
      const at = await walked(first, one, 'moves');
      expect(await walked(second, one, 'moves')).toBe(at);
      second.open(one, at === A ? 0 : 1);
      const moved = at === A ? B : A;
      expect(await walked(second, one, 'moves')).toBe(moved);
      expect(await walked(first, one, 'moves')).toBe(moved);
    });
  });
});

it('keeps an error of the last target of a group from the caller while a fallback above would follow it', async () => {
  const inner = {
    strategy: { mode: 'fallback', on_status_codes: [429] },
    targets: [{ provider: '@a' }, { provider: '@b' }],
  };
  const outer = {
    strategy: { mode: 'fallback', on_status_codes: [502] },
    targets: [inner, { provider: '@c' }],
  } as Config;
  const x = testExchange({}, { log: silentLog, notes: silentNotes });
  x.outcome.status = 200;
  const execution = newRouteExecution(x, routeOf(outer), 'ws v1');
  x.execution = execution;
  const followed: Record<string, readonly number[]> = {};
  const run = async (leaf: Leaf): Promise<AttemptResult> => {
    followed[leaf.path] = [429, 502, 503].filter((status) => x.attempt.wouldFallBack?.(status, null) === true);
    x.outcome.status = leaf.path.endsWith('targets[0].targets[0]') ? 429 : leaf.path.startsWith(`${A}.`) ? 502 : 200;
    return DONE;
  };
  await runNode(x, execution, { run, passOver: () => {} }, execution.route.root);
  expect(followed).toEqual({ [`${A}.targets[0]`]: [429, 502], [`${A}.targets[1]`]: [502], [B]: [] });
});
