/**
 * The named parts of the OpenAPI document. A schema that has a `title` becomes a component of that name, wherever it
 * stands; parameters that several operations have in common become components by their own name.
 */
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';

/** Members of a schema whose members are schemas under names of the document. */
const MAPS = new Set(['properties', 'patternProperties', '$defs']);
/** Members of a schema that hold values, not schemas. */
const VALUES = new Set(['default', 'const', 'enum', 'example', 'examples', 'required']);

export class Components {
  readonly #schemas = new Map<string, JsonValue>();

  /** The schema with a reference in place of each titled one. Throws for two schemas of one name. */
  schema(given: JsonValue | undefined, io: 'input' | 'output'): JsonValue {
    if (Array.isArray(given)) return given.map((one) => this.schema(one, io));
    if (!isObject(given)) return given ?? null;
    const out: JsonObject = {};
    for (const [name, value] of Object.entries(given)) {
      if (MAPS.has(name) && isObject(value)) {
        out[name] = Object.fromEntries(Object.entries(value).map(([key, one]) => [key, this.schema(one, io)]));
      } else out[name] = VALUES.has(name) ? (value ?? null) : this.schema(value, io);
    }
    const { title, description, ...rest } = out;
    if (typeof title !== 'string') return out;
    const $ref = `#/components/schemas/${this.#name(title, rest, io)}`;
    return description === undefined ? { $ref } : { description, $ref };
  }

  /** Defaults are set on what comes in: its schema may differ from that of the same thing going out. */
  #name(title: string, schema: JsonObject, io: 'input' | 'output'): string {
    for (const name of io === 'input' ? [title, `${title}Input`] : [title]) {
      const known = this.#schemas.get(name);
      if (known === undefined) this.#schemas.set(name, schema);
      else if (JSON.stringify(known) !== JSON.stringify(schema)) continue;
      return name;
    }
    throw new Error(`two schemas of the OpenAPI document are named ${title}`);
  }

  /** By name, in the order of the alphabet. */
  get schemas(): JsonObject {
    return Object.fromEntries([...this.#schemas].sort(([a], [b]) => (a < b ? -1 : 1)));
  }
}

/** A schema under the name of its component. */
export const titled = (title: string, schema: JsonObject): JsonObject => ({ title, ...schema });

/** `usage-limits.read` and `usage_limits_read` as `UsageLimitsRead`. */
export const pascal = (text: string): string =>
  text.replace(/(?:^|[^A-Za-z0-9]+)([A-Za-z0-9])/g, (_match, first: string) => first.toUpperCase());

/** Parameters that at least so many operations share become components. */
const SHARED = 3;

/**
 * Puts a reference in place of each parameter that is shared. Of several forms of one name the most frequent is the
 * component, and the others stay where they are. Answers the components, by name.
 */
export function shareParameters(paths: Readonly<Record<string, JsonObject>>): JsonObject {
  const operations = Object.values(paths).flatMap((item) => Object.values(item).filter(isObject));
  const counts = new Map<string, { readonly name: string; readonly parameter: JsonObject; count: number }>();
  for (const { parameters } of operations) {
    for (const parameter of Array.isArray(parameters) ? parameters : []) {
      if (!isObject(parameter) || typeof parameter.name !== 'string') continue;
      const text = JSON.stringify(parameter);
      const known = counts.get(text);
      if (known) known.count += 1;
      else counts.set(text, { name: pascal(parameter.name), parameter, count: 1 });
    }
  }
  const shared = new Map<string, string>();
  const components: JsonObject = {};
  for (const [text, { name, parameter, count }] of [...counts].sort(([, a], [, b]) => b.count - a.count)) {
    if (count < SHARED || components[name] !== undefined) continue;
    components[name] = parameter;
    shared.set(text, name);
  }
  for (const operation of operations) {
    if (!Array.isArray(operation.parameters)) continue;
    operation.parameters = operation.parameters.map((parameter) => {
      const name = shared.get(JSON.stringify(parameter));
      return name === undefined ? (parameter ?? null) : { $ref: `#/components/parameters/${name}` };
    });
  }
  return Object.fromEntries(Object.entries(components).sort(([a], [b]) => (a < b ? -1 : 1)));
}
