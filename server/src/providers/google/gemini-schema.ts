/** JSON Schema as Gemini takes it in `responseJsonSchema` and `parametersJsonSchema`. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';

/** Keywords whose values are schemas by name: the names are no keywords. */
const BY_NAME = new Set(['properties', '$defs', 'definitions', 'patternProperties']);
/** Keywords whose values are data, whatever they look like. */
const DATA = new Set(['enum', 'default', 'examples', 'required', 'example']);

const LOCAL = '#/definitions/';

function mapped(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(mapped);
  return isObject(value) ? geminiSchema(value) : value;
}

function byName(schemas: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, mapped(schema ?? null)]));
}

function keyword(key: string, value: JsonValue): [string, JsonValue] {
  if (key === 'const') return ['enum', [value]];
  if (key === '$ref' && typeof value === 'string' && value.startsWith(LOCAL)) {
    return [key, `#/$defs/${value.slice(LOCAL.length)}`];
  }
  if (BY_NAME.has(key) && isObject(value)) return [key === 'definitions' ? '$defs' : key, byName(value)];
  return [key, DATA.has(key) ? value : mapped(value)];
}

/**
 * A whole schema may be sent, but what is outside the documented subset is ignored or refused. Rewritten here is what has
 * an equal in the subset: `const` is an `enum` of one, `definitions` are `$defs`, `allOf` of one is that one; `$schema` says
 * nothing, and nothing but names and definitions may be beside `$ref`.
 */
export function geminiSchema(schema: JsonObject): JsonObject {
  const reference = typeof schema.$ref === 'string';
  const entries: [string, JsonValue][] = [];
  for (const [key, value] of Object.entries(schema)) {
    if (value === undefined || key === '$schema') continue;
    if (!reference || key.startsWith('$') || key === 'definitions') entries.push(keyword(key, value));
  }
  const out: JsonObject = Object.fromEntries(entries);
  const { allOf, ...rest } = out;
  const [only, ...more] = Array.isArray(allOf) ? allOf : [];
  return isObject(only) && more.length === 0 ? { ...only, ...rest } : out;
}
