/**
 * What the audit log may hold of a request and of its object. A secret is never there,
 * not even in part: in its place is `*******` with 8 hexadecimal digits of a keyed digest, so that one can see that a
 * secret was changed, or that two are the same, and nothing else.
 */

import type { JsonObject, JsonValue } from '../kernel/json.ts';
import { parseJson } from '../kernel/json-exact.ts';
import { looksSecret } from '../kernel/quoted.ts';
import type { AuditedChange } from '../resources/resource.ts';
import { SCHEMA, type Table } from '../store/schema.ts';
import type { Macs } from '../store/vault.ts';

/** Longer texts are recorded by size only. */
const MAX_CHARS = 65_536;
/** Length of a column's JSON above which it is left out of an object that is too long as a whole. */
const MAX_COLUMN_CHARS = 2_048;
/** With more secrets than these a text is recorded by its size only: each costs a digest, about four microseconds. */
const MAX_MARKS = 1_000;
/** Deeper values are masked whole. */
const MAX_DEPTH = 64;
const MAX_HEADERS = 64;
const MAX_PATH = 1_024;
const MAX_HEADER_CHARS = 256;

/** What takes the place of a secret. */
export type Mark = (secret: string) => string;

/** Marks of one organisation: the same secret gets another mark elsewhere. */
export function markOf(macs: Macs, organisationId: string): Mark {
  return (secret) => {
    const { digest } = macs.mac('audit value', Buffer.from(`${organisationId}\n${secret}`, 'utf8'));
    return `*******${digest.toString('hex', 0, 4)}`;
  };
}

/** How much of a value is hidden: nothing, its texts, or its numbers too. */
type Hidden = 'none' | 'texts' | 'all';

/** Words of a field name, snake or camel case, that hide every value below it. */
const SECRET_WORDS = new Set([
  'authorization',
  'certificate',
  'cookie',
  'cookies',
  'credential',
  'credentials',
  'digest',
  'headers',
  'jwks',
  'otp',
  'passcode',
  'passphrase',
  'passwd',
  'password',
  'passwords',
  'pwd',
  'secret',
  'secrets',
  'signature',
]);

/** Words that hide texts only: `key_transition_period_ms` and the price of a `request_token` are numbers to be seen. */
const TEXT_WORDS = new Set(['bearer', 'jwt', 'key', 'keys', 'pin', 'private', 'token', 'tokens']);
/** `MASTERKEY`, `sessionkeys`, `accesstokens`: words that were written as one. */
const TEXT_ENDING = /(?:keys?|tokens)$/;
const SECRET_ENDING = /(?:secret|password|passwd|passphrase|credentials?|apikey|accesskey|privatekey|token)$/;
/** Anywhere in a name, however it is cut into words: `passWord2`, `SECRETKEY`, `client-secrets_old`. */
const SECRET_WITHIN = /secret|passw(?:or)?d|passphrase|credential/;

/** Fields of the contract that sound secret and hold names, references or settings. Their values are looked at all the same. */
const PLAIN_NAMES = new Set([
  'api_key_details',
  'api_key_id',
  'api_key_ids',
  'default_workspace_user_api_key_auto_create',
  'include_credentials',
  'jwks_uri',
  'key_transition_expires_at',
  'oauth_token_endpoint',
  'old_key_masked',
  'private_link_endpoint',
  'secret_mappings',
  'secret_reference_id',
  'secret_references',
  'token_endpoint',
  'token_endpoint_auth_method',
  'token_type',
  'user_api_key_auto_create',
  'user_api_key_auto_create_scopes',
  'user_api_key_config',
  'user_api_key_rotation_period',
  'user_key_metadata',
  'user_key_metadata_override',
  'virtual_key',
  'virtual_key_id',
  'virtual_keys',
  'workspace_api_key_details',
]);

/** Names of people, and texts of callers that may be one: what was asked to be erased must not stay in the record of the deed. */
const PERSONAL_NAMES = new Set(['end_user', 'trace_id']);

const snakeOf = (name: string): string => name.replace(/([a-z0-9])([A-Z])/g, '$1_$2').toLowerCase();

function hiddenBy(name: string): Hidden {
  const snake = snakeOf(name);
  if (PLAIN_NAMES.has(snake)) return 'none';
  if (PERSONAL_NAMES.has(snake)) return 'texts';
  if (SECRET_WITHIN.test(snake.replace(/[^a-z]/g, ''))) return 'all';
  let hidden: Hidden = 'none';
  for (const numbered of snake.split(/[^a-z0-9]+/)) {
    const word = numbered.replace(/(?<!\d)\d+$/, '');
    if (SECRET_WORDS.has(word)) return 'all';
    if (TEXT_WORDS.has(word)) hidden = 'texts';
    else if (SECRET_ENDING.test(word)) return 'all';
    else if (TEXT_ENDING.test(word)) hidden = 'texts';
  }
  return hidden;
}

/** What is known of the name of a field. */
interface Name {
  /** The name itself, or its mark where it looks like a secret. */
  readonly shown: string;
  readonly hidden: Hidden;
  readonly snake: string;
}

class TooLong extends Error {}

/** Masks one value, and gives up as soon as its JSON is sure to be longer than what is recorded. */
class Masking {
  readonly #mark: Mark;
  #left = MAX_CHARS;
  #marks = MAX_MARKS;
  readonly #names = new Map<string, Name>();

  constructor(mark: Mark) {
    this.#mark = mark;
  }

  /** Counts characters that the JSON has at least. Throws TooLong. */
  spend(characters: number): void {
    this.#left -= characters;
    if (this.#left < 0) throw new TooLong();
  }

  /** The mark of a secret, whose characters are not counted yet. Throws TooLong. */
  readonly mark: Mark = (secret) => {
    this.#marks -= 1;
    if (this.#marks < 0) throw new TooLong();
    return this.#mark(secret);
  };

  marked(secret: string): string {
    const mark = this.mark(secret);
    this.spend(mark.length + 2);
    return mark;
  }

  /** Looked at once: names repeat in every item of a list. */
  named(name: string): Name {
    let known = this.#names.get(name);
    if (known === undefined) {
      known = { shown: looksSecret(name) ? this.mark(name) : name, hidden: hiddenBy(name), snake: snakeOf(name) };
      this.#names.set(name, known);
    }
    return known;
  }
}

/** JSON text of a request body or of query parameters; null stays null. */
export function maskedBody(body: JsonObject | readonly JsonValue[] | null, mark: Mark): string | null {
  if (body === null) return null;
  return maskedJson(body as JsonValue, mark) ?? omitted(JSON.stringify(body).length);
}

/** JSON text of a value without its secrets; null where it is longer than what is recorded. */
function maskedJson(value: JsonValue, mark: Mark): string | null {
  try {
    const text = JSON.stringify(mask(value, 'none', new Masking(mark), 0));
    return text.length <= MAX_CHARS ? text : null;
  } catch (error) {
    if (!(error instanceof TooLong)) throw error;
    return null;
  }
}

/** A path as it was called, without its query; the column is indexed, so it is short. */
export function maskedPath(path: string, mark: Mark): string {
  return path
    .slice(0, MAX_PATH)
    .split('/')
    .map((part) => (looksSecret(part) || looksSecret(decoded(part)) ? mark(part) : part))
    .join('/')
    .slice(0, MAX_PATH);
}

/** A text without its percent escapes, byte by byte: the secrets that are looked for are ASCII, and no bad escape beside them may hide one. */
function decoded(part: string): string {
  return part.replace(/%[0-9a-f]{2}/gi, (byte) => String.fromCharCode(Number.parseInt(byte.slice(1), 16)));
}

function bounded(text: string): string {
  return text.length <= MAX_CHARS ? text : omitted(text.length);
}

const omitted = (characters: number): string => JSON.stringify({ omitted: `${characters} characters` });

/** Fields whose values are addresses of webhooks: who has path and query may call them. */
const SECRET_URLS = new Set(['alert_webhook_url', 'log_url', 'webhook_url']);

/** Names of other addresses, `custom_host` and `aws_sts_endpoint` among them: who they lead to is to be seen, the rest is not. */
const ADDRESS = /(?:^|_)(?:host|url|endpoint|issuer)$/;

function maskedUrl(value: string, mark: Mark): string {
  const origin = originOf(value);
  return origin === null ? mark(value) : `${origin}/${mark(value)}`;
}

/** Scheme, host and port of an http address, or null. */
function originOf(value: string): string | null {
  const origin = /^\s*https?:/i.test(value) ? URL.parse(value)?.origin : undefined;
  return origin ?? null;
}

/** What a text in a field with this name is recorded as where the field holds an address; null where it holds none. */
function maskedAddress(snake: string, value: string, mark: Mark): string | null {
  if (SECRET_URLS.has(snake)) return maskedUrl(value, mark);
  const origin = ADDRESS.test(snake) ? originOf(value) : null;
  if (origin === null) return null;
  return value === origin || value === `${origin}/` ? origin : maskedUrl(value, mark);
}

function mask(value: JsonValue | undefined, hidden: Hidden, to: Masking, depth: number): JsonValue {
  if (typeof value === 'string') return hidden === 'none' ? maskText(value, to, depth) : to.marked(value);
  if (typeof value === 'number' && hidden === 'all') return to.marked(String(value));
  if (value === null || typeof value !== 'object') {
    to.spend(1);
    return value ?? null;
  }
  if (depth >= MAX_DEPTH) return to.marked(depthless(value));
  to.spend(2);
  if (Array.isArray(value)) {
    // The commas.
    to.spend(Math.max(0, value.length - 1));
    return value.map((item) => mask(item, hidden, to, depth + 1));
  }
  const out = new Map<string, JsonValue>();
  for (const name of Object.keys(value)) {
    const item = value[name];
    // JSON has no such member; objects that are no JSON yet may have it.
    if (item === undefined) continue;
    const { shown, hidden: said, snake } = to.named(name);
    const address = typeof item === 'string' && hidden === 'none' ? maskedAddress(snake, item, to.mark) : null;
    if (address !== null) {
      to.spend(address.length);
      out.set(name, address);
      continue;
    }
    const own = hidden === 'all' ? 'all' : said;
    const inside = own === 'none' ? hidden : own;
    to.spend(shown.length + 3);
    out.set(shown, mask(item, inside, to, depth + 1));
  }
  // `fromEntries`, because a field may be called `__proto__`.
  return Object.fromEntries(out);
}

/** What is nested too deeply to be looked at can be too deep for JSON.stringify as well. */
function depthless(value: JsonValue[] | JsonObject): string {
  try {
    return JSON.stringify(value);
  } catch {
    return '';
  }
}

/** A text that is JSON itself, as configs may be sent, once or twice over, is masked like the object it holds. */
function maskText(text: string, to: Masking, depth: number): string {
  // It is not looked at: whatever it holds, it is recorded by its size.
  if (text.length > MAX_CHARS) throw new TooLong();
  const [, first] = /^\s*([[{"])/.exec(text) ?? [];
  if (first !== undefined) {
    let parsed: JsonValue | undefined;
    try {
      parsed = parseJson(text);
    } catch {
      if (first !== '"') return to.marked(text);
    }
    if (parsed !== undefined)
      return JSON.stringify(depth < MAX_DEPTH ? mask(parsed, 'none', to, depth + 1) : to.marked(text));
  }
  if (holdsSecret(text)) return to.marked(text);
  to.spend(text.length + 2);
  return text;
}

/** Whether a text looks secret as it is, without its backslashes, or without its percent escapes. */
function holdsSecret(text: string): boolean {
  if (looksSecret(text)) return true;
  const plain = text.includes('\\') ? text.replaceAll('\\', '') : text;
  if (plain !== text && looksSecret(plain)) return true;
  return plain.includes('%') && looksSecret(decoded(plain));
}

/** JSON texts of an object before and after, secrets masked by column, by name and by look. */
export function maskedChange(
  change: AuditedChange | null,
  mark: Mark,
): { before: string | null; after: string | null } {
  const one = (object: AuditedChange['before']) => (object ? maskedObject(object, change?.table ?? null, mark) : null);
  return { before: one(change?.before ?? null), after: one(change?.after ?? null) };
}

function maskedObject(object: object, table: AuditedChange['table'] | null, mark: Mark) {
  const columns = table ? (SCHEMA[table] as Table).columns : {};
  const masked = Object.entries(object).map(([name, value]): [string, string] => {
    const kind = columns[name]?.kind;
    if (kind === 'sealed' && typeof value === 'string') return [name, JSON.stringify(mark(value))];
    if (kind === 'time' && typeof value === 'number') return [name, JSON.stringify(new Date(value).toISOString())];
    const json = JSON.stringify(value) ?? 'null';
    // Most long values are too long without their secrets, too, and a copy of them takes longest.
    if (json.length > MAX_CHARS && maskedJson({ [name]: value as JsonValue }, mark) === null)
      return [name, JSON.stringify({ omitted: `${json.length} characters ${mark(json)}` })];
    const field = maskedJson({ [name]: JSON.parse(json) as JsonValue }, mark);
    if (field !== null) return [name, JSON.stringify(Object.values(JSON.parse(field) as JsonObject)[0] ?? null)];
    return [name, JSON.stringify({ omitted: `${json.length} characters ${mark(json)}` })];
  });
  const text = (limit: number) =>
    `{${masked
      .map(([name, json]) => {
        const shown =
          json.length <= limit ? json : JSON.stringify({ omitted: `${json.length} characters ${mark(json)}` });
        return `${JSON.stringify(name)}:${shown}`;
      })
      .join()}}`;
  const whole = text(Number.POSITIVE_INFINITY);
  return whole.length <= MAX_CHARS ? whole : bounded(text(MAX_COLUMN_CHARS));
}

/** Headers whose value may be seen; of the others it is only known that they were sent, and whether the same. */
const SHOWN_HEADERS = new Set([
  'accept',
  'accept-encoding',
  'accept-language',
  'connection',
  'content-encoding',
  'content-length',
  'content-type',
  'forwarded',
  'host',
  'origin',
  'sec-fetch-mode',
  'sec-fetch-site',
  'traceparent',
  'transfer-encoding',
  'user-agent',
  'via',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-gateway-trace-id',
  'x-request-id',
]);

/**
 * JSON text of the headers of a request, names in lower case.
 *
 * @param rawHeaders `IncomingMessage.rawHeaders`: name, value, name, value, …
 */
export function maskedHeaders(rawHeaders: readonly string[], mark: Mark): string {
  const out = new Map<string, string>();
  for (let i = 0; i + 1 < rawHeaders.length && out.size < MAX_HEADERS; i += 2) {
    const name = (rawHeaders[i] ?? '').toLowerCase();
    const value = rawHeaders[i + 1] ?? '';
    const shown = SHOWN_HEADERS.has(name) && !looksSecret(value) ? value.slice(0, MAX_HEADER_CHARS) : mark(value);
    const before = out.get(name);
    const safeName = looksSecret(name) || name.length > 128 ? mark(name) : name;
    out.set(safeName, before === undefined ? shown : `${before}, ${shown}`.slice(0, MAX_HEADER_CHARS));
  }
  return JSON.stringify(Object.fromEntries(out));
}
