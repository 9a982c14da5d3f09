/** What an Azure OpenAI account's settings say: its resource, and which of the two API surfaces it uses. */
import { SluiceError } from '../../kernel/errors.ts';
import { isObject } from '../../kernel/json.ts';
import type { Credentials } from '../provider.ts';
import { textSetting } from '../settings.ts';

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

/** The version an account pins: its own setting, else the one of its default (or only, or first) deployment. */
function pinned(credentials: Credentials): string | undefined {
  const own = textSetting(credentials, 'azure_api_version') ?? textSetting(credentials, 'api_version');
  if (own !== undefined) return own;
  const { azure_deployment_config: list } = credentials.settings;
  const deployments = Array.isArray(list) ? list.filter(isObject) : [];
  const chosen = deployments.find((one) => one.is_default === true) ?? deployments[0];
  const version = chosen?.azure_api_version;
  return typeof version === 'string' && version !== '' ? version : undefined;
}

/** The v1 surface, unless the account pins a dated version. */
export function surfaceOf(credentials: Credentials): Surface {
  const version = pinned(credentials);
  if (version === undefined || version === 'v1') return { dated: false, version: null };
  if (!API_VERSION.test(version)) {
    throw new SluiceError(
      'bad_call',
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

/** `https://{resource}.openai.azure.com/openai[/v1]`; null when the account names no resource. */
export function azureBase(credentials: Credentials): string | null {
  const resource = resourceOf(credentials);
  if (resource === '') return null;
  const host = `${resource.toLowerCase()}.openai.azure.com`;
  const url = RESOURCE_NAME.test(resource) ? URL.parse(`https://${host}/`) : null;
  if (url === null || url.hostname !== host || url.port !== '') {
    throw new SluiceError(
      'bad_call',
      'azure_resource_name must be the name of the resource alone: 1 to 63 letters, digits and hyphens.',
      { param: 'azure_resource_name' },
    );
  }
  return `${url.origin}/openai${surfaceOf(credentials).dated ? '' : '/v1'}`;
}
