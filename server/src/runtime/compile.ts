/** Rows of the parts of a workspace → the parts of its snapshot. What did not change is the same object as before. */
import { isDeepStrictEqual } from 'node:util';
import { compileGuardrail } from '../guardrails/compile.ts';
import type { Guardrail } from '../guardrails/guardrail.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import { Lru } from '../kernel/lru.ts';
import { Secret } from '../kernel/secret.ts';
import { type LimitSpec, limitSpec, workspaceLimitSpecs } from '../limits/ledger/limit-spec.ts';
import { type LimitedEntity, limitedEntity } from '../limits/rate-limits.ts';
import { providerById } from '../providers/catalog.ts';
import type {
  AccountRows,
  ConfigRow,
  DefaultGuardrailNames,
  GuardrailRow,
  GuardrailRows,
  OpenedAccount,
  ProviderRow,
  VirtualKeyRow,
  WorkspacePlace,
} from '../resources/runtime-rows.ts';
import type { SecretManagers } from '../resources/secret-references/manager.ts';
import { blocksInlineConfig, bodySettings, cacheMaxAge } from '../resources/settings/settings.ts';
import type { Row } from '../store/schema.ts';
import { MappedAccount } from './mapped-account.ts';
import { type Opened, SealedValue } from './opened.ts';
import { SecretValues } from './secret-values.ts';
import type {
  ModelSettings,
  OpenedModel,
  StoredConfig,
  StoredProvider,
  WorkspaceAccounts,
  WorkspaceGuardrails,
  WorkspaceSettings,
} from './snapshot.ts';

/** Accounts and models of which sealed values are remembered, over all workspaces. */
const MOST_OPENED = 10_000;

/** Accounts of all workspaces, each opened once on this node. They are known by what is stored: another key is another account. */
export class OpenedAccounts {
  readonly #accounts = new Lru<string, Opened<OpenedAccount>>({ maxEntries: MOST_OPENED });
  readonly #models = new Lru<string, Opened<OpenedModel>>({ maxEntries: MOST_OPENED });
  readonly #values: SecretValues;
  readonly #clock: Clock;
  readonly #log: Log;

  constructor(managers: SecretManagers, clock: Clock, log: Log) {
    this.#values = new SecretValues(managers, clock, log);
    this.#clock = clock;
    this.#log = log;
  }

  integration(entry: ProviderRow): Opened<OpenedAccount> {
    const { id, key, configurations, secret_configurations: secrets, ai_provider_id: provider } = entry.integration;
    return this.#account({ integration: id }, [id, key, secrets, configurations], provider, entry);
  }

  virtualKey(entry: VirtualKeyRow): Opened<OpenedAccount> {
    const { id, key, model_config: settings, secret_model_config: secrets, ai_provider_id: provider } = entry.row;
    return this.#account({ virtual_key: id }, [id, key, secrets, settings], provider, entry);
  }

  /** Null when nothing is sealed. */
  model(row: Row<'integration_models'>, entry: ProviderRow): Opened<OpenedModel> | null {
    const { integration_id: integration, slug, configurations } = row;
    if (configurations?.sealed === undefined) return null;
    const open = async (): Promise<OpenedModel> => {
      const { key, custom_headers } = await entry.openModel(row);
      return { key: key === undefined ? null : new Secret(key), customHeaders: custom_headers ?? {} };
    };
    const make = () => new SealedValue(open, this.#clock, this.#log, { integration, model: slug });
    return remembered(this.#models, [integration, slug, configurations.sealed], make);
  }

  #account(
    what: Readonly<Record<string, string>>,
    stored: readonly unknown[],
    providerId: string,
    entry: Pick<ProviderRow, 'mapped' | 'open' | 'openPlace'>,
  ): Opened<OpenedAccount> {
    const { mapped, open, openPlace } = entry;
    if (mapped.length === 0) {
      return remembered(this.#accounts, stored, () => new SealedValue(open, this.#clock, this.#log, what));
    }
    const parts = { providerId, mapped, open, openPlace, values: this.#values };
    return remembered(
      this.#accounts,
      [...stored, mapped],
      () => new MappedAccount(parts, this.#clock, this.#log, what),
    );
  }
}

function remembered<T>(known: Lru<string, T>, stored: readonly unknown[], make: () => T): T {
  const name = JSON.stringify(stored);
  let found = known.get(name);
  if (found === undefined) {
    found = make();
    known.set(name, found);
  }
  return found;
}

export function compileSettings({ organisation, workspace }: WorkspacePlace, blockInline: boolean): WorkspaceSettings {
  const metadata = workspace.defaults?.metadata;
  return {
    workspaceSlug: workspace.slug,
    blockInlineConfig: blockInline || blocksInlineConfig(organisation, workspace),
    metadata: isTextMap(metadata) ? metadata : null,
    rateLimits: limitedEntity('workspace', workspace.id, workspace.slug, workspace.rate_limits),
    usageLimits: workspaceLimitSpecs(workspace),
    cacheMaxAge: cacheMaxAge(organisation),
    bodies: bodySettings(organisation, workspace),
  };
}

/** Rows that a provider or guardrail was compiled from, by which it is known whether it still is what they say. */
const madeFrom = new WeakMap<object, unknown>();

/** `former`, when it was made from equal rows. */
function unchanged<T extends object>(former: T | undefined, rows: unknown): T | null {
  return former !== undefined && isDeepStrictEqual(madeFrom.get(former), rows) ? former : null;
}

/**
 * A row that cannot be used (its provider is unknown, its credential does not open when it is called) breaks itself only:
 * requests that name it get a clear error, all others are served.
 */
export function compileAccounts(
  rows: AccountRows,
  opened: OpenedAccounts,
  former: WorkspaceAccounts | null,
): WorkspaceAccounts {
  const providers = new Map<string, StoredProvider>();
  // Providers and virtual keys share one namespace; the newer form wins should both exist all the same.
  for (const entry of rows.virtualKeys) {
    const { open: _open, openPlace: _openPlace, ...from } = entry;
    const stored = unchanged(former?.providers.get(entry.row.slug), from) ?? compileVirtualKey(entry, opened);
    madeFrom.set(stored, from);
    providers.set(entry.row.slug, stored);
  }
  for (const entry of rows.providers) {
    const { open: _open, openModel: _openModel, openPlace: _openPlace, ...from } = entry;
    const stored = unchanged(former?.providers.get(entry.row.slug), from) ?? compileProvider(entry, opened);
    madeFrom.set(stored, from);
    providers.set(entry.row.slug, stored);
  }
  return { providers, ...(rows.orphans === undefined ? {} : { orphans: rows.orphans }) };
}

/** Configs by slug and by id. The version of a config never changes: a config of the same version is the former one. */
export async function compileConfigs(
  rows: readonly ConfigRow[],
  log: Log,
  former: ReadonlyMap<string, StoredConfig> | null,
): Promise<ReadonlyMap<string, StoredConfig>> {
  const configs = new Map<string, StoredConfig>();
  const compiled = rows.map(({ row, versionId, open }): StoredConfig | Promise<StoredConfig> => {
    const known = former?.get(row.id);
    const { slug } = row;
    if (known?.versionId === versionId && known.slug === slug && known.broken === null) return known;
    return open().then(
      (config) => ({ slug, versionId, config, broken: null }),
      (error: unknown) => {
        log.error('a config cannot be used', { config: row.id, error: String(error) });
        return { slug, versionId, config: {}, broken: `The secrets of config ${slug} cannot be opened.` };
      },
    );
  });
  const all = await Promise.all(compiled);
  for (const [i, { row }] of rows.entries()) {
    const config = all[i];
    if (config === undefined) continue;
    configs.set(row.slug, config);
    configs.set(row.id, config);
  }
  return configs;
}

/** The former ones whole, when nothing of them has changed. */
export async function compileGuardrails(
  rows: GuardrailRows,
  log: Log,
  former: WorkspaceGuardrails | null,
): Promise<WorkspaceGuardrails> {
  const byName = new Map<string, Guardrail>();
  const compiled = rows.guardrails.map((entry) => {
    const { row, version } = entry;
    return unchanged(former?.byName.get(row.id), { row, version }) ?? compileStored(entry, log);
  });
  for (const guardrail of await Promise.all(compiled)) {
    byName.set(guardrail.slug, guardrail);
    byName.set(guardrail.id, guardrail);
  }
  const listOf = ({ organisation, workspace }: DefaultGuardrailNames): Guardrail[] => [
    ...new Set(
      [...organisation, ...workspace].map(
        (name) => byName.get(name) ?? byName.get(name.toLowerCase()) ?? missing(name, log),
      ),
    ),
  ];
  const { input, output } = rows.defaultGuardrails;
  const made = { byName, input: listOf(input), output: listOf(output) };
  return former !== null && isSame(made, former) ? former : made;
}

function isSame(a: WorkspaceGuardrails, b: WorkspaceGuardrails): boolean {
  const equal = (one: readonly unknown[], other: readonly unknown[]) =>
    one.length === other.length && one.every((item, i) => item === other[i]);
  return equal([...a.byName].flat(), [...b.byName].flat()) && equal(a.input, b.input) && equal(a.output, b.output);
}

async function compileStored({ row, version, open }: GuardrailRow, log: Log): Promise<Guardrail> {
  let broken = false;
  const checks = await Promise.all(
    version.checks.map(async (check, index) => {
      const { id, is_enabled } = check;
      try {
        return { id, is_enabled, parameters: await open(check, index) };
      } catch (error) {
        log.error('the secrets of a check cannot be opened', { guardrail: row.id, check: id, error: String(error) });
        broken = true;
        return { id, is_enabled, broken: true as const };
      }
    }),
  );
  const { id, slug, name, target } = row;
  const made = compileGuardrail({ id, slug, name, version: version.id, target, actions: version.actions, checks });
  if (!broken) madeFrom.set(made, { row, version });
  return made;
}

/** A default that names nothing must not let pass what the guardrail was to look at. */
function missing(name: string, log: Log): Guardrail {
  log.error('a default guardrail does not exist', { guardrail: name });
  const checks = [{ id: 'missing', is_enabled: true, broken: true as const }];
  return compileGuardrail({ id: name, slug: name, name, target: 'llm', actions: { deny: true }, checks });
}

function compileProvider(entry: ProviderRow, opened: OpenedAccounts): StoredProvider {
  const { row, integration } = entry;
  return compileAccount({
    row,
    kind: 'provider',
    accountId: integration.id,
    providerId: integration.ai_provider_id,
    shared: entry.shared,
    passthrough: integration.passthrough?.includes(row.workspace_id) === true,
    account: opened.integration(entry),
    models: entry.models.map((model) => [model.slug.toLowerCase(), compileModel(model, entry, opened)]),
    allowAllModels: integration.allow_all_models,
    pricingAdjustments: integration.pricing_adjustments,
    limited: [limitedEntity('integration', integration.id, integration.slug, entry.access?.rate_limits)],
    accessBudget: limitSpec(
      { kind: 'integration', id: integration.id, label: integration.slug, at: entry.access?.last_updated_at ?? 0 },
      entry.access?.usage_limits?.[0] ?? null,
    ),
  });
}

function compileVirtualKey(entry: VirtualKeyRow, opened: OpenedAccounts): StoredProvider {
  const { row } = entry;
  return compileAccount({
    row,
    kind: 'virtual-key',
    accountId: row.integration_id ?? row.id,
    providerId: row.ai_provider_id,
    // A virtual key is of one workspace, with its own credential.
    shared: false,
    passthrough: false,
    account: opened.virtualKey(entry),
    models: [],
    allowAllModels: true,
    pricingAdjustments: null,
    limited: [],
    accessBudget: null,
  });
}

function compileAccount(parts: {
  readonly row: Row<'providers'> | Row<'virtual_keys'>;
  readonly kind: StoredProvider['kind'];
  readonly accountId: string;
  readonly providerId: string;
  readonly shared: boolean;
  readonly passthrough: boolean;
  readonly account: Opened<OpenedAccount>;
  readonly models: readonly (readonly [slug: string, ModelSettings])[];
  readonly allowAllModels: boolean;
  readonly pricingAdjustments: Record<string, unknown> | null;
  /** What else limits its requests, after its own limits. */
  readonly limited: readonly (LimitedEntity | null)[];
  /** The usage limit of the workspace on the integration. */
  readonly accessBudget: LimitSpec | null;
}): StoredProvider {
  const { row } = parts;
  const provider = providerById(parts.providerId);
  let broken =
    provider === undefined
      ? `The base provider ${parts.providerId} of ${row.slug} is not known to this version.`
      : null;
  if (row.status === 'expired') broken ??= `Provider ${row.slug} has expired.`;
  return {
    slug: row.slug,
    entityId: row.id,
    accountId: parts.accountId,
    kind: parts.kind,
    shared: parts.shared,
    passthrough: parts.passthrough,
    provider: provider ?? null,
    account: parts.account,
    models: new Map(parts.models),
    allowAllModels: parts.allowAllModels,
    pricingAdjustments: parts.pricingAdjustments,
    expiresAt: row.expires_at,
    rateLimits: [limitedEntity(parts.kind, row.id, row.slug, row.rate_limits), ...parts.limited].filter(
      (entity) => entity !== null,
    ),
    usageLimits: [
      limitSpec({ kind: parts.kind, id: row.id, label: row.slug, at: row.last_updated_at }, row.usage_limits),
      parts.accessBudget,
    ].filter((spec) => spec !== null),
    broken,
  };
}

function compileModel(row: Row<'integration_models'>, entry: ProviderRow, opened: OpenedAccounts): ModelSettings {
  return {
    enabled: row.enabled,
    customHost: row.configurations?.custom_host ?? null,
    secrets: opened.model(row, entry),
    pricing: row.pricing_config,
  };
}

function isTextMap(value: unknown): value is Record<string, string> {
  return typeof value === 'object' && value !== null && Object.values(value).every((item) => typeof item === 'string');
}
