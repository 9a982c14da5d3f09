import type { LimitClass } from '../limits/limit-class.ts';
import type { Operation } from '../operations/operation.ts';
import type { KeptPlan, StoredConfig } from '../runtime/snapshot.ts';
import type { GuardPlan } from './guard/plan.ts';
import type { Leaf, Route } from './routing/route.ts';
import type { Target } from './target.ts';

/** What a plan asks for; the conditions of the table in `pipeline.ts` read it. */
export interface Features extends TargetFeatures {
  /** Rate limits. */
  readonly rateLimits: boolean;
  /** Usage limits. */
  readonly usageLimits: boolean;
  readonly guardrails: boolean;
  /** Several targets. */
  readonly route: boolean;
}

/** What depends on the target alone. Of several targets: what some of them may ask for. */
export interface TargetFeatures {
  readonly cache: boolean;
  /** What the request names by its address is fetched for the provider. */
  readonly media: boolean;
  /** The request may name, or make, objects that have an owner. */
  readonly owners: boolean;
}

export const SOME: TargetFeatures = { cache: true, media: true, owners: true };
export const NONE: TargetFeatures = { cache: false, media: false, owners: false };

/** What a request for this model asks for at a target. */
export function targetFeatures(operation: Operation, model: string, target: Target): TargetFeatures {
  const { cache, stored, provider } = target;
  return {
    cache: cache !== null,
    media: target.bind(operation.id, target.sends(model)).binding.inlines !== undefined,
    owners:
      operation.family === 'proxy' ||
      (stored !== null && provider.local === undefined && (stored.shared || operation.creates !== null)),
  };
}

/** What a request will go through, decided once per (config, target, operation) and memoised on the snapshot, which the next one may take over. */
export interface Plan extends KeptPlan {
  /** Null when Sluice itself answers, or when the request names its provider later (`gateway_options`). */
  readonly target: Target | null;
  /** Where a request goes that has more than one target; `target` is null then. */
  readonly route: RoutePlan | null;
  /** The saved config it follows; null without one. */
  readonly config: StoredConfig | null;
  /** Null without any guardrail. */
  readonly guard: GuardPlan | null;
  /** Which optional steps its requests need. */
  readonly features: Features;
  /** What the config adds to the metadata of its requests; null without any. */
  readonly metadata: Readonly<Record<string, string>> | null;
}

/** A route and what was made of it for requests alike. */
export interface RoutePlan {
  readonly route: Route;
  /** Tells this version of this config from all others, for what is remembered of its targets. */
  readonly place: string;
  /** The config is a stored one. */
  readonly saved: boolean;
  /** It came with the request. */
  readonly inline: boolean;
  /** Slug in the model (`@slug/model`), already taken off. */
  readonly modelSlug: string | null;
  /** What its limits are asked for. */
  readonly limitClass: LimitClass;
  /** Whether requests of others go by this plan, too. */
  readonly shared: boolean;
  readonly targets: Map<Leaf, Target>;
  readonly guards: Map<Leaf, GuardPlan | null>;
}

export function makePlan(
  target: Target | null,
  route: RoutePlan | null,
  config: StoredConfig | null,
  guard: GuardPlan | null,
  features: Omit<Features, 'guardrails' | 'route'>,
  metadata: Plan['metadata'] = null,
): Plan {
  const all = { ...features, guardrails: guard !== null, route: route !== null };
  return { target, route, config, guard, features: all, metadata };
}
