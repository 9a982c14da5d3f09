/** Pages of the console in a real browser, signed in as the owner, looked at in each theme and width. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';
import { expect } from 'vitest';
import { isCurrent } from '../../../console/ensure-built.mjs';
import { launchBrowser } from './browser.ts';
import type { TestServer } from './server.ts';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const browser = await launchBrowser();
/** Where pictures of the pages are put, for people who look at them. */
const PICTURES = process.env.SLUICE_TEST_PICTURES;
const SIZES = [
  [1440, 900],
  [390, 844],
] as const;

/** Whether this machine runs a browser. */
export const withBrowser = browser.context !== null;

/** The title of a suite, which says why it is skipped. */
export const pagesTitle = (name: string): string => `${name}${browser.context ? '' : ` (skipped: ${browser.reason})`}`;

export interface ConsolePages {
  readonly page: Page;
  /** @param path below `/console` */
  open(path: string): Promise<unknown>;
  /** Fails where the page, in any theme and width, breaks a rule of accessibility or is wider than the screen. */
  look(name: string): Promise<void>;
  /** Fails where a page has thrown, or has met its content security policy. */
  close(): Promise<void>;
}

export async function openPages(server: TestServer): Promise<ConsolePages> {
  expect(isCurrent(), 'console/dist is not built from these sources: npm run console').toBe(true);
  const complaints: string[] = [];
  const page = (await browser.context?.newPage()) as Page;
  page.setDefaultTimeout(30_000);
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    // What forms are refused with.
    if (message.type() === 'error' && !/status of 4(00|04|09)/.test(message.text())) complaints.push(message.text());
  });
  const made = await server.admin('POST', `/admin/users/${server.first.user_id}/sign-in-link`);
  await page.goto(String(made.body.sign_in_link));
  await page.locator('.frame h1').waitFor();

  async function faults(name: string, width: number): Promise<string[]> {
    const found: string[] = [];
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      await page.evaluate(axe);
      const broken = (await page.evaluate(
        'axe.run().then((found) => found.violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => id + " " + target)))',
      )) as string[];
      found.push(...broken.map((one) => `${name} ${width} ${colorScheme}: ${one}`));
      if (PICTURES) await page.screenshot({ path: `${PICTURES}/${name}-${width}-${colorScheme}.png` });
    }
    const wide = await page.evaluate('document.documentElement.scrollWidth');
    return wide === width ? found : [...found, `${name} is ${wide} wide on ${width}`];
  }

  return {
    page,
    open: (path) => page.goto(`${server.url}/console${path}`),
    async look(name) {
      const found: string[] = [];
      for (const [width, height] of SIZES) {
        await page.setViewportSize({ width, height });
        found.push(...(await faults(name, width)));
      }
      await page.setViewportSize({ width: 1440, height: 900 });
      await page.emulateMedia({ colorScheme: 'light' });
      expect(found).toEqual([]);
    },
    async close() {
      if (browser.context) await browser.close();
      expect(complaints).toEqual([]);
    },
  };
}
