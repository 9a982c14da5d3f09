/**
 * The one table of what can go wrong. A thrower names a kind and writes the caller's message; status, code and type
 * follow from the table. `detail` goes to the log under the request id and never to the caller. Bodies are built only
 * at the two edges: `admin/respond.ts` and `operations/dialects`.
 */

/** How an error body is shaped on the data plane: see the docstring of each shape in `operations/dialects/errors.ts`. */
export type ErrorShape = 'admin' | 'failure' | 'openai';

interface ErrorRow {
  readonly status: number;
  /** `AB01`…`AB09` for the admin shape, the OpenAI `code` (or null) for the openai shape. */
  readonly code: string | null;
  readonly type: string;
  readonly shape: ErrorShape;
}

const client = (status: number, code: string): ErrorRow => ({ status, code, type: 'client_error', shape: 'admin' });
const server = (status: number, code: string): ErrorRow => ({ status, code, type: 'server_error', shape: 'admin' });
const openai = (status: number, type: string, code: string | null): ErrorRow => ({
  status,
  code,
  type,
  shape: 'openai',
});
const failure = (status: number): ErrorRow => ({ status, code: null, type: 'invalid_request_error', shape: 'failure' });

export const ERRORS = {
  validation: client(400, 'AB01'),
  unknown_reference: client(404, 'AB02'),
  forbidden: client(403, 'AB03'),
  internal: server(500, 'AB04'),
  unavailable: server(503, 'AB04'),
  unauthenticated: client(401, 'AB05'),
  too_many_requests: client(429, 'AB06'),
  conflict: client(409, 'AB07'),
  not_found: client(404, 'AB08'),
  method_not_allowed: client(405, 'AB08'),
  plan_exhausted: client(402, 'AB09'),
  too_large: client(413, 'AB01'),
  uri_too_long: client(414, 'AB01'),

  /** Data plane: the call itself cannot be understood (content type, provider, config, custom host). */
  bad_call: failure(400),
  bad_call_too_large: failure(413),
  /** Data plane: saved-only mode; `code` and `field` of the thrown error are sent along. */
  inline_blocked: failure(400),
  gateway_failure: { status: 500, code: null, type: 'api_error', shape: 'failure' },
  gateway_unavailable: { status: 503, code: null, type: 'api_error', shape: 'failure' },

  invalid_request: openai(400, 'invalid_request_error', null),
  unsupported_parameter: openai(400, 'invalid_request_error', 'unsupported_parameter'),
  unsupported_operation: openai(501, 'invalid_request_error', 'unsupported_operation'),
  timeout: openai(408, 'timeout_error', null),
  usage_limit_exceeded: openai(412, 'usage_limit_exceeded', '412'),
  rate_limit_exceeded: openai(429, 'rate_limit_exceeded', '429'),
  hooks_failed: openai(446, 'hooks_failed', null),
  client_closed: openai(499, 'api_error', 'cancelled'),
  /** What a provider answered on a call of ours; status, type and code of the thrown error are the provider's. */
  provider_error: openai(502, 'api_error', null),
  upstream_unreachable: openai(502, 'api_error', 'upstream_unreachable'),
  upstream_tls: openai(502, 'api_error', 'upstream_tls_error'),
  upstream_invalid: openai(502, 'api_error', 'upstream_invalid_response'),
  upstream_overloaded: openai(503, 'overloaded_error', 'overloaded'),
  upstream_cut: openai(502, 'api_error', 'upstream_stream_cut'),
  upstream_idle: openai(504, 'timeout_error', 'upstream_idle_timeout'),
} as const satisfies Record<string, ErrorRow>;

export type ErrorKind = keyof typeof ERRORS;

/** One thing wrong with an input, as a whole sentence. */
export interface Problem {
  /** Dotted path of the field; null for the input as a whole. */
  readonly param: string | null;
  readonly message: string;
}

export interface ErrorOptions {
  /** Dotted path of the field at fault, for example `actions.on_fail.feedback.value`; null when not field-specific. */
  readonly param?: string | null;
  /** For the log only. */
  readonly detail?: unknown;
  readonly cause?: unknown;
  /** Overrides the row's code (saved-only mode, upstream codes). */
  readonly code?: string;
  /** Overrides the row's status and type (`provider_error`). */
  readonly status?: number;
  readonly type?: string;
  /** Whole seconds for a `Retry-After` header. */
  readonly retryAfter?: number;
  /** All that is wrong with an input, the message's own problem first; for inputs with more than one. */
  readonly problems?: readonly Problem[];
  /** `errors` list of the failure shape: `path: …, message: …`. */
  readonly errors?: readonly string[];
}

/** The only error type that is thrown on purpose. `message` is for the caller and must say what to do. */
export class SluiceError extends Error {
  readonly kind: ErrorKind;
  readonly param: string | null;
  readonly detail: unknown;
  readonly code: string | null;
  readonly retryAfter: number | null;
  readonly errors: readonly string[] | null;
  readonly problems: readonly Problem[] | null;
  readonly status: number;
  readonly type: string;

  constructor(kind: ErrorKind, message: string, options: ErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'SluiceError';
    this.kind = kind;
    this.param = options.param ?? null;
    this.detail = options.detail;
    this.code = options.code ?? ERRORS[kind].code;
    this.retryAfter = options.retryAfter ?? null;
    this.errors = options.errors ?? null;
    this.problems = options.problems ?? null;
    this.status = options.status ?? ERRORS[kind].status;
    this.type = options.type ?? ERRORS[kind].type;
  }

  /** The same failure in other words. */
  reworded(message: string): SluiceError {
    return Object.assign(new SluiceError(this.kind, message), { ...this });
  }
}
