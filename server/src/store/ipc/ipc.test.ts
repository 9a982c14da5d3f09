import { describe, expect, it } from 'vitest';
import { TestClock } from '../../kernel/clock.ts';
import { memoryCounters } from '../memory/counters.ts';
import { type Channel, serveWorker, workerShared } from './ipc.ts';

/** The two ends of a channel; what is sent arrives when it is let through. */
function pair() {
  const receivers: ((message: unknown) => void)[][] = [[], []];
  const under: [to: number, message: unknown][] = [];
  const end = (of: number): Channel => ({
    send: (message) => void under.push([1 - of, structuredClone(message)]),
    onMessage: (receive) => void receivers[of]?.push(receive),
  });
  return {
    worker: end(0),
    primary: end(1),
    async deliver() {
      while (under.length > 0) {
        const [to, message] = under.shift() as [number, unknown];
        for (const receive of receivers[to] ?? []) receive(message);
        await new Promise((resolve) => setImmediate(resolve));
      }
    },
  };
}

const hit = (key: string) => [{ key, amount: 1, limit: 1, expiresAt: Date.UTC(2027, 0, 1) }];

describe('counters of the primary process', () => {
  it('are one for all workers', async () => {
    const clock = new TestClock();
    const counters = memoryCounters({ clock });
    const channels = [pair(), pair()];
    const [one, two] = channels.map(({ worker, primary }) => {
      serveWorker(primary, counters, () => []);
      return workerShared(worker, clock.after.bind(clock)).counters;
    });
    const results = [one?.hit(hit('k')), two?.hit(hit('k'))];
    for (const { deliver } of channels) await deliver();
    expect((await Promise.all(results)).map((result) => result?.allowed)).toEqual([true, false]);
  });

  it('that do not answer in time refuse, and what comes later is nobody’s', async () => {
    const clock = new TestClock();
    const { worker, primary, deliver } = pair();
    const { counters } = workerShared(worker, clock.after.bind(clock));
    const asked = counters.hit(hit('k')).catch((error: Error) => error.message);
    await clock.advance(10_000);
    expect(await asked).toMatch(/do not answer/);
    serveWorker(primary, memoryCounters({ clock }), () => []);
    await deliver();
  });

  it('whose answer has come while the worker itself was held up are heard all the same', async () => {
    const clock = new TestClock();
    const timers: (() => void)[] = [];
    const { worker, primary, deliver } = pair();
    serveWorker(primary, memoryCounters({ clock }), () => []);
    const { counters } = workerShared(worker, (_ms, fn) => {
      timers.push(fn);
      return () => {};
    });
    const asked = counters.hit(hit('k'));
    // Timers that are due come before messages that wait.
    timers.shift()?.();
    await deliver();
    for (const late of timers) late();
    expect((await asked).allowed).toBe(true);
  });
});
