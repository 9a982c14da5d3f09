/**
 * A config as a tree of where a request may go. Compiled once for each version of a config: leaves hold the
 * config of their target with everything that flows down to it, groups only what decides between targets.
 */
import { ACCOUNT_KEYS, type Config, type Strategy } from '../../resources/configs/schema.ts';
import { type Breaker, breakerOf } from './breaker.ts';
import { type Condition, compileQuery, type Read, readerOf } from './conditions.ts';

export interface Leaf {
  readonly kind: 'target';
  /** JSON path: `config`, `config.targets[1].targets[0]`. */
  readonly path: string;
  /** The target's own config over what it inherits; no strategy and no targets. */
  readonly config: Config;
  /** Share in a load balancer. */
  readonly weight: number;
  readonly name: string | null;
  /** Statuses of this target after which the next one is tried; null: the rule of the group. */
  readonly onStatusCodes: ReadonlySet<number> | null;
  /** Null without `cb_config`. Fallbacks and load balancers ask it, conditions do not. */
  readonly breaker: Breaker | null;
  /** What the config makes of a body, but for its model: targets with the same text send the same body. */
  readonly shape: string;
}

interface Group {
  readonly path: string;
  readonly weight: number;
  readonly name: string | null;
  readonly onStatusCodes: ReadonlySet<number> | null;
  readonly targets: readonly RouteNode[];
}

export interface FallbackNode extends Group {
  readonly kind: 'fallback';
  /** Statuses after which the next target is tried; null: every one that is no success. */
  readonly statusCodes: ReadonlySet<number> | null;
}

/** Its targets are those that have a weight. */
export interface BalanceNode extends Group {
  readonly kind: 'loadbalance';
  readonly sticky: Sticky | null;
}

/** Requests that belong together go to one target. */
export interface Sticky {
  /** What they have in common. */
  readonly reads: readonly Read[];
  /** Members of the body that are asked for. */
  readonly params: readonly string[];
  readonly ttlMs: number;
}

export interface ConditionalNode extends Group {
  readonly kind: 'conditional';
  readonly conditions: readonly { readonly when: Condition; readonly target: string }[];
  readonly otherwise: string;
  /** Members of the body that conditions ask for. */
  readonly params: readonly string[];
}

export type RouteNode = Leaf | FallbackNode | BalanceNode | ConditionalNode;

export interface Route {
  readonly root: RouteNode;
  /** Whether a target below may be left out. */
  readonly hasBreakers: boolean;
}

const STICKY_TTL_S = 3600;

/** What belongs to one node and is no matter of those below it. */
const OWN: ReadonlySet<string> = new Set(['strategy', 'targets', 'name', 'weight', 'on_status_codes', 'passthrough']);
/** Who is asked. A target that names its own provider takes none of it from above: a key belongs to its provider. */
const NAMING: readonly string[] = ['provider', 'virtual_key', 'api_key', ...ACCOUNT_KEYS];

const compiled = new WeakMap<Config, Route>();

/** The route of a config; the same object for the same config. */
export function routeOf(config: Config): Route {
  let route = compiled.get(config);
  if (route === undefined) {
    const root = compileNode(config, {}, 'config');
    route = { root, hasBreakers: hasBreaker(root) };
    compiled.set(config, route);
  }
  return route;
}

const hasBreaker = (node: RouteNode): boolean =>
  node.kind === 'target' ? node.breaker !== null : node.targets.some(hasBreaker);

function compileNode(node: Config, above: Config, path: string): RouteNode {
  const merged = inherit(above, node);
  const { strategy, targets } = node;
  const first = targets?.[0];
  if (strategy === undefined || targets === undefined || first === undefined) {
    const breaker = breakerOf(merged.cb_config);
    return { kind: 'target', path, config: merged, ...common(node), breaker, shape: shapeOf(merged) };
  }
  // One target is that target, whatever chooses it: what is left of the request is as plain as without a strategy.
  if (strategy.mode === 'single' || targets.length === 1) {
    return { ...compileNode(first, below(merged, strategy), `${path}.targets[0]`), ...placeOf(node) };
  }
  const inner = below(merged, strategy);
  const group = {
    path,
    ...common(node),
    targets: targets.map((target, index) => compileNode(target, inner, `${path}.targets[${index}]`)),
  };
  if (strategy.mode === 'fallback') {
    const statusCodes = codesOf(strategy.on_status_codes ?? node.on_status_codes);
    return { kind: 'fallback', ...group, statusCodes };
  }
  if (strategy.mode === 'loadbalance') {
    const weighted = group.targets.filter(({ weight }) => weight > 0);
    return { kind: 'loadbalance', ...group, targets: weighted, sticky: stickyOf(strategy) };
  }
  const params = new Set<string>();
  const conditions = (strategy.conditions ?? []).map(({ query, then: target }) => ({
    when: compileQuery(query, params),
    target,
  }));
  return { kind: 'conditional', ...group, conditions, otherwise: strategy.default ?? '', params: [...params] };
}

const codesOf = (codes: readonly number[] | undefined): ReadonlySet<number> | null =>
  codes === undefined ? null : new Set(codes);

function common(node: Config): Pick<Leaf, 'weight' | 'name' | 'onStatusCodes'> {
  return { weight: node.weight ?? 1, name: node.name ?? null, onStatusCodes: codesOf(node.on_status_codes) };
}

/** Of a node that stands for its only target: how its own group sees it. */
function placeOf(node: Config): Partial<Pick<Leaf, 'weight' | 'name' | 'onStatusCodes'>> {
  const { weight, name, onStatusCodes } = common(node);
  return { weight, name, ...(onStatusCodes === null ? {} : { onStatusCodes }) };
}

/** The strategy may hold a circuit breaker, too; it is the targets' all the same. */
function below(merged: Config, { cb_config: breaker }: Strategy): Config {
  return breaker === undefined ? merged : { ...merged, cb_config: breaker };
}

function inherit(above: Config, node: Config): Config {
  const own = namesProvider(node);
  const out: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(above)) {
    if (!OWN.has(key) && !(own && NAMING.includes(key as keyof Config))) out[key] = value;
  }
  for (const [key, value] of Object.entries(node)) {
    if (key !== 'strategy' && key !== 'targets' && value !== undefined) out[key] = value;
  }
  for (const key of ['override_params', 'default_params'] as const) {
    if (above[key] !== undefined && node[key] !== undefined) out[key] = { ...above[key], ...node[key] };
  }
  return out as Config;
}

function namesProvider(node: Config): boolean {
  if (node.passthrough === true || node.provider !== undefined || node.virtual_key !== undefined) return true;
  const model = node.override_params?.model;
  return typeof model === 'string' && model.startsWith('@');
}

function stickyOf({ sticky }: Strategy): BalanceNode['sticky'] {
  if (sticky?.enabled !== true) return null;
  const params = new Set<string>();
  const reads = (sticky.hash_fields ?? []).map((field) => readerOf(field, params)).filter((read) => read !== null);
  return reads.length === 0 ? null : { reads, params: [...params], ttlMs: (sticky.ttl ?? STICKY_TTL_S) * 1000 };
}

function shapeOf(config: Config): string {
  const without = (params: Config['override_params']) => {
    if (params === undefined) return null;
    const { model: _model, ...rest } = params;
    return Object.keys(rest).length === 0 ? null : rest;
  };
  const { override_params: overrides, default_params: defaults, drop_params: drops } = config;
  return JSON.stringify([without(defaults), without(overrides), drops?.length ? drops : null]);
}
