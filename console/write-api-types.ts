/**
 * Writes the types of what the console calls: `types/api.ts`, made of `docs/openapi.json` and of the calls that only the
 * console makes. `npm run typecheck` runs it first, so that the file is never older than what it describes.
 */
import { mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { consoleDocument } from '../server/src/admin/openapi.ts';
import { isObject, type JsonObject, type JsonValue } from '../server/src/kernel/json.ts';

const HEAD = '// Made by console/write-api-types.ts, which npm run typecheck runs. Changes here are lost.\n';

/** Further paths of an operation: it has its types under the first one. */
const ALIAS = /\.alias\d+$/;

type Value = JsonValue | undefined;

/**
 * TypeScript of OpenAPI documents: a type for each named schema, and `Operations` with an entry for each operation, such as
 * `'GET /v1/configs'`. Its `input` has `path`, `query` and `body`. Its `answer` is the JSON of a success: undefined where
 * there is none, unknown where the document does not say. Throws for two schemas of one name.
 */
export function typesOf(documents: readonly JsonObject[]): string {
  const schemas = new Map<string, string>();
  const operations: string[] = [];
  for (const document of documents) {
    for (const [name, schema] of entriesOf(at(document, 'components', 'schemas'))) {
      if (schemas.has(name)) throw new Error(`two schemas are named ${name}`);
      schemas.set(name, `export type ${name} = ${typeOf(schema)};\n`);
    }
    for (const [url, item] of entriesOf(document.paths)) {
      for (const [method, operation] of entriesOf(item)) {
        if (!isObject(operation) || ALIAS.test(String(operation.operationId))) continue;
        const key = JSON.stringify(`${method.toUpperCase()} ${url}`);
        const types = `{ input: ${inputOf(operation, document)}; answer: ${answerOf(operation)} }`;
        operations.push(`${noteOf(operation.summary)}${key}: ${types};\n`);
      }
    }
  }
  return `${HEAD}${[...schemas.values()].join('')}export interface Operations {\n${operations.join('')}}\n`;
}

function inputOf(operation: JsonObject, document: JsonObject): string {
  const parameters = Array.isArray(operation.parameters) ? operation.parameters : [];
  const known = parameters.map((one) => resolved(one, document));
  const group = (place: string): string[] => {
    const own = known.filter((one) => one.in === place);
    const members = own.map((one) => memberOf(String(one.name), one, one.required === true));
    const optional = own.every(({ required }) => required !== true);
    return own.length === 0 ? [] : [`${place}${optional ? '?' : ''}: { ${members.join(' ')} };`];
  };
  const body = at(operation, 'requestBody', 'content', 'application/json', 'schema');
  const optional = at(operation, 'requestBody', 'required') === true ? '' : '?';
  const parts = [
    ...group('path'),
    ...group('query'),
    ...(body === undefined ? [] : [`body${optional}: ${typeOf(body)};`]),
  ];
  return parts.length === 0 ? NO_MEMBERS : `{ ${parts.join(' ')} }`;
}

function answerOf(operation: JsonObject): string {
  const success = entriesOf(operation.responses).find(([status]) => status.startsWith('2'));
  if (success?.[0] === '204') return 'undefined';
  const schema = at(success?.[1], 'content', 'application/json', 'schema');
  return schema === undefined ? 'unknown' : typeOf(schema);
}

const NO_MEMBERS = 'Record<string, never>';

/** The type of the values that a schema lets through, as far as TypeScript can say it: no ranges, no patterns. */
function typeOf(schema: Value): string {
  if (!isObject(schema)) return schema === false ? 'never' : 'unknown';
  if (typeof schema.$ref === 'string') return nameOf(schema.$ref);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (Array.isArray(schema.enum)) return schema.enum.map((one) => JSON.stringify(one)).join(' | ');
  if (Array.isArray(schema.anyOf)) return schema.anyOf.map((one) => `(${typeOf(one)})`).join(' | ');
  if (schema.not !== undefined) return 'never';
  if (Array.isArray(schema.type)) return schema.type.map((type) => `(${typeOf({ ...schema, type })})`).join(' | ');
  if (schema.type === 'array') return `(${typeOf(schema.items)})[]`;
  if (schema.type === 'object') return objectOf(schema);
  if (schema.type === 'integer') return 'number';
  return typeof schema.type === 'string' ? schema.type : 'unknown';
}

function objectOf(schema: JsonObject): string {
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const members = entriesOf(schema.properties).map(([name, one]) =>
    memberOf(name, { schema: one }, required.has(name)),
  );
  const more = schema.additionalProperties;
  const others = more === undefined || more === false ? null : `{ [name: string]: ${typeOf(more)} }`;
  if (members.length === 0) return others ?? NO_MEMBERS;
  return `{ ${members.join(' ')} }${others === null ? '' : ` & ${others}`}`;
}

/** @param given has the `schema`, and beside or in it a `description` */
function memberOf(name: string, given: JsonObject, required: boolean): string {
  const note = noteOf(given.description ?? at(given.schema, 'description'));
  return `${note}${JSON.stringify(name)}${required ? '' : '?'}: ${typeOf(given.schema)};`;
}

const noteOf = (text: Value): string =>
  typeof text === 'string' ? `\n/** ${text.replaceAll('*/', '*\\/').replaceAll('\n', ' ')} */\n` : '';

const nameOf = (ref: string): string => ref.slice(ref.lastIndexOf('/') + 1);

function resolved(parameter: Value, document: JsonObject): JsonObject {
  const ref = at(parameter, '$ref');
  const found = typeof ref === 'string' ? at(document, 'components', 'parameters', nameOf(ref)) : parameter;
  if (!isObject(found)) throw new Error(`the document has no parameter ${JSON.stringify(ref)}`);
  return found;
}

const entriesOf = (value: Value): [string, Value][] => (isObject(value) ? Object.entries(value) : []);

const at = (value: Value, ...names: readonly string[]): Value =>
  names.reduce<Value>((found, name) => (isObject(found) ? found[name] : undefined), value);

const folder = import.meta.dirname;

if (process.argv[1] && fileURLToPath(import.meta.url) === realpathSync(process.argv[1])) {
  const published = JSON.parse(readFileSync(path.join(folder, '..', 'docs', 'openapi.json'), 'utf8')) as JsonObject;
  mkdirSync(path.join(folder, 'types'), { recursive: true });
  writeFileSync(path.join(folder, 'types', 'api.ts'), typesOf([published, consoleDocument()]));
}
