import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import type { Shape } from './row.ts';

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

const NO_CLASSES = { cache_read: 0, cache_write: 0, reasoning: 0, audio_input: 0, audio_output: 0 };

const details = (value: JsonValue | undefined): JsonObject => (isObject(value) ? value : {});

/** Totals never fall below the classes they contain, whatever the upstream wrote. */
function tokens(
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

/** `prompt_tokens` includes cached tokens, `completion_tokens` includes reasoning tokens. */
function readChat(usage: JsonObject): TokenUsage | null {
  const prompt = details(usage.prompt_tokens_details);
  const completion = details(usage.completion_tokens_details);
  return tokens(tokenCount(usage.prompt_tokens), tokenCount(usage.completion_tokens), {
    cache_read: tokenCount(prompt.cached_tokens) ?? 0,
    cache_write: tokenCount(prompt.cache_write_tokens) ?? tokenCount(prompt.cache_creation_input_tokens) ?? 0,
    reasoning: tokenCount(completion.reasoning_tokens) ?? 0,
    audio_input: tokenCount(prompt.audio_tokens) ?? 0,
    audio_output: tokenCount(completion.audio_tokens) ?? 0,
  });
}

/** `input_tokens` excludes both cache classes here: copying it into `prompt_tokens` would bill wrong. */
function readMessages(usage: JsonObject): TokenUsage | null {
  const input = tokenCount(usage.input_tokens);
  const created = details(usage.cache_creation);
  const perTtl =
    (tokenCount(created.ephemeral_5m_input_tokens) ?? 0) + (tokenCount(created.ephemeral_1h_input_tokens) ?? 0);
  const read = tokenCount(usage.cache_read_input_tokens);
  const total = tokenCount(usage.cache_creation_input_tokens);
  const write = Math.max(total ?? 0, perTtl);
  const known = input !== null || read !== null || total !== null;
  return tokens(known ? (input ?? 0) + (read ?? 0) + write : null, tokenCount(usage.output_tokens), {
    cache_read: read ?? 0,
    cache_write: write,
    reasoning: tokenCount(details(usage.output_tokens_details).thinking_tokens) ?? 0,
    audio_input: 0,
    audio_output: 0,
  });
}

/** Responses, images, speech and transcriptions share the names `input_tokens` and `output_tokens`. */
function readResponses(usage: JsonObject): TokenUsage | null {
  const input = details(usage.input_tokens_details ?? usage.input_token_details);
  const output = details(usage.output_tokens_details ?? usage.output_token_details);
  return tokens(tokenCount(usage.input_tokens), tokenCount(usage.output_tokens), {
    cache_read: tokenCount(input.cached_tokens) ?? 0,
    cache_write: tokenCount(input.cache_write_tokens) ?? 0,
    reasoning: tokenCount(output.reasoning_tokens) ?? 0,
    audio_input: tokenCount(input.audio_tokens) ?? 0,
    audio_output: tokenCount(output.audio_tokens) ?? 0,
  });
}

/** Some vendors count only `total_tokens`: what goes in is then everything there is. */
function readInputOnly(usage: JsonObject): TokenUsage | null {
  const input = tokenCount(usage.prompt_tokens) ?? tokenCount(usage.input_tokens) ?? tokenCount(usage.total_tokens);
  return input === null ? null : { ...NO_TOKENS, input };
}

/**
 * Reads the usage object of an answer in `shape` (the value of `usage`, not the answer). Null when it holds no token
 * count at all. Negative, absurd and non-numeric counts read as absent, and a total is never below its parts.
 *
 */
export function readUsage(shape: Shape, usage: JsonObject): TokenUsage | null {
  switch (shape) {
    case 'chat':
    case 'completions':
      return readChat(usage);
    case 'messages':
      return readMessages(usage);
    case 'responses':
    case 'images':
    case 'speech':
    case 'transcription':
      return readResponses(usage);
    case 'embeddings':
    case 'rerank':
      return readInputOnly(usage);
    case 'moderations':
    case 'models':
    case 'count_tokens':
    case 'raw':
      return null;
  }
}

/**
 * Usage of an answer that was passed through, whose API nobody named: told apart by the names of its counts. Null when it
 * has none that are known.
 */
export function readAnyUsage(usage: JsonObject): TokenUsage | null {
  if (usage.prompt_tokens !== undefined || usage.completion_tokens !== undefined) return readChat(usage);
  if (usage.input_tokens !== undefined || usage.output_tokens !== undefined) {
    const messages = usage.cache_read_input_tokens !== undefined || usage.cache_creation_input_tokens !== undefined;
    return messages ? readMessages(usage) : readResponses(usage);
  }
  if (usage.inputTokens !== undefined || usage.outputTokens !== undefined) return readCamel(usage);
  if (usage.promptTokenCount !== undefined || usage.candidatesTokenCount !== undefined) return readCounts(usage);
  if (isObject(usage.tokens)) return readResponses(usage.tokens);
  return readInputOnly(usage);
}

/** Bedrock's own names: `inputTokens` is without what was read from or written to a cache. */
function readCamel(usage: JsonObject): TokenUsage | null {
  const read = tokenCount(usage.cacheReadInputTokens) ?? 0;
  const write = tokenCount(usage.cacheWriteInputTokens) ?? 0;
  const input = tokenCount(usage.inputTokens);
  const classes = { ...NO_CLASSES, cache_read: read, cache_write: write };
  return tokens(input === null ? null : input + read + write, tokenCount(usage.outputTokens), classes);
}

/** Tokens of sound among those of a Gemini count, where it is given by kind. */
function audioIn(counts: JsonValue | undefined): number {
  let sum = 0;
  for (const count of Array.isArray(counts) ? counts : []) {
    if (isObject(count) && count.modality === 'AUDIO') sum += tokenCount(count.tokenCount) ?? 0;
  }
  return sum;
}

/** Gemini's own names: thought tokens are beside answered ones, cached ones inside the prompt. */
function readCounts(usage: JsonObject): TokenUsage | null {
  const reasoning = tokenCount(usage.thoughtsTokenCount) ?? 0;
  const input = (tokenCount(usage.promptTokenCount) ?? 0) + (tokenCount(usage.toolUsePromptTokenCount) ?? 0);
  const output = (tokenCount(usage.candidatesTokenCount) ?? 0) + reasoning;
  return tokens(input, output, {
    cache_read: tokenCount(usage.cachedContentTokenCount) ?? 0,
    cache_write: 0,
    reasoning,
    audio_input: audioIn(usage.promptTokensDetails),
    audio_output: audioIn(usage.candidatesTokensDetails),
  });
}

/** Writes `usage` as the usage object of `shape`; null for shapes that have none. */
export function usageOf(shape: Shape, usage: TokenUsage): JsonObject | null {
  switch (shape) {
    case 'chat':
    case 'completions':
      return chatUsage(usage);
    case 'messages':
      return messagesUsage(usage);
    case 'responses':
      return responsesUsage(usage);
    case 'embeddings':
    case 'rerank':
      return { prompt_tokens: usage.input, total_tokens: usage.input };
    default:
      return null;
  }
}

export function chatUsage(usage: TokenUsage): JsonObject {
  return {
    prompt_tokens: usage.input,
    completion_tokens: usage.output,
    total_tokens: usage.input + usage.output,
    prompt_tokens_details: {
      cached_tokens: usage.cache_read,
      cache_write_tokens: usage.cache_write,
      audio_tokens: usage.audio_input,
    },
    completion_tokens_details: {
      reasoning_tokens: usage.reasoning,
      audio_tokens: usage.audio_output,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
}

export function messagesUsage(usage: TokenUsage): JsonObject {
  const out: JsonObject = {
    input_tokens: Math.max(0, usage.input - usage.cache_read - usage.cache_write),
    cache_creation_input_tokens: usage.cache_write,
    cache_read_input_tokens: usage.cache_read,
    output_tokens: usage.output,
  };
  if (usage.reasoning > 0) out.output_tokens_details = { thinking_tokens: usage.reasoning };
  return out;
}

export function responsesUsage(usage: TokenUsage): JsonObject {
  return {
    input_tokens: usage.input,
    input_tokens_details: { cached_tokens: usage.cache_read, cache_write_tokens: usage.cache_write },
    output_tokens: usage.output,
    output_tokens_details: { reasoning_tokens: usage.reasoning },
    total_tokens: usage.input + usage.output,
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
