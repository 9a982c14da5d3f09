import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import type { StreamEvent, StreamTransform } from '../stream.ts';
import type { ConvertContext } from './conversion.ts';

/** A context for tests: a fixed time, no options. */
export function testContext(more: Partial<ConvertContext> = {}): ConvertContext {
  return { model: 'model-1', stream: false, now: () => 1_700_000_000_500, ...more };
}

/** Freezes a JSON value all the way down, so that a transform that changes its input throws. */
export function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null) {
    for (const inner of Object.values(value)) deepFreeze(inner);
    Object.freeze(value);
  }
  return value;
}

/** Runs events through a stream transform, to the end of the upstream. */
export function runStream(transform: StreamTransform, events: readonly (JsonObject | string)[]): StreamEvent[] {
  const out: StreamEvent[] = [];
  const emit = (event: StreamEvent): void => {
    out.push(event);
  };
  for (const event of events) {
    const data = typeof event === 'string' ? event : JSON.stringify(event);
    const name = isObject(event) && typeof event.type === 'string' ? event.type : null;
    transform.event({ event: name, data }, emit);
  }
  transform.end(emit);
  return out;
}

/** The data of events, parsed where it is JSON. */
export function parsed(events: readonly StreamEvent[]): JsonObject[] {
  return events.map(({ data }) => (data === '[DONE]' ? { done: true } : (JSON.parse(data) as JsonObject)));
}

/** Kind and field of the refusal `run` ends in; any other error is thrown on. */
export function refusal(run: () => unknown): { kind: string; param: string | null } {
  try {
    run();
  } catch (error) {
    if (error instanceof SluiceError) return { kind: error.kind, param: error.param };
    throw error;
  }
  throw new Error('nothing was refused');
}
