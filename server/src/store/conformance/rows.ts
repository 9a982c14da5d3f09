/** Whole rows with plain values, for the suites of this folder and for tests that need a row and care for few columns. */
import type { Row, TenantTable } from '../schema.ts';

const at = { created_at: 1_700_000_000_000, last_updated_at: 1_700_000_000_000 };

export function organisationRow(id: string, more: Partial<Row<'organisations'>> = {}): Row<'organisations'> {
  return { id, name: id, slug: id, status: 'active', settings: { block_inline_config: false }, ...at, ...more };
}

export function workspaceRow(
  organisation: string,
  id: string,
  more: Partial<Row<'workspaces'>> = {},
): Row<'workspaces'> {
  return {
    id,
    organisation_id: organisation,
    slug: id,
    name: id,
    icon: null,
    description: null,
    is_default: false,
    status: 'active',
    defaults: null,
    settings: {},
    security_settings: {},
    creation_source: null,
    scim_source_id: null,
    last_reset_at: null,
    usage_limits: null,
    rate_limits: null,
    created_by: null,
    ...at,
    ...more,
  };
}

export function userRow(organisation: string, id: string, more: Partial<Row<'users'>> = {}): Row<'users'> {
  return {
    id,
    organisation_id: organisation,
    email: `${id}@example.com`,
    first_name: 'First',
    last_name: 'Last',
    role: 'member',
    status: 'active',
    ...at,
    ...more,
  };
}

export function configRow(
  organisation: string,
  workspace: string,
  id: string,
  more: Partial<Row<'configs'>> = {},
): Row<'configs'> {
  return {
    id,
    organisation_id: organisation,
    workspace_id: workspace,
    slug: id,
    name: id,
    is_default: false,
    status: 'active',
    owner_id: 'owner',
    updated_by: null,
    version_id: 'v1',
    ...at,
    ...more,
  };
}

export function apiKeyRow(organisation: string, id: string, more: Partial<Row<'api_keys'>> = {}): Row<'api_keys'> {
  return {
    id,
    organisation_id: organisation,
    workspace_id: null,
    user_id: null,
    type: 'organisation-service',
    name: id,
    description: null,
    status: 'active',
    scopes: ['completions.write'],
    rate_limits: null,
    usage_limits: null,
    defaults: null,
    alert_emails: null,
    expires_at: null,
    rotation_policy: null,
    rotation_due_at: null,
    creation_mode: 'api',
    created_by: null,
    last_rotated_at: null,
    last_reset_at: null,
    version: 1,
    ...at,
    ...more,
  };
}

export function secretRow(
  organisation: string,
  key: string,
  id: string,
  more: Partial<Row<'api_key_secrets'>> = {},
): Row<'api_key_secrets'> {
  return {
    id,
    organisation_id: organisation,
    api_key_id: key,
    digest: 'd'.repeat(64),
    expires_at: null,
    created_at: at.created_at,
    ...more,
  };
}

export function integrationRow(
  organisation: string,
  id: string,
  more: Partial<Row<'integrations'>> = {},
): Row<'integrations'> {
  return {
    id,
    organisation_id: organisation,
    workspace_id: null,
    slug: id,
    name: id,
    description: null,
    ai_provider_id: 'openai',
    status: 'active',
    key: null,
    configurations: {},
    secret_configurations: null,
    secret_mappings: null,
    pricing_adjustments: null,
    allow_all_models: true,
    global_workspace_access: null,
    tags: null,
    created_by: null,
    ...at,
    ...more,
  };
}

export function providerRow(
  organisation: string,
  workspace: string,
  integration: string,
  id: string,
  more: Partial<Row<'providers'>> = {},
): Row<'providers'> {
  return {
    id,
    organisation_id: organisation,
    workspace_id: workspace,
    integration_id: integration,
    slug: id,
    name: id,
    note: null,
    status: 'active',
    usage_limits: null,
    rate_limits: null,
    expires_at: null,
    tags: null,
    secret_mappings: null,
    last_reset_at: null,
    ...at,
    ...more,
  };
}

type Rows = { readonly [N in TenantTable]: Row<N> };

/**
 * One whole row of each tenant table that belongs to the workspace, or to its organisation where the table has none, in
 * an order in which every row follows those it refers to. The ids start with the workspace's. `more` is part of all ids
 * but the workspace's own and those of what there is once per organisation or workspace.
 */
export function tenantRows(organisation: string, workspace: string, more = ''): Rows {
  const name = `${workspace}${more}`;
  const own = { organisation_id: organisation };
  const inside = { ...own, workspace_id: workspace };
  const created = { created_at: at.created_at };
  const user = `${name}-user`;
  const integration = `${name}-integration`;
  const work = {
    step: 'wait',
    progress: {},
    upstream_id: null,
    cancel_requested: false,
    failures: 0,
    due_at: at.created_at,
    holder: null,
    held_until: 0,
    created_by: null,
    ...at,
  };
  return {
    workspaces: workspaceRow(organisation, workspace),
    users: userRow(organisation, user),
    workspace_members: { ...inside, user_id: user, role: 'member', status: 'active', ...at },
    invites: {
      id: `${name}-invite`,
      ...own,
      email: `${name}@example.com`,
      role: 'member',
      workspaces: [],
      api_key_details: null,
      status: 'pending',
      token_digest: `${name}-token`,
      expires_at: at.created_at,
      accepted_at: null,
      invited_by: user,
      ...at,
    },
    guardrail_exclusions: { ...inside, direction: more === '' ? 'input' : 'output', ...created },
    rate_policies: {
      id: `${name}-rate-policy`,
      ...inside,
      name: null,
      description: null,
      target: 'llm',
      conditions: [{ key: 'provider', value: '*' }],
      group_by: [{ key: 'api_key' }],
      type: 'requests',
      unit: 'rpm',
      value: 10,
      status: 'active',
      ...at,
    },
    api_keys: apiKeyRow(organisation, `${name}-key`, {
      workspace_id: workspace,
      user_id: user,
      type: 'workspace-user',
    }),
    api_key_secrets: secretRow(organisation, `${name}-key`, `${name}-secret`),
    configs: configRow(organisation, workspace, `${name}-config`),
    config_versions: {
      id: `${name}-version`,
      ...own,
      config_id: `${name}-config`,
      number: 1,
      config: {},
      created_by: user,
      ...created,
    },
    integrations: integrationRow(organisation, integration, { workspace_id: workspace }),
    integration_models: {
      ...own,
      integration_id: integration,
      slug: 'model',
      name: null,
      description: null,
      enabled: true,
      is_custom: false,
      is_finetune: false,
      base_model_slug: null,
      pricing_config: null,
      configurations: null,
      ...at,
    },
    integration_workspaces: {
      ...inside,
      integration_id: integration,
      enabled: true,
      usage_limits: null,
      rate_limits: null,
      ...at,
    },
    providers: providerRow(organisation, workspace, integration, `${name}-provider`),
    virtual_keys: {
      id: `${name}-virtual`,
      ...inside,
      slug: `${name}-virtual`,
      name: 'Virtual key',
      note: null,
      ai_provider_id: 'openai',
      integration_id: integration,
      status: 'active',
      key: null,
      model_config: {},
      secret_model_config: null,
      secret_mappings: null,
      usage_limits: null,
      rate_limits: null,
      expires_at: null,
      tags: null,
      last_reset_at: null,
      ...at,
    },
    data_keys: { id: `${name}-data-key`, ...own, kek_id: 'kek', wrapped: 'wrapped', ...created },
    audit_log: {
      id: `${name}-audit`,
      ...inside,
      timestamp: at.created_at,
      method: 'POST',
      uri: '/v1/configs',
      request_id: 'request',
      request_body: null,
      query_params: null,
      user_id: user,
      user_type: 'user',
      response_status_code: 200,
      resource_type: 'config',
      resource_id: `${name}-config`,
      action: 'create',
      client_ip: null,
      country: null,
      request_headers: null,
      before: null,
      after: null,
      seq: null,
      hash: null,
    },
    audit_heads: { ...own, seq: 1, hash: 'hash' },
    idempotency_keys: {
      ...own,
      caller: user,
      key: name,
      fingerprint: 'fingerprint',
      status: 200,
      answer: null,
      object_id: null,
      replay_until: at.created_at,
      expires_at: at.created_at,
      ...created,
    },
    console_sessions: {
      digest: `${name}-session`,
      ...own,
      user_id: user,
      kind: 'session',
      expires_at: at.created_at,
      ...created,
    },
    object_owners: {
      ...inside,
      account: integration,
      kind: 'file',
      object_id: name,
      provider: 'openai',
      created_by: null,
      ...created,
    },
    files: {
      id: `${name}-file`,
      ...inside,
      filename: 'data.jsonl',
      purpose: 'batch',
      content_type: 'application/jsonl',
      bytes: 1,
      status: 'processed',
      status_details: null,
      created_by: null,
      ...created,
    },
    training_jobs: {
      id: `${name}-job`,
      ...inside,
      provider_slug: 'provider',
      request: {},
      status: 'queued',
      job: {},
      ...work,
    },
    training_events: {
      id: `${name}-event`,
      ...inside,
      job_id: `${name}-job`,
      seq: 1,
      level: 'info',
      message: 'queued',
      data: null,
      ...created,
    },
    batches: {
      id: `${name}-batch`,
      ...inside,
      provider_slug: 'provider',
      request: {},
      status: 'queued',
      batch: {},
      ...work,
    },
    batch_results: { ...inside, batch_id: `${name}-batch`, line: 1, ok: true, result: '{}', ...created },
    sandbox_objects: { id: `${name}-object`, ...inside, kind: 'file', data: {}, ...created },
  };
}
