/** Answers of Cohere's `/v2/chat` as chat completions. */
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { unnamedCall } from '../../operations/convert/chat-choice.ts';
import {
  asArray,
  asString,
  givenObject,
  givenObjects,
  givenText,
  invalidAnswer,
  needed,
} from '../../operations/convert/fields.ts';
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
      reason: 'model_timeout',
    });
  }
  if (reason === 'ERROR') {
    const why = asString(said);
    throw invalidAnswer(why === null ? 'The model failed while it answered. Try again.' : `The model failed: ${why}`);
  }
  if (reason === 'TOOL_CALL' && calls === 0) throw invalidAnswer('The provider announced tool calls and sent none.');
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

/** A call of an answer; in a stream its arguments follow. */
export function callOf(call: JsonObject, begun = false): JsonObject {
  const called = needed(givenObject(call, 'function'), 'function');
  const text = givenText(called, 'arguments');
  const name = givenText(called, 'name') || unnamedCall();
  return {
    id: needed(givenText(call, 'id'), 'id'),
    type: 'function',
    function: { name, arguments: begun ? (text ?? '') : needed(text, 'arguments') || '{}' },
  };
}

/** What a part says; those of the future say nothing that chat could show. */
export function saidIn(part: JsonObject): { readonly text: string; readonly thinking: string } {
  const [text, thinking] = [givenText(part, 'text'), givenText(part, 'thinking')];
  const { type } = part;
  if (text === null && thinking === null && (typeof type !== 'string' || type === 'text' || type === 'thinking')) {
    throw invalidAnswer('The provider sent a part of an answer that says nothing.');
  }
  return { text: text ?? '', thinking: thinking ?? '' };
}

export function chatCompletion(
  answer: JsonObject,
  about: { readonly id: string; readonly model: string; readonly created: number; readonly strict: boolean },
): JsonObject {
  const message = needed(givenObject(answer, 'message'), 'message');
  const { tool_plan, citations } = message;
  const reason = needed(givenText(answer, 'finish_reason'), 'finish_reason');
  const said = givenObjects(message, 'content').map(saidIn);
  const text = said.map((part) => part.text).join('');
  const thinking = said.map((part) => part.thinking).join('');
  const calls = givenObjects(message, 'tool_calls').map((call) => callOf(call));
  const finish = finishOf(reason, calls.length, answer.error);
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
