/** How checks call others: through the egress guard, bounded in time and size, following no redirect. */
import { CheckError, type CheckHttpClient, type MostRead } from '../guardrails/check.ts';
import type { CheckHttpClientFactory } from '../guardrails/run.ts';
import type { Fetcher } from '../http/background-fetcher.ts';
import type { EgressGuard } from '../http/egress-guard.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';

const MAX_BYTES = 1024 * 1024;
/** Parsed, walked and written again in the event loop, so much takes it ten milliseconds. */
const MOST: MostRead = { bytes: 2 * 1024 * 1024, weight: 50_000 };
/** The longest any check may be given; each check has its own, shorter time. */
const LONGEST_MS = 60_000;

export interface CheckHttpClientParts {
  readonly fetcher: Fetcher;
  readonly egress: EgressGuard;
  readonly clock: Clock;
  readonly organisationId: string;
}

/** Makes the calls of one organisation’s checks; each ends with the signal it is made for. */
export function checkHttpClient({
  fetcher,
  egress,
  clock,
  organisationId,
}: CheckHttpClientParts): CheckHttpClientFactory {
  return (signal): CheckHttpClient => ({
    signal,
    most: MOST,
    owner: organisationId,
    now: () => clock.now(),
    async resolves(host) {
      try {
        const checked = egress.check(`https://${host}/`, { storedCredential: false });
        await egress.verify(checked, organisationId);
        return true;
      } catch {
        return false;
      }
    },
    async call({ url, method, headers, body, maxBytes = MAX_BYTES, timeoutMs = LONGEST_MS }) {
      // The text is judged, not only what parsing makes of it: 0x7f000001 and user:password@ are gone by then.
      const { url: parsed } = egress.check(url, { storedCredential: false });
      const ended = new AbortController();
      const late = () => ended.abort(new SluiceError('timeout', `There was no answer within ${timeoutMs} ms.`));
      const cancel = clock.after(timeoutMs, late);
      const stop = () => ended.abort(new SluiceError('client_closed', 'The call was given up.'));
      signal.addEventListener('abort', stop);
      try {
        if (signal.aborted) stop();
        const answer = await fetcher.send({
          method,
          url: parsed,
          headers: Object.entries(headers).flat(),
          body: body === null ? null : bytesOf(body),
          organisationId,
          storedCredential: false,
          headersTimeoutMs: timeoutMs,
          idleMs: timeoutMs,
          signal: ended.signal,
        });
        const parts: Buffer[] = [];
        let size = 0;
        for await (const chunk of answer.stream as AsyncIterable<Buffer>) {
          size += chunk.length;
          if (size > maxBytes) throw new CheckError(`The answer has more than ${maxBytes} bytes.`);
          parts.push(chunk);
        }
        return { status: answer.status, headers: answer.headers, body: Buffer.concat(parts) };
      } catch (error) {
        throw ended.signal.aborted ? ended.signal.reason : error;
      } finally {
        cancel();
        signal.removeEventListener('abort', stop);
      }
    },
  });
}

/** The bytes as they are: a copy of 31 MB holds the event loop for a while. */
const bytesOf = (body: string | Uint8Array): Buffer =>
  typeof body === 'string' ? Buffer.from(body) : Buffer.from(body.buffer, body.byteOffset, body.byteLength);
