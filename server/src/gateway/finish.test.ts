import { expect, it } from 'vitest';
import { testExchange } from '../../test/support/exchange.ts';
import { BodyBudget } from '../http/body-budget.ts';
import { TestClock } from '../kernel/clock.ts';
import { finish } from './finish.ts';
import type { Ending } from './outcome.ts';

const clock = new TestClock();
const bodies = new BodyBudget(1e6, clock);

/** Sends an ending; `before` is what the client did until then. */
async function sent(ending: Ending, before: (x: ReturnType<typeof testExchange>) => void = () => {}) {
  const x = testExchange();
  const { collected } = x.response as typeof x.response & { collected: Promise<{ body: Buffer; complete: boolean }> };
  before(x);
  await finish(x.request.incoming, x.response, ending, x.outcome, { clock, bodies }, 'o', null);
  return { x, answer: collected };
}

const whole: Ending = {
  kind: 'whole',
  status: 403,
  headers: ['X-Request-Id', 'r'],
  body: [Buffer.from('{"er'), Buffer.from('ror":1}')],
};

it('a whole answer has its status, its headers and all parts of its body', async () => {
  const { x, answer } = await sent(whole);
  expect(await answer).toEqual({
    status: 403,
    headers: { 'x-request-id': 'r' },
    body: Buffer.from('{"error":1}'),
    complete: true,
  });
  expect(x.outcome.headSent).toBe(true);
});

it('the tail of a stream follows what the client has', async () => {
  const { answer } = await sent({ kind: 'tail', body: [Buffer.from('data: [DONE]\n\n')] }, ({ response }) => {
    response.writeHead(200, []);
    response.write('data: 1\n\n');
  });
  expect(await answer).toMatchObject({ complete: true, body: Buffer.from('data: 1\n\ndata: [DONE]\n\n') });
});

it('an answer that cannot be completed is cut, so that its client does not take it for whole', async () => {
  const { answer } = await sent({ kind: 'destroy' }, ({ response }) => void response.write('{"a":'));
  expect(await answer).toMatchObject({ complete: false });
});

it('a client that left is sent nothing', async () => {
  const { x } = await sent(whole, ({ response }) => void response.destroy());
  expect([x.outcome.headSent, x.response.destroyed]).toEqual([false, true]);
});

it('an answer given before the body was read is written, and its end waits for the rest of the body', async () => {
  const { x, answer } = await sent(whole, ({ request: { incoming } }) => {
    incoming.complete = false;
    incoming.headers['content-length'] = '100';
  });
  let ended = false;
  void answer.then(() => {
    ended = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  expect(ended).toBe(false);
  x.request.incoming.emit('end');
  expect(await answer).toMatchObject({ complete: true, body: Buffer.from('{"error":1}') });
});
