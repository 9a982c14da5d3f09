/** How each plane says each kind of error, byte by byte: clients and their retries are built on it. */
import { describe, expect, it } from 'vitest';
import { adminError } from '../../admin/respond.ts';
import { ERROR_KINDS, type ErrorKind, SluiceError } from '../../kernel/errors.ts';
import { silentLog } from '../../kernel/log.ts';
import { errorBody } from './errors.ts';
import { streamErrorEvent } from './stream.ts';

const MESSAGE = 'Something is wrong here; do this.';
const PLANES = {
  admin: (error: SluiceError) => adminError(error, 'id', silentLog),
  openai: (error: SluiceError) => errorBody(error, 'openai'),
  anthropic: (error: SluiceError) => errorBody(error, 'anthropic'),
} as const;

const FORMS: Readonly<Record<string, (kind: ErrorKind) => SluiceError>> = {
  plain: (kind) => new SluiceError(kind, MESSAGE),
  'with a field, problems and errors': (kind) =>
    new SluiceError(kind, MESSAGE, {
      param: 'a.b',
      problems: [{ param: 'a.b', message: MESSAGE }],
      errors: ['path: a.b, message: is wrong'],
    }),
};

describe.each(Object.entries(PLANES))('%s', (_plane, say) => {
  it.each(Object.keys(FORMS))('says every kind with its status and bytes: %s', (form) => {
    const said = ERROR_KINDS.map((kind) => {
      const { status, body } = say((FORMS[form] ?? FORMS.plain)?.(kind) as SluiceError);
      return `${kind} ${status} ${body}`;
    });
    expect(said.length).toBeGreaterThan(30);
    expect(said).toMatchSnapshot();
  });
});

describe('an error that ends a stream', () => {
  it.each(['openai', 'anthropic', 'responses'] as const)('is an event of every kind: %s', (dialect) => {
    expect(
      ERROR_KINDS.map((kind) => `${kind} ${streamErrorEvent(new SluiceError(kind, MESSAGE), dialect, 7)}`),
    ).toMatchSnapshot();
  });
});

/** A plane to come, as one table and one function: the JSON-RPC 2.0 of MCP and A2A. The type asks for every kind. */
const INTERNAL = -32603;
const REFUSED = -32000;
const JSON_RPC: Readonly<Record<ErrorKind, number>> = {
  malformed_call: -32600,
  validation: -32602,
  invalid_request: -32602,
  unsupported_parameter: -32602,
  unsupported_operation: -32601,
  method_not_allowed: -32601,
  inline_blocked: REFUSED,
  too_large: REFUSED,
  file_too_large: REFUSED,
  uri_too_long: REFUSED,
  unauthenticated: REFUSED,
  forbidden: REFUSED,
  not_found: REFUSED,
  unknown_reference: REFUSED,
  conflict: REFUSED,
  rate_limit_exceeded: REFUSED,
  usage_limit_exceeded: REFUSED,
  guardrail_denied: REFUSED,
  throttled: REFUSED,
  internal: INTERNAL,
  unexpected: INTERNAL,
  unavailable: INTERNAL,
  out_of_service: INTERNAL,
  timeout: INTERNAL,
  client_closed: INTERNAL,
  provider_error: INTERNAL,
  upstream_unreachable: INTERNAL,
  upstream_tls: INTERNAL,
  upstream_invalid: INTERNAL,
  upstream_overloaded: INTERNAL,
  upstream_cut: INTERNAL,
  upstream_idle: INTERNAL,
  upstream_silent: INTERNAL,
};
const sayJsonRpc = ({ kind, message, reason, param }: SluiceError, id: number) => ({
  jsonrpc: '2.0',
  id,
  error: { code: JSON_RPC[kind], message, data: { kind, reason, param } },
});

describe('a plane with another way to say errors', () => {
  it.each(ERROR_KINDS)('adds a table and a function, and no kind: %s', (kind) => {
    const { error, ...frame } = sayJsonRpc(new SluiceError(kind, MESSAGE, { param: 'a' }), 1);
    // https://www.jsonrpc.org/specification#error_object
    expect(frame).toEqual({ jsonrpc: '2.0', id: 1 });
    expect(Object.keys(error).sort()).toEqual(['code', 'data', 'message']);
    expect(Number.isInteger(error.code) && error.code >= -32768 && error.code <= -32000).toBe(true);
    expect(error.message).toBe(MESSAGE);
    // Nothing of what another plane says is in the failure itself.
    expect(Object.keys(new SluiceError(kind, MESSAGE))).not.toContain('status');
  });
});
