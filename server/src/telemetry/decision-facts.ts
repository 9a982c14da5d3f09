/** Why a request went where it went, as its record tells it. Kept for requests under a config only. */
export interface DecisionFacts {
  /** The version of the saved config; null for one that came with the request. */
  readonly config_version: string | null;
  /** Of the workspace's snapshot that the request was decided by. */
  readonly generation: number;
  /** Where the target whose answer was given stands in the config. */
  readonly target: string | null;
  /** What was decided on the way, in order. */
  readonly route?: readonly RouteDecision[] | undefined;
  /** Top-level fields of the body that were not sent as they came; null where the body was not looked into. */
  readonly changed: readonly string[] | null;
  /** The shape the body was converted to, where the provider speaks another one. */
  readonly converted?: string | undefined;
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
  /** Targets whose circuit is open. */
  readonly left_out?: readonly string[] | undefined;
}
