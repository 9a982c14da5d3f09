/** The reference and the guides in a real browser, on a whole server. */
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { isCurrent } from '../../../console/ensure-built.mjs';
import { launchBrowser } from '../support/browser.ts';
import { complaintsOf, looks } from '../support/console-page.ts';
import { startServer, type TestServer } from '../support/server.ts';

const browser = await launchBrowser();
const TITLE = `the reference${browser.context ? '' : ` (skipped: ${browser.reason})`}`;
const CHAT = '/docs/#tag/inference/POST/v1/chat/completions';

describe.skipIf(browser.context === null)(TITLE, () => {
  let server: TestServer;
  let page: Page;
  let complaints: string[] = [];

  beforeAll(async () => {
    expect(isCurrent(), 'console/dist is not built from these sources: npm run console').toBe(true);
    server = await startServer();
  });
  afterAll(async () => {
    if (browser.context) await browser.close();
    await server?.stop();
  });
  beforeEach(async () => {
    page = (await browser.context?.newPage()) as Page;
    page.setDefaultTimeout(60_000);
    await page.setViewportSize({ width: 1440, height: 900 });
    complaints = complaintsOf(page, server);
  });
  afterEach(async () => {
    await page.close();
    expect(complaints).toEqual([]);
  });

  test('the reference and the guides break no rule of accessibility, light and dark, wide and narrow', async () => {
    const found: string[] = [];
    for (const [path, shown] of [
      ['/docs/', /^Test Request.*get \/v1\/api-keys\W*$/],
      [CHAT, /^Test Request.*post \/v1\/chat\/completions/],
      ['/docs/#tag/policies/POST/v1/policies/usage-limits', /^Test Request.*post \/v1\/policies\/usage-limits/],
    ] as const) {
      await page.goto('about:blank');
      await page.goto(`${server.url}${path}`);
      await page.getByRole('button', { name: shown }).first().waitFor();
      // The parts in sight are drawn one after another, and named in the frame after.
      await expect.poll(async () => (await looks(page, path)).length, { timeout: 60_000 }).toBe(0);
    }
    for (const path of [
      '/docs/guides/',
      '/docs/guides/readme',
      '/docs/guides/providers',
      '/docs/guides/limit-coverage',
    ]) {
      await page.goto(`${server.url}${path}`);
      found.push(...(await looks(page, path)));
    }
    expect(found).toEqual([]);
  }, 400_000);

  test('an example runs: the key that was typed goes to this server alone and is kept nowhere', async () => {
    await page.goto(`${server.url}${CHAT}`);
    const test = page.getByRole('button', { name: /^Test Request.*post \/v1\/chat\/completions/ }).first();
    await test.waitFor();
    await page.locator(':is([placeholder^=QUxM], [data-placeholder^=QUxM])').first().click();
    await page.keyboard.insertText(server.first.workspace_api_key);
    await test.click();
    const answered = page.waitForResponse(/\/v1\/chat\/completions$/);
    await page.getByRole('dialog').last().getByRole('button', { name: /^Send/ }).first().click();
    const answer = await answered;
    expect(answer.status()).toBe(200);
    expect(new URL(answer.url()).origin).toBe(server.url);
    expect(await answer.json()).toMatchObject({ choices: [{ message: { content: 'Hello' } }] });
    expect(
      await page.evaluate('JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])'),
    ).not.toContain(server.first.workspace_api_key);
  }, 120_000);

  test('a guide is found by a word of its text, and its links lead on', async () => {
    await page.goto(`${server.url}/docs/`);
    await page.getByRole('link', { name: 'Guides', exact: true }).click();
    await page.getByRole('heading', { name: 'Guides', level: 1 }).waitFor();
    await page.getByLabel('Find in the guides').fill('sluice_logs_url');
    await expect.poll(() => page.getByRole('status').textContent()).toMatch(/^\d+ guides? ha/);
    expect(new URL(page.url()).search).toBe('?q=sluice_logs_url');
    await page.getByRole('main').getByRole('link', { name: 'Logs in ClickHouse' }).click();
    await page.getByRole('heading', { level: 1, name: 'Logs in ClickHouse' }).waitFor();
    await page.goto(`${server.url}/docs/guides/?q=sluice_logs_url`);
    await expect.poll(() => page.getByLabel('Find in the guides').inputValue()).toBe('sluice_logs_url');
    await page.getByLabel('Find in the guides').fill('zzzz');
    await page.getByText('No guide has that').waitFor();
  }, 60_000);
});
