import { z } from 'zod';
import { canonicalTail, canonicalText } from '../canonical.ts';
import type { Judgement } from '../check.ts';
import { ANY_TARGET, BOTH, check, not, OUTPUT, paced, text, verdict } from './support.ts';

/** Characters changed at once: some letters become three. */
const SLICE = 64_000;

/** Whether a text stays what it is under `change`, which maps each character by itself. */
function* unchanged(text: string, change: (piece: string) => string): Generator<number, boolean> {
  for (let at = 0; at < text.length; ) {
    let end = Math.min(at + SLICE, text.length);
    if (/[\ud800-\udbff]/.test(text.charAt(end - 1))) end += 1;
    const piece = at === 0 && end >= text.length ? text : text.slice(at, end);
    if (piece !== change(piece)) return false;
    at = end;
    yield SLICE / 4;
  }
  return true;
}

const formed = (id: string, change: (piece: string) => string, [yes, no]: readonly [string, string]) =>
  check({
    id,
    phases: BOTH,
    targets: ANY_TARGET,
    parameters: z.strictObject({ not }),
    timeoutMs: null,
    mutates: false,
    compile: ({ not: inverted }) => ({
      lookBehind: null,
      judge(subject) {
        const told = (ok: boolean): Judgement => verdict(ok, inverted, ok ? yes : no);
        const same = paced(unchanged(subject.latest(), change));
        return typeof same === 'boolean' ? told(same) : same.then(told);
      },
    }),
  });

/** `default.alluppercase`: the latest text has no letter that upper case would change. A text without letters passes. */
export const allUpperCase = formed('default.alluppercase', (piece) => piece.toUpperCase(), [
  'The text is in upper case.',
  'The text is not in upper case.',
]);

/** `default.isAllLowerCase`: the latest text has no letter that lower case would change. A text without letters passes. */
export const isAllLowerCase = formed('default.isAllLowerCase', (piece) => piece.toLowerCase(), [
  'The text is in lower case.',
  'The text is not in lower case.',
]);

/** `default.endsWith`: the latest text ends with `suffix`, code unit for code unit once both are canonical. */
export const endsWith = check({
  id: 'default.endsWith',
  phases: BOTH,
  targets: ANY_TARGET,
  parameters: z.strictObject({ suffix: text(10_000), not }),
  timeoutMs: null,
  mutates: false,
  compile({ suffix, not: inverted }) {
    const wanted = canonicalText(suffix) || suffix;
    return {
      lookBehind: null,
      judge(subject) {
        const latest = subject.latest();
        // Only the end is made canonical, from a place behind which nothing combines with what is before it.
        const ok =
          latest.endsWith(suffix) ||
          canonicalText(latest.slice(canonicalTail(latest, wanted.length + 1))).endsWith(wanted);
        return verdict(ok, inverted, ok ? 'The text ends with the suffix.' : 'The text does not end with the suffix.');
      },
    };
  },
});

/** `default.notNull`: the answer's text holds something besides white space and invisible characters. An answer that calls tools is not judged. */
export const notNull = check({
  id: 'default.notNull',
  phases: OUTPUT,
  targets: ANY_TARGET,
  parameters: z.strictObject({ not }),
  timeoutMs: null,
  mutates: false,
  compile: ({ not: inverted }) => ({
    lookBehind: null,
    judge(subject) {
      if (subject.callsTools) return { verdict: true, data: { explanation: 'The answer calls tools.', skipped: true } };
      const ok = /[^\s\p{Default_Ignorable_Code_Point}]/u.test(subject.latest());
      return verdict(ok, inverted, ok ? 'The answer has text.' : 'The answer has no text.');
    },
  }),
});
