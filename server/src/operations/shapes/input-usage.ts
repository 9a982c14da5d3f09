import type { JsonObject } from '../../kernel/json.ts';
import { NO_TOKENS, type TokenUsage, tokenCount, type UsageForm } from '../usage.ts';

/** Some vendors count only `total_tokens`: what goes in is then everything there is. */
export function readInputOnly(usage: JsonObject): TokenUsage | null {
  const input = tokenCount(usage.prompt_tokens) ?? tokenCount(usage.input_tokens) ?? tokenCount(usage.total_tokens);
  return input === null ? null : { ...NO_TOKENS, input };
}

/** Of what only reads: embeddings and rankings. */
export const inputUsage: UsageForm = {
  read: readInputOnly,
  write: (usage) => ({ prompt_tokens: usage.input, total_tokens: usage.input }),
};
