/** The matrix on PostgreSQL, with one caller of each reach; all callers are in `administration.long.test.ts`. */
import { expect, it } from 'vitest';
import { examine } from './examine.ts';
import { startMatrix } from './harness.ts';
import { ROWS, readRoutes } from './routes.ts';

const CALLERS = new Set(['organisation-service key', 'workspace-service key', 'signed-in member, workspace manager']);

it('foreign and missing are one answer, nothing of another tenant is read, and nothing of it changes', async () => {
  const matrix = await startMatrix('postgres');
  try {
    const callers = matrix.people.callers.filter(({ name }) => CALLERS.has(name));
    const routes = readRoutes(ROWS).routes.filter(({ row }) => row.auth !== 'operator');
    const { found } = await examine(matrix, callers, routes);
    expect(found.slice(0, 12).join('\n')).toBe('');
    expect(callers.length).toBe(CALLERS.size);
  } finally {
    await matrix.close();
  }
}, 240_000);
