/** A refusal in the shape of an ordinary answer (`soft_deny_200`), in the caller's own dialect. */

import { hookResults } from '../../gateway/guardrail-state.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { conversion } from '../../operations/convert/index.ts';
import { OPERATIONS } from '../../operations/operation.ts';
import type { AnswerHead, MadeAnswer, WireShape } from '../../operations/shapes/wire-shape.ts';
import { formatEvent, type StreamEvent } from '../../operations/stream.ts';
import type { Uses } from '../exchange.ts';

/** What this file uses of an exchange. */
type Used = Uses<'attempt' | 'guard' | 'request', 'clock'>;

const TEXT = 'The request was denied by a guardrail.';

export interface SoftDenial {
  readonly contentType: string;
  readonly body: string;
}

/** Null where an operation's answer is not a text: there the refusal is an error like any other. */
export function softDenial(x: Used): SoftDenial | null {
  const { wire } = x.request.operation;
  const strict = x.attempt.target?.strict ?? true;
  const results = strict || x.guard === null ? null : { hook_results: hookResults(x.guard) };
  const head = { id: x.request.id, created: Math.floor(x.request.time / 1000), model: x.request.model };
  const made = wire.answerOf === null ? converted(x, head, results) : wire.answerOf(head, TEXT, results);
  if (made === null) return null;
  if (x.attempt.stream)
    return { contentType: 'text/event-stream', body: made.events.map((event) => formatEvent(event)).join('') };
  return { contentType: 'application/json', body: JSON.stringify({ ...made.body, ...results }) };
}

/** A chat completion, converted to the shape of the caller. */
function converted(x: Used, head: AnswerHead, results: JsonObject | null): MadeAnswer | null {
  const { operation } = x.request;
  const answer = OPERATIONS.chat.wire.answerOf?.(head, TEXT, null);
  const made = conversion(operation.shape, OPERATIONS.chat.shape);
  if (made === null || answer === undefined) return null;
  const context = { model: x.request.model, stream: x.attempt.stream, now: () => x.services.clock.now() };
  const events: StreamEvent[] = [];
  if (x.attempt.stream) {
    const transform = made.stream(context);
    for (const event of answer.events) transform.event(event, (out) => events.push(out));
    transform.end((out) => events.push(out));
  }
  return {
    body: made.response(answer.body, context),
    events: results === null ? events : withResults(operation.wire, events, head, results),
  };
}

/** The stream with results where those of an answer that was not denied stand: at its end. */
function withResults(
  { results: place }: WireShape,
  events: readonly StreamEvent[],
  head: AnswerHead,
  results: JsonObject,
): readonly StreamEvent[] {
  const [body, end] = [events.slice(0, -1), events.slice(-1)];
  const { event, inEnd } = place ?? {};
  if (event !== undefined) return [...body, event(head, results), ...end];
  if (inEnd === undefined) return events;
  const changed = end.map((last) => {
    const said: unknown = parseJson(last.data);
    const next = isObject(said) ? inEnd(said, results) : null;
    return next === null ? last : { ...last, data: JSON.stringify(next) };
  });
  return [...body, ...changed];
}
