/** What users and groups have in common: their schemas, times and versions. */
import { ScimError } from './errors.ts';

export const USER_SCHEMA = 'urn:ietf:params:scim:schemas:core:2.0:User';
export const GROUP_SCHEMA = 'urn:ietf:params:scim:schemas:core:2.0:Group';

/** @param created, changed milliseconds since the epoch */
export const times = (created: number, changed: number) => ({
  created: new Date(created).toISOString(),
  lastModified: new Date(changed).toISOString(),
});

/** Whether a list of ETags, as If-Match and If-None-Match have it, names a version. */
export function namesVersion(list: string, version: string): boolean {
  const plain = version.replace(/^W\//, '');
  return list.split(',').some((one) => one.trim() === '*' || one.trim().replace(/^W\//, '') === plain);
}

/** Throws `changedSince` where the client knows another version. */
export function checkVersion(ifMatch: string | null, version: string): void {
  if (ifMatch === null || namesVersion(ifMatch, version)) return;
  throw new ScimError('changedSince', 'The resource has changed since the version that If-Match names. Read it again.');
}
