/** A path that ends in a slash where a name belongs: it names nothing, on every route of the server. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';
import { CONSOLE_ROUTES } from '../admin/console.ts';
import { pathsOf } from '../admin/route.ts';
import { OAUTH_ROUTES } from '../oauth/routes.ts';
import { OPERATIONS } from '../operations/operation.ts';
import { ACTIONS } from '../resources/catalog.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server?.stop());

const send = async (method: string, path: string) => {
  const headers = { 'x-gateway-api-key': server.first.admin_api_key };
  const answer = await fetch(server.url + path, { method, headers });
  return { status: answer.status, text: await answer.text() };
};

describe('a path without its last name', () => {
  const routes = [
    ...ACTIONS.flatMap((row) => pathsOf(row).map((path) => [row.method, path] as const)),
    ...Object.values(OPERATIONS).map((row) => [row.method === 'ANY' ? 'GET' : row.method, `/v1${row.path}`] as const),
    ...CONSOLE_ROUTES.map(([method, path]) => [method, path] as const),
    ...OAUTH_ROUTES.filter(([method]) => method !== 'OPTIONS'),
    ['PUT', '/v1/operator/organisations/:organisationId'] as const,
  ].filter(([, path]) => /\/:\w+$/.test(path));

  it('is tried on every route that ends in one', () => expect(routes.length).toBeGreaterThan(100));

  it.each(routes)('is 404 and no object: %s %s', async (method, route) => {
    const path = route.replace(/:\w+$/, '').replace(/:\w+/g, 'x');
    const { status, text } = await send(method, path);
    expect([status, text], text).toEqual([404, expect.stringContaining(`Unknown path ${path}`)]);
  });

  it.each(['providers', 'configs', 'models', 'files', 'policies/usage-limits'])(
    'names the list of %s',
    async (list) => {
      expect((await send('GET', `/v1/${list}/?limit=1`)).text).toContain(`Did you mean GET /v1/${list}?`);
    },
  );
});
