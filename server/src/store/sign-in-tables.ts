/** The tables of signing in and of who belongs where: sessions, identity providers, OAuth, SCIM. A part of `SCHEMA`. */
import { bool, int, json, nullable, sealed, table, text, time } from './column.ts';

/** What the members of a group at an identity provider become. */
export type GroupMapping =
  | { group: string; role: 'admin' | 'member' }
  | { group: string; workspace_id: string; workspace_role: 'admin' | 'manager' | 'member' };

/** How an organisation authenticates itself at the token endpoint of its identity provider. */
export type ClientAuthMethod = 'client_secret_basic' | 'client_secret_post' | 'private_key_jwt';

/** Public keys as published, RFC 7517. */
export type PublicJwk = Record<string, string>;

/** An e-mail address or a role of a user, as the directory sent it. */
export interface ScimValue {
  value?: string;
  type?: string;
  display?: string;
  primary?: boolean;
}

/** What a directory said of a user, as it is answered. The names and the address that Sluice uses are in `users`. */
export interface ScimProfile {
  userName: string;
  displayName?: string;
  name?: { [part: string]: string };
  emails?: ScimValue[];
}

/** By hand, by an invite, by claims at sign-ins with an SSO client (its id), or by a SCIM group (its id). */
export type MembershipSource = 'manual' | 'invite' | `sso:${string}` | `scim:${string}`;

export const SIGN_IN_TABLES = {
  /** One-time sign-in links and sessions; only digests are kept. What hangs on a session goes with it. */
  console_sessions: table(['digest'], 'organisation', {
    digest: text(),
    organisation_id: text(),
    user_id: text(),
    kind: text<'link' | 'session'>(),
    expires_at: time(),
    created_at: time(),
    /** The identity provider's registration that signed the user in; null for a link. */
    client_id: nullable(text()),
    /** When the user last proved who they are; null: at `created_at`. */
    auth_time: nullable(time()),
    issuer: nullable(text()),
    subject: nullable(text()),
    /** The identity provider's own id of the session. */
    sid: nullable(text()),
    id_token: nullable(sealed()),
    user_agent: nullable(text()),
    /** Of a mailed link: digest of the login cookie of the browser that asked for it, which alone may use it. */
    browser: nullable(text()),
  }),
  /** Pairs of tokens that hang on a session: one family for each time that a pair was asked for. */
  session_families: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    session: text(),
    created_at: time(),
  }),
  /** Tokens of families. A refresh token that was used keeps its row, so that a second use is known for what it is. */
  session_tokens: table(['id'], 'organisation', {
    /** The 12 public characters of the token. */
    id: text(),
    organisation_id: text(),
    family_id: text(),
    kind: text<'auth' | 'refresh'>(),
    digest: text(),
    expires_at: time(),
    used_at: nullable(time()),
    created_at: time(),
  }),
  /** Public keys that users sign in with; the private ones never leave their devices. */
  passkeys: table(['id'], 'organisation', {
    /** The credential id, as its device made it: base64url. */
    id: text(),
    organisation_id: text(),
    user_id: text(),
    name: text(),
    /** COSE, base64url. */
    public_key: text(),
    /** Of the device: it must rise with each use, or stay zero. */
    counter: int(),
    transports: json<string[]>(),
    last_used_at: nullable(time()),
    created_at: time(),
  }),
  /** Challenges that were answered well: none is answered twice. */
  used_challenges: table(['digest'], 'none', { digest: text(), expires_at: time() }),
  /** Registrations of the organisation at identity providers. */
  sso_clients: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    slug: text(),
    name: text(),
    type: text<'oidc'>(),
    issuer: text(),
    client_id: text(),
    client_secret: nullable(sealed()),
    token_endpoint_auth_method: text<ClientAuthMethod>(),
    /** Private keys: the first one signs. */
    jwks: nullable(sealed()),
    /** Their public halves. */
    published_keys: nullable(json<PublicJwk[]>()),
    /** Public keys of the provider, where its own set cannot be reached. */
    provider_jwks: nullable(json<PublicJwk[]>()),
    scopes: json<string[]>(),
    is_default: bool(),
    email_verified_claim: nullable(text()),
    allowed_tenants: nullable(json<string[]>()),
    group_claim: text(),
    group_mappings: json<GroupMapping[]>(),
    /** The highest role of who last said whom this registration trusts: it signs in no user above that role. */
    vouched_role: text<'owner' | 'admin' | 'member'>(),
    /** Why the provider's metadata could not be read when this was saved; null: it could. */
    discovery_problem: nullable(text()),
    status: text<'active' | 'disabled' | 'archived'>(),
    created_by: text(),
    created_at: time(),
    last_updated_at: time(),
  }),
  /** Domains of the addresses of an organisation's users. A domain belongs to one organisation. */
  organisation_domains: table(['organisation_id', 'domain'], 'organisation', {
    organisation_id: text(),
    /** Lower case, as in DNS. */
    domain: text(),
    allow_subdomains: bool(),
    /** What its TXT record holds: no secret, everybody may read it there. */
    token: text(),
    /** Null: not shown to be the organisation's. */
    verified_at: nullable(time()),
    created_at: time(),
  }),
  /** Whose account a subject at an issuer is. */
  user_identities: table(['organisation_id', 'issuer', 'subject'], 'organisation', {
    organisation_id: text(),
    issuer: text(),
    subject: text(),
    user_id: text(),
    /** The registration that the user came through last. */
    sso_client_id: text(),
    /** The role in the organisation that groups of the provider gave last; null: none did. */
    given_role: nullable(text<'admin' | 'member'>()),
    created_at: time(),
    last_seen_at: time(),
  }),
  /** Sign-ins that went to a provider and have not come back. Each row is removed by the one answer that it is good for. */
  login_attempts: table(['digest'], 'organisation', {
    /** SHA-256 of `state`. */
    digest: text(),
    organisation_id: text(),
    sso_client_id: text(),
    /** SHA-256 of the login cookie of the browser that began. */
    browser: text(),
    /** The master key that nonce and code verifier are derived with, from `state`; neither is kept. */
    mac_key: text(),
    return_to: text(),
    expires_at: time(),
    created_at: time(),
  }),
  /** Logout tokens that have been used, so that none is used twice. */
  used_logout_tokens: table(['sso_client_id', 'digest'], 'organisation', {
    organisation_id: text(),
    sso_client_id: text(),
    /** SHA-256 of `jti`. */
    digest: text(),
    expires_at: time(),
  }),
  // Of Sluice's own OAuth server. They hold digests, never a code or a token.
  /** Programs that may ask a user for access. They belong to no organisation: a user of any one may approve them. */
  oauth_clients: table(['id'], 'none', {
    /** Random for one that registered; the address of its metadata document for one that has such a document. */
    id: text(),
    name: text(),
    redirect_uris: json<string[]>(),
    /** Scopes that it may ask for. */
    scopes: json<string[]>(),
    application_type: text<'native' | 'web'>(),
    logo_uri: nullable(text()),
    client_uri: nullable(text()),
    /** Until when the metadata document need not be read again; null for a client that registered. */
    fresh_until: nullable(time()),
    created_at: time(),
    last_used_at: time(),
  }),
  /** Requests for access that wait for an answer on the consent page, by the digest of their `resume_state`. */
  oauth_requests: table(['digest'], 'none', {
    digest: text(),
    /** Digest of the console session that saw the request first: only it may answer. */
    session_digest: nullable(text()),
    client_id: text(),
    redirect_uri: text(),
    state: nullable(text()),
    scope: text(),
    /** The address that tokens will be for. */
    resource: text(),
    /** PKCE, S256. */
    challenge: text(),
    expires_at: time(),
    created_at: time(),
  }),
  /** Authorization codes. A used one stays for a day: its second use ends what the first gave. */
  oauth_codes: table(['digest'], 'organisation', {
    digest: text(),
    organisation_id: text(),
    workspace_id: text(),
    user_id: text(),
    client_id: text(),
    redirect_uri: text(),
    challenge: text(),
    scope: text(),
    resource: text(),
    /** What it was exchanged for. */
    family_id: nullable(text()),
    used_at: nullable(time()),
    /** As the user saw it; null: approved before names were kept. */
    client_name: nullable(text()),
    /** When the user had last proved who they are; null: at `created_at`. */
    signed_in_at: nullable(time()),
    expires_at: time(),
    created_at: time(),
  }),
  /** What a user has given a client: all tokens that go back to one code. */
  oauth_families: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    user_id: text(),
    client_id: text(),
    scope: text(),
    resource: text(),
    /** As the user saw it; null: approved before names were kept. */
    client_name: nullable(text()),
    /** When the user had last proved who they are; null: at `created_at`. */
    signed_in_at: nullable(time()),
    expires_at: time(),
    created_at: time(),
  }),
  oauth_tokens: table(['digest'], 'organisation', {
    digest: text(),
    organisation_id: text(),
    family_id: text(),
    kind: text<'access' | 'refresh'>(),
    scope: text(),
    /** Of a refresh token: it is kept until its end, because its second use ends the family. */
    used_at: nullable(time()),
    expires_at: time(),
    created_at: time(),
  }),
  /** Command lines that wait for a user to sign them in. */
  oauth_devices: table(['digest'], 'none', {
    digest: text(),
    user_code_digest: text(),
    client_id: text(),
    /** Of the client, for the page that asks the user. */
    address: text(),
    status: text<'pending' | 'approved' | 'denied'>(),
    /** Who has decided. */
    user_id: nullable(text()),
    /** Digest of the session in which the user has decided: what it was proved by holds for the command line, too. */
    session_digest: nullable(text()),
    /** Seconds between two questions of the client. */
    poll_interval: int(),
    polled_at: nullable(time()),
    expires_at: time(),
    created_at: time(),
  }),
  /** Credentials of directories. Only digests are kept. */
  scim_tokens: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    name: text(),
    /** The 12 public characters inside the token. */
    public_id: text(),
    /** SHA-256 of the whole token, lower-case hexadecimal. */
    digest: text(),
    expires_at: nullable(time()),
    /** User or key that made it. */
    created_by: text(),
    created_at: time(),
  }),
  /** Users that a directory manages. One that it deleted has no row: a directory sees users that are active, and these. */
  scim_users: table(['user_id'], 'organisation', {
    user_id: text(),
    organisation_id: text(),
    /** The directory's own id: data, and never a key to anything. */
    external_id: nullable(text()),
    /** In lower case. */
    user_name: text(),
    profile: json<ScimProfile>(),
    /** As the user's `status`: false is `archived`. */
    active: bool(),
    created_at: time(),
    last_updated_at: time(),
  }),
  scim_groups: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    display_name: text(),
    /** `display_name` in lower case: one group of an organisation has it. */
    name_key: text(),
    external_id: nullable(text()),
    /** Rises with every change of the group and of its members. */
    version: int(),
    created_at: time(),
    last_updated_at: time(),
  }),
  scim_group_members: table(['group_id', 'user_id'], 'organisation', {
    organisation_id: text(),
    group_id: text(),
    user_id: text(),
    created_at: time(),
  }),
  /**
   * What gives a user a place in a workspace. The highest role counts, and the membership ends with the last source. Those of a
   * deactivated user stay.
   */
  membership_sources: table(['workspace_id', 'user_id', 'source'], 'organisation', {
    organisation_id: text(),
    workspace_id: text(),
    user_id: text(),
    source: text<MembershipSource>(),
    role: text<'admin' | 'manager' | 'member'>(),
    created_at: time(),
    last_updated_at: time(),
  }),
  /** Workspaces that the members of a SCIM group belong to. All mappings of a group have one role. */
  scim_mappings: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    group_id: text(),
    role: text<'admin' | 'manager' | 'member'>(),
    created_at: time(),
  }),
};
