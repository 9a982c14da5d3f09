/**
 * Filters of SCIM (RFC 7644 §3.4.2.2) and paths of its PATCH: read in linear time, bounded in length, depth and terms,
 * and judged over a resource. No part of a filter becomes text of a statement: `lookupsOf` names the values that an index
 * finds, and everything else is judged here, alike for both engines.
 */
import type { JsonValue } from '../kernel/json.ts';
import { parseExact } from '../kernel/json-exact.ts';
import { ScimError } from './errors.ts';

const MAX_LENGTH = 4_000;
const MAX_DEPTH = 20;
const MAX_TERMS = 100;

export type Operator = 'eq' | 'ne' | 'co' | 'sw' | 'ew' | 'gt' | 'ge' | 'lt' | 'le';
export type Literal = string | number | boolean | null;

/** An attribute as it was named, in lower case. Attributes of schemas that Sluice does not have are `foreign`: they have no value. */
export interface AttributePath {
  readonly name: string;
  readonly sub: string | null;
  readonly foreign: boolean;
}

export type Filter =
  | { readonly is: 'term'; readonly path: AttributePath; readonly operator: Operator; readonly value: Literal }
  | { readonly is: 'present'; readonly path: AttributePath }
  | { readonly is: 'and' | 'or'; readonly of: readonly Filter[] }
  | { readonly is: 'not'; readonly of: Filter }
  /** One element of a list that meets the filter. */
  | { readonly is: 'element'; readonly path: AttributePath; readonly filter: Filter };

/** What a PATCH operation is about. */
export interface PatchPath {
  readonly attribute: AttributePath;
  /** Which elements of a list. */
  readonly filter: Filter | null;
}

const OPERATORS: ReadonlySet<string> = new Set(['eq', 'ne', 'co', 'sw', 'ew', 'gt', 'ge', 'lt', 'le']);
const TEXT_ONLY: ReadonlySet<string> = new Set(['co', 'sw', 'ew']);
const ORDERED: ReadonlySet<string> = new Set(['gt', 'ge', 'lt', 'le']);
/** Names that lead to what all objects share. */
export const isUnsafeName = (name: string): boolean => /^(?:__proto__|constructor|prototype)$/i.test(name);

const BOOLEANS: ReadonlySet<string> = new Set(['active', 'primary']);
const DATES: ReadonlySet<string> = new Set(['meta.created', 'meta.lastmodified']);
const EXACT: ReadonlySet<string> = new Set([
  'id',
  'externalid',
  'members.value',
  'groups.value',
  'meta.location',
  'meta.version',
]);

const CORE = /^urn:ietf:params:scim:schemas:core:2\.0:(?:user|group):/i;
const NAME = /^[a-z][\w$-]*$/i;
const SUB_NAME = /^\$?[a-z][\w$-]*$/i;
const NUMBER = /^-?\d{1,300}(?:\.\d{1,300})?(?:e[+-]?\d{1,3})?$/i;
/** Each alternative begins with another character, so that no text is looked through twice. */
const TOKEN = /[ \t\r\n]+|[()[\]]|"(?:[^"\\]|\\.)*"|[^\s()[\]"]+/y;

class Reader {
  readonly #tokens: readonly string[];
  readonly #fault: (problem: string) => ScimError;
  #at = 0;
  #depth = 0;
  #terms = 0;

  constructor(text: string, what: string, reason: 'invalidFilter' | 'invalidPath') {
    this.#fault = (problem) => new ScimError(reason, `The ${what} ${problem}.`);
    if (text.length > MAX_LENGTH) throw this.#fault(`has more than ${MAX_LENGTH} characters`);
    const tokens: string[] = [];
    TOKEN.lastIndex = 0;
    while (TOKEN.lastIndex < text.length) {
      const at = TOKEN.lastIndex;
      const token = TOKEN.exec(text)?.[0];
      if (token === undefined) throw this.#fault(`has a quote that is not closed, at character ${at + 1}`);
      if (!/^\s/.test(token)) tokens.push(token);
    }
    this.#tokens = tokens;
  }

  whole(): Filter {
    const filter = this.#or();
    this.#end();
    return filter;
  }

  path(): PatchPath {
    const attribute = this.attribute(this.#next('an attribute'));
    if (this.#peek() !== '[') {
      this.#end();
      return { attribute, filter: null };
    }
    if (attribute.sub !== null) throw this.#fault('has a filter behind a sub-attribute');
    const filter = this.#inBrackets();
    const sub = this.#subAfter();
    this.#end();
    return { attribute: { ...attribute, sub }, filter };
  }

  attribute(word: string): AttributePath {
    const plain = word.replace(CORE, '');
    if (/^urn:/i.test(plain)) {
      if (plain.split(/[:.]/).some(isUnsafeName)) throw this.#fault('names an attribute that no object has');
      return { name: plain.toLowerCase(), sub: null, foreign: true };
    }
    const [name = '', sub, ...more] = plain.split('.');
    const good = NAME.test(name) && (sub === undefined || SUB_NAME.test(sub)) && more.length === 0;
    if (!good || isUnsafeName(name) || (sub !== undefined && isUnsafeName(sub))) {
      throw this.#fault('names an attribute that no object has');
    }
    return { name: name.toLowerCase(), sub: sub?.toLowerCase() ?? null, foreign: false };
  }

  #peek(): string | undefined {
    return this.#tokens[this.#at];
  }

  #next(wanted: string): string {
    const token = this.#tokens[this.#at];
    if (token === undefined) throw this.#fault(`ends where it needs ${wanted}`);
    this.#at += 1;
    return token;
  }

  #end(): void {
    if (this.#at < this.#tokens.length) throw this.#fault('has more behind its end');
  }

  #word(word: string): boolean {
    if (this.#peek()?.toLowerCase() !== word) return false;
    this.#at += 1;
    return true;
  }

  #deeper<T>(read: () => T): T {
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) throw this.#fault(`is nested deeper than ${MAX_DEPTH} levels`);
    const made = read();
    this.#depth -= 1;
    return made;
  }

  #or(): Filter {
    return this.#chain('or', () => this.#chain('and', () => this.#one()));
  }

  #chain(is: 'and' | 'or', read: () => Filter): Filter {
    const first = read();
    if (!this.#word(is)) return first;
    const of = [first];
    do of.push(read());
    while (this.#word(is));
    return { is, of };
  }

  #one(): Filter {
    const token = this.#next('a condition');
    if (token === '(') return this.#group();
    if (token.toLowerCase() === 'not') {
      if (this.#next('"(" behind not') !== '(') throw this.#fault('needs "(" behind not');
      return { is: 'not', of: this.#group() };
    }
    const path = this.attribute(token);
    if (this.#peek() === '[') {
      const filter = this.#inBrackets();
      const sub = this.#subAfter();
      const element: AttributePath = { name: path.name, sub: null, foreign: path.foreign };
      if (sub === null) return { is: 'element', path: element, filter };
      // The same element must meet both.
      const then = this.#condition({ name: sub, sub: null, foreign: false }, `${path.name}.${sub}`);
      return { is: 'element', path: element, filter: { is: 'and', of: [filter, then] } };
    }
    return this.#condition(path, path.sub === null ? path.name : `${path.name}.${path.sub}`);
  }

  #group(): Filter {
    return this.#deeper(() => {
      const inside = this.#or();
      if (this.#next('")"') !== ')') throw this.#fault('has a "(" that is not closed');
      return inside;
    });
  }

  #inBrackets(): Filter {
    this.#at += 1;
    return this.#deeper(() => {
      const inside = this.#or();
      if (this.#next('"]"') !== ']') throw this.#fault('has a "[" that is not closed');
      return inside;
    });
  }

  #subAfter(): string | null {
    const token = this.#peek();
    if (token === undefined || !token.startsWith('.')) return null;
    this.#at += 1;
    const sub = token.slice(1);
    if (!SUB_NAME.test(sub) || isUnsafeName(sub)) throw this.#fault('names an attribute that no object has');
    return sub.toLowerCase();
  }

  #condition(path: AttributePath, whole: string): Filter {
    this.#terms += 1;
    if (this.#terms > MAX_TERMS) throw this.#fault(`has more than ${MAX_TERMS} conditions`);
    const operator = this.#next('an operator').toLowerCase();
    if (operator === 'pr') return { is: 'present', path };
    if (!OPERATORS.has(operator)) throw this.#fault('has an operator that SCIM does not have');
    const value = this.#literal(this.#next('a value'));
    if (TEXT_ONLY.has(operator) && typeof value !== 'string') throw this.#fault(`compares ${operator} with no text`);
    if (
      ORDERED.has(operator) &&
      (typeof value === 'boolean' || value === null || BOOLEANS.has(path.sub ?? path.name))
    ) {
      throw this.#fault(`has an order of values that have none (${operator})`);
    }
    if (DATES.has(whole) && (typeof value !== 'string' || Number.isNaN(Date.parse(value)))) {
      throw this.#fault('compares a time with what is none');
    }
    return { is: 'term', path, operator: operator as Operator, value };
  }

  #literal(token: string): Literal {
    if (token.startsWith('"')) {
      try {
        return parseExact(token) as string;
      } catch {
        throw this.#fault('has a text that is no JSON string');
      }
    }
    const word = token.toLowerCase();
    if (word === 'true') return true;
    if (word === 'false') return false;
    if (word === 'null') return null;
    if (NUMBER.test(token)) return Number(token);
    throw this.#fault('has a value that is no JSON: put texts in double quotes');
  }
}

/** A filter as it was sent. Throws `invalidFilter`. */
export const parseFilter = (text: string): Filter => new Reader(text, 'filter', 'invalidFilter').whole();

/** The path of a PATCH operation. Throws `invalidPath`. */
export const parsePath = (text: string): PatchPath => new Reader(text, 'path', 'invalidPath').path();

/** The name of an attribute, as in `attributes` of a query. Throws `invalidPath`. */
export const parseAttribute = (text: string): AttributePath => new Reader('', 'name', 'invalidPath').attribute(text);

/** An object with attributes. */
export type Attributes = Readonly<Record<string, JsonValue | undefined>>;

/** The member of an object by its name in lower case. */
export function memberOf(object: Attributes, name: string): JsonValue | undefined {
  for (const key of Object.keys(object)) if (key.toLowerCase() === name) return object[key];
  return undefined;
}

const isObject = (value: JsonValue | undefined): value is { [name: string]: JsonValue } =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Whether a resource, or an element of a list, meets a filter. */
export function matches(filter: Filter, resource: Attributes, within = ''): boolean {
  switch (filter.is) {
    case 'and':
      return filter.of.every((one) => matches(one, resource, within));
    case 'or':
      return filter.of.some((one) => matches(one, resource, within));
    case 'not':
      return !matches(filter.of, resource, within);
    case 'present':
      return isPresent(resource, filter.path);
    case 'element': {
      if (filter.path.foreign) return false;
      const found = memberOf(resource, filter.path.name);
      const list = Array.isArray(found) ? found : [found];
      return list.some((one) => matches(filter.filter, isObject(one) ? one : { value: one ?? null }, filter.path.name));
    }
    case 'term':
      return meets(filter, resource, within);
  }
}

function meets(term: Extract<Filter, { is: 'term' }>, resource: Attributes, within: string): boolean {
  const { path, operator, value } = term;
  const values = valuesAt(resource, path);
  if (value === null) return (values.length === 0) === (operator === 'eq');
  const name = [within, path.name, path.sub].filter((part) => part !== null && part !== '').join('.');
  const full = path.sub === null && within === '' && (name === 'members' || name === 'groups') ? `${name}.value` : name;
  if (operator === 'ne') return !values.some((one) => compares(one, 'eq', value, full));
  return values.some((one) => compares(one, operator, value, full));
}

/** Simple values of an attribute; of a list those of its elements, where no sub-attribute is named their `value`. */
function valuesAt(resource: Attributes, { name, sub, foreign }: AttributePath): (string | number | boolean)[] {
  if (foreign) return [];
  const found = memberOf(resource, name);
  const list = Array.isArray(found) ? found : [found];
  return list.flatMap((one) => {
    const value = isObject(one) ? memberOf(one, sub ?? 'value') : sub === null ? one : undefined;
    return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? [value] : [];
  });
}

/** Whether an attribute has a value that is not empty; of a complex one, whether anything is in it. */
function isPresent(resource: Attributes, { name, sub, foreign }: AttributePath): boolean {
  if (foreign) return false;
  const found = memberOf(resource, name);
  const list = Array.isArray(found) ? found : [found];
  return list.some((one) => {
    const value = sub === null ? one : isObject(one) ? memberOf(one, sub) : undefined;
    return isObject(value) ? Object.keys(value).length > 0 : value !== undefined && value !== null && value !== '';
  });
}

function compares(actual: string | number | boolean, operator: Operator, wanted: Literal, name: string): boolean {
  if (typeof actual === 'boolean') {
    return operator === 'eq' && actual === (typeof wanted === 'string' ? wanted.toLowerCase() === 'true' : wanted);
  }
  if (typeof actual === 'number' || typeof wanted !== 'string') {
    return typeof actual === 'number' && typeof wanted === 'number' && ranks(operator, actual - wanted);
  }
  if (DATES.has(name) && !TEXT_ONLY.has(operator)) return ranks(operator, Date.parse(actual) - Date.parse(wanted));
  const exact = EXACT.has(name);
  const [text, part] = exact ? [actual, wanted] : [actual.toLowerCase(), wanted.toLowerCase()];
  if (operator === 'co') return text.includes(part);
  if (operator === 'sw') return text.startsWith(part);
  if (operator === 'ew') return text.endsWith(part);
  return ranks(operator, text === part ? 0 : text < part ? -1 : 1);
}

function ranks(operator: Operator, difference: number): boolean {
  switch (operator) {
    case 'eq':
      return difference === 0;
    case 'gt':
      return difference > 0;
    case 'ge':
      return difference >= 0;
    case 'lt':
      return difference < 0;
    case 'le':
      return difference <= 0;
    default:
      return false;
  }
}

/** That an attribute has a value. `name` is in lower case, with its sub-attribute: `members.value`. */
export interface Lookup {
  readonly name: string;
  readonly value: string;
}

/**
 * What an index has to be asked, so that everything that meets the filter is among what it finds; null when all has to be
 * looked at.
 */
export function lookupsOf(filter: Filter, indexed: ReadonlySet<string>, within = ''): readonly Lookup[] | null {
  switch (filter.is) {
    case 'term': {
      const { path, operator, value } = filter;
      if (operator !== 'eq' || typeof value !== 'string' || path.foreign) return null;
      const name = [within, path.name, path.sub].filter((part) => part !== null && part !== '').join('.');
      const known = [name, `${name}.value`].find((one) => indexed.has(one));
      return known === undefined ? null : [{ name: known, value }];
    }
    case 'element':
      return filter.path.foreign ? [] : lookupsOf(filter.filter, indexed, filter.path.name);
    case 'and': {
      const found = filter.of.flatMap((one) => {
        const lookups = lookupsOf(one, indexed, within);
        return lookups === null ? [] : [lookups];
      });
      return found.sort((a, b) => a.length - b.length)[0] ?? null;
    }
    case 'or': {
      const found = filter.of.map((one) => lookupsOf(one, indexed, within));
      return found.some((one) => one === null) ? null : found.flatMap((one) => one ?? []);
    }
    default:
      return null;
  }
}

/** Whether a filter says anything of an attribute, named in lower case. */
export function speaksOf(filter: Filter, name: string): boolean {
  if (filter.is === 'and' || filter.is === 'or') return filter.of.some((one) => speaksOf(one, name));
  if (filter.is === 'not') return speaksOf(filter.of, name);
  return 'path' in filter && filter.path.name === name;
}
