/** Calls of a collector over HTTP. */

import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { OperatorHttp } from '../../http/operator-http.ts';
import type { Clock } from '../../kernel/clock.ts';
import { retryHintMs } from '../../kernel/retry-hint.ts';
import type { Delivery } from '../feed.ts';
import { CONTENT_TYPES, type OtlpProtocol } from './requests.ts';

export interface CollectorCall {
  /** With its path. */
  readonly url: URL;
  readonly protocol: OtlpProtocol;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
}

const TIMEOUT_MS = 10_000;
const compress = promisify(gzip);

/**
 * Sends one body, compressed. 408, 429 and 5xx are tried again, like a collector that is away; every other status but 2xx is
 * a refusal. Never rejects.
 */
export async function sendToCollector(
  http: OperatorHttp,
  call: CollectorCall,
  body: Buffer,
  clock: Clock,
): Promise<Delivery> {
  try {
    const answer = await http.send({
      method: 'POST',
      url: call.url,
      headers: {
        ...call.headers,
        'content-type': CONTENT_TYPES[call.protocol],
        'content-encoding': 'gzip',
        'user-agent': 'sluice',
      },
      body: await compress(body),
      timeoutMs: TIMEOUT_MS,
    });
    answer.body.resume();
    const { status, headers } = answer;
    if (status >= 200 && status < 300) return { kind: 'accepted' };
    const why = `${call.url.host} answered ${status}`;
    if (status !== 408 && status !== 429 && status < 500) return { kind: 'refused', why };
    const hint = (name: string) => {
      const value = headers[name];
      return typeof value === 'string' ? value : undefined;
    };
    return { kind: 'later', why, afterMs: retryHintMs(hint, clock.now()) };
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : String(error);
    return { kind: 'later', why: `${call.url.host} could not be reached (${code})`, afterMs: null };
  }
}
