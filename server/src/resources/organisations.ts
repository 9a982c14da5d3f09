/** How an organisation comes into being: shared by the first run and the operator's API. */
import { type KeyType, mintKey } from '../auth/key-format.ts';
import { scopesOf } from '../auth/scopes.ts';
import type { Clock } from '../kernel/clock.ts';
import { slugify, uuidv7 } from '../kernel/id.ts';
import type { SystemTx } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import { settingsForNewWorkspace } from './settings/settings.ts';

export interface NewOrganisation {
  readonly name: string;
  readonly owner: { readonly email: string; readonly first_name: string; readonly last_name: string };
  /** Saved-only mode: on for every organisation but the first-run one. */
  readonly blockInlineConfig: boolean;
  /** Whether bodies of its requests are kept from the start; default 0. */
  readonly debugLog?: 0 | 1;
  readonly clock: Clock;
}

export interface CreatedOrganisation {
  readonly organisation_id: string;
  readonly workspace_id: string;
  readonly workspace_slug: string;
  readonly user_id: string;
  /** Carries every organisation-service scope. Shown once. */
  readonly admin_api_key: string;
  /** Carries every workspace-service scope. Shown once. */
  readonly workspace_api_key: string;
}

/**
 * Inserts the organisation, its owner, a default workspace with the owner in it, an organisation-service and a
 * workspace-service key with every scope of their kind, and the sandbox provider, and announces it in the change feed.
 */
export async function createOrganisation(tx: SystemTx, input: NewOrganisation): Promise<CreatedOrganisation> {
  const { clock, name, owner } = input;
  const now = clock.now();
  const stamps = { created_at: now, last_updated_at: now };
  const id = uuidv7(clock);
  const userId = uuidv7(clock);
  const workspace = { id: uuidv7(clock), slug: slugify(name, 'ws-') };
  const { debugLog = 0 } = input;
  const settings = { block_inline_config: input.blockInlineConfig, ...(debugLog === 0 ? {} : { debug_log: debugLog }) };

  await tx.insert('organisations', {
    id,
    name,
    slug: slugify(name),
    status: 'active',
    settings,
    ...stamps,
  });
  await tx.insert('users', {
    id: userId,
    organisation_id: id,
    ...owner,
    role: 'owner',
    status: 'active',
    ...stamps,
  });
  await tx.insert('workspaces', {
    ...workspace,
    organisation_id: id,
    name: 'Default',
    icon: null,
    description: null,
    is_default: true,
    status: 'active',
    defaults: null,
    ...settingsForNewWorkspace({ settings }),
    usage_limits: null,
    rate_limits: null,
    created_by: userId,
    creation_source: 'auto',
    scim_source_id: null,
    last_reset_at: null,
    ...stamps,
  });
  const member = {
    organisation_id: id,
    workspace_id: workspace.id,
    user_id: userId,
    role: 'admin' as const,
    ...stamps,
  };
  await tx.insert('workspace_members', { ...member, status: 'active' });
  await tx.insert('membership_sources', { ...member, source: 'manual' });
  const key = { organisationId: id, createdBy: userId, clock };
  const { key: adminKey } = await insertServiceKey(tx, { ...key, workspaceId: null });
  const { key: workspaceKey } = await insertServiceKey(tx, { ...key, workspaceId: workspace.id });
  await insertSandbox(tx, { organisationId: id, workspaceId: workspace.id, userId, clock });
  tx.changed({ organisationId: id, workspaceId: null, topic: 'organisations', entityId: id });
  return {
    organisation_id: id,
    workspace_id: workspace.id,
    workspace_slug: workspace.slug,
    user_id: userId,
    admin_api_key: adminKey,
    workspace_api_key: workspaceKey,
  };
}

export interface NewKey {
  readonly organisationId: string;
  /** Null: a key for the organisation. */
  readonly workspaceId: string | null;
  /** Null: no user made it. */
  readonly createdBy: string | null;
  readonly name?: string;
  readonly clock: Clock;
}

const KEYS: Record<'organisation-service' | 'workspace-service', { readonly mark: KeyType; readonly name: string }> = {
  'organisation-service': { mark: 'org', name: 'Administration' },
  'workspace-service': { mark: 'wks', name: 'Default workspace' },
};

/** Inserts a service key of a workspace or of the organisation, with every scope of its kind. `key` is in clear. */
export async function insertServiceKey(
  tx: SystemTx,
  key: NewKey,
): Promise<{ readonly id: string; readonly type: keyof typeof KEYS; readonly key: string }> {
  const now = key.clock.now();
  const type = key.workspaceId === null ? 'organisation-service' : 'workspace-service';
  const minted = mintKey(KEYS[type].mark);
  const row: Row<'api_keys'> = {
    id: uuidv7(key.clock),
    organisation_id: key.organisationId,
    workspace_id: key.workspaceId,
    user_id: null,
    type,
    name: key.name ?? KEYS[type].name,
    description: null,
    status: 'active',
    scopes: [...scopesOf(type)],
    rate_limits: null,
    usage_limits: null,
    defaults: null,
    alert_emails: null,
    expires_at: null,
    rotation_policy: null,
    rotation_due_at: null,
    creation_mode: 'auto',
    created_by: key.createdBy,
    bounded_by: null,
    last_rotated_at: null,
    last_reset_at: null,
    version: 1,
    created_at: now,
    last_updated_at: now,
  };
  await tx.insert('api_keys', row);
  await tx.insert('api_key_secrets', {
    id: minted.publicId,
    organisation_id: key.organisationId,
    api_key_id: row.id,
    digest: minted.digest,
    expires_at: null,
    created_at: now,
  });
  return { id: row.id, type, key: minted.key };
}

/** The provider that answers inside the process: an integration without a key, and its instance in the workspace. */
async function insertSandbox(
  tx: SystemTx,
  owner: { organisationId: string; workspaceId: string; userId: string; clock: Clock },
): Promise<void> {
  const now = owner.clock.now();
  const stamps = { created_at: now, last_updated_at: now };
  const integrationId = uuidv7(owner.clock);
  await tx.insert('integrations', {
    id: integrationId,
    organisation_id: owner.organisationId,
    workspace_id: null,
    slug: 'sandbox',
    name: 'Sandbox',
    description: 'Answers inside the gateway, offline and without a provider token.',
    ai_provider_id: 'sandbox',
    status: 'active',
    key: null,
    configurations: {},
    secret_configurations: null,
    secret_mappings: null,
    pricing_adjustments: null,
    allow_all_models: true,
    global_workspace_access: null,
    passthrough: null,
    tags: null,
    created_by: owner.userId,
    ...stamps,
  });
  await tx.insert('integration_workspaces', {
    organisation_id: owner.organisationId,
    integration_id: integrationId,
    workspace_id: owner.workspaceId,
    enabled: true,
    usage_limits: null,
    rate_limits: null,
    ...stamps,
  });
  await tx.insert('providers', {
    id: uuidv7(owner.clock),
    organisation_id: owner.organisationId,
    workspace_id: owner.workspaceId,
    integration_id: integrationId,
    slug: 'sandbox',
    name: 'Sandbox',
    note: null,
    status: 'active',
    usage_limits: null,
    rate_limits: null,
    expires_at: null,
    tags: null,
    secret_mappings: null,
    last_reset_at: null,
    ...stamps,
  });
}

/** Adds a key that opens `/v1/operator/*`; answers the key, shown once. */
export async function createOperatorKey(tx: SystemTx, clock: Clock): Promise<string> {
  const minted = mintKey('opr');
  await tx.insert('operator_keys', { id: minted.publicId, digest: minted.digest, created_at: clock.now() });
  return minted.key;
}
