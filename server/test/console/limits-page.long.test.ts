/** Budgets & limits in a real browser: what it shows is what the API answers, and a budget made there refuses. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { isCurrent } from '../../../console/ensure-built.mjs';
import { launchBrowser } from '../support/browser.ts';
import { startServer, type TestServer } from '../support/server.ts';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const browser = await launchBrowser();
const TITLE = `Budgets & limits${browser.context ? '' : ` (skipped: ${browser.reason})`}`;
/** Where pictures of the page are put, for people who look at it. */
const PICTURES = process.env.SLUICE_TEST_PICTURES;

interface Limit {
  id: string;
  name: string;
  type: 'cost' | 'tokens' | 'requests';
  limit: number;
  used: number | null;
  remaining: number | null;
  reserved: number | null;
}

describe.skipIf(browser.context === null)(TITLE, () => {
  let server: TestServer;
  let page: Page;
  const complaints: string[] = [];

  const say = (model: string) =>
    server.call('/chat/completions', { model, messages: [{ role: 'user', content: 'Hello there' }] });
  const open = (path: string) => page.goto(`${server.url}/console${path}`);
  const limits = async () =>
    (await server.admin('GET', `/limits?all=true&workspace_id=${server.first.workspace_id}`)).body.data as Limit[];
  const violations = async (): Promise<string[]> => {
    await page.evaluate(axe);
    return page.evaluate(
      'axe.run().then((found) => found.violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => id + " " + target)))',
    );
  };
  /** The page or dialog in light and dark, wide and narrow. */
  const look = async (name: string) => {
    const found: string[] = [];
    for (const [width, height] of [
      [1440, 900],
      [390, 844],
    ] as const) {
      await page.setViewportSize({ width, height });
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        found.push(...(await violations()).map((one) => `${name} ${width} ${colorScheme}: ${one}`));
        if (PICTURES) await page.screenshot({ path: `${PICTURES}/${name}-${width}-${colorScheme}.png` });
      }
      const wide = await page.evaluate('document.documentElement.scrollWidth');
      if (wide !== width) found.push(`${name} is ${wide} wide on ${width}`);
    }
    await page.setViewportSize({ width: 1440, height: 900 });
    await page.emulateMedia({ colorScheme: 'light' });
    expect(found).toEqual([]);
  };

  beforeAll(async () => {
    expect(isCurrent(), 'console/dist is not built from these sources: npm run console').toBe(true);
    server = await startServer();
    const here = { workspace_id: server.first.workspace_id };
    const policy = (name: string, type: string, credit_limit: number, key: string) =>
      server.admin('POST', '/policies/usage-limits', {
        ...here,
        name,
        type,
        credit_limit,
        conditions: [{ key, value: key === 'workspace_id' ? server.first.workspace_id : '*' }],
        group_by: [{ key }],
        periodic_reset: 'monthly',
      });
    const made = [
      await policy('Team dollars', 'cost', 12.345678, 'workspace_id'),
      await policy('Team tokens', 'tokens', 20_000, 'workspace_id'),
      await policy('Each user', 'requests', 50, 'metadata._user'),
    ];
    expect(made.map(({ status }) => status)).toEqual([200, 200, 200]);
    const rate = await server.admin('PUT', `/admin/workspaces/${server.first.workspace_id}`, {
      usage_limits: [{ credit_limit: 500, periodic_reset: 'monthly' }],
      rate_limits: [{ type: 'requests', unit: 'rpd', value: 4000 }],
    });
    expect(rate.status).toBe(200);
    for (const model of ['@sandbox/echo', '@sandbox/lorem?tokens=20']) expect((await say(model)).status).toBe(200);
    await vi.waitFor(
      async () => expect((await limits()).find(({ name }) => name === 'Team tokens')?.used).toBeGreaterThan(0),
      { timeout: 20_000 },
    );
    page = (await browser.context?.newPage()) as Page;
    page.setDefaultTimeout(20_000);
    page.on('pageerror', (error) => complaints.push(error.message));
    page.on('console', (message) => {
      if (message.type() === 'error' && !/status of 40[04]/.test(message.text())) complaints.push(message.text());
    });
    const link = await server.admin('POST', `/admin/users/${server.first.user_id}/sign-in-link`);
    await page.goto(String(link.body.sign_in_link));
    await page.locator('.frame h1').waitFor();
  }, 120_000);
  afterAll(async () => {
    if (browser.context) await browser.close();
    await server?.stop();
    expect(complaints).toEqual([]);
  });

  test('every number of the page is the number of the API', async () => {
    await open('/limits');
    await page.getByRole('table', { name: 'Limits' }).waitFor();
    const expected = (await limits()).map(({ name, type, used, remaining }) => [
      name,
      used === null ? null : type === 'cost' ? Math.round(used * 1e6) : used,
      remaining === null ? null : type === 'cost' ? Math.round(remaining * 1e6) : remaining,
    ]);
    const number = (text: string) => {
      const [figure = ''] = text.replaceAll(',', '').match(/\$?[\d.]+/) ?? [];
      if (figure === '') return null;
      return figure.startsWith('$') ? Math.round(Number(figure.slice(1)) * 1e6) : Number(figure);
    };
    const rows = await page.locator('table[aria-label="Limits"] tbody tr').all();
    const shown: unknown[] = [];
    for (const row of rows) {
      const cells = await row.locator('td').allTextContents();
      const name = await row.locator('.limit-name').textContent();
      shown.push([name, number(cells[3] ?? ''), number(cells[4] ?? '')]);
    }
    expect(shown).toEqual(expected);
    await look('limits');
  }, 120_000);

  test('a budget is simulated on the last week, made, found used up, raised, and archived by its name', async () => {
    await open('/limits?new=1');
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name', { exact: true }).fill('Two a week');
    await dialog.getByLabel('Amount').fill('1');
    await dialog.getByLabel('Of what').selectOption('requests');
    await dialog.getByLabel('How often').selectOption('weekly');
    await dialog.getByLabel('Warn at percent').fill('');
    await dialog.getByRole('button', { name: 'Simulate' }).click();
    await dialog.getByText('It would have blocked 1 of 2 requests in the last 7 days.').waitFor();
    await look('new-budget');
    await dialog.getByRole('button', { name: 'Create the budget' }).click();
    await page.getByRole('link', { name: 'Two a week' }).waitFor();
    await expect.poll(async () => (await say('@sandbox/echo')).status, { timeout: 20_000 }).toBe(412);
    await page.getByRole('link', { name: 'Two a week' }).click();
    await page
      .getByRole('dialog', { name: 'Two a week' })
      .getByRole('button', { name: /^Reset workspace_id:/ })
      .waitFor();
    await look('budget');
    await page.getByRole('dialog').getByLabel('Amount').fill('100');
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
    await expect.poll(async () => (await say('@sandbox/echo')).status, { timeout: 20_000 }).toBe(200);
    await page.getByRole('link', { name: 'Two a week' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Archive' }).click();
    await page.getByRole('dialog').getByLabel('Type Two a week to archive it').fill('Two a week');
    await page.getByRole('dialog').getByRole('button', { name: 'Archive the budget' }).click();
    await expect.poll(() => page.getByRole('link', { name: 'Two a week' }).count(), { timeout: 20_000 }).toBe(0);
  }, 180_000);

  test('a budget without an amount is refused in words at the field', async () => {
    await open('/limits?new=1');
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Amount').fill('-1');
    await dialog.getByRole('button', { name: 'Create the budget' }).click();
    await dialog
      .getByRole('alert')
      .getByText(/^Amount: /)
      .waitFor();
  });
});
