import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Why users belong to workspaces, and the mappings of groups to workspaces. Nothing tells memberships of invites from others afterwards: all are as made by hand. */
export const membershipSources: Migration = { name: '0033-membership-sources', statements };

function statements(types: Types): string[] {
  const { T, I, audit, part, table, one, refers, index, unique } = ddl(types);
  return [
    table(
      'membership_sources',
      {
        organisation_id: T,
        workspace_id: T,
        user_id: T,
        source: T,
        role: one('admin', 'manager', 'member'),
        ...audit,
      },
      'PRIMARY KEY (workspace_id, user_id, source)',
      refers('workspace_id', 'workspaces', part),
      refers('user_id', 'users', part),
    ),
    index('membership_sources_user', 'membership_sources (organisation_id, user_id, workspace_id)'),
    index('membership_sources_source', 'membership_sources (organisation_id, source, workspace_id)'),
    `INSERT INTO membership_sources (organisation_id, workspace_id, user_id, source, role, created_at, last_updated_at)
SELECT organisation_id, workspace_id, user_id, 'manual', role, created_at, last_updated_at FROM workspace_members WHERE status = 'active'`,
    table(
      'scim_mappings',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        workspace_id: T,
        group_id: T,
        role: one('admin', 'manager', 'member'),
        created_at: I,
      },
      refers('workspace_id', 'workspaces', part),
      refers('group_id', 'scim_groups', part),
    ),
    unique('scim_mappings_pair', 'scim_mappings (organisation_id, group_id, workspace_id)'),
    index('scim_mappings_workspace', 'scim_mappings (organisation_id, workspace_id, created_at DESC, id)'),
    index('scim_mappings_list', 'scim_mappings (organisation_id, created_at DESC, id)'),
  ];
}
