/** Secrets of the server itself: variables of its environment, and files of a directory. */
import { Secret } from '../kernel/secret.ts';
import type { SecretContent } from '../resources/secret-references/manager.ts';
import type { Access } from './access.ts';
import { ManagerError } from './problem.ts';

export async function readVariable({ place, server }: Access): Promise<SecretContent> {
  const value = server.variable(place.organisationId, place.path);
  if (value !== null && value !== '') return { text: new Secret(value) };
  // One answer for both: whether a variable is set is no business of who may not read it.
  throw new ManagerError(
    `has no environment variable ${place.path} that your organisation may read`,
    'Ask the operator to set it, and to list it for your organisation in SLUICE_SECRETS_ENV.',
  );
}

export async function readSecretFile({ place, server }: Access): Promise<SecretContent> {
  const text = await server.file(place.organisationId, place.path);
  if (text !== null) return { text: new Secret(text) };
  throw new ManagerError(
    `has no secret file ${place.path} that your organisation may read`,
    'Ask the operator to put it below the directory of your organisation in SLUICE_SECRETS_DIR.',
  );
}
