import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { multipartBoundary } from '../../kernel/multipart-scan.ts';
import { invalid } from './problem.ts';

export interface FormFile {
  readonly name: string;
  readonly bytes: number;
}

/** Text fields and the sizes of files of a `multipart/form-data` body. */
export interface Form {
  /** Numbers and `true`/`false` as JSON knows them, so that the same checks apply as to JSON bodies. */
  readonly fields: JsonObject;
  readonly files: readonly FormFile[];
}

const MAX_PARTS = 1_000;
const HEADER_END = Buffer.from('\r\n\r\n');
/** Fields that are numbers or truth values in the JSON form of the same request. */
const TYPED = new Set(['n', 'temperature', 'stream', 'partial_images', 'output_compression']);

function typed(name: string, value: string): string | number | boolean {
  if (!TYPED.has(name)) return value;
  if (value === 'true' || value === 'false') return value === 'true';
  return /^-?\d{1,15}(\.\d{1,15})?$/.test(value) ? Number(value) : value;
}

/** Reads a whole form. Throws a 400 when it is not well formed. */
export function readForm(body: Buffer, contentType: string): Form {
  let boundary: string;
  try {
    boundary = multipartBoundary(contentType);
  } catch (error) {
    throw invalid(error instanceof SluiceError ? error.message : 'The body must be multipart/form-data.', null);
  }
  const opening = Buffer.from(`--${boundary}`, 'latin1');
  const delimiter = Buffer.from(`\r\n--${boundary}`, 'latin1');
  const fields: JsonObject = {};
  const files: FormFile[] = [];
  const bad = (): never => {
    throw invalid('The multipart body cannot be read: it is cut off or malformed.', null);
  };
  if (!body.subarray(0, opening.length).equals(opening)) return bad();
  let at = opening.length;
  for (let parts = 0; parts <= MAX_PARTS; parts++) {
    if (body.toString('latin1', at, at + 2) === '--') return { fields, files };
    const headerEnd = body.indexOf(HEADER_END, at);
    if (headerEnd < 0 || headerEnd - at > 16_384) return bad();
    const header = body.toString('utf8', at, headerEnd);
    const name = /;\s*name="([^"]*)"/i.exec(header)?.[1]?.replace(/\[\]$/, '');
    const start = headerEnd + HEADER_END.length;
    const end = body.indexOf(delimiter, start - 2);
    if (end < 0 || name === undefined) return bad();
    if (/;\s*filename\*?=/i.test(header)) files.push({ name, bytes: Math.max(0, end - start) });
    else if (name !== '__proto__') fields[name] = typed(name, body.toString('utf8', start, Math.max(start, end)));
    at = end + delimiter.length;
  }
  return bad();
}
