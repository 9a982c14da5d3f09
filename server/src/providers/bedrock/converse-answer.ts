/** A Converse answer as a chat completion (providers §13.3). */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asObject, asString, invalidAnswer } from '../../operations/convert/fields.ts';

const FINISH: Readonly<Record<string, string>> = {
  end_turn: 'stop',
  stop_sequence: 'stop',
  tool_use: 'tool_calls',
  max_tokens: 'length',
  model_context_window_exceeded: 'length',
  guardrail_intervened: 'content_filter',
  content_filtered: 'content_filter',
};

const count = (value: JsonValue | undefined): number =>
  typeof value === 'number' && Number.isFinite(value) && value >= 0 ? Math.floor(value) : 0;

/** Token counts: Bedrock leaves cached input out of `inputTokens`, chat completions count it in (providers §1.10). */
export function converseUsage(usage: JsonValue | undefined): JsonObject {
  const given = asObject(usage);
  const read = count(given.cacheReadInputTokens);
  const written = count(given.cacheWriteInputTokens);
  const prompt = count(given.inputTokens) + read + written;
  const completion = count(given.outputTokens);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    ...(read + written === 0 ? null : { prompt_tokens_details: { cached_tokens: read, cache_write_tokens: written } }),
  };
}

export function chatCompletion(
  answer: JsonObject,
  about: { readonly id: string; readonly model: string; readonly created: number },
): JsonObject {
  const message = asObject(asObject(answer.output).message);
  if (!Array.isArray(message.content)) throw invalidAnswer('The answer of the model has no content.');
  const texts: string[] = [];
  const calls: JsonObject[] = [];
  for (const block of message.content) {
    if (!isObject(block)) continue;
    if (typeof block.text === 'string') texts.push(block.text);
    if (isObject(block.toolUse)) {
      calls.push({
        id: asString(block.toolUse.toolUseId) ?? '',
        type: 'function',
        function: {
          name: asString(block.toolUse.name) ?? '',
          arguments: JSON.stringify(block.toolUse.input ?? {}),
        },
      });
    }
    // A text with citations lies in a block of its own.
    for (const part of asArray(asObject(block.citationsContent).content)) {
      const text = asString(asObject(part).text);
      if (text !== null) texts.push(text);
    }
  }
  const reason = asString(answer.stopReason) ?? '';
  const finish = Object.hasOwn(FINISH, reason) ? FINISH[reason] : 'stop';
  return {
    id: about.id,
    object: 'chat.completion',
    created: about.created,
    model: about.model,
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: texts.length === 0 ? null : texts.join(''),
          refusal: null,
          ...(calls.length === 0 ? null : { tool_calls: calls }),
        },
        logprobs: null,
        finish_reason: calls.length > 0 && finish === 'stop' ? 'tool_calls' : (finish ?? 'stop'),
      },
    ],
    usage: converseUsage(answer.usage),
  };
}
