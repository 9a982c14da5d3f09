import type { JsonObject } from '../../../kernel/json.ts';
import { details, type TokenUsage, tokenCount, tokens, type UsageForm } from '../../usage.ts';

/** Responses, images, speech and transcriptions share the names `input_tokens` and `output_tokens`. */
export function readInputOutput(usage: JsonObject): TokenUsage | null {
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

export const responsesUsage = {
  read: readInputOutput,
  write: (usage: TokenUsage): JsonObject => ({
    input_tokens: usage.input,
    input_tokens_details: { cached_tokens: usage.cache_read, cache_write_tokens: usage.cache_write },
    output_tokens: usage.output,
    output_tokens_details: { reasoning_tokens: usage.reasoning },
    total_tokens: usage.input + usage.output,
  }),
} satisfies UsageForm;

/** The same where nothing is converted to the shape. */
export const readOnlyUsage: UsageForm = { read: readInputOutput, write: () => null };
