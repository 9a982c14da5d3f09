/** Whole rows with plain values, for the suites of this folder and for tests that need a row and care for few columns. */
import type { Row } from '../schema.ts';

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
