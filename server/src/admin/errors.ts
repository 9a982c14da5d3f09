/** How the administration says each failure. A kind of another plane may be thrown before a request is routed. */
import type { ErrorKind } from '../kernel/errors.ts';

export interface AdminErrorRow {
  readonly status: number;
  readonly code: `AB0${number}`;
  readonly type: 'client_error' | 'server_error';
}

const row = (status: number, code: AdminErrorRow['code']): AdminErrorRow => ({
  status,
  code,
  type: status < 500 ? 'client_error' : 'server_error',
});

export const ADMIN_ERRORS: Readonly<Record<ErrorKind, AdminErrorRow>> = {
  malformed_call: row(400, 'AB01'),
  validation: row(400, 'AB01'),
  invalid_request: row(400, 'AB01'),
  unsupported_parameter: row(400, 'AB01'),
  unsupported_operation: row(501, 'AB04'),
  inline_blocked: row(400, 'AB01'),
  too_large: row(413, 'AB01'),
  file_too_large: row(413, 'AB01'),
  uri_too_long: row(414, 'AB01'),

  unauthenticated: row(401, 'AB05'),
  forbidden: row(403, 'AB03'),
  not_found: row(404, 'AB08'),
  unknown_reference: row(404, 'AB02'),
  method_not_allowed: row(405, 'AB08'),
  conflict: row(409, 'AB07'),

  rate_limit_exceeded: row(429, 'AB06'),
  usage_limit_exceeded: row(412, 'AB01'),
  guardrail_denied: row(446, 'AB01'),
  throttled: row(429, 'AB06'),

  internal: row(500, 'AB04'),
  unexpected: row(500, 'AB04'),
  unavailable: row(503, 'AB04'),
  out_of_service: row(503, 'AB04'),
  timeout: row(408, 'AB01'),
  client_closed: row(499, 'AB01'),

  provider_error: row(502, 'AB04'),
  upstream_unreachable: row(502, 'AB04'),
  upstream_tls: row(502, 'AB04'),
  upstream_invalid: row(502, 'AB04'),
  upstream_overloaded: row(503, 'AB04'),
  upstream_cut: row(502, 'AB04'),
  upstream_idle: row(504, 'AB04'),
  upstream_silent: row(504, 'AB04'),
};

/** How the access log calls kinds, where not by their own name. */
const LOGGED: Readonly<Partial<Record<ErrorKind, string>>> = {
  malformed_call: 'bad_call',
  throttled: 'too_many_requests',
  unexpected: 'gateway_failure',
  out_of_service: 'gateway_unavailable',
};

/** The name under which the access log keeps a failure of the administration. */
export const loggedAs = (kind: ErrorKind): string => LOGGED[kind] ?? kind;
