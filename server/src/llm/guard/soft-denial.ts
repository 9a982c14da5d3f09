/** A refusal in the shape of an ordinary answer (`soft_deny_200`), in the caller's own dialect. */

import { hookResults } from '../../gateway/guardrail-state.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { conversion } from '../../operations/convert/index.ts';
import { formatEvent, type StreamEvent } from '../../operations/stream.ts';
import type { Exchange } from '../exchange.ts';

const TEXT = 'The request was denied by a guardrail.';
const DONE: StreamEvent = { event: null, data: '[DONE]' };
const USAGE = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };

export interface SoftDenial {
  readonly contentType: string;
  readonly body: string;
}

/** Null where an operation's answer is not a text: there the refusal is an error like any other. */
export function softDenial(x: Exchange): SoftDenial | null {
  const { shape } = x.request.operation;
  const made = shape === 'completions' ? completion(x) : shape === 'chat' ? chat(x) : converted(x);
  if (made === null) return null;
  const strict = x.attempt.target?.strict ?? true;
  const results = strict || x.guard === null ? null : { hook_results: hookResults(x.guard) };
  if (x.attempt.stream) {
    const events = results === null ? made.events : withResults(x, made.events, results);
    return { contentType: 'text/event-stream', body: events.map((event) => formatEvent(event)).join('') };
  }
  return { contentType: 'application/json', body: JSON.stringify({ ...made.body, ...results }) };
}

/** The stream with results where those of an answer that was not denied stand: at its end. */
function withResults(x: Exchange, events: readonly StreamEvent[], results: JsonObject): StreamEvent[] {
  const { shape } = x.request.operation;
  const [body, end] = [events.slice(0, -1), events.slice(-1)];
  if (shape === 'responses') return [...body, ...end.map((event) => inResponse(event, results))];
  if (shape === 'messages') {
    const data = JSON.stringify({ type: 'hook_results', ...results });
    return [...body, { event: 'hook_results', data }, ...end];
  }
  const head = shape === 'completions' ? completionHead(x) : { ...chatHead(x), object: 'chat.completion.chunk' };
  return [...body, chunk({ ...head, choices: [], ...results }), ...end];
}

function inResponse(event: StreamEvent, results: JsonObject): StreamEvent {
  const said: unknown = parseJson(event.data);
  if (!isObject(said) || !isObject(said.response)) return event;
  return { ...event, data: JSON.stringify({ ...said, response: { ...said.response, ...results } }) };
}

interface Made {
  readonly body: JsonObject;
  readonly events: readonly StreamEvent[];
}

const chunk = (data: JsonObject): StreamEvent => ({ event: null, data: JSON.stringify(data) });

const chatHead = (x: Exchange) => ({
  id: `chatcmpl-${x.request.id}`,
  created: Math.floor(x.request.time / 1000),
  model: x.request.model,
});
const completionHead = (x: Exchange) => ({
  id: `cmpl-${x.request.id}`,
  object: 'text_completion',
  created: Math.floor(x.request.time / 1000),
  model: x.request.model,
});

function chat(x: Exchange): Made {
  const head = chatHead(x);
  const message = { role: 'assistant', content: TEXT };
  const piece = (delta: JsonObject, finish_reason: string | null): StreamEvent =>
    chunk({ ...head, object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason }] });
  return {
    body: {
      ...head,
      object: 'chat.completion',
      choices: [{ index: 0, message, logprobs: null, finish_reason: 'stop' }],
      usage: USAGE,
    },
    events: [piece(message, null), piece({}, 'stop'), DONE],
  };
}

function completion(x: Exchange): Made {
  const head = completionHead(x);
  const choice = { index: 0, text: TEXT, logprobs: null, finish_reason: 'stop' };
  return {
    body: { ...head, choices: [choice], usage: USAGE },
    events: [chunk({ ...head, choices: [choice] }), DONE],
  };
}

function converted(x: Exchange): Made | null {
  const { shape } = x.request.operation;
  if (shape !== 'messages' && shape !== 'responses') return null;
  const made = conversion(shape, 'chat');
  if (made === null) return null;
  const context = { model: x.request.model, stream: x.attempt.stream, now: () => x.services.clock.now() };
  const answer = chat(x);
  const events: StreamEvent[] = [];
  if (x.attempt.stream) {
    const transform = made.stream(context);
    for (const event of answer.events) transform.event(event, (out) => events.push(out));
    transform.end((out) => events.push(out));
  }
  return { body: made.response(answer.body, context), events };
}
