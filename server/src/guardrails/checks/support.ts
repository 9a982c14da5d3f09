/** What checks share: how they are declared, common parameters, and pauses in long work. */
import { z } from 'zod';
import type { Check, Excerpt, Judgement, Phase, Subject, Target, TextPart } from '../check.ts';

export const BOTH: readonly Phase[] = ['input', 'output'];
export const INPUT: readonly Phase[] = ['input'];
export const OUTPUT: readonly Phase[] = ['output'];
export const ANY_TARGET: readonly Target[] = ['llm', 'mcp_tools'];
export const LLM: readonly Target[] = ['llm'];

/** A check under the type the catalog keeps: parameters reach `compile` only through its own schema. */
export function check<P>(made: Check<P>): Check {
  return made as unknown as Check;
}

export const not = z.boolean('must be true or false').default(false);
/** `redacts` of checks with a parameter `redact`. */
export const ifAsked = ({ redact }: { readonly redact: boolean }): boolean => redact;
export const operator = (fallback: 'any' | 'all') => z.enum(['any', 'all', 'none']).default(fallback);
export const count = (fallback: number) => z.number().int('must be a whole number').min(0).max(1e9).default(fallback);

/** A text that is not empty, well-formed, and at most `max` UTF-16 units long. */
export const text = (max: number) =>
  z
    .string()
    .min(1)
    .max(max)
    .refine((value) => value.isWellFormed(), 'has half a character: send well-formed Unicode');

/** Of a list of choices, such as categories: more than any service knows. */
export const MAX_CHOICES = 1_000;

export const texts = (max: number, each: number) => z.array(text(each)).min(1).max(max);

/** Parameters of checks that are addresses. Path and query are secret: who has them may call. */
export const URL_PARAMETERS = ['webhookURL', 'logURL'] as const;

/** An http(s) URL without credentials; where it leads is judged where it is saved and when it is called. */
export const url = z
  .string()
  .max(2_048)
  .refine((value) => {
    const parsed = URL.parse(value);
    return parsed !== null && /^https?:$/.test(parsed.protocol) && parsed.username === '' && parsed.password === '';
  }, 'must be an http or https URL without user name and password');

/** The verdict of a found/not found check. */
export function verdict(
  ok: boolean,
  inverted: boolean,
  explanation: string,
  more: Readonly<Record<string, unknown>> = {},
  excerpts: readonly Excerpt[] = [],
): Judgement {
  return { verdict: ok !== inverted, data: { explanation, not: inverted, ...more }, excerpts };
}

/** Lets the event loop run what waits. */
export const breath = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Texts up to this length are judged at once; longer ones with pauses. */
export const AT_ONCE = 16_000;

/** Runs steps to their end; each `yield` is a place to pause, taken when the steps before it were enough work. */
export function paced<T>(steps: Generator<number, T>): T | Promise<T> {
  let work = 0;
  const run = (): T | Promise<T> => {
    for (;;) {
      const step = steps.next();
      if (step.done) return step.value;
      work += step.value;
      if (work > AT_ONCE) {
        work = 0;
        return breath().then(run);
      }
    }
  };
  return run();
}

/** How much text there is, in UTF-16 units. */
export function amount(parts: readonly TextPart[]): number {
  let sum = 0;
  for (const part of parts) sum += part.text.length;
  return sum;
}

/** A finding in a text, in UTF-16 units; `kind` says what it is, never the thing itself. */
export interface Finding {
  readonly start: number;
  readonly end: number;
  readonly kind: string;
  /** The whole thing, where it is split over texts that follow each other. */
  readonly whole?: string;
  /** It began in a text before. */
  readonly continues?: true;
}

/**
 * Findings that are certain: one that touches the end of a window which goes on could become something else, and one at
 * the cut start of a window was longer or was judged before. `margin` is how far a finding looks at its neighbours.
 */
export function settled(
  findings: readonly Finding[],
  length: number,
  window: Subject['window'],
  margin: number,
): readonly Finding[] {
  if (window === null || (window.starts && window.ends)) return findings;
  return findings.filter(
    ({ start, end }) => (window.starts || start >= margin) && (window.ends || end + margin <= length),
  );
}
