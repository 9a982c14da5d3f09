/** Signing in through an identity provider, on a whole server: a certified provider, and one that lies. */
import { generateKeyPairSync } from 'node:crypto';
import { UnsecuredJWT } from 'jose';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { directoryOf } from '../scim/world.ts';
import { type CertifiedProvider, startCertifiedProvider } from '../support/certified-provider.ts';
import { type Case, type Claims, type FakeProvider, startFakeProvider } from '../support/fake-provider.ts';
import { type Browser, EMAIL, type SsoWorld, startSsoWorld } from '../support/sso-world.ts';

/** Each half is written as a form's before base64: what a naive client gets wrong. */
const SECRET = 'p%s+s:w=rd/&-and-more-than-enough';
const key = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const jwk = { ...key.privateKey.export({ format: 'jwk' }), kid: 'first', alg: 'ES256', use: 'sig' };
const { d: _private, ...publicJwk } = jwk as Record<string, unknown>;

let world: SsoWorld;
let certified: CertifiedProvider;
let fake: FakeProvider;
beforeAll(async () => {
  world = await startSsoWorld();
  const uris = { redirect_uris: [`${world.url}/v2/auth/callback`], grant_types: ['authorization_code'] };
  const method = (name: string) => ({ token_endpoint_auth_method: name, ...uris });
  certified = await startCertifiedProvider(
    [
      { client_id: 'basic', client_secret: SECRET, ...method('client_secret_basic') },
      { client_id: 'post', client_secret: SECRET, ...method('client_secret_post') },
      {
        client_id: 'key',
        jwks: { keys: [publicJwk] },
        token_endpoint_auth_signing_alg: 'ES256',
        ...method('private_key_jwt'),
      },
    ],
    (account) => ({ email: `${account}@acme.example`, email_verified: true, given_name: 'Ada', family_name: account }),
  );
  fake = await startFakeProvider();
  await world.client({ issuer: fake.issuer, client_id: fake.clientId, slug: 'fake', is_default: true });
});
afterAll(async () => {
  await world?.stop();
  await certified?.close();
  await fake?.close();
});

describe('a certified provider signs users in', () => {
  it.each([
    ['client_secret_basic', 'basic', { client_secret: SECRET }],
    ['client_secret_post', 'post', { client_secret: SECRET, token_endpoint_auth_method: 'client_secret_post' }],
    ['private_key_jwt', 'key', { client_secret: null, jwks: { keys: [jwk] } }],
  ])('by %s', async (_method, client_id, body) => {
    const slug = `certified-${client_id}`;
    await world.client({ slug, issuer: certified.issuer, client_id, scopes: ['openid', 'email', 'profile'], ...body });
    certified.account = `by-${client_id}`;
    const browser = world.browser();
    const url = await browser.login({ email: EMAIL, sso_client_id: slug, return_to: '/console/logs?x=1' });
    const asked = new URL(url).searchParams;
    expect(Object.fromEntries(asked)).toMatchObject({
      response_type: 'code',
      client_id,
      redirect_uri: `${world.url}/v2/auth/callback`,
      scope: 'openid email profile',
      code_challenge_method: 'S256',
      login_hint: EMAIL,
    });
    const answer = await browser.open(await certified.approve(url));
    expect([answer.status, answer.location]).toEqual([302, '/console/logs?x=1']);
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      'cache-control': 'no-store',
      'referrer-policy': 'no-referrer',
    });
    expect(await browser.self()).toMatchObject({
      email: `by-${client_id}@acme.example`,
      role: 'member',
      first_name: 'Ada',
    });
    expect((await world.audited())[0]).toMatchObject({
      type: 'auth.sign_in',
      after: { account: 'created' },
      userId: (await browser.self())?.id,
    });
  });
});

/** `forged.long.test.ts` has the whole list. */
describe('a made-up answer is refused', () => {
  const claims = (change: Claims): Case => ({ claims: (right) => ({ ...right, ...change }) });
  const past = Math.floor(Date.now() / 1000) - 120;
  const reachedBy = async (given: Case, open = (own: Browser, back: string) => own.open(back)) => {
    fake.current = given;
    fake.exchanges.length = 0;
    const browser = world.browser();
    const answer = await open(browser, await fake.approve(await browser.login()));
    fake.current = {};
    return [answer.location, await browser.self(), fake.exchanges.length];
  };

  it.each<[string, Case, string, number]>([
    ['with another nonce', claims({ nonce: 'other' }), 'invalid_answer', 1],
    ['that nobody signed', { sign: async (own) => new UnsecuredJWT(own).encode() }, 'invalid_answer', 1],
    ['for another audience', claims({ aud: 'other' }), 'invalid_answer', 1],
    ['that has expired', claims({ exp: past }), 'invalid_answer', 1],
    ['of another issuer', claims({ iss: 'https://evil.example' }), 'invalid_answer', 1],
    ['with an empty subject', claims({ sub: '' }), 'invalid_answer', 1],
    ['with an address that is not verified', claims({ sub: 'v', email_verified: 'true' }), 'no_account', 1],
    [
      'whose return names another issuer',
      { query: (right) => new URLSearchParams({ ...Object.fromEntries(right), iss: 'https://evil.example' }) },
      'invalid_answer',
      0,
    ],
  ])('%s', async (_title, given, error, exchanges) => {
    expect(await reachedBy(given)).toEqual([`/console/sign-in?error=${error}`, null, exchanges]);
  });

  it('whose state was used before, or comes in a second browser', async () => {
    const again = await reachedBy({}, async (own, back) => {
      await own.open(back);
      return own.open(back);
    });
    expect([again[0], again[2]]).toEqual(['/console/sign-in?error=expired', 1]);
    const stolen = await reachedBy({}, (_own, back) => world.browser().open(back));
    expect(stolen).toEqual(['/console/sign-in?error=expired', null, 0]);
  });

  it.each(['https://evil.example/console/', '//evil.example', '/\\evil.example', '/console/%2e%2e/x'])(
    'as is a login that is to end at %j',
    async (return_to) => {
      const { status, body } = await world.browser().send('POST', '/v2/auth/login', { email: EMAIL, return_to });
      expect([status, body.error.param]).toEqual([400, 'return_to']);
    },
  );
});

it('an address counts as verified only where the provider says so beside that address', async () => {
  const signIn = async (sub: string, email: string) => {
    const claims = (right: Claims) => ({
      ...right,
      sub,
      email: 'linus@acme.example',
      email_verified: undefined,
      given_name: undefined,
    });
    fake.current = { claims, userinfo: { sub, email, email_verified: true } };
    const browser = world.browser();
    const { location } = await browser.open(await fake.approve(await browser.login()));
    fake.current = {};
    return location;
  };
  expect(await signIn('linus-1', 'somebody@acme.example')).toBe('/console/sign-in?error=no_account');
  expect(await signIn('linus-2', 'Linus@acme.example')).toBe('/console/');
});

it('who was removed comes back to the account that a directory makes for them anew, and to no other', async () => {
  const directory = await directoryOf(world);
  const signIn = async (email: string) => {
    fake.current = { claims: (right) => ({ ...right, sub: 'joan', email }), userinfo: { sub: 'joan' } };
    const browser = world.browser();
    const { location } = await browser.open(await fake.approve(await browser.login()));
    fake.current = {};
    return { location, self: await browser.self() };
  };
  const first = await directory.user('joan@acme.example');
  expect((await signIn('joan@acme.example')).self).toMatchObject({ id: first });
  expect((await directory.send('DELETE', `/Users/${first}`)).status).toBe(204);
  const refused = { location: '/console/sign-in?error=no_account', self: null };
  expect(await signIn('joan@acme.example')).toEqual(refused);
  expect(await signIn('clarke@acme.example')).toEqual(refused);
  const second = await directory.user('joan@acme.example');
  expect(second).not.toBe(first);
  expect((await signIn('joan@acme.example')).self).toMatchObject({ id: second });
  expect((await signIn('joan@acme.example')).self).toMatchObject({ id: second });
});

it('a user of a directory keeps the address that the directory says; others follow their provider', async () => {
  const directory = await directoryOf(world);
  const managed = await directory.user('grace@acme.example');
  const signIn = async (sub: string, email: string) => {
    fake.current = { claims: (right) => ({ ...right, sub, email }), userinfo: { sub } };
    const browser = world.browser();
    expect((await browser.open(await fake.approve(await browser.login()))).location).toBe('/console/');
    fake.current = {};
    return browser.self();
  };
  expect(await signIn('grace', 'grace@acme.example')).toMatchObject({ id: managed });
  expect(await signIn('grace', 'hopper@acme.example')).toMatchObject({ id: managed, email: 'grace@acme.example' });
  const own = await signIn('mary', 'mary@acme.example');
  expect(await signIn('mary', 'king@acme.example')).toMatchObject({ id: own?.id, email: 'king@acme.example' });
});

describe('the routes of a provider', () => {
  const logout = (address: string, logout_token: string, to = '00000000-0000-7000-8000-000000000000') =>
    fetch(`${world.url}/v2/auth/backchannel-logout/${to}`, {
      method: 'POST',
      headers: { 'x-forwarded-for': address },
      body: new URLSearchParams({ logout_token }),
    });

  it('take 60 requests of an address in a minute, as all of signing in', async () => {
    const browser = world.browser('10.9.0.1');
    const callback = () => browser.open('/v2/auth/callback?state=none');
    const keys = () => browser.send('GET', '/v2/auth/jwks/00000000-0000-7000-8000-000000000000');
    const statuses = new Set<number>();
    // A minute may end on the way: more than twice as many are too many in any case.
    for (let count = 0; count < 130; count++) statuses.add((await keys()).status);
    expect([...statuses].sort()).toEqual([404, 429]);
    const refused = await keys();
    expect([refused.status, Number(refused.headers.get('retry-after')) > 0]).toEqual([429, true]);
    expect((await callback()).location).toBe('/console/sign-in?error=too_many');
    expect((await browser.send('POST', '/v2/auth/login', { email: EMAIL })).status).toBe(429);
    // Sessions must still end.
    expect((await logout('10.9.0.1', 'x')).status).toBe(400);
  });

  it('read no more than 64 KB of a logout token', async () => {
    const answer = await logout('10.9.0.2', 'x'.repeat(70_000));
    expect([answer.status, answer.headers.get('connection'), await answer.text()]).toEqual([
      400,
      'close',
      '{"error":"invalid_request"}',
    ]);
  });
});
