import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Identity providers, the domains of an organisation, and whose account a subject is. */
export const sso: Migration = { name: '0030-sso', statements };

function statements(types: Types): string[] {
  const { text, int } = types;
  const { T, I, B, audit, inOrganisation, organisation, part, table, one, refers, index, unique } = ddl(types);
  return [
    table(
      'sso_clients',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        slug: T,
        name: T,
        type: one('oidc'),
        issuer: T,
        client_id: T,
        client_secret: text,
        token_endpoint_auth_method: one('client_secret_basic', 'client_secret_post', 'private_key_jwt'),
        jwks: text,
        published_keys: text,
        provider_jwks: text,
        scopes: T,
        is_default: B,
        email_verified_claim: text,
        allowed_tenants: text,
        group_claim: T,
        group_mappings: T,
        vouched_role: one('owner', 'admin', 'member'),
        discovery_problem: text,
        status: one('active', 'disabled', 'archived'),
        created_by: T,
        ...audit,
      },
      inOrganisation,
      organisation,
    ),
    unique('sso_clients_slug', "sso_clients (organisation_id, slug) WHERE status <> 'archived'"),
    index('sso_clients_list', 'sso_clients (organisation_id, created_at DESC, id, status)'),
    table(
      'organisation_domains',
      {
        organisation_id: T,
        domain: T,
        allow_subdomains: B,
        token: T,
        verified_at: int,
        created_at: I,
      },
      'PRIMARY KEY (organisation_id, domain)',
      organisation,
    ),
    unique('organisation_domains_domain', 'organisation_domains (domain)'),
    table(
      'user_identities',
      {
        organisation_id: T,
        issuer: T,
        subject: T,
        user_id: T,
        sso_client_id: T,
        given_role: text,
        created_at: I,
        last_seen_at: I,
      },
      'PRIMARY KEY (organisation_id, issuer, subject)',
      refers('user_id', 'users'),
    ),
    index('user_identities_user', 'user_identities (organisation_id, user_id)'),
    table(
      'login_attempts',
      {
        digest: `${T} PRIMARY KEY`,
        organisation_id: T,
        sso_client_id: T,
        browser: T,
        mac_key: T,
        return_to: T,
        expires_at: I,
        created_at: I,
      },
      refers('sso_client_id', 'sso_clients', part),
    ),
    index('login_attempts_client', 'login_attempts (organisation_id, sso_client_id)'),
    index('login_attempts_end', 'login_attempts (expires_at)'),
    table(
      'used_logout_tokens',
      { organisation_id: T, sso_client_id: T, digest: T, expires_at: I },
      'PRIMARY KEY (sso_client_id, digest)',
      refers('sso_client_id', 'sso_clients', part),
    ),
    index('used_logout_tokens_end', 'used_logout_tokens (expires_at)'),
  ];
}
