/** Invites end with the right of who sent them, and with the user they were for. */
import type { Where } from '../../../store/ports.ts';
import type { Call } from '../../resource.ts';

type Writes = Pick<Call, 'tx' | 'clock'>;

/**
 * A sender who may no longer invite leaves no open invites behind.
 *
 * @param inviterId user or API key
 */
export const cancelInvites = (call: Writes, inviterId: string): Promise<void> =>
  cancel(call, { invited_by: inviterId });

/** Ends the open invite to an address, so that its link does not bring a user back who is removed. */
export const cancelInvitesTo = (call: Writes, email: string): Promise<void> => cancel(call, { email });

async function cancel({ tx, clock }: Writes, which: Where<'invites'>): Promise<void> {
  const open = { ...which, status: 'pending' as const };
  const rows = await tx.list('invites', { where: open });
  if (rows.length === 0) return;
  await tx.update('invites', open, { status: 'cancelled', last_updated_at: clock.now() });
  for (const { id } of rows) tx.changed({ workspaceId: null, topic: 'invites', entityId: id });
}
