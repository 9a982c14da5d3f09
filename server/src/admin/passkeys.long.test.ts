/** Passkeys in a real browser with a virtual authenticator: made on the account page, used on the sign-in page. */
import { createServer } from 'node:net';
import type { CDPSession, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isCurrent } from '../../../console/ensure-built.mjs';
import { launchBrowser } from '../../test/support/browser.ts';
import { startServer, type TestServer } from '../../test/support/server.ts';

const browser = await launchBrowser();

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((ready) => server.once('listening', ready));
  const address = server.address();
  await new Promise((closed) => server.close(closed));
  return typeof address === 'object' && address !== null ? address.port : 0;
}

describe.skipIf(browser.context === null)(`passkeys ${browser.context ? '' : `(skipped: ${browser.reason})`}`, () => {
  let server: TestServer;
  let url: string;
  let page: Page;
  let device: CDPSession;
  let authenticatorId: string;
  let user: { readonly id: string; readonly email: string };
  let key: string;
  const organisation: Record<string, string> = {};

  beforeAll(async () => {
    expect(isCurrent(), 'console/dist is not built from these sources: npm run console').toBe(true);
    const port = await freePort();
    url = `http://localhost:${port}`;
    server = await startServer({ SLUICE_PORT: String(port), SLUICE_PUBLIC_URL: url });
    const owner = { email: 'ada@acme.example', first_name: 'Ada', last_name: 'Lovelace' };
    const made = await server.admin(
      'POST',
      '/operator/organisations',
      { name: 'Acme', owner },
      server.first.operator_api_key,
    );
    Object.assign(organisation, made.body);
    key = String(organisation.admin_api_key);
    user = await addMember('grace@acme.example');
    page = (await browser.context?.newPage()) as Page;
    page.setDefaultTimeout(10_000);
    device = (await browser.context?.newCDPSession(page)) as CDPSession;
    await device.send('WebAuthn.enable');
    const added = await device.send('WebAuthn.addVirtualAuthenticator', {
      options: {
        protocol: 'ctap2',
        transport: 'internal',
        hasResidentKey: true,
        hasUserVerification: true,
        isUserVerified: true,
        automaticPresenceSimulation: true,
      },
    });
    authenticatorId = added.authenticatorId;
  }, 60_000);
  afterAll(async () => {
    if (browser.context) await browser.close();
    await server?.stop();
  });

  async function addMember(email: string): Promise<{ id: string; email: string }> {
    const invited = await server.admin('POST', '/admin/users/invites', { email, role: 'admin', workspaces: [] }, key);
    const [, token] = String(invited.body.invite_link).split('#');
    const accepted = await fetch(`${server.url}/console/api/invite/acceptance`, {
      method: 'POST',
      headers: { origin: url, 'content-type': 'application/json' },
      body: JSON.stringify({ token, first_name: 'Grace', last_name: 'Hopper' }),
    });
    const text = await accepted.text();
    if (accepted.status !== 200) throw new Error(`${JSON.stringify(invited.body)} ${text}`);
    const { session } = JSON.parse(text) as { session: { user: { id: string } } };
    return { id: session.user.id, email };
  }

  const signInByLink = async () => {
    const made = await server.admin('POST', `/admin/users/${user.id}/sign-in-link`, {}, key);
    await page.goto('about:blank');
    await page.goto(String(made.body.sign_in_link));
    await page.getByRole('heading', { name: 'Make your first request' }).waitFor();
  };
  const signOut = async () => {
    await page.goto(`${url}/console/`);
    await page.getByRole('button', { name: 'Sign out', exact: true }).click();
    await page.getByRole('heading', { name: 'Sign in', level: 1 }).waitFor();
  };
  const passkeyButton = () => page.getByRole('button', { name: 'Sign in with a passkey' });
  const audit = async (): Promise<Record<string, unknown>[]> => {
    const range = 'start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z&page_size=100';
    return (await server.admin('GET', `/audit-logs?${range}`, undefined, key)).body.records as never;
  };
  const lastOf = async (resource: string) => (await audit()).find(({ resource_type }) => resource_type === resource);
  const setting = (disable_link_sign_in: boolean) =>
    server.admin('PUT', '/admin/organisation/settings', { auth_settings: { disable_link_sign_in } }, key);

  it('are made on the account page, and sign their user in afterwards', async () => {
    await signInByLink();
    await page.goto(`${url}/console/account`);
    await page.getByLabel('Name of the new passkey').fill('Laptop');
    await page.getByRole('button', { name: 'Add a passkey' }).click();
    await page.getByText('not used yet').waitFor();
    expect(await lastOf('passkeys')).toMatchObject({ action: 'create', user_id: user.id });
    await signOut();
    await passkeyButton().click();
    await page.getByRole('heading', { name: 'Make your first request' }).waitFor();
    expect(await lastOf('auth.sign_in')).toMatchObject({ user_id: user.id, uri: '/v2/auth/passkey-login' });
    await signOut();
  }, 60_000);

  it('answer a challenge once, in the browser that it was made for', async () => {
    const sent = page.waitForRequest((request) => request.url().endsWith('/v2/auth/passkey-login'));
    await passkeyButton().click();
    const request = await sent;
    await page.getByRole('heading', { name: 'Make your first request' }).waitFor();
    const { cookie = '' } = await request.allHeaders();
    expect(cookie).toContain('sluice_login=');
    const again = async (headers: Record<string, string>) => {
      const answer = await fetch(`${server.url}/v2/auth/passkey-login`, {
        method: 'POST',
        headers: { origin: url, 'content-type': 'application/json', ...headers },
        body: request.postData() ?? '',
      });
      return [answer.status, answer.headers.get('set-cookie')];
    };
    expect(await again({ cookie })).toEqual([401, null]);
    expect(await again({})).toEqual([401, null]);
    await signOut();
  }, 60_000);

  it('are refused when the counter of the device has gone back, which is in the audit log', async () => {
    const { credentials } = await device.send('WebAuthn.getCredentials', { authenticatorId });
    const [credential] = credentials;
    if (credential === undefined) throw new Error('the device has no passkey');
    expect(credential.signCount).toBeGreaterThan(1);
    const copy = async (signCount: number) => {
      await device.send('WebAuthn.clearCredentials', { authenticatorId });
      await device.send('WebAuthn.addCredential', { authenticatorId, credential: { ...credential, signCount } });
    };
    await copy(0);
    await passkeyButton().click();
    await page.getByText('This passkey does not sign you in here.').waitFor();
    expect(await lastOf('auth.sign_in_failed')).toMatchObject({ user_id: user.id, response_status_code: 401 });
    await copy(credential.signCount + 10);
  }, 60_000);

  it('need a device that has verified its user', async () => {
    await device.send('WebAuthn.setUserVerified', { authenticatorId, isUserVerified: false });
    await passkeyButton().click();
    await page.getByText('The browser gave no passkey').waitFor();
    await device.send('WebAuthn.setUserVerified', { authenticatorId, isUserVerified: true });
  }, 60_000);

  it('are for owners only where links are, and end with their user', async () => {
    await setting(true);
    await passkeyButton().click();
    await page.getByText('only owners use passkeys').waitFor();
    await setting(false);
    await passkeyButton().click();
    await page.getByRole('heading', { name: 'Make your first request' }).waitFor();
    await signOut();
    expect((await server.admin('DELETE', `/admin/users/${user.id}`, {}, key)).status).toBe(200);
    await passkeyButton().click();
    await page.getByText('This passkey does not sign you in here.').waitFor();
  }, 60_000);
});
