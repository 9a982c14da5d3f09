/**
 * What the data plane needs to know of one workspace, read in a handful of queries whatever its size. Plain rows; the
 * sealed values stay sealed until `open()` is called, so a secret that cannot be opened breaks its own object only.
 */
import type { Secret } from '../kernel/secret.ts';
import type { TenantContext, TenantTx } from '../store/ports.ts';
import type { Row, SecretMapping, StoredCheck, TenantTable } from '../store/schema.ts';
import type { Vault } from '../store/vault.ts';
import type { Config } from './configs/schema.ts';
import { openConfig } from './configs/secrets.ts';
import { openParameters } from './guardrails/secrets.ts';
import { type ModelSecrets, openModelSecrets } from './integrations/model-settings.ts';
import { type AccountPlace, openKey, openSettings, splitSettings } from './integrations/secrets.ts';
import { sharedIntegrations } from './integrations/sharing.ts';
import { placeOf } from './secret-references/auth-config.ts';
import { isOpenToWorkspace, type SecretReference, secretReferencesNamed } from './secret-references/find.ts';
import type { SecretPlace } from './secret-references/manager.ts';
import { part } from './settings/section.ts';
import { storedName } from './virtual-keys/settings.ts';

/** An account as a call needs it: the opened key and all settings, secret ones included. */
export interface OpenedAccount {
  readonly key: Secret | null;
  /** Snake case without prefix: `openai_organization`. Without the custom host and headers, which have their own members. */
  readonly settings: Readonly<Record<string, unknown>>;
  readonly customHost: string | null;
  readonly customHeaders: Readonly<Record<string, string>>;
}

export interface ConfigRow {
  readonly row: Row<'configs'>;
  readonly versionId: string;
  /** The config of the current version with its secrets opened. Throws SluiceError('unavailable') when one does not open. */
  open(): Promise<Config>;
}

/** A field of an account that a secret manager fills. */
export interface MappedField {
  /** `key`, or the stored name of a setting. */
  readonly field: string;
  /** As the mapping names it. */
  readonly name: string;
  /** Null: there is none of this name. */
  readonly reference: SecretReference | null;
  /** Whether the workspace may use it. */
  readonly open: boolean;
  /** The member of the secret that is meant; null: the secret itself. */
  readonly key: string | null;
  readonly format: 'json' | 'string';
}

/** What opens the references of an account. Throws SluiceError('unavailable') when no key opens them. */
export type OpenPlace = (reference: SecretReference) => Promise<SecretPlace>;

export interface ProviderRow {
  readonly row: Row<'providers'>;
  readonly integration: Row<'integrations'>;
  /** Limits of this workspace on the integration: its own entry's, else those for all workspaces; null when there are none. */
  readonly access: Pick<Row<'integration_workspaces'>, 'usage_limits' | 'rate_limits' | 'last_updated_at'> | null;
  readonly models: readonly Row<'integration_models'>[];
  /** Another workspace can use the account, too. */
  readonly shared: boolean;
  /** Fields that secret managers fill: the provider's own, then those of its integration. */
  readonly mapped: readonly MappedField[];
  readonly openPlace: OpenPlace;
  /** Throws SluiceError('unavailable') when the key or the secret settings do not open. */
  open(): Promise<OpenedAccount>;
  /** Key and headers of one of its models. Throws as `open`. */
  openModel(model: Row<'integration_models'>): Promise<ModelSecrets>;
}

export interface VirtualKeyRow {
  readonly row: Row<'virtual_keys'>;
  readonly mapped: readonly MappedField[];
  readonly openPlace: OpenPlace;
  /** As for a provider; settings have the snake-case names of `configurations`. */
  open(): Promise<OpenedAccount>;
}

export interface GuardrailRow {
  readonly row: Row<'guardrails'>;
  readonly version: Pick<Row<'guardrail_versions'>, 'id' | 'checks' | 'actions'>;
  /** The parameters of a check with its secrets opened. Throws SluiceError('unavailable') when they do not open. */
  open(check: StoredCheck, index: number): Promise<Record<string, unknown>>;
}

/** Ids or slugs of guardrails that run on every request of a workspace, by whose defaults they are. */
export interface DefaultGuardrailNames {
  /** Empty where the workspace is exempt. */
  readonly organisation: readonly string[];
  readonly workspace: readonly string[];
}

/** A workspace and its organisation, on whose rows most of what is read of it depends. */
export interface WorkspacePlace {
  readonly organisation: Row<'organisations'>;
  readonly workspace: Row<'workspaces'>;
}

export interface AccountRows {
  /** Providers whose integration is active and open to the workspace; archived ones are left out. */
  readonly providers: readonly ProviderRow[];
  /** Slugs of providers whose integration was deleted, with the slug of that; absent when there is none. */
  readonly orphans?: ReadonlyMap<string, string>;
  /** Those that were not migrated: a migrated one is served by the provider that took its slug over. */
  readonly virtualKeys: readonly VirtualKeyRow[];
  /** Ids of all providers, usable or not, of their integrations, of the virtual keys, and of the secret references of all these. */
  readonly ids: ReadonlySet<string>;
}

export interface GuardrailRows {
  /** Active ones for models: of the workspace, and of the organisation. */
  readonly guardrails: readonly GuardrailRow[];
  readonly defaultGuardrails: { readonly input: DefaultGuardrailNames; readonly output: DefaultGuardrailNames };
}

/** Null when there is no active workspace with this id. `tx` must be organisation-wide or bound to this workspace. */
export async function loadPlace(tx: TenantTx, workspaceId: string): Promise<WorkspacePlace | null> {
  const organisation = await tx.organisation();
  const workspace = await tx.find('workspaces', { id: workspaceId, status: 'active' });
  return workspace === undefined ? null : { organisation, workspace };
}

const listed = ({ workspace }: WorkspacePlace) =>
  ({ workspace_id: workspace.id, status: { not: 'archived' } }) as const;

export async function loadConfigs(tx: TenantTx, vault: Vault, place: WorkspacePlace): Promise<ConfigRow[]> {
  const { tenant } = tx;
  const configs = await tx.list('configs', { where: listed(place) });
  const ids = configs.map((row) => row.version_id);
  const versions = byId(await listIn(tx, 'config_versions', 'id', ids));
  return configs.flatMap((row) => {
    const version = versions.get(row.version_id);
    if (!version) return [];
    return [{ row, versionId: version.id, open: () => openConfig(vault, tenant, version.id, version.config) }];
  });
}

export async function loadAccounts(tx: TenantTx, vault: Vault, place: WorkspacePlace): Promise<AccountRows> {
  const { tenant } = tx;
  const rows = await tx.list('providers', { where: listed(place) });
  const virtualKeys = await tx.list('virtual_keys', { where: { ...listed(place), integration_id: null } });
  const usable = await loadProviders(tx, place.workspace.id, rows);
  const orphans = await orphansOf(tx, rows, usable);
  const mappings = [
    ...usable.flatMap(({ row, integration }) => [row.secret_mappings, integration.secret_mappings]),
    ...virtualKeys.map((row) => row.secret_mappings),
  ].flatMap((list) => list ?? []);
  const references = await secretReferencesNamed(tx, [...new Set(mappings.map((one) => one.secret_reference_id))]);
  const mapped = (...lists: readonly (readonly SecretMapping[] | null)[]) =>
    mappedFields(lists, references, place.workspace.id);
  const openPlace: OpenPlace = (reference) => placeOf({ vault, tenant }, reference);
  return {
    providers: usable.map((one) => ({
      ...one,
      mapped: mapped(one.row.secret_mappings, one.integration.secret_mappings),
      openPlace,
      open: () => openIntegration(tenant, vault, one.integration),
      openModel: (model) => openModelSecrets(vault, tenant, model),
    })),
    ...(orphans === null ? {} : { orphans }),
    virtualKeys: virtualKeys.map((row) => ({
      row,
      mapped: mapped(row.secret_mappings),
      openPlace,
      open: () => openVirtualKey(tenant, vault, row),
    })),
    ids: new Set([
      ...rows.flatMap((row) => [row.id, row.integration_id]),
      ...virtualKeys.map((row) => row.id),
      ...[...references.values()].map(({ id }) => id),
    ]),
  };
}

/** Of several mappings of one field the first counts. */
function mappedFields(
  lists: readonly (readonly SecretMapping[] | null)[],
  references: ReadonlyMap<string, SecretReference>,
  workspaceId: string,
): readonly MappedField[] {
  const found = new Map<string, MappedField>();
  for (const mapping of lists.flatMap((list) => list ?? [])) {
    const [, setting] = /^(?:configurations|model_config)\.(.*)$/.exec(mapping.target_field) ?? [];
    const field = setting === undefined ? mapping.target_field : storedName(setting);
    if (found.has(field)) continue;
    const name = mapping.secret_reference_id;
    const reference = references.get(name) ?? null;
    found.set(field, {
      field,
      name,
      reference,
      open: reference !== null && isOpenToWorkspace(reference, workspaceId),
      key: mapping.secret_key || reference?.secret_key || null,
      format: mapping.value_format ?? 'string',
    });
  }
  return found.size === 0 ? NONE : [...found.values()];
}

const NONE: readonly MappedField[] = [];

/** Active ones, oldest first: the order in which they refuse. */
export function loadRatePolicies(tx: TenantTx, { workspace }: WorkspacePlace): Promise<Row<'rate_policies'>[]> {
  return tx.list('rate_policies', {
    where: { workspace_id: workspace.id, status: 'active' },
    orderBy: [['created_at', 'asc']],
  });
}

/** Active ones, oldest first. */
export function loadUsagePolicies(tx: TenantTx, { workspace }: WorkspacePlace): Promise<Row<'usage_policies'>[]> {
  return tx.list('usage_policies', {
    where: { workspace_id: workspace.id, status: 'active' },
    orderBy: [['created_at', 'asc']],
  });
}

/** Providers that cannot be used because their integration was deleted; nothing is read where all can be used. */
async function orphansOf(
  tx: TenantTx,
  providers: readonly Row<'providers'>[],
  usable: readonly { readonly row: Row<'providers'> }[],
): Promise<ReadonlyMap<string, string> | null> {
  if (usable.length === providers.length) return null;
  const used = new Set(usable.map(({ row }) => row.id));
  const rest = providers.filter((row) => !used.has(row.id));
  const integrations = byId(
    await listIn(tx, 'integrations', 'id', [...new Set(rest.map((row) => row.integration_id))]),
  );
  const found = rest.flatMap((row): [string, string][] => {
    const integration = integrations.get(row.integration_id);
    return integration?.status === 'archived' ? [[row.slug, integration.slug]] : [];
  });
  return found.length === 0 ? null : new Map(found);
}

const namesIn = (list: unknown): readonly string[] =>
  Array.isArray(list) ? list.filter((name) => typeof name === 'string') : [];

export async function loadGuardrails(tx: TenantTx, vault: Vault, place: WorkspacePlace): Promise<GuardrailRows> {
  const { organisation, workspace } = place;
  const exempt = await tx.list('guardrail_exclusions', { where: { workspace_id: workspace.id } });
  const defaultsOf = (direction: 'input' | 'output'): DefaultGuardrailNames => {
    const key = `${direction}_guardrails` as const;
    const excluded = exempt.some((row) => row.direction === direction);
    return {
      organisation: excluded ? [] : namesIn(part(organisation.settings, 'defaults')[key]),
      workspace: namesIn(workspace.defaults?.[key]),
    };
  };
  return {
    guardrails: await activeGuardrails(tx, vault, workspace.id),
    defaultGuardrails: { input: defaultsOf('input'), output: defaultsOf('output') },
  };
}

async function activeGuardrails(tx: TenantTx, vault: Vault, workspaceId: string): Promise<GuardrailRow[]> {
  const { tenant } = tx;
  const here = { status: 'active', target: 'llm' } as const;
  const rows = [
    ...(await tx.list('guardrails', { where: { ...here, workspace_id: workspaceId } })),
    ...(await tx.list('guardrails', { where: { ...here, workspace_id: null } })),
  ];
  if (rows.length === 0) return [];
  const ids = rows.map((row) => row.version_id);
  const versions = byId(await listIn(tx, 'guardrail_versions', 'id', ids));
  return rows.map((row) => {
    // Without its version a guardrail has nothing that could pass.
    const version = versions.get(row.version_id) ?? {
      id: row.version_id,
      checks: [{ id: 'missing', is_enabled: true, parameters: {} }],
      actions: { deny: true },
    };
    return { row, version, open: (check, index) => openParameters(vault, tenant, version.id, index, check) };
  });
}

/** The providers of a workspace whose integration is active and open to it, with what hangs on them. */
export async function loadProviders(
  tx: TenantTx,
  workspaceId: string,
  rows?: readonly Row<'providers'>[],
): Promise<Omit<ProviderRow, 'mapped' | 'open' | 'openModel' | 'openPlace'>[]> {
  const providers =
    rows ?? (await tx.list('providers', { where: { workspace_id: workspaceId, status: { not: 'archived' } } }));
  if (providers.length === 0) return [];
  const ids = [...new Set(providers.map((row) => row.integration_id))];
  const integrations = byId(await listIn(tx, 'integrations', 'id', ids));
  const models = groupBy(await listIn(tx, 'integration_models', 'integration_id', ids));
  const access = await tx.list('integration_workspaces', { where: { workspace_id: workspaceId } });
  const accessOf = new Map(access.map((row) => [row.integration_id, row]));
  const shared = await sharedIntegrations(tx, workspaceId, [...integrations.values()]);
  return providers.flatMap((row) => {
    const integration = integrations.get(row.integration_id);
    if (integration?.status !== 'active') return [];
    const own = accessOf.get(integration.id) ?? null;
    if (!isOpenTo(integration, own)) return [];
    return [
      {
        row,
        integration,
        access: own ?? globalLimits(integration),
        models: models.get(integration.id) ?? [],
        shared: shared.has(integration.id),
      },
    ];
  });
}

/** Limits of `global_workspace_access`, which hold for every workspace without its own entry. */
function globalLimits(integration: Row<'integrations'>): ProviderRow['access'] {
  if (integration.workspace_id !== null || integration.global_workspace_access === null) return null;
  const { usage_limits, rate_limits } = integration.global_workspace_access;
  const { last_updated_at } = integration;
  return { usage_limits: usage_limits ?? null, rate_limits: rate_limits ?? null, last_updated_at };
}

/**
 * Whether a workspace may use an integration. A workspace-scoped one belongs to its workspace. On an organisation's
 * integration the workspace's own entry decides; without one the setting for all workspaces does, and an integration
 * whose access was never set is open to every workspace of the organisation.
 */
export function isOpenTo(
  integration: Pick<Row<'integrations'>, 'workspace_id' | 'global_workspace_access'>,
  own: Pick<Row<'integration_workspaces'>, 'enabled'> | null,
): boolean {
  if (integration.workspace_id !== null) return true;
  if (own) return own.enabled;
  return integration.global_workspace_access === null || integration.global_workspace_access.enabled === true;
}

async function openAccount(
  tenant: TenantContext,
  vault: Vault,
  place: AccountPlace,
  sealed: { readonly key: string | null; readonly secrets: string | null; readonly plain: Record<string, unknown> },
): Promise<OpenedAccount> {
  const key = await openKey(vault, tenant, place, sealed.key);
  const secrets = await openSettings(vault, tenant, place, sealed.secrets);
  return { key, ...splitSettings({ ...sealed.plain, ...secrets }) };
}

function openIntegration(tenant: TenantContext, vault: Vault, row: Row<'integrations'>): Promise<OpenedAccount> {
  const place = { table: 'integrations', column: 'secret_configurations', row: row.id } as const;
  const { key, configurations: plain, secret_configurations: secrets } = row;
  return openAccount(tenant, vault, place, { key, secrets, plain });
}

function openVirtualKey(tenant: TenantContext, vault: Vault, row: Row<'virtual_keys'>): Promise<OpenedAccount> {
  const place = { table: 'virtual_keys', column: 'secret_model_config', row: row.id } as const;
  const { key, model_config: plain, secret_model_config: secrets } = row;
  return openAccount(tenant, vault, place, { key, secrets, plain });
}

/** Values of one `IN`: far below the bind limits of both engines. */
const CHUNK = 1000;

async function listIn<N extends TenantTable>(
  tx: TenantTx,
  table: N,
  column: keyof Row<N> & string,
  values: readonly string[],
): Promise<Row<N>[]> {
  const out: Row<N>[] = [];
  for (let i = 0; i < values.length; i += CHUNK) {
    const where = { [column]: { in: values.slice(i, i + CHUNK) } } as never;
    out.push(...(await tx.list(table, { where })));
  }
  return out;
}

function byId<T extends { id: string }>(rows: readonly T[]): Map<string, T> {
  return new Map(rows.map((row) => [row.id, row]));
}

function groupBy(rows: readonly Row<'integration_models'>[]): Map<string, Row<'integration_models'>[]> {
  const out = new Map<string, Row<'integration_models'>[]>();
  for (const row of rows) {
    const list = out.get(row.integration_id);
    if (list) list.push(row);
    else out.set(row.integration_id, [row]);
  }
  return out;
}
