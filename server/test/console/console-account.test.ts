/** The account page in a real browser, on a whole server with a real mail server. */
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { launchBrowser } from '../support/browser.ts';
import { type MailingServer, startMailingServer } from '../support/mailing-server.ts';
import { browserOf, registered, resourceOf, tokensFor } from '../support/oauth.ts';

const browser = await launchBrowser();
const TITLE = `the account page${browser.context ? '' : ` (skipped: ${browser.reason})`}`;

describe.skipIf(browser.context === null)(TITLE, () => {
  let server: MailingServer;
  beforeAll(async () => {
    server = await startMailingServer();
  });
  afterAll(async () => {
    if (browser.context) await browser.close();
    await server?.stop();
  });

  const heading = (page: Page, name: string) => page.getByRole('heading', { name, level: 1 });
  /** Signed in as the owner, on the account page, which was reached by keyboard. */
  const open = async (): Promise<Page> => {
    await browser.context?.clearCookies();
    const page = (await browser.context?.newPage()) as Page;
    page.setDefaultTimeout(10_000);
    onTestFinished(() => page.close());
    const made = await server.admin('POST', `/admin/users/${server.first.user_id}/sign-in-link`);
    await page.goto(String(made.body.sign_in_link));
    await page.getByRole('link', { name: 'Account' }).focus();
    await page.keyboard.press('Enter');
    await heading(page, 'Your account').waitFor();
    return page;
  };

  it('changes the own address: asked for by keyboard, mailed, confirmed, and good for signing in', async () => {
    const page = await open();
    expect(await page.evaluate('document.activeElement.textContent')).toBe('Your account');
    await page.getByLabel('New e-mail address').fill('ada@new.example');
    await page.keyboard.press('Enter');
    await page.getByRole('status').getByText('A link is on its way to ada@new.example.').waitFor();
    const [text = ''] = await server.mailed('ada@new.example');
    await page.goto(/http\S+\/console\/email#\S+/.exec(text)?.[0] ?? '');
    await page.getByText('Your address is ada@new.example now.').waitFor();
    await page.getByRole('link', { name: 'Go to the console' }).click();
    await page.getByRole('button', { name: 'Sign out', exact: true }).click();
    await heading(page, 'Sign in').waitFor();

    await page.getByLabel('Your e-mail address').fill('ada@new.example');
    await page.keyboard.press('Enter');
    await page.getByText('If a user has the address ada@new.example').waitFor();
    const mails = await server.mailed('ada@new.example', 2);
    await page.goto('about:blank');
    await page.goto(/http\S+\/console\/sign-in#\S+/.exec(mails[1] ?? '')?.[0] ?? '');
    await heading(page, 'Make your first request').waitFor();
    await page.getByText('ada@new.example').waitFor();
  });

  it('shows the programs that were let in, and ends the access of one', async () => {
    await tokensFor(server, await browserOf(server), await registered(server, { client_name: 'My editor' }));
    const page = await open();
    const programs = page.getByRole('list', { name: 'Programs with access' });
    await programs.getByText('My editor', { exact: true }).waitFor();
    expect(await programs.textContent()).toContain(resourceOf(server));
    await page.getByRole('button', { name: 'End access of My editor' }).click();
    await page.getByText('You have let no program in.').waitFor();
  });

  it('says why an address is refused', async () => {
    const email = 'eve@x.example';
    const made = await server.admin('POST', '/admin/users/invites', { email, role: 'member', workspaces: [] });
    const token = String(made.body.invite_link).split('#')[1];
    const names = { first_name: 'Eve', last_name: 'X' };
    expect((await server.send('POST', '/console/api/invite/acceptance', { token, ...names })).status).toBe(200);
    const page = await open();
    await page.getByLabel('New e-mail address').fill(email);
    await page.getByRole('button', { name: 'Change address' }).click();
    await page.getByRole('alert').getByText(`has the address ${email} already`).waitFor();
  });

  it('lists the alerts of usage limits', async () => {
    const empty = await open();
    await empty.getByText('No alerts in the last 30 days.').waitFor();
    const { workspace_id } = server.first;
    const policy = await server.admin('POST', '/policies/usage-limits', {
      workspace_id,
      name: '<b>Each key</b>',
      conditions: [{ key: 'workspace_id', value: workspace_id }],
      group_by: [{ key: 'api_key' }],
      type: 'tokens',
      credit_limit: 100_000,
      alert_threshold: 1,
    });
    expect(policy.status, JSON.stringify(policy.body)).toBe(200);
    const body = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello there' }] };
    expect((await server.call('/chat/completions', body)).status).toBe(200);
    const alerts = async () =>
      (await server.admin('GET', `/policies/usage-limits/${policy.body.id}/alerts?workspace_id=${workspace_id}`)).body;
    await expect.poll(async () => (await alerts()).total, { timeout: 10_000 }).toBe(1);
    const page = await open();
    const list = page.getByRole('list', { name: 'Alerts of usage limits' });
    await list.getByText('<b>Each key</b>').waitFor();
    expect(await list.textContent()).toMatch(/^Threshold crossed: <b>Each key<\/b> \(api_key:.*no recipients$/);
    await page.setViewportSize({ width: 360, height: 740 });
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360);
  });
});
