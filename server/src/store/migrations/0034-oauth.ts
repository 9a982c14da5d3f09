import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Sluice's own OAuth server: clients, requests for access, codes, tokens, and command lines that sign in. */
export const oauth: Migration = { name: '0034-oauth', statements };

function statements(types: Types): string[] {
  const { text, int } = types;
  const { T, I, inOrganisation, organisation, table, one, index, unique, refers, part } = ddl(types);
  const given = { client_id: T, redirect_uri: T, challenge: T, scope: T, resource: T };
  const inWorkspace = { organisation_id: T, workspace_id: T, user_id: T };
  const ofUser = [organisation, refers('workspace_id', 'workspaces', part), refers('user_id', 'users', part)];
  const times = { expires_at: I, created_at: I };
  return [
    table('oauth_clients', {
      id: `${T} PRIMARY KEY`,
      name: T,
      redirect_uris: T,
      scopes: T,
      application_type: one('native', 'web'),
      logo_uri: text,
      client_uri: text,
      fresh_until: int,
      created_at: I,
      last_used_at: I,
    }),
    index('oauth_clients_unused', 'oauth_clients (last_used_at)'),
    table('oauth_requests', {
      digest: `${T} PRIMARY KEY`,
      session_digest: text,
      ...given,
      state: text,
      ...times,
    }),
    index('oauth_requests_end', 'oauth_requests (expires_at)'),
    table(
      'oauth_codes',
      { digest: `${T} PRIMARY KEY`, ...inWorkspace, ...given, family_id: text, used_at: int, ...times },
      ...ofUser,
    ),
    index('oauth_codes_end', 'oauth_codes (expires_at)'),
    index('oauth_codes_user', 'oauth_codes (organisation_id, user_id)'),
    table(
      'oauth_families',
      { id: `${T} PRIMARY KEY`, ...inWorkspace, client_id: T, scope: T, resource: T, ...times },
      inOrganisation,
      ...ofUser,
    ),
    index('oauth_families_end', 'oauth_families (expires_at)'),
    index('oauth_families_user', 'oauth_families (organisation_id, user_id)'),
    index('oauth_families_client', 'oauth_families (client_id)'),
    table(
      'oauth_tokens',
      {
        digest: `${T} PRIMARY KEY`,
        organisation_id: T,
        family_id: T,
        kind: one('access', 'refresh'),
        scope: T,
        used_at: int,
        ...times,
      },
      organisation,
      refers('family_id', 'oauth_families', part),
    ),
    index('oauth_tokens_family', 'oauth_tokens (organisation_id, family_id)'),
    index('oauth_tokens_end', 'oauth_tokens (expires_at)'),
    table('oauth_devices', {
      digest: `${T} PRIMARY KEY`,
      user_code_digest: T,
      client_id: T,
      address: T,
      status: one('pending', 'approved', 'denied'),
      user_id: text,
      poll_interval: I,
      polled_at: int,
      ...times,
    }),
    unique('oauth_devices_code', 'oauth_devices (user_code_digest)'),
    index('oauth_devices_end', 'oauth_devices (expires_at)'),
  ];
}
