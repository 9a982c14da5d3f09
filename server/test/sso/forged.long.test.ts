/** Answers of a provider, and returns of browsers, that were made up: each is refused, by a fixed word and an audit row. */
import { SignJWT, UnsecuredJWT } from 'jose';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { scopesOf } from '../../src/auth/scopes.ts';
import { type Case, type Claims, type FakeProvider, startFakeProvider } from '../support/fake-provider.ts';
import { EMAIL, type SsoWorld, startSsoWorld } from '../support/sso-world.ts';

let world: SsoWorld;
let fake: FakeProvider;
let stranger: FakeProvider;
let id: string;
beforeAll(async () => {
  world = await startSsoWorld();
  fake = await startFakeProvider();
  stranger = await startFakeProvider('sluice');
  id = await world.client({ issuer: fake.issuer, client_id: fake.clientId, slug: 'fake', is_default: true });
});
afterAll(async () => {
  await world?.stop();
  await fake?.close();
  await stranger?.close();
});
beforeEach(() => {
  fake.current = {};
  fake.exchanges.length = 0;
});

const now = () => Math.floor(Date.now() / 1000);
const refusedAs = (error: string) => `/console/sign-in?error=${error}`;
const claims = (change: Claims): Case => ({ claims: (right) => ({ ...right, ...change }) });

async function signIn(given: Case, body?: Record<string, unknown>) {
  fake.current = given;
  const browser = world.browser();
  const answer = await browser.open(await fake.approve(await browser.login(body)));
  return { browser, answer };
}

it('a right answer signs in, and its code is exchanged with its verifier, once', async () => {
  const { browser, answer } = await signIn({});
  expect(answer.location).toBe('/console/');
  expect(await browser.self()).toMatchObject({ email: EMAIL });
  const [exchange] = fake.exchanges;
  expect(exchange?.authorization).toBe(`Basic ${Buffer.from('sluice:secret').toString('base64')}`);
  expect(exchange?.form.get('code_verifier')).toMatch(/^[\w-]{43}$/);
  expect(fake.exchanges).toHaveLength(1);
});

describe('an ID token is refused', () => {
  it.each<[string, Case]>([
    ['with another nonce', claims({ nonce: 'other' })],
    ['without a nonce', claims({ nonce: undefined })],
    ['of another issuer', claims({ iss: 'https://evil.example' })],
    ['for another audience', claims({ aud: 'other' })],
    ['for several audiences without azp', claims({ aud: ['sluice', 'other'] })],
    ['that names another party', claims({ azp: 'other' })],
    ['that has expired', claims({ exp: now() - 120 })],
    ['without an end', claims({ exp: undefined })],
    ['that was made in the future', claims({ iat: now() + 120 })],
    ['without a time', claims({ iat: undefined })],
    ['that is not valid yet', claims({ nbf: now() + 120 })],
    ['with an empty subject', claims({ sub: '' })],
    ['with a subject that is a number', claims({ sub: 7 })],
    ['with a long subject', claims({ sub: 'x'.repeat(256) })],
    ['with a subject of control characters', claims({ sub: 'a\u0000b' })],
    ['that is a logout token', { header: { typ: 'logout+jwt' } }],
    ['that is an access token', { header: { typ: 'at+jwt' } }],
    ['with an unknown crit', { header: { crit: ['x'], x: 1 } }],
    ['that nobody signed', { sign: async (own) => new UnsecuredJWT(own).encode() }],
    [
      'whose claims were changed after it was signed',
      {
        sign: async (own) => {
          const [head, , signature] = (await fake.sign(own)).split('.');
          return [head, Buffer.from(JSON.stringify({ ...own, sub: 'eve' })).toString('base64url'), signature].join('.');
        },
      },
    ],
    ['without its signature', { sign: async (own) => `${(await fake.sign(own)).split('.').slice(0, 2).join('.')}.` }],
    [
      'signed with the public key as a secret',
      {
        sign: async (own) =>
          new SignJWT(own).setProtectedHeader({ alg: 'HS256', kid: 'key-0' }).sign(Buffer.from(await fake.publicPem())),
      },
    ],
    [
      'signed with the client secret',
      {
        sign: async (own) =>
          new SignJWT(own).setProtectedHeader({ alg: 'HS256' }).sign(Buffer.from('secret'.padEnd(32, '0'))),
      },
    ],
    ['signed with a key that is not published', { sign: (own) => stranger.sign(own) }],
    ['signed with a key that is named and not published', { sign: (own) => stranger.sign(own, { kid: 'unknown' }) }],
  ])('%s', async (_title, given) => {
    // Another subject than that of the right answer, so that nobody is known by it.
    const { browser, answer } = await signIn(given);
    expect([answer.status, answer.location]).toEqual([302, refusedAs('invalid_answer')]);
    expect(await browser.self()).toBeNull();
    expect((await world.audited())[0]).toMatchObject({ type: 'auth.sign_in_failed', status: 401, userId: null });
  });

  it('that is missing, or that the token endpoint refuses', async () => {
    const none = await signIn({ token: { status: 200, body: { access_token: 'a', token_type: 'Bearer' } } });
    expect(none.answer.location).toBe(refusedAs('invalid_answer'));
    const refused = await signIn({ token: { status: 400, body: { error: 'invalid_grant' } } });
    expect(refused.answer.location).toBe(refusedAs('provider_error'));
  });
});

it('of keys of one name each is tried, and four at most', async () => {
  for (let n = 0; n < 4; n++) await fake.rotate(true, 'twin');
  expect((await signIn({})).answer.location, 'the fourth of its name has signed').toBe('/console/');
  expect((await signIn({ sign: (own) => stranger.sign(own, { kid: 'twin' }) })).answer.location).toBe(
    refusedAs('invalid_answer'),
  );
  for (let n = 0; n < 5; n++) await fake.rotate(true, 'crowd');
  expect((await signIn({})).answer.location, 'the fifth has signed').toBe(refusedAs('invalid_answer'));
  await fake.rotate(false);
  expect((await signIn({})).answer.location).toBe('/console/');
});

describe('a return of a browser', () => {
  const change = (name: string, value: string | null): Case => ({
    query: (right) => {
      if (value === null) right.delete(name);
      else right.set(name, value);
      return right;
    },
  });

  it.each<[string, Case, string, number]>([
    ['without a state', change('state', null), 'expired', 0],
    ['with another state', change('state', 'A'.repeat(43)), 'expired', 0],
    ['with the issuer of another', change('iss', 'https://evil.example'), 'invalid_answer', 0],
    ['without an issuer, where the provider promises one', change('iss', null), 'invalid_answer', 0],
    ['without a code', change('code', null), 'invalid_answer', 0],
    ['with a stolen code', change('code', 'code-of-another'), 'provider_error', 1],
    [
      'that was refused',
      {
        query: (right) => {
          right.delete('code');
          right.set('error', 'access_denied');
          return right;
        },
      },
      'access_denied',
      0,
    ],
    [
      'with an error of markup',
      {
        query: (right) => {
          right.delete('code');
          right.set('error', '<script>alert(1)</script>');
          right.set('error_description', '<script>x</script>');
          return right;
        },
      },
      'provider_error',
      0,
    ],
  ])('%s is refused', async (_title, given, error, exchanges) => {
    const { browser, answer } = await signIn(given);
    expect([answer.status, answer.location]).toEqual([302, refusedAs(error)]);
    expect(fake.exchanges).toHaveLength(exchanges);
    expect(answer.body).not.toContain('script');
    expect(await browser.self()).toBeNull();
  });

  it.each(['state', 'code', 'iss', 'error'])('with %s twice is refused before anything is asked', async (name) => {
    const browser = world.browser();
    const back = `${await fake.approve(await browser.login())}&${name}=a${name === 'error' ? '&error=b' : ''}`;
    expect((await browser.open(back)).location).toBe(refusedAs('expired'));
    expect(fake.exchanges).toHaveLength(0);
  });

  it('works once: a second use, and the second of two at the same moment, ask the provider for nothing', async () => {
    const browser = world.browser();
    const back = await fake.approve(await browser.login());
    const both = await Promise.all([browser.open(back), browser.open(back)]);
    expect(both.map(({ location }) => location).sort()).toEqual(['/console/', refusedAs('expired')].sort());
    expect((await browser.open(back)).location).toBe(refusedAs('expired'));
    expect(fake.exchanges).toHaveLength(1);
  });

  it('in a second browser is refused, and stays good in the first', async () => {
    const [victim, attacker] = [world.browser(), world.browser()];
    const back = await fake.approve(await attacker.login());
    await victim.login();
    expect((await victim.open(back)).location).toBe(refusedAs('expired'));
    expect((await world.browser().open(back)).location).toBe(refusedAs('expired'));
    expect(fake.exchanges).toHaveLength(0);
    expect((await attacker.open(back)).location).toBe('/console/');
  });

  it('of another provider asks that provider for nothing, nor sends it the code', async () => {
    const other = await world.client({ issuer: stranger.issuer, client_id: 'sluice', slug: 'stranger' });
    const browser = world.browser();
    const asked = await browser.login({ email: EMAIL, sso_client_id: 'stranger' });
    stranger.current = {
      query: (right) => {
        right.set('iss', fake.issuer);
        return right;
      },
    };
    expect((await browser.open(await stranger.approve(asked))).location).toBe(refusedAs('invalid_answer'));
    expect([fake.exchanges.length, stranger.exchanges.length]).toEqual([0, 0]);
    stranger.current = {};
    await world.change(other, { status: 'disabled' });
  });

  it('is GET only, and HEAD uses nothing up', async () => {
    const browser = world.browser();
    const back = await fake.approve(await browser.login());
    for (const method of ['POST', 'HEAD', 'PUT']) expect((await browser.send(method, back)).status).toBe(405);
    expect((await browser.open(back)).location).toBe('/console/');
  });

  it('gives a new session, whatever cookie was planted, and ends the one before', async () => {
    const browser = world.browser();
    browser.cookies.set('sluice_session', 'A'.repeat(43));
    await browser.open(await fake.approve(await browser.login({ email: EMAIL, sso_client_id: 'fake' })));
    const first = browser.cookies.get('sluice_session') ?? '';
    expect(first).not.toBe('A'.repeat(43));
    await browser.open(await fake.approve(await browser.login({ email: EMAIL, sso_client_id: 'fake' })));
    expect(browser.cookies.get('sluice_session')).not.toBe(first);
    const old = world.browser();
    old.cookies.set('sluice_session', first);
    expect(await old.self()).toBeNull();
  });
});

describe('login', () => {
  it.each([
    '//evil.example',
    '/\\evil.example',
    '/console/..//evil',
    '/console/%2e%2e/x',
    '/console%0d%0aset-cookie:a=b',
    'https://evil.example/console/',
    '/consolevil',
    '/console/%5cevil',
    '/console/\u0000',
    '/v1/x',
    'console',
  ])('refuses to return to %j', async (return_to) => {
    const answer = await world.browser().send('POST', '/v2/auth/login', { email: EMAIL, return_to });
    expect([answer.status, answer.body.error.param]).toEqual([400, 'return_to']);
  });

  it('says the same of every address of the domain, and lists its providers', async () => {
    const ask = (email: string) => world.browser().send('POST', '/v2/auth/login', { email });
    const [known, unknown] = [await ask(EMAIL), await ask('nobody-at-all@sub.acme.example')];
    const strip = ({ status, body }: typeof known) => ({ status, body: { ...body, url: new URL(body.url).pathname } });
    expect(strip(unknown)).toEqual(strip(known));
    expect(known.body.linked_sso[0]).toEqual({ id, name: 'Provider', type: 'oidc' });
    expect((await ask('ada@elsewhere.example')).body.error.param).toBe('email');
    const named = (sso_client_id: string, email = EMAIL) =>
      world
        .browser()
        .send('POST', '/v2/auth/login', { email, sso_client_id })
        .then(({ status, body }) => [status, body.error?.param]);
    expect(await named('nothing')).toEqual([404, 'sso_client_id']);
    expect(await named('stranger')).toEqual([404, 'sso_client_id']);
    expect(await named('fake', 'ada@elsewhere.example')).toEqual([404, 'sso_client_id']);
    expect(await named(id)).toEqual([200, undefined]);
  });
});

describe('whose account it is', () => {
  const person = (sub: string, email: unknown, more: Claims = {}): Case => ({
    ...claims({ sub, email, ...more }),
    userinfo: { sub },
  });
  const located = async (given: Case) => (await signIn(given)).answer.location;
  const reason = async () => (await world.audited())[0]?.after.reason;

  it.each<[string, Claims]>([
    ['not verified', { email_verified: false }],
    ['verified by a text', { email_verified: 'true' }],
    ['verified by a number', { email_verified: 1 }],
    ['of which nothing is said', { email_verified: undefined }],
    ['vouched for by a claim that nobody named', { email_verified: undefined, xms_edov: true }],
    ['of another domain', { email: 'v@evil.example' }],
    ['of a subdomain’s look-alike', { email: 'v@acme.example.evil.example' }],
    ['with two @', { email: 'v@evil.example@acme.example' }],
    ['with letters that look alike', { email: 'v@acmé.example' }],
    ['with a line break', { email: 'v@acme.example\n' }],
    ['of an object', { email: { a: 1 } }],
    ['that is missing', { email: undefined }],
  ])('none for an address %s', async (_title, change) => {
    expect(await located(person('stranger-1', 'v@acme.example', change))).toBe(refusedAs('no_account'));
    expect(await world.user('v@acme.example')).toBeUndefined();
  });

  it('is the account of the subject, whatever the address: another subject with it gets none', async () => {
    await located(person('s-1', 'mary@acme.example'));
    const mary = await world.user('mary@acme.example');
    expect(mary).toMatchObject({ role: 'member' });
    expect(await located(person('s-2', 'mary@acme.example'))).toBe(refusedAs('no_account'));
    expect(await reason()).toContain('another subject');
    expect(await located(person('s-2', 'MARY@ACME.EXAMPLE'))).toBe(refusedAs('no_account'));
    // At another issuer the same subject is somebody else.
    stranger.current = person('s-1', 'mary@acme.example');
    await world.client({ issuer: stranger.issuer, client_id: 'sluice', slug: 'second' });
    const browser = world.browser();
    const asked = await browser.login({ email: EMAIL, sso_client_id: 'second' });
    expect((await browser.open(await stranger.approve(asked))).location).toBe(refusedAs('no_account'));
    stranger.current = {};
    // The subject keeps the account under a new address; an unverified one changes nothing.
    expect(await located(person('s-1', 'other@evil.example'))).toBe('/console/');
    expect((await world.user('mary@acme.example'))?.id).toBe(mary?.id);
    expect(await located(person('s-1', 'mary.king@acme.example'))).toBe('/console/');
    expect((await world.user('mary.king@acme.example'))?.id).toBe(mary?.id);
  });

  it('accepts an open invite, and brings nobody back who was removed', async () => {
    const invite = { email: 'ivy@acme.example', role: 'admin', workspaces: [] };
    expect((await world.admin('POST', '/admin/users/invites', invite)).status).toBe(200);
    expect(await located(person('ivy', 'ivy@acme.example'))).toBe('/console/');
    const ivy = await world.user('ivy@acme.example');
    expect(ivy).toMatchObject({ role: 'admin' });
    await world.admin('DELETE', `/admin/users/${ivy?.id}`);
    expect(await located(person('ivy', 'ivy@acme.example'))).toBe(refusedAs('no_account'));
    expect(await located(person('ivy-2', 'ivy@acme.example'))).toBe(refusedAs('no_account'));
    expect(await world.user('ivy@acme.example')).toBeUndefined();
  });

  it('accepts an invite that asks for API keys without them, for no answer could show their secrets', async () => {
    const invite = {
      email: 'noor@acme.example',
      role: 'member',
      workspaces: [{ id: world.first.workspace_id, role: 'member' }],
      workspace_api_key_details: { name: 'Noor', scopes: ['completions.write'] },
    };
    const sent = await world.admin('POST', '/admin/users/invites', invite);
    expect(sent.status, JSON.stringify(sent.body)).toBe(200);
    expect(await located(person('noor', 'noor@acme.example'))).toBe('/console/');
    const { body } = await world.admin('GET', `/api-keys?workspace_id=${world.first.workspace_id}`);
    expect((body.data as { name: string }[]).filter(({ name }) => name === 'Noor')).toEqual([]);
    expect((await world.audited())[0]).toMatchObject({ type: 'auth.sign_in', after: { api_keys_left_out: true } });
  });

  it('above the role of who last set the provider is none: neither by subject nor by invite', async () => {
    const invited = async (email: string) => {
      const invite = { email, role: 'admin', workspaces: [] };
      expect((await world.admin('POST', '/admin/users/invites', invite)).status).toBe(200);
    };
    await invited('vera@acme.example');
    expect(await located(person('vera', 'vera@acme.example'))).toBe('/console/');
    const scopes = ['organisation_settings.update', 'organisation_settings.read'];
    const { body: key } = await world.admin('POST', '/api-keys/organisation/service', { name: 'settings', scopes });
    const at = `/admin/organisation/sso-clients/${id}`;
    const trusted = (by?: string) => world.admin('PUT', at, { client_id: fake.clientId }, by);
    expect((await trusted(String(key.key))).status).toBe(200);
    await invited('otto@acme.example');
    for (const name of ['vera', 'otto']) {
      expect(await located(person(name, `${name}@acme.example`))).toBe(refusedAs('no_account'));
      expect(await reason()).toContain('somebody below it');
    }
    expect((await trusted()).status).toBe(200);
    for (const name of ['vera', 'otto']) {
      expect(await located(person(name, `${name}@acme.example`))).toBe('/console/');
      expect(await world.user(`${name}@acme.example`)).toMatchObject({ role: 'admin' });
    }
  });

  it('an invite counts only while its sender may still send it', async () => {
    const scopes = [...scopesOf('organisation-service')];
    const { body: key } = await world.admin('POST', '/api-keys/organisation/service', { name: 'inviter', scopes });
    const invite = { email: 'paula@acme.example', role: 'admin', workspaces: [] };
    expect((await world.admin('POST', '/admin/users/invites', invite, String(key.key))).status).toBe(200);
    const less = { scopes: ['organisation_users.create'] };
    expect((await world.admin('PUT', `/api-keys/${key.id}`, less)).status).toBe(200);
    expect(await located(person('paula', 'paula@acme.example'))).toBe('/console/');
    expect(await world.user('paula@acme.example')).toMatchObject({ role: 'member' });
  });

  it('makes none with disable_auto_provision_user, and lets those in who have one', async () => {
    const set = (on: boolean) =>
      world.admin('PUT', '/admin/organisation/settings', { auth_settings: { disable_auto_provision_user: on } });
    await set(true);
    expect(await located(person('zoe', 'zoe@acme.example'))).toBe(refusedAs('no_account'));
    expect(await located({})).toBe('/console/');
    await set(false);
    expect(await located(person('zoe', 'zoe@acme.example'))).toBe('/console/');
  });

  it('takes what is missing from userinfo of the same subject, and refuses that of another', async () => {
    const bare = { email: undefined, email_verified: undefined, given_name: undefined, family_name: undefined };
    const userinfo = { sub: 'uma', email: 'uma@acme.example', email_verified: true, name: 'Uma Thorn' };
    const at = { ...claims({ sub: 'uma', ...bare }), userinfo };
    expect(await located({ ...at, userinfo: { ...userinfo, sub: 'eve' } })).toBe(refusedAs('invalid_answer'));
    expect(await located(at)).toBe('/console/');
    expect(await world.user('uma@acme.example')).toMatchObject({ first_name: 'Uma', last_name: 'Thorn' });
    fake.asked.length = 0;
    await located({});
    expect(fake.asked).not.toContain('/userinfo');
  });
});
