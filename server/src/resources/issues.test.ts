import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { furtherIssues, issuesOf } from './issues.ts';

it('types are told by the names that JSON has for them', () => {
  const told = z.object({ a: z.record(z.string(), z.string()), b: z.object({}) }).safeParse({ a: 'x', b: [] });
  expect(issuesOf(told.error ?? new z.ZodError([]))).toEqual([
    { path: 'a', message: 'must be of type object, not string' },
    { path: 'b', message: 'must be of type object, not array' },
  ]);
});

describe('what a message about the first problem says of the others', () => {
  it('says where they are, five of them at most', () => {
    const at = (...paths: string[]) => paths.map((path) => ({ path, message: 'is required' }));
    expect(furtherIssues([])).toBe('');
    expect(furtherIssues(at('retry.attempts'), 'config')).toBe(' (1 more problem: config.retry.attempts)');
    expect(furtherIssues(at('', 'a'))).toBe(' (2 more problems: a)');
    expect(furtherIssues(at('a', 'b', 'c', 'd', 'e', 'f'))).toBe(' (6 more problems: a, b, c, d, e, …)');
  });
});
