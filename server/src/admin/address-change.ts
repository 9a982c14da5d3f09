/** A user who opens the link that was mailed to a new address. */
import type { FastifyRequest } from 'fastify';
import type { ConsoleSession } from '../auth/console-session.ts';
import { systemTenant } from '../auth/tenant.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Mails } from '../resources/admin/mails.ts';
import { changeAddress, checkUnchanged, readConfirmation } from '../resources/admin/users/address.ts';
import { appendAudit } from '../resources/audit-logs/chain.ts';
import type { Tables } from '../store/ports.ts';
import type { Macs } from '../store/vault.ts';
import { consoleEntry } from './audit.ts';

export interface AddressChangeDeps {
  readonly tables: Pick<Tables, 'write'>;
  readonly vault: Macs;
  readonly clock: Clock;
  readonly mails: Pick<Mails, 'post'> | null;
}

/**
 * Changes the address and answers the new one. The session must be the user's: a link that went to a mistyped address
 * gives its reader nothing. Other sign-ins of the user end; the old address gets a notice. Throws 400, 403 and 409.
 */
export async function confirmAddress(
  deps: AddressChangeDeps,
  session: ConsoleSession,
  token: string,
  request: FastifyRequest,
): Promise<string> {
  const { tables, vault, clock, mails } = deps;
  const said = readConfirmation(vault, token, clock.now());
  const { organisationId, userId } = session.principal;
  if (said.user_id !== userId || said.organisation_id !== organisationId) {
    throw new SluiceError('forbidden', 'This link is for another user. Sign in as that user, then open it again.');
  }
  const before = await tables.write(
    systemTenant(organisationId),
    async (tx) => {
      const user = await tx.find('users', { id: userId, status: 'active' });
      checkUnchanged(user, said);
      await changeAddress(tx, clock, user, said.email, session.digest);
      const change = { before: { email: user.email }, after: { email: said.email } };
      const deed = { request, organisationId, userId, action: 'update', resource: 'users' } as const;
      await appendAudit(tx, vault, consoleEntry({ clock, vault }, { ...deed, resourceId: userId, change }));
      return user.email;
    },
    { queue: organisationId },
  );
  // The placeholder of the first run is no mailbox.
  if (!before.endsWith('.invalid')) {
    const text = `The address of your Sluice user is ${said.email} now. Sign-in links no longer come here.\n\nIf that was not you, tell an administrator at once.\n`;
    mails?.post({ to: before, subject: 'Your address for Sluice has changed', text });
  }
  return said.email;
}
