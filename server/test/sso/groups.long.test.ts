/** What groups of a provider give and take, and signing out there, on a whole server. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Claims, type FakeProvider, startFakeProvider } from '../support/fake-provider.ts';
import { EMAIL, type SsoWorld, startSsoWorld } from '../support/sso-world.ts';

let world: SsoWorld;
let fake: FakeProvider;
let id: string;
let workspace: string;
beforeAll(async () => {
  world = await startSsoWorld();
  fake = await startFakeProvider();
  workspace = String((await world.admin('POST', '/admin/workspaces', { name: 'Research' })).body.id);
  id = await world.client({
    issuer: fake.issuer,
    client_id: fake.clientId,
    group_mappings: [
      { group: 'admins', role: 'admin' },
      { group: 'research', workspace_id: workspace, workspace_role: 'member' },
      { group: 'leads', workspace_id: workspace, workspace_role: 'manager' },
    ],
  });
});
afterAll(async () => {
  await world?.stop();
  await fake?.close();
});
beforeEach(() => {
  fake.current = {};
});

async function signIn(change: Claims) {
  fake.current = { claims: (right) => ({ ...right, ...change }), userinfo: { sub: change.sub ?? 'ada' } };
  const browser = world.browser();
  const answer = await browser.open(await fake.approve(await browser.login()));
  expect(answer.location).toBe('/console/');
  const { after } = (await world.audited())[0] ?? {};
  return { browser, user: await world.user(String(change.email ?? EMAIL)), after };
}
const roleIn = async (userId: unknown) => {
  const { status, body } = await world.admin('GET', `/admin/workspaces/${workspace}/users/${userId}`);
  return status === 200 ? body.role : null;
};

describe('groups', () => {
  it('give the highest of their roles, and take what they gave when they are gone', async () => {
    const first = await signIn({ groups: ['research', 'leads', 'admins', 'others'] });
    expect(first.user).toMatchObject({ role: 'admin' });
    expect(await roleIn(first.user?.id)).toBe('manager');
    const second = await signIn({ groups: 'research' });
    expect(second.user).toMatchObject({ role: 'member' });
    expect(await roleIn(second.user?.id)).toBe('member');
    const third = await signIn({ groups: [] });
    expect(await roleIn(third.user?.id)).toBeNull();
  });

  it.each<[string, Claims]>([
    ['no claim', {}],
    ['too many groups for a token', { _claim_names: { groups: 'src1' }, _claim_sources: { src1: { endpoint: 'x' } } }],
    ['a claim of another form', { groups: [{ id: 'leads' }] }],
  ])('change nothing with %s, and the audit log says so', async (_title, claims) => {
    await signIn({ groups: ['research', 'admins'] });
    const { user, after } = await signIn(claims);
    expect(user).toMatchObject({ role: 'admin' });
    expect(await roleIn(user?.id)).toBe('member');
    expect(after?.groups).toEqual(expect.any(String));
  });

  it('leave alone what was given by hand', async () => {
    const own = { email: 'eve@acme.example', sub: 'eve' };
    const { user } = await signIn(own);
    await world.admin('PUT', `/admin/users/${user?.id}`, {
      role: 'admin',
      workspaces: [{ id: workspace, role: 'admin' }],
    });
    const { user: after } = await signIn({ ...own, groups: [] });
    expect(after).toMatchObject({ role: 'admin' });
    expect(await roleIn(user?.id)).toBe('admin');
  });

  it('are found inside other claims by a JSON pointer, and under a name that is an address', async () => {
    await world.change(id, { group_claim: '/realm_access/roles' });
    const { user } = await signIn({ realm_access: { roles: ['leads'] } });
    expect(await roleIn(user?.id)).toBe('manager');
    await world.change(id, { group_claim: 'https://acme.example/groups' });
    await signIn({ 'https://acme.example/groups': ['research'] });
    expect(await roleIn(user?.id)).toBe('member');
    await world.change(id, { group_claim: 'groups' });
  });
});

describe('signing out', () => {
  const EVENT = 'http://schemas.openid.net/event/backchannel-logout';
  const now = () => Math.floor(Date.now() / 1000);
  let made = 0;
  const right = (change: Claims): Claims => ({
    iss: fake.issuer,
    aud: fake.clientId,
    iat: now(),
    exp: now() + 120,
    jti: `jti-${made++}`,
    events: { [EVENT]: {} },
    ...change,
  });
  const token = (change: Claims, header: Claims = { typ: 'logout+jwt' }) => fake.sign(right(change), header);
  const send = async (logout_token: string, to = id) => {
    const answer = await fetch(`${world.url}/v2/auth/backchannel-logout/${to}`, {
      method: 'POST',
      headers: { 'x-forwarded-for': `10.8.0.${made++}` },
      body: new URLSearchParams({ logout_token }),
    });
    expect(answer.headers.get('cache-control')).toBe('no-store');
    return [answer.status, await answer.text()];
  };
  const REFUSED = [400, '{"error":"invalid_request"}'];

  it('at the provider ends that session by sid, and all of the subject by sub', async () => {
    const one = await signIn({ sid: 'one' });
    const two = await signIn({ sid: 'two' });
    expect(await send(await token({ sid: 'one' }))).toEqual([200, '']);
    expect([await one.browser.self(), (await two.browser.self()) !== null]).toEqual([null, true]);
    const again = await token({ sub: 'ada' }, { typ: undefined });
    expect(await send(again)).toEqual([200, '']);
    expect(await two.browser.self()).toBeNull();
    expect((await world.audited())[0]).toMatchObject({
      type: 'auth.sign_out',
      after: { sessions: expect.any(Number) },
    });
    expect(await send(again)).toEqual(REFUSED);
    expect(await send(await token({ sub: 'nobody' }))).toEqual([200, '']);
  });

  it.each<[string, Claims, Claims?]>([
    ['with a nonce, as an ID token has', { nonce: 'n' }],
    ['that is an ID token by its claims', { events: undefined }],
    ['of another event', { events: { 'https://other.example': {} } }],
    ['whose event is a text', { events: { [EVENT]: 'x' } }],
    ['of another issuer', { iss: 'https://evil.example' }],
    ['for another audience', { aud: 'other' }],
    ['that has expired', { exp: now() - 120 }],
    ['that is old', { iat: now() - 3_600 }],
    ['without an end and three minutes old', { exp: undefined, iat: now() - 180 }],
    ['without a time', { iat: undefined }],
    ['without jti', { jti: undefined }],
    ['without sub and sid', { sub: undefined }],
    ['of another type', {}, { typ: 'at+jwt' }],
  ])('is refused by a logout token %s', async (_title, change, header) => {
    const { browser } = await signIn({});
    expect(await send(await token({ sub: 'ada', ...change }, header))).toEqual(REFUSED);
    expect(await browser.self()).not.toBeNull();
  });

  it('is refused by a token that the provider did not sign, and at another client', async () => {
    const { browser } = await signIn({});
    const [head, body] = (await token({ sub: 'ada' })).split('.');
    const other = await startFakeProvider();
    for (const text of [`${head}.${body}.`, 'x', '', await other.sign(right({ sub: 'ada' }), { typ: 'logout+jwt' })]) {
      expect(await send(text)).toEqual(REFUSED);
    }
    expect(await send(await token({ sub: 'ada' }), '00000000-0000-7000-8000-000000000000')).toEqual(REFUSED);
    expect(await browser.self()).not.toBeNull();
    await other.close();
  });

  it('here answers where to sign out at the provider, with the ID token as a hint', async () => {
    const { browser } = await signIn({});
    const session = await browser.send('GET', '/console/api/session');
    const headers = { origin: world.url, 'x-csrf-token': session.body.csrf_token };
    const { body } = await browser.send('POST', '/v2/auth/logout', {}, headers);
    const url = new URL(body.url);
    expect(`${url.origin}${url.pathname}`).toBe(`${fake.issuer}/logout`);
    expect(Object.fromEntries(url.searchParams)).toMatchObject({
      client_id: 'sluice',
      post_logout_redirect_uri: `${world.url}/console/sign-in`,
      id_token_hint: expect.stringMatching(/^eyJ/),
    });
    expect(await browser.self()).toBeNull();
  });

  describe('of a command line, which a browser has let in', () => {
    const tokensOf = async (change: Claims) => {
      const { browser } = await signIn(change);
      const { body: begun } = await browser.send('POST', '/v2/oauth/device_authorization', { client_id: 'sluice-cli' });
      const { user_code, device_code } = begun;
      const { csrf_token } = (await browser.send('GET', '/console/api/session')).body;
      const own = { origin: world.url, 'x-csrf-token': csrf_token };
      const decision = { user_code, approved: true };
      expect((await browser.send('POST', '/console/api/device/decision', decision, own)).status).toBe(204);
      const grant_type = 'urn:ietf:params:oauth:grant-type:device_code';
      const answer = await world
        .browser()
        .send('POST', '/v2/oauth/token', { grant_type, client_id: 'sluice-cli', device_code });
      expect(answer.status).toBe(200);
      const authorization = `Bearer ${answer.body.access_token}`;
      const self = async () => (await fetch(`${world.url}/v1/auth/self`, { headers: { authorization } })).status;
      expect(await self()).toBe(200);
      return { self, expiresIn: answer.body.expires_in };
    };

    it('happens with that at the provider, also by its session there', async () => {
      const [one, two] = [await tokensOf({ sid: 'cli-1' }), await tokensOf({ sid: 'cli-2' })];
      expect(await send(await token({ sid: 'cli-1' }))).toEqual([200, '']);
      expect([await one.self(), await two.self()]).toEqual([401, 200]);
      expect(await send(await token({ sub: 'ada' }))).toEqual([200, '']);
      expect(await two.self()).toBe(401);
    });

    it('comes no later than the organisation lets the proof of the browser count', async () => {
      const limited = (max_session_ttl: number | null) =>
        world.admin('PUT', '/admin/organisation/settings', { session_settings: { max_session_ttl } });
      expect((await limited(900)).status).toBe(200);
      const { expiresIn } = await tokensOf({ auth_time: now() - 600 });
      expect(expiresIn).toBeLessThanOrEqual(300);
      expect((await limited(null)).status).toBe(200);
    });

    it('happens when the SSO client is disabled', async () => {
      const cli = await tokensOf({});
      await world.change(id, { status: 'disabled' });
      expect(await cli.self()).toBe(401);
      await world.change(id, { status: 'active' });
    });
  });

  it('of a client that is disabled or deleted happens at once, and for sign-ins on their way', async () => {
    const { browser } = await signIn({});
    const back = await fake.approve(await browser.login({ email: EMAIL, sso_client_id: id }));
    await world.change(id, { status: 'disabled' });
    expect(await browser.self()).toBeNull();
    expect((await browser.open(back)).location).toBe('/console/sign-in?error=expired');
    await world.change(id, { status: 'active' });
    const { browser: next } = await signIn({});
    await world.admin('DELETE', `/admin/organisation/sso-clients/${id}`);
    expect(await next.self()).toBeNull();
  });
});
