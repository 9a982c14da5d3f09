/** Request bodies of the administration API, JSON and forms: bounded while reading, strict while parsing. */
import type { IncomingMessage } from 'node:http';
import { readBody } from '../http/read-body.ts';
import { type Clock, systemClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { JsonObject, JsonValue } from '../kernel/json.ts';
import { itemsOf, MAX_ITEMS } from '../kernel/json-items.ts';
import { beginsList } from '../kernel/json-list.ts';
import { JsonScanError, scanJson } from '../kernel/json-scan.ts';
import { atOnce, inTurns, nextTurn, type Steps } from '../kernel/turns.ts';

/** 1 MB. */
const MAX_BODY_BYTES = 1_048_576;
/** Each step of a longer body has a turn of the event loop for itself. */
const LONG_BODY_BYTES = 65_536;

/** Whether the body of a request is so long that each step of its work should be a turn of the event loop. */
export const isLongBody = ({ headers }: IncomingMessage): boolean =>
  // Without a length nothing is known of it.
  !(Number(headers['content-length'] ?? Number.POSITIVE_INFINITY) <= LONG_BODY_BYTES);

/**
 * The JSON object of a request, or null when it has no body. Throws `validation` for a wrong content type or anything
 * that is not one strict JSON object, `too_large` past 1 MB: at once when the length is declared, else when it is
 * reached; `timeout` and `client_closed` as `http/read-body.ts` does.
 */
export function readJsonBody(request: IncomingMessage, clock: Clock = systemClock): Promise<JsonObject | null> {
  return readJson(request, clock, parseJsonObject, parsing);
}

/**
 * The same of a body whose content type the caller has judged, and from which members named `__proto__` are dropped: SCIM
 * ignores what it does not know (RFC 7643 §2.1).
 */
export const readJsonObject = (request: IncomingMessage, clock: Clock): Promise<JsonObject | null> =>
  readJson(
    request,
    clock,
    (body) => atOnce(parsing(body, 0, true)),
    (body) => parsing(body, 0, true),
    () => undefined,
  );

function dropPrototypes(value: JsonValue | undefined): void {
  if (value === null || typeof value !== 'object') return;
  if (!Array.isArray(value)) Reflect.deleteProperty(value, '__proto__');
  for (const one of Object.values(value)) dropPrototypes(one);
}

/** A body that is a JSON object or a list. Paths of errors in a list begin with the place: `[3].value`. */
type JsonBodies = JsonObject | readonly JsonValue[];

/** The same for a body that is a JSON object or a list. */
export function readJsonBodies(request: IncomingMessage, clock: Clock = systemClock): Promise<JsonBodies | null> {
  return readJson(request, clock, parseJsonBodies, parsingBodies);
}

async function readJson<T>(
  request: IncomingMessage,
  clock: Clock,
  parse: (body: Buffer) => T,
  steps: (body: Buffer) => Steps<T>,
  checkType = checkContentType,
): Promise<T | null> {
  const body = await readBody(request, { limit: MAX_BODY_BYTES, clock });
  if (body.length === 0) return null;
  checkType(request.headers['content-type']);
  if (body.length <= LONG_BODY_BYTES) return parse(body);
  await nextTurn();
  return inTurns(steps(body), clock);
}

const LIST_BEGIN = Buffer.from('{"":');
const LIST_END = Buffer.from('}');

function* parsingBodies(body: Buffer): Steps<JsonBodies> {
  return beginsList(body) ? yield* parsingList(body) : yield* parsing(body);
}

/** A list is read as the only member of an object, for the scanner knows objects. */
function* parsingList(body: Buffer): Steps<readonly JsonValue[]> {
  const whole = yield* parsing(Buffer.concat([LIST_BEGIN, body, LIST_END]), LIST_BEGIN.length);
  const [list, ...more] = Object.values(whole);
  if (!Array.isArray(list) || more.length > 0) throw refuse('', 'must be one JSON list');
  return list;
}

/**
 * The fields of an `application/x-www-form-urlencoded` body as an object of strings, or null when it has no body. Throws as
 * `readJsonBody` does, and `validation` for a field that is sent twice.
 *
 * @param limit bytes of the body
 */
export async function readFormBody(
  request: IncomingMessage,
  clock: Clock = systemClock,
  limit = MAX_BODY_BYTES,
): Promise<JsonObject | null> {
  const body = await readBody(request, { limit, clock });
  if (body.length === 0) return null;
  if (!isUtf8(request.headers['content-type'], FORM)) {
    throw new SluiceError('validation', `Send the body as a form in UTF-8, with Content-Type: ${FORM}.`);
  }
  const fields = new Map<string, string>();
  for (const [name, value] of new URLSearchParams(body.toString('utf8'))) {
    if (fields.has(name)) throw refuse(name, 'must be sent once');
    fields.set(name, value);
  }
  const value: JsonObject = Object.fromEntries(fields);
  checkText(value);
  return value;
}

const FORM = 'application/x-www-form-urlencoded';

function isUtf8(header: string | undefined, wanted: string): boolean {
  const [type = '', ...parameters] = (header ?? '').split(';').map((part) => part.trim().toLowerCase());
  return type === wanted && parameters.every((parameter) => /^charset="?utf-8"?$/.test(parameter));
}

export function checkContentType(value: string | undefined): void {
  if (!isUtf8(value, 'application/json')) {
    throw new SluiceError('validation', 'Send the body as JSON in UTF-8, with Content-Type: application/json.');
  }
}

/** Throws `validation` for anything but one JSON object of well-formed text without duplicate keys. */
export function parseJsonObject(body: Buffer): JsonObject {
  return atOnce(parsing(body));
}

/** The same for an object or a list. */
export function parseJsonBodies(body: Buffer): JsonBodies {
  return atOnce(parsingBodies(body));
}

function* parsing(body: Buffer, shift = 0, drops = false): Steps<JsonObject> {
  try {
    scanJson(body, []);
  } catch (error) {
    if (!(error instanceof JsonScanError)) throw error;
    const offset = Math.max(0, Math.min(error.offset, shift === 0 ? body.length : body.length - 1) - shift);
    throw new SluiceError('validation', `${error.message.replace(/[0-9]+\)$/, `${offset})`)}.`);
  }
  yield;
  const text = body.toString('utf8');
  const value = JSON.parse(text) as JsonObject;
  yield;
  if (drops) dropPrototypes(value);
  if (itemsOf(value) > MAX_ITEMS) throw refuse('', `must not have more than ${MAX_ITEMS} items in its lists`);
  checkText(value);
  yield;
  checkRounded(text);
  return value;
}

/**
 * What may be a number that a double does not hold, in a string or not. What has no digits beyond a double's cannot lose
 * any.
 */
const MANY_DIGITS =
  /(?<=[:,[\s])-?(?:[0-9](?:\.?[0-9]){15}[0-9.]*(?:[eE][+-]?[0-9]+)?|[0-9]+(?:\.[0-9]+)?[eE][+-]?[0-9]{2,})/g;
const NUMBER = /^-?([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$/;

/**
 * Refuses a number that would be kept as another whole number than it was written: `1000000000000.000001` is no 10^12, and
 * 2^53 + 1 no 2^53. Digits behind the point that a double rounds are let pass.
 *
 * @param text JSON without the character U+0000
 */
function checkRounded(text: string): void {
  // Both only go forward: a text is looked through once, however many numbers it has.
  let quote = text.indexOf('"');
  MANY_DIGITS.lastIndex = 0;
  for (let found = MANY_DIGITS.exec(text); found !== null; found = MANY_DIGITS.exec(text)) {
    const { index } = found;
    let end = -1;
    while (quote >= 0 && quote < index) {
      end = endOfString(text, quote);
      quote = text.indexOf('"', end + 1);
    }
    if (end > index) {
      MANY_DIGITS.lastIndex = end + 1;
      continue;
    }
    const [source] = found;
    const value = Number(source);
    if (!Number.isInteger(value) || decimal(source) === decimal(String(value))) continue;
    // The place of the only text that has the character is the place of the number.
    const marked = `${text.slice(0, index)}"\\u0000"${text.slice(index + source.length)}`;
    throw refuse(faultIn(JSON.parse(marked) as JsonObject)?.path ?? '', 'has more digits than can be kept: round it');
  }
}

/** Index of the quote that ends the string of valid JSON that begins at `start`. */
function endOfString(text: string, start: number): number {
  for (let at = text.indexOf('"', start + 1); ; at = text.indexOf('"', at + 1)) {
    let before = at;
    while (text[before - 1] === '\\') before -= 1;
    if ((at - before) % 2 === 0) return at;
  }
}

/** Significant digits and their power of ten; sign and spelling left out. */
function decimal(text: string): string {
  const [, whole = '', fraction = '', exponent = '0'] = NUMBER.exec(text) ?? [];
  const digits = (whole + fraction).replace(/^0+/, '');
  const significant = digits.replace(/0+$/, '');
  return significant === ''
    ? '0'
    : `${significant}e${Number(exponent) - fraction.length + digits.length - significant.length}`;
}

/** Throws `validation` for what cannot be stored as it is. */
export function checkText(value: JsonValue): void {
  const fault = faultIn(value);
  if (fault !== null) throw refuse(fault.path, fault.problem);
}

interface Fault {
  readonly path: string;
  readonly problem: string;
}

/** The first fault in a value. Its path is put together on the way back: a body without faults has no need of any. */
function faultIn(value: JsonValue | undefined): Fault | null {
  if (typeof value === 'string') return faultOf(value);
  if (typeof value === 'number') return Number.isFinite(value) ? null : { path: '', problem: 'is too large a number' };
  if (value === null || typeof value !== 'object') return null;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) {
      const fault = faultIn(value[index]);
      if (fault !== null) return below(`[${index}]`, fault);
    }
    return null;
  }
  for (const key of Object.keys(value)) {
    // A member of this name would change the object it is copied into.
    const wrong = key === '__proto__' ? { path: '', problem: 'must not have a key named __proto__' } : faultOf(key);
    if (wrong !== null) return wrong;
    const fault = faultIn(value[key]);
    if (fault !== null) return below(key, fault);
  }
  return null;
}

const below = (step: string, { path, problem }: Fault): Fault => ({
  path: path === '' || path.startsWith('[') ? step + path : `${step}.${path}`,
  problem,
});

function faultOf(text: string): Fault | null {
  if (text.includes('\0')) return { path: '', problem: 'must not contain the character U+0000' };
  return text.isWellFormed() ? null : { path: '', problem: 'must not contain an unpaired surrogate' };
}

function refuse(path: string, problem: string): SluiceError {
  const param = /^[\x21-\x7e]{1,300}$/.test(path) ? path : null;
  return new SluiceError('validation', `${param ?? 'The body'} ${problem}.`, { param });
}
