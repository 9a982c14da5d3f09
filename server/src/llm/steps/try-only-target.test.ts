import { expect, it } from 'vitest';
import { targetWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Features } from '../plan.ts';
import { makePlan, NONE } from '../plan.ts';
import { type AttemptResult, DONE } from '../state/attempt-result.ts';
import { tryOnlyTarget } from './try-only-target.ts';

/** A request with one target, whose steps end with `result`. */
function dispatched(result: AttemptResult) {
  const x = testExchange();
  x.attempt.target = targetWith();
  x.request.plan = makePlan(x.attempt.target, null, null, null, {
    ...NONE,
    cache: true,
    rateLimits: false,
    usageLimits: false,
  });
  const asked: Features[] = [];
  const done = tryOnlyTarget(x, (one, features) => {
    asked.push(features);
    one.attempt.result = result;
  });
  return { x, asked, done };
}

it('the only target is run once, with the steps that its plan asks for', async () => {
  const { x, asked, done } = dispatched(DONE);
  await done;
  expect(asked).toEqual([x.request.plan?.features]);
  expect(asked[0]?.cache).toBe(true);
  // Its step has made the answer already.
  expect(x.outcome.ending).toBeNull();
});

it('what a provider refuses becomes the answer, and the record says that it failed', async () => {
  const error = { status: 503, message: 'down', type: 'server_error', code: 'overloaded', param: null };
  const { x, done } = dispatched({ kind: 'answered', status: 503, headers: ['x-mine', 'a'], body: '{"e":1}', error });
  await done;
  expect(x.outcome).toMatchObject({ status: 503, result: 'failed', errorCode: 'overloaded', errorMessage: 'down' });
  const { ending } = x.outcome;
  if (ending?.kind !== 'whole') throw new Error('no whole answer');
  expect([String(ending.body[0]), ending.headers.slice(0, 2)]).toEqual(['{"e":1}', ['x-mine', 'a']]);
  expect(ending.headers.slice(-2)).toEqual(['content-length', '7']);
});

it('a call that failed without an answer is thrown, to be answered in the dialect of the caller', async () => {
  const error = new SluiceError('upstream_cut', 'The provider left.');
  await expect(dispatched({ kind: 'failed', error }).done).rejects.toBe(error);
});
