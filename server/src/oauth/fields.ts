/** Bodies of the OAuth endpoints: forms, as the standards say, or JSON objects. */
import type { IncomingMessage } from 'node:http';
import { readBody } from '../http/read-body.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { isObject, type JsonObject } from '../kernel/json.ts';
import { parseJson } from '../kernel/json-exact.ts';

/** Ten redirect addresses of the greatest length fit. */
const MOST_BYTES = 32_768;
const FORM = 'application/x-www-form-urlencoded';

const mediaType = (request: IncomingMessage): string =>
  (request.headers['content-type'] ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? '';

/** A JSON object. Throws `validation` for anything else. */
export async function readObject(request: IncomingMessage, clock: Clock): Promise<JsonObject> {
  const body = await readBody(request, { limit: MOST_BYTES, clock });
  let value: unknown;
  try {
    value = mediaType(request) === 'application/json' ? parseJson(body.toString('utf8')) : null;
  } catch {
    value = null;
  }
  if (isObject(value)) return value;
  throw new SluiceError('validation', 'Send one JSON object, with Content-Type: application/json.');
}

/** The parameters of a form or a JSON object, each once and a text; empty ones are left out (RFC 6749 §3.2). */
export async function readFields(request: IncomingMessage, clock: Clock): Promise<Readonly<Record<string, string>>> {
  if (mediaType(request) !== FORM) return fieldsOf(Object.entries(await readObject(request, clock)));
  const body = await readBody(request, { limit: MOST_BYTES, clock });
  return fieldsOf([...new URLSearchParams(body.toString('utf8'))]);
}

function fieldsOf(entries: readonly (readonly [string, unknown])[]): Record<string, string> {
  const fields: Record<string, string> = Object.create(null);
  for (const [name, value] of entries) {
    if (Object.hasOwn(fields, name)) throw new SluiceError('validation', 'Send each parameter once.');
    if (value === null || value === undefined || value === '') continue;
    if (typeof value !== 'string') throw new SluiceError('validation', 'Send each parameter as a text.');
    fields[name] = value;
  }
  return fields;
}
