import { denying } from '../gateway/guardrail-denial.ts';
import { hookResults } from '../gateway/guardrail-state.ts';
import { hasUnreadBody } from '../http/read-body.ts';
import { type ErrorKind, SluiceError } from '../kernel/errors.ts';
import { LimitRefused } from '../limits/limit-refused.ts';
import { errorBody, errorStatus, recordedAs } from '../operations/dialects/errors.ts';
import { streamErrorEvent } from '../operations/dialects/stream.ts';
import type { Exchange, Uses } from './exchange.ts';
import { gatewayHeaders } from './gateway-headers.ts';
import { softDenial } from './guard/soft-denial.ts';
import type { LlmOutcome } from './state/outcome.ts';

/** Kinds that mean that something failed, here or at the provider, or that the caller is gone. */
const FAILURES: ReadonlySet<ErrorKind> = new Set([
  'internal',
  'unexpected',
  'timeout',
  'client_closed',
  'provider_error',
  'upstream_unreachable',
  'upstream_tls',
  'upstream_invalid',
  'upstream_overloaded',
  'upstream_cut',
  'upstream_idle',
  'upstream_silent',
]);
/** Kinds by which Sluice refuses before it asks a provider; afterwards they break an answer off. */
const UNABLE: ReadonlySet<ErrorKind> = new Set(['unavailable', 'out_of_service']);

/** Whether Sluice itself refused the request. The status does not tell: a full disk is 503, a provider may answer 404. */
function isRefusal({ attemptCount: tries }: LlmOutcome, { kind }: SluiceError): boolean {
  return !FAILURES.has(kind) && (tries === 0 || !UNABLE.has(kind));
}

/** A line for operators of what callers will ask about. Nothing of the request's contents is in it. */
function noteRefusal(x: Uses<'guard' | 'request', 'notes'>, error: SluiceError): void {
  const {
    request: { principal },
  } = x;
  const caller = {
    request_id: x.request.id,
    organisation_id: principal?.organisationId,
    workspace_id: principal?.workspaceId,
    api_key_id: principal?.keyId,
  };
  if (error instanceof LimitRefused)
    x.services.notes('limit', { ...caller, type: error.by.limit, owner: error.by.kind, id: error.by.id });
  else if (error.kind === 'guardrail_denied' && x.guard !== null)
    x.services.notes('guardrail', {
      ...caller,
      guardrails: denying(x.guard).map(({ slug, why }) => `${slug}: ${why}`),
    });
}

/** Turns whatever was thrown into the end of the answer, in the caller's own dialect, and into fields of the record. */
export function respondError(x: Exchange, thrown: unknown): void {
  x.attempt.control?.abort();
  x.attempt.control = null;
  const error =
    thrown instanceof SluiceError
      ? thrown
      : new SluiceError(
          'unexpected',
          'Sluice failed to handle this request; the request id leads to the cause in its log.',
          { cause: thrown },
        );
  if (!(thrown instanceof SluiceError)) {
    x.services.log.error('a data-plane request failed unexpectedly', {
      request_id: x.request.id,
      error: (thrown as Error)?.stack ?? String(thrown),
    });
  } else if (errorStatus(error) >= 500 && error.detail !== undefined) {
    x.services.log.warn('a data-plane request failed', {
      request_id: x.request.id,
      kind: error.kind,
      detail: String(error.detail),
    });
  }
  noteRefusal(x, error);
  x.outcome.errorCode = recordedAs(error);
  x.outcome.errorMessage = error.message.slice(0, 500);
  if (error instanceof LimitRefused && x.limits.facts !== null) x.limits.facts.refused = error.by;
  if (x.clientGone || error.kind === 'client_closed') {
    x.outcome.result = 'aborted';
    if (x.outcome.status === 0) x.outcome.status = 499;
    x.outcome.ending = { kind: 'destroy' };
    return;
  }
  const extra =
    error.kind === 'guardrail_denied' && x.guard !== null ? { hook_results: hookResults(x.guard) } : undefined;
  x.outcome.result = isRefusal(x.outcome, error) ? 'refused' : 'failed';
  if (x.outcome.headSent) {
    // The status is out already. A stream ends with an error event in the caller's dialect; anything else can only be
    // cut, so that the client's own framing check sees it was not complete.
    x.outcome.ending = x.attempt.stream
      ? { kind: 'tail', body: [Buffer.from(streamErrorEvent(error, x.request.operation.dialect, 0, extra))] }
      : { kind: 'destroy' };
    return;
  }
  const soft = error.kind === 'guardrail_denied' && x.guard?.soft ? softDenial(x) : null;
  const { status, body } =
    soft === null ? errorBody(error, x.request.operation.dialect, extra) : { status: 200, body: soft.body };
  const bytes = Buffer.from(body);
  const headers = [
    'content-type',
    soft?.contentType ?? 'application/json',
    'content-length',
    String(bytes.length),
    // Under this name OpenAI's clients show it in their errors.
    'x-request-id',
    x.request.id,
  ];
  if (error.retryAfter !== null) headers.push('retry-after', String(error.retryAfter));
  gatewayHeaders(x, headers);
  // A body that was not read to its end would be taken for the next request on this connection.
  if (hasUnreadBody(x.request.incoming)) headers.push('connection', 'close');
  x.outcome.status = status;
  x.outcome.ending = { kind: 'whole', status, headers, body: [bytes] };
}
