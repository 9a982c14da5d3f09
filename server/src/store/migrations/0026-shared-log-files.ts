import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Log files that several nodes share: where their bytes are, when they go, and how far each node's records are in them. */
export const sharedLogFiles: Migration = { name: '0026-shared-log-files', statements };

function statements(types: Types): string[] {
  const { T, I, table, index } = ddl(types);
  const add = (column: string, type: string) => `ALTER TABLE log_files ADD COLUMN ${column} ${type}`;
  return [
    add('place', `${T} DEFAULT 'disk' CHECK (place IN ('disk', 'store'))`),
    add('remove_at', `${I} DEFAULT 0`),
    add('changed_at', `${I} DEFAULT 0`),
    index('log_files_changed', 'log_files (changed_at, id)'),
    index('log_files_days', 'log_files (day, id)'),
    index('log_files_leaving', 'log_files (remove_at, id) WHERE remove_at > 0'),
    table('log_nodes', { node: `${T} PRIMARY KEY`, complete_to: I, seen_at: I }),
  ];
}
