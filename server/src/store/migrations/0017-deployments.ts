import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Gateways that are registered with an organisation. */
export const deployments: Migration = { name: '0017-deployments', statements };

function statements(types: Types): string[] {
  const { text, int } = types;
  const { T, B, audit, inOrganisation, organisation, table, one, index, unique } = ddl(types);
  return [
    table(
      'deployments',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        slug: T,
        name: T,
        type: one('production', 'non_production'),
        status: one('active', 'archived'),
        is_default: B,
        connection_status: one('healthy', 'unhealthy', 'unknown'),
        source_type: one('manual', 'api', 'helm', 'managed'),
        tags: text,
        auth_settings: T,
        deployment_config: text,
        client_auth_id: T,
        client_auth_digest: T,
        ping_digest: text,
        last_synced_at: int,
        last_resynced_at: int,
        created_by: T,
        ...audit,
      },
      inOrganisation,
      organisation,
    ),
    unique('deployments_slug', "deployments (organisation_id, slug) WHERE status <> 'archived'"),
    unique('deployments_client_auth', 'deployments (client_auth_id)'),
    index('deployments_list', 'deployments (organisation_id, created_at DESC, id, status, type)'),
    index('deployments_default', 'deployments (organisation_id, is_default, status)'),
  ];
}
