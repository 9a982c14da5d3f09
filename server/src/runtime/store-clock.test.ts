import { expect, it } from 'vitest';
import { TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { startStoreClock } from './store-clock.ts';

/** A node whose wall clock can be set without its monotonic one, and a store with a clock of its own. */
function world(storeAhead: number) {
  const time = new TestClock();
  let ownAhead = 0;
  let ahead = storeAhead;
  let away = false;
  return {
    time,
    clock: {
      now: () => time.now() + ownAhead,
      monotonic: () => time.monotonic(),
      after: (ms: number, fn: () => void) => time.after(ms, fn),
    },
    tables: {
      async now() {
        if (away) throw new Error('away');
        return time.now() + ahead;
      },
    },
    setNode: (ms: number) => {
      ownAhead = ms;
    },
    setStore: (ms: number) => {
      ahead = ms;
    },
    setAway: (value: boolean) => {
      away = value;
    },
  };
}

const MINUTE = 60_000;

it.each([5 * MINUTE, -5 * MINUTE, 0])('time is the store’s, from the start, when it is %i ms ahead', async (ahead) => {
  const { time, clock, tables } = world(ahead);
  const store = await startStoreClock({ tables, clock, log: silentLog });
  expect(store.now()).toBe(time.now() + ahead);
  await time.advance(90_500);
  expect(store.now()).toBe(time.now() + ahead);
  await store.close();
});

it('the node’s clock may be set without any effect', async () => {
  const { time, clock, tables, setNode } = world(1_000);
  const store = await startStoreClock({ tables, clock, log: silentLog });
  setNode(24 * 60 * MINUTE);
  expect(store.now()).toBe(time.now() + 1_000);
  await time.advance(5_000);
  expect(store.now()).toBe(time.now() + 1_000);
  await store.close();
});

it('a store whose clock is set is followed within a second; a difference of milliseconds is not', async () => {
  const { time, clock, tables, setStore } = world(0);
  const store = await startStoreClock({ tables, clock, log: silentLog });
  setStore(5);
  await time.advance(2_000);
  expect(store.now()).toBe(time.now());
  setStore(-3 * MINUTE);
  await time.advance(1_000);
  expect(store.now()).toBe(time.now() - 3 * MINUTE);
  await store.close();
});

it('time goes on while the store is away', async () => {
  const { time, clock, tables, setAway } = world(MINUTE);
  const store = await startStoreClock({ tables, clock, log: silentLog });
  setAway(true);
  await time.advance(10 * MINUTE);
  expect(store.now()).toBe(time.now() + MINUTE);
  await store.close();
});

it.each([
  [-5 * MINUTE, 5 * MINUTE, 1],
  [1_000, -1_000, 0],
])(
  'a store that is %i ms ahead: the node knows that it is %i ms off, and a large difference is told',
  async (ahead, skew, told) => {
    const { clock, tables } = world(ahead);
    const warnings: unknown[] = [];
    const log = { ...silentLog, warn: (message: string, fields?: unknown) => warnings.push([message, fields]) };
    const store = await startStoreClock({ tables, clock, log });
    expect(store.skew()).toBe(skew);
    expect(warnings).toHaveLength(told);
    if (told > 0) expect(warnings[0]).toEqual([expect.any(String), { ahead_ms: skew }]);
    await store.close();
  },
);
