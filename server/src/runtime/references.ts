/** Objects at a provider account that the body of a request, or a line of a batch, names. */
import { SluiceError } from '../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import { parseExact, UnreadJsonError } from '../kernel/json-exact.ts';
import { multipartParts } from '../kernel/multipart-scan.ts';
import { holdsQuotedInAnyCase } from '../kernel/quoted-texts.ts';
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

/** Most different objects that one request, or one line of a batch, names on a shared account. */
const MAX_REFERENCES = 1_000;

/** What a field names whose value is an id, or a list of ids. Here and below, names are in lower case: some readers ignore it. */
const IDS: Readonly<Record<string, ObjectKind>> = {
  file_id: 'file',
  file_ids: 'file',
  input_file_id: 'file',
  training_file: 'file',
  validation_file: 'file',
  previous_response_id: 'response',
  comparison_response_id: 'response',
  conversation: 'conversation',
  vector_store_id: 'vector_store',
  vector_store_ids: 'vector_store',
  container: 'container',
  container_id: 'container',
};

/** Fields whose value is an address. */
const ADDRESSES: ReadonlySet<string> = new Set(['fileuri', 'file_uri', 'uri', 'gcsuri', 'gcs_uri', 's3uri', 's3_uri']);
/**
 * What is cached, searched or set up at the account, lines that a batch reads elsewhere, and buckets that an answer is
 * written to: whose it is, is noted nowhere.
 */
const UNKNOWN: ReadonlySet<string> = new Set([
  'cachedcontent',
  'cached_content',
  'filesearchstorenames',
  'file_search_store_names',
  'vertexaisearch',
  'vertex_ai_search',
  'vertexragstore',
  'vertex_rag_store',
  'input_blob',
  'storageuri',
  'storage_uri',
  'outputgcsuri',
  'output_gcs_uri',
  'voice_id',
  'skill_id',
  'tunnel_id',
  'user_profile_id',
  'previous_message_id',
  'credential_id',
  'guardrailidentifier',
  'guardrail_identifier',
]);

/** Headers that name what is set up at the account: whose it is, is noted nowhere. In lower case, as they are sent. */
const UNKNOWN_HEADERS: ReadonlySet<string> = new Set(['x-amzn-bedrock-guardrailidentifier']);

/** Members whose object is kept at the account where it has an id: a prompt, a voice, the spoken answer of an earlier chat. */
const KEPT: ReadonlySet<string> = new Set(['prompt', 'voice', 'audio']);
/** A voice that the account made; those of the provider have plain names. */
const OWN_VOICE = /^voice_/i;
/** Skills of the provider itself have plain names (`pdf`); the account's have ids that were made up (`skill_01A…`). */
const PROVIDER_SKILL = /^[a-z-]+$/;

const FIELDS: ReadonlySet<string> = new Set([...Object.keys(IDS), ...ADDRESSES, ...UNKNOWN]);

/** Types of what is named instead of repeated, wherever it is. */
const ITEMS: ReadonlySet<string> = new Set(['item_reference', 'image_generation_call']);

/** Begin as what is searched for; a letter of a name may be escaped, which the search below finds too. */
const NAMES: readonly string[] = [...[...FIELDS, ...ITEMS, 'audio', 'variables'].map((name) => `"${name}"`), '"voice_'];
const ID: readonly string[] = ['"id"'];
const ESCAPED = Buffer.from('\\u00');

/** What users and models fill in as they like: schemas, arguments and results of tools, metadata. In exactly this case. */
const FREE: ReadonlySet<string> = new Set(['metadata', 'input_schema', 'schema', 'args', 'json']);
/** `parameters` of a tool are a schema; those of a prediction are settings, which name buckets. */
const OF_TOOL = /(?:^|\.)(?:tools|functions)\[\d+\]/i;
/** The same where the value is an object: the input and the answer of a tool. */
const FREE_OBJECTS: ReadonlySet<string> = new Set(['input', 'response']);

const EMPTY: References = { objects: [], uris: [], unknown: null };

/** Whether the bytes of a body may name an object at all: nothing is parsed. */
export function mayRefer(body: Buffer): boolean {
  return (
    holdsQuotedInAnyCase(body, NAMES) ||
    body.indexOf(ESCAPED) !== -1 ||
    (holdsOpened(body) && holdsQuotedInAnyCase(body, ID))
  );
}

/** Names of members below which an `id` names an object, by the byte that begins such a value. */
const OPENED: readonly (readonly [name: Buffer, byte: number])[] = [
  // The input of a tool is an object, and an embedding's list has no ids.
  [Buffer.from('input"'), 0x5b],
  // The prompt of a completion or of a picture is a text, as a voice of the provider's is.
  [Buffer.from('prompt"'), 0x7b],
  [Buffer.from('voice"'), 0x7b],
];
const isSpace = (byte: number | undefined) => byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d;

/** Whether a member `input` is a list, or `prompt` or `voice` an object. */
function holdsOpened(body: Buffer): boolean {
  for (let i = 0; i < body.length; i++) {
    if (body[i] !== 0x22) continue;
    for (const [name, byte] of OPENED) {
      let at = 0;
      while (at < name.length && ((body[i + 1 + at] ?? 0) | 0x20) === ((name[at] ?? 0) | 0x20)) at++;
      if (at < name.length) continue;
      let next = i + 1 + at;
      while (isSpace(body[next])) next++;
      if (body[next++] !== 0x3a) continue;
      while (isSpace(body[next])) next++;
      if (body[next] === byte) return true;
    }
  }
  return false;
}

/** The first of the headers, `name, value`, that names something whose owner nobody knows; null without any. */
export function unknownHeader(headers: readonly string[]): string | null {
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]?.toLowerCase() ?? '';
    if (UNKNOWN_HEADERS.has(name)) return name;
  }
  return null;
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

/** As `referencesIn` of what was parsed already. Throws 400 for more than `MAX_REFERENCES`. */
export function referencesOf(parsed: JsonValue): References {
  const found = new Found();
  visit(found, parsed, '', '', false);
  return found;
}

/**
 * What the fields of a form name: `previous_response_id`, `images[0][file_id]`, `voice[id]`, also where the text of a field
 * is JSON. Throws 400 for a form that cannot be read. Null when a field may be JSON and is too deep or too large to be read.
 *
 * @param contentType with its boundary
 */
export function formReferences(body: Buffer, contentType: string): References | null {
  const found = new Found();
  for (const { name, start, end } of multipartParts(body, contentType)) {
    const names = name.split(/[[\].]+/).filter((part) => part !== '' && !INDEX.test(part));
    // The words of a user, which may be JSON; only `prompt[id]` names a prompt.
    if (names.length === 1 && names[0]?.toLowerCase() === 'prompt') continue;
    const value = fieldValue(body.subarray(start, end), names);
    if (value === UNREAD) return null;
    if (value !== undefined) visit(found, nested(names, value), '', '', false);
  }
  return found;
}

const INDEX = /^\d+$/;
const UNREAD = Symbol('unread');

/** What the bytes of a field say in JSON, or their text where the field may name an object; else nothing. */
function fieldValue(bytes: Buffer, names: readonly string[]): JsonValue | typeof UNREAD | undefined {
  let at = 0;
  while (isSpace(bytes[at])) at++;
  if (bytes[at] === 0x7b || bytes[at] === 0x5b) {
    try {
      return parseExact(bytes.toString('utf8'));
    } catch (error) {
      if (error instanceof UnreadJsonError) return UNREAD;
    }
  }
  const last = names.at(-1)?.toLowerCase() ?? '';
  return last === 'id' || FIELDS.has(last) || KEPT.has(last) ? bytes.toString('utf8').trim() : undefined;
}

/** `[file_id]` around a value is `{"file_id": value}`. */
function nested(names: readonly string[], value: JsonValue): JsonValue {
  return names.reduceRight<JsonValue>((inner, name) => ({ [name]: inner }), value);
}

/** What was found so far, each object and address once. */
class Found implements References {
  readonly objects: Reference[] = [];
  readonly uris: { uri: string; param: string }[] = [];
  unknown: string | null = null;
  readonly #seen = new Set<string>();

  object(kind: ObjectKind, id: string, param: string): void {
    if (this.#isNew(`${kind} ${id}`, param)) this.objects.push({ kind, id, param });
  }

  address(uri: string, param: string): void {
    if (OF_STORE.test(uri)) {
      if (this.#isNew(uri, param)) this.uris.push({ uri, param });
    } else if (OF_ACCOUNT.test(uri)) this.unknown ??= param;
  }

  /** A field of one name, in lower case. */
  field(name: string, value: JsonValue, param: string): void {
    const kind = Object.hasOwn(IDS, name) ? IDS[name] : undefined;
    if (kind !== undefined) this.#ids(kind, value, param);
    else if (ADDRESSES.has(name)) {
      if (typeof value === 'string') this.address(value, param);
    } else if (UNKNOWN.has(name) && value !== null) this.unknown ??= param;
    else if (KEPT.has(name)) this.#kept(name, value, param);
  }

  #kept(name: string, value: JsonValue, param: string): void {
    if (isObject(value)) {
      if (textsOf(value, 'id').length > 0) this.unknown ??= `${param}.id`;
    } else if (name === 'voice' && typeof value === 'string' && OWN_VOICE.test(value)) this.unknown ??= param;
  }

  #ids(kind: ObjectKind, value: JsonValue, param: string): void {
    if (Array.isArray(value)) {
      for (const one of value) if (typeof one === 'string' && one !== '') this.object(kind, one, param);
    } else if (isObject(value)) {
      // `conversation: {id}`, `container: {id}`.
      for (const id of textsOf(value, 'id')) this.object(kind, id, `${param}.id`);
    } else if (typeof value === 'string' && value !== '') this.object(kind, value, param);
  }

  #isNew(key: string, param: string): boolean {
    if (this.#seen.has(key)) return false;
    if (this.#seen.size === MAX_REFERENCES) {
      throw new SluiceError(
        'invalid_request',
        `The request names more than ${MAX_REFERENCES} objects of the account, which several workspaces share. Name at most ${MAX_REFERENCES} different ones in one request.`,
        { param: param.slice(0, 200) },
      );
    }
    this.#seen.add(key);
    return true;
  }
}

/**
 * @param list name of the member whose list the value is in, in lower case; empty without one
 * @param variable whether the value is one of a prompt's, of which nothing is a user's own
 */
function visit(found: Found, value: JsonValue, path: string, list: string, variable: boolean): void {
  if (Array.isArray(value)) {
    for (const [index, one] of value.entries()) visit(found, one, `${path}[${index}]`, list, variable);
    return;
  }
  if (!isObject(value)) return;
  if (isNamed(value, list === 'input')) {
    for (const id of textsOf(value, 'id')) found.object('item', id, at(path, 'id'));
  }
  for (const [name, inner] of Object.entries(value)) {
    if (inner === undefined) continue;
    if (!variable && isFree(name, inner, path)) continue;
    const param = at(path, name);
    const lower = name.toLowerCase();
    if (lower === 'skill_id' && typeof inner === 'string' && PROVIDER_SKILL.test(inner)) continue;
    found.field(lower, inner, param);
    if (lower === 'variables' && isObject(inner) && PROMPT.test(path)) {
      // The names are the prompt's own and mean nothing; the values are parts of a message.
      for (const [own, part] of Object.entries(inner)) {
        if (part !== undefined) visit(found, part, at(param, own), '', true);
      }
    } else visit(found, inner, param, Array.isArray(inner) ? lower : '', variable);
  }
}

const isFree = (name: string, value: JsonValue, path: string): boolean =>
  FREE.has(name) || (name === 'parameters' && OF_TOOL.test(path)) || (FREE_OBJECTS.has(name) && isObject(value));

const PROMPT = /(?:^|\.)prompt$/i;

/** Whether an object with an id names an item that is kept, and does not repeat it. */
function isNamed(value: JsonObject, ofInput: boolean): boolean {
  const types = textsOf(value, 'type');
  if (types.some((type) => ITEMS.has(type)) && !holds(value.result)) return true;
  if (!ofInput) return false;
  // The provider reads the item of this id although the summary is given.
  if (types.includes('reasoning')) return !holds(value.encrypted_content) && !holds(value.content);
  if (types.length === 0) return !(ROLES.has(value.role) && holdsText(value.content));
  return Object.keys(value).every((name) => BARE.has(name.toLowerCase()) || value[name] === null);
}

const ROLES: ReadonlySet<JsonValue | undefined> = new Set(['user', 'assistant', 'system', 'developer']);
/** Members that repeat nothing of an item. */
const BARE: ReadonlySet<string> = new Set(['id', 'type', 'status', 'role']);

const holds = (value: JsonValue | undefined): boolean =>
  (typeof value === 'string' || Array.isArray(value)) && value.length > 0;
const holdsText = (value: JsonValue | undefined): boolean => typeof value === 'string' || Array.isArray(value);

/** Texts of a member, however its name is written; none of an empty one. */
function textsOf(value: JsonObject, wanted: string): string[] {
  const texts: string[] = [];
  for (const [name, inner] of Object.entries(value)) {
    if (typeof inner === 'string' && inner !== '' && name.toLowerCase() === wanted) texts.push(inner);
  }
  return texts;
}

const OF_STORE = /^(?:gs|s3):\/\//i;
/** A file of the account itself, by its whole address or by its name. */
const OF_ACCOUNT = /^(?:https?:\/\/[^/]*googleapis\.com\/(?:upload\/)?v[^/]*\/)?files\//i;

const at = (path: string, name: string): string => (path === '' ? name : `${path}.${name}`);
