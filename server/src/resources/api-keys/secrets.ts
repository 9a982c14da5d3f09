/** The secrets of a key: the current one, and during a transition the one before it. */
import { type KeyType, mintKey } from '../../auth/key-format.ts';
import type { Query } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';

export type KeyRow = Row<'api_keys'>;
export type SecretRow = Row<'api_key_secrets'>;

/**
 * Digest of a secret that an automatic rotation has made room for and that nobody has been given yet. No text has this
 * digest, so nothing opens it; its collector gets a secret that is made at that moment. So none is ever kept.
 */
export const UNCOLLECTED = '';

const MARKS: Record<KeyRow['type'], KeyType> = {
  'organisation-service': 'org',
  'workspace-service': 'wks',
  'workspace-user': 'usr',
};

/** At most two: `current` has no end, `previous` ends with its transition and is absent outside of one. */
export interface KeySecrets {
  readonly current: SecretRow | undefined;
  readonly previous: SecretRow | undefined;
}

const NONE: KeySecrets = { current: undefined, previous: undefined };

/** What still opens each of these keys at `now`. Of a tenant's transaction or of the system's. */
export async function secretsOf(
  tx: { list(table: 'api_key_secrets', query: Query<'api_key_secrets'>): Promise<SecretRow[]> },
  keyIds: readonly string[],
  now: number,
): Promise<(keyId: string) => KeySecrets> {
  if (keyIds.length === 0) return () => NONE;
  const rows = await tx.list('api_key_secrets', {
    where: { api_key_id: { in: [...keyIds] } },
    orderBy: [['created_at', 'asc']],
  });
  const found = new Map<string, KeySecrets>();
  for (const row of rows) {
    if (row.expires_at !== null && row.expires_at <= now) continue;
    const other = found.get(row.api_key_id) ?? NONE;
    found.set(row.api_key_id, row.expires_at === null ? { ...other, current: row } : { ...other, previous: row });
  }
  return (keyId) => found.get(keyId) ?? NONE;
}

/** A fresh secret of a key, not stored yet; `key` is the whole key and is shown once. */
export function mintSecret(key: KeyRow, now: number): { readonly row: SecretRow; readonly key: string } {
  const minted = mintKey(MARKS[key.type]);
  return { row: secretRow(key, minted.publicId, minted.digest, now), key: minted.key };
}

/** The place of a secret that waits to be collected. */
export function uncollectedSecret(key: KeyRow, now: number): SecretRow {
  return secretRow(key, mintKey(MARKS[key.type]).publicId, UNCOLLECTED, now);
}

function secretRow(key: KeyRow, id: string, digest: string, now: number): SecretRow {
  const { organisation_id } = key;
  return { id, organisation_id, api_key_id: key.id, digest, expires_at: null, created_at: now };
}
