/** What one event of a stream holds, by the places of the whole answer. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';

/** A value of an event with its place in the whole answer. */
export interface Region {
  readonly value: JsonObject;
  /** `choices[0].message`, `content[1]`; empty: the answer itself. */
  readonly path: string;
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
export function indexOf(value: unknown, fallback = 0): number {
  if (value === undefined || value === null) return fallback;
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < MAX_INDEX) return value;
  throw new OutOfPlace();
}

/** The object at a place of a list, made where there is none. */
export function slot(holder: JsonObject, name: string, index: number): JsonObject {
  const list = listOf(holder, name);
  const there = list[index];
  if (isObject(there)) return there;
  while (list.length < index) list.push(null);
  const made: JsonObject = {};
  list[index] = made;
  return made;
}

export function listOf(holder: JsonObject, name: string): JsonValue[] {
  const there = holder[name];
  if (Array.isArray(there)) return there;
  const made: JsonValue[] = [];
  holder[name] = made;
  return made;
}

export const region = (value: JsonObject, path: string, delta: boolean, put: (value: JsonObject) => void): Region => ({
  value,
  path,
  delta,
  put,
});

/** Of an object in the event, which the new value's members are put into. */
export const part = (value: JsonObject, path: string, delta: boolean): Region =>
  region(value, path, delta, (next) => {
    Object.assign(value, next);
  });

/** Of one text of the event, which another member of the answer holds. */
export const member = (holder: JsonObject, from: string, to: string, path: string, delta: boolean): Region =>
  region({ [to]: holder[from] }, path, delta, (next) => {
    holder[from] = next[to];
  });

export const without = (object: JsonObject, ...names: readonly string[]): JsonObject =>
  Object.fromEntries(Object.entries(object).filter(([name]) => !names.includes(name)));

/** Adds members; what is null takes nothing away. */
export function assign(target: JsonObject, source: JsonObject): void {
  for (const [name, value] of Object.entries(source)) {
    if (name === '__proto__') throw new OutOfPlace();
    if (value !== null || target[name] === undefined) target[name] = value;
  }
}

/** Members that deltas repeat whole. */
const WHOLE = new Set(['id', 'type', 'role', 'object', 'format', 'signature', 'finish_reason']);
const MAX_DEPTH = 16;

/** Adds what a delta says to what was said. Lists are done by their elements. */
export function merge(target: JsonObject, delta: JsonObject, depth = 0): void {
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
export function goesOn(last: JsonValue | undefined, value: JsonObject): last is JsonObject {
  return isObject(last) && PIECEMEAL.has(value.type) && last.type === value.type && value.index === undefined;
}

const PIECEMEAL = new Set<unknown>(['text', 'thinking', 'reasoning', 'refusal']);

/** An event of a kind that is not known: all of it counts. */
export function other(root: JsonObject, event: JsonObject): Region[] {
  const at = listOf(root, 'events').push(event) - 1;
  return [part(event, `events[${at}]`, false)];
}

/** Every event on its own. */
export class EventList implements Assembler {
  readonly sketch: JsonObject = {};

  take(event: JsonObject): Region[] {
    return other(this.sketch, event);
  }

  answer(): JsonObject {
    return this.sketch;
  }
}
