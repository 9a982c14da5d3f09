import { ALERT_TABLES } from './alert-tables.ts';
import { bool, type Column, int, json, nullable, sealed, table, text, time } from './column.ts';
import { FEEDBACK_TABLES } from './feedback-table.ts';
import { GUARDRAIL_TABLES } from './guardrail-tables.ts';
import type {
  IntegrationAccess,
  LimitOwner,
  LimitType,
  PolicyCondition,
  PolicyGroup,
  RateLimit,
  RotationPolicy,
  UnpricedRule,
  UsageLimit,
} from './limit-types.ts';
import { logTables } from './log-tables.ts';
import { SECRET_REFERENCE_TABLES, type SecretMapping } from './secret-reference-table.ts';
import { SIGN_IN_TABLES } from './sign-in-tables.ts';
import { trainingTables } from './training-tables.ts';

export type { Column, Table } from './column.ts';
export type * from './guardrail-tables.ts';
export type * from './limit-types.ts';
export type { SecretManagerType, SecretMapping } from './secret-reference-table.ts';
export type {
  ClientAuthMethod,
  GroupMapping,
  MembershipSource,
  PublicJwk,
  ScimProfile,
  ScimValue,
} from './sign-in-tables.ts';

export interface KeyDefaults {
  metadata?: Record<string, string>;
  config_id?: string;
  allow_config_override?: boolean;
  debug_log?: 0 | 1;
}

/** What a workspace gives to its requests; `user_api_key_config` is the slug of a config, for its user keys. */
export interface WorkspaceDefaults extends Pick<KeyDefaults, 'metadata'> {
  input_guardrails?: string[];
  output_guardrails?: string[];
  user_api_key_config?: string;
}

/** The user key that accepting an invite makes. */
export interface InvitedKey {
  name?: string;
  scopes: string[];
  defaults?: { metadata?: Record<string, string> };
}

/** `auth_settings` of a deployment as they are stored. */
export interface DeploymentSettings {
  gateway_base_url: string | null;
  mcp_gateway_base_url: string | null;
  is_dataservice_hosted: 0 | 1;
  is_playground_proxy_allowed: 0 | 1;
  allow_all_workspaces: 0 | 1;
  /** Ids. */
  workspaces_allowed: string[];
  jwt_subs_allowed: string[];
  /** Subject of a token, and the id of its workspace. */
  jwt_sub_workspace_mapping: Record<string, string>;
}

const audit = { created_at: time(), last_updated_at: time() };

/**
 * The control tables as data: one entry per column says how it is stored on both engines and which TypeScript type the
 * rest of the code sees. The migrations create these tables; a test compares the two. Records of requests are in log files.
 *
 * Stored forms: `text` TEXT; `int` and `time` (milliseconds since the epoch) BIGINT within 2^53; `bool` 0 or 1;
 * `json` TEXT; `sealed` TEXT holding an envelope (`store/vault.ts`), never plain.
 */
export const SCHEMA = {
  meta: table(['key'], 'none', { key: text(), value: text() }),
  organisations: table(['id'], 'none', {
    id: text(),
    name: text(),
    slug: text(),
    status: text<'active' | 'suspended'>(),
    /** `block_inline_config` and the other settings of an organisation. */
    settings: json<{ block_inline_config: boolean } & Record<string, unknown>>(),
    ...audit,
  }),
  users: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    email: text(),
    first_name: text(),
    last_name: text(),
    role: text<'owner' | 'admin' | 'member'>(),
    status: text<'active' | 'archived'>(),
    ...audit,
  }),
  workspaces: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    slug: text(),
    name: text(),
    icon: nullable(text()),
    description: nullable(text()),
    is_default: bool(),
    status: text<'active' | 'archived'>(),
    defaults: nullable(json<WorkspaceDefaults>()),
    settings: json<Record<string, unknown>>(),
    security_settings: json<Record<string, unknown>>(),
    usage_limits: nullable(json<UsageLimit[]>()),
    rate_limits: nullable(json<RateLimit[]>()),
    created_by: nullable(text()),
    creation_source: nullable(text<'ui' | 'api' | 'auto'>()),
    scim_source_id: nullable(text()),
    last_reset_at: nullable(time()),
    ...audit,
  }),
  workspace_members: table(['workspace_id', 'user_id'], 'organisation', {
    organisation_id: text(),
    workspace_id: text(),
    user_id: text(),
    role: text<'admin' | 'manager' | 'member'>(),
    status: text<'active' | 'archived'>(),
    ...audit,
  }),
  /** Invitations by e-mail address; only the digest of the link's token is kept. */
  invites: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    email: text(),
    role: text<'admin' | 'member'>(),
    workspaces: json<{ workspace_id: string; role: 'admin' | 'manager' | 'member' }[]>(),
    /** The user key that is made on acceptance. */
    api_key_details: nullable(json<InvitedKey>()),
    /** A pending invite past `expires_at` has expired; `expired` is written once another one takes its address. */
    status: text<'pending' | 'accepted' | 'cancelled' | 'expired'>(),
    /** SHA-256 of the token in the link, lower-case hexadecimal. */
    token_digest: text(),
    expires_at: time(),
    accepted_at: nullable(time()),
    /** User or key that invited. */
    invited_by: text(),
    ...audit,
  }),
  /** Workspaces exempt from the organisation's default guardrails of one direction. */
  guardrail_exclusions: table(['workspace_id', 'direction'], 'organisation', {
    organisation_id: text(),
    workspace_id: text(),
    direction: text<'input' | 'output'>(),
    created_at: time(),
  }),
  api_keys: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: nullable(text()),
    user_id: nullable(text()),
    type: text<'organisation-service' | 'workspace-service' | 'workspace-user'>(),
    name: text(),
    description: nullable(text()),
    status: text<'active' | 'exhausted' | 'expired' | 'archived'>(),
    scopes: json<string[]>(),
    rate_limits: nullable(json<RateLimit[]>()),
    usage_limits: nullable(json<UsageLimit>()),
    defaults: nullable(json<KeyDefaults>()),
    alert_emails: nullable(json<string[]>()),
    expires_at: nullable(time()),
    rotation_policy: nullable(json<RotationPolicy>()),
    /** When the rotation job takes the key: `next_rotation_at` of its policy. Null without one, or once it is archived. */
    rotation_due_at: nullable(time()),
    creation_mode: text<'ui' | 'api' | 'auto'>(),
    created_by: nullable(text()),
    /** User or key that has set the limits, the end or the config of a user's key; null where only its owner has. */
    bounded_by: nullable(text()),
    last_rotated_at: nullable(time()),
    last_reset_at: nullable(time()),
    /** Rises with every change that authentication must see. */
    version: int(),
    ...audit,
  }),
  /** One row per valid secret of a key (two while a rotation is in transition). Only the digest is kept. */
  api_key_secrets: table(['id'], 'organisation', {
    /** Public key id: the 12 characters inside the key. */
    id: text(),
    organisation_id: text(),
    api_key_id: text(),
    /** SHA-256 of the whole key, lower-case hexadecimal; empty for one that waits to be collected, which nothing opens. */
    digest: text(),
    /** End of its transition; null for the current one. */
    expires_at: nullable(time()),
    created_at: time(),
  }),
  /** The installation's own keys (`slc_opr_…`): they open `/v1/operator/*` only. */
  operator_keys: table(['id'], 'none', { id: text(), digest: text(), created_at: time() }),
  configs: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    slug: text(),
    name: text(),
    is_default: bool(),
    status: text<'active' | 'archived'>(),
    owner_id: text(),
    updated_by: nullable(text()),
    version_id: text(),
    ...audit,
  }),
  config_versions: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    config_id: text(),
    number: int(),
    config: json<Record<string, unknown>>(),
    created_by: text(),
    created_at: time(),
  }),
  integrations: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    /** Set for workspace-scoped integrations. */
    workspace_id: nullable(text()),
    slug: text(),
    name: text(),
    description: nullable(text()),
    ai_provider_id: text(),
    status: text<'active' | 'archived'>(),
    /** The provider key. */
    key: nullable(sealed()),
    /** Settings that are not secret. */
    configurations: json<Record<string, unknown>>(),
    /** JSON object of the secret settings, sealed as one text. */
    secret_configurations: nullable(sealed()),
    secret_mappings: nullable(json<SecretMapping[]>()),
    pricing_adjustments: nullable(json<Record<string, unknown>>()),
    allow_all_models: bool(),
    global_workspace_access: nullable(json<IntegrationAccess>()),
    /** Ids of the workspaces that may pass requests through although others share the account; null: none. */
    passthrough: nullable(json<string[]>()),
    tags: nullable(json<Record<string, string>>()),
    created_by: nullable(text()),
    ...audit,
  }),
  integration_models: table(['integration_id', 'slug'], 'organisation', {
    organisation_id: text(),
    integration_id: text(),
    slug: text(),
    name: nullable(text()),
    description: nullable(text()),
    enabled: bool(),
    is_custom: bool(),
    is_finetune: bool(),
    base_model_slug: nullable(text()),
    pricing_config: nullable(json<Record<string, unknown>>()),
    configurations: nullable(json<{ custom_host?: string; sealed?: string }>()),
    ...audit,
  }),
  integration_workspaces: table(['integration_id', 'workspace_id'], 'organisation', {
    organisation_id: text(),
    integration_id: text(),
    workspace_id: text(),
    enabled: bool(),
    usage_limits: nullable(json<UsageLimit[]>()),
    rate_limits: nullable(json<RateLimit[]>()),
    ...audit,
  }),
  providers: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    integration_id: text(),
    slug: text(),
    name: text(),
    note: nullable(text()),
    status: text<'active' | 'exhausted' | 'expired' | 'archived'>(),
    usage_limits: nullable(json<UsageLimit>()),
    rate_limits: nullable(json<RateLimit[]>()),
    expires_at: nullable(time()),
    tags: nullable(json<Record<string, string>>()),
    secret_mappings: nullable(json<SecretMapping[]>()),
    last_reset_at: nullable(time()),
    ...audit,
  }),
  virtual_keys: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    slug: text(),
    name: text(),
    note: nullable(text()),
    ai_provider_id: text(),
    /** Set once the virtual key was migrated to an integration and a provider. */
    integration_id: nullable(text()),
    status: text<'active' | 'exhausted' | 'expired' | 'archived'>(),
    key: nullable(sealed()),
    model_config: json<Record<string, unknown>>(),
    secret_model_config: nullable(sealed()),
    secret_mappings: nullable(json<SecretMapping[]>()),
    usage_limits: nullable(json<UsageLimit>()),
    rate_limits: nullable(json<RateLimit[]>()),
    expires_at: nullable(time()),
    tags: nullable(json<Record<string, string>>()),
    last_reset_at: nullable(time()),
    ...audit,
  }),
  /** Data-encryption keys, one active per organisation, wrapped by a key-encryption key. */
  data_keys: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    kek_id: text(),
    wrapped: text(),
    created_at: time(),
  }),
  audit_log: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: nullable(text()),
    timestamp: time(),
    method: text(),
    uri: text(),
    request_id: text(),
    /** JSON text of the masked request body. */
    request_body: nullable(text()),
    query_params: nullable(text()),
    user_id: nullable(text()),
    user_type: text<'user' | 'api_key' | 'operator' | 'system'>(),
    response_status_code: int(),
    resource_type: text(),
    resource_id: nullable(text()),
    action: text(),
    client_ip: nullable(text()),
    country: nullable(text()),
    /** JSON text of the masked headers that say who called with what. */
    request_headers: nullable(text()),
    /** JSON texts of the object, secrets masked; null where there was or is none. */
    before: nullable(text()),
    after: nullable(text()),
    /** Place in the organisation's chain, from 1; null for rows from before the chain. */
    seq: nullable(int()),
    /** HMAC-SHA256 over the row and the hash of the one before it, `<key id>.<hexadecimal>`. */
    hash: nullable(text()),
  }),
  /** Last link of each organisation's audit chain. */
  audit_heads: table(['organisation_id'], 'organisation', {
    organisation_id: text(),
    seq: int(),
    hash: text(),
  }),
  /**
   * Where an organisation's audit log begins after its oldest rows were removed: place and signed hash of the last of them.
   * Out of reach of tenants.
   */
  audit_anchors: table(['organisation_id'], 'none', {
    organisation_id: text(),
    seq: int(),
    hash: text(),
  }),
  /** Answers of writes that were sent with an `Idempotency-Key`, written in the transaction of the write. */
  idempotency_keys: table(['organisation_id', 'caller', 'key'], 'organisation', {
    organisation_id: text(),
    /** Who sent it: a key, a user, or `operator`. */
    caller: text(),
    key: text(),
    /** SHA-256 over operation, path, query and body. */
    fingerprint: text(),
    /** 0 within the transaction that writes it, until its answer is known. */
    status: int(),
    /** What the write made or changed. */
    object_id: nullable(text()),
    /** The answer's body, sealed; null once an answer that holds a secret may not be shown any more. */
    answer: nullable(sealed()),
    /** Until then the answer is replayed. */
    replay_until: time(),
    expires_at: time(),
    created_at: time(),
  }),
  /** Rate limits of the requests that their conditions select, one counter per combination of `group_by` values. */
  rate_policies: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    name: nullable(text()),
    description: nullable(text()),
    target: text<'llm' | 'mcp_tools'>(),
    conditions: json<PolicyCondition[]>(),
    group_by: json<PolicyGroup[]>(),
    type: text<RateLimit['type']>(),
    unit: text<Exclude<RateLimit['unit'], 'rps'>>(),
    value: int(),
    status: text<'active' | 'archived'>(),
    ...audit,
  }),
  /** The change feed's truth: written in the transaction of the change, in commit order. */
  changes: table(['seq'], 'none', {
    /** Assigned by the store. */
    seq: int(),
    organisation_id: text(),
    workspace_id: nullable(text()),
    topic: text(),
    entity_id: text(),
    at: time(),
  }),
  ...trainingTables,
  /** Usage-limits policies. Amounts as they were given: dollars, tokens or requests. */
  usage_policies: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    name: nullable(text()),
    description: nullable(text()),
    conditions: json<PolicyCondition[]>(),
    group_by: json<PolicyGroup[]>(),
    type: text<LimitType>(),
    credit_limit: json<number>(),
    alert_threshold: nullable(json<number>()),
    periodic_reset: nullable(text<'monthly' | 'weekly'>()),
    periodic_reset_days: nullable(int()),
    next_usage_reset_at: nullable(time()),
    last_reset_at: nullable(time()),
    /** What a `cost` policy does with a model that has no known price; null: the installation's rule. */
    unpriced: nullable(json<UnpricedRule>()),
    /** While the store cannot be reached and the lease is spent. */
    on_outage: text<'refuse' | 'serve'>(),
    alert_emails: nullable(json<string[]>()),
    alert_webhook_url: nullable(text()),
    status: text<'active' | 'archived'>(),
    ...audit,
  }),
  /**
   * What one limit counts for one value. Amounts in micro-dollars, tokens or requests. Changed only by
   * `limits/ledger/bucket-transaction.ts`, which writes the entries that explain it in the same transaction.
   */
  usage_buckets: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    owner_kind: text<LimitOwner>(),
    owner_id: text(),
    /** Tells the buckets of an owner apart; `value_key` is how people read it. */
    bucket_key: text(),
    value_key: text(),
    label: text(),
    type: text<LimitType>(),
    credit_limit: int(),
    alert_threshold: nullable(int()),
    /** When the terms above and `period` were set by their owner: older ones are not taken. */
    terms_at: time(),
    /** `monthly`, `weekly`, `days:30`, or null for once or never. */
    period: nullable(text()),
    /** From 1; a reset begins the next one. */
    window_no: int(),
    used: int(),
    /** Of `used`, what is below one micro-dollar: 0 to 999,999 picodollars. */
    carry: int(),
    reserved: int(),
    /** Requests of this window whose price is not known. */
    unpriced: int(),
    resets_at: nullable(time()),
    last_reset_at: nullable(time()),
    /** `exhausted` from the moment `used` reaches the limit. */
    status: text<'active' | 'exhausted'>(),
    threshold_alerted: bool(),
    exhausted_alerted: bool(),
    unpriced_alerted: bool(),
    /** What was used per hour, older use weighing less (`limits/ledger/bucket-math.ts`), and when that was so. */
    burn: int(),
    burn_at: time(),
    /** Entries of this window since they were last drawn together. */
    entry_count: int(),
    ...audit,
  }),
  /** Leases: what is reserved of a bucket for one process. */
  reservations: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    bucket_id: text(),
    window_no: int(),
    node: text(),
    /** Still reserved. */
    amount: int(),
    expires_at: time(),
    created_at: time(),
  }),
  /** Double entry: an amount moves from one account of a bucket's window to another. */
  ledger_entries: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    bucket_id: text(),
    window_no: int(),
    kind: text<'grant' | 'settle' | 'release' | 'expiry' | 'opening'>(),
    from_account: text<'open' | 'reserved' | 'used'>(),
    to_account: text<'open' | 'reserved' | 'used'>(),
    amount: int(),
    /** Picodollars beside `amount`. */
    carry: int(),
    /** Requests it stands for. */
    requests: int(),
    unpriced: int(),
    created_at: time(),
  }),
  ...ALERT_TABLES,
  ...GUARDRAIL_TABLES,
  ...FEEDBACK_TABLES,
  /** Gateways that are registered with an organisation. */
  deployments: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    slug: text(),
    name: text(),
    type: text<'production' | 'non_production'>(),
    status: text<'active' | 'archived'>(),
    is_default: bool(),
    connection_status: text<'healthy' | 'unhealthy' | 'unknown'>(),
    source_type: text<'manual' | 'api' | 'helm' | 'managed'>(),
    tags: nullable(json<Record<string, string>>()),
    auth_settings: json<DeploymentSettings>(),
    deployment_config: nullable(json<Record<string, unknown>>()),
    /** Public part of its `client_auth`, and the SHA-256 of the whole. */
    client_auth_id: text(),
    client_auth_digest: text(),
    /** SHA-256 of the code that it last called back with. */
    ping_digest: nullable(text()),
    last_synced_at: nullable(time()),
    last_resynced_at: nullable(time()),
    created_by: text(),
    ...audit,
  }),
  ...SECRET_REFERENCE_TABLES,
  ...SIGN_IN_TABLES,
  /** Questions whose answers are in the cache, as vectors. */
  answer_vectors: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    /** Digest of all that must be the same for an answer to be given again. */
    scope: text(),
    /** Little-endian single floats of a unit vector, in base64. */
    vector: text(),
    /** Where the answer lies in the cache, and what opens it. */
    place: text(),
    secret: text(),
    created_at: time(),
    expires_at: time(),
  }),
  ...logTables,
  /** One leader per job. */
  leases: table(['name'], 'none', { name: text(), holder: text(), expires_at: time() }),
} as const;

export type Schema = typeof SCHEMA;
export type TableName = keyof Schema;
export type TenantTable = { [N in TableName]: Schema[N]['tenant'] extends 'organisation' ? N : never }[TableName];

type TypeOf<C> = C extends Column<infer T> ? T : never;
/** A row as the code sees it: JSON parsed, booleans boolean, times in milliseconds. */
export type Row<N extends TableName> = { [K in keyof Schema[N]['columns']]: TypeOf<Schema[N]['columns'][K]> };

/**
 * Tables whose rows without a workspace belong to the whole organisation and are used by its workspaces: a context bound
 * to a workspace reads them and never changes them. In the other tables with a nullable workspace (`api_keys`,
 * `audit_log`) a row without one is organisation-level business that a workspace does not see.
 */
export const SHARED_TABLES: ReadonlySet<string> = new Set<TenantTable>(['integrations', 'guardrails', 'log_erasures']);
