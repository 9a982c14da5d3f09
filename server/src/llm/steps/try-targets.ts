/** Tries the targets of a config until one gives the answer, each with its own limits, guardrails and retries. */

import { type ErrorKind, SluiceError } from '../../kernel/errors.ts';
import { LimitRefused } from '../../limits/limit-refused.ts';
import { errorStatus, recordedAs } from '../../operations/dialects/errors.ts';
import { passAnswerOver } from '../attempt.ts';
import { causeOfError, rounded } from '../attempt-cause.ts';
import type { Exchange, RunTarget, Uses } from '../exchange.ts';
import { guardPlan } from '../guard/plan.ts';
import { passedPath } from '../misspelt.ts';
import { type Features, type RoutePlan, targetFeatures } from '../plan.ts';
import { brokenStream, mayFollow } from '../relay/retry-eligibility.ts';
import { refuseUnexecuted, selectTarget } from '../resolve-target.ts';
import type { CallResult } from '../routing/breaker.ts';
import type { Leaf } from '../routing/route.ts';
import { newRouteExecution, plannedLeaves, runNode } from '../routing/route-execution.ts';
import { scoreTargets } from '../routing/scores.ts';
import { beginTargetLimits, endTargetLimits } from '../routing/target-limits.ts';
import { Attempt } from '../state/attempt.ts';
import { type AttemptResult, DONE } from '../state/attempt-result.ts';
import { SharedLimits } from '../state/limits.ts';
import type { LlmOutcome } from '../state/outcome.ts';
import type { LlmRequest } from '../state/request.ts';
import type { RouteExecution } from '../state/route-execution.ts';
import { countsRates, countsUse, type Target } from '../target.ts';
import { give } from './try-only-target.ts';

/** Decides where the request goes first, by which its limits are estimated. */
export async function choose(
  x: Uses<
    'attempt' | 'limits' | 'outcome' | 'request' | 'execution',
    'breakers' | 'cache' | 'clock' | 'egress' | 'log' | 'notes' | 'paths' | 'random' | 'timeouts'
  >,
): Promise<void> {
  const plan = x.request.plan?.route;
  if (plan == null) return;
  const execution = newRouteExecution(x, plan.route, plan.place);
  x.execution = execution;
  x.limits.shared = new SharedLimits();
  const leaves = await plannedLeaves(x, execution, plan.route.root);
  execution.scored = scoreTargets(x, execution, leaves, plan.modelSlug);
  for (const leaf of leaves) {
    try {
      x.attempt.target = await targetOf(x, execution, plan, leaf);
      return;
    } catch (error) {
      // Told when it is tried.
      if (!(error instanceof SluiceError)) throw error;
    }
  }
}

/** Runs the steps of one target after the other, until an answer is final. */
export async function tryTargets(x: Exchange, runTarget: RunTarget): Promise<void> {
  const plan = x.request.plan?.route;
  const { execution } = x;
  if (plan == null || execution === null) return;
  const walker = { run: (leaf: Leaf) => tryTarget(x, runTarget, execution, plan, leaf), passOver: () => passOver(x) };
  const result = await runNode(x, execution, walker, plan.route.root);
  if (result.kind !== 'done') give(x, result);
}

/** A promise only while a target is found that was not called before. */
function targetOf(
  x: Uses<'outcome' | 'request', 'clock' | 'egress' | 'paths' | 'timeouts'>,
  execution: RouteExecution,
  plan: RoutePlan,
  leaf: Leaf,
): Target | Promise<Target> {
  const target = execution.targets.get(leaf) ?? plan.targets.get(leaf);
  if (target === undefined || target.until <= x.services.clock.now()) return foundTarget(x, execution, plan, leaf);
  execution.targets.set(leaf, target);
  return target;
}

/**
 * The fault of a target that could not be called at all. It says which one, and what failed before: of several targets the
 * last one's error is the caller's, who would take a mistake in the config for all there is.
 */
function atTarget(outcome: LlmOutcome, leaf: Leaf, error: SluiceError): SluiceError {
  const before = outcome.attempts.findLast(({ target }) => target !== leaf.path);
  const failed =
    before === undefined
      ? ''
      : ` Before it, ${before.target} failed with ${before.status === null ? before.error : `status ${before.status}`}.`;
  return error.reworded(`${leaf.path}: ${error.message}${failed}`);
}

async function foundTarget(
  x: Uses<'outcome' | 'request', 'clock' | 'egress' | 'paths' | 'timeouts'>,
  execution: RouteExecution,
  plan: RoutePlan,
  leaf: Leaf,
): Promise<Target> {
  const { saved, modelSlug } = plan;
  try {
    refuseUnexecuted(leaf.config);
    const target = await selectTarget(x, { config: leaf.config, configPath: leaf.path, saved, modelSlug });
    target.bind(x.request.operation.id, target.sends(x.request.model), () => passedPath(x));
    // A caller's own credential is this caller's.
    if (target.stored !== null && plan.shared) plan.targets.set(leaf, target);
    execution.targets.set(leaf, target);
    return target;
  } catch (error) {
    const scored = execution.scored?.find(({ path }) => path === leaf.path);
    if (!(error instanceof SluiceError)) throw error;
    if (scored !== undefined) scored.problem = error.message;
    throw atTarget(x.outcome, leaf, error);
  }
}

async function tryTarget(
  x: Exchange,
  runTarget: RunTarget,
  execution: RouteExecution,
  plan: RoutePlan,
  leaf: Leaf,
): Promise<AttemptResult> {
  const began = x.services.clock.monotonic();
  if (x.clientGone) throw new SluiceError('client_closed', 'The client closed the connection.');
  const before = { target: x.attempt.target, path: execution.path };
  execution.path = leaf.path;
  x.attempt = Attempt.after(x.attempt, x.request);
  x.attempt.callsBefore = x.outcome.attemptCount;
  x.limits.turnToTarget();
  const {
    outcome: { attemptCount: tries },
  } = x;
  // Before anything is waited for: of requests that come together one tries a target that was left out.
  const told =
    leaf.breaker === null ? NOBODY : x.services.breakers.begin(`${execution.breakers} ${leaf.path}`, leaf.breaker);
  try {
    const found = targetOf(x, execution, plan, leaf);
    const target = found instanceof Promise ? await found : found;
    if (!mayFollow(x, target)) return brokenBefore(x, execution, before);
    x.attempt.target = target;
    x.attempt.leaf = leaf;
    x.attempt.guardPlan = guardOf(x.request, plan, leaf);
    beginTargetLimits(x, target);
    await runTarget(x, featuresOf(x, plan, target));
    const result = x.attempt.result ?? DONE;
    const called = x.outcome.attemptCount > tries;
    // A step has refused to continue a stream.
    if (!called && result.kind === 'failed') return brokenBefore(x, execution, before);
    if (called && !x.clientGone) told(outcomeFor(result, x.outcome.status));
    return result;
  } catch (error) {
    endTargetLimits(x, false);
    if (!(error instanceof SluiceError) || endsAll(error)) throw error;
    x.outcome.attempts.push({
      target: leaf.path,
      provider: x.attempt.target?.provider.id ?? leaf.config.provider ?? '',
      status: null,
      error: recordedAs(error),
      cause: causeOfError(error),
      began_ms: rounded(began - x.request.started),
      duration_ms: rounded(x.services.clock.monotonic() - began),
    });
    return { kind: 'failed', error };
  } finally {
    told(null);
  }
}

/** What one target needs of the steps for targets. */
function featuresOf(
  { request: { operation, model, snapshot }, limits, attempt, guard }: Uses<'attempt' | 'guard' | 'limits' | 'request'>,
  { limitClass }: RoutePlan,
  target: Target,
): Features {
  const counts = snapshot !== null;
  return {
    ...targetFeatures(operation, model, target),
    rateLimits: counts && limitClass !== 'reads' && countsRates(snapshot, target),
    usageLimits: counts && limitClass === 'uses' && (limits.usageReservation !== null || countsUse(snapshot, target)),
    guardrails: attempt.guardPlan !== null || guard !== null,
    route: true,
  };
}

/** Finds out which of the targets that a dry run would try cannot be called. */
export async function checkTargets(
  x: Uses<
    'attempt' | 'outcome' | 'request' | 'execution',
    'breakers' | 'cache' | 'clock' | 'egress' | 'log' | 'notes' | 'paths' | 'random' | 'timeouts'
  >,
): Promise<void> {
  const plan = x.request.plan?.route;
  const { execution } = x;
  if (plan == null || execution === null) return;
  for (const leaf of await plannedLeaves(x, execution, plan.route.root)) {
    try {
      await targetOf(x, execution, plan, leaf);
    } catch (error) {
      if (!(error instanceof SluiceError)) throw error;
    }
  }
}

const NOBODY = () => {};

const LATE: ReadonlySet<ErrorKind> = new Set(['timeout', 'upstream_idle', 'upstream_silent']);

/** A call as a breaker sees it: what guardrails say of an answer is not the provider's failure. */
function outcomeFor(result: AttemptResult, given: number): CallResult {
  if (result.kind !== 'failed') return { status: result.kind === 'done' ? given : result.status, late: false };
  const { kind } = result.error;
  return { status: kind === 'guardrail_denied' ? 200 : errorStatus(result.error), late: LATE.has(kind) };
}

/** A target that cannot continue what was shown changes nothing: what broke the stream is still what there is to tell. */
function brokenBefore(
  x: Uses<'attempt' | 'limits' | 'outcome' | 'request', 'pricer' | 'unpriced'>,
  execution: RouteExecution,
  before: { target: Target | null; path: string },
): AttemptResult {
  endTargetLimits(x, false);
  x.attempt.target = before.target;
  execution.path = before.path;
  return { kind: 'failed', error: brokenStream(x.outcome) };
}

/** What is no matter of one target: the caller left, or a limit that the request itself has is used up. */
function endsAll(error: SluiceError): boolean {
  if (error.kind === 'client_closed') return true;
  return error instanceof LimitRefused && !OF_TARGETS.has(error.by.kind) && !error.unpriced;
}

const OF_TARGETS: ReadonlySet<string> = new Set(['provider', 'virtual-key', 'integration']);

/** Another target is tried: what this one answered is nobody's, what it used is counted. */
function passOver(x: Uses<'attempt' | 'limits' | 'outcome' | 'request', 'pricer' | 'unpriced'>): void {
  passAnswerOver(x);
  endTargetLimits(x, false);
}

function guardOf(request: LlmRequest, plan: RoutePlan, leaf: Leaf): ReturnType<typeof guardPlan> {
  let found = plan.guards.get(leaf);
  if (found === undefined) {
    found = request.snapshot === null ? null : guardPlan(request.operation, request.snapshot, leaf.config, plan.inline);
    plan.guards.set(leaf, found);
  }
  return found;
}
