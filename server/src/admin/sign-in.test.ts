/** Signing in on a whole server: what the routes answer, and what the cookie and the tokens open. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type MailingServer, startMailingServer } from '../../test/support/mailing-server.ts';

type Headers = Record<string, string>;
interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown> & { readonly error?: { readonly message: string; readonly param: string } };
  readonly cookies: readonly string[];
}

const EMAIL = 'ada@acme.example';
let server: MailingServer;
let organisationId: string;
let userId: string;
let key: string;
let calls = 0;

beforeAll(async () => {
  server = await startMailingServer(undefined, { SLUICE_TRUSTED_PROXIES: '127.0.0.1' });
  const owner = { email: EMAIL, first_name: 'Ada', last_name: 'Lovelace' };
  const made = await server.admin(
    'POST',
    '/operator/organisations',
    { name: 'Acme', owner },
    server.first.operator_api_key,
  );
  const text = (name: string) => String(made.body[name]);
  [organisationId, userId, key] = [text('organisation_id'), text('user_id'), text('admin_api_key')];
});
afterAll(() => server?.stop());

async function ask(method: string, path: string, headers: Headers = {}, body?: unknown): Promise<Answer> {
  const answer = await fetch(`${server.url}${path}`, {
    method,
    headers: {
      // Each call from another address: sign-in requests of one are limited.
      'x-forwarded-for': `10.0.${calls >> 8}.${calls++ & 255}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const cookies = answer.headers.getSetCookie().map((text) => text.split(';', 1)[0] ?? '');
  return { status: answer.status, body: (await answer.json()) as Answer['body'], cookies };
}

interface Browser {
  readonly cookie: string;
  /** For writes. */
  readonly headers: Headers;
}

async function signIn(id = userId, by = key): Promise<Browser> {
  const made = await server.admin('POST', `/admin/users/${id}/sign-in-link`, {}, by);
  const [, token] = String(made.body.sign_in_link).split('#');
  const answer = await ask('POST', '/console/api/session', { origin: server.url }, { token });
  const cookie = answer.cookies[0] ?? '';
  return { cookie, headers: { cookie, origin: server.url, 'x-csrf-token': String(answer.body.csrf_token) } };
}

async function pairOf(browser: Browser): Promise<{ auth_token: string; refresh_token: string }> {
  const answer = await ask('POST', '/v2/auth/login', browser.headers, {});
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return answer.body as never;
}

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
const audit = async (): Promise<Record<string, unknown>[]> => {
  const range = 'start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z&page_size=100';
  return (await server.admin('GET', `/audit-logs?${range}`, undefined, key)).body.records as never;
};

describe('login', () => {
  it('mails a link that works once, only in the browser that asked, and says the same for an unknown address', async () => {
    const known = await ask('POST', '/v2/auth/login', {}, { email: 'Ada@Acme.example' });
    const unknown = await ask('POST', '/v2/auth/login', {}, { email: 'nobody@acme.example' });
    expect(known).toMatchObject({ status: 200, body: { object: 'login', type: 'email' } });
    expect(unknown.body).toEqual(known.body);
    expect(unknown.cookies[0]?.split('=', 1)).toEqual(['sluice_login']);
    const [text = ''] = await server.mailed(EMAIL);
    const [, token] = /#([0-9A-Za-z]{43})/.exec(text) ?? [];
    const open = (cookie: Headers) => ask('POST', '/console/api/session', { origin: server.url, ...cookie }, { token });
    for (const other of [{}, { cookie: unknown.cookies[0] ?? '' }] as Headers[]) {
      const refused = await open(other);
      expect([refused.status, refused.body.error?.message]).toEqual([401, expect.stringContaining('asked for it')]);
    }
    const cookie = { cookie: known.cookies[0] ?? '' };
    expect((await open(cookie)).status).toBe(200);
    expect((await open(cookie)).status).toBe(401);
  });

  it.each([
    ['no address', {}, {}, 400, 'email'],
    ['no address but a text', {}, { email: 'nothing' }, 400, 'email'],
    ['an unknown provider', {}, { email: EMAIL, sso_client_id: 'nothing' }, 404, 'sso_client_id'],
    ['an unknown field', {}, { email: EMAIL, password: 'x' }, 400, 'password'],
    ['another origin', { origin: 'https://evil.example' }, { email: EMAIL }, 403, null],
  ])('refuses %s', async (_title, headers, body, status, param) => {
    const answer = await ask('POST', '/v2/auth/login', headers as Headers, body);
    expect([answer.status, answer.body.error?.param]).toEqual([status, param]);
  });

  it('gives a signed-in browser a pair of tokens, with its CSRF token and Origin only', async () => {
    const browser = await signIn();
    for (const name of ['x-csrf-token', 'origin'] as const) {
      const { [name]: _left, ...rest } = browser.headers;
      const refused = await ask('POST', '/v2/auth/login', rest, {});
      expect([name, refused.status, refused.body.auth_token]).toEqual([name, 403, undefined]);
    }
    for (const body of [{}, { email: EMAIL }, { organisation_id: organisationId }]) {
      const answer = await ask('POST', '/v2/auth/login', browser.headers, body);
      expect(answer).toMatchObject({
        status: 200,
        body: {
          object: 'login',
          auth_token: expect.stringMatching(/^slc_sat_[0-9A-Za-z_]{63}$/),
          refresh_token: expect.stringMatching(/^slc_srt_[0-9A-Za-z_]{63}$/),
        },
      });
    }
    const other = await ask('POST', '/v2/auth/login', browser.headers, { email: 'bob@acme.example' });
    expect(other.body).toEqual({ object: 'login', type: 'email' });
  });
});

describe('links for owners only', () => {
  const member = { email: 'grace@acme.example', role: 'member', workspaces: [] };
  const post = (path: string, body: unknown) => ask('POST', path, { origin: server.url }, body);
  const set = (disable_link_sign_in: boolean) =>
    server.admin('PUT', '/admin/organisation/settings', { auth_settings: { disable_link_sign_in } }, key);
  const accept = (invite: Record<string, unknown>) =>
    post('/console/api/invite/acceptance', {
      token: String(invite.invite_link).split('#')[1],
      first_name: 'Grace',
      last_name: 'Hopper',
    });

  it('leave others to their identity provider, and what owners do is in the audit log', async () => {
    const invite = (await server.admin('POST', '/admin/users/invites', member, key)).body;
    await set(true);
    expect((await accept(invite)).status).toBe(403);
    await set(false);
    const made = await accept(invite);
    expect(made.status).toBe(200);
    const id = String((made.body.session as { user: { id: string } }).user.id);
    const link = await server.admin('POST', `/admin/users/${id}/sign-in-link`, {}, key);
    await set(true);
    const token = String(link.body.sign_in_link).split('#')[1];
    const refused = await post('/console/api/session', { token });
    expect([refused.status, refused.body.error?.message]).toEqual([403, expect.stringContaining('only owners')]);
    expect((await audit())[0]).toMatchObject({ resource_type: 'auth.sign_in_failed', user_id: id });
    expect((await server.admin('POST', `/admin/users/${id}/sign-in-link`, {}, key)).status).toBe(409);
    await post('/v2/auth/login', { email: member.email });
    await post('/v2/auth/login', { email: EMAIL });
    await server.mailed(EMAIL, 2);
    expect(server.mailsTo(member.email)).toEqual([]);
    const owner = await signIn();
    expect((await ask('GET', '/v1/auth/self', { cookie: owner.cookie })).status).toBe(200);
    const rows = (await audit()).filter(({ resource_type }) => resource_type === 'auth.sign_in');
    expect(JSON.stringify(rows[0])).toContain('break_glass');
    await set(false);
    // What was refused had used nothing up.
    expect((await post('/console/api/session', { token })).status).toBe(200);
  });
});

describe('tokens', () => {
  it('open the administration, and ask no model: an auth token does, a refresh token nowhere', async () => {
    const { auth_token, refresh_token } = await pairOf(await signIn());
    expect((await ask('GET', '/v1/admin/workspaces', bearer(auth_token))).status).toBe(200);
    const made = await ask('POST', '/v1/admin/workspaces', bearer(auth_token), { name: 'Made by a token' });
    expect(made.status).toBe(200);
    expect((await ask('GET', '/v1/admin/workspaces', bearer(refresh_token))).status).toBe(401);
    expect((await ask('POST', '/v2/auth/refresh', {}, { refresh_token: auth_token })).status).toBe(401);
    const chat = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hi' }] };
    const { cookie, headers } = await signIn();
    for (const path of ['/v1/chat/completions', '/v1/embeddings', '/v1/responses', '/v1/images/generations']) {
      for (const by of [bearer(auth_token), { cookie }, headers]) {
        expect([path, (await ask('POST', path, by, chat)).status]).toEqual([path, 401]);
      }
    }
  });

  it('are changed for the next pair; of six simultaneous uses one gets it, and then the family is dead', async () => {
    const browser = await signIn();
    const first = await pairOf(browser);
    const next = await ask('POST', '/v2/auth/refresh', {}, { refresh_token: first.refresh_token });
    expect(next).toMatchObject({ status: 200, body: { object: 'refresh' } });
    const second = next.body as typeof first;
    expect((await ask('GET', '/v1/auth/self', bearer(second.auth_token))).status).toBe(200);
    const foreign = { refresh_token: second.refresh_token, organisation_id: server.first.organisation_id };
    expect((await ask('POST', '/v2/auth/refresh', {}, foreign)).status).toBe(401);
    const answers = await Promise.all(
      Array.from({ length: 6 }, () =>
        ask('POST', '/v2/auth/refresh', {}, { refresh_token: second.refresh_token, organisation_id: organisationId }),
      ),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 401, 401, 401, 401, 401]);
    const won = answers.find(({ status }) => status === 200)?.body as typeof first;
    for (const { auth_token } of [first, second, won]) {
      expect((await ask('GET', '/v1/auth/self', bearer(auth_token))).status).toBe(401);
    }
    expect((await ask('POST', '/v2/auth/refresh', {}, { refresh_token: won.refresh_token })).status).toBe(401);
    // The browser's own session is not theirs.
    expect((await ask('GET', '/v1/auth/self', { cookie: browser.cookie })).status).toBe(200);
    const reuse = (await audit()).find(({ resource_type }) => resource_type === 'auth.refresh_reuse');
    expect(reuse).toMatchObject({ user_id: userId, response_status_code: 401, uri: '/v2/auth/refresh' });
    expect(JSON.stringify(reuse)).not.toContain(second.refresh_token);
  });

  it('are alive or not, as validate-token says', async () => {
    const browser = await signIn();
    const { auth_token, refresh_token } = await pairOf(browser);
    const valid = async (headers: Headers, query = '') => {
      const { status, body } = await ask('GET', `/v2/auth/validate-token${query}`, headers);
      return status === 200 ? [body.object, body.is_valid] : status;
    };
    const other = `?organisation_id=${server.first.organisation_id}`;
    expect(await valid(bearer(auth_token))).toEqual(['validate-token', true]);
    expect(await valid(bearer(auth_token), `?organisation_id=${organisationId}`)).toEqual(['validate-token', true]);
    expect(await valid(bearer(auth_token), other)).toEqual(['validate-token', false]);
    expect(await valid({ cookie: browser.cookie })).toEqual(['validate-token', true]);
    for (const dead of [refresh_token, `${auth_token.slice(0, -1)}x`, 'nothing', key]) {
      expect(await valid(bearer(dead))).toEqual(['validate-token', false]);
    }
    expect(await valid({})).toBe(401);
    await ask('POST', '/v2/auth/logout', browser.headers, {});
    expect(await valid(bearer(auth_token))).toEqual(['validate-token', false]);
  });
});

describe('signing out', () => {
  it('ends the session with its tokens, and no other', async () => {
    const [here, there] = [await signIn(), await signIn()];
    const { auth_token } = await pairOf(here);
    const { 'x-csrf-token': _left, ...without } = here.headers;
    expect((await ask('POST', '/v2/auth/logout', without, {})).status).toBe(403);
    const answer = await ask('POST', '/v2/auth/logout', here.headers, {});
    expect(answer).toMatchObject({ status: 200, body: { object: 'logout', url: null }, cookies: ['sluice_session='] });
    const statuses = [];
    for (const headers of [{ cookie: here.cookie }, bearer(auth_token), { cookie: there.cookie }]) {
      statuses.push((await ask('GET', '/v1/auth/self', headers)).status);
    }
    expect(statuses).toEqual([401, 401, 200]);
    expect((await ask('POST', '/v2/auth/logout', here.headers, {})).status).toBe(401);
  });

  it('everywhere, by a token, ends all sessions of the user', async () => {
    const browsers = [await signIn(), await signIn()];
    const { auth_token } = await pairOf(await signIn());
    const others = await signIn(server.first.user_id, server.first.admin_api_key);
    expect((await ask('POST', '/v2/auth/logout', bearer(auth_token), { everywhere: true })).status).toBe(200);
    for (const { cookie } of browsers) expect((await ask('GET', '/v1/auth/self', { cookie })).status).toBe(401);
    expect((await ask('GET', '/v1/auth/self', { cookie: others.cookie })).status).toBe(200);
  });

  it('and in is in the audit log of the organisation', async () => {
    const browser = await signIn();
    await ask('POST', '/v2/auth/logout', browser.headers, { everywhere: true });
    const [out, into] = await audit();
    expect(into).toMatchObject({ resource_type: 'auth.sign_in', action: 'create', user_id: userId });
    expect(out).toMatchObject({
      resource_type: 'auth.sign_out',
      action: 'delete',
      user_id: userId,
      request_body: '{"everywhere":true}',
    });
  });
});

describe('who calls', () => {
  it('is not guessed from a cookie that is sent twice, nor from a cookie and a key of different callers', async () => {
    const [one, two] = [await signIn(), await signIn()];
    const self = (headers: Headers, path = '/v1/auth/self') => ask('GET', path, headers).then(({ status }) => status);
    const twice = { cookie: `${one.cookie}; ${two.cookie}` };
    expect([await self(twice), await self({ ...twice, 'x-gateway-api-key': key }, '/v1/admin/workspaces')]).toEqual([
      401, 401,
    ]);
    const withKey = { cookie: one.cookie, 'x-gateway-api-key': key };
    expect([await self(withKey), await self(withKey, '/v1/admin/workspaces')]).toEqual([400, 400]);
    const other = await signIn(server.first.user_id, server.first.admin_api_key);
    const { auth_token } = await pairOf(other);
    expect(await self({ cookie: one.cookie, ...bearer(auth_token) })).toBe(400);
    expect(await self({ cookie: other.cookie, ...bearer(auth_token) })).toBe(200);
    // A cookie that is no sign-in (any more) does not stand in a key's way.
    const stale = { cookie: `sluice_session=${'A'.repeat(43)}`, 'x-gateway-api-key': key };
    expect([await self(stale, '/v1/admin/workspaces'), await self(stale)]).toEqual([200, 401]);
  });

  it('GET /v1/auth/self answers who is signed in, by cookie or token and not by a key', async () => {
    const browser = await signIn();
    const { auth_token } = await pairOf(browser);
    const { status, body } = await ask('GET', '/v1/auth/self', { cookie: browser.cookie });
    expect([status, body]).toEqual([
      200,
      {
        object: 'session',
        user: expect.objectContaining({ object: 'user', id: userId, email: EMAIL, role: 'owner' }),
        organisation: { id: organisationId, name: 'Acme', slug: expect.stringMatching(/^acme/) },
        workspaces: expect.arrayContaining([expect.objectContaining({ role: 'admin', slug: expect.any(String) })]),
        scopes: expect.arrayContaining(['configs.create', 'organisation_users.read']),
        rate_limits: [],
        usage_limits: null,
        expires_at: expect.stringMatching(/^\d{4}-.*Z$/),
      },
    ]);
    const byToken = await ask('GET', '/v1/auth/self', bearer(auth_token));
    expect(byToken.body.user).toEqual(body.user);
    expect(Date.parse(String(byToken.body.expires_at))).toBeLessThanOrEqual(Date.now() + 15 * 60_000);
    for (const headers of [{ 'x-gateway-api-key': key }, bearer(key), {}] as Headers[]) {
      const refused = await ask('GET', '/v1/auth/self', headers);
      expect([refused.status, (refused.body.error as never as { code: string }).code]).toEqual([401, 'AB05']);
    }
  });
});

it('sixty sign-in requests a minute come through from one address, whatever they ask', async () => {
  const statuses = await Promise.all(
    Array.from({ length: 130 }, (_, i) =>
      ask('GET', `/v2/auth/validate-token?x=${i}`, { ...bearer('nothing'), 'x-forwarded-for': '10.9.9.9' }).then(
        ({ status }) => status,
      ),
    ),
  );
  expect(statuses.filter((status) => status !== 429).length).toBeLessThanOrEqual(120);
  expect(statuses.at(-1) === 429 || statuses.includes(429)).toBe(true);
});
