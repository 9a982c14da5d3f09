/** Notes whose an object is that an answer tells to have been made at the account of several workspaces, or of one. */

import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { parseEvent } from '../../kernel/sse.ts';
import type { Named } from '../../runtime/owners.ts';
import type { objectMadeBy } from '../../runtime/requested-objects.ts';
import { parsed } from '../relay/response-inspection.ts';

const MAX_ID = 512;
/** Parts of one answer that are noted. */
const MAX_ITEMS = 1000;
const ITEM_DONE = Buffer.from('response.output_item.done');

/** All that `Creation` looks at in a whole answer. */
export function creationFacts({ id, store, output }: JsonObject): JsonObject {
  const items = Array.isArray(output) ? output.slice(0, MAX_ITEMS + 1) : [];
  const named = (item: unknown) =>
    isObject(item) && typeof item.id === 'string' && item.id.length <= MAX_ID ? item.id : '';
  return {
    ...(typeof id === 'string' && id.length <= MAX_ID ? { id } : null),
    store: store !== false,
    output: items.map((item) => ({ id: named(item) })),
  };
}

/** What one answer makes. Costs a request nothing that makes none: it has no such object. */
export class Creation {
  readonly kind: NonNullable<ReturnType<typeof objectMadeBy>>;
  /** Parts of responses are noted, too: others that share the account could name them. */
  readonly #items: boolean;
  readonly #made: Named[] = [];
  #begun = false;

  constructor(kind: NonNullable<ReturnType<typeof objectMadeBy>>, items: boolean) {
    this.kind = kind;
    this.#items = items && kind === 'response';
  }

  get made(): readonly Named[] {
    return this.#made;
  }

  /** An event of a stream: the first names the response, later ones its parts. */
  event(bytes: Buffer): void {
    if (this.#begun && !(this.#items && bytes.includes(ITEM_DONE))) return;
    const body = parsed(parseEvent(bytes));
    if (body === null) return;
    if (isObject(body.response)) this.#begin(body.response);
    else if (body.type === 'response.output_item.done' && isObject(body.item)) this.#item(body.item);
  }

  /** A whole answer, or only its beginning and its end. */
  whole(body: Buffer, first: Buffer | null): void {
    if (first !== null) {
      const id = /^\s*\{\s*"id"\s*:\s*"([^"\\]{1,512})"/.exec(first.toString('latin1', 0, 1024))?.[1];
      if (id !== undefined) this.#add(this.kind, id);
      return;
    }
    let answer: unknown;
    try {
      answer = parseJson(body.toString('utf8'));
    } catch {
      return;
    }
    if (isObject(answer)) this.take(answer);
  }

  /** A whole answer, or what `creationFacts` makes of it. */
  take(answer: JsonObject): void {
    this.#begin(answer);
    if (this.#items && Array.isArray(answer.output))
      for (const item of answer.output) if (isObject(item)) this.#item(item);
  }

  #begin(answer: JsonObject): void {
    if (this.#begun || typeof answer.id !== 'string') return;
    this.#begun = true;
    // Nothing was kept of it.
    if (answer.store === false) return;
    this.#add(this.kind, answer.id);
  }

  #item({ id }: JsonObject): void {
    if (typeof id === 'string' && this.#made.length > 0 && this.#made.length <= MAX_ITEMS) this.#add('item', id);
  }

  #add(kind: Named['kind'], id: string): void {
    if (id !== '' && id.length <= MAX_ID) this.#made.push({ kind, id });
  }
}
