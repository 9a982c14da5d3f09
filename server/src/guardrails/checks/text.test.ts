import { describe, expect, it } from 'vitest';
import { TEXT_ROWS } from '../../../test/guardrail-sets/texts.ts';
import { judged, type SubjectParts } from '../../../test/support/guardrails.ts';

const many = (text: string, n: number) => text.repeat(n);
const json = (value: unknown) => JSON.stringify(value);

describe('checks of texts', () => {
  for (const [id, parameters, passes, fails] of TEXT_ROWS) {
    const title = `${id} ${JSON.stringify(parameters).slice(0, 80)}`;
    it(`${title} passes and fails as written`, async () => {
      const wrong: string[] = [];
      for (const [texts, expected] of [
        [passes, true],
        [fails, false],
      ] as const)
        for (const text of texts)
          if ((await judged(id, parameters, text)).verdict !== expected)
            wrong.push(`${expected ? 'should pass' : 'should fail'}: ${json(text).slice(0, 80)}`);
      expect(wrong).toEqual([]);
    });
  }

  it('counting and form look at the latest text, searching looks at all of them', async () => {
    const subject: SubjectParts = { texts: ['hidden word', 'LAST'], latest: 'LAST' };
    expect((await judged('default.alluppercase', {}, subject)).verdict).toBe(true);
    expect((await judged('default.wordCount', { maxWords: 1 }, subject)).verdict).toBe(true);
    expect((await judged('default.contains', { words: ['hidden'], operator: 'none' }, subject)).verdict).toBe(false);
    expect((await judged('default.regexMatch', { rule: 'hidden', not: true }, subject)).verdict).toBe(false);
  });

  it('an answer that calls tools is not asked for text', async () => {
    expect((await judged('default.notNull', {}, { texts: [], callsTools: true })).verdict).toBe(true);
  });

  it('a pattern that no thread of events could wait for is matched in another thread', async () => {
    const rule = 'a[ab]{30}x|b[ab]{100}[xc]$';
    expect((await judged('default.regexMatch', { rule }, `${many('ab', 50_000)}c`)).verdict).toBe(true);
    expect((await judged('default.regexMatch', { rule }, many('ab', 50_000))).verdict).toBe(false);
  });
});
