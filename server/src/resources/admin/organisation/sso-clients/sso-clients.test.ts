/** Registrations at identity providers: what may be saved, and what is ever shown of them. */
import { generateKeyPairSync } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AdminHarness, emptyTables, startAdmin } from '../../../../../test/support/admin.ts';
import { Services } from '../../../services.ts';
import { ISSUERS } from './index.ts';

const AT = '/v1/admin/organisation/sso-clients';
const SECRET = 'the-client-secret-of-acme';
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' });
const weak = generateKeyPairSync('rsa', { modulusLength: 1024 }).privateKey.export({ format: 'jwk' });
const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'jwk' });
const { kty, n, e } = rsa;
const base = { name: 'Acme', issuer: 'https://idp.acme.example', client_id: 'sluice', client_secret: SECRET };

let on: AdminHarness;
let made = 0;
/** Issuers whose metadata were read. */
const asked: string[] = [];
beforeAll(async () => {
  const services = new Services().provide(ISSUERS, {
    discover: async (_organisation, issuer) => {
      asked.push(issuer);
      return issuer.includes('away') ? 'It could not be read.' : null;
    },
  });
  on = await startAdmin(await emptyTables('sqlite'), { admin: { services } });
});
afterAll(() => on?.close());

const create = (body: object = {}) => on.call('POST', AT, { body: { ...base, name: `Acme ${made++}`, ...body } });
const read = async (id: string) => (await on.call('GET', `${AT}/${id}`)).body;
const put = (id: string, body: object) => on.call('PUT', `${AT}/${id}`, { body });
const paramOf = ({ status, body }: Awaited<ReturnType<typeof create>>) => [status, body.error?.param ?? null];

describe('an SSO client', () => {
  it('is shown with what has to be registered at the provider, and never with a secret', async () => {
    const { status, body } = await create({ jwks: { keys: [{ ...rsa, kid: 'one' }, ec] }, slug: 'acme' });
    expect([status, body]).toEqual([
      200,
      { id: expect.any(String), slug: 'acme', discovery: { ok: true, problem: null }, object: 'sso-client' },
    ]);
    const shown = await read('acme');
    expect(shown).toMatchObject({
      object: 'sso-client',
      type: 'oidc',
      token_endpoint_auth_method: 'private_key_jwt',
      scopes: ['openid', 'profile', 'email', 'offline_access'],
      redirect_uri: 'https://sluice.example/v2/auth/callback',
      jwks_uri: `https://sluice.example/v2/auth/jwks/${body.id}`,
      backchannel_logout_uri: `https://sluice.example/v2/auth/backchannel-logout/${body.id}`,
      masked_client_secret: expect.stringMatching(/^\*{7}[0-9a-f]{8}$/),
      group_claim: 'groups',
      vouched_role: 'owner',
    });
    const row = await on.tables.systemRead((tx) => tx.find('sso_clients', { id: body.id }));
    expect(row?.published_keys).toEqual([
      { kty, n, e, kid: 'one', use: 'sig', alg: 'RS256' },
      { kty: 'EC', crv: 'P-256', x: ec.x, y: ec.y, kid: expect.any(String), use: 'sig', alg: 'ES256' },
    ]);
    const list = (await on.call('GET', AT)).text;
    const log = JSON.stringify(await on.tables.systemRead((tx) => tx.list('audit_log')));
    for (const text of [JSON.stringify(shown), list, log]) {
      for (const secret of [SECRET, String(rsa.d), String(ec.d)]) expect(text).not.toContain(secret);
    }
    expect(paramOf(await put('acme', { client_secret: shown.masked_client_secret }))).toEqual([400, 'client_secret']);
  });

  it.each([
    ['SAML', { type: 'saml' }, 'type'],
    ['an issuer with a query', { issuer: 'https://idp.example/?a' }, 'issuer'],
    ['an issuer with a user', { issuer: 'https://me@idp.example' }, 'issuer'],
    ['plain http', { issuer: 'http://idp.example' }, 'issuer'],
    ['all tenants of Entra', { issuer: 'https://login.microsoftonline.com/common/v2.0' }, 'issuer'],
    ['no secret', { client_secret: undefined }, 'client_secret'],
    ['private_key_jwt without a key', { token_endpoint_auth_method: 'private_key_jwt' }, 'jwks'],
    ['a method without a secret', { token_endpoint_auth_method: 'none' }, 'token_endpoint_auth_method'],
    ['a public key to sign with', { jwks: { keys: [rsa, { kty, n, e }] } }, 'jwks.keys[1]'],
    ['a symmetric key', { jwks: { keys: [{ kty: 'oct', k: 'c2VjcmV0', d: 'x' }] } }, 'jwks.keys[0]'],
    ['a weak key', { jwks: { keys: [weak] } }, 'jwks.keys[0]'],
    ['no keys', { jwks: { keys: [] } }, 'jwks.keys'],
    ['private keys of the provider', { provider_jwks: { keys: [rsa] } }, 'provider_jwks.keys[0]'],
    ['scopes without openid', { scopes: ['email'] }, 'scopes'],
    ['a group of owners', { group_mappings: [{ group: 'g', role: 'owner' }] }, 'group_mappings[0].role'],
  ])('is refused with %s', async (_title, body, param) => {
    expect(paramOf(await create(body))).toEqual([400, param]);
  });

  it.each(['https://me:secret@idp.example', 'http://idp.example', 'https://idp.example/?a'])(
    'is not asked for at a refused address: %s',
    async (issuer) => {
      const before = asked.length;
      expect(paramOf(await create({ issuer }))).toEqual([400, 'issuer']);
      expect(paramOf(await put('acme', { issuer, client_secret: 'another' }))).toEqual([400, 'issuer']);
      expect(asked).toHaveLength(before);
    },
  );

  it('takes the address of the metadata for the issuer, and all tenants of Entra with a list of them', async () => {
    const pasted = await create({ issuer: 'https://idp.acme.example/x/.well-known/openid-configuration' });
    expect((await read(pasted.body.id)).issuer).toBe('https://idp.acme.example/x');
    const issuer = 'https://login.microsoftonline.com/organizations/v2.0';
    const entra = await create({ issuer, allowed_tenants: ['t1'] });
    expect(paramOf(await put(entra.body.id, { allowed_tenants: null }))).toEqual([400, 'issuer']);
  });

  it('is saved although its provider is away, and says so', async () => {
    const { body } = await create({ issuer: 'https://away.example' });
    expect(body.discovery).toEqual({ ok: false, problem: 'It could not be read.' });
    expect((await read(body.id)).discovery).toEqual(body.discovery);
  });

  it('takes another issuer only with its secret sent anew', async () => {
    const { body } = await create();
    const issuer = 'https://other.example';
    expect(paramOf(await put(body.id, { issuer }))).toEqual([400, 'client_secret']);
    expect((await put(body.id, { issuer: base.issuer })).status).toBe(200);
    expect((await put(body.id, { issuer, client_secret: 'another' })).status).toBe(200);
  });

  it('is the only default, is unseen by other organisations, and there are twenty', async () => {
    const one = await create({ is_default: true });
    const two = await create({ is_default: true });
    expect([(await read(one.body.id)).is_default, (await read(two.body.id)).is_default]).toEqual([false, true]);
    const other = { key: on.b.admin_api_key };
    expect((await on.call('GET', `${AT}/${one.body.id}`, other)).status).toBe(404);
    expect((await on.call('PUT', `${AT}/${one.body.id}`, { ...other, body: { name: 'x' } })).status).toBe(404);
    expect((await on.call('GET', AT, other)).body.data).toEqual([]);
    let last = two;
    while (last.status === 200) last = await create();
    expect((await on.call('GET', AT)).body.total).toBe(20);
    expect(last.body.error.message).toContain('at most 20');
    expect((await on.call('DELETE', `${AT}/${one.body.id}`)).status).toBe(200);
    expect((await create()).status).toBe(200);
  });

  it('gives by groups only what whoever saves it could give, and vouches for nobody above', async () => {
    const { body: key } = await on.call('POST', '/v1/api-keys/organisation/service', {
      body: { name: 'settings', scopes: ['organisation_settings.update', 'organisation_settings.read'] },
    });
    const { id } = (await on.call('GET', AT)).body.data[0];
    const as = (given: object) => on.call('PUT', `${AT}/${id}`, { key: key.key, body: given });
    const group_mappings = [{ group: 'g', role: 'admin' }];
    expect(paramOf(await as({ group_mappings }))).toEqual([403, 'group_mappings[0].role']);
    expect((await put(id, { group_mappings })).status).toBe(200);
    expect((await as({ name: 'Renamed' })).status).toBe(200);
    expect((await read(id)).vouched_role).toBe('owner');
    expect((await as({ client_id: 'other' })).status).toBe(200);
    expect((await read(id)).vouched_role).toBe('member');
    expect((await put(id, { client_id: 'other' })).status).toBe(200);
    expect((await read(id)).vouched_role).toBe('owner');
  });
});
