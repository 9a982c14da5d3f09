/** Hostile texts wherever the API keeps texts, on every page of the console: nothing runs, and nothing is fetched from elsewhere. */
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { isCurrent } from '../../../console/ensure-built.mjs';
import { launchBrowser } from '../support/browser.ts';
import { startServer, type TestServer } from '../support/server.ts';

const browser = await launchBrowser();
const TITLE = `hostile texts in the console${browser.context ? '' : ` (skipped: ${browser.reason})`}`;

const HOSTILE = [
  '<img src=https://evil.example/x onerror="window.pwned=1">',
  '"><script>window.pwned=1</script>',
  '<svg/onload=window.pwned=1>',
  '[link](javascript:window.pwned=1)',
  "{{constructor.constructor('window.pwned=1')()}}",
  '<iframe srcdoc="<script>parent.pwned=1</script>"></iframe>',
];
const ALL = HOSTILE.join(' ');
const [NAME = ''] = HOSTILE;

describe.skipIf(browser.context === null)(TITLE, () => {
  let server: TestServer;
  let page: Page;
  const complaints: string[] = [];
  const paths: string[] = [];

  beforeAll(async () => {
    expect(isCurrent(), 'console/dist is not built from these sources: npm run console').toBe(true);
    server = await startServer();
    const { workspace_id } = server.first;
    const put = async (method: string, path: string, body: unknown) => {
      const answer = await server.admin(method, path, body);
      expect([path, answer.status]).toEqual([path, 200]);
      return answer.body as Record<string, string>;
    };
    const name = (n: number) => HOSTILE[n]?.slice(0, 100) ?? '';
    const made = await put('POST', '/admin/workspaces', { name: name(1).slice(0, 40), description: ALL });
    paths.push(`/workspaces/${made.id}`);
    for (const n of [0, 2, 3]) {
      const key = await put('POST', '/api-keys/workspace/service', {
        name: name(n),
        description: ALL,
        workspace_id,
        scopes: ['completions.write'],
      });
      paths.push(`/keys/${key.id}`);
    }
    await put('PUT', `/admin/users/${server.first.user_id}`, { first_name: name(2).slice(0, 40), last_name: 'X' });
    const guardrail = await put('POST', '/guardrails', {
      ...{ name: name(0), workspace_id },
      checks: [{ id: 'default.contains', name: name(2), parameters: { words: HOSTILE } }],
    });
    paths.push(`/guardrails/${guardrail.id}`);
    const account = await put('POST', '/integrations', {
      ...{ name: name(2), description: ALL, ai_provider_id: 'openai', key: 'k', workspace_id },
    });
    paths.push(`/providers/${account.slug}`);
    const config = await put('POST', '/configs', {
      ...{ name: name(2), workspace_id },
      config: {
        strategy: { mode: 'fallback' },
        targets: [{ provider: '@sandbox', override_params: { model: name(2) } }],
      },
    });
    paths.push(`/routing/${config.slug}`, `/routing/${config.slug}?tab=json`);
    const metadata = JSON.stringify({ team: NAME.slice(0, 100), _user: '<svg/onload=window.pwned=1>' });
    for (const model of ['@sandbox/echo', `@sandbox/${HOSTILE[2]}`, '@sandbox/error?status=503']) {
      await server.call(
        '/chat/completions',
        { model, messages: [{ role: 'user', content: ALL }] },
        { 'x-gateway-metadata': metadata },
      );
    }
    const list = async () =>
      (await server.admin('GET', `/logs?workspace_id=${workspace_id}`)).body.data as { id: string }[];
    await vi.waitFor(async () => expect((await list()).length).toBeGreaterThan(1), { timeout: 20_000 });
    paths.push(...(await list()).map(({ id }) => `/requests/${id}`));
    const own = { 'x-gateway-api-key': server.first.workspace_api_key };
    const form = new FormData();
    form.append('purpose', 'fine-tune');
    const rows = JSON.stringify({
      messages: [
        { role: 'user', content: ALL },
        { role: 'assistant', content: ALL },
      ],
    });
    form.append('file', new Blob([`${rows}\n${ALL}\n`]), `${HOSTILE[2]}.jsonl`);
    const sent = await fetch(`${server.url}/v1/files`, {
      method: 'POST',
      headers: { ...own, 'x-gateway-provider': 'gateway' },
      body: form,
    });
    expect(sent.status).toBe(200);
    paths.push(`/files/${((await sent.json()) as { id: string }).id}`);

    page = (await browser.context?.newPage()) as Page;
    page.setDefaultTimeout(20_000);
    page.on('dialog', (dialog) => {
      complaints.push(`dialog ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on('request', (request) => {
      if (!request.url().startsWith(server.url)) complaints.push(`asked ${request.url()}`);
    });
    page.on('console', (message) => {
      if (/content security policy/i.test(message.text())) complaints.push(message.text());
    });
    const link = await server.admin('POST', `/admin/users/${server.first.user_id}/sign-in-link`);
    await page.goto(String(link.body.sign_in_link));
    await page.locator('.frame h1').waitFor();
  }, 120_000);
  afterAll(async () => {
    if (browser.context) await browser.close();
    await server?.stop();
  });

  test('no page of the navigation and of an object runs them, asks another host, or links to a script', async () => {
    const linked = await page.getByRole('navigation', { name: 'Pages' }).getByRole('link').all();
    const pages = await Promise.all(linked.map((one) => one.getAttribute('href')));
    const found = [...new Set([...pages, ...paths.map((path) => `/console${path}`)])];
    expect(found.length).toBeGreaterThan(15);
    let shown = 0;
    for (const path of found) {
      await page.goto(`${server.url}${path}`);
      await page.locator('.frame h1').first().waitFor();
      await page.waitForLoadState('networkidle');
      await expect.poll(() => page.locator('.skeleton').count(), { timeout: 20_000 }).toBe(0);
      const state = (await page.evaluate(`({
        pwned: window.pwned ?? null,
        scripts: [...document.querySelectorAll('[href^="javascript:" i], iframe, img[onerror], svg[onload]')].length,
        shown: document.body.innerText.includes('onload=window.pwned') || document.body.innerText.includes('evil.example'),
      })`)) as { pwned: unknown; scripts: number; shown: boolean };
      expect([path, state.pwned, state.scripts]).toEqual([path, null, 0]);
      if (state.shown) shown += 1;
    }
    // The texts were there to run: as texts.
    expect(shown).toBeGreaterThan(5);
    expect(complaints).toEqual([]);
  }, 300_000);
});
