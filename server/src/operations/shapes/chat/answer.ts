/** Answers that Sluice itself makes, as chat completions and as completions. */
import type { JsonObject } from '../../../kernel/json.ts';
import type { StreamEvent } from '../../stream.ts';
import type { AnswerHead, MadeAnswer } from '../wire-shape.ts';

const DONE: StreamEvent = { event: null, data: '[DONE]' };
const USAGE = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };

const chunk = (data: JsonObject): StreamEvent => ({ event: null, data: JSON.stringify(data) });

/** A chunk without choices, which clients skip. */
export const resultsChunk = ({ id, created, model }: AnswerHead, object: string, results: JsonObject): StreamEvent =>
  chunk({ id, object, created, model, choices: [], ...results });

export function chatAnswer(of: AnswerHead, text: string, results: JsonObject | null): MadeAnswer {
  const head = { id: `chatcmpl-${of.id}`, created: of.created, model: of.model };
  const object = 'chat.completion.chunk';
  const message = { role: 'assistant', content: text };
  const piece = (delta: JsonObject, finish_reason: string | null): StreamEvent =>
    chunk({ ...head, object, choices: [{ index: 0, delta, finish_reason }] });
  return {
    body: {
      ...head,
      object: 'chat.completion',
      choices: [{ index: 0, message, logprobs: null, finish_reason: 'stop' }],
      usage: USAGE,
    },
    events: [
      piece(message, null),
      piece({}, 'stop'),
      ...(results === null ? [] : [chunk({ ...head, object, choices: [], ...results })]),
      DONE,
    ],
  };
}

export function completionAnswer(of: AnswerHead, text: string, results: JsonObject | null): MadeAnswer {
  const head = { id: `cmpl-${of.id}`, object: 'text_completion', created: of.created, model: of.model };
  const choice = { index: 0, text, logprobs: null, finish_reason: 'stop' };
  return {
    body: { ...head, choices: [choice], usage: USAGE },
    events: [
      chunk({ ...head, choices: [choice] }),
      ...(results === null ? [] : [chunk({ ...head, choices: [], ...results })]),
      DONE,
    ],
  };
}
