import { SluiceError } from '../kernel/errors.ts';
import { isObject } from '../kernel/json.ts';
import { parseJson } from '../kernel/json-exact.ts';
import { quotedName } from '../kernel/quoted.ts';
import { headerText } from '../kernel/text.ts';
import type { WorkspaceSnapshot } from '../runtime/snapshot.ts';
import type { RequestContext } from './request-context.ts';

/** Characters, which are code points. */
const MAX_VALUE = 128;
const MAX_KEY = 128;
/** Of a request, wherever they come from. */
export const MAX_KEYS = 64;

const isLonger = (text: string, most: number): boolean => text.length > most && [...text].length > most;

/**
 * Metadata of a request. For the same key the workspace's defaults win over the API key's, these over `copied`, these over
 * the header x-gateway-metadata, and that over W3C baggage; `user`, where the body names one, fills `_user` when nothing else
 * does. Baggage and `user` take the room that is left. Throws `malformed_call` (400) for more than 64 keys, or a value of
 * more than 128 characters.
 *
 * @param copied `copiedHeaders` of the request
 */
export function metadataOf(
  request: RequestContext,
  snapshot: WorkspaceSnapshot,
  copied: Readonly<Record<string, string>> | null,
  user: string | undefined,
): Record<string, string> | null {
  const header = request.header('x-gateway-metadata');
  const baggage = request.header('baggage');
  const fromKey = request.principal?.defaults.metadata;
  if (
    header === undefined &&
    baggage === undefined &&
    copied === null &&
    fromKey === undefined &&
    snapshot.metadata === null &&
    user === undefined
  )
    return null;
  const out: Record<string, string> = header === undefined ? {} : parseHeader(headerText(header));
  Object.assign(out, copied, fromKey, snapshot.metadata);
  let keys = checked(out);
  if (baggage !== undefined)
    for (const [key, value] of Object.entries(parseBaggage(baggage)))
      if (!Object.hasOwn(out, key) && keys++ < MAX_KEYS) out[key] = value;
  if (user !== undefined && out._user === undefined && !isLonger(user, MAX_VALUE) && keys < MAX_KEYS) out._user = user;
  return out;
}

/**
 * The headers of a request that the setting `HEADERS_TO_METADATA` names, as metadata; null without any. A longer value is cut
 * to 128 characters: it would still be counted and judged.
 */
export function copiedHeaders(request: RequestContext, names: readonly string[]): Record<string, string> | null {
  let out: Record<string, string> | null = null;
  for (const name of names) {
    const value = request.header(name);
    if (value === undefined) continue;
    out ??= {};
    const text = headerText(value);
    out[name] = isLonger(text, MAX_VALUE) ? [...text].slice(0, MAX_VALUE).join('') : text;
  }
  return out;
}

/** Metadata of a request under the config that it follows, which says what nothing else does. Throws as `metadataOf`. */
export function metadataUnder(
  config: Readonly<Record<string, string>>,
  metadata: Readonly<Record<string, string>> | null,
): Record<string, string> {
  const out = { ...config, ...metadata };
  checked(out);
  return out;
}

/** How many keys there are. */
function checked(metadata: Readonly<Record<string, string>>): number {
  const { length } = Object.keys(metadata);
  if (length > MAX_KEYS)
    refuse(
      `The metadata of the request, its API key, its workspace and its config have ${length} keys together; at most ${MAX_KEYS} are allowed. Send fewer in x-gateway-metadata, or shorten the defaults.`,
    );
  return length;
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
    if (typeof item !== 'string') refuse(`x-gateway-metadata: the value of ${quotedName(key)} must be a text.`);
    if (isLonger(key, MAX_KEY)) refuse(`x-gateway-metadata holds a key that is longer than ${MAX_KEY} characters.`);
    if (isLonger(item, MAX_VALUE))
      refuse(`x-gateway-metadata: the value of ${quotedName(key)} is longer than ${MAX_VALUE} characters.`);
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
      if (key !== '__proto__' && !isLonger(value, MAX_VALUE) && !isLonger(key, MAX_KEY)) out[key] = value;
    } catch {
      // A bad escape makes the member malformed.
    }
  }
  return out;
}
