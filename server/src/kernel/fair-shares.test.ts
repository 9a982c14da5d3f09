import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FairShares } from './fair-shares.ts';

/** What a holder gets when it takes until it is refused. */
function takesAll(shares: FairShares, holder: string, amount = 1): number {
  let got = 0;
  while (shares.take(holder, amount)) got += amount;
  return got;
}

describe('the share of one organisation', () => {
  it('is half of the bound while it is alone, and a quarter is left for each of two others', () => {
    const shares = new FairShares('things', 100);
    expect(takesAll(shares, 'a')).toBe(50);
    expect(takesAll(shares, 'b')).toBe(25);
    expect(takesAll(shares, 'c')).toBe(25);
    shares.give('a', 30);
    expect(takesAll(shares, 'd')).toBe(25);
    // More than its quarter only while half of the bound is free.
    expect(takesAll(shares, 'a')).toBe(5);
  });

  it('is at least one of something that there are few of', () => {
    const shares = new FairShares('threads', 2);
    expect([takesAll(shares, 'a'), takesAll(shares, 'b')]).toEqual([1, 1]);
  });

  it('never adds up to more than the bound, and is all given back, in any order', () => {
    const step = fc.record({
      holder: fc.constantFrom('a', 'b', 'c', 'd', 'e'),
      amount: fc.integer({ min: 1, max: 40 }),
    });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 200 }), fc.array(step, { maxLength: 60 }), (max, steps) => {
        const shares = new FairShares('things', max);
        const taken: { holder: string; amount: number }[] = [];
        for (const { holder, amount } of steps) {
          const before = shares.heldBy(holder);
          const free = shares.max - shares.held >= amount;
          const got = shares.take(holder, amount);
          if (got) taken.push({ holder, amount });
          expect(shares.heldBy(holder)).toBe(got ? before + amount : before);
          expect(shares.held).toBeLessThanOrEqual(max);
          // Within its quarter nobody is refused while there is any.
          if (free && before + amount <= shares.each) expect(got).toBe(true);
          if (taken.every((one) => one.holder === holder))
            expect(shares.held).toBeLessThanOrEqual(Math.max(1, max / 2));
          if (!got && taken.length > 3) {
            const last = taken.splice(0, 1)[0];
            if (last !== undefined) shares.give(last.holder, last.amount);
          }
        }
        for (const { holder, amount } of taken) shares.give(holder, amount);
        expect(shares.held).toBe(0);
        for (const holder of ['a', 'b', 'c', 'd', 'e']) expect(shares.heldBy(holder)).toBe(0);
      }),
    );
  });
});
