/** People and workspaces in the console: roles, ownership, members and archiving, as the API has them afterwards. */
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { isCurrent } from '../../../console/ensure-built.mjs';
import { launchBrowser } from '../support/browser.ts';
import { startServer, type TestServer } from '../support/server.ts';

const browser = await launchBrowser();
const TITLE = `people and workspaces in the console${browser.context ? '' : ` (skipped: ${browser.reason})`}`;

describe.skipIf(browser.context === null)(TITLE, () => {
  let server: TestServer;
  let page: Page;
  let ada = '';

  beforeAll(async () => {
    expect(isCurrent(), 'console/dist is not built from these sources: npm run console').toBe(true);
    server = await startServer();
    const workspaces = [{ id: server.first.workspace_id, role: 'member' }];
    const invite = await server.admin('POST', '/admin/users/invites', {
      email: 'ada@x.example',
      role: 'member',
      workspaces,
    });
    const first = (await browser.context?.newPage()) as Page;
    await first.goto(String(invite.body.invite_link));
    await first.getByLabel('First name').fill('Ada');
    await first.getByLabel('Last name').fill('L');
    const accepted = first.waitForResponse(/invite\/acceptance$/);
    await first.getByRole('button', { name: /^Accept/ }).click();
    expect((await accepted).status()).toBe(200);
    await first.close();
    ada = (await userOf('ada@x.example'))?.id ?? '';
  });
  afterAll(async () => {
    if (browser.context) await browser.close();
    await server?.stop();
  });
  const userOf = async (email: string) =>
    (
      (await server.admin('GET', `/admin/users?email=${email}`)).body.data as {
        id: string;
        role: string;
        first_name: string;
      }[]
    )[0];
  const signIn = async (id: string) => {
    await browser.context?.clearCookies();
    const made = await server.admin('POST', `/admin/users/${id}/sign-in-link`);
    await page.goto(String(made.body.sign_in_link));
    await page.locator('.frame h1').waitFor();
  };
  beforeEach(async () => {
    page = (await browser.context?.newPage()) as Page;
    page.setDefaultTimeout(20_000);
  });

  test('a member lands on Me, where the limits say that none applies', async () => {
    await signIn(ada);
    await page.getByRole('heading', { name: 'Me', level: 1 }).waitFor();
    expect(new URL(page.url()).pathname).toBe('/console/me');
    await page.getByText(/^No budget applies to you in /).waitFor();
  });

  test('the owner names a member and makes an admin of them', async () => {
    await signIn(server.first.user_id);
    await page.goto(`${server.url}/console/people`);
    await page.getByRole('button', { name: 'Change ada@x.example' }).click();
    await page.getByLabel('First name').fill('Augusta');
    await page.getByLabel('Role').selectOption('admin');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('button', { name: 'Make owner ada@x.example' }).waitFor();
    expect(await userOf('ada@x.example')).toMatchObject({ role: 'admin', first_name: 'Augusta' });
  });

  test('an invite gets a new link, which opens, and the link before does not', async () => {
    const invite = { email: 'bob@x.example', role: 'member', workspaces: [] };
    const first = await server.admin('POST', '/admin/users/invites', invite);
    await signIn(server.first.user_id);
    await page.goto(`${server.url}/console/people?tab=invites`);
    await page.getByRole('button', { name: 'New link bob@x.example' }).click();
    const dialog = page.getByRole('dialog', { name: 'New link for bob@x.example' });
    await dialog.getByRole('button', { name: 'Make the link' }).click();
    const link = String(await dialog.locator('code').first().textContent());
    await browser.context?.clearCookies();
    await page.goto(link);
    await page.getByText('bob@x.example').first().waitFor();
    await page.getByRole('button', { name: /^Accept/ }).waitFor();
    await page.goto(String(first.body.invite_link));
    await page.getByRole('button', { name: /^Accept/ }).waitFor({ state: 'detached' });
  });

  test('the list of keys says when each was last used and what it spent', async () => {
    const messages = [{ role: 'user', content: 'Hello' }];
    expect((await server.call('/chat/completions', { model: '@sandbox/echo', messages })).status).toBe(200);
    await signIn(server.first.user_id);
    const used = page.getByRole('row', { name: /\d\d:\d\d:\d\d.*\$0\.0000/ });
    await expect
      .poll(
        async () => {
          await page.goto(`${server.url}/console/keys`);
          await page.getByRole('table', { name: 'API keys' }).waitFor();
          await page.waitForLoadState('networkidle');
          return used.count();
        },
        { timeout: 30_000 },
      )
      .toBe(1);
    const idle = await page.getByRole('row', { name: /– –/ }).count();
    expect(idle).toBeGreaterThan(0);
  });

  test('a workspace gains a member, and is archived once its name was typed', async () => {
    await server.admin('POST', '/admin/workspaces', { name: 'Search' });
    await signIn(server.first.user_id);
    await page.goto(`${server.url}/console/workspaces`);
    await page.getByRole('link', { name: 'Search', exact: true }).click();
    await page.getByRole('heading', { name: 'Search', level: 1 }).waitFor();
    await page.getByLabel(/^Add/).selectOption(ada);
    await page.getByRole('button', { name: 'Add as member' }).click();
    await page.getByLabel('Role of ada@x.example').selectOption('manager');
    await page.getByRole('button', { name: 'Archive' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText(/API keys stop at once/).waitFor();
    await dialog.getByLabel('Type Search to archive it').fill('Search');
    await dialog.getByRole('button', { name: 'Archive' }).click();
    await page.getByRole('heading', { name: 'Workspaces', level: 1 }).waitFor();
    const found = await server.admin('GET', '/admin/workspaces?exact_name=Search&status=archived');
    expect(found.body.total).toBe(1);
  });

  test('the owner hands the organisation over to an admin, after their address was typed', async () => {
    await signIn(server.first.user_id);
    await page.goto(`${server.url}/console/people`);
    await page.getByRole('button', { name: 'Make owner ada@x.example' }).click();
    await page.getByLabel(/^Type ada@x.example/).fill('ada@x.example');
    await page.getByRole('button', { name: 'Hand over' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    expect(await userOf('ada@x.example')).toMatchObject({ role: 'owner' });
  });
});
