import { afterEach, expect, it, vi } from 'vitest';
import type { Target } from '../target.ts';
import { Held } from './held.ts';

afterEach(() => vi.restoreAllMocks());

it('each part of a large answer is searched once for what it tells of an error', () => {
  const held = new Held({ sent: ['sk-secret'] } as unknown as Target, ['content-type', 'application/json']);
  const part = Buffer.from(`{"text":"${'Where are errors here? '.repeat(100)}"}`);
  const search = vi.spyOn(Buffer.prototype, 'indexOf');
  expect(held.add(part)).toBeNull();
  for (let i = 0; i < 10; i++) expect(held.add(part)).toBe(part);
  expect(held.last()).toEqual([part]);
  expect(search.mock.calls.length).toBe(11);
});
