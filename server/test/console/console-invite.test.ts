/** An invite from its link to the first request with its key, in a real browser against a whole server. */
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { isCurrent } from '../../../console/ensure-built.mjs';
import { launchBrowser } from '../support/browser.ts';
import { startServer, type TestServer } from '../support/server.ts';

const browser = await launchBrowser();
const TITLE = `an invite in a real browser${browser.context ? '' : ` (skipped: ${browser.reason})`}`;

describe.skipIf(browser.context === null)(TITLE, () => {
  let server: TestServer;
  let page: Page;
  let guests = 0;
  /** What no page may do: break its content security policy, throw, ask another host, or put the token in an address. */
  let complaints: string[] = [];
  let token = '';

  beforeAll(async () => {
    expect(isCurrent(), 'console/dist is not built from these sources: npm run console').toBe(true);
    server = await startServer();
  });
  afterAll(async () => {
    if (browser.context) await browser.close();
    await server?.stop();
  });

  beforeEach(async () => {
    if (!browser.context) return;
    complaints = [];
    await browser.context.clearCookies();
    page = await browser.context.newPage();
    page.setDefaultTimeout(5_000);
    page.on('pageerror', (error) => complaints.push(error.message));
    page.on('request', (request) => {
      const url = request.url().split('#')[0] ?? '';
      if (!url.startsWith(`${server.url}/`) || (token !== '' && url.includes(token))) complaints.push(`asked ${url}`);
    });
    page.on('console', (message) => {
      if (/content security policy/i.test(message.text())) complaints.push(message.text());
    });
  });
  afterEach(async () => {
    await page?.close();
    expect(complaints).toEqual([]);
  });

  const heading = (name: string) => page.getByRole('heading', { name, level: 1 });
  const button = (name: string) => page.getByRole('button', { name, exact: true });
  const invite = async (body: object = {}) => {
    const email = `guest${++guests}@x.example`;
    const workspaces = [{ id: server.first.workspace_slug, role: 'member' }];
    const made = await server.admin('POST', '/admin/users/invites', { email, role: 'member', workspaces, ...body });
    expect(made.status).toBe(200);
    const link = String(made.body.invite_link);
    token = link.split('#')[1] ?? '';
    return { email, id: String(made.body.id), link };
  };

  /** The first page: which of the two depends on whether a request of the workspace is stored yet. */
  const home = () => page.getByRole('heading', { name: /^(?:Overview|Me|Make your first request)$/, level: 1 });

  test('shows who invites to what, asks for a name, shows the key once, and leads into the console', async () => {
    const { email, id, link } = await invite({ workspace_api_key_details: { scopes: ['completions.write'] } });
    expect(link.startsWith(`${server.url}/console/invite#`)).toBe(true);
    await page.goto(link);
    await heading('Join My organisation').waitFor();
    expect(page.url()).toBe(`${server.url}/console/invite`);
    const offer = await page.locator('main').textContent();
    expect(offer).toContain('invited as member of My organisation');
    expect(offer).toContain(email);
    expect(offer).toContain('Workspace Default, as member');
    expect(await button('Accept the invite').isDisabled()).toBe(true);

    await page.getByLabel('First name').fill('Ada');
    await page.getByLabel('Last name').fill('Lovelace');
    await page.getByLabel('Last name').press('Enter');
    await heading('Welcome to My organisation').waitFor();
    const key = (await page.locator('.copy-line code').textContent()) ?? '';
    expect(key).toMatch(/^slc_usr_/);
    const model = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hi' }] };
    expect((await server.call('/chat/completions', model, { 'x-gateway-api-key': key })).status).toBe(200);

    // Nothing of it is cut off: who copies by hand sees all of it.
    const box = page.locator('.copy-line code');
    expect(await box.evaluate((code) => code.scrollWidth <= code.clientWidth)).toBe(true);

    await button('Go to the console').click();
    await page.getByText('You have not copied your key. It cannot be shown again.').waitFor();
    const asked = page.waitForEvent('dialog');
    await page.evaluate('void setTimeout(() => location.reload(), 0)');
    const dialog = await asked;
    expect(dialog.type()).toBe('beforeunload');
    await dialog.dismiss();
    await heading('Welcome to My organisation').waitFor();

    await page.getByRole('button', { name: /^Copy / }).click();
    await page.getByRole('button', { name: /^Copied / }).waitFor();
    expect(await page.getByText('You have not copied').count()).toBe(0);
    await button('Go to the console').click();
    await home().waitFor();
    expect(await page.locator('body').textContent()).toContain(email);
    expect(await page.content()).not.toContain(key);
    await page.getByRole('link', { name: 'Connect' }).click();
    // The file of the first run is the owner's: who was invited uses the key of the invite.
    await page.getByRole('heading', { name: '1. A key' }).waitFor();
    expect(await page.locator('body').textContent()).not.toContain('first-run.json');
    await page.reload();
    await heading('Connect').waitFor();
    expect((await server.admin('GET', `/admin/users/invites/${id}`)).body.status).toBe('accepted');

    await page.goto('about:blank');
    await page.goto(link);
    await heading('This invite did not work').waitFor();
    await expect(page.getByRole('alert').textContent()).resolves.toContain('has been accepted');
  });

  test('without a key it leads straight into the console, signed in as the new user', async () => {
    const { email, link } = await invite({ role: 'admin' });
    await page.goto(link);
    await page.getByLabel('First name').fill('Grace');
    await page.getByLabel('Last name').fill('Hopper');
    await button('Accept the invite').click();
    await home().waitFor();
    expect(page.url()).toBe(`${server.url}/console/`);
    const { body } = await server.admin('GET', `/admin/users?email=${encodeURIComponent(email)}`);
    expect(body.data).toMatchObject([{ first_name: 'Grace', last_name: 'Hopper', role: 'admin' }]);
  });

  test('a cancelled, replaced or cut-off link says which it is, and asks for no name', async () => {
    const cancelled = await invite();
    await server.admin('DELETE', `/admin/users/invites/${cancelled.id}`);
    const replaced = await invite();
    const again = await server.admin('POST', `/admin/users/invites/${replaced.id}/resend`);
    expect(again.status).toBe(200);
    for (const [link, words] of [
      [cancelled.link, 'was cancelled'],
      [replaced.link, 'a newer one was made'],
      [`${server.url}/console/invite`, 'Open the whole link'],
    ] as const) {
      await page.goto('about:blank');
      await page.goto(link);
      await heading('This invite did not work').waitFor();
      await expect(page.getByRole('alert').textContent()).resolves.toContain(words);
      expect(await page.locator('input').count()).toBe(0);
    }
    await page.goto('about:blank');
    await page.goto(String(again.body.inviteLink));
    await heading('Join My organisation').waitFor();
  });

  test('an invite that is cancelled while the form is open is refused in place, and nobody is signed in', async () => {
    const { id, link } = await invite();
    await page.goto(link);
    await page.getByLabel('First name').fill('Too');
    await page.getByLabel('Last name').fill('Late');
    await server.admin('DELETE', `/admin/users/invites/${id}`);
    await button('Accept the invite').click();
    await page.getByRole('alert').getByText('was cancelled').waitFor();
    await page.goto(`${server.url}/console/`);
    await heading('Sign in').waitFor();
  });

  test('on a phone nothing is wider than the screen, not even the key', async () => {
    await page.setViewportSize({ width: 360, height: 740 });
    const { link } = await invite({ workspace_api_key_details: { scopes: ['completions.write'] } });
    await page.goto(link);
    await heading('Join My organisation').waitFor();
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360);
    await page.getByLabel('First name').fill('A'.repeat(100));
    await page.getByLabel('Last name').fill('B');
    await button('Accept the invite').click();
    await heading('Welcome to My organisation').waitFor();
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360);
  });
});
