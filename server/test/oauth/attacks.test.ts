/** What attackers try at the OAuth server, on one server: none of it gives a code or a token, or sends one elsewhere. */
import { request as httpRequest } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OAUTH_ROUTES } from '../../src/oauth/routes.ts';
import {
  approve,
  authorize,
  BEHIND_PROXY,
  type Browser,
  browserOf,
  callTools,
  codeFor,
  form,
  fromAnywhere,
  newVerifier,
  post,
  REDIRECT,
  registered,
  request,
  resourceOf,
  tokenPlane,
  tokensFor,
} from '../support/oauth.ts';
import { startServer, type TestServer } from '../support/server.ts';

let server: TestServer;
let owner: Browser;
let client: string;
beforeAll(async () => {
  server = await startServer(BEHIND_PROXY, { planes: [tokenPlane] });
  owner = await browserOf(server);
  client = await registered(server, {
    redirect_uris: [
      REDIRECT,
      'http://[::1]/back?a=b',
      'http://localhost:5000/cb',
      'https://app.example/cb',
      'com.example.app:/cb',
    ],
  });
});
afterAll(() => server.stop());

const location = async (query: Record<string, string>, more = {}) =>
  (await authorize(server, query, more)).location ?? '';

describe('an address for answers', () => {
  const REFUSED: readonly (readonly [string, object])[] = [
    ['a wildcard', { redirect_uris: ['https://*.example/cb'] }],
    ['a fragment', { redirect_uris: ['https://app.example/cb#x'] }],
    ['an empty fragment', { redirect_uris: ['https://app.example/cb#'] }],
    ['user information', { redirect_uris: ['https://app.example@evil.example/cb'] }],
    ['a back slash', { redirect_uris: ['https://app.example\\@evil.example/cb'] }],
    ['a script', { redirect_uris: ['javascript:alert(1)'] }],
    ['data', { redirect_uris: ['data:text/html,x'] }],
    ['http elsewhere', { redirect_uris: ['http://app.example/cb'] }],
    ['http at a name that begins like loopback', { redirect_uris: ['http://127.0.0.1.evil.example/cb'] }],
    ['a scheme without a domain', { redirect_uris: ['myapp:/cb'] }],
    ['the scheme of a system handler', { redirect_uris: ['ms-msdt:/id'] }],
    ['a known scheme with more before it', { redirect_uris: ['xcursor://cb'] }],
    ['a known scheme with user information', { redirect_uris: ['cursor://user@host/cb'] }],
    ['a relative address', { redirect_uris: ['/cb'] }],
    ['2,049 characters', { redirect_uris: [`https://app.example/${'a'.repeat(2_029)}`] }],
    ['eleven of them', { redirect_uris: Array.from({ length: 11 }, (_, n) => `https://app.example/${n}`) }],
    ['none', { redirect_uris: [] }],
    ['loopback of a web client', { application_type: 'web' }],
  ];
  it.each(REFUSED)('cannot be registered: %s', async (_what, more) => {
    const { status, body } = await post(server.url, '/v2/oauth/register', {
      client_name: 'Editor',
      redirect_uris: [REDIRECT],
      ...more,
    });
    expect([status, body.error]).toEqual([400, 'invalid_redirect_uri']);
  });

  const TRUSTED: readonly (readonly [string, boolean])[] = [
    [REDIRECT, true],
    ['http://127.0.0.1:1/callback', true],
    ['http://127.0.0.1/callback', true],
    ['http://[::1]:8080/back?a=b', true],
    ['http://localhost:5000/cb', true],
    ['https://app.example/cb', true],
    ['com.example.app:/cb', true],
    ['http://127.0.0.1:45901/callback/more', false],
    ['http://127.0.0.1:45901/callback?more', false],
    ['http://127.0.0.1:45901/callbac', false],
    ['http://127.0.0.1:45901@evil.example/callback', false],
    ['http://127.0.0.1:45901/callback#x', false],
    ['http://localhost:45901/callback', false],
    ['http://localhost:5001/cb', false],
    ['https://127.0.0.1:45901/callback', false],
    ['http://[::1]:8080/back?a=b&c', false],
    ['https://app.example:8443/cb', false],
    ['https://app.example/cb/', false],
    ['https://app.example/CB', false],
    ['https://app.example.evil.example/cb', false],
    ['https://evil.example/?https://app.example/cb', false],
    ['com.example.app:/cb/../x', false],
    ['', false],
  ];
  it.each(TRUSTED)('%s gets an answer: %s', async (redirect_uri, trusted) => {
    const { query } = request(server, client, { redirect_uri, response_type: 'token' });
    const { status, location: to, text } = await authorize(server, query);
    if (trusted) {
      expect([status, to?.startsWith(redirect_uri)]).toEqual([302, true]);
      const said = new URLSearchParams(to?.slice(redirect_uri.length + 1));
      expect(Object.fromEntries(said)).toMatchObject({
        error: 'unsupported_response_type',
        state: 'the state',
        iss: server.url,
      });
    } else {
      expect([status, to]).toEqual([400, null]);
      expect(text).toContain('did not register');
      expect(text).not.toContain('evil');
    }
  });
});

describe('a request for access', () => {
  const FAULTS: readonly (readonly [string, Record<string, string>, string])[] = [
    ['without PKCE', { code_challenge: '' }, 'invalid_request'],
    ['with the plain method', { code_challenge_method: 'plain' }, 'invalid_request'],
    ['with a short challenge', { code_challenge: 'abc' }, 'invalid_request'],
    ['for a token', { response_type: 'token' }, 'unsupported_response_type'],
    ['for a code and a token', { response_type: 'code token' }, 'unsupported_response_type'],
    ['with a long state', { state: 'a'.repeat(513) }, 'invalid_request'],
    ['with a request object', { request_uri: 'https://evil.example/' }, 'invalid_request'],
    ['for an unknown scope', { scope: 'mcp organisation_users.create' }, 'invalid_scope'],
    ['for another origin', { resource: 'https://evil.example/tools/mcp' }, 'invalid_target'],
    ['for the administration', { resource: 'PUBLIC/v1/admin/users' }, 'invalid_target'],
    ['for models', { resource: 'PUBLIC/v1/chat/completions' }, 'invalid_target'],
    ['for an origin that begins like ours', { resource: 'PUBLIC.evil.example/tools/mcp' }, 'invalid_target'],
    ['for a path that leads away', { resource: 'PUBLIC/../tools/mcp' }, 'invalid_target'],
    ['for a fragment', { resource: 'PUBLIC/tools/mcp#x' }, 'invalid_target'],
  ];
  it.each(FAULTS)('%s goes back to the client with the fault and no code', async (_what, more, error) => {
    const own = Object.fromEntries(
      Object.entries(more).map(([name, value]) => [name, value.replace('PUBLIC', server.url)]),
    );
    const to = new URL(await location(request(server, client, own).query));
    expect(to.origin + to.pathname).toBe(REDIRECT);
    expect(to.searchParams.get('error')).toBe(error);
    expect([to.searchParams.get('iss'), to.searchParams.has('code')]).toEqual([server.url, false]);
  });

  it('without a resource is refused, unless the path names one', async () => {
    const { resource: _, ...query } = request(server, client).query;
    expect(new URL(await location(query)).searchParams.get('error')).toBe('invalid_target');
    expect(await location(query, { path: '/v2/oauth/tools/authorize' })).toMatch(/\/console\/authorize#\w{43}$/);
    expect(await location(query, { path: '/oauth/team/tools/authorize' })).toMatch(/\/console\/authorize#\w{43}$/);
    const other = request(server, client, { resource: `${server.url}/other/mcp` }).query;
    const to = new URL(await location(other, { path: '/v2/oauth/tools/authorize' }));
    expect(to.searchParams.get('error')).toBe('invalid_target');
  });

  it('of an unknown client is a page that repeats nothing and cannot be framed', async () => {
    const evil = '<script>alert(1)</script>';
    const {
      status,
      location: to,
      text,
      headers,
    } = await authorize(server, request(server, evil, { redirect_uri: evil }).query);
    expect([status, to]).toEqual([400, null]);
    expect(text).toContain('does not know the program');
    expect(text).not.toContain('alert');
    expect(headers.get('content-security-policy')).toContain("frame-ancestors 'none'");
    expect(headers.get('x-frame-options')).toBe('DENY');
    const twice = await fetch(`${server.url}/v2/oauth/authorize?client_id=a&client_id=b`, { redirect: 'manual' });
    expect(twice.status).toBe(400);
  });

  it('names no host but its own, whatever a request says', async () => {
    const { query } = request(server, client);
    const evil = { host: 'evil.example', 'x-forwarded-host': 'evil.example', 'x-forwarded-proto': 'https' };
    for (const path of [
      `/v2/oauth/authorize?${new URLSearchParams(query)}`,
      `/v2/oauth/authorize?${new URLSearchParams({ ...query, response_type: 'x' })}`,
      '/.well-known/oauth-authorization-server',
      '/.well-known/oauth-protected-resource/tools/mcp',
    ]) {
      const said = await rawGet(`${server.url}${path}`, evil);
      expect(said).not.toContain('evil');
      expect(said).toContain(
        path.includes('authorize?') && path.includes('response_type=x') ? encodeURIComponent(server.url) : server.url,
      );
    }
  });
});

describe('consent', () => {
  const decision = (resume_state: string, more: object = {}) => ({
    approved: true,
    resume_state,
    organisation_id: owner.organisationId,
    workspace_id: owner.workspaceId,
    ...more,
  });
  const asked = async () => new URL(await location(request(server, client).query)).hash.slice(1);

  it('of one browser cannot be given in another, also of the same user', async () => {
    const resume = await asked();
    const other = await browserOf(server);
    expect((await owner.call('POST', '/console/api/access', { resume_state: resume })).status).toBe(200);
    expect((await other.call('POST', '/console/api/access', { resume_state: resume })).status).toBe(404);
    expect((await other.call('POST', '/v2/oauth/authorize', decision(resume))).status).toBe(404);
    expect((await owner.call('POST', '/v2/oauth/authorize', decision(resume))).status).toBe(200);
  });

  it('cannot be given before the page was seen, or twice, and of six at once one is', async () => {
    const resume = await asked();
    expect((await owner.call('POST', '/v2/oauth/authorize', decision(resume))).status).toBe(404);
    await owner.call('POST', '/console/api/access', { resume_state: resume });
    const answers = await Promise.all(
      Array.from({ length: 6 }, () => owner.call('POST', '/v2/oauth/authorize', decision(resume))),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 404, 404, 404, 404, 404]);
    expect((await owner.call('POST', '/console/api/access', { resume_state: resume })).status).toBe(404);
  });

  it('needs the session, its CSRF token and our origin', async () => {
    const resume = await asked();
    await owner.call('POST', '/console/api/access', { resume_state: resume });
    const body = decision(resume);
    const wrong: Record<string, string>[] = [
      { 'x-csrf-token': 'x' },
      { origin: 'https://evil.example' },
      { origin: 'null' },
      { cookie: 'a=b' },
    ];
    for (const headers of wrong) {
      const { status } = await owner.call('POST', '/v2/oauth/authorize', body, headers);
      expect([401, 403]).toContain(status);
    }
    const key = await fetch(`${server.url}/v2/oauth/authorize`, {
      method: 'POST',
      headers: {
        'x-gateway-api-key': server.first.admin_api_key,
        'content-type': 'application/json',
        origin: server.url,
      },
      body: JSON.stringify(body),
    });
    expect(key.status).toBe(401);
  });

  it('is for a workspace and an organisation of the user', async () => {
    const resume = await asked();
    await owner.call('POST', '/console/api/access', { resume_state: resume });
    const ID = '00000000-0000-4000-8000-000000000000';
    expect((await owner.call('POST', '/v2/oauth/authorize', decision(resume, { workspace_id: ID }))).status).toBe(404);
    expect((await owner.call('POST', '/v2/oauth/authorize', decision(resume, { organisation_id: ID }))).status).toBe(
      404,
    );
    expect(
      (await owner.call('POST', '/v2/oauth/authorize', decision(resume, { workspace_id: undefined }))).status,
    ).toBe(400);
    const { status, body } = await owner.call('POST', '/v2/oauth/authorize', decision(resume, { approved: false }));
    const to = new URL(String(body.redirect_uri));
    expect([status, to.searchParams.get('error'), to.searchParams.get('iss')]).toEqual([
      200,
      'access_denied',
      server.url,
    ]);
    expect([to.searchParams.get('state'), to.searchParams.has('code')]).toEqual(['the state', false]);
  });

  it('shows what a client says of itself as it is, and a client cannot name a script as its page or logo', async () => {
    const markup = '<img src=x onerror=alert(1)>';
    const named = await registered(server, { client_name: markup });
    const resume = new URL(await location(request(server, named).query)).hash.slice(1);
    const { body } = await owner.call('POST', '/console/api/access', { resume_state: resume });
    expect(body.client).toMatchObject({ name: markup, uri: null, document: false });
    for (const more of [
      { logo_uri: 'javascript:alert(1)' },
      { client_uri: 'data:text/html,x' },
      { client_uri: 'https://a@evil.example/' },
      { client_name: 'Editor\u202egnp.exe' },
      { client_name: '' },
      { token_endpoint_auth_method: 'client_secret_basic' },
      { response_types: ['token'] },
      { grant_types: ['password'] },
      { scopes: ['admin'] },
    ]) {
      const body = { client_name: 'Editor', redirect_uris: [REDIRECT], ...more };
      const answer = await post(server.url, '/v2/oauth/register', body);
      expect([answer.status, answer.body.error], JSON.stringify(more)).toEqual([400, 'invalid_client_metadata']);
    }
  });
});

describe('a code', () => {
  it.each([
    ['with another verifier', () => ({ code_verifier: newVerifier() }), 'invalid_grant'],
    ['without a verifier', () => ({ code_verifier: '' }), 'invalid_grant'],
    ['with another address', () => ({ redirect_uri: 'https://app.example/cb' }), 'invalid_grant'],
    ['for another resource', () => ({ resource: `${server.url}/other/mcp` }), 'invalid_target'],
    ['with a secret', () => ({ client_secret: 'x' }), 'invalid_client'],
    ['of another grant', () => ({ grant_type: 'password' }), 'unsupported_grant_type'],
  ])('%s gives nothing', async (_what, more, error) => {
    const fields = await codeFor(server, owner, client);
    const { body } = await form(server.url, '/v2/oauth/token', { ...fields, ...more() });
    expect(body.error).toBe(error);
    expect(body.access_token).toBeUndefined();
  });

  it('of one client is no code of another, which cannot use it up', async () => {
    const fields = await codeFor(server, owner, client);
    const other = await registered(server);
    const stolen = await form(server.url, '/v2/oauth/token', { ...fields, client_id: other });
    expect([stolen.status, stolen.body.error]).toEqual([400, 'invalid_grant']);
    expect((await form(server.url, '/v2/oauth/token', fields)).status).toBe(200);
  });

  it('works once: of six at once one is exchanged, and the second use ends what the first gave', async () => {
    const fields = await codeFor(server, owner, client);
    const answers = await Promise.all(Array.from({ length: 6 }, () => form(server.url, '/v2/oauth/token', fields)));
    const given = answers.filter(({ status }) => status === 200);
    expect(given).toHaveLength(1);
    const token = String(given[0]?.body.access_token);
    expect((await callTools(server.url, token)).status).toBe(401);
    expect((await post(server.url, '/v2/oauth/introspect', { token })).text).toBe('{"active":false}');
  });

  it('that is sent twice in one form, or in the address, is not read', async () => {
    const fields = await codeFor(server, owner, client);
    const twice = await fetch(`${server.url}/v2/oauth/token`, {
      method: 'POST',
      body: new URLSearchParams([...Object.entries(fields), ['code', 'x']]),
    });
    expect(twice.status).toBe(400);
    const inAddress = await fetch(`${server.url}/v2/oauth/token?${new URLSearchParams(fields)}`, { method: 'POST' });
    expect(inAddress.status).toBe(400);
  });
});

describe('a refresh token', () => {
  const refresh = (refresh_token: string, more: Record<string, string> = {}) =>
    form(server.url, '/v2/oauth/token', { grant_type: 'refresh_token', client_id: client, refresh_token, ...more });

  it('gives no more than the user did, nothing to another client, and nothing for another resource', async () => {
    const { refresh_token } = await tokensFor(server, owner, client, { scope: 'mcp:read' });
    for (const [more, error] of [
      [{ scope: 'mcp' }, 'invalid_scope'],
      [{ scope: 'mcp:read mcp:write' }, 'invalid_scope'],
      [{ resource: `${server.url}/other/mcp` }, 'invalid_target'],
      [{ client_id: await registered(server) }, 'invalid_grant'],
    ] as const) {
      expect((await refresh(refresh_token, more)).body.error).toBe(error);
    }
    expect((await refresh(refresh_token)).status).toBe(200);
  });

  it('used twice ends the family, also by six calls at once', async () => {
    const first = await tokensFor(server, owner, client);
    const answers = await Promise.all(Array.from({ length: 6 }, () => refresh(first.refresh_token)));
    const [won, ...more] = answers.filter(({ status }) => status === 200);
    expect(more).toEqual([]);
    expect((await callTools(server.url, first.access_token)).status).toBe(401);
    expect((await callTools(server.url, String(won?.body.access_token))).status).toBe(401);
    expect((await refresh(String(won?.body.refresh_token))).body.error).toBe('invalid_grant');
  });

  it('is no access token, and the reverse', async () => {
    const { access_token, refresh_token } = await tokensFor(server, owner, client);
    expect((await callTools(server.url, refresh_token)).status).toBe(401);
    expect((await refresh(access_token)).body.error).toBe('invalid_grant');
  });
});

describe('an access token', () => {
  it('opens the resource that it is for, and no other route of the server', async () => {
    const { access_token } = await tokensFor(server, owner, client);
    const other = await tokensFor(server, owner, client, { resource: `${server.url}/other/mcp` });
    expect((await callTools(server.url, access_token)).status).toBe(200);
    expect((await callTools(server.url, other.access_token)).status).toBe(401);
    for (const [method, path] of [
      ['POST', '/v1/chat/completions'],
      ['GET', '/v1/models'],
      ['POST', '/v1/files'],
      ['GET', '/v1/admin/users'],
      ['GET', '/v1/configs'],
      ['GET', '/v1/operator/health'],
    ] as const) {
      for (const headers of [{ authorization: `Bearer ${access_token}` }, { 'x-gateway-api-key': access_token }]) {
        const answer = await fetch(`${server.url}${path}`, {
          method,
          headers: { ...headers, 'content-type': 'application/json' },
          ...(method === 'POST' ? { body: '{"model":"@sandbox/echo","messages":[]}' } : {}),
        });
        expect([path, answer.status]).toEqual([path, 401]);
      }
    }
    const inAddress = await fetch(`${server.url}/tools/mcp?access_token=${access_token}`, {
      method: 'POST',
      body: '{}',
    });
    expect(inAddress.status).toBe(401);
    expect(resourceOf(server)).toContain('/tools/mcp');
  });

  it('that is unknown, used up, a key or a JWT is the same to who looks at it, byte for byte', async () => {
    const { access_token, refresh_token } = await tokensFor(server, owner, client);
    await form(server.url, '/v2/oauth/token', { grant_type: 'refresh_token', client_id: client, refresh_token });
    const used = refresh_token;
    await post(server.url, '/v2/oauth/revoke', { token: access_token });
    const tokens = [
      'x',
      access_token,
      used,
      server.first.admin_api_key,
      'eyJhbGciOiJub25lIn0.e30.',
      `${access_token}x`,
      'slc_oat_',
    ];
    for (const token of tokens) {
      const asJson = await post(server.url, '/v2/oauth/introspect', { token });
      const asForm = await form(server.url, '/v2/oauth/introspect', { token, token_type_hint: 'access_token' });
      expect([asJson.status, asJson.text, asForm.status, asForm.text]).toEqual([
        200,
        '{"active":false}',
        200,
        '{"active":false}',
      ]);
      const revoked = await form(server.url, '/v2/oauth/revoke', { token });
      expect([revoked.status, revoked.text]).toEqual([200, '{}']);
    }
  });

  it('cannot be revoked by another client', async () => {
    const { access_token } = await tokensFor(server, owner, client);
    const client_id = await registered(server);
    expect((await form(server.url, '/v2/oauth/revoke', { token: access_token, client_id })).status).toBe(200);
    expect((await callTools(server.url, access_token)).status).toBe(200);
  });
});

it('no route answers 5xx, or anything of ours, to what is no request', async () => {
  const BODIES: readonly (readonly [string, string])[] = [
    ['application/json', '{'],
    ['application/json', 'null'],
    ['application/json', '{"__proto__":{"token":"x"},"token":{"a":1},"client_id":[]}'],
    ['application/x-www-form-urlencoded', '%ff%fe=%00&token=%00&client_id=%00&code=\u0000&grant_type=refresh_token'],
    ['application/x-www-form-urlencoded', `token=${'a'.repeat(40_000)}`],
    ['multipart/form-data', 'x'],
    ['nonsense', 'x'],
    ['application/json', `{"client_name":"\ud800","redirect_uris":["https://a.example/"]}`],
  ];
  for (const [method, route] of OAUTH_ROUTES) {
    const path = route.replace(/:\w+/g, '%00');
    const query =
      method === 'GET' ? ['?client_id=%00&redirect_uri=%ff&state=%00', `?client_id=${'a'.repeat(4_000)}`, ''] : [''];
    for (const [type, body] of method === 'POST' ? BODIES : [['', '']]) {
      for (const more of query) {
        const headers = { ...fromAnywhere(), ...(type === '' ? {} : { 'content-type': type ?? '' }) };
        const answer = await fetch(`${server.url}${path}${more}`, {
          method,
          headers,
          redirect: 'manual',
          ...(method === 'POST' ? { body: body ?? '' } : {}),
        });
        const text = await answer.text();
        expect([path, body, answer.status < 500], text).toEqual([path, body, true]);
        expect(text).not.toMatch(/node_modules|\.ts:\d|SQL/);
      }
    }
  }
});

it.each(['register', 'introspect', 'device_authorization', 'authorize'])(
  'one address may call %s 60 times a minute, and is told when to come again',
  async (endpoint) => {
    const headers = { 'x-forwarded-for': '2001:db8::1' };
    const one = () =>
      fetch(`${server.url}/v2/oauth/${endpoint}`, { method: endpoint === 'authorize' ? 'GET' : 'POST', headers });
    // Two windows may meet: of 121 calls one has more than 60.
    const answers = await Promise.all(Array.from({ length: 121 }, one));
    const refused = answers.find(({ status }) => status === 429);
    expect(Number(refused?.headers.get('retry-after'))).toBeGreaterThan(0);
    const others = await post(server.url, '/v2/oauth/introspect', { token: 'x' });
    expect(others.status).toBe(200);
  },
);

it('web pages of any origin may read metadata and the token endpoint, without credentials, and nothing else', async () => {
  const origin = { origin: 'https://app.example' };
  for (const [path, open] of [
    ['/.well-known/oauth-authorization-server', true],
    ['/.well-known/oauth-protected-resource/tools/mcp', true],
    ['/v2/oauth/token', true],
    ['/v2/oauth/introspect', false],
    ['/v2/oauth/register', false],
    ['/v2/oauth/revoke', false],
  ] as const) {
    const method = path.startsWith('/.') ? 'GET' : 'POST';
    const answer = await fetch(`${server.url}${path}`, { method, headers: origin });
    expect([path, answer.headers.get('access-control-allow-origin')]).toEqual([path, open ? '*' : null]);
    expect(answer.headers.get('access-control-allow-credentials')).toBeNull();
    expect(answer.headers.get('cache-control')).toBe('no-store');
    const preflight = await fetch(`${server.url}${path}`, { method: 'OPTIONS', headers: origin });
    expect(preflight.headers.get('access-control-allow-origin')).toBe(open ? '*' : null);
  }
});

it('an approval is in the audit log, without the code', async () => {
  const { location: to = '' } = await authorize(server, request(server, client).query);
  const back = await approve(owner, to ?? '');
  expect(back.searchParams.get('code')).toMatch(/^slc_oac_/);
  const { body } = await server.admin(
    'GET',
    '/audit-logs?page_size=5&start_time=2020-01-01T00:00:00Z&end_time=2100-01-01T00:00:00Z',
  );
  expect(JSON.stringify(body)).toContain('oauth clients');
  expect(JSON.stringify(body)).not.toContain(back.searchParams.get('code'));
});

/** `fetch` sets its own host. */
function rawGet(url: string, headers: Record<string, string>): Promise<string> {
  return new Promise((resolve, reject) => {
    httpRequest(url, { headers }, (answer) => {
      let text = `${JSON.stringify(answer.headers)}\n`;
      answer.on('data', (chunk) => {
        text += String(chunk);
      });
      answer.on('end', () => resolve(text));
    })
      .on('error', reject)
      .end();
  });
}
