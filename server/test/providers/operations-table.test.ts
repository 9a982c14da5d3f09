import { readFile, writeFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { operationsTable } from './operations-table.ts';

const GUIDE = new URL('../../../docs/guides/providers.md', import.meta.url);
const BEGIN = '<!-- operations: made by `npm run provider-table` -->\n\n';
const END = '\n\n<!-- end of operations -->';

it('the guide says which provider serves which operation: `npm run provider-table` writes it', async () => {
  const text = await readFile(GUIDE, 'utf8');
  const from = text.indexOf(BEGIN) + BEGIN.length;
  const to = text.indexOf(END);
  expect(from).toBeGreaterThan(BEGIN.length);
  expect(to).toBeGreaterThan(from);
  const table = operationsTable();
  if (process.env.SLUICE_WRITE_PROVIDER_TABLE === '1') {
    await writeFile(GUIDE, text.slice(0, from) + table + text.slice(to));
  } else {
    expect(text.slice(from, to)).toBe(table);
  }
});
