/** Reads secrets out of their managers. Loaded with the first one that is read. */

import { Slots } from '../kernel/slots.ts';
import type { SecretContent, SecretManagers, SecretPlace } from '../resources/secret-references/manager.ts';
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

/** Reads under way of this process; one organisation has a quarter of them, or half while the others leave it. */
const MOST_AT_ONCE = 32;

export function openSecretManagers(services: SecretServices): SecretManagers {
  const slots = new Slots('reads of secrets', MOST_AT_ONCE);
  return {
    async read(given) {
      // An organisation with many references to a slow manager would else hold the sockets of all.
      const end = await slots.take(given.organisationId, undefined);
      try {
        return await read(given);
      } finally {
        end();
      }
    },
  };

  async function read(given: SecretPlace) {
    const place = given.manager === 'aws_sm' ? awsPlace(given) : given;
    const base = place.manager === 'gcp_sm' ? googleBase(place.path) : '';
    const where = [place.auth.vault_addr, place.auth.azure_vault_url, place.auth.aws_region, base];
    try {
      return await READERS[place.manager](accessOf(services, place, base));
    } catch (error) {
      throw problemOf(place, String(where.find((one) => one) ?? ''), error);
    }
  }
}
