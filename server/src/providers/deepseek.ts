import type { JsonObject } from '../kernel/json.ts';
import { asArray } from '../operations/convert/fields.ts';
import { chatUsage } from '../operations/shapes/chat/usage.ts';
import { type TokenUsage, tokenCount } from '../operations/usage.ts';
import { compatible } from './openai-compatible.ts';
import { finishReasons, isJsonSchema, mapMessages, overloaded, refuseFields, refuseValue } from './quirks.ts';

/** Cache hits are counted at the top of the usage object. */
function usage(raw: JsonObject): TokenUsage | null {
  const read = chatUsage.read(raw);
  if (read === null) return null;
  const cacheRead = Math.max(read.cache_read, tokenCount(raw.prompt_cache_hit_tokens) ?? 0);
  return { ...read, cache_read: cacheRead, input: Math.max(read.input, cacheRead) };
}

export const deepseek = compatible({
  id: 'deepseek',
  title: 'DeepSeek',
  baseUrl: 'https://api.deepseek.com/v1',
  serves: ['completions'],
  // The beta surface is beside the usual one.
  bindings: {
    chat: { prefill: { message: { prefix: true }, prefix: (usual) => `${usual.replace(/\/v1$/, '')}/beta` } },
    completions: { base: () => 'https://api.deepseek.com/beta' },
  },
  chat: {
    request: [
      refuseFields('seed', 'n', 'logit_bias', 'top_k'),
      refuseValue('response_format', isJsonSchema, 'only "json_object" is known there, not a schema.'),
      // Reasoning may go back only with the calls it led to; elsewhere the upstream refuses the whole request.
      mapMessages(['"reasoning_content"'], (message) => {
        if (!('reasoning_content' in message) || asArray(message.tool_calls).length > 0) return message;
        const { reasoning_content: _reasoning, ...rest } = message;
        return rest;
      }),
    ],
    answer: [finishReasons({ insufficient_system_resource: overloaded })],
    usage,
    reasoning: { field: 'reasoning_content', history: true },
  },
});
