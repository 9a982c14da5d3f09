import { readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const SRC = fileURLToPath(new URL('../../src/', import.meta.url));

/** Files and packages that are loaded together with `entry`, through imports of values at the top of files. */
function loadedWith(entry: string): Set<string> {
  const found = new Set<string>();
  const visit = (path: string): void => {
    if (found.has(path)) return;
    found.add(path);
    const text = readFileSync(join(SRC, path), 'utf8');
    for (const [, from = ''] of text.matchAll(/^(?:import|export)(?! type\b)[^;]*?from '([^']+)';/gm)) {
      if (from.startsWith('.')) visit(relative(SRC, join(SRC, dirname(path), from)));
      else if (!from.startsWith('node:')) found.add(from);
    }
  };
  visit(entry);
  return found;
}

it('the primary process of several workers loads no code of what serves', () => {
  const loaded = [...loadedWith('main.ts'), ...loadedWith(join('cli', 'serve.ts'))];
  expect(loaded).toContain(join('cli', 'workers.ts'));
  expect(loaded.length).toBeGreaterThan(15);
  const serving = loaded.filter((path) => /^(zod|fastify|pg|compose)|^(llm|resources|admin|providers)\b/.test(path));
  expect(serving).toEqual([]);
  expect(loadedWith('compose.ts')).toContain('fastify');
});
