/**
 * The camel-case settings of virtual keys and the names they have on integrations (`configurations.ts`), in
 * which they are stored: the data plane knows one spelling only.
 */
import { z } from 'zod';
import { text } from '../shapes.ts';

/** Camel-case name on a virtual key, then the name of the same setting on an integration. */
const NAMES: readonly (readonly [string, string])[] = [
  ['apiVersion', 'azure_api_version'],
  ['resourceName', 'azure_resource_name'],
  ['deploymentName', 'azure_deployment_name'],
  ['deploymentConfig', 'azure_deployment_config'],
  ['awsAuthType', 'aws_auth_type'],
  ['awsAccessKeyId', 'aws_access_key_id'],
  ['awsSecretAccessKey', 'aws_secret_access_key'],
  ['awsRegion', 'aws_region'],
  ['awsRoleArn', 'aws_role_arn'],
  ['awsExternalId', 'aws_external_id'],
  ['vertexProjectId', 'vertex_project_id'],
  ['vertexRegion', 'vertex_region'],
  ['vertexAuthType', 'vertex_auth_type'],
  ['vertexServiceAccountJson', 'vertex_service_account_json'],
  ['vertexSkipPtuCostAttribution', 'vertex_skip_ptu_cost_attribution'],
  ['azureAuthMode', 'azure_auth_mode'],
  ['azureEntraTenantId', 'azure_entra_tenant_id'],
  ['azureEntraClientId', 'azure_entra_client_id'],
  ['azureEntraClientSecret', 'azure_entra_client_secret'],
  ['azureManagedClientId', 'azure_managed_client_id'],
  ['azureFoundryUrl', 'azure_foundry_url'],
  ['workersAiAccountId', 'workers_ai_account_id'],
  ['openaiOrganization', 'openai_organization'],
  ['openaiProject', 'openai_project'],
  ['huggingfaceBaseUrl', 'huggingface_base_url'],
  ['custom_host', 'custom_host'],
  ['custom_headers', 'custom_headers'],
];

const TO_STORED = new Map(NAMES);
const TO_SHOWN = new Map(NAMES.map(([shown, stored]) => [stored, shown]));

const deployment = z.strictObject({
  apiVersion: text(30, 1),
  deploymentName: text(255, 1),
  alias: text(255, 1).optional(),
  is_default: z.boolean().optional(),
});

export const deploymentConfig = z.array(deployment).min(1).max(200);

/** The settings as fields of a body. Their content is checked with the provider's own rules. */
export const settingFields: Record<string, z.ZodType> = Object.fromEntries(
  NAMES.map(([shown]) => [shown, (shown === 'deploymentConfig' ? deploymentConfig : z.unknown()).optional()]),
);

/** Fields of a virtual key that a secret mapping may fill: `model_config.<name>`. */
export const settingNames: ReadonlySet<string> = new Set(NAMES.map(([shown]) => shown));

export const storedName = (shown: string): string => TO_STORED.get(shown) ?? shown;
export const shownName = (stored: string): string => TO_SHOWN.get(stored) ?? stored;

/** What a body says, in stored names. Older callers name no way of signing in: it follows from what they give. */
export function toStored(provider: string, body: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const [shown, stored] of NAMES) {
    const value = body[shown];
    if (value !== undefined) out[stored] = shown === 'deploymentConfig' ? toDeployments(value) : value;
  }
  const has = (name: string) => out[name] !== undefined;
  if (provider === 'azure-openai') {
    // One deployment given by its two fields is a list of one.
    if (!has('azure_deployment_config') && has('azure_deployment_name')) {
      out.azure_deployment_config = toDeployments([
        { apiVersion: out.azure_api_version, deploymentName: out.azure_deployment_name, is_default: true },
      ]);
    }
    delete out.azure_api_version;
    delete out.azure_deployment_name;
  }
  if (provider === 'azure-openai' || provider === 'azure-ai') {
    if (!has('azure_auth_mode')) {
      out.azure_auth_mode = has('azure_entra_client_secret')
        ? 'entra'
        : has('azure_managed_client_id')
          ? 'managed'
          : 'default';
    }
  }
  if ((provider === 'bedrock' || provider === 'sagemaker') && !has('aws_auth_type')) {
    out.aws_auth_type = has('aws_role_arn') ? 'assumedRole' : body.key === undefined ? 'accessKey' : 'apiKey';
    if (has('aws_access_key_id') || has('aws_secret_access_key')) out.aws_auth_type = 'accessKey';
  }
  if (provider === 'vertex-ai' && !has('vertex_auth_type')) {
    out.vertex_auth_type = has('vertex_service_account_json') ? 'serviceAccount' : 'basic';
  }
  return out;
}

/** A virtual key names the model a deployment serves by its alias, else by the deployment itself. */
export function toDeployments(value: unknown): unknown {
  const parsed = deploymentConfig.safeParse(value);
  if (!parsed.success) return value;
  return parsed.data.map(({ apiVersion, deploymentName, alias, is_default }) => ({
    azure_api_version: apiVersion,
    azure_deployment_name: deploymentName,
    azure_model_slug: alias ?? deploymentName,
    ...(alias === undefined ? {} : { alias }),
    ...(is_default === undefined ? {} : { is_default }),
  }));
}

/** Stored settings under the names of a virtual key. */
export function toShown(stored: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(stored)) {
    out[shownName(name)] =
      name === 'azure_deployment_config' && Array.isArray(value) ? value.map(showDeployment) : value;
  }
  return out;
}

function showDeployment(value: unknown) {
  const { azure_api_version, azure_deployment_name, alias, is_default } = value as Record<string, unknown>;
  return {
    apiVersion: azure_api_version,
    deploymentName: azure_deployment_name,
    ...(alias === undefined ? {} : { alias }),
    ...(is_default === undefined ? {} : { is_default }),
  };
}

/** A path of stored names (`azure_deployment_config[0].azure_api_version`) as the caller wrote it. */
export function shownPath(path: string): string {
  const [, head = '', rest = ''] = /^([A-Za-z0-9_]*)(.*)$/s.exec(path) ?? [];
  const inner = rest
    .replace('.azure_api_version', '.apiVersion')
    .replace(/\.azure_(?:deployment_name|model_slug)/, '.deploymentName');
  return shownName(head) + inner;
}
