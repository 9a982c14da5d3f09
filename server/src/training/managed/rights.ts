import { rightsOfKey } from '../../auth/key-principal.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { TrainingServices } from '../services.ts';

/**
 * Refuses to begin anything at a provider for a key that may not call any more: revoked, expired, without the scope, or
 * of a suspended organisation. What runs there already is watched to its end, which costs nobody anything.
 */
export async function mayStillBegin(
  services: Pick<TrainingServices, 'tables' | 'clock'>,
  row: { readonly organisation_id: string; readonly workspace_id: string; readonly created_by: string | null },
): Promise<void> {
  const { organisation_id: organisationId, workspace_id: workspaceId, created_by: keyId } = row;
  if (keyId === null) return;
  const { principal, refusal } = await rightsOfKey(services.tables, services.clock, {
    organisationId,
    workspaceId,
    keyId,
  });
  const reason =
    refusal?.message ??
    (principal.scopes.has('completions.write') ? null : 'The API key has lost the scope completions.write.');
  if (reason === null) return;
  throw new SluiceError('forbidden', `The API key that asked for it may not call any more: ${reason}`, {
    code: 'invalid_api_key',
  });
}
