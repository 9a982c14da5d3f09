/** One POST to an address that a tenant chose, through the egress guard, with one deadline over all of it. */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Fetcher } from './background-fetcher.ts';

export interface WebhookCall {
  readonly organisationId: string;
  readonly url: string;
  /** Flat `[name, value, …]`. */
  readonly headers: readonly string[];
  readonly body: string;
  readonly signal: AbortSignal;
}

/**
 * Answers the status; the rest of the answer is not read. Redirects are statuses like others and followed nowhere. Rejects
 * with a SluiceError: the guard's refusal, `upstream_unreachable`, `timeout`, or `client_closed` when the signal ended it.
 */
export type PostWebhook = (call: WebhookCall) => Promise<number>;

export function webhookPoster(options: {
  readonly fetcher: Fetcher;
  readonly clock: Clock;
  /** Milliseconds from the start until the head of the answer. */
  readonly limitMs: number;
}): PostWebhook {
  const { fetcher, clock, limitMs } = options;
  return async ({ organisationId, url, headers, body, signal }) => {
    const parsed = URL.parse(url);
    if (parsed === null) throw new SluiceError('malformed_call', 'The URL cannot be read.');
    const ended = new AbortController();
    const late = () => ended.abort(new SluiceError('timeout', `No answer within ${limitMs / 1000} seconds.`));
    const cancel = clock.after(limitMs, late);
    const stop = () => ended.abort(new SluiceError('client_closed', 'The call was given up.'));
    signal.addEventListener('abort', stop);
    try {
      if (signal.aborted) stop();
      const { status, stream } = await fetcher.send({
        method: 'POST',
        url: parsed,
        headers,
        body: Buffer.from(body, 'utf8'),
        organisationId,
        storedCredential: false,
        headersTimeoutMs: limitMs,
        idleMs: limitMs,
        signal: ended.signal,
      });
      stream.destroy();
      return status;
    } finally {
      cancel();
      signal.removeEventListener('abort', stop);
    }
  };
}
