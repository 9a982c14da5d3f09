/** How the OAuth server says failures: `{error, error_description}` (RFC 6749 §5.2, RFC 7591 §3.2.2, RFC 8628 §3.5). */
import { type ErrorKind, type ErrorOptions, SluiceError } from '../kernel/errors.ts';

/** Codes that clients act on. */
export type OAuthCode =
  | 'access_denied'
  | 'authorization_pending'
  | 'expired_token'
  | 'invalid_client'
  | 'invalid_client_metadata'
  | 'invalid_grant'
  | 'invalid_redirect_uri'
  | 'invalid_request'
  | 'invalid_scope'
  | 'invalid_target'
  | 'server_error'
  | 'slow_down'
  | 'temporarily_unavailable'
  | 'unauthorized_client'
  | 'unsupported_grant_type'
  | 'unsupported_response_type';

/** A failure with a code of its protocol, which is finer than its kind. */
export class OAuthError extends SluiceError {
  readonly oauth: OAuthCode;

  constructor(oauth: OAuthCode, message: string, options: ErrorOptions = {}) {
    super(oauth === 'invalid_client' ? 'unauthenticated' : 'invalid_request', message, options);
    this.oauth = oauth;
  }
}

const row = (status: number, code: OAuthCode) => ({ status, code });
const asked = row(400, 'invalid_request');
const failed = row(500, 'server_error');
const busy = row(503, 'temporarily_unavailable');

/** Kinds as this protocol says them; those of calls to providers do not happen here. */
const ERRORS: Readonly<Record<ErrorKind, { readonly status: number; readonly code: OAuthCode }>> = {
  malformed_call: asked,
  validation: asked,
  invalid_request: asked,
  unsupported_parameter: asked,
  unsupported_operation: asked,
  inline_blocked: asked,
  too_large: row(413, 'invalid_request'),
  file_too_large: row(413, 'invalid_request'),
  uri_too_long: row(414, 'invalid_request'),
  unauthenticated: row(401, 'invalid_client'),
  forbidden: row(403, 'access_denied'),
  not_found: row(404, 'invalid_request'),
  unknown_reference: row(404, 'invalid_request'),
  method_not_allowed: row(405, 'invalid_request'),
  conflict: row(409, 'invalid_request'),
  rate_limit_exceeded: row(429, 'temporarily_unavailable'),
  usage_limit_exceeded: row(429, 'temporarily_unavailable'),
  guardrail_denied: row(403, 'access_denied'),
  throttled: row(429, 'temporarily_unavailable'),
  internal: failed,
  unexpected: failed,
  unavailable: busy,
  out_of_service: busy,
  timeout: row(408, 'invalid_request'),
  client_closed: row(499, 'invalid_request'),
  provider_error: failed,
  upstream_unreachable: failed,
  upstream_tls: failed,
  upstream_invalid: failed,
  upstream_overloaded: busy,
  upstream_cut: failed,
  upstream_idle: failed,
  upstream_silent: failed,
};

/** What a client is answered. Anything but a `SluiceError` is a fault of ours, whose text stays inside. */
export function oauthError(error: unknown): {
  readonly status: number;
  readonly retryAfter: number | null;
  readonly body: { readonly error: OAuthCode; readonly error_description: string };
} {
  const known = error instanceof SluiceError ? error : null;
  const { status, code } = ERRORS[known?.kind ?? 'unexpected'];
  const message =
    known !== null && status !== 500
      ? known.message
      : 'Something went wrong on our side. The request id names the entry in the server log.';
  return {
    status,
    retryAfter: known?.retryAfter ?? null,
    body: { error: known instanceof OAuthError ? known.oauth : code, error_description: ascii(message) },
  };
}

/** RFC 6749 allows printable ASCII without `"` and `\` in descriptions. */
const ascii = (text: string): string => text.replace(/[’‘]/g, "'").replace(/["\\]|[^ -~]/g, ' ');
