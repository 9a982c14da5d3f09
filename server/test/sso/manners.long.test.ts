/** Entra ID, Google, Okta, Keycloak and Auth0: their addresses, metadata and claims, served on loopback in their names. */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { SingleSignOn, SsoDeed } from '../../src/auth/sso.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { openSingleSignOn } from '../../src/oidc/sign-in.ts';
import { openVault } from '../../src/store/envelope.ts';
import { loadKeyring } from '../../src/store/keyring.ts';
import type { Tables } from '../../src/store/ports.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { type Claims, type FakeProvider, startFakeProvider } from '../support/fake-provider.ts';
import { type SsoWorld, startSsoWorld } from '../support/sso-world.ts';

const MASTER_KEY = randomBytes(32).toString('base64');
const PUBLIC = 'https://sluice.example';
const TENANT = '7f0c1b1e-64c5-4c1b-9a06-2b1f8f6e2f10';
const OTHER_TENANT = '1a2b3c4d-0000-4000-8000-00000000beef';
const entra = (tenant: string) => `https://login.microsoftonline.com/${tenant}/v2.0`;
const entraAt = (tenant: string) => ({
  authorization_endpoint: `https://login.microsoftonline.com/${tenant}/oauth2/v2.0/authorize`,
  token_endpoint: `https://login.microsoftonline.com/${tenant}/oauth2/v2.0/token`,
  jwks_uri: `https://login.microsoftonline.com/${tenant}/discovery/v2.0/keys`,
  userinfo_endpoint: 'https://graph.microsoft.com/oidc/userinfo',
  end_session_endpoint: `https://login.microsoftonline.com/${tenant}/oauth2/v2.0/logout`,
});
/** Names are in one claim, and an address that decides nothing is beside them. */
const ofEntra = (email: string, tid: string): Claims => ({
  ...{ iss: entra(tid), tid, oid: `oid of ${email}`, sub: `pairwise ${email}`, email, ver: '2.0' },
  ...{ name: 'Eve Smith', preferred_username: 'owner@acme.example', upn: 'owner@acme.example' },
  ...{ email_verified: undefined, given_name: undefined, family_name: undefined },
});

interface Manner {
  readonly title: string;
  readonly issuer: string;
  readonly metadata: Claims;
  readonly client: Record<string, unknown>;
  /** What the ID token has besides what every provider sends. */
  readonly claims: Claims;
  readonly userinfo?: Claims;
  /** Whether redirects name the issuer. */
  readonly sendsIssuer?: boolean;
  /** Role in the workspace that groups give. */
  readonly role: string | null;
  /** Where users sign out; null for nowhere. */
  readonly signOut: string | null;
  /** Changes of claims, and the word of the refusal. */
  readonly wrong: readonly (readonly [string, { claims?: Claims; userinfo?: Claims }, string])[];
}

const leads = (group: string) => ({ group, workspace_id: 'W', workspace_role: 'manager' });

const MANNERS: readonly Manner[] = [
  {
    title: 'Entra ID',
    issuer: entra(TENANT),
    metadata: entraAt(TENANT),
    client: { email_verified_claim: 'xms_edov', group_claim: 'roles', group_mappings: [leads('Leads')] },
    claims: { ...ofEntra('eve@acme.example', TENANT), xms_edov: '1', roles: ['Leads'] },
    role: 'manager',
    signOut: `https://login.microsoftonline.com/${TENANT}/oauth2/v2.0/logout`,
    wrong: [
      ['whose address the owner of the domain did not verify', { claims: { xms_edov: undefined } }, 'no_account'],
      ['whose address is known not to be verified', { claims: { xms_edov: '0' } }, 'no_account'],
      ['of another tenant', { claims: { iss: entra(OTHER_TENANT), tid: OTHER_TENANT } }, 'invalid_answer'],
      ['of the first version of tokens', { claims: { iss: `https://sts.windows.net/${TENANT}/` } }, 'invalid_answer'],
    ],
  },
  {
    title: 'Entra ID for listed tenants',
    issuer: entra('common'),
    metadata: { ...entraAt('common'), issuer: entra('{tenantid}') },
    client: { email_verified_claim: 'xms_edov', allowed_tenants: [TENANT.toUpperCase()] },
    claims: { ...ofEntra('mia@acme.example', TENANT), xms_edov: true },
    role: null,
    signOut: 'https://login.microsoftonline.com/common/oauth2/v2.0/logout',
    wrong: [
      ['of another tenant', { claims: { iss: entra(OTHER_TENANT), tid: OTHER_TENANT } }, 'invalid_answer'],
      ['of a tenant that names another', { claims: { iss: entra(OTHER_TENANT) } }, 'invalid_answer'],
      ['of no tenant', { claims: { tid: undefined } }, 'invalid_answer'],
    ],
  },
  {
    title: 'Google',
    issuer: 'https://accounts.google.com',
    metadata: {
      authorization_endpoint: 'https://accounts.google.com/o/oauth2/v2/auth',
      token_endpoint: 'https://oauth2.googleapis.com/token',
      jwks_uri: 'https://www.googleapis.com/oauth2/v3/certs',
      userinfo_endpoint: 'https://openidconnect.googleapis.com/v1/userinfo',
      end_session_endpoint: undefined,
      scopes_supported: ['openid', 'email', 'profile'],
    },
    client: {},
    claims: { sub: '110169484474386276334', azp: 'sluice', hd: 'acme.example', email: 'gus@acme.example' },
    role: null,
    signOut: null,
    wrong: [
      ['of a private account with an address of the domain', { claims: { hd: undefined } }, 'no_account'],
      ['of another Workspace', { claims: { hd: 'evil.example' } }, 'no_account'],
      ['for another application', { claims: { azp: 'other' } }, 'invalid_answer'],
    ],
  },
  {
    title: 'Google with listed domains',
    issuer: 'https://accounts.google.com',
    metadata: {
      authorization_endpoint: 'https://accounts.google.com/o/oauth2/v2/auth',
      token_endpoint: 'https://oauth2.googleapis.com/token',
      jwks_uri: 'https://www.googleapis.com/oauth2/v3/certs',
      end_session_endpoint: undefined,
    },
    client: { allowed_tenants: ['acme.example', 'acme.dev'] },
    claims: { sub: '220169484474386276334', azp: 'sluice', hd: 'acme.dev', email: 'gil@acme.example' },
    role: null,
    signOut: null,
    wrong: [
      ['of a private account', { claims: { hd: undefined } }, 'invalid_answer'],
      ['of another Workspace', { claims: { hd: 'evil.example' } }, 'invalid_answer'],
    ],
  },
  {
    title: 'Okta',
    issuer: 'https://acme.okta.com',
    metadata: {
      authorization_endpoint: 'https://acme.okta.com/oauth2/v1/authorize',
      token_endpoint: 'https://acme.okta.com/oauth2/v1/token',
      jwks_uri: 'https://acme.okta.com/oauth2/v1/keys',
      userinfo_endpoint: 'https://acme.okta.com/oauth2/v1/userinfo',
      end_session_endpoint: 'https://acme.okta.com/oauth2/v1/logout',
    },
    client: { group_mappings: [leads('Leads')], scopes: ['openid', 'email', 'profile', 'groups'] },
    claims: { sub: '00u1', email: 'olga@acme.example', ver: 1, amr: ['pwd', 'mfa'], idp: '00o1' },
    userinfo: { sub: '00u1', groups: ['Everyone', 'Leads'] },
    role: 'manager',
    signOut: 'https://acme.okta.com/oauth2/v1/logout',
    wrong: [
      [
        'of a custom authorization server',
        { claims: { iss: 'https://acme.okta.com/oauth2/default' } },
        'invalid_answer',
      ],
      ['whose userinfo is of somebody else', { userinfo: { sub: '00u2', groups: ['Leads'] } }, 'invalid_answer'],
      ['whose address is not verified', { claims: { email_verified: false } }, 'no_account'],
    ],
  },
  ...(
    [
      ['Keycloak with paths of groups', 'kim', { group_mappings: [leads('/research/leads')] }],
      [
        'Keycloak with roles of the realm',
        'kai',
        { group_claim: '/realm_access/roles', group_mappings: [leads('sluice-leads')] },
      ],
    ] as const
  ).map(([title, name, client], index): Manner => {
    const issuer = `https://sso.acme.example/realms/staff${index}`;
    return {
      title,
      issuer,
      metadata: {
        authorization_endpoint: `${issuer}/protocol/openid-connect/auth`,
        token_endpoint: `${issuer}/protocol/openid-connect/token`,
        jwks_uri: `${issuer}/protocol/openid-connect/certs`,
        userinfo_endpoint: `${issuer}/protocol/openid-connect/userinfo`,
        end_session_endpoint: `${issuer}/protocol/openid-connect/logout`,
      },
      client,
      claims: {
        ...{ sub: `f:${name}`, azp: 'sluice', typ: 'ID', acr: '1', sid: `sid-${name}`, email: `${name}@acme.example` },
        ...{ groups: ['/research', '/research/leads'], realm_access: { roles: ['offline_access', 'sluice-leads'] } },
      },
      sendsIssuer: true,
      role: 'manager',
      signOut: `${issuer}/protocol/openid-connect/logout`,
      wrong: [
        ['whose address an administrator did not verify', { claims: { email_verified: false } }, 'no_account'],
        ['of another realm', { claims: { iss: 'https://sso.acme.example/realms/guests' } }, 'invalid_answer'],
        ['for another client', { claims: { azp: 'other' } }, 'invalid_answer'],
      ],
    };
  }),
  {
    title: 'Auth0',
    issuer: 'https://acme.eu.auth0.com/',
    metadata: {
      authorization_endpoint: 'https://acme.eu.auth0.com/authorize',
      token_endpoint: 'https://acme.eu.auth0.com/oauth/token',
      jwks_uri: 'https://acme.eu.auth0.com/.well-known/jwks.json',
      userinfo_endpoint: 'https://acme.eu.auth0.com/userinfo',
      end_session_endpoint: 'https://acme.eu.auth0.com/oidc/logout',
    },
    client: { group_claim: 'https://acme.example/groups', group_mappings: [leads('leads')] },
    claims: { sub: 'auth0|1', nickname: 'al', email: 'al@acme.example', 'https://acme.example/groups': ['leads'] },
    role: 'manager',
    signOut: 'https://acme.eu.auth0.com/oidc/logout',
    wrong: [
      ['who signed up with an address and did not open its mail', { claims: { email_verified: false } }, 'no_account'],
      ['of an issuer without the slash', { claims: { iss: 'https://acme.eu.auth0.com' } }, 'invalid_answer'],
    ],
  },
];

let world: SsoWorld;
let fake: FakeProvider;
let tables: Tables;
let workspace: string;
beforeAll(async () => {
  world = await startSsoWorld({ SLUICE_MASTER_KEY: MASTER_KEY });
  fake = await startFakeProvider();
  tables = await openSqliteTables({ file: join(world.dataDir, 'control.db'), log: silentLog });
  workspace = String((await world.admin('POST', '/admin/workspaces', { name: 'Research' })).body.id);
});
afterAll(async () => {
  await tables?.close();
  await world?.stop();
  await fake?.close();
});

/** The way to providers, whose calls reach the fake under the addresses of `metadata`, and nothing else. */
async function openAs(issuer: string, metadata: Claims): Promise<SingleSignOn> {
  const paths = new Map([
    [`${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`, '/.well-known/openid-configuration'],
    [metadata.token_endpoint, '/token'],
    [metadata.jwks_uri, '/jwks'],
    [metadata.userinfo_endpoint, '/userinfo'],
  ]);
  const keyring = await loadKeyring({ masterKey: MASTER_KEY, masterKeyFile: '', create: false });
  return openSingleSignOn({
    tables,
    vault: openVault({ keyring, tables, clock: systemClock }),
    clock: systemClock,
    log: silentLog,
    sessionsEnded: () => {},
    callsOf: () => async (input, init) => {
      const path = paths.get(String(input));
      if (path === undefined) throw new TypeError(`no call may go to ${String(input)}`);
      return fetch(`${fake.issuer}${path}`, init);
    },
  });
}

describe.each(MANNERS)('$title', (manner) => {
  const { issuer, metadata, claims, userinfo = {}, role, signOut } = manner;
  let id: string;
  let sso: SingleSignOn;
  const deeds: SsoDeed[] = [];
  beforeAll(async () => {
    const sendsIssuer = { authorization_response_iss_parameter_supported: manner.sendsIssuer === true };
    fake.metadata = { issuer, ...sendsIssuer, ...metadata };
    const text = JSON.stringify(manner.client).replaceAll('"W"', JSON.stringify(workspace));
    id = await world.client({ issuer, client_id: fake.clientId, name: manner.title, ...JSON.parse(text) });
    sso = await openAs(issuer, metadata);
  });

  async function signIn(change: { claims?: Claims; userinfo?: Claims }) {
    const client = await tables.systemRead((tx) => tx.find('sso_clients', { id }));
    if (client === undefined) throw new Error('no client');
    fake.current = {
      claims: (right) => ({ ...right, iss: issuer, ...claims, ...change.claims }),
      userinfo: { sub: claims.sub, ...userinfo, ...change.userinfo },
      query: (right) => {
        if (manner.sendsIssuer) right.set('iss', issuer);
        else right.delete('iss');
        return right;
      },
    };
    const attempt = { client, browser: 'b', returnTo: '/console/', publicUrl: PUBLIC, email: null };
    const { url } = await sso.begin(attempt);
    expect(url.startsWith(`${metadata.authorization_endpoint}?`)).toBe(true);
    // Google refuses a request with a scope that it does not know.
    const asked = new URL(url).searchParams.get('scope')?.split(' ') ?? [];
    const known = metadata.scopes_supported as string[] | undefined;
    expect(asked.filter((scope) => known?.includes(scope) === false)).toEqual([]);
    expect(asked).toEqual(expect.arrayContaining(['openid', 'email', 'profile']));
    deeds.length = 0;
    const query = new URL(await fake.approve(url)).search.slice(1);
    return sso.finish({
      ...{ query, browser: 'b', replaces: null, userAgent: undefined, publicUrl: PUBLIC },
      audit: async (_tx, deed) => void deeds.push(deed),
    });
  }

  it('metadata can be read', async () => {
    const organisation = world.first.organisation_id;
    expect(await sso.problemOf(organisation, issuer)).toBeNull();
    // The metadata for every tenant names no issuer that could be compared.
    if (issuer.includes('/common/')) return;
    const other = issuer.endsWith('/') ? issuer.slice(0, -1) : `${issuer}/`;
    expect(await sso.problemOf(organisation, other)).toContain('with or without a slash');
  });

  it.each(manner.wrong)('refuses a token %s', async (_title, change, error) => {
    expect(await signIn(change)).toEqual({ ok: false, error });
    expect(await world.user(String(claims.email))).toBeUndefined();
  });

  it('signs a user in, with the groups, and out where the provider has a page for it', async () => {
    expect(await signIn({})).toMatchObject({ ok: true, returnTo: '/console/' });
    const user = await world.user(String(claims.email));
    expect(user).toMatchObject({ role: 'member', first_name: claims.name === undefined ? 'Ada' : 'Eve' });
    expect(deeds).toMatchObject([{ action: 'auth.sign_in', userId: user?.id, after: { account: 'created' } }]);
    const place = await world.admin('GET', `/admin/workspaces/${workspace}/users/${user?.id}`);
    expect(place.status === 200 ? place.body.role : null).toBe(role);
    const session = { organisationId: world.first.organisation_id, clientId: id, idToken: 'a.b.c', publicUrl: PUBLIC };
    expect((await sso.endSessionUrl(session))?.split('?', 1)[0] ?? null).toBe(signOut);
    expect(await signIn({})).toMatchObject({ ok: true });
    expect(deeds).toMatchObject([{ userId: user?.id, after: { account: 'known' } }]);
  });
});

it.each(['common', 'organizations', 'consumers'])('the issuer %s of Entra ID needs a list of tenants', async (name) => {
  const body = { name, issuer: entra(name), client_id: 'x', client_secret: 'x' };
  const { status, body: answer } = await world.admin('POST', '/admin/organisation/sso-clients', body);
  expect([status, answer.error]).toEqual([400, expect.objectContaining({ param: 'issuer' })]);
});
