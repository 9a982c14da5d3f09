/** The one deadline over both calls of a ping. */
import { Readable } from 'node:stream';
import { expect, it } from 'vitest';
import type { Fetcher } from './background-fetcher.ts';
import { gatewayPings } from './gateway-pings.ts';

it('a gateway that never answers, in its head or in its body, is given up after ten seconds over both calls', async () => {
  for (const slow of ['health', 'health body', 'verify-ping']) {
    let late = () => {};
    const waits: number[] = [];
    const clock = {
      now: () => 0,
      monotonic: () => 0,
      after: (ms: number, fn: () => void) => {
        waits.push(ms);
        late = fn;
        return () => {};
      },
    };
    const fetcher: Fetcher = {
      send: ({ url, signal }) => {
        const never = `/v1/${slow}` === url.pathname;
        if (never) {
          queueMicrotask(late);
          return new Promise((_resolve, reject) => signal?.addEventListener('abort', () => reject(signal.reason)));
        }
        const stream = new Readable({ read() {} });
        if (slow === 'health body') {
          signal?.addEventListener('abort', () => stream.destroy(new Error('aborted')));
          queueMicrotask(late);
        } else {
          stream.push('{"status":"success","version":"1"}');
          stream.push(null);
        }
        return Promise.resolve({ status: 200, headers: {}, lines: [], stream });
      },
      close: async () => {},
    };
    const asked = { organisationId: 'o', baseUrl: 'https://g.example', callbackUrl: 'https://s.example', code: 'c' };
    const answer = await gatewayPings({ fetcher, clock }).ping(asked, new AbortController().signal);
    const error = slow === 'verify-ping' ? answer.inboundError : answer.outboundError;
    expect([slow, error, waits]).toEqual([slow, 'The gateway did not answer within 10 seconds.', [10_000]]);
  }
});
