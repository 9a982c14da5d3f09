import { isObject } from '../kernel/json.ts';
import { parseJson } from '../kernel/json-exact.ts';
import { Secret } from '../kernel/secret.ts';
import type { Credentials } from './provider.ts';

/** Shorter values are found in ordinary text, and are no credentials. */
const SHORTEST = 8;
const SECRET_NAME = /auth|key|token|secret|passw|credential|cookie|session|signature/;

/**
 * Values that travel to a provider and must not come back to a caller or into a record: its key, and the
 * operator's own headers whose name speaks of a credential, with and without their scheme.
 *
 * @param customHeaders name, value, name, value, …; names in lower case
 * @param secretSettings names of settings that are secrets (`Account.secrets`)
 */
export function secretsOf(
  credentials: Credentials,
  customHeaders: readonly string[],
  secretSettings: readonly string[] = [],
): readonly string[] {
  const out = new Set<string>();
  const add = (value: string) => {
    if (value.length < SHORTEST) return;
    out.add(value);
    // As JSON text holds it.
    out.add(JSON.stringify(value).slice(1, -1));
  };
  if (credentials.key !== null) add(credentials.key.reveal());
  // The one secret that every provider may have (`sign-in.ts`).
  for (const name of ['oauth_client_secret', ...secretSettings]) {
    const value = credentials.settings[name];
    if (typeof value === 'string') add(value);
    else if (value instanceof Secret) add(value.reveal());
    // A key file: the parts that are no secret (project, address of the account) may be shown.
    const file = typeof value === 'string' && value.startsWith('{') ? objectIn(value) : value;
    if (isObject(file) && !(file instanceof Secret))
      for (const [inner, text] of Object.entries(file))
        if (SECRET_NAME.test(inner) && typeof text === 'string') add(text);
  }
  for (let i = 0; i + 1 < customHeaders.length; i += 2) {
    if (!SECRET_NAME.test(customHeaders[i] ?? '')) continue;
    const value = customHeaders[i + 1] ?? '';
    const space = value.indexOf(' ');
    add(value);
    if (space > 0) add(value.slice(space + 1));
  }
  // Longest first, so that what contains another one goes as a whole.
  return [...out].sort((a, b) => b.length - a.length);
}

/** A key file that came as text; null for a text that is none. */
function objectIn(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return null;
  }
}

/** Headers of a call that hold a credential, also one that was made for this call or a moment before it. */
export const CREDENTIAL_HEADERS: ReadonlySet<string> = new Set([
  'authorization',
  'api-key',
  'x-api-key',
  'x-goog-api-key',
  'x-amz-security-token',
]);

/**
 * Credentials of one call that no account holds: access tokens, session tokens, signatures, and those in the query of a
 * signed address.
 */
export function secretsOfCall(headers: readonly string[], url: URL): readonly string[] {
  const out = new Set<string>();
  const add = (value: string) => {
    if (value.length < SHORTEST) return;
    out.add(value);
    out.add(JSON.stringify(value).slice(1, -1));
    if (encodeURIComponent(value) !== value) out.add(encodeURIComponent(value));
  };
  for (let i = 0; i + 1 < headers.length; i += 2) {
    if (!CREDENTIAL_HEADERS.has((headers[i] ?? '').toLowerCase())) continue;
    const value = headers[i + 1] ?? '';
    const space = value.indexOf(' ');
    add(value);
    if (space > 0) add(value.slice(space + 1));
    const signature = value.lastIndexOf('Signature=');
    if (signature >= 0) add(value.slice(signature + 'Signature='.length));
  }
  for (const [name, value] of url.searchParams) {
    if (/^(?:sig|signature)$|-(?:signature|security-token|credential)$/i.test(name)) add(value);
  }
  return [...out].sort((a, b) => b.length - a.length);
}

/**
 * `text` with every one of `secrets` replaced by `***`, also where JSON escapes spell it another way: `\/` for a slash,
 * `\u0041` for a letter, in JSON that lies inside a string of other JSON as well.
 */
export function withoutSecrets(text: string, secrets: readonly string[]): string {
  let out = text;
  for (const secret of secrets) if (out.includes(secret)) out = out.replaceAll(secret, () => '***');
  if (!out.includes('\\')) return out;
  let plain = unescaped(out);
  for (const secret of secrets) {
    const sought = unescaped(secret);
    if (sought === '' || !plain.includes(sought)) continue;
    out = withoutEscaped(out, plain, sought);
    plain = unescaped(out);
  }
  return out;
}

/** An escape of JSON, however deep the JSON lies in strings of other JSON: each level doubles the backslashes. */
const ESCAPE = /\\+(?:u([0-9a-fA-F]{4})|([\s\S]))/g;
const SHORT_ESCAPES: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };

/** Backslashes themselves are left out: how many of them mean one depends on the level. */
function undone(code: string | undefined, char: string | undefined): string {
  const out = code === undefined ? (SHORT_ESCAPES[char ?? ''] ?? char ?? '') : String.fromCharCode(parseInt(code, 16));
  return out === '\\' ? '' : out;
}

const unescaped = (text: string): string =>
  text.replace(ESCAPE, (_all, code?: string, char?: string) => undone(code, char));

/** `text` without what reads `sought` in `plain`, which is `text` unescaped. Escapes go whole, so that JSON stays JSON. */
function withoutEscaped(text: string, plain: string, sought: string): string {
  // Where each character of `plain` begins in `text`.
  const starts = new Uint32Array(plain.length + 1);
  let count = 0;
  let next = 0;
  for (const match of text.matchAll(ESCAPE)) {
    while (next < match.index) starts[count++] = next++;
    if (undone(match[1], match[2]) !== '') starts[count++] = match.index;
    next = match.index + match[0].length;
  }
  while (next <= text.length) starts[count++] = next++;
  let out = '';
  let from = 0;
  for (let at = plain.indexOf(sought); at >= 0; at = plain.indexOf(sought, at + sought.length)) {
    out += `${text.slice(from, starts[at])}***`;
    from = starts[at + sought.length] ?? text.length;
  }
  return out + text.slice(from);
}
