/** Every page of the console in a real browser, on a whole server: accessible, within its policy, and true to the API. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { isCurrent } from '../../../console/ensure-built.mjs';
import { launchBrowser } from '../support/browser.ts';
import { PATHS } from '../support/console-walk.ts';
import { startServer, type TestServer } from '../support/server.ts';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const browser = await launchBrowser();
const TITLE = `pages of the console${browser.context ? '' : ` (skipped: ${browser.reason})`}`;

/** The end of a list of requests, however many there are: reading files and jobs in the console leaves records too. */
const ALL = /1–\d+ of \d+/;

describe.skipIf(browser.context === null)(TITLE, () => {
  let server: TestServer;
  let page: Page;
  let complaints: string[] = [];
  let keyId = '';

  beforeAll(async () => {
    expect(isCurrent(), 'console/dist is not built from these sources: npm run console').toBe(true);
    server = await startServer();
    const keys = await server.admin('GET', `/api-keys?workspace_id=${server.first.workspace_id}`);
    keyId = (keys.body.data as { id: string }[])[0]?.id ?? '';
    for (const model of ['@sandbox/echo', '@sandbox/error?status=503', '@sandbox/lorem?tokens=20', '@sandbox/echo']) {
      await server.call('/chat/completions', { model, messages: [{ role: 'user', content: 'Hello' }] });
    }
    await vi.waitFor(async () => expect((await logs()).total).toBe(4), { timeout: 20_000 });
  });
  afterAll(async () => {
    if (browser.context) await browser.close();
    await server?.stop();
  });

  beforeEach(async () => {
    complaints = [];
    page = (await browser.context?.newPage()) as Page;
    page.setDefaultTimeout(20_000);
    page.on('pageerror', (error) => complaints.push(error.message));
    page.on('request', (request) => {
      if (!request.url().startsWith(server.url)) complaints.push(`asked ${request.url()}`);
    });
    page.on('console', (message) => {
      // 404 is what the page of a missing object shows, 400 what a form does.
      if (message.type() === 'error' && !/status of 40[04]/.test(message.text())) complaints.push(message.text());
    });
    const made = await server.admin('POST', `/admin/users/${server.first.user_id}/sign-in-link`);
    await page.goto(String(made.body.sign_in_link));
    await page.locator('.frame h1').waitFor();
  });
  afterEach(async () => {
    await page.close();
    expect(complaints).toEqual([]);
  });

  /** The requests that the API key has made, or others. */
  const logs = async (filter = `workspace_id=${server.first.workspace_id}&api_key_ids=${keyId}`) =>
    (await server.admin('GET', `/logs?total=true&limit=100&${filter}`)).body as {
      total: number;
      data: { id: string; outcome: string; cost_micros: number | null }[];
    };
  const CALLS = () => `/requests?api_key_ids=${keyId}`;
  const open = (path: string) => page.goto(`${server.url}/console${path}`);
  const heading = (name: string) => page.getByRole('heading', { name, level: 1, exact: true });
  const button = (name: string) => page.getByRole('button', { name, exact: true });
  /** Until nothing is on its way: neither an answer nor the first look of a list. */
  const settled = async () => {
    await page.waitForLoadState('networkidle');
    await expect.poll(() => page.locator('.skeleton').count(), { timeout: 20_000 }).toBe(0);
  };
  const violations = async (): Promise<string[]> => {
    await page.evaluate(axe);
    return page.evaluate(
      'axe.run().then((found) => found.violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => id + " " + target)))',
    );
  };

  test('every page, light and dark, wide and narrow, breaks no rule of accessibility and fits the screen', async () => {
    const id = (await logs()).data[0]?.id;
    const found: string[] = [];
    for (const [path, title] of [...PATHS, [`/requests/${id}`, null] as const]) {
      for (const [width, height] of [
        [1440, 900],
        [390, 844],
      ] as const) {
        await page.setViewportSize({ width, height });
        await open(path);
        await (title === null ? page.locator('h1').first() : heading(title)).waitFor();
        await settled();
        for (const colorScheme of ['light', 'dark'] as const) {
          await page.emulateMedia({ colorScheme });
          found.push(...(await violations()).map((one) => `${path} ${width} ${colorScheme}: ${one}`));
        }
        const wide = await page.evaluate('document.documentElement.scrollWidth');
        if (wide !== width) found.push(`${path} is ${wide} wide on ${width}`);
      }
    }
    expect(found).toEqual([]);
  }, 400_000);

  test('dialogs of writes, the search and the keys break none either', async () => {
    for (const path of [
      '/keys?new=1',
      '/files?new=1',
      '/batches?new=1',
      '/workspaces?new=1',
      '/people?new=1',
      '/providers?new=1',
    ]) {
      await open(path);
      await page.getByRole('dialog').waitFor();
      expect([path, await violations()]).toEqual([path, []]);
    }
    await open('/audit');
    await heading('Audit').waitFor();
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keys' }).waitFor();
    expect(await violations()).toEqual([]);
    await page.keyboard.press('Escape');
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox', { name: 'Search pages, objects and ids' }).waitFor();
    expect(await violations()).toEqual([]);
  });

  test('no text of the frame and its pages misses the translation', async () => {
    await page.evaluate("localStorage.setItem('sluice.language', 'pseudo')");
    const missed: string[] = [];
    for (const path of [
      '/',
      '/requests',
      '/denials',
      '/requests/compare',
      '/spend',
      '/fine-tuning/new',
      '/batches',
      '/files',
      '/keys',
      '/workspaces',
      '/people',
      '/models',
      '/routing',
      '/routing/new',
      '/guardrails',
      '/guardrails/new',
      '/providers',
      '/audit',
      '/me',
    ]) {
      await open(path);
      await page.locator('.frame h1').waitFor();
      await settled();
      const texts = (await page.evaluate(`[...document.querySelectorAll(
        '.nav a, .bottom-link, h1, h2, th, dt, .lead, label > span, legend, main .button, .chart-title, .empty-title'
      )].filter((one) => !one.closest('[translate=no]')).map((one) => {
        const shown = one.cloneNode(true);
        for (const name of shown.querySelectorAll('[translate=no]')) name.remove();
        return shown.textContent.trim();
      })`)) as string[];
      missed.push(
        ...texts.filter((text) => /[a-z]{3}/.test(text.replaceAll(/⟦[^⟧]*⟧/g, ''))).map((text) => `${path}: ${text}`),
      );
    }
    await page.evaluate("localStorage.removeItem('sluice.language')");
    // What somebody has named, and words that no language changes.
    expect(missed.filter((text) => !/UTC|CSV|Default/.test(text))).toEqual([]);
  });

  test('the id of a request, pasted into the search, opens its story; Escape leaves the page as it was', async () => {
    const { data } = await logs();
    const failed = data.find(({ outcome }) => outcome === 'failed');
    await page.keyboard.press('Control+k');
    await page.keyboard.press('Escape');
    await heading('Overview').waitFor();
    await page.keyboard.press('Control+k');
    await page.keyboard.type(failed?.id ?? '');
    await page.keyboard.press('Enter');
    await page.getByText('It failed with 503 after').waitFor();
    expect(new URL(page.url()).pathname).toBe(`/console/requests/${failed?.id}`);
    await page.getByText('Hello').first().waitFor();
  });

  test('filters, range and workspace live in the address, and the server does the filtering', async () => {
    await open('/requests');
    await page.getByText(ALL).waitFor();
    await button('Filter').click();
    await page.getByLabel('Outcome', { exact: true }).selectOption('failed');
    await button('Apply').click();
    await page.getByText('1–1 of 1').waitFor();
    expect(new URL(page.url()).searchParams.get('outcome')).toBe('failed');
    await page.reload();
    await page.getByText('1–1 of 1').waitFor();
    await button('Remove the filter Outcome').click();
    await page.getByText(ALL).waitFor();
    await open('/requests?outcome=aborted&status_code=418');
    await page.getByText('No requests match these 2 filters').waitFor();
    await page.locator('.empty').getByRole('button', { name: 'Clear filters' }).click();
    await page.getByText(ALL).waitFor();
  });

  test('a request opens beside the list, with keys for the next one, its id and the way back', async () => {
    await page.setViewportSize({ width: 1440, height: 900 });
    await open(CALLS());
    await page.getByText('1–4 of 4').waitFor();
    const { data } = await logs();
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    const sheet = page.getByRole('complementary', { name: 'Request' });
    await sheet.getByRole('heading', { name: 'Story' }).waitFor();
    expect(new URL(page.url()).searchParams.get('open')).toBe(data[0]?.id);
    expect(await violations()).toEqual([]);
    await page.keyboard.press(']');
    await expect.poll(() => new URL(page.url()).searchParams.get('open')).toBe(data[1]?.id);
    await sheet.getByRole('heading', { name: 'Story' }).waitFor();
    await page.keyboard.press('c');
    await sheet.getByText('Copied').waitFor();
    await page.keyboard.press('Escape');
    await sheet.waitFor({ state: 'detached' });
    expect(await page.evaluate('document.activeElement.closest("tr") !== null')).toBe(true);
  });

  test('two requests that were chosen are compared field by field', async () => {
    await page.setViewportSize({ width: 1440, height: 900 });
    await open(CALLS());
    await page.getByText('1–4 of 4').waitFor();
    await page.keyboard.press('j');
    await page.keyboard.press('x');
    await page.keyboard.press('j');
    await page.keyboard.press('x');
    await page.getByRole('link', { name: 'Compare the two requests' }).click();
    await heading('Compare requests').waitFor();
    await page.getByRole('table', { name: 'Changed fields' }).getByText('model.requested').waitFor();
    await settled();
    expect(await violations()).toEqual([]);
  });

  test('columns and views are chosen, and the list is exported whole', async () => {
    await open(CALLS());
    await page.getByText('1–4 of 4').waitFor();
    await button('Columns').click();
    await page.getByLabel('Trace id', { exact: true }).check();
    await page.getByRole('columnheader', { name: 'Trace id' }).waitFor();
    await page.keyboard.press('Escape');
    await button('Views').click();
    await page.getByLabel('Name of this view').fill('traces');
    await button('Save').click();
    expect(await violations()).toEqual([]);
    await open(CALLS());
    await page.getByText('1–4 of 4').waitFor();
    await button('Views').click();
    await button('traces').click();
    await page.getByRole('columnheader', { name: 'Trace id' }).waitFor();
    await button('Export').click();
    const file = page.waitForEvent('download');
    await button('CSV').click();
    const lines = readFileSync(await (await file).path(), 'utf8')
      .trim()
      .split('\r\n');
    expect(lines).toHaveLength(5);
    const { data } = await logs();
    expect(lines[1]?.startsWith(`${data[0]?.id},`)).toBe(true);
  });

  test('all workspaces are all of them', async () => {
    const made = await server.admin('POST', '/admin/workspaces', { name: 'Elsewhere' });
    const id = String(made.body.id);
    const body = { request: { url: 'https://x.example/v1', body: {} }, response: { body: {} } };
    const key = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'writes',
      workspace_id: id,
      scopes: ['logs.write', 'completions.write'],
    });
    expect([made.status, key.status]).toEqual([200, 200]);
    expect((await server.admin('POST', '/logs', body, String(key.body.key))).status).toBe(200);
    const count = async (where: string) => Number((await server.admin('GET', `/logs?total=true${where}`)).body.total);
    await vi.waitFor(async () => expect(await count(`&workspace_id=${id}`)).toBe(1), { timeout: 20_000 });
    await open('/requests');
    const cell = page.getByRole('table', { name: 'Requests' }).getByText('Elsewhere');
    await cell.waitFor();
    await page.locator('#workspace-switcher').selectOption({ label: 'Elsewhere' });
    await page.getByText('1–1 of 1').waitFor();
    await page.getByRole('table', { name: 'Requests' }).getByRole('link').first().click();
    await page.getByRole('heading', { name: 'Story' }).waitFor();
    await page.locator('#workspace-switcher').selectOption('');
  });

  test('a client is connected: a key made in place, its snippet, and the first request seen to arrive', async () => {
    await open('/connect');
    await button('Make a key').click();
    await page.getByLabel('Name', { exact: true }).fill('first program');
    await button('Create the key').click();
    await page.getByLabel('I stored it').check();
    await button('Done').click();
    const shown = String(await page.locator('section[aria-label="the command that sets your new key"]').textContent());
    const key = /'(.*)'/.exec(shown)?.[1] ?? '';
    await page.getByText('Waiting for a request with your new key…').waitFor();
    const hello = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello' }] };
    const answer = await server.call('/chat/completions', hello, { 'x-gateway-api-key': key });
    expect(answer.status).toBe(200);
    await page.getByText('Received at').waitFor();
    await page.getByRole('link', { name: 'See what happened' }).click();
    await page.getByRole('heading', { name: 'Story' }).waitFor();
  });

  test('one prompt goes to two models beside each other, and each answer leads to its request', async () => {
    await open('/playground?panes=2&model=@sandbox/echo&other=@sandbox/lorem?tokens=5');
    await page.getByRole('textbox', { name: 'Prompt', exact: true }).fill('Both of you');
    await page.keyboard.press('Control+Enter');
    await expect.poll(() => page.getByTestId('answer').first().textContent()).toBe('Both of you');
    await page.getByRole('link', { name: 'Why it went this way' }).nth(1).click();
    await page.getByText('The answer was complete after').waitFor();
    expect(await page.locator('h1').textContent()).toContain('lorem');
    await page.getByRole('link', { name: 'Replay' }).click();
    const prompt = page.getByRole('textbox', { name: 'Prompt', exact: true });
    await expect.poll(() => prompt.inputValue()).toBe('Both of you');
    expect(await page.getByRole('combobox', { name: 'Model' }).inputValue()).toContain('lorem?tokens=5');
  });

  test('a setting is saved with its section alone, and a refusal is shown at its field', async () => {
    const before = await server.admin('GET', '/admin/organisation/settings');
    await open('/settings');
    await page.getByLabel('Seconds until a new sign-in').fill('5');
    const section = page.getByRole('region', { name: 'Sign-in' });
    await section.getByRole('button', { name: 'Save this section' }).click();
    await section
      .getByRole('alert')
      .getByRole('link', { name: /^Seconds until a new sign-in: / })
      .waitFor();
    await page.getByLabel('Seconds until a new sign-in').fill('86400');
    await section.getByRole('button', { name: 'Save this section' }).click();
    await section.getByText('Saved.').waitFor();
    const stored = await server.admin('GET', '/admin/organisation/settings');
    expect(stored.body).toEqual({ ...before.body, session_settings: { max_session_ttl: 86_400 } });
  });

  test('live shows a request as it comes', async () => {
    await open('/requests?live=1');
    await page.getByText('Live: new requests appear on top.').waitFor();
    const hello = { model: '@sandbox/echo?live', messages: [{ role: 'user', content: 'Hello' }] };
    await server.call('/chat/completions', hello);
    await page.getByRole('table', { name: 'Requests' }).getByText('echo?live').waitFor();
  });

  test('the sum of Spend is the sum of its rows and of the records', async () => {
    await open('/spend?group=model&range=24h');
    await settled();
    const { total, data } = await logs('order=newest');
    expect(data).toHaveLength(total);
    const records = data.reduce((sum, { cost_micros }) => sum + (cost_micros ?? 0), 0);
    const shown = async (selector: string) =>
      (await page.locator(selector).allTextContents()).map((text) =>
        Math.round(Number(text.replaceAll(/[$,]/g, '')) * 1e6),
      );
    const rows = await shown('table[aria-label="Spend by Model"] tbody td:nth-child(2)');
    expect(rows.reduce((sum, micros) => sum + micros, 0)).toBe(records);
    expect(await shown('.tile .figure >> nth=0')).toEqual([records]);
  });

  test('a workspace with its people, a budget and a key that works is one screen', async () => {
    await open('/workspaces');
    await button('New workspace').click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Create the workspace' }).click();
    const alert = dialog.getByRole('alert');
    await alert.getByRole('link', { name: /^Name: / }).click();
    expect(await page.evaluate('document.activeElement.labels[0].textContent')).toBe('Name');
    await page.keyboard.type('Search');
    await dialog.getByLabel('Sandbox').check();
    await dialog.getByLabel('owner@localhost.invalid').check();
    await dialog.getByLabel('Budget in dollars a month').fill('500');
    await dialog.getByRole('button', { name: 'Create the workspace' }).click();
    await page.getByRole('dialog', { name: 'Search is ready' }).waitFor();
    const key = String(await page.getByRole('dialog').locator('code').first().textContent());
    const workspaces = (await server.admin('GET', '/admin/workspaces?exact_name=Search')).body.data as { id: string }[];
    const shared = await server.admin('GET', `/providers?workspace_id=${workspaces[0]?.id}`);
    const model = `@${(shared.body.data as { slug: string }[])[0]?.slug}/echo`;
    const messages = [{ role: 'user', content: 'Hi' }];
    const answer = await server.call('/chat/completions', { model, messages }, { 'x-gateway-api-key': key });
    expect(answer.status).toBe(200);
    await button('I stored it').click();
    await page.getByRole('row', { name: /Search.*\$500/ }).waitFor();
    await page.locator('#workspace-switcher').selectOption({ label: 'Search' });
    expect(new URL(page.url()).searchParams.get('ws')).toMatch(/^ws-search/);
  });

  test('a key is shown once, opens its page, and is deleted after its use was shown', async () => {
    await open('/keys?new=1');
    await page.getByLabel('Name', { exact: true }).fill('checkout');
    await button('Create the key').click();
    const dialog = page.getByRole('dialog', { name: 'The key is made' });
    await dialog.waitFor();
    await dialog.getByRole('button', { name: 'Done' }).click({ force: true });
    await dialog.getByText('Copy it or tick the box first.').waitFor();
    await dialog.getByLabel('I stored it').check();
    await dialog.getByRole('button', { name: 'Done' }).click();
    await page.getByRole('link', { name: 'checkout', exact: true }).click();
    await heading('checkout').waitFor();
    await button('Delete').click();
    await page.getByText('No request used this key in the last 24 hours.').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await heading('API keys').waitFor();
    await expect.poll(() => page.getByRole('link', { name: 'checkout', exact: true }).count()).toBe(0);
    await open('/audit');
    await page.getByRole('button', { name: /deleted api keys checkout/ }).waitFor();
  });

  test('a member sees the pages that a member may use, and of the others why not', async () => {
    const workspaces = [{ id: server.first.workspace_id, role: 'member' }];
    const invite = await server.admin('POST', '/admin/users/invites', {
      email: 'eve@x.example',
      role: 'member',
      workspaces,
    });
    await browser.context?.clearCookies();
    await page.goto(String(invite.body.invite_link));
    await page.getByLabel('First name').fill('Eve');
    await page.getByLabel('Last name').fill('X');
    const accepted = page.waitForResponse(/invite\/acceptance$/);
    await page.getByRole('button', { name: /^Accept/ }).click();
    expect((await accepted).status()).toBe(200);
    await open('/me');
    await heading('Me').waitFor();
    const names = await page.getByRole('navigation', { name: 'Pages' }).getByRole('link').allTextContents();
    const seen = names.map((name) => name.trim());
    expect(seen).toEqual(expect.arrayContaining(['Overview', 'Requests', 'Me']));
    expect(seen).not.toEqual(expect.arrayContaining(['Audit']));
    await open('/audit');
    await page.getByText('You can see Audit when an admin gives you audit_logs.list.').waitFor();
  });

  test('a theme that was chosen is there before the first paint, and stays', async () => {
    await open('/me');
    await page.getByRole('main').getByRole('radio', { name: 'Dark' }).check();
    await page.emulateMedia({ colorScheme: 'light' });
    await open('/keys');
    expect(await page.evaluate('document.documentElement.dataset.theme')).toBe('dark');
    expect(await page.evaluate("document.querySelector('script').src")).toMatch(/\/assets\/theme-\w+\.js$/);
    await page.evaluate("localStorage.removeItem('sluice.theme')");
  });
});
