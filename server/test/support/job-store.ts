import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Clock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { apiKeyRow, organisationRow, workspaceRow } from '../../src/store/conformance/rows.ts';
import type { Tables } from '../../src/store/ports.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import type { Row } from '../../src/store/schema.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { migratedDatabase } from './postgres.ts';

/** One store with the organisation `o1`, its workspaces `w1` and `w2` and their keys `key-w1` and `key-w2`, opened as often as there are nodes. */
export interface JobStore {
  readonly tables: Tables;
  /** The same store as another process opens it. */
  another(): Promise<Tables>;
  close(): Promise<void>;
}

export const ENGINES = ['sqlite', 'postgres'] as const;

/** A migrated store whose clock is the given one on both engines. */
export async function jobStore(engine: (typeof ENGINES)[number], clock: Clock): Promise<JobStore> {
  const folder = engine === 'sqlite' ? mkdtempSync(join(tmpdir(), 'sluice-jobs-')) : '';
  const url = engine === 'postgres' ? await migratedDatabase() : '';
  const opened: Tables[] = [];
  const another = async () => {
    const tables =
      engine === 'sqlite'
        ? await openSqliteTables({ file: join(folder, 'control.db'), log: silentLog })
        : await openPostgresTables({ url, log: silentLog });
    tables.now = async () => clock.now();
    opened.push(tables);
    return tables;
  };
  const tables = await another();
  await tables.migrate();
  await tables.systemWrite(async (tx) => {
    await tx.insert('organisations', organisationRow('o1'));
    await tx.insert('workspaces', workspaceRow('o1', 'w1'));
    await tx.insert('workspaces', workspaceRow('o1', 'w2'));
    for (const workspace_id of ['w1', 'w2']) {
      await tx.insert('api_keys', apiKeyRow('o1', `key-${workspace_id}`, { workspace_id, type: 'workspace-service' }));
    }
  });
  return {
    tables,
    another,
    async close() {
      for (const one of opened) await one.close();
      if (folder !== '') rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** A job that is due at `due`. */
export function jobRow(id: string, due: number, more: Partial<Row<'training_jobs'>> = {}): Row<'training_jobs'> {
  return {
    id,
    organisation_id: 'o1',
    workspace_id: 'w1',
    provider_slug: 'p',
    request: {},
    status: 'validating_files',
    job: {},
    step: 'first',
    progress: {},
    upstream_id: null,
    cancel_requested: false,
    failures: 0,
    due_at: due,
    holder: null,
    held_until: 0,
    created_by: null,
    created_at: due,
    last_updated_at: due,
    ...more,
  };
}
