import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { ACTIONS } from '../resources/catalog.ts';
import { scopesOf } from './scopes.ts';

const GUIDE = new URL('../../../docs/guides/scopes.md', import.meta.url);
const COLUMNS = ['organisation-service', 'workspace-service', 'workspace-user'] as const;

const rowsOfGuide = async () => [...(await readFile(GUIDE, 'utf8')).matchAll(/^\| `(\w+)`(.*)\|$/gm)];

it('the guide says what every resource opens that an operation asks a scope of', async () => {
  const asked = new Set(
    [...JSON.stringify(ACTIONS.map(({ scopes }) => scopes)).matchAll(/(\w+)\.\w+/g)].map(([, name]) => name),
  );
  expect(asked).toContain('configs');
  const silent = (await rowsOfGuide()).filter(
    ([, resource, cells]) => asked.has(resource) && cells?.split('|')[1]?.trim() === '',
  );
  expect(silent.map(([, resource]) => resource)).toEqual([]);
});

it('the guide lists every scope of each kind of key, and no other', async () => {
  const rows = await rowsOfGuide();
  COLUMNS.forEach((kind, i) => {
    const listed = rows.flatMap(([, resource, cells]) =>
      [...(cells?.split('|')[i + 2] ?? '').matchAll(/`(\w+)`/g)].map(([, action]) => `${resource}.${action}`),
    );
    expect(listed.sort(), kind).toEqual([...scopesOf(kind)].sort());
  });
});
