import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { anomalyOf, BUDGET_MS, BURN_RULES, errorRate, median, NO_TRAFFIC, spendRate } from './traffic-rules.ts';

const HOUR = 3_600_000;
const DOLLAR = 1_000_000;

describe('how fast a budget is used', () => {
  it('is once when a thirtieth is spent each day, and 14.4 times when 2 % of it are spent in an hour', () => {
    const budget = 300 * DOLLAR;
    expect(spendRate({ ...NO_TRAFFIC, micros: 10 * DOLLAR }, 24 * HOUR, budget)).toBeCloseTo(1, 9);
    expect(spendRate({ ...NO_TRAFFIC, micros: 6 * DOLLAR }, HOUR, budget)).toBeCloseTo(14.4, 9);
    expect(BURN_RULES.map(({ hours, times }) => (hours * HOUR * times) / BUDGET_MS)).toEqual([0.02, 0.05, 0.1]);
  });

  it('of errors is the failed share as a multiple of the share that may fail; without requests it is 0', () => {
    expect(errorRate({ ...NO_TRAFFIC, requests: 1_000, failed: 72 }, 0.5)).toBeCloseTo(14.4, 9);
    expect(errorRate(NO_TRAFFIC, 0.5)).toBe(0);
  });
});

describe('an hour', () => {
  const usual = [10, 12, 8, 10].map((dollars) => dollars * DOLLAR);

  it('is unusual above three times the median and six deviations, and below a third once it is over', () => {
    expect(anomalyOf(30 * DOLLAR, usual, false)).toEqual({ direction: 'above', usual: 10 * DOLLAR });
    expect(anomalyOf(29 * DOLLAR, usual, false)).toBeNull();
    expect(anomalyOf(3 * DOLLAR, usual, true)).toEqual({ direction: 'below', usual: 10 * DOLLAR });
    expect(anomalyOf(3 * DOLLAR, usual, false)).toBeNull();
    expect(anomalyOf(5 * DOLLAR, usual, true)).toBeNull();
  });

  it('is not unusual while weeks differ as much among themselves', () => {
    const wild = [1, 20, 40, 60].map((dollars) => dollars * DOLLAR);
    expect(anomalyOf(100 * DOLLAR, wild, true)).toBeNull();
  });

  it('is never unusual by less than a dollar', () => {
    expect(anomalyOf(0.9 * DOLLAR, [0, 0, 0, 0], true)).toBeNull();
    expect(anomalyOf(DOLLAR, [0, 0, 0, 0], true)).toEqual({ direction: 'above', usual: 0 });
    expect(
      anomalyOf(
        0,
        [0.9, 0.9, 0.9, 0.9].map((each) => each * DOLLAR),
        true,
      ),
    ).toBeNull();
  });

  it('that costs what it always costs is never unusual', () => {
    const micros = fc.nat({ max: 1e12 });
    fc.assert(fc.property(micros, (each) => anomalyOf(each, [each, each, each, each], true) === null));
  });

  it('is compared with the median, of an even number the mean of both in the middle', () => {
    expect([median([]), median([3]), median([4, 1]), median([9, 1, 5]), median([4, 1, 3, 2])]).toEqual([
      0, 3, 2.5, 5, 2.5,
    ]);
  });
});
