/** Answers of Cohere's `/v2/chat` as chat completions (providers §15). */
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asObject, asString, invalidAnswer } from '../../operations/convert/fields.ts';
import { chatUsageOf } from './usage.ts';

const FINISH: Readonly<Record<string, string>> = {
  COMPLETE: 'stop',
  STOP_SEQUENCE: 'stop',
  MAX_TOKENS: 'length',
  TOOL_CALL: 'tool_calls',
};

/** The chat finish reason; throws where the model failed, with what the provider says of it. */
export function finishOf(reason: string, calls: number, said: JsonValue | undefined): string {
  if (reason === 'TIMEOUT') {
    throw new SluiceError('upstream_invalid', 'The model took too long to answer. Try again.', {
      code: 'model_timeout',
    });
  }
  if (reason === 'ERROR') {
    const why = asString(said);
    throw invalidAnswer(why === null ? 'The model failed while it answered. Try again.' : `The model failed: ${why}`);
  }
  const finish = Object.hasOwn(FINISH, reason) ? (FINISH[reason] ?? 'stop') : 'stop';
  return calls > 0 && finish === 'stop' ? 'tool_calls' : finish;
}

/**
 * Probabilities of texts. A text that took several tokens is one entry, as probable as all of them in a row, because nothing
 * says where in it one token ends.
 */
export function logprobsOf(items: readonly JsonValue[]): JsonObject | null {
  const content = items.filter(isObject).map((item): JsonObject => {
    const token = asString(item.text) ?? '';
    const sum = asArray(item.logprobs).reduce((all: number, one) => all + (typeof one === 'number' ? one : 0), 0);
    return { token, logprob: sum, bytes: [...Buffer.from(token)], top_logprobs: [] };
  });
  return content.length === 0 ? null : { content, refusal: null };
}

export function callOf(call: JsonObject): JsonObject {
  const { name, arguments: text } = asObject(call.function);
  return {
    id: asString(call.id) ?? '',
    type: 'function',
    function: { name: name ?? '', arguments: asString(text) ?? '' },
  };
}

export function chatCompletion(
  answer: JsonObject,
  about: { readonly id: string; readonly model: string; readonly created: number; readonly strict: boolean },
): JsonObject {
  if (!isObject(answer.message)) throw invalidAnswer('The provider answered without a message.');
  const { content, tool_calls, tool_plan, citations } = answer.message;
  const reason = asString(answer.finish_reason) ?? '';
  let text = '';
  let thinking = '';
  for (const part of asArray(content)) {
    const { type, text: said, thinking: thought } = asObject(part);
    if (type === 'text') text += asString(said) ?? '';
    if (type === 'thinking') thinking += asString(thought) ?? '';
  }
  const calls = asArray(tool_calls).filter(isObject).map(callOf);
  const finish = finishOf(reason, calls.length, answer.error);
  for (const { function: called } of calls) if (isObject(called) && called.arguments === '') called.arguments = '{}';
  const shown: JsonObject = about.strict
    ? {}
    : {
        ...(thinking === '' ? null : { reasoning_content: thinking }),
        ...(typeof tool_plan === 'string' && tool_plan !== '' ? { tool_plan } : null),
        ...(asArray(citations).length === 0 ? null : { citations: citations ?? null }),
      };
  return {
    id: asString(answer.id) ?? about.id,
    object: 'chat.completion',
    created: about.created,
    model: about.model,
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: text === '' && calls.length > 0 ? null : text,
          refusal: null,
          ...(calls.length === 0 ? null : { tool_calls: calls }),
          ...shown,
        },
        logprobs: logprobsOf(asArray(answer.logprobs)),
        finish_reason: finish,
        ...(about.strict ? null : { native_finish_reason: reason }),
      },
    ],
    usage: chatUsageOf(answer.usage, about.strict),
  };
}
