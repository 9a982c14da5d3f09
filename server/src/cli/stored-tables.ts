import { access } from 'node:fs/promises';
import { join } from 'node:path';
import { openTables } from '../compose.ts';
import type { Config } from '../config.ts';
import { SluiceError } from '../kernel/errors.ts';
import { silentLog } from '../kernel/log.ts';
import type { Tables } from '../store/ports.ts';

/** The store of an installation that exists. A command in the wrong directory neither makes one nor looks into its own. */
export async function openStoredTables(config: Config): Promise<Tables> {
  if (config.databaseUrl === null) {
    const file = join(config.dataDir, 'control.db');
    await access(file).catch(() => {
      throw new SluiceError(
        'not_found',
        `There is no ${file}: check SLUICE_DATA_DIR or SLUICE_DATABASE_URL, or start Sluice once first.`,
      );
    });
  }
  return openTables(config, silentLog);
}
