import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Where audit logs begin after their oldest rows went, bytes of kept files by workspace, and further indexes for lists. */
export const retention: Migration = { name: '0014-retention', statements };

function statements(types: Types): string[] {
  const { T, I, table, organisation, refers, index } = ddl(types);
  return [
    table('audit_anchors', { organisation_id: `${T} PRIMARY KEY`, seq: I, hash: T }, organisation),
    table(
      'file_totals',
      { organisation_id: T, workspace_id: T, bytes: I },
      'PRIMARY KEY (organisation_id, workspace_id)',
      refers('workspace_id', 'workspaces'),
    ),
    `INSERT INTO file_totals (organisation_id, workspace_id, bytes)
SELECT organisation_id, workspace_id, CAST(sum(bytes) AS ${types.int}) FROM files GROUP BY organisation_id, workspace_id`,
    index('object_owners_newest', 'object_owners (organisation_id, account, created_at DESC, object_id, kind)'),
    index('configs_walk', "configs (organisation_id, workspace_id, id) WHERE status = 'active'"),
    index('integration_workspaces_list', 'integration_workspaces (organisation_id, integration_id, workspace_id)'),
    index('api_key_secrets_of_key', 'api_key_secrets (api_key_id)'),
    // PostgreSQL takes no order from an index whose first column is asked to be null.
    index('usage_alerts_open', 'usage_alerts (created_at, bucket_id, window_no, kind) WHERE done_at IS NULL'),
  ];
}
