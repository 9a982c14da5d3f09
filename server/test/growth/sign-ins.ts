/** How users and programs sign in to a whole server: through a provider, in a browser, with tokens, as OAuth clients. */
import { startFakeProvider } from '../support/fake-provider.ts';
import {
  type Answer,
  approve,
  authorize,
  browserOf,
  codeFor,
  form,
  type Browser as OAuthBrowser,
  registered,
  request,
  tokensFor,
} from '../support/oauth.ts';
import type { TestServer } from '../support/server.ts';
import { signInCall } from '../support/sign-in-ways.ts';
import { worldOf } from '../support/sso-world.ts';

/** Settings of a server whose provider is on this machine. */
export const SIGN_INS = { SLUICE_TRUSTED_HOSTS: '127.0.0.1', SLUICE_TRUSTED_PROXIES: '127.0.0.1' };

export async function signIns(server: TestServer, during: (by: string) => void): Promise<void> {
  during('sessions');
  await sessions(server);
  during('OAuth');
  await clients(server);
  during('a command line');
  await commandLine(server);
  during('a provider');
  await provider(server);
}

const good = (answer: Answer): Answer => {
  if (answer.status >= 400) throw new Error(`${answer.status} ${answer.text}`);
  return answer;
};
const cookies = ({ cookie, csrf }: OAuthBrowser) => ({ cookie, 'x-csrf-token': csrf });

async function sessions(server: TestServer): Promise<void> {
  const browser = await browserOf(server);
  const first = await signInCall(server.url, 'login', cookies(browser), {});
  const again = () => signInCall(server.url, 'refresh', {}, { refresh_token: first.refresh_token });
  const { auth_token } = await again();
  await fetch(`${server.url}/v1/auth/self`, { headers: { authorization: `Bearer ${auth_token}` } });
  // The second use of one ends what it belongs to.
  await again().catch(() => undefined);
  good(await browser.call('GET', '/v2/auth/passkeys'));
  await browser.call('POST', '/v2/auth/passkeys/options', {});
  await signInCall(server.url, 'logout', cookies(browser), { everywhere: true });
}

async function clients(server: TestServer): Promise<void> {
  const id = await registered(server);
  const browser = await browserOf(server);
  const refused = await authorize(server, request(server, id).query);
  await approve(browser, String(refused.location), { approved: false });
  const code = await codeFor(server, browser, id);
  const token = (fields: Record<string, string>) => form(server.url, '/v2/oauth/token', fields);
  const { body } = good(await token(code));
  const renewal = {
    grant_type: 'refresh_token',
    client_id: id,
    refresh_token: String(body.refresh_token),
  };
  const next = good(await token(renewal)).body;
  await tokensFor(server, browser, id);
  const approvals = good(await browser.call('GET', '/v1/oauth/approvals')).body.data as { id: string }[];
  good(await browser.call('DELETE', `/v1/oauth/approvals/${approvals[0]?.id}`));
  good(await form(server.url, '/v2/oauth/introspect', { token: String(next.access_token) }));
  good(await form(server.url, '/v2/oauth/revoke', { token: String(next.refresh_token), client_id: id }));
  // What was used before.
  await token(renewal);
  await token(code);
}

async function commandLine(server: TestServer): Promise<void> {
  const client_id = 'sluice-cli';
  const { body } = good(await form(server.url, '/v2/oauth/device_authorization', { client_id }));
  const { user_code, device_code } = body;
  const grant_type = 'urn:ietf:params:oauth:grant-type:device_code';
  const poll = () => form(server.url, '/v2/oauth/token', { grant_type, client_id, device_code: String(device_code) });
  const browser = await browserOf(server);
  await poll();
  good(await browser.call('POST', '/console/api/device', { user_code }));
  good(await browser.call('POST', '/console/api/device/decision', { user_code, approved: true }));
  good(await poll());
}

const LOGOUT = 'http://schemas.openid.net/event/backchannel-logout';

async function provider(server: TestServer): Promise<void> {
  const world = worldOf(server);
  const fake = await startFakeProvider();
  try {
    const allowed_domains = [{ domain: 'acme.example', allow_subdomains: true }];
    await server.admin('PUT', '/admin/organisation/settings', { auth_settings: { allowed_domains } });
    const { issuer, clientId: client_id } = fake;
    const workspace_id = server.first.workspace_id;
    const group_mappings = [
      { group: 'staff', role: 'admin' },
      { group: 'staff', workspace_id, workspace_role: 'member' },
    ];
    const id = await world.client({ issuer, client_id, group_mappings });
    for (const groups of [['staff'], []]) {
      fake.current = { claims: (right) => ({ ...right, sid: 'one', groups }) };
      const browser = world.browser();
      await browser.open(await fake.approve(await browser.login()));
      if ((await browser.self()) === null) throw new Error('nobody is signed in');
      const session = await browser.send('GET', '/console/api/session');
      const headers = { origin: server.url, 'x-csrf-token': String(session.body.csrf_token) };
      if (groups.length === 0) await browser.send('POST', '/v2/auth/logout', {}, headers);
    }
    const iat = Math.floor(Date.now() / 1_000);
    for (const whose of [{ sid: 'one' }, { sub: 'ada' }]) {
      const events = { [LOGOUT]: {} };
      const claims = { iss: issuer, aud: client_id, iat, exp: iat + 120, jti: JSON.stringify(whose), events, ...whose };
      const logout_token = await fake.sign(claims, { typ: 'logout+jwt' });
      good(await form(server.url, `/v2/auth/backchannel-logout/${id}`, { logout_token }));
    }
    await world.change(id, { issuer: `${issuer}/other` }).catch(() => undefined);
  } finally {
    await fake.close();
  }
}
