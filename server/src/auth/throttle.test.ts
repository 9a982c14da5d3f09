import { describe, expect, it } from 'vitest';
import { TestClock } from '../kernel/clock.ts';
import { Throttle } from './throttle.ts';

describe('failed attempts', () => {
  it('ten in a minute are free, then the wait doubles up to 15 minutes', async () => {
    const clock = new TestClock();
    const throttle = new Throttle(clock);
    for (let i = 0; i < 10; i++) throttle.failed('a');
    expect(throttle.blockedFor('a')).toBe(0);
    const waits: number[] = [];
    for (let i = 0; i < 12; i++) {
      throttle.failed('a');
      waits.push(throttle.blockedFor('a'));
    }
    expect(waits.slice(0, 4)).toEqual([1_000, 2_000, 4_000, 8_000]);
    expect(waits.at(-1)).toBe(15 * 60_000);
    expect(throttle.blockedFor('b')).toBe(0);
  });

  it('a source that stays quiet for 15 minutes starts afresh', async () => {
    const clock = new TestClock();
    const throttle = new Throttle(clock);
    for (let i = 0; i < 15; i++) throttle.failed('a');
    await clock.advance(32 * 60_000);
    throttle.failed('a');
    expect(throttle.blockedFor('a')).toBe(0);
  });

  it('a slow source is never blocked', async () => {
    const clock = new TestClock();
    const throttle = new Throttle(clock);
    for (let i = 0; i < 100; i++) {
      throttle.failed('a');
      await clock.advance(7_000);
      expect(throttle.blockedFor('a')).toBe(0);
    }
  });

  it('the addresses of one IPv6 /64 are one source, however they are written', () => {
    const throttle = new Throttle(new TestClock());
    for (let i = 0; i < 11; i++) throttle.failed(`2001:db8:0:1::${i.toString(16)}`);
    expect(throttle.blockedFor('2001:DB8:0000:1:ffff::1')).toBe(1_000);
    expect(throttle.blockedFor('2001:db8:0:2::1')).toBe(0);
    expect(throttle.size).toBe(1);
  });

  it('remembers a bounded number of sources', () => {
    const throttle = new Throttle(new TestClock(), 100);
    for (let i = 0; i < 1_000; i++) throttle.failed(`source ${i}`);
    expect(throttle.size).toBe(100);
  });
});
