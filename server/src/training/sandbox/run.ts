import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonValue } from '../../kernel/json.ts';
import { failureBody, recordedAs } from '../../operations/dialects/errors.ts';
import { createLocal } from '../../providers/sandbox/local.ts';

export interface LocalResult {
  readonly status: number;
  readonly requestId: string;
  readonly body: JsonValue;
}

/** Largest answer of one request of a batch. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024;

/** A clock that always says `now` and waits for nothing, so that answers are the same whenever they are made. */
function standing(now: number): Clock {
  return {
    now: () => now,
    monotonic: () => now,
    after(_ms, fn) {
      const handle = setImmediate(fn);
      return () => clearImmediate(handle);
    },
  };
}

const failure = (status: number, message: string, code: string): LocalResult => ({
  status,
  requestId: '',
  body: { ...failureBody(message, code), system_fingerprint: 'sandbox' },
});

/** Asks the sandbox provider one request after the other, as if all were asked at `now`. */
export function localRunner(organisationId: string, now: number): (path: string, body: Buffer) => Promise<LocalResult> {
  const local = createLocal();
  const clock = standing(now);
  return (path, body) =>
    new Promise((resolve) => {
      const parts: Buffer[] = [];
      let bytes = 0;
      let status = 0;
      let requestId = '';
      const control = local(
        {
          method: 'POST',
          origin: '',
          path,
          headers: ['content-type', 'application/json'],
          body: [body],
          organisationId,
          storedCredential: false,
        },
        {
          onHead(code, headers) {
            status = code;
            for (let i = 0; i < headers.length; i += 2)
              if (headers[i] === 'x-request-id') requestId = headers[i + 1] ?? '';
          },
          onData(chunk) {
            bytes += chunk.length;
            if (bytes <= MAX_ANSWER_BYTES) parts.push(chunk);
            else {
              control.abort();
              resolve(failure(502, 'The answer is too large for a batch.', 'answer_too_large'));
            }
          },
          onEnd() {
            const text = Buffer.concat(parts).toString('utf8');
            try {
              resolve({ status, requestId, body: JSON.parse(text) as JsonValue });
            } catch {
              const unread = new SluiceError(
                'upstream_invalid',
                'The provider sent an answer that cannot be understood.',
              );
              resolve(failure(502, unread.message, recordedAs(unread)));
            }
          },
          onError: (error: SluiceError) => resolve(failure(502, error.message, recordedAs(error))),
        },
        clock,
      );
    });
}
