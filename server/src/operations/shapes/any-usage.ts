/** Usage whose shape nobody named. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { type TokenUsage, tokenCount, tokens } from '../usage.ts';
import { chatUsage } from './chat/usage.ts';
import { readInputOnly } from './input-usage.ts';
import { messagesUsage } from './messages/usage.ts';
import { readInputOutput } from './responses/usage.ts';

const NO_CLASSES = { cache_read: 0, cache_write: 0, reasoning: 0, audio_input: 0, audio_output: 0 };

/**
 * Usage of an answer that was passed through, whose API nobody named: told apart by the names of its counts. Null when it
 * has none that are known.
 */
export function readAnyUsage(usage: JsonObject): TokenUsage | null {
  if (usage.prompt_tokens !== undefined || usage.completion_tokens !== undefined) return chatUsage.read(usage);
  if (usage.input_tokens !== undefined || usage.output_tokens !== undefined) {
    const messages = usage.cache_read_input_tokens !== undefined || usage.cache_creation_input_tokens !== undefined;
    return messages ? messagesUsage.read(usage) : readInputOutput(usage);
  }
  if (usage.inputTokens !== undefined || usage.outputTokens !== undefined) return readCamel(usage);
  if (usage.promptTokenCount !== undefined || usage.candidatesTokenCount !== undefined) return readCounts(usage);
  if (isObject(usage.tokens)) return readInputOutput(usage.tokens);
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
