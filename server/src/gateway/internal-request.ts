/** Requests that Sluice makes to itself: any plane runs them like those of callers, and each leaves its record. */
import type { IncomingMessage } from 'node:http';
import { InProcessResponse, inProcessRequest } from '../http/in-process.ts';
import { SluiceError } from '../kernel/errors.ts';
import { parseExact } from '../kernel/json-exact.ts';
import { retryHintMs } from '../kernel/retry-hint.ts';
import { errorStatus, failureBody, recordedAs } from '../operations/dialects/errors.ts';
import type { InternalCallAnswer } from '../runtime/internal-call.ts';

/** A POST of JSON without a socket, whose answer is collected. */
export interface InternalRequest {
  readonly incoming: IncomingMessage;
  readonly response: InProcessResponse;
  /** The body, which nobody has to read from `incoming`. */
  readonly body: Buffer;
}

/**
 * @param headers names in lower case; credentials have no place here
 * @param maxAnswerBytes a larger answer is cut
 */
export function internalRequest(
  path: string,
  headers: Readonly<Record<string, string>>,
  value: unknown,
  maxAnswerBytes: number,
): InternalRequest {
  const body = Buffer.from(JSON.stringify(value));
  const incoming = inProcessRequest('POST', path, {
    ...headers,
    'content-type': 'application/json',
    'content-length': String(body.length),
  });
  return { incoming, response: new InProcessResponse(incoming, maxAnswerBytes), body };
}

/** What a plane knows of a request that it has run. */
export interface InternalResult extends Pick<InternalCallAnswer, 'requestId' | 'limited' | 'keyRefused'> {
  /** The work that it belongs to was ended before its answer was complete. */
  readonly left: boolean;
  readonly errorMessage: string | null;
}

/** The answer of a request that has ended. `now`: milliseconds since the epoch. */
export async function internalAnswer(
  { response }: InternalRequest,
  { requestId, limited, keyRefused, left, errorMessage }: InternalResult,
  now: number,
): Promise<InternalCallAnswer> {
  const { complete, status, headers, body } = await response.collected;
  const common = { requestId, limited, keyRefused, retryAfterMs: retryHintMs((name) => headers[name], now) };
  if (complete) return { ...common, status, body: bodyOf(body) };
  const message = errorMessage ?? 'The answer was cut before it was complete.';
  const failure = new SluiceError(left ? 'client_closed' : 'upstream_cut', message);
  return { ...common, status: errorStatus(failure), body: failureBody(message, recordedAs(failure)) };
}

function bodyOf(bytes: Buffer): unknown {
  const text = bytes.toString('utf8');
  try {
    return parseExact(text);
  } catch {
    return text;
  }
}
