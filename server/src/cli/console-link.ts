import { createLink, linkUrl } from '../auth/console-session.ts';
import { openTables } from '../compose.ts';
import type { Config } from '../config.ts';
import { systemClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { silentLog } from '../kernel/log.ts';
import type { Output } from '../main.ts';

/** Makes a one-time sign-in link for the first owner; works beside a running server. */
export async function consoleLink(config: Config, output: Output): Promise<void> {
  const tables = await openTables(config, silentLog);
  try {
    await tables.migrate();
    const owner = await tables.systemRead(async (tx) =>
      (
        await tx.list('users', {
          where: { role: 'owner', status: 'active' },
          orderBy: [['created_at', 'asc']],
          limit: 1,
        })
      ).at(0),
    );
    if (owner === undefined) throw new SluiceError('not_found', 'There is no user yet; start Sluice once first.');
    const { token } = await createLink(tables, systemClock, owner);
    const url = config.publicUrl ?? `http://${config.host}:${config.port}`;
    output.out(`${linkUrl(url, token)}\nThe link works once, for 15 minutes.\n`);
  } finally {
    await tables.close();
  }
}
