import { isConsoleBuilt } from '../admin/console-dist.ts';
import { createLink, linkUrl } from '../auth/console-session.ts';
import { loadConfig } from '../config.ts';
import { systemClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { SystemTx } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Output } from './output.ts';
import { readAddress } from './server-address.ts';
import { openStoredTables } from './stored-tables.ts';
import { wordsOf } from './words.ts';

/**
 * `console-link [e-mail] [flags]`: makes a one-time sign-in link for the user with this address, else for the first
 * owner; works beside a running server. An address that several organisations know gets a link for each.
 */
export async function consoleLink(args: readonly string[], output: Output): Promise<void> {
  const { plain, settings } = wordsOf(args, []);
  const [address = null, ...more] = plain;
  if (more.length > 0) throw new SluiceError('validation', 'usage: npm run sluice -- console-link [E-MAIL] [settings]');
  const config = loadConfig(settings);
  const tables = await openStoredTables(config);
  try {
    await tables.migrate();
    const users = await tables.systemRead((tx) => findUsers(tx, address));
    const url = config.publicUrl ?? readAddress(config.dataDir) ?? `http://${config.host}:${config.port}`;
    for (const { user, organisation } of users) {
      const { token } = await createLink(tables, systemClock, user);
      if (users.length > 1) output.out(`${organisation}:\n`);
      output.out(`${linkUrl(url, token)}\n`);
    }
    output.out(`${users.length > 1 ? 'Each link works' : 'The link works'} once, for 15 minutes.\n`);
    if (!isConsoleBuilt())
      output.err(
        'warning: The console is not built, so no link can be opened yet; npm ci && npm run console builds it.\n',
      );
  } finally {
    await tables.close();
  }
}

/** Active users and the names of their organisations; at least one. */
async function findUsers(
  tx: SystemTx,
  address: string | null,
): Promise<{ readonly user: Row<'users'>; readonly organisation: string }[]> {
  const users = await tx.list('users', {
    where: address === null ? { role: 'owner', status: 'active' } : { email: address.toLowerCase(), status: 'active' },
    orderBy: [['created_at', 'asc']],
    ...(address === null ? { limit: 1 } : {}),
  });
  if (users.length === 0) {
    throw new SluiceError(
      'not_found',
      address === null
        ? 'There is no user yet; start Sluice once first.'
        : `No user has the address ${address}. An invited person accepts the invite first.`,
    );
  }
  const ids = [...new Set(users.map((user) => user.organisation_id))];
  const organisations = await tx.list('organisations', { where: { id: { in: ids } } });
  const names = new Map(organisations.map((organisation) => [organisation.id, organisation.name]));
  return users.map((user) => ({ user, organisation: names.get(user.organisation_id) ?? user.organisation_id }));
}
