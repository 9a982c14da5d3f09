/** Follows a stream of Messages. */
import { isObject, type JsonObject, type JsonValue } from '../../../kernel/json.ts';
import { parseJson } from '../../../kernel/json-exact.ts';
import {
  type Assembler,
  assign,
  indexOf,
  listOf,
  member,
  merge,
  other,
  part,
  type Region,
  region,
  slot,
  without,
} from '../assembler.ts';

const DELTAS: ReadonlyMap<unknown, readonly [from: string, to: string]> = new Map([
  ['text_delta', ['text', 'text']],
  ['thinking_delta', ['thinking', 'thinking']],
  ['input_json_delta', ['partial_json', 'input']],
]);

export class MessagesAssembler implements Assembler {
  sketch: JsonObject = { content: [] };
  /** Input of tools, as far as its JSON has come. */
  readonly #inputs = new Map<JsonObject, string>();

  take(event: JsonObject): Region[] {
    switch (event.type) {
      case 'message_start':
        if (!isObject(event.message)) break;
        this.sketch = {};
        assign(this.sketch, event.message);
        listOf(this.sketch, 'content');
        return [part(event.message, '', false)];
      case 'content_block_start': {
        if (!isObject(event.content_block)) break;
        const index = indexOf(event.index);
        assign(slot(this.sketch, 'content', index), event.content_block);
        return [part(event.content_block, `content[${index}]`, true)];
      }
      case 'content_block_delta':
        return isObject(event.delta) ? this.#delta(indexOf(event.index), event.delta) : this.#other(event);
      case 'content_block_stop':
      case 'message_stop':
      case 'ping':
        return [];
      case 'message_delta': {
        if (!isObject(event.delta)) break;
        assign(this.sketch, event.delta);
        if (isObject(event.usage)) this.sketch.usage = event.usage;
        return [part(event.delta, '', false)];
      }
    }
    return this.#other(event);
  }

  #delta(index: number, delta: JsonObject): Region[] {
    const block = slot(this.sketch, 'content', index);
    const path = `content[${index}]`;
    const known = DELTAS.get(delta.type);
    if (known !== undefined) {
      const [from, to] = known;
      const piece = delta[from];
      if (typeof piece !== 'string') return [];
      if (to === 'input') this.#inputs.set(block, (this.#inputs.get(block) ?? '') + piece);
      else merge(block, { [to]: piece });
      return [member(delta, from, to, path, true)];
    }
    if (isObject(delta.citation)) {
      const { citation } = delta;
      const at = listOf(block, 'citations').push(citation) - 1;
      return [part(citation, `${path}.citations[${at}]`, true)];
    }
    const said = without(delta, 'type');
    merge(block, said);
    return [region(said, path, true, (next) => void Object.assign(delta, next))];
  }

  #other(event: JsonObject): Region[] {
    return other(this.sketch, event);
  }

  answer(): JsonObject {
    for (const [block, text] of this.#inputs) block.input = inputOf(text);
    return this.sketch;
  }
}

function inputOf(text: string): JsonValue {
  if (text === '') return {};
  try {
    return parseJson(text);
  } catch {
    return text;
  }
}
