import fc from 'fast-check';
import { expect, it } from 'vitest';
import { cpu } from '../../../test/support/cost.ts';
import type { CheckHttpClient, Subject } from '../check.ts';
import { contains } from './contains.ts';

const judge = (words: readonly string[], text: string) => {
  const compiled = contains.compile({ words, operator: 'none' } as never, {} as never);
  const subject = { texts: [{ path: 'p', role: 'user', text }] } as unknown as Subject;
  return compiled.judge(subject, {} as CheckHttpClient);
};

it('finds a word where it first stands, however long word and text are', async () => {
  const text = fc
    .tuple(fc.constantFrom('', 'ab', 'aab'), fc.integer({ min: 0, max: 70_000 }))
    .map(([s, n]) => s.repeat(n));
  const word = fc
    .tuple(fc.constantFrom('a', 'ab', 'aab'), fc.integer({ min: 1, max: 60 }), fc.constantFrom('', 'b', 'aa'))
    .map(([s, n, end]) => s.repeat(n) + end);
  await fc.assert(
    fc.asyncProperty(text, word, text, async (before, sought, after) => {
      for (const whole of [before + after, before + sought + after]) {
        const at = whole.indexOf(sought);
        const { verdict, excerpts = [] } = await judge([sought], whole);
        expect([verdict, excerpts.map(({ start }) => start)]).toEqual(at < 0 ? [true, []] : [false, [at]]);
      }
    }),
    { numRuns: 40 },
  );
});

it('takes no longer for a word that nearly stands everywhere: others get their turn meanwhile', async () => {
  const word = `${'a'.repeat(500)}b${'a'.repeat(499)}`;
  const began = cpu();
  const { verdict } = await judge([word], 'a'.repeat(8_000_000));
  expect(verdict).toBe(true);
  // The engine's own search takes 6 s and more, at once.
  expect(cpu() - began).toBeLessThan(3_000);
});
