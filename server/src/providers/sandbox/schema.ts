import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { textMatching } from './pattern.ts';
import { invalid } from './problem.ts';
import { type CheckBudget, isValid, resolveRef } from './schema-check.ts';

/** Work bound for one schema: nested alternatives multiply. */
const MAX_STEPS = 5_000;
/** Work bound for checking what was made: some tens of milliseconds. */
const MAX_CHECKS = 100_000;
const MAX_DEPTH = 40;
const MAX_ITEMS = 1_000;

/** No value could be made. */
const NONE = Symbol('none');
type Made = JsonValue | typeof NONE;

const FORMATS: Readonly<Record<string, string>> = {
  'date-time': '2026-01-01T00:00:00Z',
  date: '2026-01-01',
  time: '00:00:00Z',
  duration: 'PT1S',
  email: 'sandbox@example.com',
  hostname: 'example.com',
  ipv4: '192.0.2.1',
  ipv6: '2001:db8::1',
  uuid: '00000000-0000-4000-8000-000000000000',
  uri: 'https://example.com/',
  'uri-reference': '/',
  iri: 'https://example.com/',
  'json-pointer': '',
  regex: '.',
};

/** Joins the constraints of two schemas; where both say something that cannot be joined, `allOf` keeps the second. */
function merge(a: JsonObject, b: JsonObject): JsonObject {
  const out: JsonObject = { ...a };
  for (const [key, value] of Object.entries(b)) {
    const before = out[key];
    if (before === undefined) out[key] = value;
    else if (key === 'properties' && isObject(before) && isObject(value)) {
      const joined: JsonObject = { ...before };
      for (const [name, schema] of Object.entries(value)) {
        const known = joined[name];
        joined[name] = isObject(known) && isObject(schema) ? merge(known, schema) : (schema ?? true);
      }
      out[key] = joined;
    } else if (key === 'required' && Array.isArray(before) && Array.isArray(value)) {
      out[key] = [...new Set([...before, ...value])];
    } else if (key === 'enum' && Array.isArray(before) && Array.isArray(value)) {
      out[key] = before.filter((item) => value.some((other) => JSON.stringify(other) === JSON.stringify(item)));
    } else if (key === 'type') {
      const wanted: readonly JsonValue[] = Array.isArray(value) ? value : [value ?? null];
      const list = (Array.isArray(before) ? before : [before]).filter((type) => wanted.includes(type));
      if (list.length > 0) out[key] = list;
      else out.enum = [];
    } else if (/^(minimum|minLength|minItems|minProperties|exclusiveMinimum)$/.test(key)) {
      out[key] = Math.max(Number(before), Number(value));
    } else if (/^(maximum|maxLength|maxItems|maxProperties|exclusiveMaximum)$/.test(key)) {
      out[key] = Math.min(Number(before), Number(value));
    } else if (JSON.stringify(before) !== JSON.stringify(value)) {
      out[key] = value;
    }
  }
  return out;
}

const numberOr = (value: JsonValue | undefined, fallback: number): number =>
  typeof value === 'number' && Number.isFinite(value) ? value : fallback;

class Maker {
  readonly #root: JsonObject;
  readonly #budget: CheckBudget;
  #steps = 0;

  constructor(root: JsonObject) {
    this.#root = root;
    this.#budget = { root, left: MAX_CHECKS };
  }

  /** A value for `schema`; a different one for each `variant` where the schema leaves a choice. */
  make(schema: JsonValue | undefined, depth: number, variant = 0): Made {
    this.#steps += 1;
    if (this.#steps > MAX_STEPS || this.#budget.left < 0 || depth > MAX_DEPTH || schema === false) return NONE;
    if (!isObject(schema)) return 'sandbox';
    for (const key of ['default', 'const'] as const) {
      const given = schema[key];
      if (given !== undefined && variant === 0 && this.#valid(schema, given)) return given;
    }
    const made = this.#alternatives(schema, depth, variant);
    if (made === NONE || this.#valid(schema, made)) return made;
    const example = Array.isArray(schema.examples)
      ? schema.examples.find((item) => this.#valid(schema, item))
      : undefined;
    return example ?? NONE;
  }

  #valid(schema: JsonObject, value: JsonValue): boolean {
    return isValid(schema, value, this.#budget);
  }

  #alternatives(schema: JsonObject, depth: number, variant: number): Made {
    if (typeof schema.$ref === 'string') {
      const { $ref, ...rest } = schema;
      const target = resolveRef(this.#root, $ref);
      if (target === undefined || typeof target === 'boolean') return this.make(target ?? false, depth + 1, variant);
      return this.make(isObject(target) ? merge(target, rest) : false, depth + 1, variant);
    }
    if (Array.isArray(schema.allOf)) {
      const { allOf, ...rest } = schema;
      let all: JsonObject = rest;
      for (const part of allOf) {
        const target = isObject(part) && typeof part.$ref === 'string' ? resolveRef(this.#root, part.$ref) : part;
        if (target === false) return NONE;
        if (isObject(target)) {
          const { $ref: _, ...own } = isObject(part) && part !== target ? part : { $ref: undefined };
          all = merge(merge(all, target), own);
        }
      }
      return this.make(all, depth + 1, variant);
    }
    for (const key of ['anyOf', 'oneOf'] as const) {
      const list = schema[key];
      if (!Array.isArray(list)) continue;
      const { [key]: _, ...rest } = schema;
      for (const option of list) {
        if (option === false) continue;
        const target =
          isObject(option) && typeof option.$ref === 'string' ? resolveRef(this.#root, option.$ref) : option;
        const made = this.make(isObject(target) ? merge(rest, target) : rest, depth + 1, variant);
        if (made !== NONE && this.#valid(schema, made)) return made;
      }
      return NONE;
    }
    if (isObject(schema.if)) {
      const { if: test, then: yes, else: no, ...rest } = schema;
      for (const branch of [no, isObject(yes) ? merge(test, yes) : test]) {
        const made = this.make(isObject(branch) ? merge(rest, branch) : rest, depth + 1, variant);
        if (made !== NONE && this.#valid(schema, made)) return made;
      }
      return NONE;
    }
    if (Array.isArray(schema.enum)) {
      const fitting = schema.enum.filter((item) => this.#valid(schema, item));
      return fitting.length === 0 ? NONE : (fitting[variant % fitting.length] ?? null);
    }
    return this.#typed(schema, depth, variant);
  }

  #typed(schema: JsonObject, depth: number, variant: number): Made {
    const types = Array.isArray(schema.type) ? schema.type : [schema.type ?? guessType(schema)];
    for (const type of types) {
      const made = this.#ofType(type, schema, depth, variant);
      if (made !== NONE && this.#valid(schema, made)) return made;
    }
    return NONE;
  }

  #ofType(type: JsonValue, schema: JsonObject, depth: number, variant: number): Made {
    switch (type) {
      case 'string':
        return this.#string(schema, variant);
      case 'integer':
      case 'number':
        return this.#number(schema, type === 'integer', variant);
      case 'boolean':
        return variant % 2 === 0;
      case 'null':
        return null;
      case 'array':
        return this.#array(schema, depth);
      case 'object':
        return this.#object(schema, depth, variant);
      default:
        return NONE;
    }
  }

  #string(schema: JsonObject, variant: number): Made {
    const min = numberOr(schema.minLength, 0);
    const max = numberOr(schema.maxLength, Number.POSITIVE_INFINITY);
    if (min > 100_000) return NONE;
    if (typeof schema.pattern === 'string') return textMatching(schema.pattern, min, max, variant) ?? NONE;
    const format = typeof schema.format === 'string' ? FORMATS[schema.format] : undefined;
    if (format !== undefined && variant === 0) return format;
    const suffix = variant === 0 ? '' : String(variant);
    const text = 'sandbox'.slice(0, Math.max(0, Math.min(7, max - suffix.length))) + suffix;
    return text.padEnd(min, 'x').slice(0, max);
  }

  #number(schema: JsonObject, whole: boolean, variant: number): Made {
    const step = numberOr(schema.multipleOf, whole ? 1 : 0);
    const low = Math.max(
      numberOr(schema.minimum, Number.NEGATIVE_INFINITY),
      numberOr(schema.exclusiveMinimum, Number.NEGATIVE_INFINITY),
    );
    const high = Math.min(
      numberOr(schema.maximum, Number.POSITIVE_INFINITY),
      numberOr(schema.exclusiveMaximum, Number.POSITIVE_INFINITY),
    );
    const unit = step > 0 ? step : 1;
    const from = low > 0 ? Math.ceil(low / unit) * unit : high < 0 ? Math.floor(high / unit) * unit : 0;
    const away = high < 0 ? -unit : unit;
    const between = Number.isFinite(low) && Number.isFinite(high) ? (low + high) / 2 : from;
    const candidates = [from, from + away, low, high, between].filter(Number.isFinite);
    const fitting = candidates
      .map((value) => value + variant * away)
      .concat(candidates.map((value) => value - variant * away));
    return fitting.find((value) => this.#valid(schema, value)) ?? NONE;
  }

  #array(schema: JsonObject, depth: number): Made {
    const prefix = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
    const wanted = isObject(schema.contains) ? numberOr(schema.minContains, 1) : 0;
    const min = Math.max(
      numberOr(schema.minItems, 0),
      prefix.length > 0 ? Math.min(prefix.length, numberOr(schema.maxItems, prefix.length)) : 0,
    );
    if (min > MAX_ITEMS || wanted > MAX_ITEMS) return NONE;
    const items: JsonValue[] = [];
    const rest =
      prefix.length > 0 && Array.isArray(schema.items) ? (schema.additionalItems ?? true) : (schema.items ?? true);
    for (let i = 0; i < Math.max(min, wanted); i++) {
      const base = prefix[i] ?? rest;
      const item =
        i < wanted && isObject(schema.contains)
          ? isObject(base)
            ? merge(base, schema.contains)
            : schema.contains
          : base;
      const made = this.#distinct(item, depth, schema.uniqueItems === true ? items : null, i);
      if (made === NONE) return NONE;
      items.push(made);
    }
    return items;
  }

  #distinct(schema: JsonValue, depth: number, others: readonly JsonValue[] | null, index: number): Made {
    if (others === null) return this.make(schema, depth + 1);
    for (let variant = index; variant < index + 8; variant++) {
      const made = this.make(schema, depth + 1, variant);
      if (made === NONE) continue;
      const text = JSON.stringify(made);
      if (!others.some((other) => JSON.stringify(other) === text)) return made;
    }
    return NONE;
  }

  #object(schema: JsonObject, depth: number, variant: number): Made {
    const out: Record<string, JsonValue> = Object.create(null) as Record<string, JsonValue>;
    const properties = isObject(schema.properties) ? schema.properties : {};
    const needed = new Set(
      (Array.isArray(schema.required) ? schema.required : []).filter((name) => typeof name === 'string'),
    );
    const dependent = isObject(schema.dependentRequired) ? schema.dependentRequired : {};
    const min = numberOr(schema.minProperties, 0);
    if (min > MAX_ITEMS) return NONE;
    for (const name of Object.keys(properties)) {
      if (needed.size >= min) break;
      needed.add(name);
    }
    for (let i = 0; needed.size < min && i < MAX_ITEMS; i++) needed.add(`sandbox${i}`);
    for (const name of needed) {
      const more = Object.hasOwn(dependent, name) ? dependent[name] : undefined;
      if (Array.isArray(more)) for (const other of more) if (typeof other === 'string') needed.add(other);
      const own = Object.hasOwn(properties, name) ? properties[name] : undefined;
      const made = this.make(own ?? schema.additionalProperties ?? true, depth + 1, variant);
      if (made === NONE) return NONE;
      out[name] = made;
    }
    return { ...out };
  }
}

function guessType(schema: JsonObject): string {
  if (schema.properties !== undefined || schema.required !== undefined || schema.minProperties !== undefined)
    return 'object';
  if (
    schema.items !== undefined ||
    schema.prefixItems !== undefined ||
    schema.minItems !== undefined ||
    schema.contains !== undefined
  )
    return 'array';
  if (
    schema.minimum !== undefined ||
    schema.maximum !== undefined ||
    schema.multipleOf !== undefined ||
    schema.exclusiveMinimum !== undefined ||
    schema.exclusiveMaximum !== undefined
  )
    return 'number';
  return 'string';
}

/**
 * A small value that is valid for a JSON Schema (2020-12; only references within the schema). Only required properties
 * are made. Throws a 400 when the sandbox finds no valid value; `path` names the schema in it.
 */
export function instanceOf(schema: JsonObject, path: string): JsonValue {
  const made = new Maker(schema).make(schema, 0);
  if (made === NONE) {
    throw invalid(
      `Invalid schema for '${path}': the sandbox finds no value that is valid for it.`,
      path,
      'invalid_json_schema',
    );
  }
  return made;
}
