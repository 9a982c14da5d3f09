/** The answers that the provider's errors become. */

import { filterUpstreamHeaders } from '../../http/headers.ts';
import { errorCode, errorStatus } from '../../operations/dialects/errors.ts';
import { errorObject, type ProviderError, providerErrorBody } from '../../operations/dialects/provider-error.ts';
import type { Shape } from '../../operations/operation.ts';
import { SHAPES } from '../../operations/shapes/index.ts';
import { withoutSecrets } from '../../providers/sent-secrets.ts';
import type { Uses } from '../exchange.ts';
import { gatewayHeaders } from '../gateway-headers.ts';
import { insists } from '../guard/output.ts';
import type { AttemptResult, FailedResult } from '../state/attempt-result.ts';
import type { Target } from '../target.ts';
import { headerOf } from './response-inspection.ts';

/** Status and code by which lists of statuses know a failed attempt. */
export function outcomeOf(result: FailedResult): [status: number, code: string | null] {
  return result.kind === 'answered'
    ? [result.status, result.error.code]
    : [errorStatus(result.error), errorCode(result.error)];
}

/** Head of the answer to the client: the upstream's headers that may pass, then ours. */
export function answerHead(
  x: Uses<'attempt' | 'limits' | 'outcome' | 'request' | 'execution', 'storeClock'>,
  target: Target,
  headers: readonly string[],
  length: number | null,
  contentType: string | null,
): string[] {
  const out: string[] = [];
  filterUpstreamHeaders(headers, out, target.sent);
  if (contentType !== null) {
    for (let i = out.length - 2; i >= 0; i -= 2) if (out[i]?.toLowerCase() === 'content-type') out.splice(i, 2);
    out.push('content-type', contentType);
  }
  if (length !== null) out.push('content-length', String(length));
  gatewayHeaders(x, out);
  return out;
}

/** A wait that only the body of an error tells, where clients and retries look for it. */
function withRetryHint(headers: string[], { retryAfter }: ProviderError): string[] {
  if (retryAfter === undefined || headerOf(headers, 'retry-after') !== undefined) return headers;
  headers.push('retry-after', String(retryAfter));
  return headers;
}

/** An answer with a status of failure, in the caller's dialect. */
export function refusedAnswer(
  x: Uses<'attempt' | 'capture' | 'guard' | 'limits' | 'outcome' | 'request' | 'execution', 'storeClock'>,
  target: Target,
  shape: Shape,
  status: number,
  headers: readonly string[],
  raw: string,
): AttemptResult {
  x.capture?.refused(status, headers, raw);
  const read = target.provider.error;
  const made = providerErrorBody({
    status,
    raw: withoutSecrets(raw, target.sent),
    upstream: SHAPES[shape].dialect ?? x.request.operation.dialect,
    caller: x.request.operation.dialect,
    ...(read === undefined ? {} : { error: (code, body) => read(code, body, (name) => headerOf(headers, name)) }),
  });
  // Some errors hold what the model has said; guardrails that keep answers back leave what it was about.
  const told = x.guard?.output.some(insists)
    ? JSON.stringify(errorObject(made.error, x.request.operation.dialect))
    : made.body;
  return {
    kind: 'answered',
    // A redirect is never followed and means nothing to a caller of an API.
    status: status < 400 ? 502 : made.status,
    headers: withRetryHint(answerHead(x, target, headers, null, 'application/json'), made.error),
    body: told,
    error: made.error,
  };
}

/** An error found inside an answer that began as a success. */
export function errorAnswer(
  x: Uses<'attempt' | 'limits' | 'outcome' | 'request' | 'execution', 'storeClock'>,
  target: Target,
  headers: readonly string[],
  found: ProviderError,
): AttemptResult {
  const error = JSON.parse(withoutSecrets(JSON.stringify(found), target.sent)) as ProviderError;
  return {
    kind: 'answered',
    status: error.status,
    headers: withRetryHint(answerHead(x, target, headers, null, 'application/json'), error),
    body: JSON.stringify(errorObject(error, x.request.operation.dialect)),
    error,
  };
}

/** An error event as the caller may see it. */
export function withoutSentSecrets(event: Buffer, { sent }: Target): Buffer {
  const text = event.toString('utf8');
  const shown = withoutSecrets(text, sent);
  return shown === text ? event : Buffer.from(shown);
}
