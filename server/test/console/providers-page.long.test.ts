/** The page Providers in a real browser: an account is added, tested through the gateway, rotated, shared and deleted. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type ConsolePages, openPages, pagesTitle, withBrowser } from '../support/console-pages.ts';
import { startServer, type TestServer } from '../support/server.ts';

describe.skipIf(!withBrowser)(pagesTitle('Providers'), () => {
  let server: TestServer;
  let upstream: Server;
  let pages: ConsolePages;
  const keys: string[] = [];

  beforeAll(async () => {
    upstream = createServer((request, response) => {
      keys.push(String(request.headers.authorization));
      const right = request.headers.authorization === 'Bearer sk-right';
      response.writeHead(right ? 200 : 401, { 'content-type': 'application/json' });
      const models = ['alpha', 'beta'].map((id) => ({ id, object: 'model' }));
      response.end(
        JSON.stringify(
          right ? { object: 'list', data: models } : { error: { message: 'Incorrect API key', type: 'x' } },
        ),
      );
    });
    await new Promise<void>((resolve) => upstream.listen(0, '127.0.0.1', resolve));
    const { port } = upstream.address() as AddressInfo;
    server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${port}` });
    for (const model of ['@sandbox/echo', '@sandbox/error?status=429', '@sandbox/echo']) {
      await server.call('/chat/completions', { model, messages: [{ role: 'user', content: 'Hi' }] });
    }
    await vi.waitFor(
      async () =>
        expect(
          (await server.admin('GET', `/logs?total=true&workspace_id=${server.first.workspace_id}`)).body.total,
        ).toBe(3),
      { timeout: 20_000 },
    );
    pages = await openPages(server);
  }, 120_000);
  afterAll(async () => {
    await pages?.close();
    await server?.stop();
    upstream?.close();
  });

  test('the list shows what the API counts of the last day', async () => {
    const { page, open, look } = pages;
    await open('/providers');
    const row = page.getByRole('row', { name: /Sandbox/ });
    await expect
      .poll(() => row.locator('td').allTextContents(), { timeout: 20_000 })
      .toEqual(expect.arrayContaining(['@sandbox', '3', '66.7 %', '1']));
    await look('providers');
  });

  test('an account shows just the fields of its kind, is tested, rotated, and tested again', async () => {
    const { page, open, look } = pages;
    const { port } = upstream.address() as AddressInfo;
    await open('/providers?new=1');
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Kind').selectOption('bedrock');
    await dialog.getByLabel('AWS auth type').selectOption('accessKey');
    await dialog.getByLabel('AWS secret access key').waitFor();
    expect(await dialog.getByLabel('Key', { exact: true }).count()).toBe(0);
    await look('new-account-bedrock');
    await dialog.getByLabel('Kind').selectOption('openai');
    expect(await dialog.getByLabel('AWS secret access key').count()).toBe(0);
    await dialog.getByLabel('Name').fill('Ours');
    await dialog.getByRole('button', { name: 'Add the account' }).click();
    await dialog
      .getByRole('alert')
      .getByText(/^Key: /)
      .waitFor();
    await dialog.getByLabel('Key', { exact: true }).fill('sk-wrong');
    await dialog.getByText('More settings').click();
    await dialog.getByLabel('Custom host').fill(`http://127.0.0.1:${port}/v1`);
    await look('new-account');
    await dialog.getByRole('button', { name: 'Add the account' }).click();
    await page.getByRole('heading', { name: 'Ours', level: 1 }).waitFor();
    const test = page.getByRole('region', { name: 'Test' });
    await test.getByRole('button', { name: 'Test', exact: true }).click();
    await test.getByText('Status 401').waitFor();
    await page.getByRole('button', { name: 'Rotate the credential' }).click();
    await page.getByLabel('New key').fill('sk-right');
    await page.getByRole('button', { name: 'Save the credential' }).click();
    await page.getByText('The new credential is in use.').waitFor();
    await test.getByRole('button', { name: 'Test', exact: true }).click();
    await test.getByText('It answers').waitFor();
    await test.getByText('beta', { exact: true }).waitFor();
    expect([keys[0], keys.at(-1)]).toEqual(['Bearer sk-wrong', 'Bearer sk-right']);
    expect(await page.content()).not.toContain('sk-right');
    await look('account');
  }, 120_000);

  test('it is closed to a workspace, opened again, and deleted after what would stop was shown', async () => {
    const { page, open, look } = pages;
    const { body } = await server.admin('GET', '/integrations');
    const slug = (body.data as { name: string; slug: string }[]).find(({ name }) => name === 'Ours')?.slug ?? '';
    await open(`/providers/${slug}`);
    const sharing = page.getByRole('region', { name: 'Workspaces' });
    await sharing.getByRole('button', { name: /^Stop sharing/ }).click();
    await sharing.getByText('closed').waitFor();
    const access = async () => (await server.admin('GET', `/integrations/${slug}`)).body.workspace_count;
    // The page says it at once; the server a moment later.
    await expect.poll(access, { timeout: 20_000 }).toBe(0);
    await sharing.getByRole('button', { name: /^Share/ }).click();
    await sharing.getByText('may use it', { exact: true }).waitFor();
    await expect.poll(access, { timeout: 20_000 }).toBe(1);
    await page.getByRole('button', { name: 'Delete' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText(/would stop/).waitFor();
    await look('delete-account');
    await dialog.getByLabel(/^Type /).fill(slug);
    await dialog.getByRole('button', { name: 'Delete', exact: true }).click();
    await dialog.getByRole('button', { name: 'Delete although it is in use' }).click();
    await page.getByRole('heading', { name: 'Providers', level: 1 }).waitFor();
    await expect.poll(() => page.getByRole('link', { name: 'Ours' }).count(), { timeout: 20_000 }).toBe(0);
  }, 120_000);
});
