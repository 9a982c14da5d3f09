/** How a stream of Responses is continued. */
import { isObject, type JsonObject, type JsonValue } from '../../../kernel/json.ts';
import type { TokenUsage } from '../../usage.ts';
import { type Resume, type SeenPrefix, StreamJoin, unjoinable } from '../resume.ts';
import { responsesUsage } from './usage.ts';

function see(
  seen: SeenPrefix,
  { type, response, item, part, delta, output_index: at, content_index: in_, sequence_number: n }: JsonObject,
): void {
  if (typeof n === 'number') seen.sequence = Math.max(seen.sequence, n);
  switch (type) {
    case 'response.created':
    case 'response.in_progress':
    case 'response.queued':
      if (isObject(response)) {
        if (typeof response.id === 'string') seen.id = response.id;
        if (typeof response.created_at === 'number') seen.created = response.created_at;
      }
      return;
    case 'response.output_item.added':
      // One message, and nothing before it.
      if (!isObject(item) || item.type !== 'message' || typeof at !== 'number' || seen.open !== null)
        seen.isPlain = false;
      else {
        seen.open = at;
        seen.itemId = typeof item.id === 'string' ? item.id : null;
      }
      return;
    case 'response.content_part.added':
      if (!isObject(part) || part.type !== 'output_text' || in_ !== 0) seen.isPlain = false;
      return;
    case 'response.output_text.delta':
      if (typeof delta === 'string') seen.text += delta;
      return;
    default:
      seen.isPlain = false;
  }
}

class ResponsesJoin extends StreamJoin {
  #sequence: number;
  /** The part that is continued was there; what follows keeps its own place behind it. */
  #met = false;
  /** Of the item that is continued, as its provider counts it. */
  #at = 0;

  constructor(seen: SeenPrefix, used: TokenUsage) {
    super(responsesUsage, seen, used);
    this.#sequence = seen.sequence;
  }

  override join(body: JsonObject): JsonObject | null {
    const { type } = body;
    if (typeof type !== 'string') throw unjoinable();
    if (type === 'response.created' || type === 'response.in_progress' || type === 'response.queued') return null;
    const joined = isObject(body.response) ? this.#whole(body, body.response) : this.#part(type, body);
    if (joined === null) return null;
    this.#sequence += 1;
    return { ...joined, sequence_number: this.#sequence };
  }

  #whole(body: JsonObject, response: JsonObject): JsonObject {
    const { id, created } = this.seen;
    const output = Array.isArray(response.output)
      ? response.output.map((item, at) => (at === this.#at && isObject(item) ? this.#item(item) : item))
      : response.output;
    return {
      ...body,
      response: {
        ...response,
        ...(id === null ? null : { id }),
        ...(created === null ? null : { created_at: created }),
        ...(output === undefined ? null : { output }),
        ...(isObject(response.usage) ? { usage: this.usage(response.usage) } : null),
      },
    };
  }

  #part(type: string, body: JsonObject): JsonObject | null {
    const at = body.output_index;
    if (typeof at !== 'number') return body;
    const open = this.seen.open ?? 0;
    if (!this.#met) {
      // What comes first must be the text that is continued.
      if (type !== 'response.output_item.added' || !isObject(body.item) || body.item.type !== 'message')
        throw unjoinable();
      this.#met = true;
      this.#at = at;
      return null;
    }
    const moved = { ...body, output_index: at - this.#at + open };
    if (at !== this.#at) return moved;
    const { itemId } = this.seen;
    const own: JsonObject = body.item_id === undefined || itemId === null ? moved : { ...moved, item_id: itemId };
    if ((body.content_index ?? 0) !== 0) return own;
    switch (type) {
      case 'response.content_part.added':
        return null;
      case 'response.output_text.delta': {
        const text = typeof body.delta === 'string' ? this.said(body.delta) : '';
        return text === '' ? null : { ...own, delta: text };
      }
      case 'response.output_text.done':
        return { ...own, text: this.text };
      case 'response.content_part.done':
        return isObject(body.part) ? { ...own, part: { ...body.part, text: this.text } } : own;
      case 'response.output_item.done':
        return isObject(body.item) ? { ...own, item: this.#item(body.item) } : own;
      default:
        return own;
    }
  }

  /** The message, with all of its text. */
  #item(item: JsonObject): JsonObject {
    const { itemId } = this.seen;
    const [first, ...rest] = Array.isArray(item.content) ? item.content : [];
    const content = isObject(first) ? [{ ...first, text: this.text }, ...rest] : [];
    return { ...item, ...(itemId === null ? null : { id: itemId }), content };
  }
}

function goingOn(body: JsonObject, text: string): JsonObject {
  const { input } = body;
  const before: JsonValue[] = Array.isArray(input) ? input : [{ role: 'user', content: input ?? '' }];
  return {
    ...body,
    input: [...before, { role: 'assistant', content: [{ type: 'output_text', text, annotations: [] }] }],
  };
}

export const responsesResume: Resume = { see, goingOn, join: (seen, used) => new ResponsesJoin(seen, used) };
