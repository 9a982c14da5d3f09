import type { ProviderSaid } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import type { Dialect } from './dialect.ts';

/** An upstream error, brought to the names of the OpenAI error object. */
export interface ProviderError {
  readonly status: number;
  readonly message: string;
  readonly type: string;
  readonly param: string | null;
  readonly code: string | null;
  /** Whole seconds to wait, where the body says it and no header does. */
  readonly retryAfter?: number;
  /** What a content filter found: passed on to callers of OpenAI's shapes. */
  readonly inner?: JsonObject;
}

const RAW_CUT = 500;

interface StatusRow {
  readonly type: string;
  /** `upstream`: the upstream's own code in snake case, or null. */
  readonly code: string | null | 'upstream';
  /** Written in place of the upstream status. */
  readonly status?: number;
}

const INVALID: StatusRow = { type: 'invalid_request_error', code: 'upstream' };
const UPSTREAM_FAILURE: StatusRow = { type: 'api_error', code: null };

/** How a provider's status becomes one of ours. Statuses that are not listed fall to the row of their class. */
const BY_STATUS: Readonly<Record<number, StatusRow>> = {
  401: { type: 'authentication_error', code: 'invalid_api_key' },
  402: { type: 'billing_error', code: 'insufficient_quota' },
  403: { type: 'permission_error', code: null },
  404: { type: 'not_found_error', code: null },
  408: { type: 'timeout_error', code: null },
  409: { type: 'conflict_error', code: null },
  413: { type: 'invalid_request_error', code: 'request_too_large' },
  422: { type: 'invalid_request_error', code: 'upstream', status: 400 },
  424: { type: 'api_error', code: 'model_error', status: 502 },
  429: { type: 'rate_limit_error', code: 'rate_limit_exceeded' },
  498: { type: 'authentication_error', code: 'invalid_api_key' },
  499: { type: 'api_error', code: 'cancelled' },
  504: { type: 'timeout_error', code: null },
  529: { type: 'overloaded_error', code: 'overloaded' },
};

const rowOf = (status: number): StatusRow => BY_STATUS[status] ?? (status >= 500 ? UPSTREAM_FAILURE : INVALID);

const text = (value: JsonValue | undefined): string | null =>
  typeof value === 'string' && value !== '' ? value : null;

function snakeCase(code: JsonValue | undefined): string | null {
  if (typeof code !== 'string' || code === '') return null;
  return code
    .slice(0, 100)
    .replace(/([a-z0-9])([A-Z])/g, '$1_$2')
    .replace(/[^A-Za-z0-9]+/g, '_')
    .toLowerCase();
}

/** What a provider would say, where Sluice finds it in its stead. */
export const IN_ITS_STEAD = {
  filtered: { status: 400, type: 'invalid_request_error', code: 'content_filter' },
  unauthenticated: { status: 401, type: 'authentication_error', code: 'invalid_api_key' },
  forbidden: { status: 403, type: 'permission_error', code: null },
  missing: { status: 404, type: 'not_found_error', code: null },
  conflict: { status: 409, type: 'conflict_error', code: null },
  busy: { status: 429, type: 'api_error', code: null },
  failed: { status: 502, type: 'api_error', code: null },
} as const satisfies Readonly<Record<string, ProviderSaid>>;

/** The error as which an answer counts that its provider filtered. */
export const FILTERED: ProviderError = {
  ...IN_ITS_STEAD.filtered,
  message: 'The provider filtered the answer.',
  param: null,
};

/** A provider said that it failed, and nothing more. */
export const UNNAMED: ProviderError = {
  ...IN_ITS_STEAD.failed,
  message: 'The provider failed to answer and did not say why.',
  param: null,
};

/** Whether a provider refused the credential. AWS answers 403 where a session is over. */
export function refusesCredential(status: number, { type }: ProviderError): boolean {
  return status === 401 || type === IN_ITS_STEAD.unauthenticated.type;
}

interface Found {
  readonly message: string | null;
  readonly param: string | null;
  readonly code: string | null;
  readonly type: string | null;
}

const dotted = (loc: JsonValue | undefined): string | null => {
  if (!Array.isArray(loc)) return null;
  const parts = loc.filter((part) => part !== 'body').map(String);
  return parts.length === 0 ? null : parts.join('.');
};

/** FastAPI's validation list: the messages are joined, the first place becomes `param`. */
function ofDetails(list: JsonValue[]): Found | null {
  const rows = list.filter(isObject);
  const message = rows.map((row) => text(row.msg)).filter((part) => part !== null);
  if (message.length === 0) return null;
  return { message: message.join('; '), param: dotted(rows[0]?.loc), code: null, type: null };
}

/** Where providers put the message of an error; the first place that holds a text wins. */
function extract(body: JsonObject, depth = 0): Found {
  const { error, detail } = body;
  const flat = { param: text(body.param), code: snakeCase(body.code), type: text(body.type) };
  if (isObject(error) && text(error.message) !== null) {
    return {
      message: text(error.message),
      param: text(error.param),
      code: snakeCase(error.code) ?? snakeCase(error.status),
      type: text(error.type),
    };
  }
  const message = text(error) ?? text(body.message) ?? text(body.Message) ?? text(detail);
  if (message !== null) return { message, ...flat };
  if (Array.isArray(detail)) {
    const found = ofDetails(detail);
    if (found !== null) return found;
  }
  // Mistral's `message` may itself hold `detail`; one level is all that was ever seen.
  if (depth === 0 && isObject(body.message)) return extract(body.message, 1);
  if (depth === 0 && isObject(error)) return extract(error, 1);
  return { message: null, ...flat };
}

/** `<Message>` of an S3 or STS error, found without a parser: the element holds plain text. */
function xmlMessage(body: string): string | null {
  const from = body.indexOf('<Message>');
  const to = from < 0 ? -1 : body.indexOf('</Message>', from);
  return to < 0 ? null : body.slice(from + 9, to).slice(0, RAW_CUT);
}

/**
 * What an upstream error says, whatever its shape. `body` is the parsed JSON, or the text when it is none. Google
 * wraps errors of non-stream answers in an array of one: pass the element.
 */
export function readProviderError(status: number, body: JsonObject | string): ProviderError {
  const found: Found =
    typeof body === 'string'
      ? { message: xmlMessage(body) ?? text(body.trim().slice(0, RAW_CUT)), param: null, code: null, type: null }
      : extract(body);
  const row = rowOf(status);
  let code = row.code === 'upstream' ? found.code : row.code;
  if (status === 404 && (found.code?.includes('model') || found.message?.toLowerCase().includes('model'))) {
    code = 'model_not_found';
  }
  if (status === 429 && (found.code === 'insufficient_quota' || found.type === 'insufficient_quota')) {
    code = 'insufficient_quota';
  }
  const overloaded = status === 503 && (found.type === 'overloaded_error' || found.code === 'overloaded');
  return {
    status: row.status ?? (status >= 400 && status <= 599 ? status : 502),
    message: found.message ?? `The provider answered with status ${status} and no message.`,
    type: overloaded ? 'overloaded_error' : row.type,
    param: found.param,
    code: overloaded ? 'overloaded' : code,
  };
}

const ANTHROPIC_TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  402: 'billing_error',
  403: 'permission_error',
  404: 'not_found_error',
  408: 'timeout_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  504: 'timeout_error',
  529: 'overloaded_error',
};

/** The Anthropic error name of a status. */
export function anthropicErrorType(status: number): string {
  return ANTHROPIC_TYPES[status] ?? (status >= 500 ? 'api_error' : 'invalid_request_error');
}

/** The status behind an Anthropic error name; 500 for names that are not known. */
export function anthropicErrorStatus(type: string): number {
  if (type === 'invalid_request_error') return 400;
  if (type === 'api_error') return 500;
  for (const [status, name] of Object.entries(ANTHROPIC_TYPES)) {
    if (name === type && status !== '408') return Number(status);
  }
  return 500;
}

/** Whether a parsed error body already is what a caller of `dialect` expects, so that it may pass unchanged. */
function wellFormed(body: JsonObject, dialect: Dialect): boolean {
  const { error } = body;
  if (!isObject(error) || typeof error.message !== 'string' || typeof error.type !== 'string') return false;
  if (dialect === 'anthropic') return body.type === 'error';
  return error.code === undefined || error.code === null || typeof error.code === 'string';
}

export interface ProviderErrorInput {
  /** Status the upstream sent. */
  readonly status: number;
  /** Body the upstream sent, as text. */
  readonly raw: string;
  /** Whose error bodies the upstream speaks: the dialect of the operation its shape belongs to. */
  readonly upstream: Dialect;
  readonly caller: Dialect;
  /** The provider's own reading, where it has one (`Provider.error`). */
  readonly error?: (status: number, body: JsonObject | string) => ProviderError;
}

export interface ProviderErrorBody {
  readonly status: number;
  readonly body: string;
  readonly error: ProviderError;
}

function parsed(raw: string): JsonObject | string {
  try {
    const value: unknown = parseJson(raw);
    if (isObject(value)) return value;
    if (Array.isArray(value) && isObject(value[0])) return value[0];
  } catch {
    // Not JSON: the text itself is the message.
  }
  return raw;
}

const family = (dialect: Dialect): string => (dialect === 'anthropic' ? 'anthropic' : 'openai');

/** An upstream error as the caller's body. An error that already has the caller's shape keeps its status and its bytes. */
export function providerErrorBody(input: ProviderErrorInput): ProviderErrorBody {
  const body = parsed(input.raw);
  const error = (input.error ?? readProviderError)(input.status, body);
  const keep = typeof body !== 'string' && family(input.upstream) === family(input.caller);
  if (keep && input.status >= 400 && wellFormed(body, input.caller)) {
    return { status: input.status, body: input.raw, error: { ...error, status: input.status } };
  }
  return { status: error.status, body: JSON.stringify(errorObject(error, input.caller)), error };
}

/** The error body of a provider error in the caller's dialect. */
export function errorObject(error: ProviderError, dialect: Dialect): JsonObject {
  if (dialect === 'anthropic') {
    return { type: 'error', error: { type: anthropicErrorType(error.status), message: error.message } };
  }
  const { message, type, param, code, inner } = error;
  return { error: { message, type, param, code, ...(inner === undefined ? null : { innererror: inner }) } };
}

/**
 * The error inside a 2xx body or a stream chunk, or null: status 502 unless the body names one. Responses
 * objects carry their own `error` with a status of the job and are never read as transport errors.
 */
export function embeddedError(body: JsonObject): ProviderError | null {
  const { error } = body;
  if (error === undefined || error === null || error === false || body.object === 'response') return null;
  if (!isObject(error) && typeof error !== 'string') return null;
  const named = isObject(error) ? (error.status_code ?? error.status ?? error.code) : body.status;
  const status = typeof named === 'number' && named >= 400 && named <= 599 ? named : 502;
  const found = readProviderError(status, body);
  return status === 502 && isObject(error) && text(error.type) !== null
    ? { ...found, type: text(error.type) ?? found.type, code: snakeCase(error.code) }
    : found;
}

/** What is wrong with the request as it is: the same everywhere, or at least at the same provider. */
const BAD_REQUESTS: ReadonlySet<JsonValue | undefined> = new Set([
  'context_length_exceeded',
  'content_filter',
  'content_policy_violation',
  'invalid_prompt',
  'string_above_max_length',
]);

/** Statuses behind the names that streams give to errors, where no status is beside them. */
const BY_NAME: Readonly<Record<string, number>> = {
  invalid_request_error: 400,
  authentication_error: 401,
  insufficient_quota: 429,
  rate_limit_error: 429,
  rate_limit_exceeded: 429,
  overloaded_error: 529,
  server_error: 500,
  timeout_error: 504,
};

/** `embeddedError` of a stream's event, with the status that the same error has outside a stream, 502 when unknown. */
export function streamedError(body: JsonObject): ProviderError | null {
  const found = embeddedError(body);
  const { error } = body;
  if (found === null || !isObject(error)) return found;
  const { code, type } = error;
  if (BAD_REQUESTS.has(code)) return { ...found, status: 400, type: 'invalid_request_error', code: String(code) };
  if (found.status !== 502) return found;
  const named = (name: JsonValue | undefined): number | undefined =>
    typeof name === 'string' && Object.hasOwn(BY_NAME, name) ? BY_NAME[name] : undefined;
  return { ...found, status: named(code) ?? named(type) ?? 502 };
}
