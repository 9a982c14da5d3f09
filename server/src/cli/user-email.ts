/** `user-email <now> <new> [flags]`: changes the address of a user, on the server's own shell. */
import { systemTenant } from '../auth/tenant.ts';
import { loadConfig } from '../config.ts';
import { systemClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Output } from '../main.ts';
import { userEmail } from '../resources/fields.ts';
import { openStoredTables } from './stored-tables.ts';

/** Throws a SluiceError when no user, or users of several organisations, have the address, or the new one is taken. */
export async function userEmailCommand(args: readonly string[], output: Output): Promise<void> {
  const [now = '', next = '', ...flags] = args;
  const [before, after] = [userEmail.safeParse(now), userEmail.safeParse(next)];
  if (!before.success || !after.success) {
    throw new SluiceError('validation', 'Give two e-mail addresses: user-email now@example.com new@example.com');
  }
  const tables = await openStoredTables(loadConfig(flags));
  try {
    await tables.migrate();
    const where = { email: before.data, status: 'active' } as const;
    const [user, second] = await tables.systemRead((tx) =>
      tx.list('users', { where, orderBy: [['created_at', 'asc']], limit: 2 }),
    );
    if (user === undefined) throw new SluiceError('not_found', `No user has the address ${before.data}.`);
    if (second !== undefined) {
      throw new SluiceError('conflict', `Several organisations have a user with the address ${before.data}.`);
    }
    await tables.write(systemTenant(user.organisation_id), async (tx) => {
      if (await tx.find('users', { email: after.data, status: 'active' })) {
        throw new SluiceError('conflict', `A user of this organisation has the address ${after.data} already.`);
      }
      await tx.update('users', { id: user.id }, { email: after.data, last_updated_at: systemClock.now() });
      tx.changed({ workspaceId: null, topic: 'users', entityId: user.id });
    });
    output.out(`The address of ${user.first_name} ${user.last_name} is ${after.data} now.\n`);
  } finally {
    await tables.close();
  }
}
