import { expect, test } from 'vitest';
import { dollars, duration, statusText } from './format.ts';

test('costs keep every micro-dollar and drop needless zeros', () => {
  expect(dollars(0)).toBe('$0');
  expect(dollars(42)).toBe('$0.000042');
  expect(dollars(1_250_000)).toBe('$1.25');
  expect(dollars(1_000_000)).toBe('$1.00');
  expect(dollars(100)).toBe('$0.0001');
});

test('durations are in the unit that fits', () => {
  expect([duration(0.84), duration(340.4), duration(1240)]).toEqual(['0.8 ms', '340 ms', '1.24 s']);
});

test('a status has its name, an unknown one its number', () => {
  expect([statusText(429), statusText(299)]).toEqual(['429 Too many requests', '299']);
});
