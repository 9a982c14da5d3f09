import { expect, it } from 'vitest';
import { callerWith, ownAdmission, targetWith, workspaceWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { compileInline } from '../../guardrails/compile.ts';
import { BodyBudget } from '../../http/body-budget.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { silentLog } from '../../kernel/log.ts';
import type { GuardPlan } from '../guard/plan.ts';
import { makePlan, NONE } from '../plan.ts';
import { routeOf } from '../routing/route.ts';
import { newRouteExecution } from '../routing/route-execution.ts';
import { Attempt } from '../state/attempt.ts';
import { admit } from './admit.ts';
import { guard, guardTarget, refuseToContinue } from './guard.ts';

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

const SEVERAL = routeOf({ strategy: { mode: 'fallback' }, targets: [{ provider: '@a' }, { provider: '@b' }] });

/** Tries targets of one config under their guardrails; says what each came to. */
async function tried(...plans: (GuardPlan | null)[]) {
  const services = { bodies: new BodyBudget(1e6), log: silentLog };
  const x = testExchange({ body: Buffer.from(CHAT), scan: ['model'] }, services);
  x.request.model = 'm';
  x.request.principal = callerWith();
  x.request.snapshot = workspaceWith();
  x.execution = newRouteExecution(x, SEVERAL, 'place');
  const leaf = SEVERAL.root.kind === 'fallback' ? SEVERAL.root.targets[0] : undefined;
  if (leaf?.kind !== 'target') throw new Error('no leaf');
  const said: (string | null)[] = [];
  for (const plan of plans) {
    x.attempt = Attempt.after(x.attempt, x.request);
    x.attempt.target = targetWith(leaf.path);
    x.attempt.leaf = leaf;
    x.attempt.guardPlan = plan;
    const kind = await Promise.resolve()
      .then(() => guardTarget(x))
      .then(
        () => null,
        (error: unknown) => (error instanceof SluiceError ? error.kind : 'unknown'),
      );
    said.push(kind);
  }
  return { x, said };
}

it('of several targets with the same body a guardrail judges the first; the others have its results', async () => {
  const guardrail = words(3, { deny: true });
  const { x, said } = await tried({ input: [guardrail], output: [] }, { input: [guardrail], output: [] });
  expect(said).toEqual([null, null]);
  expect([...(x.execution?.judged.values() ?? [])].flatMap(({ said }) => [...said.keys()])).toEqual([guardrail]);
  expect(x.guard?.before).toHaveLength(1);
});

it('what a guardrail denies for one target it denies for the next, too', async () => {
  const plan = { input: [words(2, { deny: true })], output: [] };
  expect((await tried(plan, plan)).said).toEqual(['guardrail_denied', 'guardrail_denied']);
});

it('a target without guardrails is sent what another was denied, and the answer tells none of its results', async () => {
  const { x, said } = await tried({ input: [words(2, { deny: true })], output: [] }, null);
  expect(said).toEqual(['guardrail_denied', null]);
  expect([x.guard?.output, x.guard?.failed]).toEqual([[], false]);
});

it('no target with output guardrails continues a stream that was shown in part', async () => {
  const { x } = await tried({ input: [], output: [words(2, { deny: true })] });
  refuseToContinue(x);
  expect(x.attempt.result).toBeNull();
  x.outcome.headSent = true;
  refuseToContinue(x);
  expect(x.attempt.result).toMatchObject({ kind: 'failed', error: { kind: 'upstream_cut' } });
});
