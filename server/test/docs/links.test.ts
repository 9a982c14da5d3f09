/** Links between the pages of this repository lead to a file that exists, and to a heading that it has. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const PAGES = [
  ...readdirSync(ROOT),
  ...readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' }).map((name) => join('docs', name)),
].filter((name) => name.endsWith('.md'));

/** Names of the headings of a page, as forges make them from their text: a second one of the same text ends with `-1`. */
function anchors(text: string): Set<string> {
  const names = new Set<string>();
  for (const [, heading = ''] of text.replaceAll(/^```.*?^```$/gms, '').matchAll(/^#+ (.*)$/gm)) {
    const name = heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-');
    let unique = name;
    for (let i = 1; names.has(unique); i++) unique = `${name}-${i}`;
    names.add(unique);
  }
  return names;
}

function broken(page: string): string[] {
  const text = readFileSync(join(ROOT, page), 'utf8').replaceAll(/^```.*?^```$/gms, '');
  return [...text.matchAll(/\]\(([^)\s]+)\)/g)].flatMap(([, link = '']) => {
    if (/^[a-z]+:/.test(link)) return [];
    const [path = '', anchor] = link.split('#');
    const target = path === '' ? join(ROOT, page) : resolve(ROOT, dirname(page), path);
    if (!existsSync(target)) return [`${page}: there is no ${relative(ROOT, target)}`];
    if (anchor === undefined || anchors(readFileSync(target, 'utf8')).has(anchor)) return [];
    return [`${page}: ${relative(ROOT, target)} has no heading #${anchor}`];
  });
}

it('every link from page to page leads somewhere', () => {
  expect(PAGES).toEqual(expect.arrayContaining(['README.md', 'docs/architecture.md', 'docs/guides/limits.md']));
  expect(PAGES.flatMap(broken)).toEqual([]);
});

it('every guide is linked from the README', () => {
  const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
  const guides = PAGES.filter((page) => page.startsWith('docs/guides/'));
  expect(guides.filter((page) => !readme.includes(`(${page})`))).toEqual([]);
});
