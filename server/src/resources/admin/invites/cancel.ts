/** Invites end with the right of whoever sent them. */
import type { Call } from '../../resource.ts';

/**
 * Whoever may no longer invite leaves no open invites behind.
 *
 * @param inviterId user or API key
 */
export async function cancelInvites({ tx, clock }: Pick<Call, 'tx' | 'clock'>, inviterId: string): Promise<void> {
  const open = await tx.list('invites', { where: { invited_by: inviterId, status: 'pending' } });
  for (const { id } of open) {
    await tx.update('invites', { id }, { status: 'cancelled', last_updated_at: clock.now() });
    tx.changed({ workspaceId: null, topic: 'invites', entityId: id });
  }
}
