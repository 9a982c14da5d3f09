import type { Guardrail } from '../guardrails/guardrail.ts';
import type { Secret } from '../kernel/secret.ts';
import type { LimitedEntity } from '../limits/admission.ts';
import type { Terms } from '../limits/ledger/terms.ts';
import type { PolicyIndex } from '../limits/policies/conditions.ts';
import type { RatePolicies } from '../limits/policies/rates.ts';
import type { UsagePolicy } from '../limits/policies/usage.ts';
import type { Provider } from '../providers/provider.ts';
import type { Config as RoutingConfig } from '../resources/configs/schema.ts';

/** A stored provider or virtual key, opened and ready to be called. */
export interface StoredProvider {
  readonly slug: string;
  readonly entityId: string;
  /** Whose account it is at the provider: id of the integration, or of the virtual key without one. */
  readonly accountId: string;
  readonly kind: 'provider' | 'virtual-key';
  /** Another workspace can use the account, too: what is in it has owners. */
  readonly shared: boolean;
  /** The workspace may pass any request through to an account that it shares. */
  readonly passthrough: boolean;
  /** Null when the base provider is not known to this version; `broken` says so. */
  readonly provider: Provider | null;
  readonly key: Secret | null;
  readonly settings: Readonly<Record<string, unknown>>;
  /** Saved on the integration or virtual key; a stored credential may be sent there. */
  readonly customHost: string | null;
  readonly customHeaders: Readonly<Record<string, string>>;
  /** Models with settings of their own, by slug. */
  readonly models: ReadonlyMap<string, ModelSettings>;
  readonly allowAllModels: boolean;
  readonly pricingAdjustments: Readonly<Record<string, unknown>> | null;
  readonly expiresAt: number | null;
  /** Its own rate limits, then those of the workspace on its integration; none for what has no limit. */
  readonly limited: readonly LimitedEntity[];
  /** Its own usage limit, then that of the workspace on its integration. */
  readonly budgets: readonly Terms[];
  /** Set when the row cannot be used (its key does not open, unknown base provider): the caller's message. */
  readonly broken: string | null;
}

export interface ModelSettings {
  readonly enabled: boolean;
  readonly customHost: string | null;
  readonly customHeaders: Readonly<Record<string, string>>;
  /** Sent in place of the account's key, without anything else of the account; null: the account's. */
  readonly key: Secret | null;
  readonly pricing: Readonly<Record<string, unknown>> | null;
}

export interface StoredConfig {
  readonly slug: string;
  readonly versionId: string;
  readonly config: RoutingConfig;
  /** Set when its secrets cannot be opened: the caller's message. */
  readonly broken: string | null;
}

/** Guardrails of a workspace, ready to run. */
export interface WorkspaceGuardrails {
  /** Its own and the organisation's, by slug and by id. */
  readonly byName: ReadonlyMap<string, Guardrail>;
  /** Those of every request: the organisation's defaults where the workspace is not exempt, then its own; each once. */
  readonly input: readonly Guardrail[];
  readonly output: readonly Guardrail[];
}

/**
 * Everything a request needs to know about its workspace, immutable: a request pins one snapshot and never sees a mix
 * of two generations. `plans` memoises what was compiled from it and dies with it.
 */
export interface WorkspaceSnapshot {
  readonly organisationId: string;
  readonly workspaceId: string;
  readonly workspaceSlug: string;
  readonly generation: number;
  readonly blockInlineConfig: boolean;
  /** Metadata that wins over the key's and the request's. */
  readonly metadata: Readonly<Record<string, string>> | null;
  /** The workspace with its own rate limits; null without any. */
  readonly limited: LimitedEntity | null;
  readonly ratePolicies: RatePolicies;
  /** Usage limits of the workspace itself. */
  readonly budgets: readonly Terms[];
  /** Null without any, which costs a request nothing. */
  readonly usagePolicies: PolicyIndex<UsagePolicy> | null;
  readonly providers: ReadonlyMap<string, StoredProvider>;
  /** Providers whose integration was deleted, and the slug of that; absent when there is none. */
  readonly orphans?: ReadonlyMap<string, string>;
  /** By slug and by id. */
  readonly configs: ReadonlyMap<string, StoredConfig>;
  readonly guardrails: WorkspaceGuardrails;
  /** The organisation's default and upper bound of the age of cached answers, seconds; null without one. */
  readonly cacheMaxAge: number | null;
  readonly plans: Map<string, unknown>;
}
