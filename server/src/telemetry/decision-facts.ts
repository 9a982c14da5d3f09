/** Why a request went where it went, as its record tells it. Kept for requests under a config only. */
export interface DecisionFacts {
  /** The version of the saved config; null for one that came with the request. */
  readonly config_version: string | null;
  /** Of the workspace's snapshot that the request was decided by. */
  readonly generation: number;
  /** The place in the config of the target whose answer was given. */
  readonly target: string | null;
  /** What was decided on the way, in order. */
  readonly route?: readonly RouteDecision[] | undefined;
  /** The targets of a config with several, as they stood when it was decided: those to be tried first, in their order. */
  readonly targets?: readonly ScoredTarget[] | undefined;
  /** How many targets the config has; `targets` tells so many only. */
  readonly targets_total?: number | undefined;
  /** Limits that were asked for this target: `rate_limit policy:<id>`, `usage_limit key:<id>`. */
  readonly limits?: readonly string[] | undefined;
  /** Fields of the body that were not sent as they came; null where the body was not looked into. */
  readonly changed: FieldChanges | null;
  /** The shape the body was converted to, where the provider speaks another one. */
  readonly converted?: string | undefined;
}

/** Paths of fields (`tools[0].function.strict`) that a config, or a provider's own transform, put in, left out or replaced. */
export interface FieldChanges {
  readonly added: readonly string[];
  readonly dropped: readonly string[];
  readonly overridden: readonly string[];
}

/** One decision of a strategy. */
export interface RouteDecision {
  /** Of the group in the config. */
  readonly path: string;
  readonly mode: 'fallback' | 'loadbalance' | 'conditional';
  /** Path of the target that was chosen. */
  readonly chosen: string;
  /** In words: `conditions[1] matched`, `by weight 3`, `status 503` of the target before. */
  readonly why: string;
  /** Why no further target was tried after a failure: `502 is not in on_status_codes [429, 503]`. */
  readonly stopped?: string | undefined;
  /** Targets whose circuit is open. */
  readonly left_out?: readonly string[] | undefined;
}

/** One target of several, at the time of the decision. */
export interface ScoredTarget {
  readonly path: string;
  /** Base provider, and the slug of a stored one; null where only the request could name it and did not. */
  readonly provider: string | null;
  readonly provider_slug: string | null;
  /** The model that it would be asked for. */
  readonly model: string | null;
  readonly weight: number;
  /** In which turn it would be tried, from 1; null: not at all. */
  readonly order: number | null;
  /** Why not; null when it would be. */
  readonly why: 'breaker_open' | 'not_drawn' | 'condition_not_met' | null;
  /** Null without a circuit breaker. */
  readonly breaker: {
    readonly state: 'closed' | 'open' | 'half-open';
    readonly failures: number;
    readonly requests: number;
  } | null;
  /** Why it cannot be called, where that was found out. */
  problem?: string | undefined;
}
