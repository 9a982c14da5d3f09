import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Destinations that records are sent to as they come. */
export const logDestinations: Migration = { name: '0023-log-destinations', statements };

function statements(types: Types): string[] {
  const { text, int } = types;
  const { T, I, B, audit, inOrganisation, organisation, part, refers, table, one, index } = ddl(types);
  return [
    table(
      'log_destinations',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        workspace_id: text,
        name: T,
        kind: one('otlp', 'webhook', 's3', 'kafka'),
        enabled: B,
        settings: T,
        secrets: T,
        filters: T,
        fields: text,
        bodies: B,
        sample: I,
        start_at: I,
        created_by: text,
        updated_by: text,
        ...audit,
      },
      inOrganisation,
      organisation,
      refers('workspace_id', 'workspaces'),
    ),
    index('log_destinations_list', 'log_destinations (organisation_id, created_at DESC, id DESC)'),
    index('log_destinations_workspace', 'log_destinations (organisation_id, workspace_id, created_at DESC, id DESC)'),
    index('log_destinations_kind', 'log_destinations (organisation_id, kind)'),
    table(
      'log_destination_feeds',
      {
        organisation_id: T,
        destination_id: T,
        node: T,
        delivered: I,
        failed: I,
        lost: I,
        waiting: I,
        lag_ms: I,
        backfilling: B,
        delivered_at: int,
        error: text,
        last_updated_at: I,
      },
      'PRIMARY KEY (destination_id, node)',
      organisation,
      refers('destination_id', 'log_destinations', part),
    ),
    index('log_destination_feeds_list', 'log_destination_feeds (organisation_id, destination_id, node)'),
  ];
}
