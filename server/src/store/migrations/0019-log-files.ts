import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** The files of stored records, how far each journal is in them, and the sums of each hour. */
export const logFiles: Migration = { name: '0019-log-files', statements };

function statements(types: Types): string[] {
  const { T, I, table, one, index } = ddl(types);
  return [
    table('log_files', {
      id: `${T} PRIMARY KEY`,
      node: T,
      day: I,
      level: I,
      min_time: I,
      max_time: I,
      records: I,
      bytes: I,
      version: I,
      status: one('live', 'damaged'),
      created_at: I,
    }),
    index('log_files_list', 'log_files (node, day, id)'),
    table('log_positions', { journal: `${T} PRIMARY KEY`, segment: T, position: I }),
    table(
      'log_hours',
      {
        organisation_id: T,
        workspace_id: T,
        hour: I,
        source: T,
        requests: I,
        errors: I,
        refused: I,
        unpriced: I,
        cost_micros: I,
        saved_micros: I,
        tokens_in: I,
        tokens_out: I,
        latency_sum_us: I,
      },
      'PRIMARY KEY (organisation_id, workspace_id, hour, source)',
    ),
    index('log_hours_list', 'log_hours (hour, organisation_id, workspace_id, source)'),
  ];
}
