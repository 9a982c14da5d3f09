/** The end of keys that go with something else: a membership, a user, a workspace. */
import type { Clock } from '../../kernel/clock.ts';
import type { TenantTx, Where } from '../../store/ports.ts';

/** Far below the bind limits of both engines. */
const CHUNK = 1000;

/**
 * Revokes every key that `where` names, in a few statements for any number of keys. The caller ranks above its owner, so
 * their bounds end, too.
 */
export async function archiveKeys(tx: TenantTx, clock: Clock, where: Where<'api_keys'>): Promise<void> {
  const keys = await tx.list('api_keys', { where: { ...where, status: { not: 'archived' } } });
  const byVersion = Map.groupBy(keys, (key) => key.version);
  for (const [version, same] of byVersion) {
    const patch = {
      status: 'archived' as const,
      rotation_due_at: null,
      bounded_by: null,
      version: version + 1,
      last_updated_at: clock.now(),
    };
    for (let at = 0; at < same.length; at += CHUNK) {
      await tx.update('api_keys', { id: { in: same.slice(at, at + CHUNK).map((key) => key.id) } }, patch);
    }
  }
  for (const key of keys) tx.changed({ workspaceId: key.workspace_id, topic: 'api_keys', entityId: key.id });
}
