/**
 * A JSON Schema validator for schemas that users write (2020-12 and draft-07 keywords, `$ref` inside the document). Why
 * not a library: patterns must run in linear time, nothing may be generated as code or read from the net, and a hostile
 * schema must end — every step is counted against a budget. `format` and `content*` are annotations; dynamic references
 * and `$id` of subschemas are refused when the schema is compiled.
 */
import { isObject } from '../kernel/json.ts';
import { matchesPattern, patternCost, patternProblem, patternSize } from '../kernel/pattern.ts';

/** About 5 000 objects of a list, in less than 20 ms. */
const MAX_STEPS = 20_000;
const MAX_DEPTH = 200;
const MAX_NODES = 5_000;
/** Of all patterns of a schema (`patternCost`), about 10 ms. Other requests wait while they are compiled. */
const MAX_PATTERN_COST = 3_000;

export class SchemaProblem extends Error {
  readonly path: readonly (string | number)[];
  constructor(path: readonly (string | number)[], message: string) {
    super(message);
    this.path = path;
  }
}

/** The value could not be judged within the budget. */
export class TooMuchWork extends Error {}

type Schema = boolean | { readonly [key: string]: unknown };

const SCHEMA_KEYS = new Set([
  'additionalProperties',
  'items',
  'additionalItems',
  'contains',
  'propertyNames',
  'not',
  'if',
  'then',
  'else',
  'unevaluatedProperties',
  'unevaluatedItems',
]);
const LIST_KEYS = new Set(['allOf', 'anyOf', 'oneOf', 'prefixItems']);
const MAP_KEYS = new Set(['properties', 'patternProperties', 'dependentSchemas', '$defs', 'definitions']);
const SIZE_KEYS = new Set([
  'minLength',
  'maxLength',
  'minItems',
  'maxItems',
  'minProperties',
  'maxProperties',
  'minContains',
  'maxContains',
]);
const NUMBER_KEYS = new Set(['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum']);
const TYPES = new Set(['null', 'boolean', 'object', 'array', 'number', 'integer', 'string']);

const isSchema = (value: unknown): value is Schema => typeof value === 'boolean' || isObject(value);
const own = (object: object, key: string): unknown =>
  Object.hasOwn(object, key) ? Reflect.get(object, key) : undefined;

/** Finds what is wrong with a schema, so that nothing in it is silently left out when it is used. */
function inspect(root: Schema): void {
  let nodes = 0;
  let cost = 0;
  const fail = (path: readonly (string | number)[], message: string): never => {
    throw new SchemaProblem(path, message);
  };
  const faultOf = (pattern: string): string | null => {
    cost += patternCost(pattern);
    return cost > MAX_PATTERN_COST
      ? 'is too large together with the patterns before: use fewer or smaller ones'
      : patternProblem(pattern);
  };
  const visit = (schema: unknown, path: readonly (string | number)[]): void => {
    if (!isSchema(schema)) fail(path, 'must be a schema: an object, true or false');
    if (typeof schema === 'boolean') return;
    nodes += 1;
    if (nodes > MAX_NODES) fail(path, `must have at most ${MAX_NODES} subschemas`);
    if (path.length > MAX_DEPTH) fail(path.slice(0, 8), 'is nested too deeply');
    for (const [key, value] of Object.entries(schema as Record<string, unknown>)) {
      const here = [...path, key];
      if (key === '$dynamicRef' || key === '$recursiveRef') fail(here, 'cannot be used here; use $ref');
      if (key === '$id' && path.length > 0) fail(here, 'cannot be used below the root');
      if (key === '$ref') {
        if (typeof value !== 'string' || !value.startsWith('#')) fail(here, 'must point into the schema itself (#/…)');
        if (!isSchema(resolve(root, String(value)))) fail(here, 'points to no schema');
      }
      if (key === 'type') {
        const types = Array.isArray(value) ? value : [value];
        if (!types.every((type) => TYPES.has(type)))
          fail(here, `must be one of ${[...TYPES].join(', ')}, or a list of them`);
      }
      if (key === 'pattern') {
        const problem = typeof value === 'string' ? faultOf(value) : 'must be a text';
        if (problem !== null) fail(here, problem);
      }
      if (key === 'enum' && !Array.isArray(value)) fail(here, 'must be a list');
      if (SIZE_KEYS.has(key) && !(Number.isInteger(value) && Number(value) >= 0)) fail(here, 'must be a whole number');
      if (NUMBER_KEYS.has(key) && typeof value !== 'number') fail(here, 'must be a number');
      if (key === 'multipleOf' && !(typeof value === 'number' && value > 0)) fail(here, 'must be a number above 0');
      if (key === 'required' && !(Array.isArray(value) && value.every((name) => typeof name === 'string')))
        fail(here, 'must be a list of texts');
      if (key === 'items' && Array.isArray(value)) for (const [i, item] of value.entries()) visit(item, [...here, i]);
      else if (SCHEMA_KEYS.has(key)) visit(value, here);
      if (LIST_KEYS.has(key)) {
        if (!Array.isArray(value) || value.length === 0) fail(here, 'must be a list of schemas');
        else for (const [i, item] of value.entries()) visit(item, [...here, i]);
      }
      if (MAP_KEYS.has(key)) {
        if (!isObject(value)) fail(here, 'must be an object of schemas');
        else
          for (const [name, item] of Object.entries(value)) {
            const problem = key === 'patternProperties' ? faultOf(name) : null;
            if (problem !== null) fail([...here, name], `is a pattern that ${problem}`);
            visit(item, [...here, name]);
          }
      }
      if (key === 'dependentRequired' || key === 'dependencies') {
        if (!isObject(value)) fail(here, 'must be an object');
        else
          for (const [name, item] of Object.entries(value)) {
            if (Array.isArray(item) ? item.every((x) => typeof x === 'string') : key === 'dependencies') {
              if (!Array.isArray(item)) visit(item, [...here, name]);
            } else fail([...here, name], 'must be a list of texts');
          }
      }
    }
  };
  visit(root, []);
}

/** What a `#/a/b` or `#anchor` reference points to. */
function resolve(root: Schema, ref: string): unknown {
  let pointer: string;
  try {
    pointer = decodeURIComponent(ref.slice(1));
  } catch {
    return undefined;
  }
  if (pointer === '') return root;
  if (!pointer.startsWith('/')) return undefined;
  let at: unknown = root;
  for (const part of pointer.slice(1).split('/')) {
    const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
    at = typeof at === 'object' && at !== null ? own(at, key) : undefined;
  }
  return at;
}

/** What of a value was looked at by name or position, for `unevaluated*`. */
interface Seen {
  readonly keys: Set<string>;
  items: number;
  readonly contained: Set<number>;
}

const nothingSeen = (): Seen => ({ keys: new Set(), items: 0, contained: new Set() });
function add(to: Seen, from: Seen): void {
  for (const key of from.keys) to.keys.add(key);
  for (const index of from.contained) to.contained.add(index);
  to.items = Math.max(to.items, from.items);
}

class Run {
  readonly #root: Schema;
  #steps = 0;

  constructor(root: Schema) {
    this.#root = root;
  }

  #count(n = 1): void {
    this.#steps += n;
    if (this.#steps > MAX_STEPS) throw new TooMuchWork('the schema asks for too much work on this value');
  }

  /** `seen`: null where nothing asks for what was looked at. */
  valid(schema: Schema, value: unknown, depth: number, seen: Seen | null): boolean {
    this.#count(seen === null ? 1 : 2);
    if (depth > MAX_DEPTH) throw new TooMuchWork('schema and value are nested too deeply');
    if (typeof schema === 'boolean') return schema;
    const next = depth + 1;
    const get = (key: string) => own(schema, key);
    const sub = (part: unknown, of: unknown, into = seen === null ? null : nothingSeen()) =>
      this.valid(part as Schema, of, next, into);
    /** Judges in place; what it looked at counts only if it holds. */
    const here = (part: unknown): boolean => {
      if (seen === null) return sub(part, value);
      const inner = nothingSeen();
      const ok = sub(part, value, inner);
      this.#count((inner.keys.size + inner.contained.size) / 4);
      if (ok) add(seen, inner);
      return ok;
    };

    const ref = get('$ref');
    if (typeof ref === 'string') {
      this.#count(ref.length / 16);
      if (!here(resolve(this.#root, ref))) return false;
    }
    const type = get('type');
    if (type !== undefined && !(Array.isArray(type) ? type : [type]).some((one) => isOfType(value, one))) return false;
    const choices = get('enum');
    if (Array.isArray(choices) && !choices.some((choice) => this.#equal(choice, value))) return false;
    if (Object.hasOwn(schema, 'const') && !this.#equal(get('const'), value)) return false;

    if (typeof value === 'number' && !numberFits(value, get)) return false;
    if (typeof value === 'string' && !this.#textFits(value, get)) return false;
    if (Array.isArray(value) && !this.#listFits(value, get, sub, seen)) return false;
    if (isObject(value) && !this.#objectFits(value, get, sub, here, seen)) return false;

    const all = get('allOf');
    if (Array.isArray(all) && !all.every(here)) return false;
    const any = get('anyOf');
    // Every branch that holds is asked, because `unevaluated*` depends on all of them.
    if (Array.isArray(any) && any.filter(here).length === 0) return false;
    const one = get('oneOf');
    if (Array.isArray(one) && one.filter(here).length !== 1) return false;
    const not = get('not');
    if (not !== undefined && sub(not, value)) return false;
    const condition = get('if');
    if (condition !== undefined) {
      const branch = here(condition) ? get('then') : get('else');
      if (branch !== undefined && !here(branch)) return false;
    }
    return this.#restFits(value, get, sub, seen);
  }

  #restFits(
    value: unknown,
    get: (key: string) => unknown,
    sub: (part: unknown, of: unknown) => boolean,
    seen: Seen | null,
  ): boolean {
    if (seen === null) return true;
    const keys = get('unevaluatedProperties');
    if (keys !== undefined && isObject(value)) {
      for (const [key, item] of Object.entries(value)) {
        if (seen.keys.has(key)) continue;
        if (!sub(keys, item)) return false;
        seen.keys.add(key);
      }
    }
    const items = get('unevaluatedItems');
    if (items !== undefined && Array.isArray(value)) {
      for (let i = seen.items; i < value.length; i++) if (!seen.contained.has(i) && !sub(items, value[i])) return false;
      seen.items = value.length;
    }
    return true;
  }

  #textFits(value: string, get: (key: string) => unknown): boolean {
    const [min, max, pattern] = [get('minLength'), get('maxLength'), get('pattern')];
    if (min !== undefined || max !== undefined) {
      let length = 0;
      for (let i = 0; i < value.length; i++, length++) if ((value.codePointAt(i) ?? 0) > 0xffff) i++;
      this.#count(value.length / 64);
      if (length < Number(min ?? 0) || length > Number(max ?? Infinity)) return false;
    }
    return typeof pattern !== 'string' || this.#matches(pattern, value);
  }

  #matches(pattern: string, value: string): boolean {
    // Instructions × characters that take as long as any other step.
    this.#count(4 + (patternSize(pattern) * value.length) / 24);
    const found = matchesPattern(pattern, value);
    if (found === null) throw new TooMuchWork('a text is too long for a pattern of the schema');
    return found;
  }

  #listFits(
    value: readonly unknown[],
    get: (key: string) => unknown,
    sub: (part: unknown, of: unknown) => boolean,
    seen: Seen | null,
  ): boolean {
    const { length } = value;
    if (length < Number(get('minItems') ?? 0) || length > Number(get('maxItems') ?? Infinity)) return false;
    const items = get('items');
    const first = Array.isArray(items) ? items : get('prefixItems');
    const rest = Array.isArray(items) ? get('additionalItems') : items;
    const fixed = Array.isArray(first) ? first : [];
    for (let i = 0; i < fixed.length && i < length; i++) if (!sub(fixed[i], value[i])) return false;
    if (seen !== null) seen.items = Math.max(seen.items, Math.min(fixed.length, length));
    if (rest !== undefined) {
      for (let i = fixed.length; i < length; i++) if (!sub(rest, value[i])) return false;
      if (seen !== null) seen.items = length;
    }
    const contains = get('contains');
    if (contains !== undefined) {
      let hits = 0;
      value.forEach((item, i) => {
        if (!sub(contains, item)) return;
        hits += 1;
        seen?.contained.add(i);
      });
      if (hits < Number(get('minContains') ?? 1) || hits > Number(get('maxContains') ?? Infinity)) return false;
    }
    if (get('uniqueItems') !== true) return true;
    const known = new Set<string>();
    for (const item of value) known.add(this.#canonical(item));
    return known.size === length;
  }

  #objectFits(
    value: { readonly [key: string]: unknown },
    get: (key: string) => unknown,
    sub: (part: unknown, of: unknown) => boolean,
    here: (part: unknown) => boolean,
    seen: Seen | null,
  ): boolean {
    const keys = Object.keys(value);
    this.#count(keys.length / 2);
    if (keys.length < Number(get('minProperties') ?? 0) || keys.length > Number(get('maxProperties') ?? Infinity))
      return false;
    const required = get('required');
    if (Array.isArray(required)) this.#count(required.length / 8);
    if (Array.isArray(required) && !required.every((name) => Object.hasOwn(value, name))) return false;
    const named = get('properties');
    const patterns = get('patternProperties');
    const matched = isObject(patterns) ? Object.entries(patterns) : [];
    this.#count(matched.length / 8);
    const rest = get('additionalProperties');
    const names = get('propertyNames');
    for (const key of keys) {
      const item = value[key];
      if (names !== undefined && !sub(names, key)) return false;
      let known = false;
      const schema = isObject(named) ? own(named, key) : undefined;
      if (schema !== undefined) {
        known = true;
        if (!sub(schema, item)) return false;
      }
      for (const [pattern, part] of matched) {
        if (!this.#matches(pattern, key)) continue;
        known = true;
        if (!sub(part, item)) return false;
      }
      if (!known && rest !== undefined) {
        known = true;
        if (!sub(rest, item)) return false;
      }
      if (known) seen?.keys.add(key);
    }
    for (const keyword of ['dependentRequired', 'dependentSchemas', 'dependencies']) {
      const dependent = get(keyword);
      if (!isObject(dependent)) continue;
      const entries = Object.entries(dependent);
      this.#count(entries.length / 2);
      for (const [name, then] of entries) {
        if (!Object.hasOwn(value, name)) continue;
        if (Array.isArray(then)) this.#count(then.length / 8);
        const ok = Array.isArray(then) ? then.every((other) => Object.hasOwn(value, String(other))) : here(then);
        if (!ok) return false;
      }
    }
    return true;
  }

  #equal(a: unknown, b: unknown): boolean {
    if (typeof a !== 'object' || a === null || typeof b !== 'object' || b === null) {
      this.#count();
      return a === b;
    }
    return this.#canonical(a) === this.#canonical(b);
  }

  /** A text that two values share exactly if JSON Schema holds them equal. */
  #canonical(value: unknown, depth = 0): string {
    this.#count(1 + (typeof value === 'string' ? value.length / 64 : 0));
    if (depth > MAX_DEPTH) throw new TooMuchWork('a value is nested too deeply');
    if (Array.isArray(value)) return `[${value.map((item) => this.#canonical(item, depth + 1)).join(',')}]`;
    if (!isObject(value)) return JSON.stringify(value === 0 ? 0 : value) ?? 'null';
    const parts = Object.keys(value)
      .sort()
      .map((key) => `${JSON.stringify(key)}:${this.#canonical(value[key], depth + 1)}`);
    return `{${parts.join(',')}}`;
  }
}

function isOfType(value: unknown, type: unknown): boolean {
  switch (type) {
    case 'null':
      return value === null;
    case 'array':
      return Array.isArray(value);
    case 'object':
      return isObject(value);
    case 'integer':
      return Number.isInteger(value);
    default:
      return typeof value === type;
  }
}

function numberFits(value: number, get: (key: string) => unknown): boolean {
  if (value < Number(get('minimum') ?? -Infinity) || value > Number(get('maximum') ?? Infinity)) return false;
  if (get('exclusiveMinimum') !== undefined && value <= Number(get('exclusiveMinimum'))) return false;
  if (get('exclusiveMaximum') !== undefined && value >= Number(get('exclusiveMaximum'))) return false;
  const step = get('multipleOf');
  if (step === undefined) return true;
  const times = value / Number(step);
  // 0.3 is a multiple of 0.1, whatever binary fractions say.
  return Number.isFinite(times) && Math.abs(times - Math.round(times)) <= 1e-9 * Math.max(1, Math.abs(times));
}

/**
 * A validator of one schema. Throws `SchemaProblem` with the path in the schema; the validator throws `TooMuchWork` for
 * values that would take too long.
 */
export function compileSchema(schema: unknown): (value: unknown) => boolean {
  inspect(schema as Schema);
  // Keeping what was looked at costs several times the rest: only where a schema asks for it.
  const asks = JSON.stringify(schema).includes('"unevaluated');
  return (value) => new Run(schema as Schema).valid(schema as Schema, value, 0, asks ? nothingSeen() : null);
}
