/** `user-email <now> <new> [flags]`: changes the address of a user, on the server's own shell. */
import { systemTenant } from '../auth/tenant.ts';
import { loadConfig } from '../config.ts';
import { systemClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { changeAddress } from '../resources/admin/users/address.ts';
import { appendAudit, systemEntry } from '../resources/audit-logs/chain.ts';
import { userEmail } from '../resources/fields.ts';
import type { Output } from './output.ts';
import { openStoredTables, storedKeyring } from './stored-tables.ts';
import { wordsOf } from './words.ts';

/** Throws a SluiceError when no user, or users of several organisations, have the address, or the new one is taken. */
export async function userEmailCommand(args: readonly string[], output: Output): Promise<void> {
  const { plain, settings } = wordsOf(args, []);
  const [now = '', next = '', ...more] = plain;
  const [before, after] = [userEmail.safeParse(now), userEmail.safeParse(next)];
  if (!before.success || !after.success || more.length > 0) {
    throw new SluiceError('validation', 'Give two e-mail addresses: user-email now@example.com new@example.com');
  }
  const config = loadConfig(settings);
  const tables = await openStoredTables(config);
  try {
    await tables.migrate();
    const macs = await storedKeyring(config);
    const where = { email: before.data, status: 'active' } as const;
    const [found, second] = await tables.systemRead((tx) =>
      tx.list('users', { where, orderBy: [['created_at', 'asc']], limit: 2 }),
    );
    const missing = () => new SluiceError('not_found', `No user has the address ${before.data}.`);
    if (found === undefined) throw missing();
    if (second !== undefined) {
      throw new SluiceError('conflict', `Several organisations have a user with the address ${before.data}.`);
    }
    const { organisation_id: organisationId } = found;
    const name = await tables.write(
      systemTenant(organisationId),
      async (tx) => {
        // Read again: the address may have changed since it was looked for.
        const user = await tx.find('users', { id: found.id, ...where });
        if (user === undefined) throw missing();
        await changeAddress(tx, systemClock, user, after.data, null);
        const deed = { organisationId, workspaceId: null, action: 'update', resource: 'users', resourceId: user.id };
        const change = { before: { email: before.data }, after: { email: after.data } };
        await appendAudit(tx, macs, systemEntry(systemClock, { ...deed, ...change, action: 'update' }));
        return `${user.first_name} ${user.last_name}`;
      },
      { queue: organisationId },
    );
    output.out(`The address of ${name} is ${after.data} now. Sign-ins and sign-in links from before have ended.\n`);
  } finally {
    await tables.close();
  }
}
