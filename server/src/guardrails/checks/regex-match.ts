import { z } from 'zod';
import { findPattern, isQuickMatch, patternProblem } from '../../kernel/pattern.ts';
import { matchesAnyLength } from '../../kernel/pattern-thread.ts';
import { ANY_TARGET, BOTH, breath, check, not, verdict } from './support.ts';

export const PATTERN_LIMITS = { characters: 4_096, program: 4_000 };

/** A pattern that users write: RE2 syntax, matched in linear time. */
export const pattern = z
  .string()
  .min(1)
  .superRefine((value, context) => {
    const problem = patternProblem(value, PATTERN_LIMITS);
    if (problem !== null) context.addIssue({ code: 'custom', message: problem });
  });

/**
 * `default.regexMatch`: passes when the pattern is found in at least one of all texts; with `not` when it is found in
 * none. Whole answers only: a pattern may look at any distance.
 */
export const regexMatch = check({
  id: 'default.regexMatch',
  phases: BOTH,
  targets: ANY_TARGET,
  parameters: z.strictObject({ rule: pattern, not }),
  // Of matches that are not made at once.
  timeoutMs: 30_000,
  mutates: false,
  compile: ({ rule, not: inverted }) => ({
    lookBehind: null,
    judge(subject, outside) {
      const { texts } = subject;
      const from = (index: number): ReturnType<typeof verdict> | Promise<ReturnType<typeof verdict>> => {
        let looked = 0;
        for (let i = index; i < texts.length; i++) {
          const part = texts[i];
          if (part === undefined) continue;
          looked += part.text.length + 16;
          // Each may be quick and all of them not.
          if (i > index && !isQuickMatch(rule, looked)) return breath().then(() => from(i));
          const found = matchesAnyLength(rule, part.text, outside);
          if (typeof found !== 'boolean') return found.then((hit) => (hit ? matched(i) : from(i + 1)));
          if (found) return matched(i);
        }
        return verdict(false, inverted, 'The pattern matches no text.');
      };
      const matched = (index: number) => {
        const part = texts[index];
        const whole = { start: 0, end: part?.text.length ?? 0 };
        const at = part !== undefined && isQuickMatch(rule, part.text.length * 4) ? findPattern(rule, part.text) : null;
        return verdict(true, inverted, 'The pattern matches a text.', {}, [
          { path: part?.path ?? '', ...(at ?? whole), kind: 'match' },
        ]);
      };
      return from(0);
    },
  }),
});
