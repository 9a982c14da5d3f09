/** What rows hold of limits and policies. */
export type RateLimit = {
  type: 'requests' | 'tokens';
  unit: 'rps' | 'rpm' | 'rph' | 'rpd' | 'rpw';
  value: number;
};

/** What a usage limit counts. */
export type LimitType = 'cost' | 'tokens' | 'requests';
/** Whose limit a bucket is; an integration's is its limit in one workspace, a token's is claimed by a JWT. */
export type LimitOwner = 'key' | 'workspace' | 'provider' | 'virtual-key' | 'integration' | 'policy' | 'token';
/** What alerts say of a limit, each once in a window. */
export type AlertKind = 'threshold' | 'exhausted' | 'unpriced';
/** What alerts say of the traffic of a workspace or an organisation. */
export type TrafficAlertKind = 'spend_rate' | 'error_rate' | 'spend_anomaly';

/** What is watched of the traffic of a place. */
export type TrafficBudgets = {
  /** Micro-dollars in 30 days; null: spend has no budget. */
  readonly spend_budget: number | null;
  /** Percent of the requests that may fail; null: errors have no budget. */
  readonly error_budget: number | null;
  /** Whether hours of unusual spend are looked for. */
  readonly spend_anomalies: boolean;
};

/**
 * What a `cost` limit does with a request whose price is not known: refuses it, counts it at a set price (dollars per
 * million tokens), or serves it uncounted, marked and told once in a window.
 */
export type UnpricedRule = 'deny' | 'serve' | { input: number; output: number };

export type UsageLimit = {
  credit_limit?: number;
  type?: 'cost' | 'tokens';
  alert_threshold?: number;
  periodic_reset?: 'monthly' | 'weekly' | null;
  periodic_reset_days?: number | null;
  next_usage_reset_at?: string | null;
  unpriced?: UnpricedRule;
  on_outage?: 'refuse' | 'serve';
};

/** When the secret of a key is replaced; `next_rotation_at` in ISO 8601 UTC. */
export type RotationPolicy = {
  readonly rotation_period: 'weekly' | 'monthly' | null;
  readonly rotation_period_days: number | null;
  readonly next_rotation_at: string;
  readonly key_transition_period_ms: number;
  readonly status: 'ACTIVE';
};

/** What an integration of the organisation gives each workspace without an own entry. */
export type IntegrationAccess = {
  enabled: boolean;
  usage_limits?: UsageLimit[] | null;
  rate_limits?: RateLimit[] | null;
};

/** One condition of a policy: a request must have one of `value` and none of `excludes` under `key`. */
export interface PolicyCondition {
  key: string;
  value?: string | string[];
  excludes?: string | string[];
}

export interface PolicyGroup {
  key: string;
}

/** Which limit refused a request, as its record says. */
export interface RefusedBy {
  readonly limit: 'rate' | 'usage';
  /** Owner of the limit: a kind of `LimitOwner`. */
  readonly kind: string;
  readonly id: string;
  /** Of a policy: whose counter it was, `metadata._user:alice`. */
  readonly value_key: string | null;
  /** Of a usage limit: what was used and reserved then. */
  readonly committed?: number;
}

/**
 * What limits had to do with a request, for its record: enough to decide again later as it was decided. Only what was
 * asked is there. Amounts in micro-dollars, tokens and requests; times in milliseconds by the store's clock, with a
 * fraction that keeps the order of one process.
 */
export interface LimitFacts {
  /** When rate limits counted or refused it. */
  rates_at?: number;
  /** When usage limits decided. */
  usage_at?: number;
  /** What it was expected to use, and whether it could not use more. */
  estimate?: { readonly cost: number; readonly tokens: number; readonly bounded: boolean };
  /** What usage policies had used and reserved when the store was asked, by policy; not there where a lease sufficed. */
  committed?: Readonly<Record<string, number>>;
  refused?: RefusedBy;
  /** When it was settled. */
  ended_at?: number;
  /** What usage limits counted: `carry` is picodollars beside `cost`. */
  used?: {
    readonly cost: number;
    readonly carry: number;
    readonly tokens: number;
    readonly requests: number;
    readonly unpriced: number;
  };
}

/** What a policy counts by, as people say it; other keys are shown as they are. */
const GROUPS: Readonly<Record<string, string>> = {
  'metadata._user': 'user',
  api_key: 'API key',
};

/** The word for the values of a key of a policy, `user` for `metadata._user`; undefined where its name is shown. */
export const groupName = (key: string): string | undefined => (Object.hasOwn(GROUPS, key) ? GROUPS[key] : undefined);
