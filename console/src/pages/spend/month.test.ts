import { expect, test } from 'vitest';
import { atThisPace, endOfMonth, monthBefore } from './month.ts';

test('a third of a month that cost $412.10 makes $1,236.30, to the micro-dollar', () => {
  const range = { from: '2026-11-01T00:00:00.000Z', to: '2026-11-11T00:00:00.000Z' };
  expect(atThisPace(412_100_000, range)).toBe(1_236_300_000n);
  expect(atThisPace(1, range)).toBe(3n);
});

test('the month before January is December, and December ends with the year', () => {
  expect(monthBefore('2026-01-01T00:00:00.000Z')).toBe('2025-12-01T00:00:00.000Z');
  expect(new Date(endOfMonth('2026-12-24T10:00:00.000Z')).toISOString()).toBe('2027-01-01T00:00:00.000Z');
});
