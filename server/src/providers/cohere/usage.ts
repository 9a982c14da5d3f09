/** What Cohere counts: tokens as the model read and wrote them, and the fewer units that it bills. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asObject } from '../../operations/convert/fields.ts';
import { readAnyUsage } from '../../operations/shapes/any-usage.ts';
import { chatUsage } from '../../operations/shapes/chat/usage.ts';
import { NO_TOKENS, type TokenUsage, tokenCount } from '../../operations/usage.ts';

/** Billed units are used only where tokens are missing: they leave out what Cohere itself adds to a prompt. */
export function cohereUsage(usage: JsonObject): TokenUsage | null {
  // Also asked about answers that were made of Cohere's.
  if (usage.prompt_tokens !== undefined) return readAnyUsage(usage);
  const counts = isObject(usage.tokens) ? usage.tokens : usage.billed_units;
  if (!isObject(counts)) return null;
  const read = readAnyUsage(counts);
  if (read === null) return null;
  const cached = tokenCount(usage.cached_tokens) ?? 0;
  return { ...read, cache_read: cached, input: Math.max(read.input, cached) };
}

/** The usage object of a chat answer. Outside strict shape it also holds what is billed. */
export function chatUsageOf(usage: JsonValue | undefined, strict: boolean): JsonObject {
  const raw = asObject(usage);
  return {
    ...chatUsage.write(cohereUsage(raw) ?? NO_TOKENS),
    ...(strict || !isObject(raw.billed_units) ? null : { billed_units: raw.billed_units }),
  };
}
