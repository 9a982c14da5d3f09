/** The page Guardrails in a real browser: one is made of a recipe, tried, changed, attached, and then refuses. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ConsolePages, openPages, pagesTitle, withBrowser } from '../support/console-pages.ts';
import { startServer, type TestServer } from '../support/server.ts';

const CARD = 'My card is 4111 1111 1111 1111.';

describe.skipIf(!withBrowser)(pagesTitle('Guardrails'), () => {
  let server: TestServer;
  let pages: ConsolePages;

  beforeAll(async () => {
    server = await startServer();
    pages = await openPages(server);
  }, 120_000);
  afterAll(async () => {
    await pages?.close();
    await server?.stop();
  });
  const say = async () =>
    (await server.call('/chat/completions', { model: '@sandbox/echo', messages: [{ role: 'user', content: CARD }] }))
      .status;

  test('a recipe becomes a guardrail, whose trial marks what it found', async () => {
    const { page, open, look } = pages;
    await open('/guardrails');
    await page.getByText('No guardrail yet.').waitFor();
    await look('guardrails-empty');
    await page.getByRole('link', { name: 'New guardrail' }).first().click();
    await page.getByRole('button', { name: /^Block card numbers/ }).click();
    expect(await page.getByLabel('CREDIT_CARD').isChecked()).toBe(true);
    await look('new-guardrail');
    await page.getByRole('button', { name: 'Create and try' }).click();
    await page.getByRole('heading', { name: 'Block card numbers', level: 1 }).waitFor();
    await page.getByLabel('Text', { exact: true }).fill(CARD);
    await page.getByRole('button', { name: 'Try it' }).click();
    await page.getByText('Refused with 446').last().waitFor();
    expect(await page.locator('mark').textContent()).toBe('4111 1111 1111 1111CREDIT_CARD');
    await look('guardrail');
  }, 120_000);

  test('fields are those of the check, a fault is shown at its field, and redaction shows what goes on', async () => {
    const { page } = pages;
    const first = page.getByRole('region', { name: /^Personal data/ });
    await first.getByLabel('Redact').check();
    await page.getByLabel('Another check').selectOption('default.contains');
    await page.getByRole('button', { name: 'Add the check' }).click();
    await page.getByText('This tries the guardrail as it is saved').waitFor();
    await page.getByRole('button', { name: 'Save' }).click();
    await page
      .getByRole('alert')
      .getByRole('link', { name: /^Contains words, Words: / })
      .waitFor();
    await page.getByRole('button', { name: 'Remove Contains words' }).click();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Nothing has changed.').waitFor();
    await page.getByLabel('Text', { exact: true }).fill(CARD);
    await page.getByRole('button', { name: 'Try it' }).click();
    await page.getByText('Passes, changed').waitFor();
    await page.getByText('My card is {{CREDIT_CARD_1}}.').waitFor();
  }, 120_000);

  test('attached to the workspace it refuses, and the list counts it', async () => {
    const { page, open, look } = pages;
    await page
      .getByRole('region', { name: /^Personal data/ })
      .getByLabel('Redact')
      .uncheck();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Nothing has changed.').waitFor();
    expect(await say()).toBe(200);
    const workspace = page.getByRole('group', { name: /^In the workspace/ });
    await workspace.getByLabel('on every request').click();
    await expect.poll(say, { timeout: 20_000 }).toBe(446);
    const refused = async () => {
      await open('/guardrails');
      await page.getByRole('row', { name: /Block card numbers/ }).waitFor();
      return page.locator('.tile', { hasText: 'Refused by guardrails' }).locator('dd').textContent();
    };
    await expect.poll(refused, { timeout: 20_000 }).not.toMatch(/^[–0]/);
    await look('guardrails');
    await page.getByRole('link', { name: 'Block card numbers' }).click();
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Delete', exact: true }).click();
    await dialog.getByRole('alert').waitFor();
  }, 120_000);
});
