/** What an Azure OpenAI account's settings say: its resource, and which of the two API surfaces it uses. */
import { SluiceError } from '../../kernel/errors.ts';
import { isObject } from '../../kernel/json.ts';
import type { Credentials, PlacedModel } from '../provider.ts';
import { textSetting } from '../settings.ts';
import { cloudOf } from './clouds.ts';

/** Names Azure gives out; nothing else may become part of a host name. */
export const RESOURCE_NAME = /^[a-zA-Z0-9][a-zA-Z0-9-]{0,62}$/;

const DATED = /^\d{4}-\d{2}-\d{2}(?:-preview)?$/;
export const API_VERSION = /^(?:v1|preview|latest|\d{4}-\d{2}-\d{2}(?:-preview)?)$/;

export interface Surface {
  /** True: `/openai` with `api-version=YYYY-MM-DD`. False: `/openai/v1`. */
  readonly dated: boolean;
  /** Value of `api-version`; null where none is needed. */
  readonly version: string | null;
}

/** A deployment of an account: a model under a name of the account's own. */
export interface Deployment {
  readonly name: string;
  readonly version: string | undefined;
  /** What the price list calls the model. */
  readonly slug: string | undefined;
  /** What callers ask for. */
  readonly alias: string | undefined;
  readonly isDefault: boolean;
}

const text = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined);

/** `azure_deployment_config`, in its order. */
function deploymentsOf(credentials: Credentials): readonly Deployment[] {
  const { azure_deployment_config: list } = credentials.settings;
  if (!Array.isArray(list)) return [];
  return list.filter(isObject).flatMap((one) => {
    const name = text(one.azure_deployment_name);
    if (name === undefined) return [];
    const { azure_api_version: version, azure_model_slug: slug, alias, is_default: isDefault } = one;
    return [{ name, version: text(version), slug: text(slug), alias: text(alias), isDefault: isDefault === true }];
  });
}

/**
 * The deployment that answers for a model: one that the account or the caller names outright, else the one that has the
 * model as its alias, name or slug, else the default one. Undefined: none of them.
 */
export function deploymentFor(credentials: Credentials, model: string): Deployment | undefined {
  const list = deploymentsOf(credentials);
  const named = textSetting(credentials, 'azure_deployment_id') ?? textSetting(credentials, 'azure_deployment_name');
  if (named !== undefined) {
    const known = list.find(({ name }) => name === named);
    return known ?? { name: named, version: undefined, slug: undefined, alias: undefined, isDefault: false };
  }
  return (
    list.find(({ alias }) => alias === model) ??
    list.find(({ name }) => name === model) ??
    list.find(({ slug }) => slug === model) ??
    list.find(({ isDefault }) => isDefault) ??
    (model === '' ? list[0] : undefined)
  );
}

/** The account as it stands for one model: the deployment is named and its version pinned. */
export function placeModel(credentials: Credentials, model: string): PlacedModel {
  const found = deploymentFor(credentials, model);
  const priced = textSetting(credentials, 'azure_model_name') ?? found?.slug ?? null;
  if (found === undefined) return { credentials, model, priced };
  const version = textSetting(credentials, 'azure_api_version') ?? found.version;
  const settings = { ...credentials.settings, ...(version === undefined ? null : { azure_api_version: version }) };
  return { credentials: { ...credentials, settings }, model: found.name, priced };
}

/** The version an account pins: its own setting, else the one of its default (or only, or first) deployment. */
function pinned(credentials: Credentials): string | undefined {
  const own = textSetting(credentials, 'azure_api_version') ?? textSetting(credentials, 'api_version');
  if (own !== undefined) return own;
  const list = deploymentsOf(credentials);
  return (list.find(({ isDefault }) => isDefault) ?? list[0])?.version;
}

/** The v1 surface, unless the account pins a dated version. */
export function surfaceOf(credentials: Credentials): Surface {
  const version = pinned(credentials);
  if (version === undefined || version === 'v1') return { dated: false, version: null };
  if (!API_VERSION.test(version)) {
    throw new SluiceError(
      'malformed_call',
      'azure_api_version must be v1, preview or a date such as 2025-04-01-preview; correct the account or the header x-gateway-azure-api-version.',
      { param: 'azure_api_version' },
    );
  }
  return { dated: DATED.test(version), version };
}

/** The resource's own name, for what names no owner; empty with a custom host. */
export function resourceOf(credentials: Credentials): string {
  return textSetting(credentials, 'azure_resource_name') ?? textSetting(credentials, 'resource_name') ?? '';
}

/** `https://{resource}.openai.azure.com/openai[/v1]`, in the account's cloud; null when the account names no resource. */
export function azureBase(credentials: Credentials): string | null {
  const resource = resourceOf(credentials);
  if (resource === '') return null;
  const host = `${resource.toLowerCase()}.openai.${cloudOf(credentials).suffix}`;
  const url = RESOURCE_NAME.test(resource) ? URL.parse(`https://${host}/`) : null;
  if (url === null || url.hostname !== host || url.port !== '') {
    throw new SluiceError(
      'malformed_call',
      'azure_resource_name must be the name of the resource alone: 1 to 63 letters, digits and hyphens.',
      { param: 'azure_resource_name' },
    );
  }
  return `${url.origin}/openai${surfaceOf(credentials).dated ? '' : '/v1'}`;
}
