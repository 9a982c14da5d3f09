import { expect, it } from 'vitest';
import { CheckError } from '../guardrails/check.ts';
import type { Fetcher } from '../http/background-fetcher.ts';
import { createEgressGuard } from '../http/egress-guard.ts';
import { TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { checkHttpClient } from './check-http-client.ts';

type Sent = Parameters<Fetcher['send']>[0];

/** Calls that are answered by these pieces; without any, never. */
function outside(pieces: readonly string[] | null) {
  const clock = new TestClock();
  const sent: Sent[] = [];
  const gone = new AbortController();
  const fetcher = {
    send(request: Sent) {
      sent.push(request);
      if (pieces !== null)
        return Promise.resolve({ status: 200, headers: {}, stream: pieces.map((piece) => Buffer.from(piece)) });
      return new Promise((_resolve, reject) => {
        const closed = () => reject(new Error('the socket was closed'));
        if (request.signal?.aborted) closed();
        request.signal?.addEventListener('abort', closed);
      });
    },
  } as unknown as Fetcher;
  const egress = createEgressGuard({ trustedHosts: [], ownListeners: () => [], clock, log: silentLog });
  const make = checkHttpClient({ fetcher, egress, clock, organisationId: 'o' });
  return { clock, sent, gone, made: make(gone.signal) };
}
const call = { url: 'https://hook.example.com/a', method: 'POST', headers: { a: 'b' }, body: 'asked' } as const;

it('a check gets an answer of as many bytes as it takes, and none of more', async () => {
  const { made } = outside(['four', 'five!']);
  const { body } = await made.call({ ...call, maxBytes: 9 });
  expect(body.toString()).toBe('fourfive!');
  await expect(made.call({ ...call, maxBytes: 8 })).rejects.toThrow(
    new CheckError('The answer has more than 8 bytes.'),
  );
});

it('a call ends with its time and with its request, and says which', async () => {
  const late = outside(null);
  const waiting = expect(late.made.call({ ...call, timeoutMs: 500 })).rejects.toMatchObject({ kind: 'timeout' });
  await late.clock.advance(500);
  await waiting;
  expect(late.sent.map(({ signal }) => signal?.aborted)).toEqual([true]);

  const left = outside(null);
  const asked = left.made.call(call);
  left.gone.abort();
  await expect(asked).rejects.toMatchObject({ kind: 'client_closed' });
  await expect(left.made.call(call)).rejects.toMatchObject({ kind: 'client_closed' });
});

it('a call goes through the egress guard in the name of its organisation, with no stored credential', async () => {
  const { made, sent } = outside(['{}']);
  await made.call(call);
  expect(sent).toMatchObject([{ organisationId: 'o', storedCredential: false, method: 'POST', headers: ['a', 'b'] }]);
  await expect(made.call({ ...call, url: 'no url' })).rejects.toMatchObject({ kind: 'malformed_call' });
});
