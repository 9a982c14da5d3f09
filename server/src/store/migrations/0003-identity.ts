import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Invites, exclusions from default guardrails, due rotations, the audit chain and idempotency keys. */
export const identity: Migration = { name: '0003-identity', statements };

function statements(types: Types): string[] {
  const { text, int } = types;
  const { T, I, audit, inOrganisation, organisation, part, table, one, refers, index, unique } = ddl(types);
  const add = (name: string, column: string, type: string) => `ALTER TABLE ${name} ADD COLUMN ${column} ${type}`;

  return [
    add('workspaces', 'creation_source', text),
    add('workspaces', 'scim_source_id', text),
    add('workspaces', 'last_reset_at', int),
    add('api_keys', 'rotation_due_at', int),
    index('api_keys_rotation', 'api_keys (rotation_due_at)'),
    index('api_key_secrets_expiry', 'api_key_secrets (expires_at)'),
    add('audit_log', 'country', text),
    add('audit_log', 'request_headers', text),
    add('audit_log', 'before', text),
    add('audit_log', 'after', text),
    add('audit_log', 'seq', int),
    add('audit_log', 'hash', text),
    unique('audit_log_seq', 'audit_log (organisation_id, seq)'),
    // Rows are wide, and a list may look at all of them for the few that match, or pass over those before its page: it
    // reads this index only, in its order.
    index(
      'audit_log_search',
      'audit_log (organisation_id, timestamp, id, method, user_type, user_id, workspace_id, response_status_code, ' +
        'resource_type, action, client_ip, country)',
    ),
    index('audit_log_uri', 'audit_log (organisation_id, uri, timestamp, id)'),
    index('audit_log_request', 'audit_log (organisation_id, request_id, timestamp, id)'),
    'DROP INDEX audit_log_time',
    'DROP INDEX audit_log_workspace',
    table('audit_heads', { organisation_id: `${T} PRIMARY KEY`, seq: I, hash: T }, organisation),
    table(
      'invites',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        email: T,
        role: one('admin', 'member'),
        workspaces: T,
        api_key_details: text,
        status: one('pending', 'accepted', 'cancelled', 'expired'),
        token_digest: T,
        expires_at: I,
        accepted_at: int,
        invited_by: T,
        ...audit,
      },
      inOrganisation,
      organisation,
    ),
    unique('invites_token', 'invites (token_digest)'),
    unique('invites_email', "invites (organisation_id, email) WHERE status = 'pending'"),
    index('invites_list', 'invites (organisation_id, created_at)'),
    table(
      'guardrail_exclusions',
      { organisation_id: T, workspace_id: T, direction: one('input', 'output'), created_at: I },
      'PRIMARY KEY (workspace_id, direction)',
      refers('workspace_id', 'workspaces', part),
    ),
    index('guardrail_exclusions_organisation', 'guardrail_exclusions (organisation_id, direction)'),
    table(
      'idempotency_keys',
      {
        organisation_id: T,
        caller: T,
        key: T,
        fingerprint: T,
        status: I,
        object_id: text,
        answer: text,
        replay_until: I,
        expires_at: I,
        created_at: I,
      },
      'PRIMARY KEY (organisation_id, caller, key)',
      organisation,
    ),
    index('idempotency_keys_expiry', 'idempotency_keys (expires_at)'),
  ];
}
