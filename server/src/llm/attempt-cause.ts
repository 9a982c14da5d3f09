/** Why an attempt failed, for its record. */

import type { ErrorKind, SluiceError } from '../kernel/errors.ts';
import { LimitRefused } from '../limits/limit-refused.ts';
import { errorCode, recordedAs } from '../operations/dialects/errors.ts';
import type { AttemptCause } from '../telemetry/record.ts';
import type { AttemptResult } from './state/attempt-result.ts';
import type { LlmOutcome } from './state/outcome.ts';

const MAX_MESSAGE = 300;
const MAX_CODE = 100;

const KINDS: Readonly<Partial<Record<ErrorKind, AttemptCause['kind']>>> = {
  timeout: 'timeout',
  upstream_idle: 'timeout',
  upstream_silent: 'timeout',
  upstream_unreachable: 'connection',
  upstream_tls: 'connection',
  upstream_cut: 'connection',
  upstream_invalid: 'invalid_answer',
  provider_error: 'answer_error',
  usage_limit_exceeded: 'limit',
  rate_limit_exceeded: 'limit',
  guardrail_denied: 'guardrail',
  client_closed: 'caller_left',
  unexpected: 'gateway',
  internal: 'gateway',
};

/** What ended an attempt, or kept a target from being called. */
export function causeOfError(error: SluiceError): AttemptCause {
  const kind = error instanceof LimitRefused ? 'limit' : (KINDS[error.kind] ?? 'target');
  const timedOut = error.kind === 'timeout' && errorCode(error) === null;
  const code = timedOut ? 'request_timeout' : recordedAs(error);
  return { kind, code: code.slice(0, MAX_CODE), message: error.message.slice(0, MAX_MESSAGE) };
}

/** Undefined for an attempt that did not fail. */
export function causeOf(outcome: LlmOutcome, result: AttemptResult, status: number | null): AttemptCause | undefined {
  if (result.kind === 'failed') return causeOfError(result.error);
  if (result.kind === 'answered') {
    const { code, type, message } = result.error;
    const inside = status !== null && status >= 200 && status < 300;
    return {
      kind: inside ? 'answer_error' : 'status',
      code: (code ?? type).slice(0, MAX_CODE),
      message: message.slice(0, MAX_MESSAGE),
    };
  }
  // The answer went to the caller as it came, and said itself that it had failed.
  if (outcome.result !== 'failed') return undefined;
  return {
    kind: 'answer_error',
    code: outcome.errorCode,
    message: (outcome.errorMessage ?? '').slice(0, MAX_MESSAGE),
  };
}

/** Milliseconds as records have them. */
export const rounded = (ms: number): number => Math.round(ms * 1000) / 1000;
