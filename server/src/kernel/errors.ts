/**
 * What can fail, and nothing of how it is worded. A thrower names a kind and writes the caller's message. Each plane has
 * its own table, total over the kinds, that says status, code and body: `admin/errors.ts` and
 * `operations/dialects`. `detail` goes to the log under the request id and never to the caller.
 */
import { withoutSecrets } from './quoted.ts';

/**
 * Every kind of failure. Two kinds differ in what failed, not in who reads it: a new plane adds a table, and no kind.
 */
export const ERROR_KINDS = [
  // The call itself.
  /** The call cannot be understood before its fields are: URL, headers, framing, provider, config, custom host. */
  'malformed_call',
  /** A field, a query or a step breaks a rule of Sluice's API or of the objects that it keeps. */
  'validation',
  /** The operation, the provider or the account cannot do anything with a value, which other ones may take. */
  'invalid_request',
  /** The provider has nothing like this parameter. */
  'unsupported_parameter',
  /** The provider or model does not offer the operation. */
  'unsupported_operation',
  /** The organisation allows saved settings only, and the call brings its own. */
  'inline_blocked',
  /** The body of the request is above its limit. */
  'too_large',
  /** A file is larger than its purpose or its store allows. */
  'file_too_large',
  'uri_too_long',

  // Who asks, and for what.
  'unauthenticated',
  'forbidden',
  'not_found',
  /** A field names an object that the caller cannot use. */
  'unknown_reference',
  'method_not_allowed',
  /** The object is in a state, or has a name, that does not allow this. */
  'conflict',

  // What operators limit.
  'rate_limit_exceeded',
  'usage_limit_exceeded',
  'guardrail_denied',
  /** More requests or attempts than Sluice bears from one caller, whatever operators limit. */
  'throttled',

  // Sluice.
  /** Something holds that cannot: a fault of ours, found by a check. */
  'internal',
  /** Something threw that nothing expected. */
  'unexpected',
  /** The store, the vault, a key or a thread does not answer. */
  'unavailable',
  /** Sluice ends, has no room, or what is stored for this call cannot be used: it is not tried at all. */
  'out_of_service',
  /** A limit on time, of the request or of a call, is over. */
  'timeout',
  'client_closed',

  // Providers.
  /** A provider said that it failed; `provider` holds its own words. */
  'provider_error',
  'upstream_unreachable',
  'upstream_tls',
  /** The answer is not what its definition says. */
  'upstream_invalid',
  'upstream_overloaded',
  /** The answer ended too early. */
  'upstream_cut',
  /** The answer began to be passed on and then stopped. */
  'upstream_idle',
  /** The answer stopped before anything of it was passed on. */
  'upstream_silent',
] as const;

export type ErrorKind = (typeof ERROR_KINDS)[number];

/** Why exactly, where callers or their programs act on it; every dialect with a place for a code writes it as it is. */
export const ERROR_REASONS = [
  'inline_config_blocked',
  'inline_provider_blocked',
  'inline_custom_host_blocked',
  'inline_provider_url_blocked',
  'inline_forward_headers_blocked',
  'guardrail_not_enforced',
  'invalid_api_key',
  'invalid_dataset_row',
  'input_file_missing',
  'content_filter',
  'connect_timeout',
  'first_token_timeout',
  'model_error',
  'model_timeout',
] as const;

export type ErrorReason = (typeof ERROR_REASONS)[number];

/** What a provider said of a failure on its side. */
export interface ProviderSaid {
  readonly status: number;
  readonly type: string;
  readonly code: string | null;
}

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
  readonly reason?: ErrorReason | null;
  /** Of a `provider_error`. */
  readonly provider?: ProviderSaid | null;
  /** Whole seconds after which the caller may try again. */
  readonly retryAfter?: number | null;
  /** All that is wrong with an input, the message's own problem first; for inputs with more than one. */
  readonly problems?: readonly Problem[] | null;
  /** All that is wrong with a malformed call, as `path: …, message: …`. */
  readonly errors?: readonly string[] | null;
}

const shownProblem = ({ param, message }: Problem): Problem => ({
  param: param === null ? null : withoutSecrets(param),
  message: withoutSecrets(message),
});

/**
 * The only error type that is thrown on purpose. `message` is for the caller and must say what to do. It may repeat what
 * the caller sent: what has the form of a credential is left out here, for every answer and every line of the log.
 */
export class SluiceError extends Error {
  readonly kind: ErrorKind;
  readonly param: string | null;
  readonly detail: unknown;
  readonly reason: ErrorReason | null;
  readonly provider: ProviderSaid | null;
  readonly retryAfter: number | null;
  readonly errors: readonly string[] | null;
  readonly problems: readonly Problem[] | null;

  constructor(kind: ErrorKind, message: string, options: ErrorOptions = {}) {
    super(withoutSecrets(message), options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'SluiceError';
    this.kind = kind;
    this.param = options.param == null ? null : withoutSecrets(options.param);
    this.detail = options.detail;
    this.reason = options.reason ?? null;
    this.provider = options.provider ?? null;
    this.retryAfter = options.retryAfter ?? null;
    this.errors = options.errors?.map(withoutSecrets) ?? null;
    this.problems = options.problems?.map(shownProblem) ?? null;
  }

  /** The same failure in other words, or about another field. */
  reworded(message: string, changes: ErrorOptions = {}): SluiceError {
    return new SluiceError(this.kind, message, { ...this, cause: this.cause, ...changes });
  }
}
