/** What probes say of a node, and of each thing it works with. */
import fastify from 'fastify';
import { describe, expect, it } from 'vitest';
import { eventually } from '../../test/support/budgets.ts';
import { ownRedisMissing, startRedis } from '../../test/support/redis.ts';
import { startServer } from '../../test/support/server.ts';
import { temporaryTables } from '../../test/support/tables.ts';
import { openProbes } from '../compose/health.ts';
import { TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { startWatch } from '../runtime/watch.ts';
import type { Tables } from '../store/ports.ts';
import { type Dependency, readinessOf } from './health.ts';

describe('readiness', () => {
  const list = (away: string, fails: Dependency['check']): Dependency[] =>
    (
      [
        ['store', true],
        ['redis', false],
      ] as const
    ).map(([name, needed]) => ({ name, needed, check: name === away ? fails : () => true }));

  const failing: readonly (readonly [string, Dependency['check']])[] = [
    ['rejects', () => Promise.reject(new Error('gone'))],
    ['says no', () => false],
    [
      'throws',
      () => {
        throw new Error('closed');
      },
    ],
  ];

  it.each(failing)(
    'names what is away and is false only for what is needed, when its check %s',
    async (_title, fails) => {
      const clock = new TestClock();
      expect(await readinessOf(list('store', fails), clock)).toEqual({
        ready: false,
        dependencies: { store: 'away', redis: 'ok' },
      });
      expect(await readinessOf(list('redis', fails), clock)).toEqual({
        ready: true,
        dependencies: { store: 'ok', redis: 'away' },
      });
    },
  );

  it('waits two seconds at most for one that never answers', async () => {
    const clock = new TestClock();
    const asked = readinessOf(
      list('store', () => new Promise(() => {})),
      clock,
    );
    await clock.advance(2_000);
    expect((await asked).dependencies).toEqual({ store: 'away', redis: 'ok' });
  });
});

const ready = async (url: string) => {
  const answer = await fetch(`${url}/readyz`);
  return { status: answer.status, body: (await answer.json()) as { dependencies: Record<string, string> } };
};

it('a node alone names what it works with, and the operator sees the same', async () => {
  const server = await startServer();
  try {
    const dependencies = { store: 'ok', logs: 'ok', feed: 'ok', spool: 'ok', usage_spool: 'ok' };
    expect(await ready(server.url)).toEqual({ status: 200, body: { status: 'ready', draining: false, dependencies } });
    const health = await server.admin('GET', '/operator/health', undefined, server.first.operator_api_key);
    expect(health.body).toMatchObject({
      ready: true,
      dependencies,
      store: { ok: true },
      counters: { kind: 'memory', ok: true },
      feed: { ok: true },
      warnings: [],
    });
  } finally {
    await server.stop();
  }
});

it('names the feed of changes as away when it was not read for five seconds, stays ready, and says when it is back', async () => {
  const clock = new TestClock();
  const tables = await temporaryTables(clock);
  const app = fastify();
  let away = false;
  const feed = Object.assign(Object.create(tables) as Tables, {
    lastChange: () => tables.lastChange(),
    onChangeHint: () => () => {},
    changesAfter: (async (seq, limit) => {
      if (away) throw new Error('away');
      return tables.changesAfter(seq, limit);
    }) satisfies Tables['changesAfter'],
  });
  const watch = await startWatch({ tables: feed, feed: null, clock, log: silentLog, apply() {} });
  try {
    const ping = async () => true;
    const common = { config: { unrecorded: 'refuse' }, clock, version: '1' };
    const parts = {
      stores: { tables: { ping }, logs: { ping } },
      shared: { redis: null },
      spools: { journal: { failing: false }, settlements: { state: { failing: false } } },
      kept: { watch },
      front: { app, draining: false },
    };
    type Open = Parameters<typeof openProbes>;
    const ask = openProbes(common as unknown as Open[0], parts as unknown as Open[1]);
    const feedIs = async (state: string) =>
      expect(await ask()).toMatchObject({ ready: true, dependencies: { store: 'ok', feed: state } });
    away = true;
    clock.jump(4_999);
    await feedIs('ok');
    clock.jump(1);
    await feedIs('away');
    away = false;
    await watch.catchUp();
    await feedIs('ok');
  } finally {
    await watch.close();
    await app.close();
    await tables.close();
  }
});

it('the operator sees that links begin with an address that other machines cannot open', async () => {
  // A name of loopback that does not look like one.
  for (const [env, warnings] of [
    [{ SLUICE_HOST: '127.1' }, [expect.stringContaining('SLUICE_PUBLIC_URL is not set')]],
    [{ SLUICE_HOST: '127.1', SLUICE_PUBLIC_URL: 'https://sluice.example' }, []],
  ] as const) {
    const server = await startServer(env);
    try {
      const health = await server.admin('GET', '/operator/health', undefined, server.first.operator_api_key);
      expect(health.body.warnings).toEqual(warnings);
    } finally {
      await server.stop();
    }
  }
});

describe.skipIf(ownRedisMissing)(`a node whose Redis is killed ${ownRedisMissing ?? ''}`, () => {
  it('stays ready and says that Redis is away, until it is back', async () => {
    const redis = await startRedis();
    const server = await startServer({ SLUICE_REDIS_URL: redis.url });
    const state = () => ready(server.url);
    try {
      expect((await state()).body.dependencies.redis).toBe('ok');
      await redis.kill();
      const away = await eventually(state, ({ body }) => body.dependencies.redis === 'away');
      expect(away).toMatchObject({
        status: 200,
        body: { status: 'ready', dependencies: { redis: 'away', store: 'ok' } },
      });
      const health = await server.admin('GET', '/operator/health', undefined, server.first.operator_api_key);
      expect(health.body).toMatchObject({ counters: { kind: 'redis', ok: false } });
      await redis.start();
      expect((await eventually(state, ({ body }) => body.dependencies.redis === 'ok')).body.dependencies.redis).toBe(
        'ok',
      );
    } finally {
      await server.stop();
      await redis.close();
    }
  });
});
