/** The first question of each kind of user, answered in a real browser: with the mouse, then with the keyboard alone. */
import { readFileSync } from 'node:fs';
import type { Locator, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { isCurrent } from '../../../console/ensure-built.mjs';
import { launchBrowser } from '../support/browser.ts';
import { complaintsOf, signedIn } from '../support/console-page.ts';
import { startServer, type TestServer } from '../support/server.ts';

const browser = await launchBrowser();
const TITLE = `what people come to the console for${browser.context ? '' : ` (skipped: ${browser.reason})`}`;

const ROWS = Array.from({ length: 12 }, (_, n) =>
  JSON.stringify({
    messages: [
      { role: 'user', content: `${n} + 1?` },
      { role: 'assistant', content: String(n + 1) },
    ],
  }),
).join('\n');
/** The longest way with Tab to anything on a page. */
const MOST_TABS = 60;

/** Hands on a page. What a person decides to do is an action; the way of the focus there is none. */
class Hands {
  readonly #page: Page;
  readonly #way: 'mouse' | 'keyboard';
  actions = 0;
  tabs = 0;

  constructor(page: Page, way: 'mouse' | 'keyboard') {
    this.#page = page;
    this.#way = way;
  }

  /** To a page of the navigation: its link, or `g` and its letter. */
  async go(name: string, letter: string): Promise<void> {
    this.actions += 1;
    if (this.#way === 'mouse') {
      await this.#page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name, exact: true }).click();
    } else {
      await this.#page.keyboard.press('g');
      await this.#page.keyboard.press(letter);
    }
    await this.#page.getByRole('heading', { name, level: 1, exact: true }).waitFor();
  }

  /** A button, link or box. */
  async press(one: Locator, key: 'Enter' | 'Space' = 'Enter'): Promise<void> {
    this.actions += 1;
    await one.waitFor();
    if (this.#way === 'mouse') return one.click();
    await this.#reach(one);
    await this.#page.keyboard.press(key);
  }

  async write(field: Locator, text: string): Promise<void> {
    this.actions += 1;
    if (this.#way === 'mouse') await field.click();
    else await this.#reach(field);
    await this.#page.keyboard.insertText(text);
  }

  /** An entry of a list, by the beginning of its name. */
  async choose(list: Locator, label: string): Promise<void> {
    this.actions += 1;
    await list.getByRole('option', { name: label }).first().waitFor({ state: 'attached' });
    if (this.#way === 'mouse') {
      await list.selectOption({ label });
      return;
    }
    await this.#reach(list);
    await this.#page.keyboard.type(label);
  }

  async keys(...keys: string[]): Promise<void> {
    this.actions += 1;
    for (const key of keys) await this.#page.keyboard.press(key);
  }

  async #reach(one: Locator): Promise<void> {
    await one.waitFor();
    for (let tab = 0; tab <= MOST_TABS; tab += 1) {
      if (await one.evaluate((element) => element === element.ownerDocument.activeElement)) return;
      await this.#page.keyboard.press('Tab');
      this.tabs += 1;
    }
    throw new Error(`${MOST_TABS} times Tab do not reach ${one}`);
  }
}

describe.skipIf(browser.context === null)(TITLE, () => {
  let server: TestServer;
  let page: Page;
  let complaints: string[] = [];

  const say = (model: string) =>
    server.call('/chat/completions', { model, messages: [{ role: 'user', content: 'Hello' }] });
  const button = (name: string) => page.getByRole('button', { name, exact: true });
  const logs = async (filter: string) =>
    (await server.admin('GET', `/logs?limit=10&workspace_id=${server.first.workspace_id}&${filter}`)).body.data as {
      id: string;
    }[];

  beforeAll(async () => {
    expect(isCurrent(), 'console/dist is not built from these sources: npm run console').toBe(true);
    server = await startServer();
    const rate = { workspace_id: server.first.workspace_id, name: 'No lorem', type: 'requests', unit: 'rpd', value: 1 };
    const conditions = [{ key: 'model', value: '@sandbox/lorem' }];
    const policy = { ...rate, conditions, group_by: [{ key: 'workspace_id' }] };
    expect((await server.admin('POST', '/policies/rate-limits', policy)).status).toBe(200);
    for (const model of ['@sandbox/echo', '@sandbox/error?status=503']) await say(model);
    await vi.waitFor(async () => expect((await say('@sandbox/lorem')).status).toBe(429), { timeout: 20_000 });
    await vi.waitFor(async () => expect(await logs('outcome=refused')).not.toEqual([]), { timeout: 20_000 });
  });
  afterAll(async () => {
    if (browser.context) await browser.close();
    await server?.stop();
  });
  beforeEach(async () => {
    page = await signedIn(browser.context, server);
    complaints = complaintsOf(page, server);
    await page.setViewportSize({ width: 1440, height: 900 });
  });
  afterEach(async () => {
    await page.close();
    expect(complaints).toEqual([]);
  });

  describe.each(['mouse', 'keyboard'] as const)('with the %s', (way) => {
    test('a developer finds why one request failed: its id into the search, one second', async () => {
      const [failed] = await logs('outcome=failed');
      const hands = new Hands(page, way);
      if (way === 'mouse') await page.getByRole('button', { name: /^Search or go to/ }).click();
      else await page.keyboard.press('Control+k');
      await page.getByRole('combobox', { name: 'Search pages, objects and ids' }).waitFor();
      await page.keyboard.insertText(failed?.id ?? '');
      const begun = performance.now();
      if (way === 'mouse') await hands.press(page.getByRole('option', { name: /Open this request/ }));
      else await hands.keys('Enter');
      await page.getByText('It failed with 503 after').waitFor();
      expect(performance.now() - begun).toBeLessThan(1_000);
      expect(hands.actions).toBe(1);
    });

    test('an admin gives a team access with $500 a month: one screen, seven actions, a key that works', async () => {
      const name = `Search by ${way}`;
      const hands = new Hands(page, way);
      const begun = performance.now();
      await hands.go('Workspaces', 'w');
      await hands.press(button('New workspace'));
      const dialog = page.getByRole('dialog', { name: 'New workspace' });
      await hands.write(dialog.getByLabel('Name', { exact: true }), name);
      await hands.press(dialog.getByLabel('Sandbox'), 'Space');
      await hands.press(dialog.getByLabel('owner@localhost.invalid'), 'Space');
      await hands.write(dialog.getByLabel('Budget in dollars a month'), '500');
      await hands.press(dialog.getByRole('button', { name: 'Create the workspace' }));
      const ready = page.getByRole('dialog', { name: `${name} is ready` });
      await ready.waitFor();
      expect(performance.now() - begun).toBeLessThan(90_000);
      expect(hands.actions).toBe(7);
      expect(new URL(page.url()).pathname).toBe('/console/workspaces');
      const key = String(await ready.locator('code').first().textContent());
      const self = await server.admin('GET', '/limits', undefined, key);
      expect(self.body.data).toMatchObject([{ kind: 'workspace', name, limit: 500, period: 'monthly' }]);
      await hands.press(ready.getByRole('button', { name: 'I stored it' }));
      await page.getByRole('row', { name: new RegExp(`${name}.*\\$500`) }).waitFor();
    });

    test('finance sees what each workspace spent this month, where the month will end, and has the file: two actions', async () => {
      const hands = new Hands(page, way);
      await hands.go('Spend', 's');
      await page.getByRole('table', { name: 'Spend by Workspace' }).getByText('Default').waitFor();
      await page.getByText('At this pace').waitFor();
      const file = page.waitForEvent('download');
      await hands.press(button('CSV'));
      const text = readFileSync(await (await file).path(), 'utf8');
      expect(text.split('\r\n')[0]).toBe('from,to,workspace,workspace_name,requests,tokens,cost_micros');
      expect(text).toContain(',Default,');
      expect(hands.actions).toBe(2);
    });

    test('security sees what was blocked, who changed what, and that the log is what was written: three actions', async () => {
      const hands = new Hands(page, way);
      await hands.go('Denials', 'd');
      await page.getByRole('region', { name: 'By error code' }).getByRole('button').first().waitFor();
      await hands.go('Audit', 'a');
      await page
        .getByRole('button', { name: /created rate limit No lorem/ })
        .first()
        .waitFor();
      await hands.press(button('Verify'));
      await page.getByText(/^All \d+ rows are what Sluice wrote/).waitFor();
      expect(hands.actions).toBe(3);
    });

    test('who is on call sees whether it is the provider: how its account did in a day, one action', async () => {
      const hands = new Hands(page, way);
      const begun = performance.now();
      if (way === 'mouse') await hands.go('Providers', '');
      else {
        await page.keyboard.press('Control+k');
        await page.getByRole('combobox', { name: 'Search pages, objects and ids' }).waitFor();
        await page.keyboard.insertText('Providers');
        await page.getByRole('option', { name: 'Providers' }).first().waitFor();
        await hands.keys('Enter');
      }
      const row = page.getByRole('table', { name: 'Accounts' }).getByRole('row', { name: /Sandbox/ });
      await row.getByText(/^\d[\d.]* %$/).waitFor();
      const took = performance.now() - begun;
      process.stdout.write(`on call, with the ${way}: ${hands.actions} action, ${Math.round(took)} ms\n`);
      expect(took).toBeLessThan(10_000);
      expect(hands.actions).toBe(1);
    });

    test('an ML engineer checks the rows, sees the cost, starts the job and sees its curve and model', async () => {
      const hands = new Hands(page, way);
      await hands.go('Fine-tuning', 'f');
      await hands.press(page.getByRole('link', { name: 'New job' }).first());
      await hands.press(button('Upload Training file'));
      // The file chooser is the system's, where no page reaches.
      await page
        .getByLabel('Training file: JSONL file')
        .setInputFiles({ name: `${way}.jsonl`, mimeType: 'application/jsonl', buffer: Buffer.from(ROWS) });
      await page.getByText('processed').waitFor();
      await hands.write(page.getByLabel('Base model'), 'echo');
      await hands.write(page.getByLabel('Name', { exact: true }), way);
      await hands.press(button('Dry run'));
      await page.getByText('12 of 12 rows are valid').waitFor();
      await hands.press(button('Start'));
      await page.getByRole('heading', { name: 'The new model' }).waitFor();
      await page.getByRole('slider', { name: 'Loss' }).waitFor();
      expect(hands.actions).toBe(7);
    }, 60_000);
  });
});
