import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Erasures of request logs. */
export const logErasures: Migration = { name: '0024-log-erasures', statements };

function statements(types: Types): string[] {
  const { text, int } = types;
  const { T, I, audit, inOrganisation, organisation, refers, table, one, index } = ddl(types);
  return [
    table(
      'log_erasures',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        workspace_id: text,
        selects: one('id', 'end_user', 'api_key_id', 'trace_id'),
        subject: text,
        before: I,
        status: one('pending', 'done'),
        nodes: T,
        exports: T,
        done_at: int,
        created_by: text,
        ...audit,
      },
      inOrganisation,
      organisation,
      refers('workspace_id', 'workspaces'),
    ),
    index('log_erasures_list', 'log_erasures (organisation_id, created_at DESC, id DESC)'),
    index('log_erasures_workspace', 'log_erasures (organisation_id, workspace_id, created_at DESC, id DESC)'),
    index('log_erasures_pending', 'log_erasures (organisation_id, status, id)'),
    index('log_erasures_work', 'log_erasures (status, id)'),
  ];
}
