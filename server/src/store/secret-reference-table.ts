/** The table of secret references: a part of `SCHEMA`. */
import { json, nullable, sealed, table, text, time } from './column.ts';

/** Where the secrets of references lie. */
export type SecretManagerType = 'aws_sm' | 'azure_kv' | 'hashicorp_vault' | 'gcp_sm' | 'env' | 'file';

/** That a field of an account is filled by a secret reference. */
export type SecretMapping = {
  target_field: string;
  secret_reference_id: string;
  secret_key?: string | null;
  value_format?: 'json' | 'string' | null;
};

export const SECRET_REFERENCE_TABLES = {
  /** Names for secrets that lie in secret managers. */
  secret_references: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    slug: text(),
    name: text(),
    description: nullable(text()),
    manager_type: text<SecretManagerType>(),
    /** How the manager is signed in to; its secret fields are in `secret_auth_config`. */
    auth_config: json<Record<string, string>>(),
    secret_auth_config: nullable(sealed()),
    secret_path: text(),
    secret_key: nullable(text()),
    /** Ids; null: all of the organisation. */
    allowed_workspaces: nullable(json<string[]>()),
    tags: nullable(json<Record<string, string>>()),
    status: text<'active' | 'archived'>(),
    created_by: text(),
    created_at: time(),
    last_updated_at: time(),
  }),
};
