import { describe, expect, it } from 'vitest';
import { addUsed, admits, burnAt, exhaustsAt, grantOf } from './bucket-math.ts';

const HOUR = 3_600_000;

describe('the arithmetic of a bucket', () => {
  it('admits below the limit only, and never under a limit of nothing', () => {
    expect([admits(0, 0), admits(9, 10), admits(10, 10), admits(11, 10)]).toEqual([false, true, false, false]);
  });

  it('what may use more than it says takes all that is left in the last hundredth', () => {
    expect(grantOf({ amount: 3, bounded: false }, 1000, 989)).toBe(3);
    expect(grantOf({ amount: 3, bounded: false }, 1000, 990)).toBe(10);
    expect(grantOf({ amount: 3, bounded: true }, 1000, 999)).toBe(3);
  });

  it('carries picodollars until they are a whole micro-dollar', () => {
    const count = { used: 0, carry: 0 };
    for (let i = 0; i < 3; i++) addUsed(count, { used: 1, carry: 400_000 });
    expect(count).toEqual({ used: 4, carry: 200_000 });
  });

  it('even use of 60 an hour is seen as about 60 an hour, and is forgotten when it stops', () => {
    const bucket = { burn: 0, burn_at: 0, used: 0, credit_limit: 1000, resets_at: null as number | null };
    for (let minute = 0; minute < 600; minute++) {
      const now = minute * 60_000;
      bucket.burn = burnAt(bucket, now) + 100;
      bucket.burn_at = now;
    }
    const end = bucket.burn_at;
    expect(bucket.burn).toBeGreaterThan(5_900);
    expect(bucket.burn).toBeLessThan(6_100);
    expect(burnAt(bucket, end + 10 * HOUR)).toBeLessThan(1);
  });

  it('foresees the end of a limit, unless it is over, lies behind the reset, or nothing is used', () => {
    const now = 10 * HOUR;
    const bucket = { used: 400, credit_limit: 1000, resets_at: null as number | null, burn: 300, burn_at: now };
    expect(exhaustsAt(bucket, now)).toBe(now + 2 * HOUR);
    expect(exhaustsAt({ ...bucket, resets_at: now + 2 * HOUR }, now)).toBeNull();
    expect(exhaustsAt({ ...bucket, resets_at: now + 2 * HOUR + 1 }, now)).toBe(now + 2 * HOUR);
    expect(exhaustsAt({ ...bucket, burn: 0 }, now)).toBeNull();
    expect(exhaustsAt({ ...bucket, used: 1000 }, now)).toBeNull();
    expect(exhaustsAt({ ...bucket, credit_limit: 2 ** 52, burn: 1 }, now)).toBeNull();
  });
});
