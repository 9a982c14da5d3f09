/** Reads secrets out of their managers. Loaded with the first one that is read. */

import type { SecretContent, SecretManagers } from '../resources/secret-references/manager.ts';
import type { SecretManagerType } from '../store/schema.ts';
import { type Access, accessOf, type SecretServices } from './access.ts';
import { awsPlace, readAws } from './aws.ts';
import { readAzure } from './azure.ts';
import { googleBase, readGoogle } from './google.ts';
import { readSecretFile, readVariable } from './local.ts';
import { problemOf } from './problem.ts';
import { readVault } from './vault.ts';

const READERS: Readonly<Record<SecretManagerType, (access: Access) => Promise<SecretContent>>> = {
  aws_sm: readAws,
  azure_kv: readAzure,
  hashicorp_vault: readVault,
  gcp_sm: readGoogle,
  env: readVariable,
  file: readSecretFile,
};

export function openSecretManagers(services: SecretServices): SecretManagers {
  return {
    async read(given) {
      const place = given.manager === 'aws_sm' ? awsPlace(given) : given;
      const base = place.manager === 'gcp_sm' ? googleBase(place.path) : '';
      const where = [place.auth.vault_addr, place.auth.azure_vault_url, place.auth.aws_region, base];
      try {
        return await READERS[place.manager](accessOf(services, place, base));
      } catch (error) {
        throw problemOf(place, String(where.find((one) => one) ?? ''), error);
      }
    },
  };
}
