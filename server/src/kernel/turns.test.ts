import { describe, expect, it } from 'vitest';
import { TestClock } from './clock.ts';
import { atOnce, inTurns, type Steps, Turns } from './turns.ts';

const loopTurns = async (count: number): Promise<void> => {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
};

describe('work in steps', () => {
  /** Each step takes so many milliseconds; `order` notes which ran, and when others had the event loop. */
  function* steps(clock: TestClock, order: string[], ms: readonly number[]): Steps<string> {
    for (const [index, one] of ms.entries()) {
      clock.jump(one);
      order.push(`step ${index}`);
      yield;
    }
    return 'done';
  }

  it('gives the event loop to others once four milliseconds are over, and after each longer step', async () => {
    const clock = new TestClock();
    const order: string[] = [];
    const watch = () => {
      order.push('others');
      if (order.length < 20) setImmediate(watch);
    };
    setImmediate(watch);
    expect(await inTurns(steps(clock, order, [1, 1, 2, 1, 30, 9]), clock)).toBe('done');
    const first = order.slice(0, order.indexOf('step 5') + 1);
    const without = first.filter((one, i) => one !== 'others' || first[i - 1] !== 'others');
    expect(without).toEqual(['step 0', 'step 1', 'step 2', 'others', 'step 3', 'step 4', 'others', 'step 5']);
  });

  it('has one turn where it takes no time, and where nobody waits for it', async () => {
    const clock = new TestClock();
    const order: string[] = [];
    setImmediate(() => order.push('others'));
    expect(atOnce(steps(clock, order, [50, 50]))).toBe('done');
    expect(await inTurns(steps(clock, order, [1, 1]), clock)).toBe('done');
    expect(order).not.toContain('others');
  });

  it('fails as its step does', async () => {
    const clock = new TestClock();
    const failing = function* (): Steps<void> {
      clock.jump(5);
      yield;
      throw new Error('a step failed');
    };
    await expect(inTurns(failing(), clock)).rejects.toThrow('a step failed');
    expect(() => atOnce(failing())).toThrow('a step failed');
  });
});

describe('Turns', () => {
  it('runs one piece of work in a turn of the event loop, and lets others in between two of them', async () => {
    const turns = new Turns(new TestClock());
    const order: string[] = [];
    for (const name of ['first', 'second', 'third'])
      turns.take('a', () => {
        order.push(name);
        setImmediate(() => order.push(`after ${name}`));
      });
    await loopTurns(10);
    expect(order).toEqual(['first', 'after first', 'second', 'after second', 'third', 'after third']);
  });

  it('serves organisations in turn, however much one of them has waiting', async () => {
    const turns = new Turns(new TestClock());
    const order: string[] = [];
    for (let i = 0; i < 5; i++) turns.take('greedy', () => order.push('greedy'));
    turns.take('modest', () => order.push('modest'));
    await loopTurns(20);
    expect(order).toEqual(['greedy', 'modest', 'greedy', 'greedy', 'greedy', 'greedy']);
  });

  it('lets an organisation that held the loop rest three times as long, promises of its work included', async () => {
    const clock = new TestClock();
    const turns = new Turns(clock);
    const order: string[] = [];
    turns.saw('other');
    turns.saw('heavy');
    void turns.wait('heavy').then(() => clock.jump(100));
    turns.take('heavy', () => order.push('heavy'));
    await loopTurns(5);
    turns.take('other', () => order.push('other'));
    await loopTurns(5);
    await clock.advance(299);
    expect(order).toEqual(['other']);
    await clock.advance(1);
    await loopTurns(5);
    expect(order).toEqual(['other', 'heavy']);
  });

  it('lets nobody rest after work that is as short as any other', async () => {
    const clock = new TestClock();
    const turns = new Turns(clock);
    const order: string[] = [];
    turns.saw('other');
    turns.saw('light');
    turns.take('light', () => clock.jump(0.05));
    turns.take('light', () => order.push('light'));
    await loopTurns(5);
    expect(order).toEqual(['light']);
  });

  it('counts a turn of half a millisecond: many of them hold the loop as one long one does', async () => {
    const clock = new TestClock();
    const turns = new Turns(clock);
    let ran = 0;
    turns.saw('other');
    turns.saw('heavy');
    turns.take('heavy', () => clock.jump(0.5));
    turns.take('heavy', () => ran++);
    await loopTurns(5);
    expect(ran).toBe(0);
    await clock.advance(1.5);
    await loopTurns(5);
    expect(ran).toBe(1);
  });

  it('counts what was done outside of its turns too', async () => {
    const clock = new TestClock();
    const turns = new Turns(clock);
    let ran = 0;
    turns.saw('other');
    turns.saw('heavy');
    turns.spent('heavy', 50);
    turns.take('heavy', () => ran++);
    await loopTurns(5);
    await clock.advance(149);
    expect(ran).toBe(0);
    await clock.advance(1);
    await loopTurns(5);
    expect(ran).toBe(1);
  });

  it('counts what a turn does once, also where the work tells of it', async () => {
    const clock = new TestClock();
    const turns = new Turns(clock);
    let ran = 0;
    turns.saw('other');
    turns.saw('heavy');
    turns.take('heavy', () => {
      clock.jump(10);
      turns.spent('heavy', 10);
    });
    turns.take('heavy', () => ran++);
    await loopTurns(5);
    await clock.advance(30);
    await loopTurns(5);
    expect(ran).toBe(1);
  });

  it('lets nobody rest where there is only one organisation', async () => {
    const clock = new TestClock();
    const turns = new Turns(clock);
    turns.saw('alone');
    await clock.advance(2_000);
    turns.saw('alone');
    let ran = 0;
    turns.take('alone', () => clock.jump(100));
    turns.take('alone', () => ran++);
    await loopTurns(10);
    expect(ran).toBe(1);
  });
});
