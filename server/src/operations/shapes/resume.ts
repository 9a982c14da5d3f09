/** How an answer that broke is continued by another attempt: what of its stream was seen, and how the next one joins it. */
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject, JsonValue } from '../../kernel/json.ts';
import { mergeUsage, type TokenUsage, totalUsage, type UsageForm } from '../usage.ts';

/** What the caller has seen of a stream. */
export interface SeenPrefix {
  /** What was said: one text. */
  text: string;
  /** Only text was seen, and its end was not. */
  isPlain: boolean;
  /** Of the whole answer. */
  id: string | null;
  created: number | null;
  /** Content block, or output item, that is open; null between two of them. */
  open: number | null;
  /** Content blocks that were begun. */
  blocks: number;
  /** Of the item of a Responses stream. */
  itemId: string | null;
  /** Last `sequence_number`. */
  sequence: number;
}

export interface Resume {
  /** Adds what an event shows; what cannot be gone on from is not plain. */
  see(seen: SeenPrefix, event: JsonObject): void;
  /** The caller's body with `text`, what was seen, as the beginning of the answer. */
  goingOn(body: JsonObject, text: string): JsonObject;
  /** @param used what the attempts before used */
  join(seen: SeenPrefix, used: TokenUsage): StreamJoin;
}

export const unjoinable = (): SluiceError =>
  new SluiceError('upstream_invalid', 'The provider continued the answer in a way that cannot be joined to it.');

/** The body of a conversation whose last message is the beginning of the answer. */
export function withAssistant(body: JsonObject, text: string): JsonObject {
  const messages: JsonValue[] = Array.isArray(body.messages) ? body.messages : [];
  return { ...body, messages: [...messages, { role: 'assistant', content: text }] };
}

/**
 * Joins the events of one attempt to what was seen: one id, one start, one text, one usage. What cannot be joined fails the
 * attempt (`upstream_invalid`).
 */
export abstract class StreamJoin {
  protected readonly seen: Readonly<SeenPrefix>;
  /** All that was said, seen and joined. */
  protected text: string;
  /** What the start of a message says was used, which is not shown again. */
  protected begun: JsonObject | null = null;
  readonly #form: UsageForm;
  readonly #used: TokenUsage;
  /** White space that was seen and may be said again. */
  #space: string;

  constructor(form: UsageForm, seen: SeenPrefix, used: TokenUsage) {
    this.#form = form;
    this.#used = used;
    this.seen = { ...seen };
    this.text = seen.text;
    this.#space = seen.text.slice(seen.text.trimEnd().length);
  }

  /** The event as it is passed on; null where it says nothing new. */
  abstract join(event: JsonObject): JsonObject | null;

  /** The text without white space that was seen before. */
  protected said(text: string): string {
    let n = 0;
    while (n < text.length && n < this.#space.length && text[n] === this.#space[n]) n++;
    this.#space = n === text.length ? this.#space.slice(n) : '';
    const rest = text.slice(n);
    this.text += rest;
    return rest;
  }

  /** The usage of all attempts together. */
  protected usage(usage: JsonObject): JsonObject {
    const read = this.#form.read(this.begun === null ? usage : mergeUsage(this.begun, usage));
    const total = totalUsage(read === null ? [this.#used] : [this.#used, read]);
    return this.#form.write(total) ?? usage;
  }
}
