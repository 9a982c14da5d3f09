import { GuardrailState, withoutChange } from '../../gateway/guardrail-state.ts';
import type { Guardrail } from '../../guardrails/guardrail.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { estimateUse, expectUse } from '../estimate.ts';
import type { Exchange, Uses } from '../exchange.ts';
import { judgeInput } from '../guard/apart/where-judged.ts';
import { inputView, notChanged, notCovered, readsTexts, unseenBy, withoutTexts } from '../guard/enforceability.ts';
import { alreadyJudged, nowJudged } from '../guard/guardrail-memo.ts';
import type { RequestVerdict } from '../guard/judge-request.ts';
import type { InputView } from '../guard/judged-request.ts';
import { denial, insists, outputCovered } from '../guard/output.ts';
import type { GuardPlan } from '../guard/plan.ts';
import type { ChangedBody } from '../guard/subject.ts';
import { ReplacementError } from '../guard/texts.ts';
import { isManaged } from '../managed.ts';
import { brokenStream } from '../relay/retry-eligibility.ts';
import { modelUnder } from '../shaping.ts';
import { RequestBody } from '../state/body.ts';
import type { LlmLimits } from '../state/limits.ts';
import type { LlmRequest } from '../state/request.ts';

/**
 * Judges the request before it is sent (after limits and budgets). A guardrail that denies or redacts and
 * cannot look at what the request says, or what its answer will say, refuses it; so does a change that cannot be sent.
 */
export function guard(x: Exchange): void | Promise<void> {
  const plan = x.request.plan?.guard;
  if (plan == null) return;
  const guarded = new GuardrailState(x.services, x.request, plan);
  x.guard = guarded;
  try {
    const pending = judge(x, guarded, plan, plan.input, (verdict) => take(x, guarded, verdict));
    return pending?.catch((error: unknown) => refuse(x.limits, error));
  } catch (error) {
    refuse(x.limits, error);
  }
}

/**
 * Judges what the target would be sent by its own guardrails. Those that have judged the same body, for another target before
 * this one, are not asked again.
 */
export function guardTarget(x: Exchange): void | Promise<void> {
  const {
    execution,
    attempt: { leaf, guardPlan: plan, target },
  } = x;
  if (execution === null || leaf === null) return;
  const { shape } = leaf;
  if (plan === null) {
    x.guard?.turnTo(NO_GUARDRAILS);
    return;
  }
  x.guard ??= new GuardrailState(x.services, x.request, plan);
  const guarded = x.guard;
  guarded.turnTo(plan);
  const asked = `${target?.provider.id} ${modelUnder(target?.shaping ?? null, x.request.model)}`;
  const known = execution.judged.get(shape);
  const from = alreadyJudged(known, plan.input, asked);
  if (known !== undefined && from > 0) {
    x.attempt.body = known.body;
    x.attempt.shaped = known.changed;
    guarded.before = plan.input.slice(0, from).flatMap((one) => known.said.get(one)?.result ?? []);
    guarded.failed = guarded.before.some(({ verdict }) => !verdict);
    const { denied } = known;
    if (denied !== null && plan.input.slice(0, from).includes(denied)) {
      guarded.soft = denied.actions.softDeny;
      guarded.failed = false;
      coverOutput(x, guarded, plan);
      throw denial(guarded);
    }
  }
  const body = x.attempt.body;
  return judge(x, guarded, plan, plan.input.slice(from), (verdict) => {
    const { outcome } = verdict;
    const before = guarded.before;
    const failed = guarded.failed;
    const keep = () =>
      execution.judged.set(
        shape,
        nowJudged({
          known,
          list: plan.input,
          from,
          results: outcome.results,
          asked,
          body: x.attempt.body,
          changed: x.attempt.shaped || x.attempt.body !== body,
        }),
      );
    try {
      take(x, guarded, verdict);
    } finally {
      guarded.before = [...before, ...outcome.results];
      guarded.failed = !outcome.denied && (failed || outcome.failed);
      keep();
    }
  });
}

/** Refuses to continue a stream under output guardrails: they have not judged the text that was shown before. */
export function refuseToContinue(x: Uses<'attempt' | 'guard' | 'outcome'>): void {
  if (!x.outcome.headSent || x.guard === null || x.guard.output.length === 0) return;
  x.attempt.result = { kind: 'failed', error: brokenStream(x.outcome) };
}

/** Judges what would be sent by a list of guardrails. Throws what refuses it. */
function judge(
  x: Exchange,
  guarded: GuardrailState,
  plan: GuardPlan,
  input: readonly Guardrail[],
  done: (verdict: RequestVerdict) => void,
): void | Promise<void> {
  const view = inputView(x);
  coverOutput(x, guarded, plan);
  const list = input.length === 0 ? input : judging(input, view, x.request);
  if (list.length === 0) return;
  const verdict = judgeInput(x, guarded, list, view);
  if (verdict === null) return;
  if (!(verdict instanceof Promise)) return done(verdict);
  return new Promise<RequestVerdict | null>((resolve, reject) => {
    const cancel = (error: SluiceError) => {
      guarded.end();
      reject(error);
    };
    x.cancel = cancel;
    if (x.clientGone) cancel(new SluiceError('client_closed', 'The client closed the connection.'));
    verdict.then(resolve, reject);
  })
    .finally(() => {
      x.cancel = null;
    })
    .then((said) => {
      if (said !== null) done(said);
    });
}

const NO_GUARDRAILS: GuardPlan = { input: [], output: [] };

/** Guardrails that judge this request, with the checks that can. */
function judging(list: readonly Guardrail[], view: InputView, request: LlmRequest): readonly Guardrail[] {
  if (view === 'texts') return list;
  for (const guardrail of list) {
    const unseen = unseenBy(guardrail, view, request);
    if (unseen !== null) throw notCovered(guardrail, unseen);
  }
  return list.map((guardrail) => (readsTexts(guardrail, 'input') ? withoutTexts(guardrail) : guardrail));
}

function coverOutput(x: Uses<'attempt' | 'request'>, guarded: GuardrailState, { output }: GuardPlan): void {
  if (output.length === 0) return;
  const stream = x.attempt.stream || asksForStream(x.request);
  if (x.request.operation.gives === 'state' || outputCovered(x.request.operation, stream)) return;
  const refusing = output.find((guardrail) => insists(guardrail) && readsTexts(guardrail, 'output'));
  if (refusing === undefined) return;
  const refusal = notCovered(refusing, `what ${x.request.operation.id} answers${stream ? ' as a stream' : ''}`);
  // Of what Sluice keeps, the lines that it ran itself were judged.
  if (x.request.operation.family !== 'job' || !isManaged(x.request)) throw refusal;
  guarded.unjudged = refusal;
}

/** What has no body, as a stored response, is asked for as a stream by its address. */
function asksForStream({ operation, incoming: request }: LlmRequest): boolean {
  if (!operation.streams || operation.body !== 'none') return false;
  return new URLSearchParams((request.url ?? '').split('?')[1] ?? '').get('stream') === 'true';
}

function take(x: Exchange, guarded: GuardrailState, { outcome, changed }: RequestVerdict): void {
  guarded.before = outcome.results;
  guarded.failed = outcome.failed;
  guarded.soft = outcome.soft;
  if (outcome.denied) throw denial(guarded);
  if (changed instanceof ReplacementError) {
    guarded.before = withoutChange(outcome.results, changed.message);
    throw notChanged(outcome.results, changed.message);
  }
  if (changed !== null) put(x, changed);
}

/** Makes the changed request the one that is sent and counted. */
function put(x: Exchange, { bytes, json, scan }: ChangedBody): void {
  x.attempt.body = new RequestBody(bytes, scan);
  if (json) x.attempt.shaped = true;
  if (x.limits.reserved === null) return;
  const estimate = estimateUse(x);
  x.limits.reserved = { ...x.limits.reserved, estimate };
  expectUse(x, estimate);
}

function refuse(limits: LlmLimits, error: unknown): never {
  limits.release();
  throw error;
}
