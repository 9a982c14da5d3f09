/** The administration edge: the one place where an error becomes a body. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';
import type { Principal } from '../auth/principal.ts';
import { hasUnreadBody } from '../http/read-body.ts';
import { systemClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { JsonValue } from '../kernel/json.ts';
import type { Log } from '../kernel/log.ts';
import type { AnswerForm } from '../resources/resource.ts';
import type { AccessEntry, AccessLog } from '../telemetry/access-log.ts';
import { ADMIN_ERRORS, loggedAs } from './errors.ts';

export interface AdminAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const INTERNAL = 'Something went wrong on our side. The request id names the entry in the server log.';

/**
 * The answer for anything thrown. An unexpected error, and the detail of an expected one, goes to the log under the
 * request id and never to the caller.
 */
export function adminError(error: unknown, requestId: string, log: Log): AdminAnswer {
  const known = error instanceof SluiceError ? error : null;
  const { status, code, type } = ADMIN_ERRORS[known?.kind ?? 'internal'];
  const body = {
    error: {
      code,
      message: known && status !== 500 ? sentence(known.message) : INTERNAL,
      param: known?.param ?? null,
      type,
    },
    ...(known?.problems == null ? null : { errors: known.problems }),
  };
  if (status === 500) log.error('administration request failed', { request_id: requestId, error });
  else if (known?.detail !== undefined || known?.cause !== undefined) {
    const { detail, cause } = known;
    // The caller's answer says it all; text of the database is for maintainers who look for a fault in Sluice.
    const level = known.kind === 'conflict' || known.kind === 'unknown_reference' ? 'debug' : 'warn';
    log[level]('administration request refused', { request_id: requestId, kind: known.kind, detail, cause });
  }
  return {
    status,
    headers: {
      ...BASE_HEADERS,
      'x-gateway-request-id': requestId,
      ...(known?.retryAfter == null ? {} : { 'retry-after': String(known.retryAfter) }),
    },
    body: JSON.stringify(body),
  };
}

const sentence = (text: string): string => (/[.!?)]$/.test(text) ? text : `${text}.`);

/** Of actions that say nothing else. */
export const JSON_OK: AnswerForm = { as: 'json', status: 200 };

/** The status of a successful answer. */
export function statusOf(form: AnswerForm = JSON_OK): number {
  if (form.as === 'nothing') return 204;
  return form.as === 'text' || form.as === 'events' ? 200 : form.status;
}

/** A successful answer. `value` is what the action returned; with `text` and `redirect` a string. */
export function adminSuccess(form: AnswerForm, value: unknown, requestId: string): AdminAnswer {
  return written(form, JSON.stringify(value), { 'x-gateway-request-id': requestId });
}

/** The answer of an earlier request with the same `Idempotency-Key`, under the id of this one. */
export function adminReplay(
  form: AnswerForm,
  replay: { readonly status: number; readonly body: string },
  requestId: string,
): AdminAnswer {
  const headers = { 'x-gateway-request-id': requestId, 'idempotency-replayed': 'true' };
  return { ...written(form, replay.body, headers), status: replay.status };
}

/** @param json what the action returned, as JSON text */
function written(form: AnswerForm, json: string, own: AdminAnswer['headers']): AdminAnswer {
  const status = statusOf(form);
  const { 'content-type': _json, ...base } = BASE_HEADERS;
  const headers = { ...base, ...own };
  if (form.as === 'json') return { status, headers: { ...BASE_HEADERS, ...own }, body: json };
  if (form.as === 'nothing' || form.as === 'events') return { status, headers, body: '' };
  const text = String(JSON.parse(json) as JsonValue);
  if (form.as === 'redirect') return { status, headers: { ...headers, location: text }, body: '' };
  return { status, headers: { 'content-type': form.contentType, ...headers }, body: text };
}

/** Of every answer. */
export const BASE_HEADERS = {
  'content-type': 'application/json; charset=utf-8',
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
} as const;

/** A refusal before the body was read to its end closes the connection: the rest would be taken for the next request. */
export function send(reply: FastifyReply, answer: AdminAnswer): FastifyReply {
  if (answer.status >= 400 && hasUnreadBody(reply.request.raw)) reply.header('connection', 'close');
  return reply.code(answer.status).headers(answer.headers).send(answer.body);
}

/** The line of a request that is no call of a model. `ms` is what it took. */
export function accessEntry(
  request: IncomingMessage,
  id: string,
  answer: Pick<AdminAnswer, 'status'> & { readonly error?: unknown },
  caller: { readonly principal: Principal | null; readonly workspaceId: string | null } | null,
  ms: number,
): AccessEntry {
  const principal = caller?.principal;
  return {
    request_id: id,
    method: request.method ?? '',
    path: (request.url ?? '').split('?', 1)[0] ?? '',
    status: answer.status,
    duration_ms: Math.round(ms * 1000) / 1000,
    error: answer.error instanceof SluiceError ? loggedAs(answer.error.kind) : null,
    organisation_id: principal?.organisationId ?? null,
    workspace_id: caller?.workspaceId ?? principal?.workspaceId ?? null,
    api_key_id: principal?.keyId ?? null,
  };
}

/** Answers a request that never reached a route, or whose route threw, on the raw response. */
export function refuse(
  request: IncomingMessage,
  response: ServerResponse,
  error: unknown,
  log: Log,
  accessLog: AccessLog | null = null,
): void {
  const id = uuidv7(systemClock);
  const answer = adminError(error, id, log);
  accessLog?.write(accessEntry(request, id, { ...answer, error }, null, 0));
  if (response.headersSent) {
    response.destroy();
    return;
  }
  response.writeHead(answer.status, { ...answer.headers, 'content-length': Buffer.byteLength(answer.body) });
  response.end(request.method === 'HEAD' ? undefined : answer.body);
}
