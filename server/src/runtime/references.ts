/** Objects at a provider account that the body of a request, or a line of a batch, names. */
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import { parseExact } from '../kernel/json-exact.ts';
import { holdsQuoted } from '../kernel/quoted-texts.ts';
import type { Named, ObjectKind } from './owners.ts';

/** An object and the dotted path of the field that names it. */
export interface Reference extends Named {
  readonly param: string;
}

export interface References {
  readonly objects: readonly Reference[];
  /** URIs of object stores. */
  readonly uris: readonly { readonly uri: string; readonly param: string }[];
  /** The first field that names something whose owner nobody knows; null without any. */
  readonly unknown: string | null;
}

/** What a field names whose value is an id, or a list of ids. */
const IDS: Readonly<Record<string, ObjectKind>> = {
  file_id: 'file',
  file_ids: 'file',
  input_file_id: 'file',
  training_file: 'file',
  validation_file: 'file',
  previous_response_id: 'response',
  conversation: 'conversation',
  vector_store_id: 'vector_store',
  vector_store_ids: 'vector_store',
  container: 'container',
  container_id: 'container',
};

/** Fields whose value is an address; what is cached or searched at the account, or lines that a batch reads elsewhere. */
const ADDRESSES: ReadonlySet<string> = new Set(['fileUri', 'file_uri', 'uri']);
const UNKNOWN: ReadonlySet<string> = new Set([
  'cachedContent',
  'cached_content',
  'fileSearchStoreNames',
  'file_search_store_names',
  'vertexAiSearch',
  'vertex_ai_search',
  'vertexRagStore',
  'vertex_rag_store',
  'input_blob',
]);

/** Items of a conversation that are named instead of repeated. */
const ITEMS: ReadonlySet<JsonValue | undefined> = new Set(['item_reference', 'image_generation_call']);

/** Begin as what is searched for; a letter of a name may be escaped, which the search below finds too. */
const NAMES: readonly string[] = [...Object.keys(IDS), ...ADDRESSES, ...UNKNOWN, ...ITEMS].map((name) => `"${name}"`);
const ESCAPED = Buffer.from('\\u00');

/** What users and models fill in as they like: schemas, arguments and results of tools, metadata. */
const FREE: ReadonlySet<string> = new Set(['metadata', 'parameters', 'input_schema', 'schema', 'args', 'json']);
/** The same where the value is an object: the input and the answer of a tool. */
const FREE_OBJECTS: ReadonlySet<string> = new Set(['input', 'response']);

const EMPTY: References = { objects: [], uris: [], unknown: null };

/** Whether the bytes of a body may name an object at all: one pass, nothing is parsed. */
export function mayRefer(body: Buffer): boolean {
  return holdsQuoted(body, NAMES) || body.indexOf(ESCAPED) !== -1;
}

/** What the body names. Null when it is no JSON, so that nobody knows. */
export function referencesIn(body: Buffer): References | null {
  if (!mayRefer(body)) return EMPTY;
  let parsed: JsonValue;
  try {
    parsed = parseExact(body.toString('utf8'));
  } catch {
    return null;
  }
  return referencesOf(parsed);
}

/** As `referencesIn` of what was parsed already. */
export function referencesOf(parsed: JsonValue): References {
  const found = {
    objects: [] as Reference[],
    uris: [] as { uri: string; param: string }[],
    unknown: null as string | null,
  };
  const visit = (value: JsonValue, path: string): void => {
    if (Array.isArray(value)) {
      for (const [index, one] of value.entries()) visit(one, `${path}[${index}]`);
      return;
    }
    if (!isObject(value)) return;
    if (ITEMS.has(value.type) && typeof value.id === 'string' && !isWhole(value)) {
      found.objects.push({ kind: 'item', id: value.id, param: at(path, 'id') });
    }
    for (const [name, inner] of Object.entries(value)) {
      if (inner === undefined || FREE.has(name) || (FREE_OBJECTS.has(name) && isObject(inner))) continue;
      const param = at(path, name);
      const kind = Object.hasOwn(IDS, name) ? IDS[name] : undefined;
      if (kind !== undefined) {
        for (const id of idsIn(inner)) found.objects.push({ kind, id, param });
      } else if (ADDRESSES.has(name) && typeof inner === 'string') {
        if (OF_STORE.test(inner)) found.uris.push({ uri: inner, param });
        else if (OF_ACCOUNT.test(inner)) found.unknown ??= param;
      } else if (UNKNOWN.has(name) && inner !== null) found.unknown ??= param;
      visit(inner, param);
    }
  };
  visit(parsed, '');
  return found;
}

const OF_STORE = /^(?:gs|s3):\/\//i;
/** A file of the account itself, by its whole address or by its name. */
const OF_ACCOUNT = /^(?:https?:\/\/[^/]*googleapis\.com\/(?:upload\/)?v[^/]*\/)?files\//i;

const at = (path: string, name: string): string => (path === '' ? name : `${path}.${name}`);

/** An image that stands in the request itself. */
const isWhole = ({ result }: JsonObject): boolean => typeof result === 'string' && result !== '';

function idsIn(value: JsonValue): string[] {
  if (typeof value === 'string') return value === '' ? [] : [value];
  if (Array.isArray(value)) return value.filter((one) => typeof one === 'string' && one !== '') as string[];
  // `conversation: {id}`, `container: {id}`.
  return isObject(value) && typeof value.id === 'string' && value.id !== '' ? [value.id] : [];
}
