/**
 * Joins the stream of an attempt that goes on with an answer to what its caller has seen of it: one id, one start, one text,
 * one usage. What cannot be joined fails the attempt (`upstream_invalid`).
 */
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import { parseEvent } from '../../kernel/sse.ts';
import type { Operation, Shape } from '../../operations/operation.ts';
import { formatEvent } from '../../operations/stream.ts';
import { mergeUsage, NO_TOKENS, readUsage, type TokenUsage, totalUsage, usageOf } from '../../operations/usage.ts';
import type { Prefill } from '../../providers/provider.ts';
import { isSilent } from './look.ts';
import type { Shown } from './shown.ts';

/** The text to go on from: no provider takes white space at its end. */
export function prefixOf({ text }: Shown): string {
  return text.trimEnd();
}

/** The caller's body with `text`, what was shown, as the beginning of the answer. */
export function goingOn(shape: Shape, body: JsonObject, text: string): JsonObject {
  if (shape !== 'responses') {
    const messages = Array.isArray(body.messages) ? body.messages : [];
    return { ...body, messages: [...messages, { role: 'assistant', content: text }] };
  }
  const { input } = body;
  const before: JsonValue[] = Array.isArray(input) ? input : [{ role: 'user', content: input ?? '' }];
  return {
    ...body,
    input: [...before, { role: 'assistant', content: [{ type: 'output_text', text, annotations: [] }] }],
  };
}

/** What the provider itself wants to be told. */
export function withPrefill(body: JsonObject, { message, body: more }: Prefill): JsonObject {
  if (message === undefined) return { ...body, ...more };
  const messages = Array.isArray(body.messages) ? [...body.messages] : [];
  const last = messages.at(-1);
  if (isObject(last)) messages[messages.length - 1] = { ...last, ...message };
  return { ...body, ...more, messages };
}

const unjoinable = (): SluiceError =>
  new SluiceError('upstream_invalid', 'The provider continued the answer in a way that cannot be joined to it.');

export class Joint {
  readonly #shape: Shape;
  readonly #shown: Shown;
  /** What the attempts before used. */
  readonly #spent: TokenUsage;
  /** What the start of a message says was used, which is not shown again. */
  #begun: JsonObject | null = null;
  /** White space that was shown and may be said again. */
  #space: string;
  /** All that was said, shown and joined. */
  #text: string;
  #sequence: number;
  /** The part that is gone on with was there; what follows keeps its own place behind it. */
  #met = false;
  readonly #open: number | null;
  readonly #blocks: number;
  /** Of the item that is gone on with, as its provider counts it. */
  #at = 0;

  constructor({ shape }: Operation, shown: Shown, spent: readonly TokenUsage[]) {
    this.#shape = shape;
    this.#shown = shown;
    this.#spent = spent.length === 0 ? NO_TOKENS : totalUsage(spent);
    this.#space = shown.text.slice(prefixOf(shown).length);
    this.#text = shown.text;
    this.#sequence = shown.sequence;
    this.#open = shown.open;
    this.#blocks = shown.blocks;
  }

  pass(events: readonly Buffer[]): Buffer[] {
    const out: Buffer[] = [];
    for (const bytes of events) {
      const event = isSilent(bytes) ? null : parseEvent(bytes);
      if (event === null || event.data === '' || event.data.trim() === '[DONE]') {
        out.push(bytes);
        continue;
      }
      let body: unknown;
      try {
        body = parseExact(event.data);
      } catch {
        throw unjoinable();
      }
      if (!isObject(body)) throw unjoinable();
      const joined = this.#join(body);
      if (joined !== null) out.push(Buffer.from(formatEvent({ event: event.event, data: JSON.stringify(joined) })));
    }
    return out;
  }

  #join(body: JsonObject): JsonObject | null {
    switch (this.#shape) {
      case 'chat':
        return this.#chunk(body);
      case 'messages':
        return this.#message(body);
      case 'responses':
        return this.#response(body);
      default:
        throw unjoinable();
    }
  }

  /** The text without white space that was shown before. */
  #said(text: string): string {
    let n = 0;
    while (n < text.length && n < this.#space.length && text[n] === this.#space[n]) n++;
    this.#space = n === text.length ? this.#space.slice(n) : '';
    const rest = text.slice(n);
    this.#text += rest;
    return rest;
  }

  #usage(usage: JsonObject): JsonObject {
    const read = readUsage(this.#shape, this.#begun === null ? usage : mergeUsage(this.#begun, usage));
    const total = totalUsage(read === null ? [this.#spent] : [this.#spent, read]);
    return usageOf(this.#shape, total) ?? usage;
  }

  #chunk(body: JsonObject): JsonObject | null {
    if (body.error !== undefined || !Array.isArray(body.choices)) return body;
    const { id, created } = this.#shown;
    const choices: JsonValue[] = [];
    for (const choice of body.choices) {
      if (!isObject(choice) || !isObject(choice.delta) || (choice.index ?? 0) !== 0) throw unjoinable();
      const { role: _role, content, ...delta } = choice.delta;
      const text = typeof content === 'string' ? this.#said(content) : '';
      const next = text === '' ? delta : { ...delta, content: text };
      if (Object.keys(next).length > 0 || typeof choice.finish_reason === 'string')
        choices.push({ ...choice, delta: next });
    }
    const usage = isObject(body.usage) ? { usage: this.#usage(body.usage) } : null;
    if (choices.length === 0 && usage === null) return null;
    return { ...body, ...(id === null ? null : { id }), ...(created === null ? null : { created }), choices, ...usage };
  }

  #message(body: JsonObject): JsonObject | null {
    const { type, index, content_block: block, delta, message } = body;
    const shift = this.#open ?? this.#blocks;
    switch (type) {
      case 'message_start':
        if (isObject(message) && isObject(message.usage)) this.#begun = message.usage;
        return null;
      case 'content_block_start': {
        if (typeof index !== 'number' || !isObject(block)) throw unjoinable();
        if (index > 0 || this.#open === null) return { ...body, index: index + shift };
        if (block.type !== 'text') throw unjoinable();
        const text = typeof block.text === 'string' ? this.#said(block.text) : '';
        if (text === '') return null;
        return { type: 'content_block_delta', index: shift, delta: { type: 'text_delta', text } };
      }
      case 'content_block_delta': {
        if (typeof index !== 'number' || !isObject(delta)) throw unjoinable();
        if (delta.type !== 'text_delta' || typeof delta.text !== 'string') return { ...body, index: index + shift };
        const text = this.#said(delta.text);
        return text === '' ? null : { ...body, index: index + shift, delta: { ...delta, text } };
      }
      case 'content_block_stop':
        return typeof index === 'number' ? { ...body, index: index + shift } : body;
      case 'message_delta':
        return isObject(body.usage) ? { ...body, usage: this.#usage(body.usage) } : body;
      default:
        return body;
    }
  }

  #response(body: JsonObject): JsonObject | null {
    const { type } = body;
    if (typeof type !== 'string') throw unjoinable();
    if (type === 'response.created' || type === 'response.in_progress' || type === 'response.queued') return null;
    const joined = isObject(body.response) ? this.#whole(body, body.response) : this.#part(type, body);
    if (joined === null) return null;
    this.#sequence += 1;
    return { ...joined, sequence_number: this.#sequence };
  }

  #whole(body: JsonObject, response: JsonObject): JsonObject {
    const { id, created } = this.#shown;
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
        ...(isObject(response.usage) ? { usage: this.#usage(response.usage) } : null),
      },
    };
  }

  #part(type: string, body: JsonObject): JsonObject | null {
    const at = body.output_index;
    if (typeof at !== 'number') return body;
    const open = this.#open ?? 0;
    if (!this.#met) {
      // What comes first must be the text that is gone on with.
      if (type !== 'response.output_item.added' || !isObject(body.item) || body.item.type !== 'message')
        throw unjoinable();
      this.#met = true;
      this.#at = at;
      return null;
    }
    const moved = { ...body, output_index: at - this.#at + open };
    if (at !== this.#at) return moved;
    const { itemId } = this.#shown;
    const own: JsonObject = body.item_id === undefined || itemId === null ? moved : { ...moved, item_id: itemId };
    if ((body.content_index ?? 0) !== 0) return own;
    switch (type) {
      case 'response.content_part.added':
        return null;
      case 'response.output_text.delta': {
        const text = typeof body.delta === 'string' ? this.#said(body.delta) : '';
        return text === '' ? null : { ...own, delta: text };
      }
      case 'response.output_text.done':
        return { ...own, text: this.#text };
      case 'response.content_part.done':
        return isObject(body.part) ? { ...own, part: { ...body.part, text: this.#text } } : own;
      case 'response.output_item.done':
        return isObject(body.item) ? { ...own, item: this.#item(body.item) } : own;
      default:
        return own;
    }
  }

  /** The message, with all of its text. */
  #item(item: JsonObject): JsonObject {
    const { itemId } = this.#shown;
    const [first, ...rest] = Array.isArray(item.content) ? item.content : [];
    const content = isObject(first) ? [{ ...first, text: this.#text }, ...rest] : [];
    return { ...item, ...(itemId === null ? null : { id: itemId }), content };
  }
}
