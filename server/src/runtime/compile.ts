import { compileGuardrail } from '../guardrails/compile.ts';
import type { Guardrail } from '../guardrails/guardrail.ts';
import type { Log } from '../kernel/log.ts';
import { Secret } from '../kernel/secret.ts';
import { type LimitedEntity, limitedEntity } from '../limits/admission.ts';
import { limitTerms, type Terms, workspaceTerms } from '../limits/ledger/terms.ts';
import { compileRatePolicies } from '../limits/policies/rates.ts';
import { compileUsagePolicies } from '../limits/policies/usage.ts';
import { providerById } from '../providers/catalog.ts';
import type {
  DefaultGuardrailNames,
  GuardrailRow,
  OpenedAccount,
  ProviderRow,
  VirtualKeyRow,
  WorkspaceRows,
} from '../resources/openable.ts';
import { blocksInlineConfig, cacheMaxAge } from '../resources/settings/settings.ts';
import type { Row } from '../store/schema.ts';
import type {
  ModelSettings,
  StoredConfig,
  StoredProvider,
  WorkspaceGuardrails,
  WorkspaceSnapshot,
} from './snapshot.ts';

const NO_ACCOUNT: OpenedAccount = { key: null, settings: {}, customHost: null, customHeaders: {} };

/**
 * Rows of one workspace → its snapshot. A row that cannot be used (its secret does not open, its provider is unknown)
 * breaks itself only: requests that name it get a clear error, all others are served.
 */
export async function compileWorkspace(
  rows: WorkspaceRows,
  generation: number,
  options: { readonly blockInlineConfig: boolean; readonly log: Log },
): Promise<WorkspaceSnapshot> {
  const { organisation, workspace } = rows;
  const providers = new Map<string, StoredProvider>();
  const [stored, virtual] = await Promise.all([
    Promise.all(rows.providers.map((row) => compileProvider(row, options.log))),
    Promise.all(rows.virtualKeys.map((row) => compileVirtualKey(row, options.log))),
  ]);
  // Providers and virtual keys share one namespace; the newer form wins should both exist all the same.
  for (const provider of [...virtual, ...stored]) providers.set(provider.slug, provider);

  const configs = new Map<string, StoredConfig>();
  for (const entry of rows.configs) {
    const compiled: StoredConfig = await entry.open().then(
      (config) => ({ slug: entry.row.slug, versionId: entry.versionId, config, broken: null }),
      (error: unknown) => {
        options.log.error('a config cannot be used', { config: entry.row.id, error: String(error) });
        return {
          slug: entry.row.slug,
          versionId: entry.versionId,
          config: {},
          broken: `The secrets of config ${entry.row.slug} cannot be opened.`,
        };
      },
    );
    configs.set(entry.row.slug, compiled);
    configs.set(entry.row.id, compiled);
  }

  const place = { workspaceId: workspace.id, workspaceSlug: workspace.slug, organisationId: organisation.id };
  const metadata = workspace.defaults?.metadata;
  return {
    organisationId: organisation.id,
    workspaceId: workspace.id,
    workspaceSlug: workspace.slug,
    generation,
    blockInlineConfig: options.blockInlineConfig || blocksInlineConfig(organisation, workspace),
    metadata: isTextMap(metadata) ? metadata : null,
    limited: limitedEntity('workspace', workspace.id, workspace.slug, workspace.rate_limits),
    ratePolicies: compileRatePolicies(rows.ratePolicies, place),
    budgets: workspaceTerms(workspace),
    usagePolicies: compileUsagePolicies(rows.usagePolicies, place),
    providers,
    ...(rows.orphans === undefined ? {} : { orphans: rows.orphans }),
    configs,
    guardrails: await compileGuardrails(rows, options.log),
    cacheMaxAge: cacheMaxAge(organisation),
    plans: new Map(),
  };
}

async function compileGuardrails(rows: WorkspaceRows, log: Log): Promise<WorkspaceGuardrails> {
  const byName = new Map<string, Guardrail>();
  for (const entry of rows.guardrails) {
    const compiled = await compileStored(entry, log);
    byName.set(compiled.slug, compiled);
    byName.set(compiled.id, compiled);
  }
  const listOf = ({ organisation, workspace }: DefaultGuardrailNames): Guardrail[] => [
    ...new Set(
      [...organisation, ...workspace].map(
        (name) => byName.get(name) ?? byName.get(name.toLowerCase()) ?? missing(name, log),
      ),
    ),
  ];
  const { input, output } = rows.defaultGuardrails;
  return { byName, input: listOf(input), output: listOf(output) };
}

async function compileStored({ row, version, open }: GuardrailRow, log: Log): Promise<Guardrail> {
  const checks = await Promise.all(
    version.checks.map(async (check, index) => {
      const { id, is_enabled } = check;
      try {
        return { id, is_enabled, parameters: await open(check, index) };
      } catch (error) {
        log.error('the secrets of a check cannot be opened', { guardrail: row.id, check: id, error: String(error) });
        return { id, is_enabled, broken: true as const };
      }
    }),
  );
  const { id, slug, name, target } = row;
  return compileGuardrail({ id, slug, name, version: version.id, target, actions: version.actions, checks });
}

/** A default that names nothing must not let pass what the guardrail was to look at. */
function missing(name: string, log: Log): Guardrail {
  log.error('a default guardrail does not exist', { guardrail: name });
  const checks = [{ id: 'missing', is_enabled: true, broken: true as const }];
  return compileGuardrail({ id: name, slug: name, name, target: 'llm', actions: { deny: true }, checks });
}

async function compileProvider(entry: ProviderRow, log: Log): Promise<StoredProvider> {
  const { row, integration } = entry;
  return compileAccount({
    row,
    kind: 'provider',
    accountId: integration.id,
    providerId: integration.ai_provider_id,
    shared: entry.shared,
    passthrough: integration.passthrough?.includes(row.workspace_id) === true,
    open: entry.open,
    models: await Promise.all(entry.models.map((model) => compileModel(model, entry, log))),
    allowAllModels: integration.allow_all_models,
    pricingAdjustments: integration.pricing_adjustments,
    limited: [limitedEntity('integration', integration.id, integration.slug, entry.access?.rate_limits)],
    accessBudget: limitTerms(
      { kind: 'integration', id: integration.id, label: integration.slug, at: entry.access?.last_updated_at ?? 0 },
      entry.access?.usage_limits?.[0] ?? null,
    ),
    log,
  });
}

function compileVirtualKey(entry: VirtualKeyRow, log: Log): Promise<StoredProvider> {
  const { row } = entry;
  return compileAccount({
    row,
    kind: 'virtual-key',
    accountId: row.integration_id ?? row.id,
    providerId: row.ai_provider_id,
    // A virtual key is of one workspace, with a credential of its own.
    shared: false,
    passthrough: false,
    open: entry.open,
    models: [],
    allowAllModels: true,
    pricingAdjustments: null,
    limited: [],
    accessBudget: null,
    log,
  });
}

async function compileAccount(parts: {
  readonly row: Row<'providers'> | Row<'virtual_keys'>;
  readonly kind: StoredProvider['kind'];
  readonly accountId: string;
  readonly providerId: string;
  readonly shared: boolean;
  readonly passthrough: boolean;
  readonly open: () => Promise<OpenedAccount>;
  readonly models: readonly (readonly [slug: string, ModelSettings])[];
  readonly allowAllModels: boolean;
  readonly pricingAdjustments: Record<string, unknown> | null;
  /** What else limits its requests, after its own limits. */
  readonly limited: readonly (LimitedEntity | null)[];
  /** The usage limit of the workspace on the integration. */
  readonly accessBudget: Terms | null;
  readonly log: Log;
}): Promise<StoredProvider> {
  const { row } = parts;
  const provider = providerById(parts.providerId);
  let broken =
    provider === undefined
      ? `The base provider ${parts.providerId} of ${row.slug} is not known to this version.`
      : null;
  let account = NO_ACCOUNT;
  if (row.status === 'expired') broken ??= `Provider ${row.slug} has expired.`;
  try {
    account = await parts.open();
  } catch (error) {
    parts.log.error('the credential of a provider cannot be opened', { provider: row.id, error: String(error) });
    broken ??= `The stored credential of ${row.slug} cannot be opened; its encryption key is missing.`;
  }
  return {
    slug: row.slug,
    entityId: row.id,
    accountId: parts.accountId,
    kind: parts.kind,
    shared: parts.shared,
    passthrough: parts.passthrough,
    provider: provider ?? null,
    key: account.key,
    settings: account.settings,
    customHost: account.customHost,
    customHeaders: account.customHeaders,
    models: new Map(parts.models),
    allowAllModels: parts.allowAllModels,
    pricingAdjustments: parts.pricingAdjustments,
    expiresAt: row.expires_at,
    limited: [limitedEntity(parts.kind, row.id, row.slug, row.rate_limits), ...parts.limited].filter(
      (entity) => entity !== null,
    ),
    budgets: [
      limitTerms({ kind: parts.kind, id: row.id, label: row.slug, at: row.last_updated_at }, row.usage_limits),
      parts.accessBudget,
    ].filter((terms) => terms !== null),
    broken,
  };
}

async function compileModel(
  row: Row<'integration_models'>,
  entry: ProviderRow,
  log: Log,
): Promise<readonly [slug: string, ModelSettings]> {
  const secrets = await entry.openModel(row).catch((error: unknown) => {
    log.error('the secrets of a model cannot be opened', {
      provider: entry.row.id,
      model: row.slug,
      error: String(error),
    });
    return null;
  });
  const settings = {
    enabled: row.enabled && secrets !== null,
    customHost: row.configurations?.custom_host ?? null,
    customHeaders: secrets?.custom_headers ?? {},
    key: secrets?.key === undefined ? null : new Secret(secrets.key),
    pricing: row.pricing_config,
  };
  return [row.slug.toLowerCase(), settings];
}

function isTextMap(value: unknown): value is Record<string, string> {
  return typeof value === 'object' && value !== null && Object.values(value).every((item) => typeof item === 'string');
}
