/** The end of keys that go with something else: a membership, a user, a workspace. */
import type { Clock } from '../../kernel/clock.ts';
import type { TenantTx, Where } from '../../store/ports.ts';

/** Revokes every key that `where` names; the caller ranks above its owner, so their bounds end, too. */
export async function archiveKeys(tx: TenantTx, clock: Clock, where: Where<'api_keys'>): Promise<void> {
  const keys = await tx.list('api_keys', { where: { ...where, status: { not: 'archived' } } });
  for (const key of keys) {
    const patch = {
      status: 'archived' as const,
      rotation_due_at: null,
      bounded_by: null,
      version: key.version + 1,
      last_updated_at: clock.now(),
    };
    await tx.update('api_keys', { id: key.id }, patch);
    tx.changed({ workspaceId: key.workspace_id, topic: 'api_keys', entityId: key.id });
  }
}
