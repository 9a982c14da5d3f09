/** Every page of the console while its data is on its way, missing, refused or out of reach: said in words, accessible, with a way on. */
import type { Page, Route } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { isCurrent } from '../../../console/ensure-built.mjs';
import { launchBrowser } from '../support/browser.ts';
import { complaintsOf, looks, signedIn } from '../support/console-page.ts';
import { LOADED as PATHS } from '../support/console-walk.ts';
import { startServer, type TestServer } from '../support/server.ts';

const browser = await launchBrowser();
const TITLE = `states of the console${browser.context ? '' : ` (skipped: ${browser.reason})`}`;

/** Those that list: what an empty one says, and that no filter is to blame. */
const LISTS = [
  ['/requests', 'No requests in this range.'],
  ['/denials', 'Nothing was refused in this range.'],
  ['/spend', 'No request in this range.'],
  ['/fine-tuning', 'No job yet.'],
  ['/batches', 'No batch yet.'],
  ['/files', 'No file yet.'],
  ['/keys', 'No API keys here yet.'],
  ['/limits', 'Nothing limits this workspace yet.'],
  ['/workspaces', 'No workspace'],
  ['/people?tab=invites', 'No invites yet.'],
  ['/audit', 'Nothing was changed in this range.'],
] as const;

const refusal =
  (status: number, message: string, headers: Record<string, string> = {}) =>
  (route: Route) =>
    route.fulfill({
      status,
      headers: { 'x-gateway-request-id': 'req-of-this-test', ...headers },
      contentType: 'application/json',
      body: JSON.stringify({ error: { message, type: 'test', param: null, code: 'AB00' } }),
    });

const FAILURES = [
  ['500', 'This did not load', 'It broke.', refusal(500, 'It broke.')],
  ['429', 'Too many requests for a moment', 'Next try in', refusal(429, 'Slower.', { 'retry-after': '600' })],
  ['403', 'You cannot see this yet', 'You need a right.', refusal(403, 'You need a right.')],
  ['offline', 'Lost contact with Sluice', 'does not answer', (route: Route) => route.abort('connectionrefused')],
] as const;

describe.skipIf(browser.context === null)(TITLE, () => {
  let server: TestServer;
  let page: Page;
  let complaints: string[] = [];

  beforeAll(async () => {
    expect(isCurrent(), 'console/dist is not built from these sources: npm run console').toBe(true);
    server = await startServer();
    // The overview of a server without a request is another page.
    await server.call('/chat/completions', { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello' }] });
  });
  afterAll(async () => {
    if (browser.context) await browser.close();
    await server?.stop();
  });
  beforeEach(async () => {
    page = await signedIn(browser.context, server);
    complaints = complaintsOf(page, server, /status of (4\d\d|500)|ERR_CONNECTION_REFUSED/);
  });
  afterEach(async () => {
    await page.close();
    expect(complaints).toEqual([]);
  });

  const API = /\/v\d\//;
  const open = async (path: string) => {
    await page.goto(`${server.url}/console${path}`);
    await page.locator('.frame').waitFor();
  };

  test('a page says what it loads while it loads', async () => {
    const found: string[] = [];
    await page.route(API, () => undefined);
    for (const path of PATHS) {
      await open(path);
      await page.locator('.skeleton .bone').first().waitFor();
      const said = await page.locator('.skeleton').first().textContent();
      if (!/^Loading .+…$/.test(said ?? '')) found.push(`${path} says ${said}`);
      found.push(...(await looks(page, `loading ${path}`)));
    }
    expect(found).toEqual([]);
  }, 900_000);

  test.each(FAILURES)(
    'a page that meets %s says so and offers another try, which then shows it',
    async (_name, title, words, fail) => {
      const found: string[] = [];
      await page.clock.install();
      for (const path of PATHS) {
        let broken = true;
        await page.route(API, (route) => (broken ? fail(route) : route.continue()));
        await open(path);
        const failure = page.locator('.failure', { hasText: title }).first();
        // Lost contact is tried again by itself: after one second, two and five.
        for (let turn = 0; turn < 40 && (await failure.count()) === 0; turn += 1) await page.clock.runFor(500);
        await failure.getByText(words).waitFor();
        await failure.getByRole('button', { name: 'Try again' }).waitFor();
        if (title === 'This did not load') await failure.getByText('req-of-this-test').waitFor();
        found.push(...(await looks(page, `${_name} ${path}`)));
        broken = false;
        const again = page.getByRole('button', { name: 'Try again' });
        for (let turn = 0; turn < 12 && (await again.count()) > 0; turn += 1) {
          // One try may answer several parts of the page, whose buttons go then.
          await again
            .first()
            .click({ timeout: 2_000 })
            .catch(() => undefined);
          await page.waitForLoadState('networkidle');
        }
        const left = await page.locator('.failure', { hasText: title }).count();
        if (left > 0) found.push(`${path} still fails ${left} times`);
        await page.unroute(API);
      }
      expect(found).toEqual([]);
    },
    900_000,
  );

  test('a list without rows says why, and what comes next', async () => {
    const found: string[] = [];
    await page.route(API, async (route) => {
      const answer = await route.fetch();
      const body = await answer.json().catch(() => null);
      if (body === null || !(Array.isArray(body.data) || Array.isArray(body.records)))
        return route.fulfill({ response: answer });
      const emptied = { ...body, total: 0, next_cursor: null, has_more: false };
      if (body.data) emptied.data = [];
      if (body.records) emptied.records = [];
      return route.fulfill({ response: answer, json: emptied });
    });
    for (const [path, words] of LISTS) {
      await open(path);
      await page.locator('.empty', { hasText: words }).first().waitFor();
      found.push(...(await looks(page, `empty ${path}`)));
    }
    expect(found).toEqual([]);
  }, 600_000);

  test('a form survives the end of its session: sign in elsewhere, come back, send it', async () => {
    await open('/keys?new=1');
    const form = page.getByRole('dialog', { name: 'New API key' });
    await form.getByLabel('Name', { exact: true }).fill('typed before the end');
    await browser.context?.clearCookies();
    await form.getByRole('button', { name: 'Create the key' }).click();
    const over = page.getByRole('dialog', { name: 'Your session has ended' });
    await over.waitFor();
    expect(await looks(page, 'session over')).toEqual([]);
    await over.getByRole('button', { name: 'I have signed in' }).click();
    await over.getByText('You are not signed in yet.').waitFor();
    await (await signedIn(browser.context, server)).close();
    await over.getByRole('button', { name: 'I have signed in' }).click();
    await over.waitFor({ state: 'detached' });
    expect(await form.getByLabel('Name', { exact: true }).inputValue()).toBe('typed before the end');
    await form.getByRole('button', { name: 'Create the key' }).click();
    await page.getByRole('dialog', { name: 'The key is made' }).waitFor();
  });
});
