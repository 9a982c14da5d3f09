/** What one event of a stream holds, by the places of the whole answer. */
import { isObject, type JsonObject, type JsonValue } from '../../../kernel/json.ts';
import { parseJson } from '../../../kernel/json-exact.ts';
import type { Shape } from '../../../operations/operation.ts';
import { type Frame, rootFrame } from './walk.ts';

/** A value of an event with its place in the whole answer. */
export interface Region {
  readonly root: Frame;
  /** Its texts continue those of earlier events at their places; else they are the whole text there. */
  readonly delta: boolean;
  /** Puts another value in its place in the event. */
  readonly put: (value: JsonObject) => void;
}

/** Follows one stream: regions of each event, and the answer they make. */
export interface Assembler {
  /** Throws `OutOfPlace` for an event that belongs nowhere. */
  take(event: JsonObject): readonly Region[];
  /** As an answer in one piece. */
  answer(): JsonObject;
  /** The same while it grows, without the input of tools. */
  readonly sketch: JsonObject;
}

/** An index that no answer has. */
export class OutOfPlace extends Error {}

const MAX_INDEX = 10_000;

/** The place of a list that an event names; 0 where it names none. */
function indexOf(value: unknown, fallback = 0): number {
  if (value === undefined || value === null) return fallback;
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < MAX_INDEX) return value;
  throw new OutOfPlace();
}

/** The object at a place of a list, made where there is none. */
function slot(holder: JsonObject, name: string, index: number): JsonObject {
  const list = listOf(holder, name);
  const there = list[index];
  if (isObject(there)) return there;
  while (list.length < index) list.push(null);
  const made: JsonObject = {};
  list[index] = made;
  return made;
}

function listOf(holder: JsonObject, name: string): JsonValue[] {
  const there = holder[name];
  if (Array.isArray(there)) return there;
  const made: JsonValue[] = [];
  holder[name] = made;
  return made;
}

const region = (value: JsonObject, path: string, delta: boolean, put: (value: JsonObject) => void): Region => ({
  root: rootFrame(value, path, 'assistant', 'wire'),
  delta,
  put,
});

/** Of an object in the event, which the new value's members are put into. */
const part = (value: JsonObject, path: string, delta: boolean): Region =>
  region(value, path, delta, (next) => {
    Object.assign(value, next);
  });

/** Of one text of the event, which another member of the answer holds. */
const member = (holder: JsonObject, from: string, to: string, path: string, delta: boolean): Region =>
  region({ [to]: holder[from] }, path, delta, (next) => {
    holder[from] = next[to];
  });

const without = (object: JsonObject, ...names: readonly string[]): JsonObject =>
  Object.fromEntries(Object.entries(object).filter(([name]) => !names.includes(name)));

/** Adds members; what is null takes nothing away. */
function assign(target: JsonObject, source: JsonObject): void {
  for (const [name, value] of Object.entries(source)) {
    if (name === '__proto__') throw new OutOfPlace();
    if (value !== null || target[name] === undefined) target[name] = value;
  }
}

/** Members that deltas repeat whole. */
const WHOLE = new Set(['id', 'type', 'role', 'object', 'format', 'signature', 'finish_reason']);
const MAX_DEPTH = 16;

/** Adds what a delta says to what was said. Lists are done by their elements. */
function merge(target: JsonObject, delta: JsonObject, depth = 0): void {
  if (depth > MAX_DEPTH) throw new OutOfPlace();
  for (const [name, value] of Object.entries(delta)) {
    const there = target[name];
    if (name === '__proto__') throw new OutOfPlace();
    if (Array.isArray(value)) target[name] = joined(Array.isArray(there) ? there : [], value, depth);
    else if (isObject(value)) {
      const inner = isObject(there) ? there : {};
      target[name] = inner;
      merge(inner, value, depth + 1);
    } else if (typeof value === 'string' && typeof there === 'string' && !WHOLE.has(name)) {
      // Some servers send a tool's name with each piece of its arguments.
      if (name !== 'name' || there !== value) target[name] = there + value;
    } else if (value !== null || there === undefined) target[name] = value;
  }
}

/** A list that goes on: text goes on in the last part, where that is of its kind. */
function joined(there: readonly JsonValue[], more: readonly JsonValue[], depth: number): JsonValue[] {
  const out = [...there];
  for (const value of more) {
    const last = out.at(-1);
    if (isObject(value) && goesOn(last, value)) merge(last, value, depth + 1);
    else out.push(value);
  }
  return out;
}

/** Whether a part without an index continues the one before it. */
function goesOn(last: JsonValue | undefined, value: JsonObject): last is JsonObject {
  return isObject(last) && PIECEMEAL.has(value.type) && last.type === value.type && value.index === undefined;
}

const PIECEMEAL = new Set<unknown>(['text', 'thinking', 'reasoning', 'refusal']);

class ChatAssembler implements Assembler {
  readonly sketch: JsonObject = { choices: [] };

  take(event: JsonObject): Region[] {
    const out: Region[] = [];
    const rest = without(event, 'choices', 'obfuscation');
    assign(this.sketch, rest);
    out.push(region(rest, '', false, (next) => void Object.assign(event, next)));
    if (event.choices === undefined || event.choices === null) return out;
    if (!Array.isArray(event.choices)) throw new OutOfPlace();
    for (const [position, choice] of event.choices.entries()) {
      if (!isObject(choice)) throw new OutOfPlace();
      const index = indexOf(choice.index, position);
      const whole = slot(this.sketch, 'choices', index);
      const path = `choices[${index}]`;
      const said = without(choice, 'delta', 'text', 'logprobs');
      assign(whole, said);
      out.push(region(said, path, false, (next) => void Object.assign(choice, next)));
      if (typeof choice.text === 'string') {
        whole.text = `${typeof whole.text === 'string' ? whole.text : ''}${choice.text}`;
        out.push(member(choice, 'text', 'text', path, true));
      }
      if (choice.delta !== undefined && choice.delta !== null && !isObject(choice.delta)) throw new OutOfPlace();
      if (isObject(choice.delta)) {
        const message = isObject(whole.message) ? whole.message : {};
        whole.message = message;
        this.#delta(message, choice.delta, `${path}.message`, out);
      }
    }
    return out;
  }

  #delta(message: JsonObject, delta: JsonObject, path: string, out: Region[]): void {
    const lists = Object.keys(delta).filter((name) => Array.isArray(delta[name]));
    const rest = lists.length === 0 ? delta : without(delta, ...lists);
    merge(message, rest);
    out.push(region(rest, path, true, (next) => void Object.assign(delta, next)));
    for (const name of lists) {
      const list = delta[name];
      if (!Array.isArray(list)) continue;
      const there = listOf(message, name);
      for (const [i, value] of list.entries()) {
        if (isObject(value)) {
          const index = indexOf(value.index, goesOn(there.at(-1), value) ? there.length - 1 : there.length);
          const said = without(value, 'index');
          merge(slot(message, name, index), said);
          out.push(region(said, `${path}.${name}[${index}]`, true, (next) => void Object.assign(value, next)));
        } else {
          const at = there.push(value) - 1;
          out.push(
            region({ [name]: value }, `${path}.${name}[${at}]`, true, (next) => {
              list[i] = next[name] ?? null;
            }),
          );
        }
      }
    }
  }

  answer(): JsonObject {
    const { object } = this.sketch;
    return typeof object === 'string' ? { ...this.sketch, object: object.replace(/\.chunk$/, '') } : this.sketch;
  }
}

const DELTAS: ReadonlyMap<unknown, readonly [from: string, to: string]> = new Map([
  ['text_delta', ['text', 'text']],
  ['thinking_delta', ['thinking', 'thinking']],
  ['input_json_delta', ['partial_json', 'input']],
]);

class MessagesAssembler implements Assembler {
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

/** An event of a kind that is not known: all of it counts. */
function other(root: JsonObject, event: JsonObject): Region[] {
  const at = listOf(root, 'events').push(event) - 1;
  return [part(event, `events[${at}]`, false)];
}

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

class ResponsesAssembler implements Assembler {
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

/** Of a transcription: pieces of its text, then all of it. Parts by speaker are not followed. */
class TranscriptAssembler implements Assembler {
  readonly sketch: JsonObject = { text: '' };

  take(event: JsonObject): Region[] {
    const { type, delta, text } = event;
    if (type === 'transcript.text.delta' && typeof delta === 'string') {
      this.sketch.text = `${String(this.sketch.text)}${delta}`;
      return [member(event, 'delta', 'text', '', true)];
    }
    if (type === 'transcript.text.done' && typeof text === 'string') {
      this.sketch.text = text;
      return [member(event, 'text', 'text', '', false)];
    }
    throw new OutOfPlace();
  }

  answer(): JsonObject {
    return this.sketch;
  }
}

/** Every event on its own. */
class EventList implements Assembler {
  readonly sketch: JsonObject = {};

  take(event: JsonObject): Region[] {
    return other(this.sketch, event);
  }

  answer(): JsonObject {
    return this.sketch;
  }
}

export function assemblerOf(shape: Shape): Assembler {
  switch (shape) {
    case 'chat':
    case 'completions':
      return new ChatAssembler();
    case 'messages':
      return new MessagesAssembler();
    case 'responses':
      return new ResponsesAssembler();
    case 'transcription':
      return new TranscriptAssembler();
    default:
      return new EventList();
  }
}
