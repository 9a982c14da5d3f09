/** How OpenAI's dialect says each failure. The other dialects of the data plane have its statuses, too. */
import type { ErrorKind } from '../../kernel/errors.ts';

export interface ErrorRow {
  readonly status: number;
  readonly type: string;
  readonly code: string | null;
  /**
   * - `object`: `{"error":{…}}`
   * - `failure`: `{"status":"failure","error":{…},"message","errors"?}`, for calls that never became one of a model
   * - `blocked`: the same with `"error":{"code","message","field"}`
   */
  readonly body: 'object' | 'failure' | 'blocked';
}

const ours = (status: number, code: string): ErrorRow => ({
  status,
  type: status < 500 ? 'client_error' : 'server_error',
  code,
  body: 'object',
});
const failure = (status: number, type: string): ErrorRow => ({ status, type, code: null, body: 'failure' });
const row = (status: number, type: string, code: string | null = null): ErrorRow => ({
  status,
  type,
  code,
  body: 'object',
});

export const OPENAI_ERRORS: Readonly<Record<ErrorKind, ErrorRow>> = {
  malformed_call: failure(400, 'invalid_request_error'),
  validation: ours(400, 'AB01'),
  invalid_request: row(400, 'invalid_request_error'),
  unsupported_parameter: row(400, 'invalid_request_error', 'unsupported_parameter'),
  unsupported_operation: row(501, 'invalid_request_error', 'unsupported_operation'),
  inline_blocked: { status: 400, type: 'invalid_request_error', code: null, body: 'blocked' },
  too_large: failure(413, 'invalid_request_error'),
  file_too_large: ours(413, 'AB01'),
  uri_too_long: ours(414, 'AB01'),

  unauthenticated: ours(401, 'AB05'),
  forbidden: ours(403, 'AB03'),
  not_found: ours(404, 'AB08'),
  unknown_reference: ours(404, 'AB02'),
  method_not_allowed: ours(405, 'AB08'),
  conflict: ours(409, 'AB07'),

  rate_limit_exceeded: row(429, 'rate_limit_exceeded', '429'),
  usage_limit_exceeded: row(412, 'usage_limit_exceeded', '412'),
  guardrail_denied: row(446, 'hooks_failed'),
  throttled: ours(429, 'AB06'),

  internal: ours(500, 'AB04'),
  unexpected: failure(500, 'api_error'),
  unavailable: ours(503, 'AB04'),
  out_of_service: failure(503, 'api_error'),
  timeout: row(408, 'timeout_error'),
  client_closed: row(499, 'api_error', 'cancelled'),

  provider_error: row(502, 'api_error'),
  upstream_unreachable: row(502, 'api_error', 'upstream_unreachable'),
  upstream_tls: row(502, 'api_error', 'upstream_tls_error'),
  upstream_invalid: row(502, 'api_error', 'upstream_invalid_response'),
  upstream_overloaded: row(503, 'overloaded_error', 'overloaded'),
  upstream_cut: row(502, 'api_error', 'upstream_stream_cut'),
  upstream_idle: row(504, 'timeout_error', 'upstream_idle_timeout'),
  // As every limit on time, while the status is open.
  upstream_silent: row(408, 'timeout_error', 'upstream_idle_timeout'),
};
