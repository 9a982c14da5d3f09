/** What a request will use, as far as its body tells. */
import type { JsonObject } from '../../kernel/json.ts';

export interface Expected {
  /** Tokens; null: what the body most likely has. */
  readonly input: number | null;
  /** Tokens; null: the body does not tell, as many as earlier answers had. */
  readonly output: number | null;
  /** It cannot use more than this. */
  readonly bounded: boolean;
}

/**
 * `body`: as it is sent, null where it cannot be read. `input`: tokens of it; the most that it can have where `isText`, all
 * that the provider reads being text in it, else the likely ones.
 */
export type Estimate = (body: JsonObject | null, input: number, isText: boolean) => Expected;

/** No answer is longer; larger maxima are callers' ways of saying none. */
const MAX_OUTPUT = 1_000_000;
/** Of all answers of one request; what is more is no count (`operations/usage.ts`). */
const MAX_COUNT = 999_999_999;

const UNTOLD: Expected = { input: null, output: null, bounded: false };

/** A request whose body tells nothing. */
export const unknownUse: Estimate = () => UNTOLD;

/** A request whose answers a model writes. */
export const writtenUse: Estimate = (body, input, isText) => {
  if (body === null) return UNTOLD;
  const answers = choices(body);
  const each = maximum(body);
  const most = answers === null || each === null ? null : answers * each;
  if (most !== null && most <= MAX_COUNT) return { input, output: most, bounded: isText };
  // The learned figures are of whole answers, with as many choices as they had.
  return { input, output: null, bounded: false };
};

/** A whole number from 1 to what no answer reaches; null for anything else, also for a text that a lenient provider would take. */
export function whole(value: unknown): number | null {
  return typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= MAX_OUTPUT ? value : null;
}

/** The largest maximum of one answer that the body allows; null when it says none, or one that is no bound. */
function maximum(body: JsonObject): number | null {
  let most: number | null = null;
  for (const name of ['max_completion_tokens', 'max_output_tokens', 'max_tokens'] as const) {
    const value = body[name];
    if (value === undefined || value === null) continue;
    const one = whole(value);
    if (one === null) return null;
    most = Math.max(most ?? 0, one);
  }
  return most;
}

/** How many answers are written, seen or not; null when it cannot be known. */
function choices({ n, best_of: best, prompt }: JsonObject): number | null {
  let each = 1;
  for (const value of [n, best]) {
    if (value === undefined || value === null) continue;
    const one = whole(value);
    if (one === null) return null;
    each = Math.max(each, one);
  }
  // A list of texts, or of lists of tokens, is as many prompts; a list of numbers is one.
  const several = Array.isArray(prompt) && typeof prompt[0] !== 'number';
  return each * (several ? Math.max(1, prompt.length) : 1);
}
