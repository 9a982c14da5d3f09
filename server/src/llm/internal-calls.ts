/**
 * Requests that Sluice makes to itself: a line of a batch goes through the whole data plane as the API key that made the
 * batch, with the rights the key has now. Limits, guardrails, saved-only rules and accounting are those of any request,
 * and each leaves its record.
 */
import type { ServerResponse } from 'node:http';
import type { Principal } from '../auth/principal.ts';
import { type InternalRequest, internalAnswer, internalRequest } from '../gateway/internal-request.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { OPERATIONS, type Operation } from '../operations/operation.ts';
import type { RunInternalCall } from '../runtime/internal-call.ts';
import type { Tables } from '../store/ports.ts';
import { Exchange, type Services, type Uses } from './exchange.ts';
import { RequestBody } from './state/body.ts';
import type { RequestHead } from './state/request.ts';

/** Largest answer that is kept. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

export interface InternalCallParts {
  readonly services: Services;
  readonly tables: Pick<Tables, 'read'>;
  /** The store's time, by which keys expire. */
  readonly clock: Clock;
  /** `InFlight.run`. */
  readonly run: (x: Exchange) => Promise<void>;
}

interface Read extends Pick<InternalRequest, 'incoming' | 'body'> {
  readonly response: ServerResponse;
}

/** A request whose body was read and whose caller is known: one of ours, or of the console's own page. */
export function internalExchange(
  services: Services,
  operation: Operation,
  { incoming, response, body }: Read,
  principal: Principal,
): Exchange & { readonly request: RequestHead } {
  const x: Exchange & { readonly request: RequestHead } = new Exchange(services, operation, incoming, response, {});
  x.request.principal = principal;
  x.request.body = new RequestBody(body, null);
  x.outcome.bytesIn = body.length;
  return x;
}

/** Nobody waits for its answer any more. */
export function cancelInternal(x: Uses<'cancel' | 'clientGone'>, why: string): void {
  x.clientGone = true;
  x.cancel?.(new SluiceError('client_closed', why));
}

export function createInternalCalls({ services, tables, clock, run }: InternalCallParts): RunInternalCall {
  return async (given) => {
    const operation = operationOf(given.endpoint);
    // Most servers run no batches.
    const { rightsOfCaller } = await import('../auth/held-caller.ts');
    const rights = await rightsOfCaller(tables, clock, given);
    if (rights === null) throw new SluiceError('internal', 'A request inside the process needs a caller.');
    const request = internalRequest(given.endpoint, given.headers, given.body, MAX_ANSWER_BYTES);
    const x = internalExchange(services, operation, request, rights.principal);
    x.request.refusal = rights.refusal ?? tooLarge(request.body.length, services.maxBodyBytes);
    const leave = () => cancelInternal(x, 'The work this request belongs to was ended.');
    given.signal.addEventListener('abort', leave, { once: true });
    if (given.signal.aborted) leave();
    try {
      await run(x);
    } finally {
      given.signal.removeEventListener('abort', leave);
    }
    const { status, result, attemptCount, errorMessage } = x.outcome;
    const ended = {
      requestId: x.request.id,
      limited: status === 429 && result === 'refused' && attemptCount === 0,
      keyRefused: rights.refusal?.message ?? null,
      left: result === 'aborted' || x.clientGone,
      errorMessage,
    };
    return internalAnswer(request, ended, services.clock.now());
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
