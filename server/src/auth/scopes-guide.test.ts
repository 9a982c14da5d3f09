import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { scopesOf } from './scopes.ts';

const GUIDE = new URL('../../../docs/guides/scopes.md', import.meta.url);
const COLUMNS = ['organisation-service', 'workspace-service', 'workspace-user'] as const;

it('the guide lists every scope of each kind of key, and no other', async () => {
  const rows = [...(await readFile(GUIDE, 'utf8')).matchAll(/^\| `(\w+)`(.*)\|$/gm)];
  COLUMNS.forEach((kind, i) => {
    const listed = rows.flatMap(([, resource, cells]) =>
      [...(cells?.split('|')[i + 2] ?? '').matchAll(/`(\w+)`/g)].map(([, action]) => `${resource}.${action}`),
    );
    expect(listed.sort(), kind).toEqual([...scopesOf(kind)].sort());
  });
});
