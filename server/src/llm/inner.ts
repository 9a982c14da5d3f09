/**
 * Requests that Sluice makes to itself: a line of a batch goes through the whole data plane as the API key that made the
 * batch, with the rights the key has now. Limits, guardrails, saved-only rules and accounting are those of any request,
 * and each leaves its record.
 */

import { type KeyRights, rightsOfKey } from '../auth/key-principal.ts';
import { type Collected, InnerResponse, innerRequest } from '../http/inner-exchange.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { parseExact } from '../kernel/json-exact.ts';
import { retryHintMs } from '../kernel/retry-hint.ts';
import { errorStatus, failureBody, recordedAs } from '../operations/dialects/errors.ts';
import { OPERATIONS, type Operation } from '../operations/operation.ts';
import type { InnerAnswer, RunInner } from '../runtime/inner-call.ts';
import type { Tables } from '../store/ports.ts';
import type { Services, Uses } from './exchange.ts';
import { Exchange } from './exchange.ts';

/** Largest answer that is kept. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

export interface InnerParts {
  readonly services: Services;
  readonly tables: Pick<Tables, 'read'>;
  /** The store's time, by which keys expire. */
  readonly clock: Clock;
  /** `InFlight.run`. */
  readonly run: (x: Exchange) => Promise<void>;
}

export function createInner({ services, tables, clock, run }: InnerParts): RunInner {
  return async (given) => {
    const operation = operationOf(given.endpoint);
    const rights = await rightsOfKey(tables, clock, given);
    const body = Buffer.from(JSON.stringify(given.body));
    const request = innerRequest('POST', given.endpoint, {
      ...given.headers,
      'content-type': 'application/json',
      'content-length': String(body.length),
    });
    const response = new InnerResponse(request, MAX_ANSWER_BYTES);
    const x = new Exchange(services, operation, request, response, {});
    x.request.principal = rights.principal;
    x.request.refusal = rights.refusal ?? tooLarge(body.length, services.maxBodyBytes);
    x.attempt.body = body;
    x.outcome.bytesIn = body.length;
    const leave = () => {
      x.clientGone = true;
      x.cancel?.(new SluiceError('client_closed', 'The work this request belongs to was ended.'));
    };
    given.signal.addEventListener('abort', leave, { once: true });
    if (given.signal.aborted) leave();
    try {
      await run(x);
    } finally {
      given.signal.removeEventListener('abort', leave);
    }
    return answerOf(x, await response.collected, rights, services.clock.now());
  };
}

function operationOf(endpoint: string): Operation {
  const found = Object.values(OPERATIONS).find(
    (operation) => operation.method === 'POST' && operation.body === 'json' && `/v1${operation.path}` === endpoint,
  );
  if (found === undefined || found.family === 'job') {
    throw new SluiceError('internal', `Nothing answers ${JSON.stringify(endpoint.slice(0, 100))} inside the process.`);
  }
  return found;
}

function tooLarge(bytes: number, most: number): SluiceError | null {
  return bytes <= most
    ? null
    : new SluiceError('too_large', `The body has ${bytes} bytes; at most ${most} are allowed.`);
}

function answerOf(
  x: Uses<'clientGone' | 'outcome' | 'request'>,
  collected: Collected,
  rights: KeyRights,
  now: number,
): InnerAnswer {
  const common = {
    requestId: x.request.id,
    retryAfterMs: retryHintMs((name) => collected.headers[name], now),
    limited: x.outcome.status === 429 && x.outcome.result === 'refused' && x.outcome.attemptCount === 0,
    keyRefused: rights.refusal?.message ?? null,
  };
  if (!collected.complete) {
    const left = x.outcome.result === 'aborted' || x.clientGone;
    const message = x.outcome.errorMessage ?? 'The answer was cut before it was complete.';
    const failure = new SluiceError(left ? 'client_closed' : 'upstream_cut', message);
    return { ...common, status: errorStatus(failure), body: failureBody(message, recordedAs(failure)) };
  }
  return { ...common, status: collected.status, body: bodyOf(collected.body) };
}

function bodyOf(bytes: Buffer): unknown {
  const text = bytes.toString('utf8');
  try {
    return parseExact(text);
  } catch {
    return text;
  }
}
