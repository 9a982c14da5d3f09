/**
 * The four tenants of the matrix: two organisations with two workspaces each, and one object of every kind in each of
 * them. Every text that a tenant could have written carries the tenant's canary, so that a byte of one tenant in an
 * answer to another is found whatever field it came through.
 */
import { randomBytes } from 'node:crypto';
import { mintKey } from '../../src/auth/key-format.ts';
import { scopesOf } from '../../src/auth/scopes.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { LOG_DESTINATION, LOG_DESTINATION_FEED } from '../../src/store/conformance/log-destination-row.ts';
import { LOG_ERASURE, LOG_EXPORT } from '../../src/store/conformance/log-export-row.ts';
import {
  apiKeyRow,
  configRow,
  integrationRow,
  providerRow,
  secretRow,
  userRow,
  workspaceRow,
} from '../../src/store/conformance/rows.ts';
import { scimRows } from '../../src/store/conformance/scim-rows.ts';
import { ssoRows } from '../../src/store/conformance/sso-rows.ts';
import type { SystemTx, Tables } from '../../src/store/ports.ts';
import { type Row, SCHEMA, type TableName, type TenantTable } from '../../src/store/schema.ts';

/** What a path, query or body can name. */
export type Kind =
  | 'organisation'
  | 'workspace'
  | 'user'
  /** A user who has joined no workspace. */
  | 'newcomer'
  | 'member'
  | 'invite'
  | 'api_key'
  | 'config'
  | 'config_version'
  | 'deployment'
  | 'secret_reference'
  | 'scim_token'
  | 'scim_group'
  | 'scim_mapping'
  | 'sso_client'
  | 'oauth_approval'
  | 'integration'
  | 'shared_integration'
  | 'provider'
  | 'virtual_key'
  | 'rate_policy'
  | 'batch'
  | 'file'
  | 'job'
  | 'usage_policy'
  | 'usage_entity'
  | 'guardrail'
  | 'mcp_server'
  | 'log'
  | 'feedback'
  | 'log_destination'
  | 'log_export'
  | 'log_erasure'
  | 'running_export'
  | 'written_export';

/** What belongs to the organisation and is seen from all of its workspaces, by whoever may see it at all. */
export const OF_ORGANISATION: ReadonlySet<Kind> = new Set([
  'organisation',
  'user',
  'newcomer',
  'invite',
  'deployment',
  'secret_reference',
  'scim_token',
  'scim_group',
  'scim_mapping',
  'sso_client',
  'oauth_approval',
  'shared_integration',
]);

export interface Named {
  readonly id: string;
  readonly slug?: string;
}

export interface Tenant {
  readonly tag: string;
  readonly organisationId: string;
  readonly workspaceId: string;
  readonly workspaceSlug: string;
  /** Text that stands in every field of this workspace's objects and nowhere else. */
  readonly canary: string;
  /** Stands in what it owns for its whole organisation. */
  readonly shared: string;
  /** Stands in what is sealed: never to be seen, not even by the tenant itself. */
  readonly secret: string;
  readonly objects: Readonly<Record<Kind, Named>>;
}

const random = () => randomBytes(6).toString('hex');
export const newId = () => uuidv7(systemClock);
const now = systemClock.now();
const stamps = { created_at: now, last_updated_at: now };
const YEAR = 366 * 86_400_000;

export function newTenant(tag: string, organisationId: string): Tenant {
  const canary = `cn${tag}x${random()}`;
  const shared = `sh${tag}x${random()}`;
  const named = (prefix: string): Named => ({ id: newId(), slug: `${prefix}-${canary}` });
  const workspace = named('ws');
  const user = { id: newId() };
  return {
    tag,
    organisationId,
    workspaceId: workspace.id,
    workspaceSlug: workspace.slug ?? '',
    canary,
    shared,
    secret: `sealed-${random()}-${tag}`,
    objects: {
      organisation: { id: organisationId },
      workspace,
      user,
      newcomer: { id: newId() },
      member: user,
      invite: { id: newId() },
      api_key: { id: newId() },
      config: named('pc'),
      config_version: { id: newId() },
      deployment: named('dp'),
      secret_reference: named('sr'),
      scim_token: { id: newId() },
      scim_group: { id: newId() },
      scim_mapping: { id: newId() },
      sso_client: named('sso'),
      oauth_approval: { id: newId() },
      integration: named('in'),
      shared_integration: { id: newId(), slug: `sh-${shared}` },
      provider: named('pr'),
      virtual_key: named('vk'),
      rate_policy: { id: newId() },
      batch: { id: `gw_batch_${canary}` },
      file: { id: `gw_file_${canary}` },
      job: { id: `gw_ftjob_${canary}` },
      usage_policy: { id: newId() },
      usage_entity: { id: newId() },
      guardrail: { id: newId(), slug: `pg-${canary}` },
      mcp_server: { id: newId() },
      log: { id: newId() },
      feedback: { id: newId() },
      log_destination: { id: newId() },
      log_export: { id: newId() },
      log_erasure: { id: newId() },
      running_export: { id: newId() },
      written_export: { id: newId() },
    },
  };
}

/** What a user of a tenant gave an OAuth client. */
const given = (t: Tenant) => ({
  organisation_id: t.organisationId,
  workspace_id: t.workspaceId,
  user_id: t.objects.user.id,
  client_id: `client-${t.canary}`,
  scope: 'mcp',
  resource: `https://sluice.example/${t.canary}/mcp`,
  expires_at: now + YEAR,
  created_at: now,
});
const ssoOf = (t: Tenant) => ssoRows(t.canary, { organisation_id: t.organisationId }, t.objects.user.id, now);

/**
 * Rows of every tenant table, parents before children. A table without an entry does not compile: whoever adds one says
 * here what a tenant keeps in it, and so puts it before the matrix.
 */
export const MAKERS: { readonly [N in TenantTable]: (tenant: Tenant) => Row<N>[] } = {
  workspaces: (t) => [
    workspaceRow(t.organisationId, t.workspaceId, {
      slug: t.workspaceSlug,
      name: `Workspace ${t.canary}`,
      description: `About ${t.canary}`,
      icon: t.canary,
      defaults: { metadata: { team: t.canary } },
      created_by: `by-${t.canary}`,
      scim_source_id: `scim-${t.canary}`,
      creation_source: 'api',
    }),
  ],
  users: (t) => [
    userRow(t.organisationId, t.objects.user.id, {
      email: `${t.canary}@example.com`,
      first_name: `First ${t.canary}`,
      last_name: `Last ${t.canary}`,
    }),
    userRow(t.organisationId, t.objects.newcomer.id, { email: `new-${t.canary}@example.com` }),
  ],
  workspace_members: (t) => [
    {
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      user_id: t.objects.user.id,
      role: 'member',
      status: 'active',
      ...stamps,
    },
  ],
  membership_sources: (t) => [
    {
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      user_id: t.objects.user.id,
      source: 'manual',
      role: 'member',
      ...stamps,
    },
  ],
  invites: (t) => [
    {
      id: t.objects.invite.id,
      organisation_id: t.organisationId,
      email: `invited-${t.canary}@example.com`,
      role: 'member',
      workspaces: [{ workspace_id: t.workspaceId, role: 'member' }],
      api_key_details: { name: t.canary, scopes: ['completions.write'], defaults: { metadata: { team: t.canary } } },
      status: 'pending',
      token_digest: `digest-${t.canary}`,
      expires_at: now + YEAR,
      accepted_at: null,
      invited_by: `by-${t.canary}`,
      ...stamps,
    },
  ],
  guardrail_exclusions: (t) =>
    (['input', 'output'] as const).map((direction) => ({
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      direction,
      created_at: now,
    })),
  rate_policies: (t) => [
    {
      id: t.objects.rate_policy.id,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      name: `Policy ${t.canary}`,
      description: `About ${t.canary}`,
      target: 'llm',
      conditions: [{ key: 'metadata.team', value: `nobody ${t.canary}` }],
      group_by: [{ key: `metadata.${t.canary}` }],
      type: 'requests',
      unit: 'rpm',
      value: 1_000_000,
      status: 'active',
      ...stamps,
    },
  ],
  configs: (t) => [
    configRow(t.organisationId, t.workspaceId, t.objects.config.id, {
      slug: t.objects.config.slug ?? '',
      name: `Config ${t.canary}`,
      version_id: t.objects.config_version.id,
      owner_id: `owner-${t.canary}`,
      updated_by: `by-${t.canary}`,
      ...stamps,
    }),
  ],
  config_versions: (t) => [
    {
      id: t.objects.config_version.id,
      organisation_id: t.organisationId,
      config_id: t.objects.config.id,
      number: 1,
      config: { provider: `@${t.objects.provider.slug}`, override_params: { user: t.canary } },
      created_by: `by-${t.canary}`,
      created_at: now,
    },
  ],
  api_keys: (t) => [
    apiKeyRow(t.organisationId, t.objects.api_key.id, {
      workspace_id: t.workspaceId,
      user_id: t.objects.user.id,
      type: 'workspace-user',
      name: `Key ${t.canary}`,
      description: `About ${t.canary}`,
      scopes: [...scopesOf('workspace-user')],
      defaults: { metadata: { team: t.canary }, config_id: t.objects.config.slug ?? '' },
      alert_emails: [`alert-${t.canary}@example.com`],
      created_by: `by-${t.canary}`,
      ...stamps,
    }),
  ],
  api_key_secrets: (t) => [
    secretRow(t.organisationId, t.objects.api_key.id, mintKey('usr').publicId, { digest: `digest-${t.canary}` }),
  ],
  integrations: (t) => [
    integrationRow(t.organisationId, t.objects.integration.id, {
      workspace_id: t.workspaceId,
      slug: t.objects.integration.slug ?? '',
      name: `Integration ${t.canary}`,
      description: `About ${t.canary}`,
      key: `plain.${t.secret}`,
      configurations: {},
      tags: { team: t.canary },
      created_by: `by-${t.canary}`,
      ...stamps,
    }),
    integrationRow(t.organisationId, t.objects.shared_integration.id, {
      slug: t.objects.shared_integration.slug ?? '',
      name: `Integration ${t.shared}`,
      description: `About ${t.shared}`,
      key: `plain.${t.secret}`,
      tags: { team: t.shared },
      created_by: `by-${t.shared}`,
      ...stamps,
    }),
  ],
  integration_models: (t) => [
    {
      organisation_id: t.organisationId,
      integration_id: t.objects.integration.id,
      slug: `model-${t.canary}`,
      name: `Model ${t.canary}`,
      description: `About ${t.canary}`,
      enabled: true,
      is_custom: true,
      is_finetune: false,
      base_model_slug: `base-${t.canary}`,
      pricing_config: null,
      configurations: { custom_host: `https://${t.canary}.example.com/v1` },
      ...stamps,
    },
  ],
  integration_workspaces: (t) => [
    {
      organisation_id: t.organisationId,
      integration_id: t.objects.integration.id,
      workspace_id: t.workspaceId,
      enabled: true,
      usage_limits: null,
      rate_limits: null,
      ...stamps,
    },
  ],
  providers: (t) => [
    providerRow(t.organisationId, t.workspaceId, t.objects.integration.id, t.objects.provider.id, {
      slug: t.objects.provider.slug ?? '',
      name: `Provider ${t.canary}`,
      note: `Note ${t.canary}`,
      tags: { team: t.canary },
      ...stamps,
    }),
  ],
  virtual_keys: (t) => [
    {
      id: t.objects.virtual_key.id,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      slug: t.objects.virtual_key.slug ?? '',
      name: `Virtual key ${t.canary}`,
      note: `Note ${t.canary}`,
      ai_provider_id: 'openai',
      integration_id: null,
      status: 'active',
      key: `plain.${t.secret}`,
      model_config: {},
      secret_model_config: null,
      secret_mappings: null,
      usage_limits: null,
      rate_limits: null,
      expires_at: null,
      tags: { team: t.canary },
      last_reset_at: null,
      ...stamps,
    },
  ],
  data_keys: (t) => [
    { id: newId(), organisation_id: t.organisationId, kek_id: 'none', wrapped: `plain.${t.secret}`, created_at: now },
  ],
  audit_log: (t) => [
    {
      id: newId(),
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      timestamp: now,
      method: 'PUT',
      uri: `/v1/configs/${t.canary}`,
      request_id: `request-${t.canary}`,
      request_body: JSON.stringify({ name: t.canary }),
      query_params: JSON.stringify({ name: t.canary }),
      user_id: `by-${t.canary}`,
      user_type: 'api_key',
      response_status_code: 200,
      resource_type: `kind-${t.canary}`,
      resource_id: t.objects.config.id,
      action: 'update',
      client_ip: `ip-${t.canary}`,
      country: `in-${t.canary}`,
      request_headers: JSON.stringify({ 'user-agent': t.canary }),
      before: JSON.stringify({ name: t.canary }),
      after: JSON.stringify({ name: t.canary }),
      seq: null,
      hash: null,
    },
  ],
  // One of each organisation, which the first audited write makes.
  audit_heads: () => [],
  idempotency_keys: (t) => [
    {
      organisation_id: t.organisationId,
      caller: `by-${t.canary}`,
      key: 'same-key-of-all',
      object_id: null,
      fingerprint: `print-${t.canary}`,
      status: 200,
      answer: `plain.${t.secret}`,
      replay_until: now + YEAR,
      expires_at: now + YEAR,
      created_at: now,
    },
  ],
  console_sessions: (t) => [
    {
      digest: `digest-${t.canary}`,
      organisation_id: t.organisationId,
      user_id: t.objects.user.id,
      kind: 'session',
      expires_at: now + YEAR,
      created_at: now,
      client_id: `client-${t.canary}`,
      auth_time: now,
      issuer: `https://issuer.example/${t.canary}`,
      subject: `subject-${t.canary}`,
      sid: `sid-${t.canary}`,
      id_token: null,
      user_agent: `agent-${t.canary}`,
      browser: null,
    },
  ],
  session_families: (t) => [
    {
      id: `family-${t.canary}`,
      organisation_id: t.organisationId,
      session: `digest-${t.canary}`,
      created_at: now,
    },
  ],
  passkeys: (t) => [
    {
      id: `passkey-${t.canary}`,
      organisation_id: t.organisationId,
      user_id: t.objects.user.id,
      name: `Laptop ${t.canary}`,
      public_key: `public-${t.canary}`,
      counter: 0,
      transports: ['internal'],
      last_used_at: null,
      created_at: now,
    },
  ],
  session_tokens: (t) => [
    {
      id: `token-${t.canary}`,
      organisation_id: t.organisationId,
      family_id: `family-${t.canary}`,
      kind: 'refresh',
      digest: `digest-${t.canary}`,
      expires_at: now + YEAR,
      used_at: null,
      created_at: now,
    },
  ],
  sso_clients: (t) => [
    {
      ...ssoOf(t).sso_clients,
      id: t.objects.sso_client.id,
      slug: t.objects.sso_client.slug ?? '',
      issuer: `https://${t.canary}.example`,
      client_secret: `plain.${t.secret}`,
      jwks: `plain.${t.secret}`,
      email_verified_claim: `verified-${t.canary}`,
      group_claim: `groups-${t.canary}`,
      discovery_problem: `Problem ${t.canary}`,
      status: 'active',
    },
  ],
  organisation_domains: (t) => [ssoOf(t).organisation_domains],
  user_identities: (t) => [{ ...ssoOf(t).user_identities, issuer: `https://${t.canary}.example` }],
  login_attempts: (t) => [
    { ...ssoOf(t).login_attempts, sso_client_id: t.objects.sso_client.id, return_to: `/console/${t.canary}` },
  ],
  used_logout_tokens: (t) => [{ ...ssoOf(t).used_logout_tokens, sso_client_id: t.objects.sso_client.id }],
  object_owners: (t) => [
    {
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      account: t.objects.integration.id,
      kind: 'file',
      object_id: `file-${t.canary}`,
      provider: 'openai',
      created_by: `by-${t.canary}`,
      created_at: now,
    },
  ],
  files: (t) => [
    {
      id: t.objects.file.id,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      filename: `${t.canary}.jsonl`,
      purpose: 'batch',
      content_type: 'application/jsonl',
      bytes: 1,
      status: 'processed',
      status_details: null,
      created_by: `by-${t.canary}`,
      created_at: now,
    },
  ],
  file_totals: (t) => [{ organisation_id: t.organisationId, workspace_id: t.workspaceId, bytes: 1 }],
  feedback: (t) => [
    {
      id: t.objects.feedback.id,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      trace_id: `trace-${t.canary}`,
      value: 5,
      weight_micros: 1_000_000,
      weighted_micros: 5_000_000,
      metadata: { comment: t.canary },
      source: 'api',
      api_key_id: t.objects.api_key.id,
      user_id: null,
      ai_model: `model-${t.canary}`,
      provider: 'openai',
      config_slug: t.objects.config.slug ?? null,
      matched: true,
      ...stamps,
    },
  ],
  log_destinations: (t) => [
    {
      ...LOG_DESTINATION,
      id: t.objects.log_destination.id,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      name: `Destination ${t.canary}`,
      settings: {},
      secrets: `plain.${JSON.stringify({ url: `https://receiver.example/${t.secret}`, headers: { 'x-key': t.secret } })}`,
      filters: { trace_id: `trace-${t.canary}` },
      created_by: `by-${t.canary}`,
      updated_by: `by-${t.canary}`,
      ...stamps,
    },
  ],
  log_destination_feeds: (t) => [
    {
      ...LOG_DESTINATION_FEED,
      organisation_id: t.organisationId,
      destination_id: t.objects.log_destination.id,
      error: `About ${t.canary}`,
    },
  ],
  log_exports: (t) => {
    const row = {
      ...LOG_EXPORT,
      id: t.objects.log_export.id,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      filters: { trace_id: `trace-${t.canary}` },
      description: `About ${t.canary}`,
      created_by: `by-${t.canary}`,
      ...stamps,
    };
    const written = { status: 'success', runs: 1, expires_at: Date.UTC(2100, 0) } as const;
    return [
      row,
      { ...row, id: t.objects.running_export.id, status: 'in_progress', runs: 1, started_at: 1 },
      { ...row, id: t.objects.written_export.id, ...written },
    ];
  },
  log_erasures: (t) => [
    {
      ...LOG_ERASURE,
      id: t.objects.log_erasure.id,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      exports: [`export-${t.canary}`],
      created_by: `by-${t.canary}`,
      ...stamps,
    },
  ],
  training_jobs: (t) => [
    {
      id: t.objects.job.id,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      provider_slug: t.objects.provider.slug ?? '',
      request: {},
      status: 'running',
      job: jobOf(t),
      step: 'done',
      progress: {},
      upstream_id: null,
      cancel_requested: false,
      failures: 0,
      due_at: now + YEAR,
      holder: null,
      held_until: 0,
      created_by: `by-${t.canary}`,
      ...stamps,
    },
  ],
  training_events: (t) => [
    {
      id: newId(),
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      job_id: t.objects.job.id,
      seq: 1,
      level: 'info',
      message: `Told by ${t.canary}`,
      data: null,
      created_at: now,
    },
  ],
  batches: (t) => [
    {
      id: t.objects.batch.id,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      provider_slug: t.objects.provider.slug ?? '',
      request: {},
      status: 'in_progress',
      batch: batchOf(t),
      step: 'done',
      progress: {},
      upstream_id: null,
      cancel_requested: false,
      failures: 0,
      due_at: now + YEAR,
      holder: null,
      held_until: 0,
      created_by: `by-${t.canary}`,
      ...stamps,
    },
  ],
  batch_results: (t) => [
    {
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      batch_id: t.objects.batch.id,
      line: 1,
      ok: true,
      result: JSON.stringify({ custom_id: t.canary }),
      created_at: now,
    },
  ],
  object_usage: (t) => [
    {
      id: t.objects.batch.id,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      kind: 'batch',
      provider_slug: t.objects.provider.slug ?? '',
      account: t.objects.provider.id,
      object_id: t.objects.batch.id,
      terms: [],
      about: { model: t.canary },
      result: null,
      step: 'done',
      cancel_requested: false,
      failures: 0,
      due_at: now + YEAR,
      holder: null,
      held_until: 0,
      created_by: `by-${t.canary}`,
      ...stamps,
    },
  ],
  usage_policies: (t) => [
    {
      id: t.objects.usage_policy.id,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      name: `Policy ${t.canary}`,
      description: `About ${t.canary}`,
      conditions: [{ key: 'metadata.team', value: t.canary }],
      group_by: [{ key: 'metadata._user' }],
      type: 'cost',
      credit_limit: 10,
      alert_threshold: null,
      periodic_reset: null,
      periodic_reset_days: null,
      next_usage_reset_at: null,
      last_reset_at: null,
      unpriced: null,
      on_outage: 'refuse',
      alert_emails: [`${t.canary}@example.com`],
      alert_webhook_url: `https://alerts.example.com/${t.canary}?token=${t.canary}`,
      status: 'active',
      ...stamps,
    },
  ],
  usage_buckets: (t) => [
    {
      id: t.objects.usage_entity.id,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      owner_kind: 'policy',
      owner_id: t.objects.usage_policy.id,
      bucket_key: `metadata._user:${t.canary}`,
      value_key: `metadata._user:${t.canary}`,
      label: `Policy ${t.canary}`,
      type: 'cost',
      credit_limit: 10_000_000,
      alert_threshold: null,
      terms_at: 0,
      period: null,
      window_no: 1,
      used: 1,
      carry: 0,
      reserved: 0,
      unpriced: 0,
      resets_at: null,
      last_reset_at: null,
      status: 'active',
      threshold_alerted: false,
      exhausted_alerted: false,
      unpriced_alerted: false,
      burn: 0,
      burn_at: 0,
      entry_count: 0,
      ...stamps,
    },
  ],
  reservations: (t) => [
    {
      id: newId(),
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      bucket_id: t.objects.usage_entity.id,
      window_no: 1,
      node: `node-${t.canary}`,
      amount: 0,
      expires_at: now + YEAR,
      created_at: now,
    },
  ],
  ledger_entries: (t) => [
    {
      id: newId(),
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      bucket_id: t.objects.usage_entity.id,
      window_no: 1,
      kind: 'settle',
      from_account: 'open',
      to_account: 'used',
      amount: 1,
      carry: 0,
      requests: 1,
      unpriced: 0,
      created_at: now,
    },
  ],
  usage_alerts: (t) => [
    {
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      bucket_id: t.objects.usage_entity.id,
      window_no: 1,
      kind: 'threshold',
      used: 1,
      created_at: now,
      done_at: now,
    },
  ],
  alert_deliveries: (t) => [
    {
      id: newId(),
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      owner_kind: 'policy',
      owner_id: t.objects.usage_policy.id,
      bucket_id: t.objects.usage_entity.id,
      window_no: 1,
      kind: 'threshold',
      channel: 'email',
      recipient: `${t.canary}@example.com`,
      body: { label: `Policy ${t.canary}` },
      tries: 1,
      next_at: null,
      delivered_at: now,
      last_error: null,
      created_at: now,
    },
  ],
  alert_watches: (t) => [
    {
      id: t.workspaceId,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      budgets: { spend_budget: 1_000_000, error_budget: null, spend_anomalies: false },
      raised: { [`spend_rate ${t.canary}`]: 1 },
      ...stamps,
    },
  ],
  guardrails: (t) => [
    {
      id: t.objects.guardrail.id,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      slug: t.objects.guardrail.slug ?? '',
      name: `Guardrail ${t.canary}`,
      target: 'mcp_tools',
      status: 'active',
      version_id: `version-${t.canary}`,
      owner_id: `owner-${t.canary}`,
      updated_by: `by-${t.canary}`,
      ...stamps,
    },
  ],
  guardrail_versions: (t) => [
    {
      id: `version-${t.canary}`,
      organisation_id: t.organisationId,
      guardrail_id: t.objects.guardrail.id,
      number: 1,
      checks: [{ id: 'default.contains', is_enabled: true, parameters: { words: [t.canary] } }],
      actions: { deny: true },
      created_by: `by-${t.canary}`,
      created_at: now,
    },
  ],
  guardrail_mcp_servers: (t) => [
    {
      id: newId(),
      organisation_id: t.organisationId,
      guardrail_id: t.objects.guardrail.id,
      mcp_server_id: t.objects.mcp_server.id,
      run_on: ['beforeToolCall'],
      capability_ids: [`capability-${t.canary}`],
      ...stamps,
    },
  ],
  oauth_codes: (t) => [
    {
      digest: `code-${t.canary}`,
      ...given(t),
      redirect_uri: `http://127.0.0.1/${t.canary}`,
      challenge: t.canary,
      client_name: t.canary,
      signed_in_at: now,
      family_id: null,
      used_at: null,
    },
  ],
  oauth_families: (t) => [{ id: t.objects.oauth_approval.id, ...given(t), client_name: t.canary, signed_in_at: now }],
  oauth_tokens: (t) => [
    {
      digest: `token-${t.canary}`,
      organisation_id: t.organisationId,
      family_id: t.objects.oauth_approval.id,
      kind: 'access',
      scope: 'mcp',
      used_at: null,
      expires_at: now + YEAR,
      created_at: now,
    },
  ],
  secret_references: (t) => [
    {
      id: t.objects.secret_reference.id,
      organisation_id: t.organisationId,
      slug: t.objects.secret_reference.slug ?? '',
      name: `Secret reference ${t.canary}`,
      description: t.canary,
      manager_type: 'hashicorp_vault',
      auth_config: { vault_auth_type: 'token', vault_addr: 'https://vault.example' },
      secret_auth_config: null,
      secret_path: `secret/data/${t.canary}`,
      secret_key: null,
      allowed_workspaces: null,
      tags: { team: t.canary },
      status: 'active',
      created_by: `by-${t.canary}`,
      ...stamps,
    },
  ],
  scim_tokens: (t) => [{ ...scimOf(t).scim_tokens, id: t.objects.scim_token.id }],
  scim_users: (t) => [{ ...scimOf(t).scim_users, user_id: t.objects.user.id }],
  // The second one is mapped to the workspace.
  scim_groups: (t) => {
    const row = scimOf(t).scim_groups;
    return [
      { ...row, id: t.objects.scim_group.id },
      { ...row, id: t.objects.scim_mapping.id, name_key: `mapped ${row.name_key}` },
    ];
  },
  scim_group_members: (t) => [
    { ...scimOf(t).scim_group_members, group_id: t.objects.scim_group.id, user_id: t.objects.user.id },
  ],
  scim_mappings: (t) => [
    {
      id: t.objects.scim_mapping.id,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      group_id: t.objects.scim_mapping.id,
      role: 'member',
      created_at: now,
    },
  ],
  deployments: (t) => [
    {
      id: t.objects.deployment.id,
      organisation_id: t.organisationId,
      slug: t.objects.deployment.slug ?? '',
      name: `Deployment ${t.canary}`,
      type: 'production',
      status: 'active',
      is_default: true,
      connection_status: 'unknown',
      source_type: 'api',
      tags: { team: t.canary },
      auth_settings: {
        gateway_base_url: 'https://gateway.example',
        mcp_gateway_base_url: null,
        is_dataservice_hosted: 0,
        is_playground_proxy_allowed: 0,
        allow_all_workspaces: 0,
        workspaces_allowed: [t.workspaceId],
        jwt_subs_allowed: [t.canary],
        jwt_sub_workspace_mapping: {},
      },
      deployment_config: null,
      client_auth_id: `client-${t.canary}`,
      client_auth_digest: `digest-${t.canary}`,
      ping_digest: null,
      last_synced_at: null,
      last_resynced_at: null,
      created_by: `by-${t.canary}`,
      ...stamps,
    },
  ],
  answer_vectors: (t) => [
    {
      id: newId(),
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      scope: `scope-${t.canary}`,
      vector: t.canary,
      place: `answer:${t.canary}`,
      secret: `secret-${t.canary}`,
      created_at: stamps.created_at,
      expires_at: stamps.created_at + 1000,
    },
  ],
  sandbox_objects: (t) => [
    {
      id: `sandbox-${t.canary}`,
      organisation_id: t.organisationId,
      workspace_id: t.workspaceId,
      kind: 'file',
      data: { filename: t.canary },
      created_at: now,
    },
  ],
};

const scimOf = (t: Tenant) => scimRows(t.canary, t.organisationId, stamps);

function jobOf(t: Tenant) {
  return {
    id: t.objects.job.id,
    object: 'fine_tuning.job',
    created_at: Math.floor(now / 1000),
    model: 'gpt-4o-mini',
    fine_tuned_model: null,
    finished_at: null,
    hyperparameters: {},
    organization_id: '',
    result_files: [],
    status: 'running',
    trained_tokens: null,
    training_file: t.objects.file.id,
    validation_file: null,
    user_provided_suffix: t.canary,
  };
}

function batchOf(t: Tenant) {
  return {
    id: t.objects.batch.id,
    object: 'batch',
    endpoint: '/v1/chat/completions',
    errors: null,
    input_file_id: t.objects.file.id,
    completion_window: '24h',
    status: 'in_progress',
    output_file_id: null,
    error_file_id: null,
    created_at: Math.floor(now / 1000),
    in_progress_at: Math.floor(now / 1000),
    expires_at: null,
    finalizing_at: null,
    completed_at: null,
    failed_at: null,
    expired_at: null,
    cancelling_at: null,
    cancelled_at: null,
    request_counts: { total: 1, completed: 0, failed: 0 },
    metadata: { team: t.canary },
  };
}

/** Inserts one object of every kind for a tenant. */
export async function fill(tx: SystemTx, tenant: Tenant): Promise<void> {
  for (const table of Object.keys(MAKERS) as TenantTable[]) {
    for (const row of MAKERS[table](tenant)) await tx.insert(table, row as Row<typeof table>);
  }
}

/** Everything that is kept of an organisation, as text, table by table. */
export async function picture(tables: Tables, organisationId: string): Promise<Map<string, string[]>> {
  const names = Object.keys(SCHEMA) as TableName[];
  return tables.systemRead(async (tx) => {
    const out = new Map<string, string[]>();
    for (const table of names) {
      const own =
        'organisation_id' in SCHEMA[table].columns ? 'organisation_id' : table === 'organisations' ? 'id' : '';
      if (own === '') continue;
      const rows = await tx.list(table, { where: { [own]: organisationId } as never });
      out.set(
        table,
        rows.map((row) => JSON.stringify(row)),
      );
    }
    return out;
  });
}

/** What is kept of one workspace, by its canary or its id; the audit of calls that only name it is not among it. */
export function ofWorkspace(all: ReadonlyMap<string, readonly string[]>, tenant: Tenant): string[] {
  return [...all].flatMap(([table, rows]) =>
    table === 'audit_log' || table === 'changes'
      ? []
      : rows.filter((row) => row.includes(tenant.canary) || row.includes(tenant.workspaceId)).map((row) => table + row),
  );
}
