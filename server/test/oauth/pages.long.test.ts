/** The pages that give access to programs, in a real browser against a whole server. */
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { isCurrent } from '../../../console/ensure-built.mjs';
import { launchBrowser } from '../support/browser.ts';
import { authorize, BEHIND_PROXY, form, REDIRECT, registered, request, resourceOf } from '../support/oauth.ts';
import { startServer, type TestServer } from '../support/server.ts';

const browser = await launchBrowser();
const TITLE = `the pages that give access, in a real browser${browser.context ? '' : ` (skipped: ${browser.reason})`}`;

describe.skipIf(browser.context === null)(TITLE, () => {
  let server: TestServer;
  let page: Page;
  /** What no page may do: break its content security policy, throw, or ask another host. */
  let complaints: string[] = [];
  /** Where the browser was sent with an answer. */
  let sentTo: string[] = [];

  beforeAll(async () => {
    expect(isCurrent(), 'console/dist is not built from these sources: npm run console').toBe(true);
    server = await startServer(BEHIND_PROXY);
  });
  afterAll(async () => {
    if (browser.context) await browser.close();
    await server?.stop();
  });

  beforeEach(async () => {
    if (!browser.context) return;
    complaints = [];
    sentTo = [];
    await browser.context.clearCookies();
    page = await browser.context.newPage();
    page.setDefaultTimeout(5_000);
    page.on('pageerror', (error) => complaints.push(error.message));
    page.on('dialog', (dialog) => complaints.push(`dialog ${dialog.message()}`));
    page.on('request', (asked) => {
      const url = asked.url();
      if (url.startsWith(REDIRECT)) sentTo.push(url);
      else if (!url.startsWith(`${server.url}/`)) complaints.push(`asked ${url}`);
    });
    page.on('console', (message) => {
      if (/content security policy/i.test(message.text())) complaints.push(message.text());
    });
    await page.route(`${REDIRECT}**`, (route) => route.fulfill({ body: 'back in the program' }));
  });
  afterEach(async () => {
    await page?.close();
    expect(complaints).toEqual([]);
  });

  const heading = (name: string) => page.getByRole('heading', { name, level: 1 });
  const button = (name: string) => page.getByRole('button', { name, exact: true });
  const link = async () => {
    const made = await server.admin('POST', `/admin/users/${server.first.user_id}/sign-in-link`, {});
    return String(made.body.sign_in_link);
  };
  const begin = async (more: object = {}) => {
    const clientId = await registered(server, more);
    const { query, verifier } = request(server, clientId);
    return { clientId, verifier, url: `${server.url}/v2/oauth/authorize?${new URLSearchParams(query)}` };
  };

  test('a user signs in on the way, sees who asks for what, chooses a workspace and allows it; the program gets its tokens', async () => {
    const markup = '<img src=x onerror=alert(1)>';
    const { clientId, verifier, url } = await begin({ client_name: markup });
    await page.goto(url);
    await heading('Sign in').waitFor();
    expect(await page.locator('main').textContent()).toContain('Sign in to answer the program.');
    await page.goto(await link());
    await heading('A program asks for access').waitFor();
    expect(page.url()).toBe(`${server.url}/console/authorize`);
    const text = (await page.locator('main').textContent()) ?? '';
    for (const part of [
      markup,
      resourceOf(server),
      '127.0.0.1:45901',
      'a program on this machine',
      'owner@localhost.invalid',
    ])
      expect(text).toContain(part);
    expect(await page.locator('main img[src="x"]').count()).toBe(0);
    await page.getByLabel('Workspace').selectOption({ label: 'Default' });
    await button('Allow').click();
    await page.waitForURL(`${REDIRECT}**`);
    const said = new URL(sentTo[0] ?? '').searchParams;
    expect([said.get('state'), said.get('iss')]).toEqual(['the state', server.url]);
    const { status, body } = await form(server.url, '/v2/oauth/token', {
      grant_type: 'authorization_code',
      client_id: clientId,
      code: said.get('code') ?? '',
      redirect_uri: REDIRECT,
      code_verifier: verifier,
    });
    expect([status, body.token_type]).toEqual([200, 'Bearer']);
  });

  test('a program with a scheme alone gets a page that says that any program may open it', async () => {
    await page.goto(await link());
    await heading('Make your first request').waitFor();
    const redirect_uri = 'cursor://anysphere.cursor-mcp/oauth/callback';
    const clientId = await registered(server, { redirect_uris: [redirect_uri] });
    const { location } = await authorize(server, request(server, clientId, { redirect_uri }).query);
    await page.goto(location ?? '');
    await heading('A program asks for access').waitFor();
    const text = (await page.locator('main').textContent()) ?? '';
    expect(text).toContain('cursor:');
    expect(text).toContain('Sluice cannot tell which program that is');
  });

  test('a user who refuses sends the program away without a code, and the request is over', async () => {
    await page.goto(await link());
    await heading('Make your first request').waitFor();
    const { url } = await begin();
    await page.goto(url);
    await heading('A program asks for access').waitFor();
    await button('Refuse').click();
    await page.waitForURL(`${REDIRECT}**`);
    const said = new URL(sentTo[0] ?? '').searchParams;
    expect([said.get('error'), said.has('code')]).toEqual(['access_denied', false]);
  });

  test('a request that another sign-in has opened cannot be answered, and no page can be framed', async () => {
    const clientId = await registered(server);
    const { location } = await authorize(server, request(server, clientId).query);
    await page.goto(await link());
    await heading('Make your first request').waitFor();
    await page.goto(location ?? '');
    await heading('A program asks for access').waitFor();
    await browser.context?.clearCookies();
    await page.goto(await link());
    await heading('Make your first request').waitFor();
    await page.goto(location ?? '');
    await heading('This request cannot be answered').waitFor();
    for (const path of ['/console/authorize', '/console/device']) {
      const answer = await fetch(`${server.url}${path}`);
      expect(answer.headers.get('content-security-policy')).toContain("frame-ancestors 'none'");
      expect(answer.headers.get('x-frame-options')).toBe('DENY');
    }
  });

  test('a command line is signed in after its code was compared, and not by opening its link', async () => {
    const begun = await form(server.url, '/v2/oauth/device_authorization', { client_id: 'sluice-cli' });
    const { device_code, user_code, verification_uri_complete } = begun.body as Record<string, string>;
    const grant_type = 'urn:ietf:params:oauth:grant-type:device_code';
    const poll = () =>
      form(server.url, '/v2/oauth/token', { grant_type, client_id: 'sluice-cli', device_code: device_code ?? '' });
    await page.goto(await link());
    await heading('Make your first request').waitFor();
    await page.goto(verification_uri_complete ?? '');
    await heading('Sign in a command line').waitFor();
    expect(await page.getByLabel('The code that the command line shows').inputValue()).toBe(user_code);
    expect((await poll()).body.error).toBe('authorization_pending');
    await button('Continue').click();
    await heading('Is this your command line?').waitFor();
    const text = (await page.locator('main').textContent()) ?? '';
    for (const part of [user_code ?? '', 'sluice-cli', 'Refuse if somebody sent you']) expect(text).toContain(part);
    await button('The code is the same: sign in').click();
    await heading('Done').waitFor();
    const signedIn = await poll();
    expect([signedIn.status, String(signedIn.body.access_token).slice(0, 8)]).toEqual([200, 'slc_sat_']);
  });
});
