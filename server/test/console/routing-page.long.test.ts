/** The page Routing in a real browser: a config of the gallery is made, tried, changed, compared and restored. */
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type ConsolePages, openPages, pagesTitle, withBrowser } from '../support/console-pages.ts';
import { startServer, type TestServer } from '../support/server.ts';

describe.skipIf(!withBrowser)(pagesTitle('Routing'), () => {
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
  /** Of the one config that there is. */
  const slug = async () => ((await server.admin('GET', '/configs')).body.data as { slug: string }[])[0]?.slug ?? '';

  test('the gallery makes a config, whose tree has the state of each breaker', async () => {
    const { page, open, look } = pages;
    await open('/routing');
    await page.getByText('No config yet.').waitFor();
    await page.getByRole('link', { name: 'New config' }).first().click();
    await page.getByRole('button', { name: /^Fallback/ }).click();
    const text = page.getByRole('textbox', { name: 'Config' });
    await text.fill(`${await text.inputValue()}\n]`);
    const lines = (await text.inputValue()).split('\n').length;
    await page.getByText(new RegExp(`^Line ${lines}: `)).waitFor();
    await look('new-config');
    await text.fill((await text.inputValue()).replace(/\n\]$/, ''));
    await page.getByRole('button', { name: 'Create the config' }).click();
    await page.getByRole('heading', { name: 'Fallback', level: 1 }).waitFor();
    await page.getByText('No request has used it yet.').waitFor();
  }, 120_000);

  test('a dry run says which target is first, and requests show in the tree', async () => {
    const { page, open, look } = pages;
    const config = await slug();
    const logs = `/logs?total=true&configs=${config}&workspace_id=${server.first.workspace_id}`;
    const recorded = (total: number) =>
      vi.waitFor(async () => expect((await server.admin('GET', logs)).body.total).toBe(total), { timeout: 20_000 });
    for (let n = 0; n < 2; n++) {
      const messages = [{ role: 'user', content: 'Hi' }];
      const answer = await server.call(
        '/chat/completions',
        { model: 'echo', messages },
        { 'x-gateway-config': config },
      );
      expect(answer.status).toBe(200);
    }
    await recorded(2);
    await open(`/routing/${config}`);
    await page.getByText('100 % of the last 24 hours went to @sandbox').first().waitFor();
    await page.getByText('Breakers as the newest request met them').waitFor();
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.getByText('turn 1').waitFor();
    await page.getByText('turn 2').waitFor();
    await page.getByText('Breakers as your dry run has just met them.').waitFor();
    expect(await page.getByText('breaker closed').count()).toBe(2);
    await look('config');
    // What was only tried is in the logs and in no sum.
    await recorded(3);
    await open('/routing');
    const cells = page.getByRole('row', { name: /Fallback/ }).locator('td');
    await expect
      .poll(async () => (await cells.allTextContents()).slice(2, 4), { timeout: 20_000 })
      .toEqual(['2', '0 %']);
    await look('routing');
  }, 120_000);

  test('a save that would not fail over is warned of; its version is compared and the former one restored', async () => {
    const { page, open, look } = pages;
    await open(`/routing/${await slug()}`);
    await page.getByRole('tab', { name: 'JSON' }).click();
    const text = page.getByRole('textbox', { name: 'Config' });
    const before = await text.inputValue();
    await text.fill('{"strategy": {"mode": "fallbackk"}, "targets": [{"provider": "@sandbox"}]}');
    await page.getByRole('button', { name: 'Save as a new version' }).click();
    await page
      .getByRole('alert')
      .getByRole('link', { name: /^Config: .*strategy\.mode/ })
      .waitFor();
    await text.fill(before.replace('502,', ''));
    await page.getByRole('button', { name: 'Save as a new version' }).click();
    await page.getByText(/on_status_codes lacks 502/).waitFor();
    await page.getByRole('tab', { name: 'Versions' }).click();
    await page.getByRole('button', { name: 'What changed' }).first().click();
    await page.getByRole('table', { name: 'Changed fields' }).getByText('strategy.on_status_codes').waitFor();
    await look('versions');
    await page.getByRole('button', { name: /^Restore/ }).click();
    await expect.poll(() => page.getByText(/on_status_codes lacks 502/).count(), { timeout: 20_000 }).toBe(0);
    await expect.poll(() => page.locator('.version').count()).toBe(3);
  }, 120_000);
});
