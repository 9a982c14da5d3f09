import type { JsonObject } from '../../../kernel/json.ts';
import { details, type TokenUsage, tokenCount, tokens, type UsageForm } from '../../usage.ts';

/** `input_tokens` excludes both cache classes here: copying it into `prompt_tokens` would bill wrong. */
export const messagesUsage = {
  read(usage: JsonObject): TokenUsage | null {
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
  },
  write(usage: TokenUsage): JsonObject {
    const out: JsonObject = {
      input_tokens: Math.max(0, usage.input - usage.cache_read - usage.cache_write),
      cache_creation_input_tokens: usage.cache_write,
      cache_read_input_tokens: usage.cache_read,
      output_tokens: usage.output,
    };
    if (usage.reasoning > 0) out.output_tokens_details = { thinking_tokens: usage.reasoning };
    return out;
  },
} satisfies UsageForm;
