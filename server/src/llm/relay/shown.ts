/** What a caller has seen of a stream that another attempt may have to go on with (`stream.on_break` "continue"). */

import type { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { parseEvent } from '../../kernel/sse.ts';
import type { Shape } from '../../operations/operation.ts';
import { EVENT_WEIGHT, isSilent } from './look.ts';

/** Longest text that is gone on from, in characters. */
const TEXT_LENGTH = 1024 * 1024;

/** Fields of a chat delta that are no content of another kind than text. */
const PLAIN: ReadonlySet<string> = new Set(['role', 'content']);

export class Shown {
  readonly #shape: Shape;
  /** What was said: one text. */
  text = '';
  /** Only text was shown, and its end was not. */
  #continuable = true;
  /** Of the whole answer. */
  id: string | null = null;
  created: number | null = null;
  /** Content block, or output item, that is open; null between two of them. */
  open: number | null = null;
  /** Content blocks that were begun. */
  blocks = 0;
  /** Of the item of a Responses stream. */
  itemId: string | null = null;
  /** Last `sequence_number`. */
  sequence = -1;
  /** What broke it first; told when nothing can go on. */
  broken: SluiceError | null = null;

  constructor(shape: Shape) {
    this.#shape = shape;
  }

  /** Whether an assistant message of what was shown is all there is to know. */
  get continuable(): boolean {
    return this.#continuable && this.text.trimEnd() !== '' && this.text.length <= TEXT_LENGTH;
  }

  see(events: readonly Buffer[]): void {
    if (!this.#continuable) return;
    for (const event of events) {
      if (isSilent(event)) continue;
      const body = read(event);
      if (body === null) continue;
      if (this.#shape === 'chat') this.#chunk(body);
      else if (this.#shape === 'messages') this.#message(body);
      else if (this.#shape === 'responses') this.#response(body);
      else this.#continuable = false;
    }
    if (this.text.length > TEXT_LENGTH) this.#continuable = false;
  }

  #chunk({ id, created, choices }: JsonObject): void {
    if (typeof id === 'string') this.id ??= id;
    if (typeof created === 'number') this.created ??= created;
    for (const choice of Array.isArray(choices) ? choices : []) {
      if (!isObject(choice) || !isObject(choice.delta)) continue;
      const { index, delta, finish_reason: finish } = choice;
      const other = Object.entries(delta).some(([name, value]) => !PLAIN.has(name) && value !== null && value !== '');
      if ((index !== undefined && index !== 0) || other || typeof finish === 'string') this.#continuable = false;
      if (typeof delta.content === 'string') this.text += delta.content;
    }
  }

  #message({ type, index, content_block: block, delta, message }: JsonObject): void {
    switch (type) {
      case 'message_start':
        if (isObject(message) && typeof message.id === 'string') this.id = message.id;
        return;
      case 'content_block_start':
        if (!isObject(block) || block.type !== 'text' || typeof index !== 'number') this.#continuable = false;
        else {
          this.open = index;
          this.blocks = index + 1;
          if (typeof block.text === 'string') this.text += block.text;
        }
        return;
      case 'content_block_delta':
        if (isObject(delta) && delta.type === 'text_delta' && typeof delta.text === 'string') this.text += delta.text;
        else this.#continuable = false;
        return;
      case 'content_block_stop':
        this.open = null;
        return;
      case 'ping':
        return;
      default:
        this.#continuable = false;
    }
  }

  #response({
    type,
    response,
    item,
    part,
    delta,
    output_index: at,
    content_index: in_,
    sequence_number: n,
  }: JsonObject): void {
    if (typeof n === 'number') this.sequence = Math.max(this.sequence, n);
    switch (type) {
      case 'response.created':
      case 'response.in_progress':
      case 'response.queued':
        if (isObject(response)) {
          if (typeof response.id === 'string') this.id = response.id;
          if (typeof response.created_at === 'number') this.created = response.created_at;
        }
        return;
      case 'response.output_item.added':
        // One message, and nothing before it.
        if (!isObject(item) || item.type !== 'message' || typeof at !== 'number' || this.open !== null)
          this.#continuable = false;
        else {
          this.open = at;
          this.itemId = typeof item.id === 'string' ? item.id : null;
        }
        return;
      case 'response.content_part.added':
        if (!isObject(part) || part.type !== 'output_text' || in_ !== 0) this.#continuable = false;
        return;
      case 'response.output_text.delta':
        if (typeof delta === 'string') this.text += delta;
        return;
      default:
        this.#continuable = false;
    }
  }
}

function read(bytes: Buffer): JsonObject | null {
  const event = parseEvent(bytes);
  if (event === null || event.data === '' || event.data.trim() === '[DONE]') return null;
  try {
    const body: unknown = parseJson(event.data, EVENT_WEIGHT);
    return isObject(body) ? body : null;
  } catch {
    return null;
  }
}
