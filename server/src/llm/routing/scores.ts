/** How the targets of a config stood when a request was decided, for its record. */

import type { JsonObject } from '../../kernel/json.ts';
import type { ScoredTarget } from '../../telemetry/decision-facts.ts';
import type { Uses } from '../exchange.ts';
import { namedBy } from '../resolve-target.ts';
import { modelUnder } from '../shaping.ts';
import type { LlmRequest } from '../state/request.ts';
import type { RouteExecution } from '../state/route-execution.ts';
import type { Leaf, Route, RouteNode } from './route.ts';

/** A config may have thousands. */
const MAX_SCORED = 50;

const counts = new WeakMap<Route, number>();

/** How many targets may be called at all: those without a weight are nobody's. */
export function countOf(route: Route): number {
  let count = counts.get(route);
  if (count === undefined) {
    const below = (node: RouteNode): number =>
      node.kind === 'target' ? 1 : node.targets.reduce((sum, child) => sum + below(child), 0);
    count = below(route.root);
    counts.set(route, count);
  }
  return count;
}

/** Those that would be tried come first, in their order. */
export function scoreTargets(
  x: Uses<'request', 'breakers'>,
  execution: RouteExecution,
  planned: readonly Leaf[],
  modelSlug: string | null,
): ScoredTarget[] {
  const out: ScoredTarget[] = [];
  for (const leaf of planned.slice(0, MAX_SCORED))
    out.push(scored(x, execution, leaf, out.length + 1, null, modelSlug));
  if (countOf(execution.route) === out.length) return out;
  const tried = new Set(planned);
  const visit = (node: RouteNode, why: ScoredTarget['why']): void => {
    if (out.length >= MAX_SCORED) return;
    if (node.kind === 'target') {
      if (!tried.has(node)) out.push(scored(x, execution, node, null, why ?? 'breaker_open', modelSlug));
      return;
    }
    const pick = node.kind === 'loadbalance' ? execution.picks.get(node) : null;
    const chosen =
      node.kind === 'conditional' ? execution.decisions.find(({ path }) => path === node.path)?.chosen : undefined;
    for (const child of node.targets) {
      if (node.kind === 'fallback' || child === pick || child.path === chosen) visit(child, why);
      else if (node.kind === 'conditional') visit(child, why ?? 'condition_not_met');
      else visit(child, why ?? 'not_drawn');
    }
  };
  visit(execution.route.root, null);
  return out;
}

function scored(
  x: Uses<'request', 'breakers'>,
  execution: RouteExecution,
  leaf: Leaf,
  order: number | null,
  why: ScoredTarget['why'],
  modelSlug: string | null,
): ScoredTarget {
  const { config, breaker, path, weight } = leaf;
  const { slug, raw } = namedBy(x.request, config, modelSlug);
  const stored = slug === null ? undefined : x.request.snapshot?.providers.get(slug);
  const health = breaker === null ? null : x.services.breakers.healthOf(`${execution.place} ${path}`, breaker);
  const left = health?.state === 'open' && why === 'not_drawn' ? 'breaker_open' : why;
  const model = modelOf(x.request, config);
  return {
    path,
    provider: stored?.provider?.id ?? raw,
    provider_slug: slug,
    model: model === '' ? null : model,
    weight,
    order,
    why: left,
    breaker: health,
  };
}

function modelOf(request: LlmRequest, config: Leaf['config']): string {
  const overrides = (config.override_params ?? null) as JsonObject | null;
  const defaults = (config.default_params ?? null) as JsonObject | null;
  const model = modelUnder({ overrides, defaults, drops: null, dropNames: [] }, request.model);
  return model.startsWith('@') ? model.slice(model.indexOf('/') + 1) : model;
}
