import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';

/** Token classes; `input` includes cached and cache-write tokens, `output` includes reasoning tokens. */
export interface TokenUsage {
  readonly input: number;
  readonly output: number;
  readonly cache_read: number;
  readonly cache_write: number;
  readonly reasoning: number;
  readonly audio_input: number;
  readonly audio_output: number;
}

export const NO_TOKENS: TokenUsage = {
  input: 0,
  output: 0,
  cache_read: 0,
  cache_write: 0,
  reasoning: 0,
  audio_input: 0,
  audio_output: 0,
};

/** How a wire shape tells token counts: the value of `usage`, not the answer. */
export interface UsageForm {
  /**
   * Null when it holds no token count at all, or the shape has none. Negative, absurd and non-numeric counts read as absent,
   * and a total is never below its parts.
   */
  read(usage: JsonObject): TokenUsage | null;
  /** Null for shapes that nothing is converted to. */
  write(usage: TokenUsage): JsonObject | null;
}

/** Of shapes that count no tokens. */
export const NO_USAGE: UsageForm = { read: () => null, write: () => null };

const CLASSES = Object.keys(NO_TOKENS) as (keyof TokenUsage)[];

/**
 * No single call reads or writes a billion tokens: a larger count is an upstream fault and reads as absent, so that
 * one bad answer cannot empty a budget or overflow a sum.
 */
const ABSURD = 1_000_000_000;

/** A count as reported, or null when it is missing, negative, absurd or no number. */
export function tokenCount(value: JsonValue | undefined): number | null {
  return typeof value === 'number' && value >= 0 && value < ABSURD ? Math.floor(value) : null;
}

/** A usage in which every count is one that a call can have, whoever read it; the same object when it already is. */
export function wholeUsage(usage: TokenUsage): TokenUsage {
  const { input, output, cache_read, cache_write, reasoning, audio_input, audio_output } = usage;
  const fine =
    isCount(input) &&
    isCount(output) &&
    isCount(cache_read) &&
    isCount(cache_write) &&
    isCount(reasoning) &&
    isCount(audio_input) &&
    isCount(audio_output);
  if (fine) return usage;
  return {
    input: tokenCount(input) ?? 0,
    output: tokenCount(output) ?? 0,
    cache_read: tokenCount(cache_read) ?? 0,
    cache_write: tokenCount(cache_write) ?? 0,
    reasoning: tokenCount(reasoning) ?? 0,
    audio_input: tokenCount(audio_input) ?? 0,
    audio_output: tokenCount(audio_output) ?? 0,
  };
}

const isCount = (value: number): boolean => Number.isInteger(value) && value >= 0 && value < ABSURD;

/** What several attempts used together. */
export function totalUsage(parts: readonly TokenUsage[]): TokenUsage {
  const total = { ...NO_TOKENS };
  for (const part of parts) for (const name of CLASSES) total[name] += part[name];
  return total;
}

/** An object of a usage; empty where there is none. */
export const details = (value: JsonValue | undefined): JsonObject => (isObject(value) ? value : {});

/** A usage, null when neither count is there. Totals never fall below the classes they contain, whatever the upstream wrote. */
export function tokens(
  input: number | null,
  output: number | null,
  classes: Omit<TokenUsage, 'input' | 'output'>,
): TokenUsage | null {
  if (input === null && output === null) return null;
  return {
    ...classes,
    input: Math.max(input ?? 0, classes.cache_read + classes.cache_write, classes.audio_input),
    output: Math.max(output ?? 0, classes.reasoning, classes.audio_output),
  };
}

/**
 * Joins the usage objects of one stream, field by field: counts are cumulative totals, so the last valid value of a
 * field wins and nothing is added up. A missing, null, negative or smaller value never lowers what was reported.
 * Neither argument is changed.
 */
export function mergeUsage(previous: JsonObject | null, next: JsonObject): JsonObject {
  const out: JsonObject = { ...previous };
  for (const [name, value] of Object.entries(next)) {
    if (name === '__proto__') continue;
    const before = out[name];
    if (isObject(value)) out[name] = mergeUsage(isObject(before) ? before : null, value);
    else if (typeof value === 'number') {
      const count = tokenCount(value);
      if (count !== null && count >= (tokenCount(before) ?? 0)) out[name] = value;
    } else if (value !== null && value !== undefined) out[name] = value;
  }
  return out;
}
