import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Provisioning by a directory: tokens, what it said of users, groups. */
export const scim: Migration = { name: '0032-scim', statements };

function statements(types: Types): string[] {
  const { text, int } = types;
  const { T, I, B, audit, inOrganisation, organisation, part, table, refers, index, unique } = ddl(types);
  return [
    table(
      'scim_tokens',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        name: T,
        public_id: T,
        digest: T,
        expires_at: int,
        created_by: T,
        created_at: I,
      },
      organisation,
    ),
    unique('scim_tokens_public', 'scim_tokens (public_id)'),
    index('scim_tokens_list', 'scim_tokens (organisation_id, created_at, id)'),
    table(
      'scim_users',
      {
        user_id: `${T} PRIMARY KEY`,
        organisation_id: T,
        external_id: text,
        user_name: T,
        profile: T,
        active: B,
        ...audit,
      },
      organisation,
      refers('user_id', 'users', part),
    ),
    // In the order in which a directory reads all users.
    index('users_directory', "users (organisation_id, created_at, id, status) WHERE status <> 'archived'"),
    index('scim_users_user', 'scim_users (organisation_id, user_id)'),
    index('scim_users_external', 'scim_users (organisation_id, external_id)'),
    index('scim_users_name', 'scim_users (organisation_id, user_name)'),
    index('scim_users_list', 'scim_users (organisation_id, active, created_at, user_id)'),
    table(
      'scim_groups',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        display_name: T,
        name_key: T,
        external_id: text,
        version: I,
        ...audit,
      },
      inOrganisation,
      organisation,
    ),
    unique('scim_groups_name', 'scim_groups (organisation_id, name_key)'),
    index('scim_groups_external', 'scim_groups (organisation_id, external_id)'),
    index('scim_groups_list', 'scim_groups (organisation_id, created_at, id)'),
    table(
      'scim_group_members',
      { organisation_id: T, group_id: T, user_id: T, created_at: I },
      'PRIMARY KEY (group_id, user_id)',
      refers('group_id', 'scim_groups', part),
      refers('user_id', 'users', part),
    ),
    index('scim_group_members_group', 'scim_group_members (organisation_id, group_id, user_id)'),
    index('scim_group_members_user', 'scim_group_members (organisation_id, user_id, group_id)'),
  ];
}
