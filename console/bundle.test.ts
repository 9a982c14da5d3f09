/** What a browser loads of the console. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { isCurrent } from './ensure-built.mjs';

const dist = path.join(import.meta.dirname, 'dist');
const assets = path.join(dist, 'assets');
const KB = 1_000;

const read = (name: string) => readFileSync(path.join(assets, name), 'utf8');
const size = (names: Iterable<string>) => [...names].reduce((sum, name) => sum + gzipSync(read(name)).length, 0);

/** A file of the build with all that it imports before it runs. */
function withImports(name: string, found = new Set<string>()): Set<string> {
  if (found.has(name)) return found;
  found.add(name);
  if (name.endsWith('.js')) {
    for (const [, next = ''] of read(name).matchAll(/(?:from|import)\s*"\.\/([\w.-]+)"/g)) withImports(next, found);
  }
  return found;
}

test('the first load is at most 190 kB compressed, and each page adds at most 60 kB', () => {
  expect(isCurrent(), 'console/dist is not built from these sources: npm run console').toBe(true);
  const page = readFileSync(path.join(dist, 'index.html'), 'utf8');
  const first = new Set(
    [...page.matchAll(/\/console\/assets\/([\w.-]+\.(?:js|css))/g)].flatMap(([, name = '']) => [name]),
  );
  const shell = readdirSync(assets).filter((name) => /^shell-[\w-]+\.js$/.test(name));
  expect(shell).toHaveLength(1);
  for (const name of [...first, ...shell]) withImports(name, first);
  expect(size(first)).toBeLessThan(190 * KB);
  const pages = readdirSync(assets).filter((name) => /^(?:page|detail|account)-[\w-]+\.js$/.test(name));
  expect(pages.length).toBeGreaterThan(8);
  for (const name of pages) {
    const own = [...withImports(name)].filter((file) => !first.has(file));
    expect(size(own), name).toBeLessThan(60 * KB);
  }
});
