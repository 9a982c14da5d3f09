import { z } from 'zod';
import { findPattern, isQuickMatch, patternProblem } from '../../kernel/pattern.ts';
import { matchesAnyLength } from '../../kernel/pattern-thread.ts';
import { asSent, canonicalSubject } from '../canonical.ts';
import type { CheckHttpClient, Judgement, Subject, TextPart } from '../check.ts';
import { ANY_TARGET, BOTH, breath, check, not, verdict } from './support.ts';

const PATTERN_LIMITS = { characters: 4_096, program: 4_000 };

/** A pattern that users write: RE2 syntax, matched in linear time. */
export const pattern = z
  .string()
  .min(1)
  .superRefine((value, context) => {
    const problem = patternProblem(value, PATTERN_LIMITS);
    if (problem !== null) context.addIssue({ code: 'custom', message: problem });
  });

/** Texts in canonical form, and as they were sent where that differs: a pattern may look for what is invisible. */
function bothForms(subject: Subject): readonly TextPart[] {
  return subject.texts.flatMap((part) => {
    const { text } = asSent(part);
    return text === part.text ? [part] : [part, { path: part.path, role: part.role, text }];
  });
}

/**
 * `default.regexMatch`: passes when the pattern is found in at least one of all texts; with `not` when it is found in
 * none. A text is looked at in canonical form and as it was sent. Whole answers only: a pattern may look at any distance.
 */
export const regexMatch = check({
  id: 'default.regexMatch',
  phases: BOTH,
  targets: ANY_TARGET,
  parameters: z.strictObject({ rule: pattern, not }),
  // Of matches that are not made at once.
  timeoutMs: 30_000,
  mutates: false,
  compile({ rule, not: inverted }) {
    function matchIn(texts: readonly TextPart[], outside: CheckHttpClient): Judgement | Promise<Judgement> {
      const from = (index: number): Judgement | Promise<Judgement> => {
        let looked = 0;
        for (let i = index; i < texts.length; i++) {
          const part = texts[i];
          if (part === undefined) continue;
          looked += part.text.length + 16;
          // Each may be quick and all of them not.
          if (i > index && !isQuickMatch(rule, looked)) return breath().then(() => from(i));
          const found = matchesAnyLength(rule, part.text, outside);
          if (typeof found !== 'boolean') return found.then((hit) => (hit ? matched(part) : from(i + 1)));
          if (found) return matched(part);
        }
        return verdict(false, inverted, 'The pattern matches no text.');
      };
      const matched = (part: TextPart): Judgement => {
        const at = isQuickMatch(rule, part.text.length * 4) ? findPattern(rule, part.text) : null;
        const { start, end } = at ?? { start: 0, end: part.text.length };
        return verdict(true, inverted, 'The pattern matches a text.', {}, [
          { path: part.path, ...asSent(part).place(start, end), kind: 'match' },
        ]);
      };
      return from(0);
    }
    return {
      lookBehind: null,
      judge(given, outside) {
        const subject = canonicalSubject(given);
        if (subject instanceof Promise) return subject.then((ready) => matchIn(bothForms(ready), outside));
        return matchIn(bothForms(subject), outside);
      },
    };
  },
});
