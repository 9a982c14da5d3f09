import { z } from 'zod';
import { findPattern, isQuickMatch, patternProblem } from '../../kernel/pattern.ts';
import { matchesAnyLength } from '../../kernel/pattern-thread.ts';
import { asSent, canonicalSubject } from '../canonical.ts';
import type { CheckHttpClient, Judgement, Subject, TextPart } from '../check.ts';
import { joinedTexts, type Stretch } from '../joined.ts';
import { ANY_TARGET, BOTH, breath, check, not, verdict } from './support.ts';

const PATTERN_LIMITS = { characters: 4_096, program: 4_000 };

/** Excerpts of one match, which may go over many parts. */
const MAX_PLACES = 100;

/** A pattern that users write: RE2 syntax, matched in linear time. */
export const pattern = z
  .string()
  .min(1)
  .superRefine((value, context) => {
    const problem = patternProblem(value, PATTERN_LIMITS);
    if (problem !== null) context.addIssue({ code: 'custom', message: problem });
  });

/** A text that is looked at: a part, or several as one. */
interface Looked {
  readonly text: string;
  stretches(start: number, end: number): readonly Stretch[];
}

/** Texts in canonical form, and as they were sent where that differs: a pattern may look for what is invisible. */
function allForms(subject: Subject): readonly Looked[] {
  const alone = (part: TextPart): Looked => ({
    text: part.text,
    stretches: (start, end) => [{ part, start, end }],
  });
  const parts = subject.texts.flatMap((part) => {
    const { text } = asSent(part);
    return text === part.text ? [alone(part)] : [alone(part), alone({ path: part.path, role: part.role, text })];
  });
  const joined = joinedTexts(subject);
  return joined.length === 0 ? parts : [...parts, ...joined];
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
    function matchIn(texts: readonly Looked[], outside: CheckHttpClient): Judgement | Promise<Judgement> {
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
      const matched = ({ text, stretches }: Looked): Judgement => {
        const at = isQuickMatch(rule, text.length * 4) ? findPattern(rule, text) : null;
        const { start, end } = at ?? { start: 0, end: text.length };
        const places = stretches(start, end).slice(0, MAX_PLACES);
        const excerpts = places.map(({ part, start: from, end: to }) => ({
          path: part.path,
          ...asSent(part).place(from, to),
          kind: 'match',
        }));
        return verdict(true, inverted, 'The pattern matches a text.', {}, excerpts);
      };
      return from(0);
    }
    return {
      lookBehind: null,
      judge(given, outside) {
        const subject = canonicalSubject(given);
        if (subject instanceof Promise) return subject.then((ready) => matchIn(allForms(ready), outside));
        return matchIn(allForms(subject), outside);
      },
    };
  },
});
