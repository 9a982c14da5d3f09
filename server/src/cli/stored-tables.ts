import { access } from 'node:fs/promises';
import { join } from 'node:path';
import type { Config } from '../config.ts';
import { SluiceError } from '../kernel/errors.ts';
import { type Log, silentLog } from '../kernel/log.ts';
import { loadKeyring } from '../store/keyring.ts';
import type { Tables } from '../store/ports.ts';

/** Adapters are loaded only when they are used: a start with the embedded store never reads the others' code. */
export async function openTables(config: Config, log: Log): Promise<Tables> {
  if (config.databaseUrl === null) {
    const { openSqliteTables } = await import('../store/sqlite/tables.ts');
    return openSqliteTables({ file: join(config.dataDir, 'control.db'), log });
  }
  const { openPostgresTables } = await import('../store/postgres/tables.ts');
  return openPostgresTables({ url: config.databaseUrl, log });
}

/** The store of an installation that exists, and answers. A command in the wrong directory neither makes one nor looks into its own. */
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
  const tables = await openTables(config, silentLog);
  try {
    await tables.ping();
    return tables;
  } catch (error) {
    await tables.close();
    throw await unusable(config, error);
  }
}

/** What a start says of a store that is away: where it is, the cause and what to do. Other errors stay. */
async function unusable({ databaseUrl }: Config, error: unknown): Promise<unknown> {
  if (databaseUrl === null || !(error instanceof Error)) return error;
  const { PostgresFailure, unusablePostgres } = await import('../store/postgres/client.ts');
  return error.cause instanceof PostgresFailure ? unusablePostgres(databaseUrl, error.cause) : error;
}

/** The master keys of an installation that exists. Throws SluiceError when there is none; none is made. */
export const storedKeyring = (config: Config) =>
  loadKeyring({
    ...(config.masterKey === null ? {} : { masterKey: config.masterKey }),
    masterKeyFile: config.masterKeyFile,
    create: false,
  });
