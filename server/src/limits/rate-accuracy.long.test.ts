/** How exact rate limits are on two nodes that share a real Redis, also while it is away, slow or comes back empty. */
import { once } from 'node:events';
import fc from 'fast-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ownRedisMissing, startRedis } from '../../test/support/redis.ts';
import { TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { startStoreClock } from '../runtime/store-clock.ts';
import { memoryCounters } from '../store/memory/counters.ts';
import type { Counters } from '../store/ports.ts';
import { openRedis } from '../store/redis/redis.ts';
import type { RateLimit } from '../store/schema.ts';
import { type Admission, createAdmission, type LimitedEntity, limitedEntity, windowOf } from './rate-limits.ts';

const UNITS: readonly RateLimit['unit'][] = ['rps', 'rpm', 'rph', 'rpd', 'rpw'];
const TYPES: readonly RateLimit['type'][] = ['requests', 'tokens'];
const DAY = 86_400_000;
/** Half an hour before a day and a week end. */
const SUNDAY_NIGHT = Date.UTC(2026, 10, 22, 23, 30);
/** For a command, where only the counting is tested, on a machine that may be busy. */
const PATIENT_MS = 5_000;

function limited(type: RateLimit['type'], unit: RateLimit['unit'], value: number, id = 'k'): LimitedEntity[] {
  const made = limitedEntity('key', id, id, [{ type, unit, value }]);
  if (made === null) throw new Error('no limits');
  return [made];
}

/** The same numbers in every run. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return state / 2_147_483_648;
  };
}

const later = () => new Promise((resolve) => setImmediate(resolve));
const real = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

interface Node {
  readonly admission: Admission;
  readonly counters: Counters;
  /** Everything sent so far has been answered. */
  settled(): Promise<unknown>;
}

async function twoNodes({ start = SUNDAY_NIGHT, timeoutMs = PATIENT_MS, cluster = false } = {}) {
  const server = await startRedis({ cluster });
  const clock = new TestClock(start);
  const open = async (): Promise<Node & { close(): Promise<void> }> => {
    const store = await openRedis({ url: server.url, log: silentLog, clock, timeoutMs });
    const pending: Promise<unknown>[] = [];
    const counters: Counters = {
      hit: (windows) => store.counters.hit(windows),
      get: (keys) => store.counters.get(keys),
      add(windows) {
        const added = store.counters.add(windows);
        pending.push(added.catch(() => undefined));
        return added;
      },
      async close() {},
    };
    const share = { counters: memoryCounters({ clock }), nodes: { count: 2 } };
    const admission = createAdmission({ counters, share, clock, log: silentLog });
    return { admission, counters, settled: () => Promise.all(pending.splice(0)), close: () => store.close() };
  };
  const nodes = [await open(), await open()] as const;
  onTestFinished(async () => {
    server.resume();
    for (const node of nodes) await node.close();
    await server.close();
  });
  /** Until both nodes reach Redis again. */
  const reached = async () => {
    for (const node of nodes) {
      for (let i = 0; i < 250; i++) {
        const answered = await node.counters.get(['{w}:any']).catch(() => null);
        if (answered !== null) break;
        await real(20);
      }
    }
    clock.jump(300);
  };
  const counted = async (unit: RateLimit['unit'], type: RateLimit['type'] = 'requests') =>
    Number(await server.client.get(`sluice:c1:{w}:rate:key:k:${type}:${unit}:${windowOf(unit, clock.now()).start}`));
  return { server, clock, nodes, reached, counted };
}

describe('windows', () => {
  it('follow each other without a gap, on whole UTC units, weeks on Mondays, over leap days too', () => {
    const time = fc.oneof(
      fc.integer({ min: 0, max: Date.UTC(2100, 0, 1) }),
      fc.constantFrom(Date.UTC(2028, 1, 29), Date.UTC(2028, 1, 29, 23, 59, 59, 999), Date.UTC(2028, 2, 1), 0, 1),
    );
    fc.assert(
      fc.property(time, fc.constantFrom(...UNITS), (now, unit) => {
        const { start, end } = windowOf(unit, now);
        expect(start <= now && now < end).toBe(true);
        expect(windowOf(unit, end).start).toBe(end);
        expect(windowOf(unit, start - 1).end).toBe(start);
        const begun = new Date(start);
        if (unit === 'rpw') expect(begun.getUTCDay()).toBe(1);
        if (unit === 'rpw' || unit === 'rpd') expect(begun.toISOString()).toMatch(/T00:00:00\.000Z$/);
        expect(end - start).toBe({ rps: 1e3, rpm: 6e4, rph: 36e5, rpd: DAY, rpw: 7 * DAY }[unit]);
      }),
    );
  });

  it('a limit of 0, however it is written, admits nobody', async () => {
    const clock = new TestClock(SUNDAY_NIGHT);
    const admission = createAdmission({ counters: memoryCounters({ clock }), share: null, clock, log: silentLog });
    for (const type of TYPES) {
      for (const value of [0, -0]) {
        expect((await admission.admit('w', limited(type, 'rpd', value))).refusal).not.toBeNull();
      }
    }
  });
});

describe.skipIf(ownRedisMissing !== null)(ownRedisMissing ?? 'two nodes on a real Redis', () => {
  it('over a bursty hour into another day and week, each unit and type admits exactly what it allows', async () => {
    const { clock, nodes } = await twoNodes();
    const LIMIT = { rps: 8, rpm: 25, rph: 900, rpd: 1_000, rpw: 1_100 };
    const PER_REQUEST = 10;
    const random = seeded(11);
    const admitted = new Map<string, number>();
    const allowed = new Map<string, number>();
    const count = (into: Map<string, number>, key: string, n: number) => into.set(key, (into.get(key) ?? 0) + n);
    for (let burst = 0; burst < 240; burst++) {
      // Quiet ones, and ones of three times what a second or a minute allows.
      const offered = random() < 0.3 ? Math.floor(random() * 4) : 8 + Math.floor(random() * 16);
      const now = clock.now();
      const requests = UNITS.map(async (unit) => {
        const name = `requests ${unit} ${windowOf(unit, now).start}`;
        const all = await Promise.all(
          Array.from({ length: offered }, (_, i) =>
            (nodes[i % 2 === 0 ? 0 : 1] as Node).admission.admit('w', limited('requests', unit, LIMIT[unit], unit)),
          ),
        );
        count(admitted, name, all.filter(({ refusal }) => refusal === null).length);
        count(allowed, name, offered);
      });
      const tokens = UNITS.map(async (unit) => {
        const name = `tokens ${unit} ${windowOf(unit, now).start}`;
        // One after another, because what is under way when tokens run out still ends.
        for (let i = 0; i < offered; i++) {
          const node = nodes[i % 2 === 0 ? 0 : 1] as Node;
          const one = await node.admission.admit('w', limited('tokens', unit, LIMIT[unit] * PER_REQUEST, unit));
          if (one.refusal !== null) continue;
          one.settle(PER_REQUEST);
          await node.settled();
          count(admitted, name, 1);
        }
        count(allowed, name, offered);
      });
      await Promise.all([...requests, ...tokens]);
      clock.jump(burst % 2 === 0 ? 5_000 : 25_000);
    }
    for (const [name, offered] of allowed) {
      const unit = name.split(' ')[1] as RateLimit['unit'];
      expect([name, admitted.get(name) ?? 0]).toEqual([name, Math.min(offered, LIMIT[unit])]);
    }
    // Two weeks, days and hours, sixty minutes: demand was above each of them.
    for (const [unit, windows] of [
      ['rpw', 2],
      ['rpd', 2],
      ['rph', 2],
    ] as const) {
      const full = [...admitted].filter(([name, n]) => name.startsWith(`requests ${unit} `) && n === LIMIT[unit]);
      expect([unit, full.length]).toEqual([unit, windows]);
    }
  }, 60_000);

  it('a Redis that restarts empty three times within a window: the limit holds', async () => {
    const { server, clock, nodes, reached, counted } = await twoNodes({ start: Date.UTC(2026, 10, 22, 12) });
    const LIMIT = 1_000;
    const perHour = limited('requests', 'rph', LIMIT);
    let admitted = 0;
    const burst = async (n: number) => {
      for (let i = 0; i < n; i++) {
        const all = await Promise.all(nodes.map((node) => node.admission.admit('w', perHour)));
        admitted += all.filter(({ refusal }) => refusal === null).length;
      }
      await later();
    };
    const before: number[] = [];
    for (let restart = 0; restart < 3; restart++) {
      await burst(80);
      await Promise.all(nodes.map((node) => node.settled()));
      before.push(admitted);
      await server.kill();
      await burst(30);
      clock.jump(300);
      await burst(10);
      await server.start();
      await reached();
    }
    // Nothing has reached the limit by then, and nothing is lost but what found out that Redis is away.
    expect(before[0]).toBe(160);
    expect(admitted).toBe(3 * 240);
    await burst(400);
    await Promise.all(nodes.map((node) => node.settled()));
    expect(admitted).toBeGreaterThanOrEqual(LIMIT);
    expect(admitted).toBeLessThanOrEqual(LIMIT * 1.02);
    // Each request is counted once, but for the few that found out that nobody answers.
    expect(await counted('rph')).toBeLessThanOrEqual(admitted);
    expect(await counted('rph')).toBeGreaterThanOrEqual(admitted * 0.98);
    const full = admitted;
    await server.kill();
    await server.start();
    await reached();
    await burst(50);
    expect(admitted).toBe(full);
    clock.jump(3_600_000);
    await burst(400);
    expect(admitted - full).toBe(800);
  });

  it('a Redis that hangs and goes on: at most the limit and one share per node, and nothing is counted twice', async () => {
    const { server, clock, nodes, reached, counted } = await twoNodes({ timeoutMs: 20 });
    const perDay = limited('requests', 'rpd', 400);
    let admitted = 0;
    const burst = async (n: number) => {
      for (let i = 0; i < n; i++) {
        const all = await Promise.all(nodes.map((node) => node.admission.admit('w', perDay)));
        admitted += all.filter(({ refusal }) => refusal === null).length;
      }
    };
    await burst(50);
    for (let i = 0; i < 3; i++) {
      server.pause();
      await burst(20);
      server.resume();
      await reached();
      await burst(1);
      await Promise.all(nodes.map((node) => node.settled()));
    }
    expect(await counted('rpd')).toBeLessThanOrEqual(admitted);
    await burst(300);
    expect(admitted).toBeGreaterThanOrEqual(392);
    expect(admitted).toBeLessThanOrEqual(400 + 2 * 200);
    clock.jump(DAY);
  });

  it('a window that is nearly over stays full for a node that knows of its end a little later', async () => {
    const { nodes, clock } = await twoNodes({ start: Date.UTC(2026, 10, 22, 12, 0, 59, 998) });
    const perMinute = limited('requests', 'rpm', 3);
    const admit = (node: Node) => node.admission.admit('w', perMinute);
    for (let i = 0; i < 3; i++) expect((await admit(nodes[0])).refusal).toBeNull();
    // Longer than the window had to go by the clock of the first node; by that of the second it is not over yet.
    await real(30);
    expect((await admit(nodes[1])).refusal?.retryAfter).toBe(1);
    clock.jump(2);
    expect((await admit(nodes[1])).refusal).toBeNull();
  });

  it('nodes whose own clocks are minutes apart share windows: those of the store', async () => {
    const server = await startRedis();
    const store = new TestClock(Date.UTC(2026, 10, 22, 12, 0, 59));
    const clocks = [new TestClock(store.now() + 300_000), new TestClock(store.now() - 120_000)];
    const opened = await Promise.all(
      clocks.map(async (clock) => {
        const known = await startStoreClock({ tables: { now: async () => store.now() }, clock, log: silentLog });
        const redis = await openRedis({ url: server.url, log: silentLog, clock: known, timeoutMs: PATIENT_MS });
        const share = { counters: memoryCounters({ clock: known }), nodes: { count: 2 } };
        const admission = createAdmission({ counters: redis.counters, share, clock: known, log: silentLog });
        return { known, redis, admission };
      }),
    );
    onTestFinished(async () => {
      for (const { known, redis } of opened) {
        await known.close();
        await redis.close();
      }
      await server.close();
    });
    const perMinute = limited('requests', 'rpm', 10);
    const burst = async () => {
      let admitted = 0;
      for (let i = 0; i < 20; i++) {
        const node = opened[i % 2];
        if ((await node?.admission.admit('w', perMinute))?.refusal === null) admitted++;
      }
      return admitted;
    };
    expect(await burst()).toBe(10);
    for (const clock of [store, ...clocks]) clock.jump(999);
    expect(await burst()).toBe(0);
    for (const clock of [store, ...clocks]) clock.jump(1);
    expect(await burst()).toBe(10);
  });

  it('all limits of a request are one command on one slot of a cluster, also after the script was forgotten', async () => {
    const { server, nodes } = await twoNodes({ cluster: true });
    const rates = TYPES.flatMap((type) => UNITS.map((unit) => ({ type, unit, value: 100 })));
    const kinds = ['key', 'workspace', 'provider', 'integration', 'policy'] as const;
    const entities = kinds.map((kind) => limitedEntity(kind, `${kind}-1`, kind, rates)).filter((one) => one !== null);
    const workspace = '0190c3c4-7e1a-7000-8000-000000000000';
    const [{ admission, settled }] = nodes;
    await admission.admit(workspace, entities);
    const monitor = await server.client.duplicate().monitor();
    onTestFinished(() => monitor.disconnect());
    const commands: string[][] = [];
    // What scripts do inside the server comes from `lua`.
    monitor.on('monitor', (_time: string, command: string[], source: string) => {
      if (source !== 'lua' && command[0]?.startsWith('eval')) commands.push(command);
    });
    const heard = async () => {
      const marker = once(monitor, 'monitor');
      await server.client.echo('marker');
      await marker;
      await real(20);
    };
    const sent = async (work: () => Promise<unknown>) => {
      await heard();
      commands.length = 0;
      await work();
      await heard();
      return commands.map(([name]) => name);
    };
    const admitted = await admission.admit(workspace, entities);
    expect(admitted.refusal).toBeNull();
    expect(await sent(() => admission.admit(workspace, entities))).toEqual(['evalsha']);
    const keys = commands[0]?.slice(3, 3 + Number(commands[0]?.[2])) ?? [];
    expect(keys).toHaveLength(50);
    const slots = await Promise.all(keys.map((key) => server.client.call('CLUSTER', 'KEYSLOT', key)));
    expect(new Set(slots).size).toBe(1);
    // Tokens of all windows are booked in one more, which nobody waits for.
    const settling = async () => {
      admitted.settle(7);
      await settled();
    };
    expect(await sent(settling)).toEqual(['evalsha']);
    await server.client.script('FLUSH');
    expect(await sent(() => admission.admit(workspace, entities))).toEqual(['evalsha', 'eval']);
    const last = await admission.admit(workspace, entities);
    expect(await sent(() => admission.admit(workspace, entities))).toEqual(['evalsha']);
    expect([last.quota.requests?.remaining, last.quota.tokens?.remaining]).toEqual([95, 93]);
  });
});
