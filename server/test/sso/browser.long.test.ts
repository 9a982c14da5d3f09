/** Signing in through a certified provider with a real browser, whose cookies cross from one site to another. */
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { isCurrent } from '../../../console/ensure-built.mjs';
import { launchBrowser } from '../support/browser.ts';
import { type CertifiedProvider, startCertifiedProvider } from '../support/certified-provider.ts';
import { EMAIL, type SsoWorld, startSsoWorld } from '../support/sso-world.ts';

const browser = await launchBrowser();
const TITLE = `a real browser at a certified provider${browser.context ? '' : ` (skipped: ${browser.reason})`}`;

describe.skipIf(browser.context === null)(TITLE, () => {
  let world: SsoWorld;
  let provider: CertifiedProvider;
  let page: Page;
  beforeAll(async () => {
    expect(isCurrent(), 'console/dist is not built from these sources: npm run console').toBe(true);
    world = await startSsoWorld({ SLUICE_TRUSTED_HOSTS: '127.0.0.1,localhost' });
    const client = { client_id: 'sluice', client_secret: 'secret', redirect_uris: [`${world.url}/v2/auth/callback`] };
    // Another name than that of Sluice: another site, as providers are.
    provider = await startCertifiedProvider([client], () => ({ email: EMAIL, email_verified: true }), 'localhost');
    await world.client({ issuer: provider.issuer, client_id: 'sluice', scopes: ['openid', 'email', 'profile'] });
  });
  afterAll(async () => {
    if (browser.context) await browser.close();
    await world?.stop();
    await provider?.close();
  });
  beforeEach(async () => {
    if (!browser.context) return;
    await browser.context.clearCookies();
    page = await browser.context.newPage();
    page.setDefaultTimeout(8_000);
    await page.goto(`${world.url}/console/sign-in`);
  });

  /** As somebody who reads the page: the answer of the server sets the login cookie. */
  const begin = async (): Promise<void> => {
    await page.getByText('Sign in with your organisation’s identity provider').click();
    await page.getByLabel('Your work e-mail address').fill(EMAIL);
    await page.getByRole('button', { name: 'Continue' }).click();
  };
  const self = () => page.evaluate(`fetch('/v1/auth/self').then((answer) => answer.json())`);

  test('begins on the sign-in page, comes back signed in, and holds cookies that no script reads', async () => {
    await begin();
    await page.getByRole('heading', { name: 'Make your first request' }).waitFor();
    expect(await self()).toMatchObject({ user: { email: EMAIL } });
    expect(await page.evaluate('document.cookie')).toBe('');
    const cookies = (await browser.context?.cookies(world.url)) ?? [];
    const own = cookies.filter(({ name }) => name.includes('sluice'));
    // The login cookie is gone with the attempt.
    expect(own.map(({ name, httpOnly, sameSite }) => [name, httpOnly, sameSite])).toEqual([
      ['sluice_session', true, expect.stringMatching(/Lax|Strict/)],
    ]);
    await page.reload();
    expect(await self()).toMatchObject({ user: { email: EMAIL } });
  });

  test('is refused without the cookie that its attempt began with, and the page says so', async () => {
    await page.route(`${provider.issuer}/**`, async (route) => {
      await browser.context?.clearCookies({ name: 'sluice_login' });
      await route.continue();
    });
    await begin();
    await page.getByText('This sign-in is no longer valid, or began in another browser.').waitFor();
    expect(await self()).not.toHaveProperty('user');
  });

  test('says where an address belongs to no organisation', async () => {
    await page.getByText('Sign in with your organisation’s identity provider').click();
    await page.getByLabel('Your work e-mail address').fill('ada@nobody.example');
    const answer = page.waitForResponse(`${world.url}/v2/auth/login`);
    await page.getByRole('button', { name: 'Continue' }).click();
    const { error } = (await (await answer).json()) as { error: { message: string } };
    await page.getByText(error.message).waitFor();
  });
});
