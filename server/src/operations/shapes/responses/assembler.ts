/** Follows a stream of Responses. */
import { isObject, type JsonObject } from '../../../kernel/json.ts';
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
  slot,
  without,
} from '../assembler.ts';

/** Texts of events of the Responses API: what comes before `.delta` and `.done`, and the member that holds the text. */
const FIELDS: ReadonlyMap<string, string> = new Map([
  ['output_text', 'text'],
  ['refusal', 'refusal'],
  ['function_call_arguments', 'arguments'],
  ['mcp_call_arguments', 'arguments'],
  ['custom_tool_call_input', 'input'],
  ['code_interpreter_call_code', 'code'],
  ['reasoning_text', 'text'],
  ['reasoning_summary_text', 'text'],
]);

const QUIET = new Set(['type', 'item_id', 'sequence_number', 'output_index', 'obfuscation']);

export class ResponsesAssembler implements Assembler {
  readonly sketch: JsonObject = { object: 'response', output: [] };

  take(event: JsonObject): Region[] {
    const type = typeof event.type === 'string' ? event.type : '';
    if (isObject(event.response)) {
      const { response } = event;
      // Some servers leave out at the end what they have streamed.
      const told = !Array.isArray(response.output) || response.output.length > 0;
      assign(this.sketch, told ? response : without(response, 'output'));
      return [part(response, '', false)];
    }
    if (isObject(event.item)) {
      const index = indexOf(event.output_index);
      listOf(this.sketch, 'output');
      const item = slot(this.sketch, 'output', index);
      assign(item, event.item);
      return [part(event.item, `output[${index}]`, !type.endsWith('.done'))];
    }
    const [, name = '', ending = ''] = /^response\.(\w+)\.(delta|done)$/.exec(type) ?? [];
    const field = FIELDS.get(name);
    const { annotation } = event;
    if (field === undefined && !isObject(event.part) && !isObject(annotation)) return this.#other(event);
    const { holder, path } = this.#holder(event);
    if (isObject(event.part)) {
      assign(holder, event.part);
      return [part(event.part, path, !type.endsWith('.done'))];
    }
    if (isObject(annotation)) {
      const index = indexOf(event.annotation_index);
      assign(slot(holder, 'annotations', index), annotation);
      return [part(annotation, `${path}.annotations[${index}]`, false)];
    }
    if (field === undefined) return [];
    const from = ending === 'delta' ? 'delta' : field;
    const text = event[from];
    if (typeof text !== 'string') return [];
    if (ending === 'delta') merge(holder, { [field]: text });
    else holder[field] = text;
    return [member(event, from, field, path, ending === 'delta')];
  }

  /** The item, or the part of it, that an event speaks of. */
  #holder(event: JsonObject): { readonly holder: JsonObject; readonly path: string } {
    const at = indexOf(event.output_index);
    const item = slot(this.sketch, 'output', at);
    for (const [index, list] of [
      ['content_index', 'content'],
      ['summary_index', 'summary'],
    ] as const) {
      if (event[index] === undefined) continue;
      const inner = indexOf(event[index]);
      return { holder: slot(item, list, inner), path: `output[${at}].${list}[${inner}]` };
    }
    return { holder: item, path: `output[${at}]` };
  }

  /** Most tell of progress only. */
  #other(event: JsonObject): Region[] {
    return Object.keys(event).every((name) => QUIET.has(name)) ? [] : other(this.sketch, event);
  }

  answer(): JsonObject {
    return this.sketch;
  }
}
