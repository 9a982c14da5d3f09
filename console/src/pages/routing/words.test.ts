import { expect, test } from 'vitest';
import { faultOfJson } from './words.ts';

test('a fault in JSON is on its line', () => {
  expect(faultOfJson('{\n  "a": 1\n}')).toBeNull();
  expect(faultOfJson('{\n  "a": 1,\n  b: 2\n}')?.line).toBe(3);
  expect(faultOfJson('{\n  "a": [1, 2\n}')?.line).toBe(3);
  expect(faultOfJson('{\n  "a": 1')?.line).toBe(2);
  expect(faultOfJson('')?.line).toBe(1);
});
