import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { LOADED, PATHS, STILL } from '../support/console-walk.ts';

const source = readFileSync(new URL('../../../console/src/shell/pages.ts', import.meta.url), 'utf8');
const pages = [...source.matchAll(/^ {2}page\(\{ path: '([^']+)'/gm)].flatMap(([, path]) => (path ? [path] : []));

/** The page that shows an address: the first that fits, as in the frame. */
const pageOf = (address: string) => {
  const parts = (address.split('?')[0] ?? '').split('/');
  return pages.find((page) => {
    const own = page.split('/');
    return own.length === parts.length && own.every((part, at) => part.startsWith(':') || part === parts[at]);
  });
};

test('every page of the console is walked through, in its states too', () => {
  expect(pages.length).toBeGreaterThan(30);
  // The address of a request that exists is known only while the walk runs.
  const full = new Set([...PATHS.map(([path]) => pageOf(path)), '/requests/:id']);
  expect(pages.filter((page) => !full.has(page))).toEqual([]);
  const states = new Set([...LOADED, ...STILL].map(pageOf));
  expect(pages.filter((page) => !states.has(page))).toEqual([]);
  expect(STILL.filter((path) => pageOf(path) === undefined)).toEqual([]);
});
