import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Clock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { Tables } from '../../src/store/ports.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';

/** Migrated control tables on SQLite, in a folder of their own that `close` removes. */
export async function temporaryTables(clock?: Clock): Promise<Tables> {
  const folder = mkdtempSync(path.join(tmpdir(), 'sluice-tables-'));
  const tables = await openSqliteTables({ file: path.join(folder, 'control.db'), log: silentLog, clock });
  await tables.migrate();
  const close = tables.close.bind(tables);
  tables.close = async () => {
    await close();
    rmSync(folder, { recursive: true, force: true });
  };
  return tables;
}
