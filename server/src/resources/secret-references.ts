/** Secret references, by which accounts name secrets that are kept elsewhere. None can be made yet. */
import type { TenantTx } from '../store/ports.ts';

/** Names (slugs or ids) of `names` that a workspace cannot use; null: the organisation. */
export async function missingSecretReferences(
  _tx: TenantTx,
  _workspaceId: string | null,
  names: readonly string[],
): Promise<readonly string[]> {
  return names;
}
