/** Pages of the console in a real browser: the sign-in, the rules of accessibility, and what must never happen. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { BrowserContext, Page } from 'playwright-core';
import type { TestServer } from './server.ts';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What a page must not do: errors of scripts, lines of errors (the policy's among them), calls of other hosts. */
export function complaintsOf(
  page: Page,
  server: Pick<TestServer, 'url'>,
  expected: RegExp = /status of 40[04]/,
): string[] {
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('request', (request) => {
    if (!request.url().startsWith(server.url) && !/^(blob|data):/.test(request.url())) {
      complaints.push(`asked ${request.url()}`);
    }
  });
  page.on('console', (message) => {
    if (message.type() === 'error' && !expected.test(message.text())) complaints.push(message.text());
  });
  return complaints;
}

/** A new page, signed in as the owner, at the overview. */
export async function signedIn(context: BrowserContext | null, server: TestServer): Promise<Page> {
  const page = (await context?.newPage()) as Page;
  page.setDefaultTimeout(30_000);
  const made = await server.admin('POST', `/admin/users/${server.first.user_id}/sign-in-link`);
  await page.goto(String(made.body.sign_in_link));
  await page.locator('.frame h1').waitFor();
  return page;
}

/** Rules of accessibility that the page breaks, each with its place. */
export async function violations(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  return page.evaluate(
    'axe.run().then((found) => found.violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => id + " " + target)))',
  );
}

/** The same in light and dark, wide and narrow, with what does not fit the screen; pictures go to SLUICE_TEST_PICTURES. */
export async function looks(page: Page, name: string): Promise<string[]> {
  const found: string[] = [];
  const pictures = process.env.SLUICE_TEST_PICTURES;
  for (const [width, height] of [
    [1440, 900],
    [390, 844],
  ] as const) {
    await page.setViewportSize({ width, height });
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      found.push(...(await violations(page)).map((one) => `${name} ${width} ${colorScheme}: ${one}`));
      if (pictures)
        await page.screenshot({ path: `${pictures}/${name.replaceAll(/\W+/g, '_')}-${width}-${colorScheme}.png` });
    }
    const wide = await page.evaluate('document.documentElement.scrollWidth');
    if (wide !== width) found.push(`${name} is ${wide} wide on ${width}`);
  }
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.emulateMedia({ colorScheme: 'light' });
  return found;
}
