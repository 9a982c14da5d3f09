import { isUtf8 } from 'node:buffer';
import { SluiceError } from './errors.ts';
import { spliceParts } from './json-scan.ts';

/**
 * Reads fields of a buffered `multipart/form-data` body in place: file parts are skipped by searching the boundary and
 * never copied. Strict where parsers differ: no preamble or epilogue, CRLF only, one unambiguous name for each part, and
 * a wanted field at most once, so that no other reader can see another `model`.
 */

export interface FormField {
  readonly value: string;
  /** Bytes `[start, end)` of the value in the body. */
  readonly start: number;
  readonly end: number;
}

const MAX_PARTS = 1_000;
const MAX_HEADER_BYTES = 16 * 1024;
const MAX_VALUE_BYTES = 64 * 1024;

const CRLF = Buffer.from('\r\n');
const HEADER_END = Buffer.from('\r\n\r\n');

function fail(message: string): never {
  throw new SluiceError('malformed_call', `The multipart body cannot be read: ${message}`);
}

/** The boundary a content type names. Throws `malformed_call` when it has none, two, or an invalid one. */
export function multipartBoundary(contentType: string): string {
  const [type = '', ...rest] = splitParameters(contentType);
  if (type.trim().toLowerCase() !== 'multipart/form-data') fail('content-type must be multipart/form-data');
  let boundary: string | null = null;
  for (const parameter of rest) {
    const { name, value } = readParameter(parameter);
    if (name === 'boundary') {
      if (boundary !== null) fail('content-type names two boundaries');
      boundary = value;
    }
  }
  if (boundary === null || !/^[A-Za-z0-9'()+_,\-./:=? ]{0,69}[A-Za-z0-9'()+_,\-./:=?]$/.test(boundary)) {
    return fail('content-type has no valid boundary');
  }
  return boundary;
}

/** Splits at semicolons outside quotes. */
function splitParameters(text: string): string[] {
  const parts: string[] = [];
  let from = 0;
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted && c === '\\') i++;
    else if (c === '"') quoted = !quoted;
    else if (c === ';' && !quoted) {
      parts.push(text.slice(from, i));
      from = i + 1;
    }
  }
  if (quoted) fail('a quoted parameter is not closed');
  parts.push(text.slice(from));
  return parts;
}

function readParameter(text: string): { name: string; value: string } {
  const match = /^\s*([A-Za-z0-9!#$%&'*+.^_`|~-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))\s*$/.exec(text);
  if (!match) return fail('a header parameter is malformed');
  return { name: (match[1] ?? '').toLowerCase(), value: match[3] ?? (match[2] ?? '').replace(/\\(.)/g, '$1') };
}

export interface PartHeaders {
  readonly name: string;
  readonly file: boolean;
  /** As it was given, browser escapes undone; null for a text field. */
  readonly filename: string | null;
  readonly contentType: string | null;
}

/** Reads the headers of one part, its lines parted by CRLF. Throws `malformed_call` for what readers understand differently. */
export function readPartHeaders(text: string): PartHeaders {
  let disposition: string | null = null;
  let encoding: string | null = null;
  let contentType: string | null = null;
  for (const line of text.split('\r\n')) {
    const colon = line.indexOf(':');
    if (colon < 1 || /[^!-9;-~]/.test(line.slice(0, colon)) || /[\r\n\0]/.test(line))
      fail('a part has a malformed header');
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    if (name === 'content-disposition') {
      if (disposition !== null) fail('a part has two Content-Disposition headers');
      disposition = value;
    } else if (name === 'content-transfer-encoding') encoding = value.toLowerCase();
    else if (name === 'content-type') {
      if (contentType !== null) fail('a part has two Content-Type headers');
      contentType = value;
    }
  }
  if (disposition === null) return fail('a part has no Content-Disposition header');
  if (encoding !== null && !['7bit', '8bit', 'binary'].includes(encoding)) fail('a part uses a transfer encoding');
  const [type = '', ...rest] = splitParameters(disposition);
  if (type.trim().toLowerCase() !== 'form-data') fail('a part is not form-data');
  let field: string | null = null;
  let filename: string | null = null;
  let extended: string | null = null;
  for (const parameter of rest) {
    const { name, value } = readParameter(parameter);
    if (name === 'name') {
      if (field !== null) fail('a part has two names');
      // Browsers write a quote and line ends of a name this way.
      field = unescaped(value);
    } else if (name === 'name*') fail('a part has an extended name');
    else if (name === 'filename') {
      if (filename !== null) fail('a part has two file names');
      filename = unescaped(value);
    } else if (name === 'filename*') extended = value;
  }
  if (field === null) return fail('a part has no name');
  if (extended !== null) filename = extendedName(extended) ?? filename ?? '';
  return { name: field, file: filename !== null, filename, contentType };
}

const unescaped = (value: string) => value.replace(/%(22|0D|0A)/gi, (code) => decodeURIComponent(code));

/** RFC 5987 in UTF-8, the only form in use; null for any other. */
function extendedName(value: string): string | null {
  const match = /^utf-8'[^']*'(.*)$/i.exec(value);
  try {
    return match === null ? null : decodeURIComponent(match[1] ?? '');
  } catch {
    return null;
  }
}

/** A part of a form, with the bytes `[start, end)` of its value. */
export interface FormPart extends PartHeaders {
  readonly headersStart: number;
  readonly start: number;
  readonly end: number;
}

/** The parts in order. Throws `malformed_call` for a body that is not exactly well formed. */
export function* multipartParts(body: Buffer, contentType: string): Generator<FormPart> {
  const boundary = multipartBoundary(contentType);
  const first = Buffer.from(`--${boundary}`, 'latin1');
  const delimiter = Buffer.from(`\r\n--${boundary}`, 'latin1');
  if (!body.subarray(0, first.length).equals(first)) fail('it does not start with the boundary');
  let at = first.length;
  for (let parts = 0; ; parts++) {
    if (body[at] === 0x2d && body[at + 1] === 0x2d) {
      const rest = body.subarray(at + 2);
      if (rest.length !== 0 && !rest.equals(CRLF)) fail('it has data after the last boundary');
      return;
    }
    if (body[at] !== 0x0d || body[at + 1] !== 0x0a) fail('a boundary is not followed by a line end');
    if (parts >= MAX_PARTS) fail(`it has more than ${MAX_PARTS} parts`);
    at += 2;
    const headerEnd = body.subarray(at, at + MAX_HEADER_BYTES).indexOf(HEADER_END);
    if (headerEnd < 0) fail('the headers of a part do not end');
    const headers = readPartHeaders(body.toString('latin1', at, at + headerEnd));
    // Found from the header's own line end, so that an empty part may be followed by its boundary at once.
    const start = at + headerEnd + HEADER_END.length;
    const end = body.indexOf(delimiter, start - 2);
    if (end < 0) fail('the last boundary is missing');
    yield { ...headers, headersStart: at, start, end: Math.max(start, end) };
    at = end + delimiter.length;
  }
}

/**
 * Values and byte ranges of the `wanted` text fields. Throws `malformed_call` for a body that is not exactly well formed, a
 * wanted field given twice or as a file, or a wanted value that is not UTF-8 or longer than 64 KB.
 */
export function scanMultipart(
  body: Buffer,
  contentType: string,
  wanted: readonly string[],
): ReadonlyMap<string, FormField> {
  const found = new Map<string, FormField>();
  for (const { name, file, start, end } of multipartParts(body, contentType)) {
    if (!wanted.includes(name)) continue;
    if (found.has(name)) fail(`the field ${name} is given twice`);
    if (file) fail(`the field ${name} must be text, not a file`);
    if (end - start > MAX_VALUE_BYTES) fail(`the field ${name} is too long`);
    const bytes = body.subarray(start, end);
    if (!isUtf8(bytes)) fail(`the field ${name} is not valid UTF-8`);
    found.set(name, { value: bytes.toString('utf8'), start, end });
  }
  return found;
}

/**
 * The body as parts with one text field set to `value`: replaced in place, or added in front when it is missing. Bytes
 * of other parts are shared. An empty value leaves the body as it is.
 */
export function replaceFormField(body: Buffer, contentType: string, name: string, value: string): Buffer[] {
  if (value === '') return [body];
  const field = scanMultipart(body, contentType, [name]).get(name);
  if (field?.value === value) return [body];
  const boundary = multipartBoundary(contentType);
  if (/[\r\n\0]/.test(value) || /["\r\n\0]/.test(name)) fail(`the field ${name} must be one line of text`);
  if (field) return spliceParts(body, [{ start: field.start, end: field.end, bytes: Buffer.from(value) }]);
  const part = `--${boundary}\r\ncontent-disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;
  return [Buffer.from(part), body];
}
