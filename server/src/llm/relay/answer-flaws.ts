/** What is wrong with an answer in one piece that began as a success. */

import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseExact, parseJson, UnreadJsonError } from '../../kernel/json-exact.ts';
import { parseEvent } from '../../kernel/sse.ts';
import { errorCode, errorStatus } from '../../operations/dialects/errors.ts';
import { FILTERED, type ProviderError } from '../../operations/dialects/provider-error.ts';
import type { Operation } from '../../operations/operation.ts';
import { withoutSecrets } from '../../providers/sent-secrets.ts';
import type { Attempt } from '../state/attempt.ts';
import type { LlmOutcome } from '../state/outcome.ts';
import type { LlmRequest } from '../state/request.ts';
import type { Target } from '../target.ts';
import { failureIn, named } from './content.ts';
import { parsed } from './response-inspection.ts';
import { isFollowed } from './retry-rules.ts';

/** What is wrong with a whole answer in the caller's shape. */
export interface Flaws {
  /** The member that should hold what was answered. */
  readonly missing: string | null;
  /** Its provider has failed. */
  readonly failure: ProviderError | null;
  /** Its provider has filtered it. */
  readonly filtered: boolean;
}

export function flawsOf(operation: Operation, body: JsonObject): Flaws {
  const member = operation.wire.member;
  return {
    missing: member !== null && !Array.isArray(body[member]) ? member : null,
    failure: failureIn(operation, body),
    filtered: operation.wire.isFiltered(body),
  };
}

/**
 * Why an answer is one that the next attempt takes the place of, or null: it lacks what it should hold, or its provider has
 * failed or filtered it. Where no attempt follows, it is the caller who judges it.
 */
export function unfit(attempt: Attempt, flaws: Flaws): ProviderError | SluiceError | null {
  if (flaws.missing !== null) {
    const error = new SluiceError('upstream_invalid', `The provider's answer has no "${flaws.missing}".`);
    if (isFollowed(attempt, errorStatus(error), errorCode(error))) return error;
  }
  const { failure } = flaws;
  if (failure !== null) return isFollowed(attempt, failure.status, failure.code) ? failure : null;
  return flaws.filtered && isFollowed(attempt, FILTERED.status, FILTERED.code) ? FILTERED : null;
}

/** The answer goes to the caller as it came, and the provider failed: so says the record. `null`: it did not say why. */
export function recordFailure(outcome: LlmOutcome, target: Target, error: ProviderError | null): void {
  const found = error === null ? null : withoutSecrets(error.message, target.sent);
  outcome.result = 'failed';
  outcome.errorCode = (error?.code ?? 'upstream_stream_error').slice(0, 100);
  outcome.errorMessage = (found ?? 'The provider ended the stream with an error event.').slice(0, 500);
}

/** The error that the last events of a stream tell. */
export function errorAmong(request: LlmRequest, events: readonly Buffer[]): ProviderError | null {
  for (const event of events) {
    const body = parsed(parseEvent(event));
    const error = body === null ? null : named(request.operation.wire.errorIn(body), body);
    if (error !== null) return error;
  }
  return null;
}

/** An answer that is cut off, or is no JSON where it must be. */
export const noJson = (): SluiceError =>
  new SluiceError('upstream_invalid', 'The provider answered with something that is not JSON, or with a part of it.');

/** An answer that would hold the event loop up. */
export const tooMuch = (): SluiceError =>
  new SluiceError(
    'upstream_invalid',
    'The provider sent an answer that is too large, or has too many values, to convert.',
  );

/** An answer that is converted: a JSON object. Throws `upstream_invalid`. */
export function readObject(raw: Buffer): JsonObject {
  let answer: unknown;
  try {
    answer = parseExact(raw.toString('utf8'));
  } catch (error) {
    if (error instanceof UnreadJsonError) throw tooMuch();
    throw new SluiceError('upstream_invalid', 'The provider answered with something that is not JSON.', {
      cause: error,
    });
  }
  if (isObject(answer)) return answer;
  throw new SluiceError('upstream_invalid', 'The provider answered with JSON that is not an object.');
}

/** What an answer in one piece says, null where that is too much to read; throws `noJson` for one that nobody can read. */
export function readWhole(body: Buffer): unknown {
  try {
    return parseJson(body.toString('utf8'));
  } catch (error) {
    if (error instanceof UnreadJsonError) return null;
    throw noJson();
  }
}
