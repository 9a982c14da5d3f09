/** Azure Key Vault. */
import { isObject } from '../kernel/json.ts';
import { Secret } from '../kernel/secret.ts';
import type { CloudHosts } from '../providers/ambient.ts';
import { entraToken, federatedToken, managedToken, type TokenPurpose } from '../providers/azure-openai/credentials.ts';
import type { SecretContent } from '../resources/secret-references/manager.ts';
import type { Access } from './access.ts';
import { codeIn, failed, ManagerError, objectIn } from './problem.ts';

const ADVICE = {
  missing: 'There is no such secret or version, or it was deleted: check secret_path.',
  denied:
    'Check that the identity has the role Key Vault Secrets User on the vault, that its firewall lets this server in, and that the secret is enabled.',
};

const VAULTS: CloudHosts = {
  hosts: /^[a-z0-9-]+\.vault\.(?:azure\.net|azure\.cn|usgovcloudapi\.net)$/,
  title: 'Azure Key Vault',
  param: 'azure_auth_mode',
  instead: 'use azure_auth_mode entra',
};

/** By the end of a vault's host: its cloud, and what its tokens are for. */
const CLOUDS: readonly (readonly [suffix: string, cloud: string, resource: string])[] = [
  ['.vault.azure.cn', 'china', 'https://vault.azure.cn'],
  ['.vault.usgovcloudapi.net', 'government', 'https://vault.usgovcloudapi.net'],
  ['.vault.azure.net', 'public', 'https://vault.azure.net'],
];

export async function readAzure(access: Access): Promise<SecretContent> {
  const { origin, hostname } = new URL(access.field('azure_vault_url') ?? '');
  const [, cloud, resource] = CLOUDS.find(([suffix]) => hostname.endsWith(suffix)) ?? [];
  if (cloud === undefined || resource === undefined) {
    throw new ManagerError('is not at azure_vault_url', 'Set the address of a key vault.');
  }
  const context: Access = {
    ...access,
    credentials: { key: null, settings: { ...access.credentials.settings, azure_cloud: cloud } },
  };
  const token = await tokenOf(context, { resource, hosts: VAULTS, to: origin });
  const url = new URL(`/secrets/${access.place.path}`, origin);
  url.searchParams.set('api-version', '7.4');
  const answer = await access.call({
    method: 'GET',
    url,
    headers: ['accept', 'application/json', 'authorization', `Bearer ${token}`],
    body: null,
  });
  const body = await objectIn(answer);
  if (answer.status !== 200) {
    const inner = isObject(body.error) ? body.error : {};
    throw failed(answer, codeIn(inner.code), ADVICE, access.now());
  }
  if (typeof body.value !== 'string') throw new ManagerError('gave an answer without a secret', ADVICE.missing);
  return { text: new Secret(body.value) };
}

function tokenOf(access: Access, purpose: TokenPurpose): Promise<string> {
  const mode = access.field('azure_auth_mode');
  if (mode === 'entra') {
    return entraToken(access, access.field('azure_entra_client_secret') ?? '', `${purpose.resource}/.default`);
  }
  const { ambient } = access;
  if (ambient === undefined) {
    throw new ManagerError(
      'would be signed in to with the identity of this server, which your organisation may not borrow',
      'Use azure_auth_mode entra, or let the operator add your organisation to SLUICE_SECRETS_IDENTITY.',
    );
  }
  const tenant = ambient.variable('AZURE_TENANT_ID');
  const client = ambient.variable('AZURE_CLIENT_ID');
  // The order of Microsoft's own libraries: the identity of the workload, then that of the machine.
  if (mode === 'default' && ambient.variable('AZURE_FEDERATED_TOKEN_FILE') && tenant && client) {
    const settings = { ...access.credentials.settings, tenant, client };
    const own = { ...access, credentials: { key: null, settings } };
    return federatedToken(own, { tenant: 'tenant', client: 'client' }, purpose);
  }
  return managedToken(access, purpose);
}
