import { expect, it } from 'vitest';
import { RowSet } from './row-set.ts';

it('remembers rows through every growth', () => {
  const set = new RowSet();
  for (let i = 0; i < 20_000; i++) expect(set.seen(`row ${i}`)).toBe(false);
  for (let i = 0; i < 20_000; i++) expect(set.seen(Buffer.from(`row ${i}`))).toBe(true);
  expect(set.complete).toBe(true);
});

it('takes no more memory past its limit, says so, and still knows what it has', () => {
  const set = new RowSet(1 << 13);
  const most = 0.75 * (1 << 13);
  for (let i = 0; i < most; i++) expect(set.seen(`row ${i}`)).toBe(false);
  expect(set.complete).toBe(true);
  expect([set.seen('one more'), set.seen('one more')]).toEqual([false, false]);
  expect(set.complete).toBe(false);
  expect(set.seen('row 1')).toBe(true);
});
