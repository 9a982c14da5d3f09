/** A plane that proves that the shared area suffices for one: POST /echo {text} answers {text}. */
import type { Call, CallKind } from '../../src/gateway/call.ts';
import { GuardrailState } from '../../src/gateway/guardrail-state.ts';
import { type CallAnswer, runCall } from '../../src/gateway/non-model-call.ts';
import type { Plane } from '../../src/gateway/plane.ts';
import type { GatewayServices } from '../../src/gateway/services.ts';
import { judge } from '../../src/gateway/tool-call-guardrails.ts';
import type { Phase, Replacement, Subject } from '../../src/guardrails/check.ts';
import { type ErrorKind, SluiceError } from '../../src/kernel/errors.ts';
import { isObject, type JsonObject } from '../../src/kernel/json.ts';
import { parseJson } from '../../src/kernel/json-exact.ts';

/** How this plane says each failure. */
const STATUS: Readonly<Record<ErrorKind, number>> = {
  malformed_call: 400,
  validation: 400,
  invalid_request: 400,
  unsupported_parameter: 400,
  unsupported_operation: 501,
  inline_blocked: 400,
  too_large: 413,
  file_too_large: 413,
  uri_too_long: 414,
  unauthenticated: 401,
  forbidden: 403,
  not_found: 404,
  unknown_reference: 404,
  method_not_allowed: 405,
  conflict: 409,
  rate_limit_exceeded: 429,
  usage_limit_exceeded: 412,
  guardrail_denied: 446,
  throttled: 429,
  internal: 500,
  unexpected: 500,
  unavailable: 503,
  out_of_service: 503,
  timeout: 408,
  client_closed: 499,
  provider_error: 502,
  upstream_unreachable: 502,
  upstream_tls: 502,
  upstream_invalid: 502,
  upstream_overloaded: 503,
  upstream_cut: 502,
  upstream_idle: 504,
  upstream_silent: 504,
};

const ECHO: CallKind = {
  source: 'echo',
  operation: 'echo',
  scope: 'completions.write',
  errorBody(error, extra) {
    const { message, kind } = error;
    return { status: STATUS[kind], body: JSON.stringify({ error: { message, code: kind }, ...extra }) };
  },
};
/** What an echo costs: a dollar, in micro-dollars. */
const COST = 1_000_000;
const FACTS = { endpoint_type: 'echo' };

/** `slow`: resolves when an echo that asks to be slow may answer. */
export const echoPlane =
  (slow: () => Promise<void> = async () => {}) =>
  (gateway: GatewayServices): Plane => ({
    name: ECHO.source,
    prefixes: ['/echo'],
    open(routes) {
      routes.serve(['POST'], '/echo', (request, response) => {
        void runCall(gateway, ECHO, request, response, (call) => echo(call, slow));
      });
    },
  });

async function echo(call: Call, slow: () => Promise<void>): Promise<CallAnswer> {
  const asked = textOf(await call.body());
  await call.admit(FACTS, 'llm');
  await call.reserve(FACTS, { name: 'echo', cost: COST, tokens: asked.text.length, bounded: true });
  const sent = await judged(call, 'input', asked.text);
  call.use = { cost: COST, tokens: sent.length };
  if (asked.slow) await slow();
  const said = await judged(call, 'output', sent);
  call.detail = { characters: said.length };
  return { status: 200, contentType: 'application/json', body: Buffer.from(JSON.stringify({ text: said })) };
}

function textOf(body: Buffer): { readonly text: string; readonly slow: boolean } {
  let value: unknown;
  try {
    value = parseJson(body.toString('utf8'));
  } catch {
    value = null;
  }
  if (!isObject(value) || typeof value.text !== 'string') {
    throw new SluiceError('invalid_request', 'Send {"text": "…"}.', { param: 'text' });
  }
  return { text: value.text, slow: value.slow === true };
}

/** The text after the guardrails of the workspace's defaults, as they have changed it. */
async function judged(call: Call, phase: Phase, text: string): Promise<string> {
  const lists = call.snapshot?.guardrails;
  if (lists === undefined || lists[phase].length === 0) return text;
  call.guardrails ??= new GuardrailState(call.services, call, lists);
  const { clock } = call.services;
  const { replacements } = await judge(call.guardrails, phase, subjectOf(call, phase, text), {
    clock,
    signal: call.signal,
  });
  return replacements.findLast(({ path }: Replacement) => path === 'text')?.text ?? text;
}

function subjectOf(call: Call, phase: Phase, text: string): Subject {
  const json: JsonObject = { text };
  return {
    phase,
    window: null,
    texts: [{ path: 'text', role: phase === 'input' ? 'user' : 'assistant', text }],
    latest: () => text,
    request: () => json,
    answer: () => (phase === 'input' ? undefined : json),
    callsTools: false,
    model: null,
    provider: null,
    requestType: 'echo',
    streams: false,
    transformed: false,
    status: phase === 'input' ? null : 200,
    metadata: call.metadata ?? {},
    header: (name) => call.header(name),
  };
}
