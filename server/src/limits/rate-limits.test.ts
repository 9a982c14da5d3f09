import { describe, expect, it, onTestFinished } from 'vitest';
import { ownRedisMissing, startRedis } from '../../test/support/redis.ts';
import { TestClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { silentLog } from '../kernel/log.ts';
import { memoryCounters } from '../store/memory/counters.ts';
import type { Counters } from '../store/ports.ts';
import { openRedis } from '../store/redis/redis.ts';
import type { RateLimit, Row } from '../store/schema.ts';
import { countLiveNodes } from './live-nodes.ts';
import type { PolicyFacts } from './policies/conditions.ts';
import { addRateLimits, compileRatePolicies } from './policies/rates.ts';
import { createAdmission, type LimitedEntity, limitedEntity, windowOf } from './rate-limits.ts';

const START = Date.UTC(2026, 10, 21, 23, 59, 30);
/** Where only the counting is tested, on a machine that may be busy. */
const PATIENT_MS = 5_000;

const rate = (type: RateLimit['type'], unit: RateLimit['unit'], value: number): RateLimit => ({ type, unit, value });

function entity(kind: LimitedEntity['kind'], id: string, ...rates: RateLimit[]): LimitedEntity {
  const made = limitedEntity(kind, id, `${id}-slug`, rates);
  if (made === null) throw new Error('no limits');
  return made;
}

function oneNode(start = START) {
  const clock = new TestClock(start);
  const counters = memoryCounters({ clock });
  return { clock, counters, admission: createAdmission({ counters, share: null, clock, log: silentLog }) };
}

describe('windows', () => {
  it.each<[RateLimit['unit'], string, string]>([
    ['rps', '2026-11-21T23:59:30.000Z', '2026-11-21T23:59:31.000Z'],
    ['rpm', '2026-11-21T23:59:00.000Z', '2026-11-22T00:00:00.000Z'],
    ['rph', '2026-11-21T23:00:00.000Z', '2026-11-22T00:00:00.000Z'],
    ['rpd', '2026-11-21T00:00:00.000Z', '2026-11-22T00:00:00.000Z'],
    ['rpw', '2026-11-16T00:00:00.000Z', '2026-11-23T00:00:00.000Z'],
  ])('%s begins with its unit, weeks on Monday', (unit, start, end) => {
    const window = windowOf(unit, START + 250);
    expect([new Date(window.start).toISOString(), new Date(window.end).toISOString()]).toEqual([start, end]);
    expect(windowOf(unit, window.start)).toEqual(window);
    expect(windowOf(unit, window.end - 1)).toEqual(window);
    expect(windowOf(unit, window.end).start).toBe(window.end);
  });
});

describe('admission', () => {
  it('a request that was refused after all is given back once, and only what it had taken', async () => {
    const { admission } = oneNode();
    const limited = [entity('key', 'k', rate('requests', 'rpm', 2), rate('tokens', 'rpm', 10))];
    const first = await admission.admit('w', limited);
    expect(first.release().requests).toEqual({ limit: 2, remaining: 2, reset: 30 });
    expect(first.release().requests).toEqual({ limit: 2, remaining: 2, reset: 30 });
    (await admission.admit('w', limited)).settle(3);
    const third = await admission.admit('w', limited);
    expect(third.quota).toMatchObject({ requests: { remaining: 0 }, tokens: { remaining: 7 } });
    const refused = await admission.admit('w', limited);
    expect(refused.refusal).not.toBeNull();
    refused.release();
    expect((await admission.admit('w', limited)).refusal).not.toBeNull();
    third.release();
    expect((await admission.admit('w', limited)).refusal).toBeNull();
  });

  it('counts what it admits, refuses the next request with what to wait, and starts anew with the window', async () => {
    const { clock, admission } = oneNode();
    const limited = [entity('key', 'k', rate('requests', 'rpm', 2))];
    const first = await admission.admit('w', limited);
    expect([first.refusal, first.quota]).toEqual([
      null,
      { requests: { limit: 2, remaining: 1, reset: 30 }, tokens: null },
    ]);
    await admission.admit('w', limited);
    const { refusal, quota } = await admission.admit('w', limited);
    expect(refusal).toMatchObject({ kind: 'rate_limit_exceeded', retryAfter: 30 });
    expect(refusal?.message).toBe('Rate limit of key k-slug exceeded: 2 requests per minute. Try again in 30 s.');
    expect(quota.requests).toEqual({ limit: 2, remaining: 0, reset: 30 });
    clock.jump(30_000);
    expect((await admission.admit('w', limited)).refusal).toBeNull();
  });

  it('a refused request is counted nowhere', async () => {
    const { admission } = oneNode();
    const wide = entity('key', 'k', rate('requests', 'rpd', 10));
    const narrow = entity('workspace', 'w', rate('requests', 'rpd', 1));
    await admission.admit('w', [wide, narrow]);
    for (let i = 0; i < 5; i++) expect((await admission.admit('w', [wide, narrow])).refusal).not.toBeNull();
    expect((await admission.admit('w', [wide])).quota.requests).toMatchObject({ remaining: 8 });
  });

  it('the first limit in the order of checks refuses', async () => {
    const { admission } = oneNode();
    const none = rate('requests', 'rpd', 0);
    const order = [entity('key', 'k', none), entity('workspace', 'w', none), entity('provider', 'p', none)];
    for (const [index, { kind }] of order.entries()) {
      expect((await admission.admit('w', order.slice(index))).refusal?.message).toContain(`Rate limit of ${kind} `);
    }
  });

  it('tokens are booked after the answer, into the window the request came in, and then refuse the next one', async () => {
    const { clock, admission } = oneNode();
    const limited = [entity('key', 'k', rate('tokens', 'rpm', 100))];
    const long = await admission.admit('w', limited);
    (await admission.admit('w', limited)).settle(99);
    expect((await admission.admit('w', limited)).quota.tokens).toEqual({ limit: 100, remaining: 1, reset: 30 });
    (await admission.admit('w', limited)).settle(1);
    expect((await admission.admit('w', limited)).refusal?.message).toContain('100 tokens per minute');
    clock.jump(30_000);
    long.settle(5_000);
    expect((await admission.admit('w', limited)).refusal).toBeNull();
  });

  it('tells of the tightest limit of each type', async () => {
    const { admission } = oneNode();
    const { quota } = await admission.admit('w', [
      entity('key', 'k', rate('requests', 'rpd', 50), rate('tokens', 'rpd', 1_000)),
      entity('workspace', 'w', rate('requests', 'rph', 20), rate('tokens', 'rpm', 900)),
      entity('policy', 'p', rate('requests', 'rpw', 20)),
    ]);
    expect(quota.requests).toMatchObject({ limit: 20, remaining: 19, reset: 86_430 });
    expect(quota.tokens).toMatchObject({ limit: 900, remaining: 900 });
  });

  it('a limit that is raised admits at once, one that is lowered refuses at once', async () => {
    const { admission } = oneNode();
    const of = (value: number) => [entity('key', 'k', rate('requests', 'rpd', value))];
    for (let i = 0; i < 3; i++) await admission.admit('w', of(3));
    expect((await admission.admit('w', of(3))).refusal).not.toBeNull();
    expect((await admission.admit('w', of(4))).refusal).toBeNull();
    expect((await admission.admit('w', of(2))).refusal).not.toBeNull();
  });

  it('of two limits of one type and unit the lower one counts, once', async () => {
    const { admission } = oneNode();
    const limited = [entity('key', 'k', rate('requests', 'rpd', 9), rate('requests', 'rpd', 2))];
    expect((await admission.admit('w', limited)).quota.requests).toMatchObject({ limit: 2, remaining: 1 });
  });

  it('64 callers at once get exactly the limit', async () => {
    const { admission } = oneNode();
    const limited = [
      entity('workspace', 'w', rate('requests', 'rpd', 40)),
      entity('key', 'k', rate('requests', 'rpd', 99)),
    ];
    const all = await Promise.all(Array.from({ length: 64 }, () => admission.admit('w', limited)));
    expect(all.filter(({ refusal }) => refusal === null)).toHaveLength(40);
  });
});

describe('policies for MCP tools', () => {
  const row = (more: Partial<Row<'rate_policies'>>): Row<'rate_policies'> => ({
    id: 'p1',
    organisation_id: 'o',
    workspace_id: 'w',
    name: 'Searches',
    description: null,
    target: 'mcp_tools',
    conditions: [{ key: 'mcp_tool', value: 'search' }],
    group_by: [{ key: 'mcp_server' }],
    type: 'requests',
    unit: 'rpm',
    value: 1,
    status: 'active',
    created_at: 1,
    last_updated_at: 1,
    ...more,
  });
  const facts = (more: Partial<PolicyFacts>): PolicyFacts => ({
    workspace_id: 'w',
    organisation_id: 'o',
    api_key: null,
    virtual_key: null,
    provider: null,
    config: null,
    prompt: null,
    model: null,
    endpoint_type: null,
    mcp_server: 'github',
    mcp_tool: 'search',
    metadata: null,
    ...more,
  });
  const place = { workspaceId: 'w', workspaceSlug: 'ws', organisationId: 'o' };

  it('limit tools and leave calls of models alone; one counter per server', async () => {
    const { admission } = oneNode();
    const { llm, mcpTools } = compileRatePolicies([row({})], place);
    expect(llm).toBeNull();
    const call = async (more: Partial<PolicyFacts>) => {
      const limited: LimitedEntity[] = [];
      if (mcpTools !== null) addRateLimits(mcpTools, facts(more), limited);
      return limited.length === 0 ? null : (await admission.admit('w', limited)).refusal;
    };
    expect(await call({})).toBeNull();
    expect((await call({}))?.message).toContain('Rate limit of policy Searches for mcp_server:github exceeded');
    expect(await call({ mcp_server: 'jira' })).toBeNull();
    expect(await call({ mcp_tool: 'create_issue' })).toBeNull();
  });

  it('archived ones limit nothing', () => {
    expect(compileRatePolicies([row({ status: 'archived' })], place)).toEqual({ llm: null, mcpTools: null });
  });
});

describe('without the shared counters', () => {
  /** Counters that can be taken away. */
  function losable(clock: TestClock) {
    const counters = memoryCounters({ clock });
    const state = { away: false, asked: 0 };
    const guarded =
      <A, R>(call: (argument: A) => Promise<R>) =>
      async (argument: A) => {
        state.asked++;
        if (state.away) throw new SluiceError('unavailable', 'away');
        return call(argument);
      };
    const shared: Counters = {
      hit: guarded((windows) => counters.hit(windows)),
      add: guarded((windows) => counters.add(windows)),
      get: guarded((keys) => counters.get(keys)),
      async close() {},
    };
    return { counters, shared, state };
  }

  function setup(nodes: number, log = silentLog) {
    const clock = new TestClock(START);
    const { counters, shared, state } = losable(clock);
    const node = () => {
      const share = { counters: memoryCounters({ clock }), nodes: { count: nodes } };
      return createAdmission({ counters: shared, share, clock, log });
    };
    return { clock, counters, state, node };
  }

  const admitted = async (admission: ReturnType<typeof createAdmission>, limited: LimitedEntity[], tries: number) => {
    let count = 0;
    for (let i = 0; i < tries; i++) if ((await admission.admit('w', limited)).refusal === null) count++;
    return count;
  };

  it('every node admits its share, at least 1', async () => {
    const { state, node } = setup(4);
    state.away = true;
    expect(await admitted(node(), [entity('key', 'k', rate('requests', 'rpd', 10))], 20)).toBe(2);
    expect(await admitted(node(), [entity('key', 'k', rate('requests', 'rpd', 3))], 20)).toBe(1);
    expect(await admitted(node(), [entity('key', 'k', rate('requests', 'rpd', 0))], 20)).toBe(0);
  });

  it('what a node counted alone is given back to that node alone', async () => {
    const { state, node, counters, clock } = setup(2);
    const limited = [entity('key', 'k', rate('requests', 'rpd', 2))];
    const a = node();
    await a.admit('w', limited);
    state.away = true;
    (await a.admit('w', limited)).release();
    expect((await a.admit('w', limited)).refusal).toBeNull();
    expect((await a.admit('w', limited)).refusal).not.toBeNull();
    state.away = false;
    clock.advance(1_000);
    const back = await a.admit('w', limited);
    expect(back.quota.requests).toMatchObject({ limit: 2, remaining: 0 });
    expect(counters.size).toBe(1);
  });

  it('no more than the limit and one share per node in the window of the loss', async () => {
    const { state, node } = setup(2);
    const [a, b] = [node(), node()];
    const limited = [entity('key', 'k', rate('requests', 'rpd', 100))];
    let count = (await admitted(a, limited, 70)) + (await admitted(b, limited, 70));
    expect(count).toBe(100);
    state.away = true;
    count += (await admitted(a, limited, 70)) + (await admitted(b, limited, 70));
    expect(count).toBe(200);
  });

  it('asks the lost counters a few times a second only, and goes back to them when they answer', async () => {
    const { clock, state, node } = setup(1);
    const admission = node();
    const limited = [entity('key', 'k', rate('requests', 'rpd', 1_000))];
    state.away = true;
    await admitted(admission, limited, 100);
    expect(state.asked).toBe(1);
    state.away = false;
    clock.jump(300);
    expect((await admission.admit('w', limited)).quota.requests).toMatchObject({ remaining: 999 });
    // Once for this request, and once to count those that were admitted meanwhile.
    expect(state.asked).toBe(3);
  });

  it('the log says once that the counters are lost, and once that they are back', async () => {
    const lines: string[] = [];
    const say = (line: string) => void lines.push(line);
    const { clock, state, node } = setup(1, { ...silentLog, warn: say, info: say });
    const admission = node();
    const limited = [entity('key', 'k', rate('requests', 'rpd', 1_000))];
    for (const away of [false, true, true, false, false]) {
      state.away = away;
      clock.jump(300);
      await admitted(admission, limited, 2);
    }
    expect(lines).toEqual(['limits are counted on this node alone', 'limits are counted over all nodes again']);
  });

  it('requests that were admitted meanwhile are counted when the counters are back, once', async () => {
    const { clock, state, node } = setup(2);
    const [a, b] = [node(), node()];
    const limited = [entity('key', 'k', rate('requests', 'rpd', 100))];
    state.away = true;
    // The first of each found out that nobody answers: it may have been counted before that.
    expect([await admitted(a, limited, 21), await admitted(b, limited, 11)]).toEqual([21, 11]);
    state.away = false;
    clock.jump(300);
    await a.admit('w', limited);
    await b.admit('w', limited);
    await new Promise((resolve) => setImmediate(resolve));
    expect((await a.admit('w', limited)).quota.requests).toMatchObject({ remaining: 100 - 20 - 10 - 3 });
    expect((await b.admit('w', limited)).quota.requests).toMatchObject({ remaining: 100 - 20 - 10 - 4 });
  });

  it('tokens that were used meanwhile are booked when the counters are back, once', async () => {
    const { clock, counters, state, node } = setup(1);
    const admission = node();
    const limited = [entity('key', 'k', rate('tokens', 'rpd', 1_000))];
    const before = await admission.admit('w', limited);
    state.away = true;
    (await admission.admit('w', limited)).settle(300);
    before.settle(200);
    expect((await admission.admit('w', limited)).quota.tokens).toMatchObject({ remaining: 500 });
    state.away = false;
    clock.jump(300);
    await admission.admit('w', limited);
    await admission.admit('w', limited);
    expect((await admission.admit('w', limited)).quota.tokens).toMatchObject({ remaining: 500 });
    expect(counters.size).toBe(1);
  });

  it('nodes count each other, and keep the number while they cannot', async () => {
    const clock = new TestClock(START);
    const { counters, shared, state } = losable(clock);
    const [a, b, c] = [0, 1, 2].map(() => countLiveNodes({ counters: shared, clock }));
    await new Promise((resolve) => setImmediate(resolve));
    await clock.advance(6_000);
    expect([a?.count, b?.count, c?.count]).toEqual([3, 3, 3]);
    await c?.close();
    await clock.advance(16_000);
    expect([a?.count, b?.count]).toEqual([2, 2]);
    state.away = true;
    await clock.advance(60_000);
    expect([a?.count, b?.count]).toEqual([2, 2]);
    state.away = false;
    for (let i = 0; i < 20; i++) {
      await clock.advance(1_000);
      // Empty again and again, as a server that restarts.
      if (i < 4) await counters.close();
      expect([a?.count, b?.count], `second ${i}`).toEqual([2, 2]);
    }
    await Promise.all([a?.close(), b?.close()]);
  });
});

describe.skipIf(ownRedisMissing !== null)(ownRedisMissing ?? 'two nodes on a real Redis', () => {
  async function twoNodes(start = START, timeoutMs?: number) {
    const server = await startRedis();
    const clock = new TestClock(start);
    const open = () => openRedis({ url: server.url, log: silentLog, clock, ...(timeoutMs ? { timeoutMs } : {}) });
    const stores = [await open(), await open()];
    onTestFinished(async () => {
      for (const store of stores) await store.close();
      await server.close();
    });
    const nodes = stores.map(({ counters }) => {
      const share = { counters: memoryCounters({ clock }), nodes: { count: 2 } };
      return createAdmission({ counters, share, clock, log: silentLog });
    });
    return { server, clock, nodes };
  }

  it('a bursty hour admits exactly what it should, per minute and per hour, in requests and in tokens', async () => {
    const { clock, nodes } = await twoNodes(Date.UTC(2026, 10, 21, 12), PATIENT_MS);
    const perMinute = [entity('key', 'k', rate('requests', 'rpm', 50))];
    const perHour = [entity('workspace', 'w', rate('requests', 'rph', 1_000))];
    const tokens = [entity('policy', 'p', rate('tokens', 'rpm', 500))];
    let minutes = 0;
    let hour = 0;
    let used = 0;
    let offeredMinutes = 0;
    // Repeatable, with quiet minutes and ones of three times the limit.
    let seed = 7;
    const random = () => {
      seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
      return seed / 2_147_483_648;
    };
    for (let minute = 0; minute < 60; minute++) {
      const offered = random() < 0.3 ? Math.floor(random() * 40) : 60 + Math.floor(random() * 90);
      offeredMinutes += Math.min(50, offered);
      const bursts = 3;
      for (let burst = 0; burst < bursts; burst++) {
        const calls = Math.floor(offered / bursts) + (burst < offered % bursts ? 1 : 0);
        const results = await Promise.all(
          Array.from({ length: calls }, async (_, i) => {
            const node = nodes[i % 2];
            if (node === undefined) throw new Error('no node');
            const [byMinute, byHour, byTokens] = await Promise.all([
              node.admit('w', perMinute),
              node.admit('w', perHour),
              node.admit('w', tokens),
            ]);
            return { byMinute, byHour, byTokens };
          }),
        );
        for (const { byMinute, byHour, byTokens } of results) {
          if (byMinute.refusal === null) minutes++;
          if (byHour.refusal === null) hour++;
          if (byTokens.refusal === null) {
            byTokens.settle(10);
            used += 10;
          }
        }
        clock.jump(20_000);
      }
    }
    expect(minutes / offeredMinutes).toBeGreaterThanOrEqual(0.98);
    expect(minutes / offeredMinutes).toBeLessThanOrEqual(1.02);
    expect(hour).toBe(1_000);
    // What is in flight when the tokens run out still ends: at most one burst of calls.
    expect(used).toBeLessThanOrEqual(60 * (500 + 50 * 10));
  });

  it('a request waits at most 20 ms for a Redis that hangs, and is then counted on its node', async () => {
    const { server, nodes } = await twoNodes();
    const [a] = nodes;
    const limited = [entity('key', 'k', rate('requests', 'rpd', 10))];
    await a?.admit('w', limited);
    server.pause();
    const waits: number[] = [];
    let admitted = 0;
    for (let i = 0; i < 30; i++) {
      const started = performance.now();
      if ((await a?.admit('w', limited))?.refusal === null) admitted++;
      waits.push(performance.now() - started);
    }
    server.resume();
    expect(admitted).toBe(5);
    // The first one found out; a timer on a busy machine may be late.
    expect(waits[0]).toBeLessThan(2_000);
    const [median = 0] = waits.sort((one, other) => one - other).slice(15);
    expect(median).toBeLessThan(5);
  });

  it('the clock of the Redis server plays no part in where windows begin and end', async () => {
    const { clock, nodes } = await twoNodes(Date.UTC(2001, 0, 1), PATIENT_MS);
    const [a, b] = nodes;
    const limited = [entity('key', 'k', rate('requests', 'rpm', 1))];
    expect((await a?.admit('w', limited))?.refusal).toBeNull();
    expect((await b?.admit('w', limited))?.refusal).not.toBeNull();
    clock.jump(60_000);
    expect((await b?.admit('w', limited))?.refusal).toBeNull();
  });
});
