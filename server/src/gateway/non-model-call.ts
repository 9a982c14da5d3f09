/**
 * The frame of a call that is no request of a model: authenticate → enter → pin the snapshot → the plane's own work →
 * settle → record → the end of the answer. Whatever fails becomes the plane's error, and every call leaves one record.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Principal } from '../auth/principal.ts';
import { clientAddress } from '../http/client-address.ts';
import { hasUnreadBody } from '../http/read-body.ts';
import { type ErrorKind, SluiceError } from '../kernel/errors.ts';
import { pathOnly } from '../kernel/path-only.ts';
import { LimitRefused } from '../limits/limit-refused.ts';
import { recordedAs } from '../operations/dialects/errors.ts';
import { entryOf } from '../telemetry/access-log.ts';
import { Call, type CallKind } from './call.ts';
import { takeConcurrency } from './concurrency.ts';
import { gatewayCredential } from './credential.ts';
import { finish } from './finish.ts';
import { guardsOf, hookResults } from './guardrail-state.ts';
import { copiedHeaders, metadataOf } from './metadata.ts';
import { settleCall } from './non-model-call-limits.ts';
import type { Ending } from './outcome.ts';
import { pinSnapshot } from './pin-snapshot.ts';
import { headOf, recordOf } from './record.ts';
import type { ContextHead } from './request-context.ts';
import type { GatewayServices } from './services.ts';
import { noCredential } from './unread-headers.ts';

/** A whole answer. */
export interface CallAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: Buffer;
}

/** Answers a call; what it throws becomes the plane's error. */
export type CallWork = (call: Call) => Promise<CallAnswer>;

/** Kinds that mean that something failed; by all others Sluice refuses. */
const FAILURES: ReadonlySet<ErrorKind> = new Set([
  'internal',
  'unexpected',
  'timeout',
  'provider_error',
  'upstream_unreachable',
  'upstream_tls',
  'upstream_invalid',
  'upstream_overloaded',
  'upstream_cut',
  'upstream_idle',
  'upstream_silent',
]);
/** Kinds whose answer may say how a caller gets a token. */
const CHALLENGED: ReadonlySet<ErrorKind> = new Set(['unauthenticated', 'forbidden']);
const UNRECORDED_S = 2;
/** How access tokens of the OAuth server begin. */
const ACCESS_TOKEN = 'slc_oat_';

/** Runs one call to the end of its answer. Never rejects. */
export function runCall(
  services: GatewayServices,
  kind: CallKind,
  incoming: IncomingMessage,
  response: ServerResponse,
  work: CallWork,
): Promise<void> {
  return services.inFlight.run(new Call(services, kind, incoming), (call) => run(call, response, work));
}

async function run(call: Call, response: ServerResponse, work: CallWork): Promise<void> {
  const { services, outcome } = call;
  const left = () => {
    if (!response.writableFinished) call.cancel(new SluiceError('client_closed', 'The client closed the connection.'));
  };
  response.on('close', left);
  try {
    const answer = await unlessEnded(
      call,
      begin(call).then(() => work(call)),
    );
    outcome.status = answer.status;
    outcome.ending = whole(call, answer, []);
    // Work that was ended may still read it.
    call.giveBody();
  } catch (error) {
    fail(call, error);
  }
  try {
    await settleCall(services, call.limits, call.use);
    if (call.use !== null) outcome.costMicros = call.use.cost;
  } catch (error) {
    services.log.error('a call could not be settled', { request_id: call.id, error: String(error) });
  }
  await record(call, response);
  response.off('close', left);
  if (call.entered) services.concurrency.give(call.organisationId);
  if (call.bodyHeld > 0) services.bodies.release(call.organisationId, call.bodyHeld);
}

/** The plane's work does not have to look at the signal for its call to end with it. */
function unlessEnded<T>({ signal }: Call, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const end = () => reject(signal.reason);
    if (signal.aborted) end();
    signal.addEventListener('abort', end, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', end));
  });
}

/** What no plane does by itself: nothing is asked or begun for a caller that is not known. */
async function begin(call: Call & ContextHead): Promise<void> {
  const { services } = call;
  const token = gatewayCredential(call.incoming, call);
  if (token === null) throw new SluiceError('unauthenticated', noCredential(call.incoming.headers));
  const address = clientAddress(call.incoming);
  const resource = token.startsWith(ACCESS_TOKEN) ? call.kind.resource?.(call.incoming) : undefined;
  call.principal = await (resource === undefined
    ? services.authenticator.authenticate(token, address)
    : services.accessTokens.authenticate(token, resource, address));
  authorise(call.principal, call.kind.scope);
  takeConcurrency(services, call.organisationId);
  call.entered = true;
  await pinSnapshot(services.runtime, call);
  if (call.snapshot !== null) {
    const copied = copiedHeaders(call, services.headersToMetadata);
    call.metadata = metadataOf(call, call.snapshot, copied, undefined);
  }
  if (services.unrecorded === 'refuse' && services.recorder.failing) {
    throw new SluiceError(
      'out_of_service',
      'Sluice cannot write request records at the moment, so it takes no new requests. Try again in a few seconds.',
      { retryAfter: UNRECORDED_S, detail: 'the journal cannot be written; see spool in GET /v1/operator/health' },
    );
  }
}

function authorise({ kind, workspaceId, scopes }: Principal, scope: string): void {
  if (workspaceId === null || kind === 'operator') {
    throw new SluiceError(
      'forbidden',
      'This path needs a key bound to a workspace. Send a key that begins with slc_wks_ or slc_usr_; POST /v1/api-keys/workspace/service makes one.',
    );
  }
  if (!scopes.has(scope)) throw new SluiceError('forbidden', `This key lacks the scope ${scope}.`);
}

function whole(call: Call, { status, contentType, body }: CallAnswer, more: readonly string[]): Ending {
  const headers = [
    'content-type',
    contentType,
    'content-length',
    String(body.length),
    'x-request-id',
    call.id,
    ...more,
  ];
  // A body that was not read to its end would be taken for the next request on this connection.
  if (hasUnreadBody(call.incoming)) headers.push('connection', 'close');
  return { kind: 'whole', status, headers, body: [body] };
}

function fail(call: Call, thrown: unknown): void {
  const { outcome, services, guardrails, limits } = call;
  guardrails?.end();
  const error =
    thrown instanceof SluiceError
      ? thrown
      : new SluiceError(
          'unexpected',
          'Sluice failed to handle this request; the request id leads to the cause in its log.',
          { cause: thrown },
        );
  if (error !== thrown) {
    const stack = (thrown as Error)?.stack ?? String(thrown);
    services.log.error('a call failed unexpectedly', { request_id: call.id, source: call.kind.source, error: stack });
  }
  note(call, error);
  outcome.errorCode = recordedAs(error);
  outcome.errorMessage = error.message.slice(0, 500);
  if (error instanceof LimitRefused) limits.facts = { ...limits.facts, refused: error.by };
  if (error.kind === 'client_closed') {
    outcome.result = 'aborted';
    outcome.status = 499;
    outcome.ending = { kind: 'destroy' };
    return;
  }
  outcome.result = FAILURES.has(error.kind) ? 'failed' : 'refused';
  const denied = error.kind === 'guardrail_denied' && guardrails !== null;
  const { status, body } = call.kind.errorBody(error, denied ? { hook_results: hookResults(guardrails) } : undefined);
  outcome.status = status;
  const more = error.retryAfter === null ? [] : ['retry-after', String(error.retryAfter)];
  const challenge = CHALLENGED.has(error.kind) ? call.kind.challenge?.(call.incoming, error) : null;
  if (challenge != null) more.push('www-authenticate', challenge);
  outcome.ending = whole(call, { status, contentType: 'application/json', body: Buffer.from(body) }, more);
}

/** A line for operators of what callers will ask about. Nothing of the call's contents is in it. */
function note({ services, id, principal, kind }: Call, error: SluiceError): void {
  if (!(error instanceof LimitRefused)) return;
  services.notes('limit', {
    request_id: id,
    source: kind.source,
    organisation_id: principal?.organisationId,
    workspace_id: principal?.workspaceId,
    api_key_id: principal?.keyId,
    type: error.by.limit,
    owner: error.by.kind,
    id: error.by.id,
  });
}

/** The record is in the journal before the answer is complete, whatever kills the process afterwards. */
function record(call: Call, response: ServerResponse): Promise<void> {
  const { services, outcome, limits, guardrails, kind, incoming } = call;
  const ending = outcome.ending ?? { kind: 'destroy' };
  if (ending.kind !== 'destroy') for (const part of ending.body) outcome.bytesOut += part.length;
  const draft = recordOf(headOf(call, outcome, limits), {
    operation: kind.operation,
    method: incoming.method ?? '',
    path: pathOnly(incoming.url ?? ''),
    guards: guardrails === null ? undefined : guardsOf(guardrails),
    guardrails: guardrails?.facts(),
    attempts: call.attempts,
    source: kind.source,
    detail: call.detail,
  });
  guardrails?.recorded(draft);
  const { accessLog } = services;
  if (accessLog !== null && (accessLog.all || outcome.result !== 'ok')) accessLog.write(entryOf(draft));
  return new Promise((resolve) => {
    services.recorder.record(draft, () => {
      finish(incoming, response, ending, outcome, services, call.organisationId, null);
      resolve();
    });
  });
}
