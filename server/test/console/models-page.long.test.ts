/** The page Models in a real browser: what was used, what has no price, and a price that counts from then on. */
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type ConsolePages, openPages, pagesTitle, withBrowser } from '../support/console-pages.ts';
import { startServer, type TestServer } from '../support/server.ts';

describe.skipIf(!withBrowser)(pagesTitle('Models'), () => {
  let server: TestServer;
  let pages: ConsolePages;
  const say = (model: string) =>
    server.call('/chat/completions', { model, messages: [{ role: 'user', content: 'Hello there' }] });
  const logs = async () =>
    (await server.admin('GET', `/logs?total=true&limit=1&operation=chat&workspace_id=${server.first.workspace_id}`))
      .body as { total: number; data: { cost_micros: number }[] };

  beforeAll(async () => {
    server = await startServer();
    for (let n = 0; n < 2; n++) expect((await say('@sandbox/echo')).status).toBe(200);
    await vi.waitFor(async () => expect((await logs()).total).toBe(2), { timeout: 20_000 });
    pages = await openPages(server);
  }, 120_000);
  afterAll(async () => {
    await pages?.close();
    await server?.stop();
  });

  test('the list has the use of the last week, and finds by name', async () => {
    const { page, open, look } = pages;
    await open('/models');
    await page.getByRole('row', { name: /@sandbox\/echo Sandbox 2 / }).waitFor();
    await look('models');
    await page.getByLabel('Find').fill('ECH');
    await page.getByText('1–1 of 1').waitFor();
    await page.getByRole('tab', { name: 'Without a price (0)' }).click();
    await page.getByLabel('Find').fill('');
    await page.getByText('Every request of the last 7 days had a price.').waitFor();
  }, 120_000);

  test('a model is tested, given a price that requests cost from then on, and switched off', async () => {
    const { page, open, look } = pages;
    await open('/models?model=@sandbox/echo');
    const dialog = page.getByRole('dialog', { name: '@sandbox/echo' });
    await dialog.getByRole('button', { name: 'Test with one token' }).click();
    await dialog.getByText('It answered after').waitFor();
    await dialog.getByLabel('Own price, dollars for a million input tokens').fill('1000');
    await dialog.getByLabel('Own price, dollars for a million output tokens').fill('0');
    await look('model');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await dialog.getByText('Saved.').waitFor();
    const costs = async () => {
      await say('@sandbox/echo');
      return (await logs()).data[0]?.cost_micros ?? 0;
    };
    await expect.poll(costs, { timeout: 20_000, interval: 500 }).toBeGreaterThan(999);
    await dialog.getByLabel(/^Requests may use it/).uncheck();
    await dialog.getByRole('button', { name: 'Save' }).click();
    await expect.poll(async () => (await say('@sandbox/echo')).status, { timeout: 20_000, interval: 300 }).toBe(400);
  }, 120_000);
});
