/** The pages that train and that send batches, in a real browser, on a whole server with the sandbox. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { isCurrent } from '../../../console/ensure-built.mjs';
import { launchBrowser } from '../support/browser.ts';
import { startServer, type TestServer } from '../support/server.ts';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const browser = await launchBrowser();
const TITLE = `training in the console${browser.context ? '' : ` (skipped: ${browser.reason})`}`;

const row = (n: number) =>
  JSON.stringify({
    messages: [
      { role: 'user', content: `${n} + 1?` },
      { role: 'assistant', content: String(n + 1) },
    ],
  });
const ROWS = Array.from({ length: 12 }, (_, n) => row(n)).join('\n');
const LINES = ['a', 'b', 'c']
  .map((id, n) => ({
    custom_id: id,
    method: 'POST',
    url: '/v1/chat/completions',
    body: { messages: n === 2 ? 'none' : [{ role: 'user', content: `Say ${id}` }] },
  }))
  .map((line) => JSON.stringify(line))
  .join('\n');

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
    complaints = [];
    page = (await browser.context?.newPage()) as Page;
    page.setDefaultTimeout(30_000);
    page.on('pageerror', (error) => complaints.push(error.message));
    page.on('console', (message) => {
      if (/content security policy/i.test(message.text())) complaints.push(message.text());
    });
    const made = await server.admin('POST', `/admin/users/${server.first.user_id}/sign-in-link`);
    await page.goto(String(made.body.sign_in_link));
    await page.locator('.frame h1').waitFor();
  });
  afterEach(async () => {
    await page.close();
    expect(complaints).toEqual([]);
  });

  const open = (path: string) => page.goto(`${server.url}/console${path}`);
  const button = (name: string) => page.getByRole('button', { name, exact: true });
  const choose = (label: string, name: string, text: string) =>
    page.getByLabel(label).setInputFiles({ name, mimeType: 'application/jsonl', buffer: Buffer.from(text) });
  const violations = async (): Promise<string[]> => {
    await page.evaluate(axe);
    return page.evaluate(
      'axe.run().then((found) => found.violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => id + " " + target)))',
    );
  };
  /** In both colour schemes and widths. */
  const accessible = async () => {
    const found: string[] = [];
    for (const width of [1440, 390]) {
      await page.setViewportSize({ width, height: 900 });
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        found.push(...(await violations()).map((one) => `${width} ${colorScheme}: ${one}`));
      }
      if ((await page.evaluate('document.documentElement.scrollWidth')) !== width) found.push(`wider than ${width}`);
    }
    await page.setViewportSize({ width: 1440, height: 900 });
    return found;
  };

  test('a file with a wrong row says which line is wrong, shows its first lines, and is deleted', async () => {
    await open('/files?new=1');
    await choose('JSONL file', 'bad.jsonl', `${ROWS}\n{"messages": "oops"}`);
    await page.getByRole('heading', { name: 'bad.jsonl', level: 1 }).waitFor();
    await page.getByText('line 13: "messages" must be a list with messages').waitFor();
    await page.getByText('{"messages": "oops"}').waitFor();
    expect(await accessible()).toEqual([]);
    await button('Delete').click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByText('No file yet.').waitFor();
  });

  test('the wizard checks rows and estimates, starts a job, and the job page follows it to its model', async () => {
    await open('/fine-tuning/new');
    await button('Upload Training file').click();
    await choose('Training file: JSONL file', 'rows.jsonl', ROWS);
    await page.getByText('processed').waitFor();
    await page.getByLabel('Base model').fill('echo');
    await page.getByLabel('Name', { exact: true }).fill('first');
    await button('Dry run').click();
    await page.getByText('12 of 12 rows are valid').waitFor();
    expect(await accessible()).toEqual([]);
    await button('Start').click();
    await page.getByRole('heading', { name: 'first', level: 1 }).waitFor();
    await page.getByRole('heading', { name: 'The new model' }).waitFor();
    await page
      .getByText(/^@sandbox\/ft:echo:first:\w+$/)
      .first()
      .waitFor();
    const loss = page.getByRole('slider', { name: 'Loss' });
    await loss.focus();
    await page.keyboard.press('End');
    expect(await loss.getAttribute('aria-valuetext')).toMatch(/^step \d+: training loss \d\.\d{3}$/);
    expect(await accessible()).toEqual([]);

    await page.getByRole('link', { name: 'New job with this file' }).click();
    await page.getByLabel('Base model').fill('echo');
    await page.getByLabel('Name', { exact: true }).fill('second');
    await page.getByLabel('Epochs').fill('5');
    await button('Start').click();
    await page.getByRole('heading', { name: 'The new model' }).waitFor();
    const option = page.getByLabel('Compare with').getByRole('option', { name: /^first/ });
    await page.getByLabel('Compare with').selectOption(await option.getAttribute('value'));
    await page.getByRole('region', { name: 'Two jobs' }).getByRole('row', { name: 'Epochs 5 3' }).waitFor();
    expect(await accessible()).toEqual([]);
  });

  test('a field that is wrong is named with the form unlost', async () => {
    await open('/fine-tuning/new');
    await page.getByLabel('Name', { exact: true }).fill('kept');
    await button('Start').click();
    await page
      .getByRole('alert')
      .getByRole('link', { name: /^Base model: / })
      .waitFor();
    expect(await page.getByLabel('Name', { exact: true }).inputValue()).toBe('kept');
  });

  test('a batch starts from an uploaded file, and shows its results and failed lines', async () => {
    await open('/batches?new=1');
    await choose('Or upload one', 'lines.jsonl', LINES);
    await expect.poll(() => new URL(page.url()).searchParams.get('file')).toMatch(/^gw_file_/);
    await page.getByLabel('Model', { exact: true }).fill('echo');
    await button('Start the batch').click();
    await page.getByText('3 of 3, 1 failed').waitFor();
    await page.getByRole('heading', { name: 'Results' }).waitFor();
    await page.getByRole('heading', { name: 'Failed lines' }).waitFor();
    expect(await accessible()).toEqual([]);
    await page.getByRole('link', { name: 'Batches' }).first().click();
    await page.getByRole('row', { name: /completed/ }).waitFor();
  });
});
