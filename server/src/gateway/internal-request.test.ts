import { expect, it } from 'vitest';
import { internalAnswer, internalRequest } from './internal-request.ts';

const ENDED = { requestId: 'r', limited: false, keyRefused: null, left: false, errorMessage: null };

it('a request of ours has its body and its headers, and its answer is what the plane wrote', async () => {
  const request = internalRequest('/v1/x', { 'x-gateway-config': 'pc' }, { a: 'ü' }, 100);
  expect(request.incoming).toMatchObject({ method: 'POST', url: '/v1/x' });
  expect(request.incoming.headers).toEqual({
    'x-gateway-config': 'pc',
    'content-type': 'application/json',
    'content-length': '10',
  });
  expect(JSON.parse(request.body.toString())).toEqual({ a: 'ü' });
  request.response.writeHead(429, ['retry-after', '2']);
  request.response.end('{"id":12345678901234567890}');
  const answer = await internalAnswer(request, { ...ENDED, limited: true }, 0);
  expect(answer).toMatchObject({ status: 429, requestId: 'r', limited: true, retryAfterMs: 2000 });
  expect(JSON.stringify(answer.body)).toBe('{"id":12345678901234567890}');
});

it('an answer that is too long was cut, and one whose work was ended was cancelled', async () => {
  const long = internalRequest('/v1/x', {}, {}, 3);
  long.response.end('four');
  expect(await internalAnswer(long, ENDED, 0)).toMatchObject({
    status: 502,
    body: { error: { code: 'upstream_stream_cut', message: 'The answer was cut before it was complete.' } },
  });
  const left = internalRequest('/v1/x', {}, {}, 3);
  left.response.destroy();
  const why = { ...ENDED, left: true, errorMessage: 'The work was ended.' };
  expect(await internalAnswer(left, why, 0)).toMatchObject({ status: 499, body: { error: { code: 'cancelled' } } });
});
