/** A Gemini `GenerateContentResponse` as a chat completion (providers §12.2, §1.10). */
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { asArray, asObject, asString } from '../../operations/convert/fields.ts';
import { epochOf, integerOf, textOf } from '../training-calls.ts';

/** Native reasons that hide or cut content; every other one is a plain stop. */
const FILTERED = new Set([
  'SAFETY',
  'RECITATION',
  'BLOCKLIST',
  'PROHIBITED_CONTENT',
  'SPII',
  'LANGUAGE',
  'IMAGE_SAFETY',
  'IMAGE_PROHIBITED_CONTENT',
  'IMAGE_RECITATION',
]);

function finishOf(reason: string | null, calls: boolean): string {
  if (reason === 'MAX_TOKENS') return 'length';
  if (reason !== null && FILTERED.has(reason)) return 'content_filter';
  return calls ? 'tool_calls' : 'stop';
}

function choice(candidate: JsonObject, at: number, id: string): JsonObject {
  const texts: string[] = [];
  const calls: JsonObject[] = [];
  for (const part of asArray(asObject(candidate.content).parts)) {
    if (!isObject(part)) continue;
    if (isObject(part.functionCall)) {
      const { name, args, id: given } = part.functionCall;
      const signature = asString(part.thoughtSignature);
      calls.push({
        id: asString(given) ?? `call_${id}_${at}_${calls.length}`,
        type: 'function',
        function: { name: asString(name) ?? '', arguments: JSON.stringify(args ?? {}) },
        ...(signature === null ? null : { extra_content: { google: { thought_signature: signature } } }),
      });
    } else if (typeof part.text === 'string' && part.thought !== true) texts.push(part.text);
  }
  return {
    index: integerOf(candidate.index) ?? at,
    message: {
      role: 'assistant',
      content: texts.length === 0 && calls.length > 0 ? null : texts.join(''),
      refusal: null,
      ...(calls.length === 0 ? null : { tool_calls: calls }),
    },
    logprobs: null,
    finish_reason: finishOf(textOf(candidate.finishReason), calls.length > 0),
  };
}

/** Thoughts are counted beside the candidates, cached tokens inside the prompt. */
function usageOf(usage: JsonObject): JsonObject {
  const count = (name: string): number => Math.max(0, integerOf(usage[name]) ?? 0);
  const thoughts = count('thoughtsTokenCount');
  const prompt = count('promptTokenCount') + count('toolUsePromptTokenCount');
  const completion = count('candidatesTokenCount') + thoughts;
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: count('cachedContentTokenCount') },
    completion_tokens_details: { reasoning_tokens: thoughts },
  };
}

/** `id` and `created` (Unix seconds) stand in where the answer has none of its own. */
export function geminiToChat(
  answer: JsonObject,
  known: { readonly id: string; readonly model: string; readonly created: number },
): JsonObject {
  const id = textOf(answer.responseId) ?? known.id;
  const candidates = asArray(answer.candidates).filter(isObject);
  const blocked = { index: 0, finishReason: 'SAFETY' };
  return {
    id,
    object: 'chat.completion',
    created: epochOf(answer.createTime) ?? known.created,
    model: textOf(answer.modelVersion) ?? known.model,
    // A blocked prompt has no candidate at all.
    choices: (candidates.length === 0 ? [blocked] : candidates).map((one, at) => choice(one, at, id)),
    ...(isObject(answer.usageMetadata) ? { usage: usageOf(answer.usageMetadata) } : null),
  };
}
