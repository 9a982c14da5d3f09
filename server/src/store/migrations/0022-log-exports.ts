import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Exports of request logs. */
export const logExports: Migration = { name: '0022-log-exports', statements };

function statements(types: Types): string[] {
  const { text, int } = types;
  const { T, I, B, audit, inOrganisation, organisation, refers, table, one, index } = ddl(types);
  return [
    table(
      'log_exports',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        workspace_id: T,
        user_id: text,
        filters: T,
        requested_data: T,
        format: one('jsonl', 'csv', 'parquet'),
        whole: B,
        bom: B,
        description: T,
        status: one('draft', 'in_progress', 'success', 'failed', 'stopped'),
        error: text,
        total: I,
        runs: I,
        started_at: I,
        covers: text,
        parts: T,
        place: text,
        incomplete: T,
        expires_at: int,
        step: one('begin', 'parts', 'done'),
        cancel_requested: B,
        failures: I,
        due_at: I,
        holder: text,
        held_until: I,
        created_by: text,
        ...audit,
      },
      inOrganisation,
      organisation,
      refers('workspace_id', 'workspaces'),
    ),
    index('log_exports_list', 'log_exports (organisation_id, created_at DESC, id DESC)'),
    index('log_exports_workspace', 'log_exports (organisation_id, workspace_id, created_at DESC, id DESC)'),
    index('log_exports_user', 'log_exports (organisation_id, user_id, created_at DESC, id DESC)'),
    index('log_exports_running', 'log_exports (organisation_id, status, started_at, id)'),
    index('log_exports_due', 'log_exports (due_at)'),
    index('log_exports_held', "log_exports (held_until) WHERE step <> 'done'"),
    index('log_exports_expiry', 'log_exports (expires_at, id)'),
    index('log_exports_age', 'log_exports (created_at, id)'),
  ];
}
