import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { isCompiled, matches } from './pattern.ts';

const MAX_DEPTH = 60;
/** How many plain checks a pattern costs as much as. */
const MATCH_WEIGHT = 20;
const COMPILE_WEIGHT = 1_000;
const weightOf = (pattern: string): number => (isCompiled(pattern) ? MATCH_WEIGHT : COMPILE_WEIGHT);

/** What one schema may cost: alternatives that refer to each other multiply without end. */
export interface CheckBudget {
  readonly root: JsonObject;
  /** Checks left; at 0 nothing is valid any more. */
  left: number;
}

/** The schema a reference within `root` points to; undefined when it points nowhere or outside. */
export function resolveRef(root: JsonObject, ref: string): JsonValue | undefined {
  if (!ref.startsWith('#')) return undefined;
  if (ref === '#') return root;
  if (!ref.startsWith('#/')) return undefined;
  let at: JsonValue | undefined = root;
  for (const part of ref.slice(2).split('/')) {
    let name: string;
    try {
      name = decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~');
    } catch {
      return undefined;
    }
    if (Array.isArray(at)) at = at[Number(name)];
    else at = isObject(at) && Object.hasOwn(at, name) ? at[name] : undefined;
  }
  return at;
}

function typeOk(type: JsonValue, value: JsonValue): boolean {
  switch (type) {
    case 'string':
    case 'boolean':
      return typeof value === type;
    case 'number':
      return typeof value === 'number';
    case 'integer':
      return typeof value === 'number' && Number.isInteger(value);
    case 'null':
      return value === null;
    case 'array':
      return Array.isArray(value);
    case 'object':
      return isObject(value);
    default:
      return false;
  }
}

const same = (a: JsonValue, b: JsonValue): boolean => a === b || JSON.stringify(a) === JSON.stringify(b);

/** Whether `value` is valid for `schema`: what the sandbox checks its own values with. `format` is not judged. */
export function isValid(schema: JsonValue | undefined, value: JsonValue, budget: CheckBudget, depth = 0): boolean {
  if (typeof schema === 'boolean') return schema;
  if (!isObject(schema)) return true;
  budget.left -= typeof schema.pattern === 'string' ? weightOf(schema.pattern) : 1;
  if (depth > MAX_DEPTH || budget.left < 0) return false;
  const check = (part: JsonValue | undefined, item: JsonValue): boolean => isValid(part, item, budget, depth + 1);
  if (typeof schema.$ref === 'string') {
    const target = resolveRef(budget.root, schema.$ref);
    if (target === undefined || !check(target, value)) return false;
  }
  if (schema.type !== undefined) {
    const types = Array.isArray(schema.type) ? schema.type : [schema.type];
    if (!types.some((type) => typeOk(type, value))) return false;
  }
  if (schema.const !== undefined && !same(schema.const, value)) return false;
  if (Array.isArray(schema.enum) && !schema.enum.some((item) => same(item, value))) return false;
  if (Array.isArray(schema.allOf) && !schema.allOf.every((part) => check(part, value))) return false;
  if (Array.isArray(schema.anyOf) && !schema.anyOf.some((part) => check(part, value))) return false;
  if (Array.isArray(schema.oneOf) && schema.oneOf.filter((part) => check(part, value)).length !== 1) return false;
  if (schema.not !== undefined && check(schema.not, value)) return false;
  if (schema.if !== undefined && !check(check(schema.if, value) ? schema.then : schema.else, value)) return false;
  if (typeof value === 'string') return stringOk(schema, value);
  if (typeof value === 'number') return numberOk(schema, value);
  if (Array.isArray(value)) return arrayOk(schema, value, check);
  return isObject(value) ? objectOk(schema, value, check, budget) : true;
}

const atLeast = (bound: JsonValue | undefined, value: number): boolean => typeof bound !== 'number' || value >= bound;
const atMost = (bound: JsonValue | undefined, value: number): boolean => typeof bound !== 'number' || value <= bound;

function stringOk(schema: JsonObject, value: string): boolean {
  const length = [...value].length;
  if (!atLeast(schema.minLength, length) || !atMost(schema.maxLength, length)) return false;
  return typeof schema.pattern !== 'string' || matches(schema.pattern, value);
}

function numberOk(schema: JsonObject, value: number): boolean {
  if (!atLeast(schema.minimum, value) || !atMost(schema.maximum, value)) return false;
  if (typeof schema.exclusiveMinimum === 'number' && value <= schema.exclusiveMinimum) return false;
  if (typeof schema.exclusiveMaximum === 'number' && value >= schema.exclusiveMaximum) return false;
  if (typeof schema.multipleOf !== 'number') return true;
  return Number.isInteger(value / schema.multipleOf);
}

type Check = (part: JsonValue | undefined, item: JsonValue) => boolean;

function arrayOk(schema: JsonObject, value: readonly JsonValue[], check: Check): boolean {
  if (!atLeast(schema.minItems, value.length) || !atMost(schema.maxItems, value.length)) return false;
  const prefix = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
  if (!value.every((item, i) => check(i < prefix.length ? prefix[i] : schema.items, item))) return false;
  if (schema.contains !== undefined) {
    const count = value.filter((item) => check(schema.contains, item)).length;
    if (count < (typeof schema.minContains === 'number' ? schema.minContains : 1)) return false;
    if (!atMost(schema.maxContains, count)) return false;
  }
  return schema.uniqueItems !== true || new Set(value.map((item) => JSON.stringify(item))).size === value.length;
}

function objectOk(schema: JsonObject, value: JsonObject, check: Check, budget: CheckBudget): boolean {
  const names = Object.keys(value);
  if (!atLeast(schema.minProperties, names.length) || !atMost(schema.maxProperties, names.length)) return false;
  const has = (name: JsonValue): boolean => typeof name === 'string' && Object.hasOwn(value, name);
  if (Array.isArray(schema.required) && !schema.required.every(has)) return false;
  const properties = isObject(schema.properties) ? schema.properties : {};
  const patterns = isObject(schema.patternProperties) ? schema.patternProperties : {};
  for (const name of names) {
    const item = value[name] ?? null;
    let known = false;
    if (Object.hasOwn(properties, name)) {
      known = true;
      if (!check(properties[name], item)) return false;
    }
    for (const [pattern, part] of Object.entries(patterns)) {
      budget.left -= weightOf(pattern);
      if (budget.left < 0) return false;
      if (!matches(pattern, name)) continue;
      known = true;
      if (!check(part, item)) return false;
    }
    if (!known && !check(schema.additionalProperties, item)) return false;
    if (schema.propertyNames !== undefined && !check(schema.propertyNames, name)) return false;
  }
  const dependent = isObject(schema.dependentRequired) ? schema.dependentRequired : {};
  return Object.entries(dependent).every(([name, more]) => !has(name) || !Array.isArray(more) || more.every(has));
}
