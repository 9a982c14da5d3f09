import type { JsonObject } from '../../../kernel/json.ts';
import { details, type TokenUsage, tokenCount, tokens, type UsageForm } from '../../usage.ts';

/** `prompt_tokens` includes cached tokens, `completion_tokens` includes reasoning tokens. */
export const chatUsage = {
  read(usage: JsonObject): TokenUsage | null {
    const prompt = details(usage.prompt_tokens_details);
    const completion = details(usage.completion_tokens_details);
    return tokens(tokenCount(usage.prompt_tokens), tokenCount(usage.completion_tokens), {
      cache_read: tokenCount(prompt.cached_tokens) ?? 0,
      cache_write: tokenCount(prompt.cache_write_tokens) ?? tokenCount(prompt.cache_creation_input_tokens) ?? 0,
      reasoning: tokenCount(completion.reasoning_tokens) ?? 0,
      audio_input: tokenCount(prompt.audio_tokens) ?? 0,
      audio_output: tokenCount(completion.audio_tokens) ?? 0,
    });
  },
  write: (usage: TokenUsage): JsonObject => ({
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
  }),
} satisfies UsageForm;
