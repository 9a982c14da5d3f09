/** A server behind a trusted proxy: limits and audit rows are of its clients, not of the proxy. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';
import { consoleLink } from '../cli/console-link.ts';

let server: TestServer;

beforeAll(async () => {
  server = await startServer({ SLUICE_TRUSTED_PROXIES: '127.0.0.0/8' });
});
afterAll(() => server?.stop());

const signIn = (token: string, client: string) =>
  fetch(`${server.url}/console/api/session`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', origin: server.url, 'x-forwarded-for': client },
    body: JSON.stringify({ token }),
  });

async function link(): Promise<string> {
  const lines: string[] = [];
  const flags = [`--data-dir=${server.dataDir}`, `--public-url=${server.url}`];
  await consoleLink(flags, { out: (text) => lines.push(text), err: () => undefined });
  return /\/console\/sign-in#([0-9A-Za-z]{43})$/m.exec(lines.join(''))?.[1] ?? '';
}

it('bad links of one client are 429 for that client, and a true link works from anywhere', async () => {
  const wrong = 'A'.repeat(43);
  for (let n = 0; n < 10; n++) expect((await signIn(wrong, '198.51.100.1')).status).toBe(401);
  expect((await signIn(wrong, '198.51.100.1')).status).toBe(429);
  // What a client writes itself stands left of what the proxy saw.
  expect((await signIn(wrong, '203.0.113.9, 198.51.100.1')).status).toBe(429);
  expect((await signIn(wrong, '198.51.100.2')).status).toBe(401);
  expect((await signIn(await link(), '198.51.100.3')).status).toBe(200);
  expect((await signIn(await link(), '198.51.100.1')).status).toBe(200);
});

it('an audit row has the address of the client', async () => {
  const response = await fetch(`${server.url}/v1/configs`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'x-gateway-api-key': server.first.admin_api_key,
      'x-forwarded-for': '203.0.113.9, 198.51.100.44',
    },
    body: JSON.stringify({ name: 'c', config: { retry: { attempts: 1 } }, workspace_id: server.first.workspace_id }),
  });
  expect(response.status).toBe(200);
  const { body } = await server.admin(
    'GET',
    '/audit-logs?start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z',
  );
  const rows = body.records as { client_ip: string; uri: string }[];
  expect(rows.find(({ uri }) => uri.endsWith('/configs'))?.client_ip).toBe('198.51.100.44');
});
