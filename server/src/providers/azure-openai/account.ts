/** Settings of Azure accounts: those of every one, and those of Azure OpenAI with its deployments. */
import { z } from 'zod';
import { isObject } from '../../kernel/json.ts';
import { text } from '../../kernel/text-schema.ts';
import { type Account, type AccountField, type AccountFields, account } from '../account.ts';
import { AZURE_CLOUDS } from './clouds.ts';
import { API_VERSION, RESOURCE_NAME } from './settings.ts';

const short = text(255, 1);

const entraTenant: AccountField = {
  required: true,
  address: true,
  virtualKey: 'azureEntraTenantId',
  request: { own: true },
};
const entraClient: AccountField = { required: true, virtualKey: 'azureEntraClientId', request: { own: true } };

const AZURE_SIGN_IN: AccountField = {
  required: true,
  virtualKey: 'azureAuthMode',
  config: {},
  request: { own: true },
  choices: {
    default: { needsKey: true, fields: {} },
    entra: {
      needsKey: false,
      fields: {
        azure_entra_tenant_id: entraTenant,
        azure_entra_client_id: entraClient,
        azure_entra_client_secret: {
          required: true,
          secret: true,
          virtualKey: 'azureEntraClientSecret',
          request: { own: true },
        },
      },
    },
    managed: {
      needsKey: false,
      fields: { azure_managed_client_id: { virtualKey: 'azureManagedClientId', request: { own: true } } },
    },
    workload: {
      needsKey: false,
      fields: {
        azure_workload_client_id: { required: true, request: { own: true } },
        azure_workload_tenant_id: { required: true, address: true },
      },
    },
    entraFederated: {
      needsKey: false,
      fields: { azure_entra_tenant_id: entraTenant, azure_entra_client_id: entraClient },
    },
  },
};

/** How every account of Azure signs in, and to which cloud. */
export const AZURE_FIELDS: AccountFields = {
  azure_auth_mode: AZURE_SIGN_IN,
  azure_entra_scope: {
    schema: z.string().min(1).max(2048),
    address: true,
    config: { schema: text(2048, 1) },
    request: { own: true },
  },
  // Where the account lies: beside a stored one it would send its credential to another host.
  azure_cloud: { schema: z.enum(AZURE_CLOUDS), address: true, request: { own: true } },
  azure_ad_token: { stored: false, secret: true, request: { own: true } },
  /** What the price list calls the model of a deployment. */
  azure_model_name: { stored: false, config: {}, request: {} },
};

/** The way of signing in follows from what is given. */
export const fromAzureVirtualKey: NonNullable<Account['fromVirtualKey']> = (settings) => {
  if (settings.azure_auth_mode !== undefined) return;
  if (settings.azure_entra_client_secret !== undefined) settings.azure_auth_mode = 'entra';
  else settings.azure_auth_mode = settings.azure_managed_client_id === undefined ? 'default' : 'managed';
};

/** A deployment as integrations store it. */
const deployment = z.strictObject({
  azure_api_version: text(30, 1),
  azure_deployment_name: short,
  azure_model_slug: short,
  alias: short.optional(),
  is_default: z.boolean().optional(),
});

const keyDeployments = z
  .array(
    z.strictObject({
      apiVersion: text(30, 1),
      deploymentName: short,
      alias: short.optional(),
      is_default: z.boolean().optional(),
    }),
  )
  .min(1)
  .max(200);

const configDeployments = z
  .array(
    z.strictObject({
      deployment_id: short,
      alias: short,
      api_version: text(30, 1),
      is_default: z.boolean().optional(),
    }),
  )
  .min(1)
  .max(100);

/** A virtual key names the model a deployment serves by its alias, else by the deployment itself. */
function fromKeyDeployments(value: unknown): unknown {
  const parsed = keyDeployments.safeParse(value);
  if (!parsed.success) return value;
  return parsed.data.map(({ apiVersion, deploymentName, alias, is_default }) => ({
    azure_api_version: apiVersion,
    azure_deployment_name: deploymentName,
    azure_model_slug: alias ?? deploymentName,
    ...(alias === undefined ? {} : { alias }),
    ...(is_default === undefined ? {} : { is_default }),
  }));
}

function toKeyDeployment(value: unknown) {
  const { azure_api_version, azure_deployment_name, alias, is_default } = value as Record<string, unknown>;
  return {
    apiVersion: azure_api_version,
    deploymentName: azure_deployment_name,
    ...(alias === undefined ? {} : { alias }),
    ...(is_default === undefined ? {} : { is_default }),
  };
}

function fromConfigDeployments(value: unknown): unknown {
  if (!Array.isArray(value)) return undefined;
  return value.filter(isObject).map(({ deployment_id, alias, api_version, is_default }) => ({
    azure_deployment_name: deployment_id,
    alias,
    azure_api_version: api_version,
    is_default,
  }));
}

export const azureOpenAiAccount: Account = account(
  {
    azure_resource_name: {
      // It becomes part of a host name, and must not be able to become another one.
      schema: z.string().regex(RESOURCE_NAME, { error: 'must be 1 to 63 letters, digits and hyphens' }),
      required: true,
      address: true,
      virtualKey: 'resourceName',
      config: { name: 'resource_name' },
      request: { redirects: true },
    },
    azure_deployment_id: { stored: false, config: { name: 'deployment_id' }, request: {} },
    azure_api_version: {
      schema: z.string().regex(API_VERSION, { error: 'must be v1, preview or a date such as 2025-04-01-preview' }),
      virtualKey: 'apiVersion',
      config: { name: 'api_version', schema: text(30, 1) },
      request: {},
    },
    azure_deployment_config: {
      schema: z.array(deployment).min(1).max(200),
      required: true,
      virtualKey: {
        name: 'deploymentConfig',
        schema: keyDeployments,
        toStored: fromKeyDeployments,
        toShown: (value) => (Array.isArray(value) ? value.map(toKeyDeployment) : value),
        shownPath: (rest) =>
          rest
            .replace('.azure_api_version', '.apiVersion')
            .replace(/\.azure_(?:deployment_name|model_slug)/, '.deploymentName'),
        updates: true,
      },
      config: {
        name: 'deployments',
        schema: configDeployments,
        toSetting: fromConfigDeployments,
        besideStored: true,
      },
    },
    ...AZURE_FIELDS,
  },
  (settings, hasKey) => {
    // One deployment given by its two fields is a list of one.
    if (settings.azure_deployment_config === undefined && settings.azure_deployment_name !== undefined) {
      settings.azure_deployment_config = fromKeyDeployments([
        { apiVersion: settings.azure_api_version, deploymentName: settings.azure_deployment_name, is_default: true },
      ]);
    }
    delete settings.azure_api_version;
    delete settings.azure_deployment_name;
    fromAzureVirtualKey(settings, hasKey);
  },
);
