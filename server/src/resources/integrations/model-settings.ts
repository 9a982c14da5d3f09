/**
 * Settings of one model of an integration: a host, headers and a key of the model's own. Headers and key are sealed together,
 * bound to the integration and the model.
 */
import { Secret } from '../../kernel/secret.ts';
import { providerById } from '../../providers/catalog.ts';
import type { TenantContext } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { SealPlace, Vault } from '../../store/vault.ts';
import { maskOf, REFUSED_MASK } from '../body-fields.ts';
import { refuse } from '../common.ts';
import type { Call } from '../resource.ts';
import { allFields, sendAgain, signsByKeyAlone, unmaskHeaders } from './configurations.ts';
import type { ModelSettingsInput } from './schema.ts';
import { maskHeaders } from './secrets.ts';

type Integration = Row<'integrations'>;

type ModelRow = Row<'integration_models'>;
type Stored = NonNullable<ModelRow['configurations']>;

/** What is secret of a model. */
export interface ModelSecrets {
  readonly key?: string;
  readonly custom_headers?: Readonly<Record<string, string>>;
}

const place = (integrationId: string, slug: string): SealPlace => ({
  table: 'integration_models',
  column: 'configurations',
  row: `${integrationId}/${slug}`,
});

/** Throws SluiceError('unavailable') when no key opens them. */
export async function openModelSecrets(
  vault: Vault,
  tenant: TenantContext,
  { integration_id, slug, configurations }: Pick<ModelRow, 'integration_id' | 'slug' | 'configurations'>,
): Promise<ModelSecrets> {
  if (configurations?.sealed === undefined) return {};
  const text = await vault.open(tenant, place(integration_id, slug), configurations.sealed);
  return JSON.parse(text.reveal()) as ModelSecrets;
}

/** The settings of a model as they are stored. */
export async function sealModel(
  vault: Vault,
  tenant: TenantContext,
  model: Pick<ModelRow, 'integration_id' | 'slug'>,
  host: string | undefined,
  secrets: ModelSecrets,
): Promise<Stored> {
  const plain = host === undefined ? {} : { custom_host: host };
  if (Object.keys(secrets).length === 0) return plain;
  const text = new Secret(JSON.stringify(secrets));
  return { ...plain, sealed: await vault.seal(tenant, place(model.integration_id, model.slug), text) };
}

/** As they are answered: `masked_key`, and masks as the values of headers. */
export async function presentModelSettings(vault: Vault, tenant: TenantContext, row: ModelRow) {
  if (row.configurations === null) return null;
  const { sealed, ...plain } = row.configurations;
  if (sealed === undefined) return plain;
  const { key, custom_headers: headers } = await openModelSecrets(vault, tenant, row);
  return {
    ...plain,
    ...(headers ? { custom_headers: maskHeaders(headers, sealed) } : {}),
    ...(key === undefined ? {} : { masked_key: maskOf(sealed, 'key') }),
  };
}

/**
 * Checks and seals the settings that a body gives a model. Throws 400 for a host that may not be called, and for one that
 * would get secrets which were not given for it.
 *
 * @param path of the settings in the body
 */
export async function sealModelSettings(
  call: Pick<Call, 'vault' | 'tenant' | 'checkHost'>,
  integration: Integration,
  slug: string,
  given: ModelSettingsInput,
  before: ModelRow | undefined,
  path: string,
): Promise<Stored> {
  const { vault, tenant } = call;
  const { custom_host: host, custom_headers: wanted, key: newKey } = given;
  const problem = host === undefined ? null : call.checkHost(host);
  if (problem !== null) throw refuse(`${path}.custom_host`, problem);
  const former = before === undefined ? {} : await openModelSecrets(vault, tenant, before);
  const sealed = before?.configurations?.sealed ?? null;

  const { headers, missing } = unmaskHeaders(wanted ?? {}, { ...former }, sealed);
  if (missing.length > 0) throw refuse(`${path}.custom_headers.${missing[0]}`, REFUSED_MASK);
  const kept = Object.keys(headers)
    .filter((name) => headers[name] !== wanted?.[name])
    .map((name) => `custom_headers.${name}`);
  if (newKey === undefined && former.key !== undefined) kept.push('key');
  if (host !== before?.configurations?.custom_host && kept.length > 0) {
    throw refuse(`${path}.custom_host`, sendAgain(kept));
  }

  const key = newKey === undefined ? former.key : (newKey ?? undefined);
  if (key !== undefined && !signsByKeyAlone(integration.ai_provider_id, integration.configurations)) {
    throw refuse(`${path}.key`, 'is possible where the integration signs in by a key alone');
  }
  const foreign = host !== undefined && !ownOrigins(integration).includes(new URL(host).origin);
  // One that stays as it is was let through when it was saved.
  const stays = host === before?.configurations?.custom_host && (key === undefined) === (former.key === undefined);
  if (foreign && key === undefined && !stays) {
    throw refuse(
      `${path}.custom_host`,
      'is no host of the integration, whose key would go there: save the host on the integration, or give the model a key',
    );
  }
  const { length } = Object.keys(headers);
  return sealModel(vault, tenant, { integration_id: integration.id, slug }, host, {
    ...(key === undefined ? {} : { key }),
    ...(length > 0 ? { custom_headers: headers as Record<string, string> } : {}),
  });
}

/** An integration as far as its calls and their secrets go. */
type Account = Pick<Integration, 'ai_provider_id' | 'configurations' | 'key' | 'secret_configurations'>;

/** Whether calls carry something that only the integration's own hosts may get. */
const hasCredential = ({ ai_provider_id: id, configurations, key, secret_configurations: secrets }: Account): boolean =>
  key !== null || secrets !== null || !signsByKeyAlone(id, configurations);

const isForeign = (model: ModelRow, account: Account): boolean => {
  const host = model.configurations?.custom_host;
  return host !== undefined && !ownOrigins(account).includes(new URL(host).origin);
};

/**
 * Refuses a change of an integration whose secrets would go to the host of a model that brings no key: the host was saved for
 * other secrets, or for none. A host that gets the integration's secrets already may get the next ones. Throws 400.
 *
 * @param param what of the body is refused
 */
export async function checkModelHosts(
  { vault, tenant, tx }: Pick<Call, 'vault' | 'tenant' | 'tx'>,
  before: Integration,
  after: Account,
  param: string,
): Promise<void> {
  if (!hasCredential(after)) return;
  const models = await tx.list('integration_models', { where: { integration_id: before.id } });
  const named: string[] = [];
  for (const model of models) {
    if (!isForeign(model, after) || (isForeign(model, before) && hasCredential(before))) continue;
    if ((await openModelSecrets(vault, tenant, model)).key === undefined) named.push(model.slug);
  }
  if (named.length === 0) return;
  const others = named.length > NAMED ? ` and ${named.length - NAMED} more` : '';
  throw refuse(
    param,
    `would go to hosts of models that are no hosts of the integration (${named.slice(0, NAMED).join(', ')}${others}): give these models keys or other hosts first`,
  );
}

/** How many models a refusal names. */
const NAMED = 10;

/** Where the integration's own calls may go. */
function ownOrigins({
  ai_provider_id: id,
  configurations,
}: Pick<Account, 'ai_provider_id' | 'configurations'>): string[] {
  const hosts = Object.entries(allFields(id))
    .filter(([, { host }]) => host)
    .map(([name]) => configurations[name]);
  return [...hosts, usual(id, configurations)].flatMap((host) =>
    typeof host === 'string' ? (URL.parse(host)?.origin ?? []) : [],
  );
}

/** The provider's own address; null when the settings do not make one. */
function usual(id: string, settings: Readonly<Record<string, unknown>>): string | null {
  try {
    return providerById(id)?.baseUrl({ key: null, settings }) ?? null;
  } catch {
    return null;
  }
}
