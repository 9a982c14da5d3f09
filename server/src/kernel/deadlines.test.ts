import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TestClock } from './clock.ts';
import { type Deadline, Deadlines, deadlinesOf } from './deadlines.ts';

describe('Deadlines', () => {
  it('fires once, never early and at most 40 ms late, near or far', async () => {
    const clock = new TestClock();
    const deadlines = new Deadlines(clock);
    const began = clock.monotonic();
    const fired = new Map<number, number>();
    const delays = [1, 20, 59, 1_000, 20_479, 20_480, 20_500, 60_000, 120_000];
    for (const ms of delays) deadlines.start(ms, () => fired.set(ms, clock.monotonic() - began));
    await clock.advance(121_000);
    for (const ms of delays) {
      expect(fired.get(ms)).toBeGreaterThanOrEqual(ms);
      expect(fired.get(ms)).toBeLessThanOrEqual(ms + 40);
    }
    expect(deadlines.size).toBe(0);
  });

  it('can be put off, brought forward, cancelled and used again', async () => {
    const clock = new TestClock();
    const deadlines = new Deadlines(clock);
    const log: string[] = [];
    const a = deadlines.start(100, () => log.push('a'));
    const b = deadlines.start(100, () => log.push('b'));
    const c = deadlines.start(5_000, () => log.push('c'));
    await clock.advance(80);
    a.reset(100);
    b.cancel();
    c.reset(10);
    await clock.advance(60);
    expect(log).toEqual(['c']);
    await clock.advance(100);
    expect(log).toEqual(['c', 'a']);
    a.reset(50);
    await clock.advance(100);
    expect(log).toEqual(['c', 'a', 'a']);
  });

  it('does not fire a neighbour that the first callback cancels, and survives callbacks that start more', async () => {
    const clock = new TestClock();
    const deadlines = new Deadlines(clock);
    const log: string[] = [];
    const made: Deadline[] = [];
    for (const name of ['x', 'y']) {
      made.push(
        deadlines.start(50, () => {
          log.push(name);
          for (const other of made) other.cancel();
          deadlines.start(50, () => log.push('later'));
        }),
      );
    }
    await clock.advance(1_000);
    expect(log).toHaveLength(2);
    expect(log[1]).toBe('later');
  });

  it('agrees with a list of due times under random use', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.tuple(
            fc.nat({ max: 9 }),
            fc.constantFrom('reset', 'cancel'),
            fc.nat({ max: 30_000 }),
            fc.nat({ max: 4_000 }),
          ),
          {
            maxLength: 20,
          },
        ),
        async (steps) => {
          const clock = new TestClock();
          const deadlines = new Deadlines(clock);
          const due = new Map<number, number>();
          const handles = Array.from({ length: 10 }, (_, k) =>
            deadlines.start(0, () => {
              const at = due.get(k);
              expect(at).toBeDefined();
              expect(clock.monotonic() - (at ?? 0)).toBeGreaterThanOrEqual(0);
              expect(clock.monotonic() - (at ?? 0)).toBeLessThanOrEqual(40);
              due.delete(k);
            }),
          );
          for (const handle of handles) handle.cancel();
          for (const [k, action, ms, wait] of steps) {
            if (action === 'cancel') {
              handles[k]?.cancel();
              due.delete(k);
            } else {
              handles[k]?.reset(ms);
              due.set(k, clock.monotonic() + ms);
            }
            await clock.advance(wait);
          }
          await clock.advance(31_000);
          expect(due.size).toBe(0);
        },
      ),
      { numRuns: 20 },
    );
  });

  it('fires everything overdue after a long stall of the process', async () => {
    const clock = new TestClock();
    const deadlines = deadlinesOf(clock);
    expect(deadlinesOf(clock)).toBe(deadlines);
    let fired = 0;
    for (let k = 0; k < 100; k++) deadlines.start(k * 500, () => fired++);
    clock.jump(600_000);
    await clock.advance(20);
    expect(fired).toBe(100);
  });
});
