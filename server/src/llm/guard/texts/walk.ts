/**
 * Finds every text of a JSON body. A member that is not known to be a setting is text: an unknown member must
 * not be a way past a guardrail. Linear, and without recursion: bodies are as deep as callers make them.
 */
import type { TextPart } from '../../../guardrails/check.ts';
import { isObject, type JsonObject } from '../../../kernel/json.ts';
import { parseExact, UnreadJsonError } from '../../../kernel/json-exact.ts';
import { scanJson } from '../../../kernel/json-scan.ts';
import { encodedFaces, type Face, isSealed, mayBeEncoded, plain, type Standing, unescapedJson } from './encoded.ts';
import {
  ECHOES,
  isCount,
  isPlain,
  isToolCall,
  isWord,
  memberPath,
  OWN,
  type Role,
  roleOf,
  SCHEMA_NAMES,
  SCHEMA_WORDS,
  SCHEMAS,
  SETTINGS,
  SPOKEN,
  SYSTEM,
  TOKEN_IDS,
  USER,
} from './names.ts';

/** Why a text cannot be read: token ids in place of text, a document in a binary form, more or deeper than is looked at. */
export type Unreadable = 'tokens' | 'file' | 'bounds';

/** A text; `unreadable` marks a place whose text cannot be seen (`text` is empty then): who denies must refuse it. */
export interface SaidPart extends TextPart {
  readonly unreadable?: Unreadable;
}

/**
 * `wire`: members have the meaning of an API. `own`: JSON of a caller or model, all of it text. `schema`: JSON schema.
 * `raw`: an API nobody knows; all values are text.
 */
export type Mode = 'wire' | 'own' | 'schema' | 'raw';

/** A value with its place. Frames of one walk are the tree in which changes are put back. */
export interface Frame {
  readonly parent: Frame | null;
  readonly key: string | number;
  readonly value: unknown;
  readonly path: string;
  readonly role: Role;
  readonly mode: Mode;
  readonly depth: number;
  /** The value of the parent, a text, read as JSON. */
  readonly json: boolean;
}

/** Where a part stands: a text of a frame's string, the digits of its number, or its name (`face` null). */
export interface Place {
  readonly frame: Frame;
  readonly face: Face | null;
}

export interface Walk {
  readonly side: 'request' | 'answer' | 'any';
  /** Whether JSON and files inside of texts are looked into. */
  readonly deep: boolean;
  /** The member with the messages, and the first of them that is looked at. */
  readonly from: { readonly list: string; readonly index: number; readonly only: boolean } | null;
  readonly parts: SaidPart[];
  /** Beside `parts`, for those who want to change them. */
  readonly places: Place[] | null;
}

const MAX_PARTS = 100_000;
const MAX_FRAMES = 1_000_000;
export const MAX_DEPTH = 128;

export const rootFrame = (value: unknown, path: string, role: Role, mode: Mode): Frame => ({
  parent: null,
  key: '',
  value,
  path,
  role,
  mode,
  depth: 0,
  json: false,
});

export function walk(root: Frame, into: Walk): void {
  const stack: Frame[] = [root];
  let frames = 0;
  for (;;) {
    const frame = stack.pop();
    if (frame === undefined) return;
    frames += 1;
    if (frames > MAX_FRAMES || into.parts.length >= MAX_PARTS || frame.depth > MAX_DEPTH) {
      unreadable(into, frame, 'bounds');
      // Deeper than is looked at is one place; more than is looked at is all the rest.
      if (frame.depth > MAX_DEPTH) continue;
      return;
    }
    const { value } = frame;
    if (value === NAME) emit(into, frame, null);
    else if (value === FILE) unreadable(into, frame, 'file');
    else if (typeof value === 'string') text(frame, value, stack, into);
    else if (typeof value === 'number') emit(into, frame, plain(String(value)));
    else if (Array.isArray(value)) elements(frame, value, stack, into);
    else if (isRawNumber(value)) emit(into, frame, plain(value.rawJSON));
    else if (isObject(value)) members(frame, value, stack, into);
  }
}

function emit(into: Walk, frame: Frame, face: Face | null): void {
  if (face === null) {
    into.parts.push({ path: `${frame.path}#name`, role: frame.role, text: String(frame.key) });
  } else if (face.text !== '') {
    into.parts.push({
      path: face.suffix === '' ? frame.path : frame.path + face.suffix,
      role: frame.role,
      text: face.text,
    });
  } else return;
  into.places?.push({ frame, face });
}

function unreadable(into: Walk, frame: Frame, why: Unreadable): void {
  into.parts.push({ path: frame.path, role: frame.role, text: '', unreadable: why });
  into.places?.push({ frame, face: null });
}

interface RawNumber {
  readonly rawJSON: string;
}

const { isRawJSON } = JSON as unknown as { isRawJSON(value: unknown): value is RawNumber };

/** A number that no double holds; such values have no prototype, which tells them apart for less than asking. */
export const isRawNumber = (value: unknown): value is RawNumber =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === null && isRawJSON(value);

const child = (
  parent: Frame,
  key: string | number,
  value: unknown,
  path: string,
  role: Role,
  mode: Mode,
  json = false,
): Frame => ({ parent, key, value, path, role, mode, depth: parent.depth + 1, json });

function text(frame: Frame, value: string, stack: Frame[], into: Walk): void {
  if (value === '' || (frame.mode !== 'own' && isSealed(value, frame.key))) return;
  const encoded = into.deep && mayBeEncoded(value, frame.key) ? encodedFaces(value, frame.key, standing(frame)) : null;
  if (encoded !== null) {
    for (const face of encoded.faces) emit(into, frame, face);
    if (encoded.unreadable !== null) unreadable(into, frame, encoded.unreadable);
    return;
  }
  emit(into, frame, plain(value));
  if (!into.deep || !holdsJson(value, frame.key)) return;
  const inner = parsed(value);
  if (inner === TOO_DEEP) {
    unreadable(into, frame, 'bounds');
    return;
  }
  // What parsers read differently, or not at all: then the text is looked at without its escapes.
  if (value.includes('\\') && (inner === undefined || hasTwins(value))) {
    emit(into, frame, { suffix: '#decoded', text: unescapedJson(value).text, put: (_current, next) => next });
  }
  if (typeof inner === 'string') {
    if (inner !== '') stack.push(child(frame, '', inner, `${frame.path}#json`, frame.role, 'own', true));
  } else if (Array.isArray(inner) || isObject(inner)) {
    stack.push(child(frame, '', inner, frame.path, frame.role, 'own', true));
  }
}

function standing({ key, parent, mode }: Frame): Standing {
  const spoken = mode === 'own';
  const name = typeof key === 'string' ? key : typeof parent?.key === 'string' ? parent.key : '';
  const holder = parent?.value;
  if (spoken || !isObject(holder)) return { name, spoken, document: false, type: '' };
  const said = holder.media_type ?? holder.mime_type ?? holder.mimeType;
  const type = typeof said === 'string' ? said.trim().toLowerCase() : '';
  const around = parent?.parent?.value;
  const named = holder.type === 'document' || (isObject(around) && around.type === 'document');
  const document = named || name === 'file_data' || name === 'fileData' || /^(?:application|text)\//.test(type);
  return { name, spoken, document, type };
}

/** Arguments always; other texts where escapes may hide something. */
function holdsJson(value: string, key: string | number): boolean {
  if (key === 'arguments') return true;
  const first = /\S/.exec(value)?.[0];
  return (first === '{' || first === '[' || first === '"') && value.includes('\\');
}

const TOO_DEEP = Symbol('too deep');

/** Undefined for what is no JSON. */
function parsed(value: string): unknown {
  try {
    return parseExact(value);
  } catch (error) {
    return error instanceof SyntaxError && !(error instanceof UnreadJsonError) ? undefined : TOO_DEEP;
  }
}

/** Whether an object has a name twice: the text of the first is lost to those who read the last. */
export function hasTwins(value: string): boolean {
  try {
    scanJson(Buffer.from(`{"":${value}}`), NO_NAMES, SCAN_LIMITS);
    return false;
  } catch {
    return true;
  }
}

const NO_NAMES: readonly string[] = [];
const SCAN_LIMITS = { depth: 1_024, keys: 1_000_000, number: 4_096 };

const isText = (value: unknown): boolean => typeof value === 'string' || (typeof value === 'object' && value !== null);

/** Numbers of this many digits may be a card's, a person's or a telephone's. */
const DIGITS = 1_000_000;

function isSpokenNumber(value: unknown, key: string | number, mode: Mode): boolean {
  if (typeof value !== 'number' || Math.abs(value) < DIGITS || !Number.isInteger(value)) return false;
  if (mode === 'own') return true;
  return mode === 'raw' ? !isCount(key) : typeof key === 'string' && SPOKEN.has(key);
}

function elements(frame: Frame, list: readonly unknown[], stack: Frame[], into: Walk): void {
  const { path, role, mode, key } = frame;
  const known = mode === 'wire' || (mode === 'raw' && into.side !== 'answer');
  const tokens = known && (USER.has(topOf(frame)) || (into.side !== 'answer' && TOKEN_IDS.has(String(key))));
  const { from } = into;
  const first = from !== null && frame.depth === 1 && key === from.list ? from.index : 0;
  let numbers = false;
  for (let i = list.length - 1; i >= first; i--) {
    const value = list[i];
    if (typeof value === 'number') numbers = true;
    if (isText(value) || isSpokenNumber(value, key, mode === 'raw' ? 'own' : mode)) {
      // A word of a list is what the list is: names of what to include, and texts to stop at.
      if (typeof value === 'string' && skips(mode, String(key), value)) continue;
      stack.push(child(frame, i, value, `${path}[${i}]`, role, mode));
    }
  }
  if (tokens && numbers) unreadable(into, frame, 'tokens');
}

/** The member of the root in which a list of texts or of lists stands. */
function topOf(frame: Frame): string {
  if (frame.depth === 1) return String(frame.key);
  return frame.depth === 2 && Array.isArray(frame.parent?.value) ? String(frame.parent.key) : '';
}

function skips(mode: Mode, name: string, value: string): boolean {
  if (mode === 'wire') return SETTINGS.has(name) && isWord(value, name);
  return mode === 'schema' && SCHEMA_WORDS.has(name) && isWord(value, name);
}

function members(frame: Frame, object: JsonObject, stack: Frame[], into: Walk): void {
  const { mode, depth, path } = frame;
  const { side, from } = into;
  const wire = mode === 'wire' || mode === 'raw';
  const { type } = object;
  const role = (wire ? roleOf(object.role, type) : undefined) ?? frame.role;
  const call = wire && typeof type === 'string' && isToolCall(type);
  // A stored response repeats what it was asked.
  const echoes = side === 'answer' && mode === 'wire' && depth === 0 && Array.isArray(object.output);
  const names = Object.keys(object);
  for (let position = names.length - 1; position >= 0; position--) {
    const name = names[position] ?? '';
    const value = object[name];
    const says = isText(value) || isSpokenNumber(value, name, mode);
    const named = isName(name, mode);
    if (!says && !named) continue;
    if (depth === 0 && ((from?.only && name !== from.list) || (echoes && ECHOES.has(name)))) continue;
    // Tokens of a text that is judged where it stands.
    if (side === 'answer' && mode === 'wire' && name === 'logprobs') continue;
    const here = memberPath(path, name, position);
    const speaker = wire && side === 'request' ? (speakerOf(name, depth) ?? role) : role;
    if (says && !(typeof value === 'string' && skips(mode, name, value))) {
      stack.push(child(frame, name, value, here, speaker, modeOf(frame.key, name, value, mode, call)));
    }
    if (side === 'request' && wire && isReference(frame, object, name, value)) {
      stack.push(child(frame, name, FILE, here, speaker, mode));
    }
    // On top of its value, so that it comes first.
    if (named) stack.push(child(frame, name, NAME, here, speaker, mode));
  }
}

/** In place of values: the member's name is a text, or what it names is a document kept elsewhere. */
const NAME = Symbol('name');
const FILE = Symbol('file');

function speakerOf(name: string, depth: number): Role | undefined {
  if (SYSTEM.has(name)) return 'system';
  if (depth > 0) return undefined;
  if (USER.has(name)) return 'user';
  return name === 'text' ? 'system' : undefined;
}

const RESULTS = new Set(['functionResponse.response', 'function_response.response']);

function modeOf(holder: string | number, name: string, value: unknown, mode: Mode, call: boolean): Mode {
  if (typeof value === 'string') return mode;
  // Arguments and results of tools in APIs that pass through.
  if (mode === 'raw' && (name === 'args' || (call && name === 'input') || RESULTS.has(`${holder}.${name}`)))
    return 'own';
  if (mode !== 'wire') return mode;
  if (OWN.has(name) || (call && name === 'input')) return 'own';
  return SCHEMAS.has(name) ? 'schema' : mode;
}

function isName(name: string, mode: Mode): boolean {
  if (name === '') return false;
  if (mode === 'own') return true;
  if (mode === 'schema') return !SCHEMA_NAMES.has(name);
  return !isPlain(name) && !NUMBERED.test(name);
}

/** Names of APIs that have digits in them, and those that are token ids. */
const NUMBERED = /^(?:\d{1,6}|\w{0,20}b64(?:_json)?)$/;

/** A document that the provider has or gets. Pictures are not read in any case. */
function isReference(frame: Frame, object: JsonObject, name: string, value: unknown): boolean {
  if (Array.isArray(value) ? value.length === 0 || !/file_ids$/i.test(name) : typeof value !== 'string' || value === '')
    return false;
  if (!REFERENCES.test(name) && !(name === 'url' && object.type === 'url')) return false;
  return !isPicture(object) && !isPicture(frame.parent?.value) && !isSense(object);
}

const REFERENCES = /^(?:(?:\w+_)?file_(?:ids?|ur[li])|file_?ur[li]|(?:training|validation)_file)$/i;

/** Pictures and sound by the type that the body gives for them. */
const isSense = ({ mimeType, mime_type = mimeType }: JsonObject): boolean =>
  typeof mime_type === 'string' && /^(?:image|audio|video)\//i.test(mime_type);

const isPicture = (value: unknown): boolean =>
  isObject(value) && typeof value.type === 'string' && value.type.includes('image');
