import { SluiceError } from '../kernel/errors.ts';
import { isObject } from '../kernel/json.ts';
import { parseJson } from '../kernel/json-exact.ts';
import type { WorkspaceSnapshot } from '../runtime/snapshot.ts';
import type { RequestContext } from './request-context.ts';

const MAX_VALUE = 128;
const MAX_KEYS = 64;

/**
 * Metadata of a request. For the same key the workspace's defaults win over the API key's, these over the request's header,
 * and that over W3C baggage; `user`, where the body names one, fills `_user` when nothing else does.
 */
export function metadataOf(
  request: RequestContext,
  snapshot: WorkspaceSnapshot,
  user: string | undefined,
): Record<string, string> | null {
  const header = request.header('x-gateway-metadata');
  const baggage = request.header('baggage');
  const fromKey = request.principal?.defaults.metadata;
  if (
    header === undefined &&
    baggage === undefined &&
    fromKey === undefined &&
    snapshot.metadata === null &&
    user === undefined
  )
    return null;
  const out: Record<string, string> = {};
  if (baggage !== undefined) Object.assign(out, parseBaggage(baggage));
  if (header !== undefined) Object.assign(out, parseHeader(header));
  Object.assign(out, fromKey, snapshot.metadata);
  if (user !== undefined && out._user === undefined && user.length <= MAX_VALUE) out._user = user;
  return out;
}

function refuse(message: string): never {
  throw new SluiceError('malformed_call', message);
}

function parseHeader(text: string): Record<string, string> {
  let value: unknown;
  try {
    value = parseJson(text);
  } catch {
    refuse('x-gateway-metadata must be a JSON object of texts, for example {"team":"search"}.');
  }
  if (!isObject(value)) refuse('x-gateway-metadata must be a JSON object of texts, for example {"team":"search"}.');
  const entries = Object.entries(value);
  if (entries.length > MAX_KEYS) refuse(`x-gateway-metadata may hold at most ${MAX_KEYS} keys.`);
  const out: Record<string, string> = {};
  for (const [key, item] of entries) {
    if (key === '__proto__') refuse('x-gateway-metadata holds a key that is not allowed.');
    if (typeof item !== 'string')
      refuse(`x-gateway-metadata: the value of ${JSON.stringify(key.slice(0, 64))} must be a text.`);
    if ([...item].length > MAX_VALUE)
      refuse(
        `x-gateway-metadata: the value of ${JSON.stringify(key.slice(0, 64))} is longer than ${MAX_VALUE} characters.`,
      );
    out[key] = item;
  }
  return out;
}

/** Malformed members are ignored: the header belongs to tracing tools, not to the caller's intent. */
function parseBaggage(text: string): Record<string, string> {
  const out: Record<string, string> = {};
  for (const member of text.split(',').slice(0, MAX_KEYS)) {
    const [pair = ''] = member.split(';');
    const equals = pair.indexOf('=');
    if (equals <= 0) continue;
    try {
      const value = decodeURIComponent(pair.slice(equals + 1).trim());
      const key = decodeURIComponent(pair.slice(0, equals).trim());
      if (key !== '__proto__' && value.length <= MAX_VALUE) out[key] = value;
    } catch {
      // A bad escape makes the member malformed.
    }
  }
  return out;
}
