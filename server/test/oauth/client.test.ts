/** An OAuth client that knows nothing of Sluice signs in at it: discovery, registration, consent, tokens, their end. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import * as oauth from 'oauth4webapi';
import * as openid from 'openid-client';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import {
  approve,
  authorize,
  BEHIND_PROXY,
  browserOf,
  callTools,
  form,
  REDIRECT,
  registered,
  request,
  resourceOf,
  tokenPlane,
  tokensFor,
} from '../support/oauth.ts';
import { startServer, type TestServer } from '../support/server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer(BEHIND_PROXY, { planes: [tokenPlane] });
});
afterAll(() => server.stop());

/** The browser of a new member of the workspace. */
async function addMember({ admin, first }: TestServer) {
  const email = 'member@approvals.example';
  const invited = await admin('POST', '/admin/users/invites', {
    email,
    role: 'member',
    workspaces: [{ id: first.workspace_id, role: 'member' }],
  });
  const token = new URL(String(invited.body.invite_link)).hash.slice(1);
  const accepted = await fetch(`${server.url}/console/api/invite/acceptance`, {
    method: 'POST',
    headers: { origin: server.url, 'content-type': 'application/json' },
    body: JSON.stringify({ token, first_name: 'Mem', last_name: 'Ber' }),
  });
  const { session } = (await accepted.json()) as { session: { user: { id: string } } };
  return browserOf(server, session.user.id);
}

const INSECURE = { execute: [openid.allowInsecureRequests] };

it('finds the server from the address of an MCP server, registers, is approved, renews, looks at and revokes its tokens', async () => {
  const resource = new URL(resourceOf(server));
  const insecure = { [oauth.allowInsecureRequests]: true };
  const found = await oauth.resourceDiscoveryRequest(resource, insecure);
  const { authorization_servers } = await oauth.processResourceDiscoveryResponse(resource, found);
  const issuer = new URL(authorization_servers?.[0] ?? '');
  const config = await openid.dynamicClientRegistration(
    issuer,
    { client_name: 'Editor', redirect_uris: [REDIRECT], token_endpoint_auth_method: 'none' },
    openid.None(),
    { ...INSECURE, algorithm: 'oauth2' },
  );
  expect(config.serverMetadata()).toMatchObject({
    issuer: server.url,
    response_types_supported: ['code'],
    code_challenge_methods_supported: ['S256'],
    token_endpoint_auth_methods_supported: ['none'],
    authorization_response_iss_parameter_supported: true,
  });
  const pkceCodeVerifier = openid.randomPKCECodeVerifier();
  const expectedState = openid.randomState();
  const to = openid.buildAuthorizationUrl(config, {
    redirect_uri: REDIRECT,
    scope: 'mcp',
    state: expectedState,
    resource: resource.href,
    code_challenge: await openid.calculatePKCECodeChallenge(pkceCodeVerifier),
    code_challenge_method: 'S256',
  });
  const asked = await fetch(to, { redirect: 'manual' });
  expect(asked.status).toBe(302);
  const browser = await browserOf(server);
  const back = await approve(browser, asked.headers.get('location') ?? '');
  // The library checks state and iss.
  const tokens = await openid.authorizationCodeGrant(config, back, { pkceCodeVerifier, expectedState });
  expect(tokens).toMatchObject({ token_type: 'bearer', scope: 'mcp', expires_in: 3600 });
  const called = await callTools(server.url, tokens.access_token);
  expect([called.status, called.body]).toEqual([
    200,
    {
      kind: 'oauth',
      userId: server.first.user_id,
      workspaceId: server.first.workspace_id,
      organisationId: server.first.organisation_id,
      scopes: ['agents.invoke', 'mcp.invoke', 'mcp:read', 'mcp:write'],
    },
  ]);

  const renewed = await openid.refreshTokenGrant(config, tokens.refresh_token ?? '', { scope: 'mcp:read' });
  expect(renewed.scope).toBe('mcp:read');
  const narrow = await callTools(server.url, renewed.access_token);
  expect(narrow.body.scopes).toEqual(['agents.invoke', 'mcp.invoke', 'mcp:read']);

  const known = await openid.tokenIntrospection(config, renewed.access_token);
  expect(known).toMatchObject({
    active: true,
    token_type: 'Bearer',
    client_id: config.clientMetadata().client_id,
    scope: 'mcp:read',
    aud: resource.href,
    iss: server.url,
    sub: server.first.user_id,
    workspace_id: server.first.workspace_id,
    organisation_id: server.first.organisation_id,
    resource_id: 'tools',
    resource_type: 'mcp_server',
    rate_limits: [],
  });

  await openid.tokenRevocation(config, renewed.refresh_token ?? '');
  expect(await openid.tokenIntrospection(config, renewed.access_token)).toEqual({ active: false });
  expect((await callTools(server.url, renewed.access_token)).status).toBe(401);
  expect((await callTools(server.url, tokens.access_token)).status).toBe(401);
  await expect(openid.refreshTokenGrant(config, renewed.refresh_token ?? '')).rejects.toMatchObject({
    error: 'invalid_grant',
  });
});

it('a user sees the programs that were let in, and ends the access of one; nobody else sees or ends it', async () => {
  const browser = await browserOf(server);
  const clientId = await registered(server, { client_name: 'Seen editor' });
  const [kept, ended] = [await tokensFor(server, browser, clientId), await tokensFor(server, browser, clientId)];
  const listed = async () => {
    const { body } = await browser.call('GET', '/v1/oauth/approvals');
    return (body.data as Record<string, unknown>[]).filter((one) => one.client_id === clientId);
  };
  const [newest] = await listed();
  expect(newest).toMatchObject({
    object: 'oauth-approval',
    client_name: 'Seen editor',
    scopes: ['mcp'],
    resource: resourceOf(server),
    workspace_id: server.first.workspace_id,
  });
  expect(JSON.stringify(await listed())).not.toMatch(/slc_/);
  const path = `/v1/oauth/approvals/${newest?.id}`;
  const other = await addMember(server);
  expect((await other.call('GET', '/v1/oauth/approvals')).body).toMatchObject({ total: 0, data: [] });
  expect((await other.call('DELETE', path)).status).toBe(404);
  expect((await server.admin('GET', '/oauth/approvals')).status).toBe(401);
  expect((await server.admin('DELETE', `/oauth/approvals/${newest?.id}`)).status).toBe(401);
  expect((await callTools(server.url, ended.access_token)).status).toBe(200);
  expect((await browser.call('DELETE', path)).status).toBe(200);
  expect((await callTools(server.url, ended.access_token)).status).toBe(401);
  expect((await callTools(server.url, kept.access_token)).status).toBe(200);
  expect(await listed()).toHaveLength(1);
  expect((await browser.call('DELETE', path)).status).toBe(404);
});

it('a program with a scheme alone is let in where the scheme is a known one, and the page is told where the answer goes', async () => {
  const redirect_uri = 'cursor://anysphere.cursor-mcp/oauth/callback';
  const clientId = await registered(server, { redirect_uris: [redirect_uri] });
  const browser = await browserOf(server);
  const { location } = await authorize(server, request(server, clientId, { redirect_uri }).query);
  const resume_state = new URL(location ?? '').hash.slice(1);
  const seen = await browser.call('POST', '/console/api/access', { resume_state });
  expect(seen.body).toMatchObject({ redirect_host: 'cursor:', local: true });
  const back = await approve(browser, location ?? '');
  expect(back.href.startsWith(`${redirect_uri}?code=slc_oac_`)).toBe(true);
});

it('clients that know only the origin, or only OpenID Connect, find the server too, and are promised nothing more', async () => {
  const read = async (path: string) => {
    const answer = await fetch(`${server.url}${path}`);
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  };
  const { body: metadata } = await read('/.well-known/oauth-authorization-server');
  expect(await read('/.well-known/openid-configuration')).toEqual({ status: 200, body: metadata });
  expect(Object.keys(metadata).join(' ')).not.toMatch(/id_token|userinfo|jwks|subject_types/);
  expect(metadata.scopes_supported).not.toContain('openid');
  const origin = await read('/.well-known/oauth-protected-resource');
  expect(origin).toMatchObject({
    status: 200,
    body: { resource: server.url, authorization_servers: [server.url] },
  });
  // No token is for everything at the origin.
  const clientId = await registered(server);
  const { location } = await authorize(server, request(server, clientId, { resource: server.url }).query);
  const said = new URL(location ?? '').searchParams;
  expect(said.get('error')).toBe('invalid_target');
  expect(said.get('error_description')).toContain('the address of an MCP server or an agent');
});

it('a plane says with a 401 and a 403 how its callers get a token, and with nothing else', async () => {
  const challenge = async (headers: Record<string, string>) => {
    const answer = await fetch(`${server.url}/tools/mcp`, { method: 'POST', headers, body: '{}' });
    return [answer.status, answer.headers.get('www-authenticate')];
  };
  expect(await challenge({})).toEqual([401, 'Bearer resource_metadata="/of/tools"']);
  expect(await challenge({ authorization: 'Bearer slc_oat_x' })).toEqual([401, 'Bearer resource_metadata="/of/tools"']);
  const { body } = await server.admin('POST', '/api-keys/workspace/service', {
    name: 'narrow',
    workspace_id: server.first.workspace_id,
    scopes: ['models.list'],
  });
  const narrow = await challenge({ 'x-gateway-api-key': String(body.key) });
  expect(narrow).toEqual([403, 'Bearer error="insufficient_scope"']);
  const { access_token } = await tokensFor(server, await browserOf(server), await registered(server));
  expect(await challenge({ authorization: `Bearer ${access_token}` })).toEqual([200, null]);
});

it('a command line gets a code, waits, and is signed in once the code is approved; it is another session than the browser', async () => {
  const config = await openid.discovery(new URL(server.url), 'sluice-cli', undefined, openid.None(), {
    ...INSECURE,
    algorithm: 'oauth2',
  });
  const begun = await openid.initiateDeviceAuthorization(config, {});
  expect(begun).toMatchObject({ expires_in: 600, interval: 5, verification_uri: `${server.url}/console/device` });
  expect(begun.user_code).toMatch(/^[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}$/);
  expect(begun.verification_uri_complete).toBe(`${server.url}/console/device#${begun.user_code}`);
  const grant = { device_code: begun.device_code };
  const poll = () => openid.genericGrantRequest(config, 'urn:ietf:params:oauth:grant-type:device_code', grant);
  await expect(poll()).rejects.toMatchObject({ error: 'authorization_pending' });
  await expect(poll()).rejects.toMatchObject({ error: 'slow_down' });

  const browser = await browserOf(server);
  // As people type it.
  const user_code = begun.user_code.toLowerCase().replace('-', ' ');
  const seen = await browser.call('POST', '/console/api/device', { user_code });
  expect([seen.status, seen.body]).toMatchObject([200, { client_id: 'sluice-cli', address: '127.0.0.1' }]);
  await expect(poll()).rejects.toMatchObject({ error: 'slow_down' });
  const decided = await browser.call('POST', '/console/api/device/decision', { user_code, approved: true });
  expect(decided.status).toBe(204);
  const again = await browser.call('POST', '/console/api/device/decision', { user_code, approved: true });
  expect(again.status).toBe(404);
  const results = await Promise.allSettled([poll(), poll(), poll()]);
  const [tokens, ...more] = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  expect(more).toEqual([]);
  expect(tokens).toMatchObject({ token_type: 'bearer', expires_in: 900 });
  const headers = { authorization: `Bearer ${tokens?.access_token}` };
  await browser.call('DELETE', '/console/api/session');
  const self = await fetch(`${server.url}/v1/auth/self`, { headers });
  expect([self.status, await self.json()]).toMatchObject([200, { user: { id: server.first.user_id } }]);
  const body = JSON.stringify({ model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hi' }] });
  const json = { ...headers, 'content-type': 'application/json' };
  const chat = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', headers: json, body });
  expect(chat.status).toBe(401);
});

it('an approval of a command line is taken back by signing out before the command line asks for its tokens', async () => {
  const { body: begun } = await form(server.url, '/v2/oauth/device_authorization', { client_id: 'sluice-cli' });
  const { user_code, device_code } = begun as Record<string, string>;
  const browser = await browserOf(server);
  const decision = { user_code, approved: true };
  expect((await browser.call('POST', '/console/api/device/decision', decision)).status).toBe(204);
  expect((await browser.call('POST', '/v2/auth/logout', { everywhere: true })).status).toBe(200);
  const grant_type = 'urn:ietf:params:oauth:grant-type:device_code';
  const asked = { grant_type, client_id: 'sluice-cli', device_code: device_code ?? '' };
  const polled = await form(server.url, '/v2/oauth/token', asked);
  expect([polled.status, polled.body.error]).toEqual([400, 'access_denied']);
});

it('a session may try five wrong codes, and others may still answer; a refusal ends the sign-in', async () => {
  const begin = async () =>
    (await form(server.url, '/v2/oauth/device_authorization', { client_id: 'sluice-cli' })).body;
  const { user_code, device_code } = await begin();
  const guesser = await browserOf(server);
  for (let wrong = 0; wrong < 5; wrong++) {
    const { status } = await guesser.call('POST', '/console/api/device', { user_code: `BBBB-BBB${'CDFGH'[wrong]}` });
    expect(status).toBe(404);
  }
  const refused = await guesser.call('POST', '/console/api/device', { user_code });
  expect(refused.status).toBe(429);
  expect((await guesser.call('POST', '/console/api/device/decision', { user_code, approved: true })).status).toBe(429);
  const user = await browserOf(server);
  expect((await user.call('POST', '/console/api/device/decision', { user_code, approved: false })).status).toBe(204);
  const fields = {
    grant_type: 'urn:ietf:params:oauth:grant-type:device_code',
    client_id: 'sluice-cli',
    device_code: String(device_code),
  };
  expect((await form(server.url, '/v2/oauth/token', fields)).body.error).toBe('access_denied');
  expect((await form(server.url, '/v2/oauth/token', fields)).body.error).toBe('invalid_grant');
  const other = await form(server.url, '/v2/oauth/device_authorization', { client_id: 'editor' });
  expect(other.body.error).toBe('unauthorized_client');
});

it('a client that publishes its metadata needs no registration; one whose document is wrong, large or elsewhere is unknown', async () => {
  const documents = new Map<string, string>();
  const asked: string[] = [];
  const host = createServer((incoming, response) => {
    const path = incoming.url ?? '';
    asked.push(path);
    const body = documents.get(path);
    if (path === '/moved') return void response.writeHead(302, { location: '/client.json' }).end();
    response.writeHead(body === undefined ? 404 : 200, { 'content-type': 'application/json' }).end(body);
  });
  await new Promise<void>((resolve) => void host.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void host.close());
  const base = `http://127.0.0.1:${(host.address() as AddressInfo).port}`;
  const trusting = await startServer({ SLUICE_TRUSTED_HOSTS: base.slice('http://'.length) });
  onTestFinished(() => trusting.stop());
  const document = (path: string, more: object = {}) =>
    JSON.stringify({ client_id: `${base}${path}`, client_name: 'Editor', redirect_uris: [REDIRECT], ...more });
  documents.set('/client.json', document('/client.json'));
  documents.set('/other.json', document('/client.json'));
  documents.set('/secret.json', document('/secret.json', { client_secret: 'x' }));
  documents.set('/script.json', document('/script.json', { redirect_uris: ['javascript:alert(1)'] }));
  documents.set('/large.json', document('/large.json', { padding: 'a'.repeat(70_000) }));
  documents.set('/text.json', 'nonsense');

  const browser = await browserOf(trusting);
  const clientId = `${base}/client.json`;
  const asUser = { headers: { cookie: browser.cookie } };
  // Hosts inside a network are called for signed-in users only: anybody can send a request for access.
  expect((await authorize(trusting, request(trusting, clientId).query)).status).toBe(400);
  expect(asked).toEqual([]);
  expect((await authorize(trusting, request(trusting, clientId).query, asUser)).status).toBe(302);
  const { access_token } = await tokensFor(trusting, browser, clientId);
  expect(access_token).toMatch(/^slc_oat_/);
  await tokensFor(trusting, browser, clientId);
  expect(asked).toEqual(['/client.json']);
  const { location } = await authorize(trusting, request(trusting, clientId).query);
  const resume_state = new URL(location ?? '').hash.slice(1);
  const seen = await browser.call('POST', '/console/api/access', { resume_state });
  expect(seen.body.client).toEqual({ id: clientId, name: 'Editor', uri: null, document: true });

  for (const path of [
    '/other.json',
    '/secret.json',
    '/script.json',
    '/large.json',
    '/text.json',
    '/none.json',
    '/moved',
  ]) {
    const { status, text } = await authorize(trusting, request(trusting, `${base}${path}`).query, asUser);
    expect([path, status, text.includes('does not know the program')]).toEqual([path, 400, true]);
  }
  // Addresses inside that nobody trusts are not even called, and spellings of one address are other clients.
  const before = asked.length;
  for (const id of [
    `${base}/../client.json`,
    `${base}/client.json#x`,
    base,
    'http://169.254.169.254/latest',
    'https://127.0.0.1/c.json',
  ]) {
    const { status } = await authorize(trusting, request(trusting, id).query, asUser);
    expect([id, status]).toEqual([id, 400]);
  }
  expect(asked.length).toBe(before);
});
