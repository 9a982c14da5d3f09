import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Names for secrets that lie in secret managers. */
export const secretReferences: Migration = { name: '0028-secret-references', statements };

function statements(types: Types): string[] {
  const { text } = types;
  const { T, audit, inOrganisation, organisation, table, one, index, unique } = ddl(types);
  return [
    table(
      'secret_references',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        slug: T,
        name: T,
        description: text,
        manager_type: one('aws_sm', 'azure_kv', 'hashicorp_vault', 'gcp_sm', 'env', 'file'),
        auth_config: T,
        secret_auth_config: text,
        secret_path: T,
        secret_key: text,
        allowed_workspaces: text,
        tags: text,
        status: one('active', 'archived'),
        created_by: T,
        ...audit,
      },
      inOrganisation,
      organisation,
    ),
    unique('secret_references_slug', "secret_references (organisation_id, slug) WHERE status <> 'archived'"),
    index('secret_references_list', 'secret_references (organisation_id, created_at DESC, id, status, manager_type)'),
  ];
}
