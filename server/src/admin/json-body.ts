/** Request bodies of the administration API, JSON and forms: bounded while reading, strict while parsing. */
import type { IncomingMessage } from 'node:http';
import { readBody } from '../http/read-body.ts';
import { type Clock, systemClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { JsonObject, JsonValue } from '../kernel/json.ts';
import { itemsOf, MAX_ITEMS } from '../kernel/json-items.ts';
import { JsonScanError, scanJson } from '../kernel/json-scan.ts';

/** 1 MB. */
const MAX_BODY_BYTES = 1_048_576;

/**
 * The JSON object of a request, or null when it has no body. Throws `validation` for a wrong content type or anything
 * that is not one strict JSON object, `too_large` past 1 MB: at once when the length is declared, else when it is
 * reached; `timeout` and `client_closed` as `http/read-body.ts` does.
 */
export async function readJsonBody(request: IncomingMessage, clock: Clock = systemClock): Promise<JsonObject | null> {
  const body = await readBody(request, { limit: MAX_BODY_BYTES, clock });
  if (body.length === 0) return null;
  checkContentType(request.headers['content-type']);
  return parseJsonObject(body);
}

/**
 * The fields of an `application/x-www-form-urlencoded` body as an object of strings, or null when it has no body. Throws as
 * `readJsonBody` does, and `validation` for a field that is sent twice.
 */
export async function readFormBody(request: IncomingMessage, clock: Clock = systemClock): Promise<JsonObject | null> {
  const body = await readBody(request, { limit: MAX_BODY_BYTES, clock });
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

function checkContentType(value: string | undefined): void {
  if (!isUtf8(value, 'application/json')) {
    throw new SluiceError('validation', 'Send the body as JSON in UTF-8, with Content-Type: application/json.');
  }
}

/** Throws `validation` for anything but one JSON object of well-formed text without duplicate keys. */
export function parseJsonObject(body: Buffer): JsonObject {
  try {
    scanJson(body, []);
  } catch (error) {
    if (!(error instanceof JsonScanError)) throw error;
    throw new SluiceError('validation', `${error.message}.`);
  }
  const text = body.toString('utf8');
  const value = JSON.parse(text) as JsonObject;
  if (itemsOf(value) > MAX_ITEMS) throw refuse('', `must not have more than ${MAX_ITEMS} items in its lists`);
  if (MANY_DIGITS.test(text)) JSON.parse(text, refuseRounded);
  checkText(value);
  return value;
}

/** What has no digits beyond a double's cannot lose any. */
const MANY_DIGITS = /[0-9](?:\.?[0-9]){15}|[eE]-?[0-9]{2}/;
const NUMBER = /^-?([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$/;

/**
 * Refuses a number that would be kept as another whole number than it was written: `1000000000000.000001` is no 10^12, and
 * 2^53 + 1 no 2^53. Digits behind the point that a double rounds are let pass.
 */
function refuseRounded(
  this: unknown,
  key: string,
  value: JsonValue,
  context?: { readonly source?: string },
): JsonValue {
  if (typeof value !== 'number' || !Number.isInteger(value) || context?.source === undefined) return value;
  if (decimal(context.source) !== decimal(String(value)))
    throw refuse(key, 'has more digits than can be kept: round it');
  return value;
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
function checkText(value: JsonValue): void {
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
