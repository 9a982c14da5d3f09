import { isObject, type JsonObject } from '../kernel/json.ts';
import { chatUsage } from '../operations/shapes/chat/usage.ts';
import { type TokenUsage, tokenCount } from '../operations/usage.ts';
import { compatible } from './openai-compatible.ts';
import { mapField, refuseFields, refuseValue } from './quirks.ts';

/** Cached tokens are at the top of the usage object on some models. */
function usage(raw: JsonObject): TokenUsage | null {
  const read = chatUsage.read(raw);
  if (read === null) return null;
  const cacheRead = Math.max(read.cache_read, tokenCount(raw.cached_tokens) ?? 0);
  return { ...read, cache_read: cacheRead, input: Math.max(read.input, cacheRead) };
}

export const moonshot = compatible({
  id: 'moonshot',
  title: 'Moonshot AI',
  baseUrl: 'https://api.moonshot.ai/v1',
  statelessPaths: ['POST tokenizers/estimate-token-count'],
  bindings: { chat: { prefill: { message: { partial: true } } } },
  chat: {
    request: [
      refuseFields('seed', 'logprobs', 'top_logprobs', 'logit_bias'),
      refuseValue('tool_choice', (value) => value === 'required', '"required" is not known there.'),
      // One of its models takes the name of the dialect for a part of the schema.
      mapField('response_format', (format) => {
        if (!isObject(format) || !isObject(format.json_schema) || !isObject(format.json_schema.schema)) return format;
        const { $schema, ...schema } = format.json_schema.schema;
        return $schema === undefined ? format : { ...format, json_schema: { ...format.json_schema, schema } };
      }),
      refuseValue('temperature', (value) => typeof value === 'number' && value > 1, 'it must be at most 1 there.'),
    ],
    usage,
    // Older servers put usage into the last choice.
    usagePath: ['choices', '0', 'usage'],
    reasoning: { field: 'reasoning_content', history: true },
  },
});
