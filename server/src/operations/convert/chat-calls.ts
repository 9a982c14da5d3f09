import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { givenNumber, givenObject, givenText } from './fields.ts';
import { Kept } from './kept.ts';

/** Knows, piece by piece, whether a text is one complete JSON object, without parsing it again and again. */
export class ObjectEnd {
  #depth = 0;
  #inString = false;
  #escaped = false;
  /** The object has closed. */
  complete = false;

  feed(text: string): void {
    for (let i = 0; i < text.length; i++) {
      const c = text.charCodeAt(i);
      if (this.#inString) {
        if (this.#escaped) this.#escaped = false;
        else if (c === 92) this.#escaped = true;
        else if (c === 34) this.#inString = false;
      } else if (c === 34) this.#inString = true;
      else if (c === 123 || c === 91) this.#depth++;
      else if ((c === 125 || c === 93) && --this.#depth <= 0) this.complete = true;
    }
  }
}

/**
 * What a provider adds to a call and wants back with it in the next turn, such as Gemini's thought signatures. Part of the
 * call in every shape, because clients send back what they were given.
 */
export function callExtra(call: JsonObject): { readonly extra_content?: JsonObject } {
  return isObject(call.extra_content) ? { extra_content: call.extra_content } : {};
}

/** `value` and what is in it, two lists deep, without `extra_content`: messages, their calls and blocks, items. */
function bare(value: JsonValue | undefined): JsonValue {
  if (Array.isArray(value)) return value.map(bare);
  if (!isObject(value)) return value ?? null;
  const { extra_content: _, ...rest } = value;
  for (const list of ['tool_calls', 'content'] as const) if (Array.isArray(rest[list])) rest[list] = bare(rest[list]);
  return rest;
}

/** A chat, Messages or Responses body for a provider that knows nothing of what another one added to its calls. */
export function withoutCallExtras(body: JsonObject): JsonObject {
  const out = { ...body };
  for (const list of ['messages', 'input'] as const) if (Array.isArray(out[list])) out[list] = bare(out[list]);
  return out;
}

/** The arguments of a call, which some servers give as the object itself. */
export function argumentsIn(definition: JsonObject): string {
  const { arguments: given } = definition;
  return isObject(given) ? JSON.stringify(given) : (givenText(definition, 'arguments') ?? '');
}

/** One streamed call as it grows. */
export interface StreamedCall {
  id: string;
  name: string;
  /** Pieces that were not passed on yet. */
  waiting: string;
  /** All arguments so far. */
  text: string;
  /** What the provider wants back with the call. */
  extra: JsonObject | null;
  readonly end: ObjectEnd;
}

/** Characters that a call counts for among what is kept: a thousand of them are an answer, more are none. */
const NEW_CALL = 65_536;

/**
 * The calls of a chat stream in the order they began. Some servers send every call with index 0 or none at all: a new
 * id always starts a new call.
 */
export class StreamedCalls {
  readonly all: StreamedCall[] = [];
  readonly #byIndex = new Map<number, number>();
  readonly #kept = new Kept();
  #last = -1;

  /** Takes one element of `delta.tool_calls`; answers its position in `all`. */
  take(piece: JsonObject): number {
    const given = givenNumber(piece, 'index');
    const id = givenText(piece, 'id') ?? '';
    let at = given === null ? this.#last : (this.#byIndex.get(given) ?? -1);
    const known = at >= 0 ? this.all[at] : undefined;
    if (known === undefined || (id !== '' && known.id !== '' && known.id !== id)) {
      const sameId = id === '' ? -1 : this.all.findIndex((call) => call.id === id);
      at = sameId >= 0 ? sameId : this.all.length;
      // Every call is compared with the others, too.
      this.#kept.add(id.length, NEW_CALL);
      if (sameId < 0) this.all.push({ id: '', name: '', waiting: '', text: '', extra: null, end: new ObjectEnd() });
    }
    if (given !== null) this.#byIndex.set(given, at);
    this.#last = at;
    const call = this.all[at];
    if (call === undefined) return at;
    if (call.id === '') call.id = id;
    call.extra ??= callExtra(piece).extra_content ?? null;
    const definition = givenObject(piece, 'function') ?? {};
    if (call.name === '') call.name = givenText(definition, 'name') ?? '';
    const text = argumentsIn(definition);
    if (text !== '') {
      this.#kept.add(text.length);
      call.waiting += text;
      call.text += text;
      call.end.feed(text);
    }
    return at;
  }
}
