import { expect, it } from 'vitest';
import { callerWith, ownAdmission, targetWith, workspaceWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { compileInline } from '../../guardrails/compile.ts';
import { BodyBudget } from '../../http/body-budget.ts';
import { silentLog } from '../../kernel/log.ts';
import { makePlan, NONE } from '../plan.ts';
import { admit } from './admit.ts';
import { guard } from './guard.ts';

const CHAT = '{"model":"m","messages":[{"role":"user","content":"one two three"}]}';
const words = (max: number, actions: object) =>
  compileInline({ 'default.wordCount': { minWords: 0, maxWords: max }, ...actions }, 'words');

/** A request of a limited key whose text is judged by `guardrail`. */
async function judged(guardrail: ReturnType<typeof words>, dryRun = false) {
  const services = { admission: ownAdmission(), bodies: new BodyBudget(1e6), log: silentLog };
  const x = testExchange({ body: Buffer.from(CHAT), scan: ['model'] }, services);
  x.attempt.target = targetWith();
  x.request.model = 'm';
  x.request.dryRun = dryRun;
  x.request.principal = callerWith({ rateLimits: [{ type: 'requests', unit: 'rpm', value: 5 }] });
  x.request.snapshot = workspaceWith();
  const features = { ...NONE, rateLimits: true, usageLimits: false };
  x.request.plan = makePlan(x.attempt.target, null, null, { input: [guardrail], output: [] }, features);
  await admit(x);
  const error = await Promise.resolve()
    .then(() => guard(x))
    .then(
      () => null,
      (thrown: unknown) => thrown,
    );
  return { x, error };
}

it('a guardrail that denies refuses the request, which then counts in no rate limit', async () => {
  const { x, error } = await judged(words(2, { deny: true }));
  expect(error).toMatchObject({ kind: 'guardrail_denied' });
  expect(x.guard?.before).toMatchObject([{ id: 'words', verdict: false }]);
  expect(x.limits.quota?.requests?.remaining).toBe(5);
});

it('a guardrail that only watches lets the request go on, and its answer says that it failed', async () => {
  const { x, error } = await judged(words(2, { deny: false }));
  expect([error, x.guard?.failed, x.limits.quota?.requests?.remaining]).toEqual([null, true, 4]);
});

it('a guardrail that is satisfied changes nothing', async () => {
  const { x, error } = await judged(words(3, { deny: true }));
  expect([error, x.guard?.failed, String(x.attempt.body.bytes)]).toEqual([null, false, CHAT]);
  expect(x.guard?.before).toMatchObject([{ verdict: true }]);
});

it('a dry run asks no guardrail', async () => {
  const { x, error } = await judged(words(2, { deny: true }), true);
  expect([error, x.guard?.before]).toEqual([null, []]);
});
