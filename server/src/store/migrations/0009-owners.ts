import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/**
 * More kinds of objects have an owner, and an integration says which workspaces may pass requests through to an account that
 * they share. SQLite cannot change a CHECK, so the table is made anew; the application names the kinds.
 */
export const owners: Migration = { name: '0009-owners', statements };

function statements(types: Types): string[] {
  const { text } = types;
  const { T, I, table, refers, index } = ddl(types);
  const columns = 'organisation_id, workspace_id, account, kind, object_id, provider, created_by, created_at';
  return [
    table(
      'owners_of_objects',
      {
        organisation_id: T,
        workspace_id: T,
        account: T,
        kind: T,
        object_id: T,
        provider: T,
        created_by: text,
        created_at: I,
      },
      'PRIMARY KEY (account, kind, object_id)',
      refers('workspace_id', 'workspaces'),
    ),
    `INSERT INTO owners_of_objects (${columns}) SELECT ${columns} FROM object_owners`,
    'DROP TABLE object_owners',
    'ALTER TABLE owners_of_objects RENAME TO object_owners',
    index('object_owners_list', 'object_owners (organisation_id, workspace_id, account, kind, created_at)'),
    index('object_owners_account', 'object_owners (organisation_id, account, kind, created_at)'),
    // Those of short life are found by their age.
    index('object_owners_age', 'object_owners (kind, created_at)'),
    `ALTER TABLE integrations ADD COLUMN passthrough ${text}`,
  ];
}
