import type { Guardrail } from '../guardrails/guardrail.ts';
import type { Secret } from '../kernel/secret.ts';
import type { LimitSpec } from '../limits/ledger/limit-spec.ts';
import type { PolicyIndex } from '../limits/policies/conditions.ts';
import type { RatePolicies } from '../limits/policies/rates.ts';
import type { UsagePolicy } from '../limits/policies/usage.ts';
import type { LimitedEntity } from '../limits/rate-limits.ts';
import type { Provider } from '../providers/provider.ts';
import type { Config as RoutingConfig } from '../resources/configs/schema.ts';
import type { OpenedAccount } from '../resources/runtime-rows.ts';
import type { BodySettings } from '../resources/settings/settings.ts';
import type { Opened } from './opened.ts';

export type { OpenedAccount };

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
  /** Its key, its settings, and the host and headers that are saved on the integration or virtual key. */
  readonly account: Opened<OpenedAccount>;
  /** Models with their own settings, by slug. */
  readonly models: ReadonlyMap<string, ModelSettings>;
  readonly allowAllModels: boolean;
  readonly pricingAdjustments: Readonly<Record<string, unknown>> | null;
  readonly expiresAt: number | null;
  /** Its own rate limits, then those of the workspace on its integration; none for what has no limit. */
  readonly rateLimits: readonly LimitedEntity[];
  /** Its own usage limit, then that of the workspace on its integration. */
  readonly usageLimits: readonly LimitSpec[];
  /** Set when the row cannot be used (it has expired, unknown base provider): the caller's message. */
  readonly broken: string | null;
}

export interface ModelSettings {
  readonly enabled: boolean;
  readonly customHost: string | null;
  /** Null when it has neither a key nor headers. */
  readonly secrets: Opened<OpenedModel> | null;
  readonly pricing: Readonly<Record<string, unknown>> | null;
}

export interface OpenedModel {
  readonly customHeaders: Readonly<Record<string, string>>;
  /** Sent in place of the account's key, without anything else of the account; null: the account's. */
  readonly key: Secret | null;
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

/** What the rows of the organisation and of the workspace say. */
export interface WorkspaceSettings {
  readonly workspaceSlug: string;
  readonly blockInlineConfig: boolean;
  /** Metadata that wins over the key's and the request's. */
  readonly metadata: Readonly<Record<string, string>> | null;
  /** The workspace with its own rate limits; null without any. */
  readonly rateLimits: LimitedEntity | null;
  /** Usage limits of the workspace itself. */
  readonly usageLimits: readonly LimitSpec[];
  /** The organisation's default and upper bound of the age of cached answers, seconds; null without one. */
  readonly cacheMaxAge: number | null;
  /** Which bodies of its requests are kept. */
  readonly bodies: BodySettings;
}

export interface WorkspaceAccounts {
  readonly providers: ReadonlyMap<string, StoredProvider>;
  /** Providers whose integration was deleted, and the slug of that; absent when there is none. */
  readonly orphans?: ReadonlyMap<string, string>;
}

/** A plan that is kept beside the snapshot it was made from, as far as it tells whether the next snapshot keeps it too. */
export interface KeptPlan {
  /** The saved config it follows; null without one. */
  readonly config: StoredConfig | null;
  /** Its only target, with the account that is called; null when `route` has several. */
  readonly target: { readonly stored: StoredProvider | null } | null;
  /** Targets that were found one by one in the snapshot; null without them. */
  readonly route: object | null;
}

/**
 * Everything a request needs to know about its workspace, immutable: a request pins one snapshot and never sees a mix
 * of two generations. What did not change is the same object in the next one. `plans` memoises what was made from it.
 */
export interface WorkspaceSnapshot extends WorkspaceSettings, WorkspaceAccounts {
  readonly organisationId: string;
  readonly workspaceId: string;
  readonly generation: number;
  readonly ratePolicies: RatePolicies;
  /** Null without any, which costs a request nothing. */
  readonly usagePolicies: PolicyIndex<UsagePolicy> | null;
  /** By slug and by id. */
  readonly configs: ReadonlyMap<string, StoredConfig>;
  readonly guardrails: WorkspaceGuardrails;
  readonly plans: Map<string, KeptPlan>;
}
