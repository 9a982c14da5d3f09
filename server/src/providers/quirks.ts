import { SluiceError } from '../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import { parseExact } from '../kernel/json-exact.ts';
import { asArray, isNeutral, refuse } from '../operations/convert/fields.ts';
import { errorEvent } from '../operations/dialects/stream.ts';
import type { CallContext, StreamEvent, StreamTransform } from './provider.ts';

/** Changes a request; answers its argument itself when nothing applies. `touches` are the texts that make it apply. */
export interface RequestQuirk {
  readonly touches: readonly string[];
  apply(body: JsonObject, context: CallContext): JsonObject;
}

/** Changes an answer and each chunk of a stream alike. May throw a SluiceError: the answer is then that error. */
export interface AnswerQuirk {
  readonly touches: readonly string[];
  apply(body: JsonObject): JsonObject;
}

const key = (name: string): string => `"${name}"`;

/** Renames a field. A caller who gives both names keeps the one under the new name. */
export function rename(from: string, to: string): RequestQuirk {
  return {
    touches: [key(from)],
    apply(body) {
      if (!Object.hasOwn(body, from)) return body;
      const { [from]: value, ...rest } = body;
      return rest[to] === undefined || rest[to] === null ? { ...rest, [to]: value } : rest;
    },
  };
}

/** Leaves out bookkeeping fields the provider does not know. */
export function drop(...names: string[]): RequestQuirk {
  return {
    touches: names.map(key),
    apply(body) {
      if (!names.some((name) => Object.hasOwn(body, name))) return body;
      const out = { ...body };
      for (const name of names) delete out[name];
      return out;
    },
  };
}

/** Refuses fields the provider would silently ignore. Neutral values are left out instead. */
export function refuseFields(...names: string[]): RequestQuirk {
  return {
    touches: names.map(key),
    apply(body) {
      let out = body;
      for (const name of names) {
        if (!Object.hasOwn(body, name)) continue;
        if (!isNeutral(name, body[name])) refuse(name, 'it is not supported there.');
        if (out === body) out = { ...body };
        delete out[name];
      }
      return out;
    },
  };
}

/** Refuses single values of a field, such as one form of `tool_choice`. */
export function refuseValue(name: string, wrong: (value: JsonValue) => boolean, why: string): RequestQuirk {
  return {
    touches: [key(name)],
    apply(body) {
      const value = body[name];
      if (value !== undefined && value !== null && wrong(value)) refuse(name, why);
      return body;
    },
  };
}

/** Replaces the value of a field. */
export function mapField(name: string, map: (value: JsonValue) => JsonValue): RequestQuirk {
  return {
    touches: [key(name)],
    apply(body) {
      const value = body[name];
      if (value === undefined || value === null) return body;
      const next = map(value);
      return next === value ? body : { ...body, [name]: next };
    },
  };
}

/** Rewrites messages one by one. */
export function mapMessages(touches: readonly string[], map: (message: JsonObject) => JsonObject): RequestQuirk {
  return {
    touches,
    apply(body) {
      const messages = asArray(body.messages);
      let changed = false;
      const out = messages.map((message) => {
        if (!isObject(message)) return message;
        const next = map(message);
        if (next !== message) changed = true;
        return next;
      });
      return changed ? { ...body, messages: out } : body;
    },
  };
}

/** Only OpenAI and Azure know the role `developer`. */
export const developerAsSystem: RequestQuirk = mapMessages(['"developer"'], (message) =>
  message.role === 'developer' ? { ...message, role: 'system' } : message,
);

/** For servers that refuse `content: null` beside calls. */
export const emptyContent: RequestQuirk = mapMessages(['"tool_calls"'], (message) =>
  message.role === 'assistant' && (message.content === null || message.content === undefined)
    ? { ...message, content: '' }
    : message,
);

export const isJsonSchema = (value: JsonValue): boolean => isObject(value) && value.type === 'json_schema';

/** Rewrites the choices of an answer or chunk one by one. */
export function mapChoices(touches: readonly string[], map: (choice: JsonObject) => JsonObject): AnswerQuirk {
  return {
    touches,
    apply(body) {
      if (!Array.isArray(body.choices)) return body;
      let changed = false;
      const choices = body.choices.map((choice) => {
        if (!isObject(choice)) return choice;
        const next = map(choice);
        if (next !== choice) changed = true;
        return next;
      });
      return changed ? { ...body, choices } : body;
    },
  };
}

/** Maps a provider's own finish reasons; a reason mapped to an error ends the answer with it. */
export function finishReasons(map: Readonly<Record<string, string | (() => SluiceError)>>): AnswerQuirk {
  return mapChoices(
    Object.keys(map).map((reason) => `"${reason}"`),
    (choice) => {
      const reason = choice.finish_reason;
      if (typeof reason !== 'string' || !Object.hasOwn(map, reason)) return choice;
      const to = map[reason];
      if (typeof to === 'function') throw to();
      return to === undefined ? choice : { ...choice, finish_reason: to };
    },
  );
}

export const overloaded = (): SluiceError =>
  new SluiceError('upstream_overloaded', 'The provider ran out of capacity while it answered. Try again.');
export const modelFailed = (): SluiceError =>
  new SluiceError('upstream_invalid', 'The model failed while it answered. Try again.', { reason: 'model_error' });

/**
 * A chat stream whose chunks pass through `apply`. Chunks that are no JSON and error chunks pass as they are; after
 * an error nothing follows. A stream that ends without `[DONE]` and without finish reason ends in an error.
 */
export class ChunkTransform implements StreamTransform {
  readonly #apply: (chunk: JsonObject) => JsonObject;
  #ended = false;
  #failed = false;

  constructor(apply: (chunk: JsonObject) => JsonObject) {
    this.#apply = apply;
  }

  event(event: StreamEvent, emit: (event: StreamEvent) => void): void {
    if (this.#failed) return;
    if (event.data === '[DONE]') {
      this.#ended = true;
      emit(event);
      return;
    }
    let chunk: JsonValue;
    try {
      chunk = parseExact(event.data);
    } catch {
      emit(event);
      return;
    }
    if (!isObject(chunk)) {
      emit(event);
      return;
    }
    if (chunk.error !== undefined && chunk.error !== null) {
      this.#failed = true;
      emit(event);
      return;
    }
    try {
      const next = this.#apply(chunk);
      if (asArray(next.choices).some((choice) => isObject(choice) && typeof choice.finish_reason === 'string')) {
        this.#ended = true;
      }
      emit(next === chunk ? event : { event: event.event, data: JSON.stringify(next) });
    } catch (error) {
      if (!(error instanceof SluiceError)) throw error;
      this.#failed = true;
      emit(errorEvent(error, 'openai'));
    }
  }

  end(emit: (event: StreamEvent) => void): void {
    if (this.#ended || this.#failed) return;
    this.#failed = true;
    emit(errorEvent(streamCut(), 'openai'));
  }
}

export const streamCut = (): SluiceError =>
  new SluiceError('upstream_cut', 'The provider closed the stream before the answer was complete.');

/**
 * Gives every new call its own index: some servers send all calls with index 0 or none. A new id starts a new call;
 * a piece without id, or with an empty one, belongs to the call that last had its index.
 */
export function callIndexRepair(): (chunk: JsonObject) => JsonObject {
  const ids: string[] = [];
  const byIndex = new Map<number, number>();
  let last = 0;
  const position = (call: JsonObject, id: string | null): number => {
    const given = typeof call.index === 'number' ? call.index : null;
    let at = given === null ? last : (byIndex.get(given) ?? last);
    if (id !== null && ids[at] !== id) {
      const known = ids.indexOf(id);
      at = known >= 0 ? known : ids.push(id) - 1;
    }
    if (given !== null) byIndex.set(given, at);
    last = at;
    return at;
  };
  const repaired = mapChoices([], (choice) => {
    if (!isObject(choice.delta) || !Array.isArray(choice.delta.tool_calls)) return choice;
    let changed = false;
    const calls = choice.delta.tool_calls.map((call) => {
      if (!isObject(call)) return call;
      const id = typeof call.id === 'string' && call.id !== '' ? call.id : null;
      const index = position(call, id);
      const empty = id === null && Object.hasOwn(call, 'id');
      if (call.index === index && !empty) return call;
      changed = true;
      const { id: _id, ...rest } = call;
      return empty ? { ...rest, index } : { ...call, index };
    });
    return changed ? { ...choice, delta: { ...choice.delta, tool_calls: calls } } : choice;
  });
  return (chunk) => repaired.apply(chunk);
}
