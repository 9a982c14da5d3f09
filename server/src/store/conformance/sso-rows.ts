import type { Row } from '../schema.ts';

const TABLES = [
  'sso_clients',
  'organisation_domains',
  'user_identities',
  'login_attempts',
  'used_logout_tokens',
] as const;

/** A registration at an identity provider, whose user `user` is, and a sign-in on its way. */
export function ssoRows(
  name: string,
  own: { readonly organisation_id: string },
  user: string,
  at: number,
): { [N in (typeof TABLES)[number]]: Row<N> } {
  return {
    sso_clients: {
      id: `${name}-sso-client`,
      ...own,
      slug: `${name}-sso-client`,
      name: `${name} SSO client`,
      type: 'oidc',
      issuer: 'https://issuer.example',
      client_id: `${name}-client`,
      client_secret: null,
      token_endpoint_auth_method: 'client_secret_basic',
      jwks: null,
      published_keys: [{ kty: 'RSA', n: name, e: 'AQAB' }],
      provider_jwks: null,
      scopes: ['openid'],
      is_default: true,
      email_verified_claim: null,
      allowed_tenants: [name],
      group_claim: 'groups',
      group_mappings: [{ group: name, role: 'member' }],
      vouched_role: 'owner',
      discovery_problem: null,
      status: 'active',
      created_by: `${name}-by`,
      created_at: at,
      last_updated_at: at,
    },
    organisation_domains: {
      ...own,
      domain: `${name}.example`,
      allow_subdomains: true,
      token: `${name}-token`,
      verified_at: at,
      created_at: at,
    },
    user_identities: {
      ...own,
      issuer: 'https://issuer.example',
      subject: `${name}-subject`,
      user_id: user,
      sso_client_id: `${name}-sso-client`,
      given_role: null,
      created_at: at,
      last_seen_at: at,
    },
    login_attempts: {
      digest: `${name}-attempt`,
      ...own,
      sso_client_id: `${name}-sso-client`,
      browser: `${name}-browser`,
      mac_key: `${name}-key`,
      return_to: '/console/',
      expires_at: at,
      created_at: at,
    },
    used_logout_tokens: { ...own, sso_client_id: `${name}-sso-client`, digest: `${name}-jti`, expires_at: at },
  };
}
