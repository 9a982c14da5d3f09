/**
 * The way of one request through the targets of its config: which leaf is next, and whether what a target made of it is
 * final. What a target needs to be tried is given by `steps/route.ts`.
 */

import { createHash } from 'node:crypto';
import { SluiceError } from '../../kernel/errors.ts';
import type { RouteDecision } from '../../telemetry/decision-facts.ts';
import type { Uses } from '../exchange.ts';
import { outcomeOf } from '../relay/failed-answer.ts';
import { MAX_ATTEMPTS } from '../relay/retry-eligibility.ts';
import { namesStatus } from '../relay/retry-rules.ts';
import { routingSettings } from '../routing-headers.ts';
import type { AttemptResult } from '../state/attempt-result.ts';
import type { LlmOutcome } from '../state/outcome.ts';
import type { LlmRequest } from '../state/request.ts';
import type { RouteExecution } from '../state/route-execution.ts';
import { balance, type Drawn } from './balance.ts';
import { factsOf } from './facts.ts';
import type { BalanceNode, ConditionalNode, FallbackNode, Leaf, Route, RouteNode } from './route.ts';

export function newRouteExecution(x: Uses<'request'>, route: Route, place: string): RouteExecution {
  return {
    route,
    place,
    breakers: breakersAt(x.request, route, place),
    picks: new Map(),
    targets: new Map(),
    judged: new Map(),
    path: 'config',
    local: false,
    scored: null,
    decisions: [],
    searched: { work: 0 },
  };
}

/** How often a session is looked up again because its target has been found to fail meanwhile. */
const MAX_LOOKS = 3;

/**
 * Requests that are called alike share breakers. One that brings its own time limit, host, account or token fails for what it
 * brought: that must not keep others from a target that answers them.
 */
function breakersAt(request: LlmRequest, route: Route, place: string): string {
  if (!route.hasBreakers) return place;
  const own = routingSettings(request);
  if (own.length === 0 && request.callerToken === null) return place;
  return `${place} ${createHash('sha256')
    .update(JSON.stringify([own, request.callerToken]))
    .digest('base64url')}`;
}

export interface RouteRunner {
  /** Calls one target, with its own retries. Rejects when the whole request must end. */
  run(leaf: Leaf): Promise<AttemptResult>;
  /** The result is not final: forgets it, but for what it used. */
  passOver(result: AttemptResult): void;
}

export async function runNode(
  x: Uses<
    'attempt' | 'clientGone' | 'guard' | 'outcome' | 'request' | 'execution',
    'breakers' | 'cache' | 'clock' | 'log' | 'notes' | 'random'
  >,
  execution: RouteExecution,
  walker: RouteRunner,
  node: RouteNode,
): Promise<AttemptResult> {
  if (node.kind === 'target') return walker.run(node);
  if (node.kind === 'loadbalance') {
    // A target that was left out is tried by one request: from here to its call nothing is waited for, or others that came
    // while a session was looked up would try it, too.
    let pick = picked(x, execution, node);
    for (let looks = 0; pick instanceof Promise && looks < MAX_LOOKS; looks++) {
      await pick;
      pick = picked(x, execution, node);
    }
    return runNode(x, execution, walker, pick instanceof Promise ? await pick : pick);
  }
  if (node.kind === 'conditional') return runNode(x, execution, walker, selected(x, node));
  const outer = x.attempt.wouldFallBack;
  const targets = ableOf(x, execution, node);
  const ignored = !targets.some((target) => mayCall(x, execution, target));
  const [first] = targets;
  if (first !== undefined && targets.length < node.targets.length) {
    const out = leftOut(
      x,
      node.targets.filter((target) => !targets.includes(target)),
    );
    execution.decisions.push({
      path: node.path,
      mode: node.kind,
      chosen: first.path,
      why: 'the first that may be called',
      ...out,
    });
  }
  let result: AttemptResult | null = null;
  for (const [i, child] of targets.entries()) {
    if (result !== null) {
      // It may have been found to fail since the first target was called.
      if (!ignored && !mayCall(x, execution, child)) continue;
      execution.decisions.push({
        path: node.path,
        mode: node.kind,
        chosen: child.path,
        why: reasonOf(x.outcome, result, targets[i - 1]?.path),
      });
      walker.passOver(result);
    }
    const codes = child.onStatusCodes ?? node.statusCodes;
    const more = i < targets.length - 1;
    x.attempt.wouldFallBack = more
      ? (status, code) => asksForNext(codes, status, code) || outer?.(status, code) === true
      : outer;
    result = await runNode(x, execution, walker, child);
    if (goesOn(x, result, codes)) continue;
    const stopped = more ? stoppedBy(x, result, codes) : null;
    if (stopped !== null)
      execution.decisions.push({
        path: node.path,
        mode: node.kind,
        chosen: child.path,
        why: 'its answer is final',
        stopped,
      });
    break;
  }
  if (result === null) throw new SluiceError('internal', 'A group of the config has no targets.');
  return result;
}

/**
 * Whether the next target is tried. Nothing the client has seen is taken back, at most continued, and a request that has
 * to end ends.
 */
function goesOn(
  x: Uses<'clientGone' | 'guard' | 'outcome' | 'request'>,
  result: AttemptResult,
  codes: ReadonlySet<number> | null,
): boolean {
  if (x.clientGone || (x.outcome.headSent && x.outcome.deliveredPrefix?.continuable !== true)) return false;
  if (x.outcome.attempts.length >= MAX_ATTEMPTS) return false;
  if (result.kind === 'done')
    return !x.request.dryRun && !x.outcome.headSent && asksForNext(codes, x.outcome.status, null);
  if (result.kind === 'failed') {
    const { kind } = result.error;
    // Told as an answer, a refusal is one.
    if (kind === 'client_closed' || (kind === 'guardrail_denied' && x.guard?.soft === true)) return false;
  }
  return asksForNext(codes, ...outcomeOf(result));
}

/** Why a failure is not followed by the next target, in words; null for an answer that went well. */
function stoppedBy(
  x: Uses<'clientGone' | 'outcome' | 'request'>,
  result: AttemptResult,
  codes: ReadonlySet<number> | null,
): string | null {
  if (x.request.dryRun || (result.kind === 'done' && x.outcome.status < 400)) return null;
  if (x.clientGone) return 'the caller left';
  if (x.outcome.headSent && x.outcome.deliveredPrefix?.continuable !== true)
    return 'the caller has seen a part of the answer';
  if (x.outcome.attempts.length >= MAX_ATTEMPTS) return `${MAX_ATTEMPTS} attempts were made`;
  if (codes === null) return result.kind === 'failed' ? result.error.message : null;
  const [status] = result.kind === 'done' ? [x.outcome.status] : outcomeOf(result);
  return codes.has(status) ? null : `${status} is not in on_status_codes [${[...codes].join(', ')}]`;
}

/** A failure without an answer counts with the status that the caller would get. */
function asksForNext(codes: ReadonlySet<number> | null, status: number, code: string | null): boolean {
  return codes === null ? status < 200 || status > 299 : namesStatus(codes, status, code);
}

/** The leaves in the order in which they would be tried. */
export async function plannedLeaves(
  x: Uses<'attempt' | 'request' | 'execution', 'breakers' | 'cache' | 'clock' | 'log' | 'notes' | 'random'>,
  execution: RouteExecution,
  node: RouteNode,
  into: Leaf[] = [],
): Promise<Leaf[]> {
  if (node.kind === 'target') into.push(node);
  else if (node.kind === 'loadbalance') await plannedLeaves(x, execution, await picked(x, execution, node), into);
  else if (node.kind === 'conditional') await plannedLeaves(x, execution, selected(x, node), into);
  else for (const child of ableOf(x, execution, node)) await plannedLeaves(x, execution, child, into);
  return into;
}

/** Targets that are not left out; all of them, where all would be. */
function ableOf(
  x: Uses<never, 'breakers'>,
  execution: RouteExecution,
  { targets }: FallbackNode,
): readonly RouteNode[] {
  const able = targets.filter((target) => mayCall(x, execution, target));
  return able.length === 0 ? targets : able;
}

/** Whether a breaker lets some target of a node be called. */
function mayCall(x: Uses<never, 'breakers'>, execution: RouteExecution, node: RouteNode): boolean {
  if (node.kind === 'conditional') return true;
  if (node.kind !== 'target') return node.targets.some((target) => mayCall(x, execution, target));
  const { breaker } = node;
  return breaker === null || x.services.breakers.standOf(`${execution.breakers} ${node.path}`, breaker) !== 'open';
}

/** The target that was drawn, or another one when it has been found to fail since. */
function picked(
  x: Uses<'attempt' | 'request' | 'execution', 'breakers' | 'cache' | 'clock' | 'log' | 'notes' | 'random'>,
  execution: RouteExecution,
  node: BalanceNode,
): RouteNode | Promise<RouteNode> {
  const before = execution.picks.get(node);
  if (before !== undefined && (mayCall(x, execution, before) || !mayCall(x, execution, node))) return before;
  const drawn = balance(x, node, execution.place, (target) => mayCall(x, execution, target));
  return drawn instanceof Promise
    ? drawn.then((one) => keep(x, execution, node, one))
    : keep(x, execution, node, drawn);
}

function keep(
  x: Uses<'request', 'breakers' | 'notes'>,
  execution: RouteExecution,
  node: BalanceNode,
  { pick, by }: Drawn,
): RouteNode {
  execution.picks.set(node, pick);
  execution.decisions.push({
    path: node.path,
    mode: node.kind,
    chosen: pick.path,
    why: by === 'session' ? 'by its session' : `by ${by === 'hash' ? 'hash_fields and ' : ''}weight ${pick.weight}`,
    ...leftOut(
      x,
      node.targets.filter((target) => !mayCall(x, execution, target)),
    ),
  });
  return pick;
}

function selected(x: Uses<'attempt' | 'request' | 'execution'>, node: ConditionalNode): RouteNode {
  // Asked before the request is estimated, and again when it is sent.
  const before = x.execution?.picks.get(node);
  if (before !== undefined) return before;
  const facts = factsOf(x, node.params);
  const at = node.conditions.findIndex(({ when }) => when(facts));
  const name = node.conditions[at]?.target ?? node.otherwise;
  const found = node.targets.find((target) => target.name === name);
  if (found === undefined) {
    throw new SluiceError(
      'unexpected',
      `The config routes to the target ${JSON.stringify(name)}, which it does not have.`,
    );
  }
  x.execution?.picks.set(node, found);
  x.execution?.decisions.push({
    path: node.path,
    mode: node.kind,
    chosen: found.path,
    why: at === -1 ? 'no condition matched' : `conditions[${at}] matched`,
  });
  return found;
}

/** Targets that are not called because they failed too often. */
function leftOut(x: Uses<'request', 'notes'>, targets: readonly RouteNode[]): Pick<RouteDecision, 'left_out'> {
  if (targets.length === 0) return {};
  const out = targets.map(({ path }) => path);
  const {
    request: { principal },
  } = x;
  const caller = { organisation_id: principal?.organisationId, workspace_id: principal?.workspaceId };
  x.services.notes('breaker', {
    request_id: x.request.id,
    ...caller,
    config: x.request.plan?.config?.slug ?? null,
    targets: out,
  });
  return { left_out: out };
}

/** Why what a target answered is not given; `path` is the target's. */
function reasonOf(outcome: LlmOutcome, result: AttemptResult, path = ''): string {
  const [status, code] = result.kind === 'done' ? [outcome.status, null] : outcomeOf(result);
  return `${path} failed with status ${status}${code === null ? '' : ` (${code})`}`;
}

/**
 * Where files, batches and jobs of a config with several targets go: always to the same one, or what was made could not be
 * found again. Conditions decide, else it is the first target.
 */
export function objectLeaf(x: Uses<'attempt' | 'request' | 'execution'>, node: RouteNode): Leaf {
  if (node.kind === 'target') return node;
  const next = node.kind === 'conditional' ? selected(x, node) : node.targets[0];
  if (next === undefined) throw new SluiceError('internal', 'A group of the config has no targets.');
  return objectLeaf(x, next);
}
