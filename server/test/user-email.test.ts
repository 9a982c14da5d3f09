/** `sluice user-email now new`, beside a running server: how the owner of the first run gets a real address. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { userEmailCommand } from '../src/cli/user-email.ts';
import { startServer, type TestServer } from './support/server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server?.stop());

async function run(...args: string[]): Promise<string> {
  const lines: string[] = [];
  await userEmailCommand([...args, `--data-dir=${server.dataDir}`], {
    out: (text) => lines.push(text),
    err: () => undefined,
  });
  return lines.join('');
}
const signIn = async (link: string) => {
  const init = { method: 'POST', headers: { 'content-type': 'application/json', origin: server.url } };
  const body = JSON.stringify({ token: link.split('#')[1] });
  return (await fetch(`${server.url}/console/api/session`, { ...init, body })).status;
};
const addressOf = async () => (await server.admin('GET', `/admin/users/${server.first.user_id}`)).body.email;

it('changes the address, in any case, and says whose it is', async () => {
  expect(await run('Owner@localhost.invalid', 'Ada@x.example')).toContain('is ada@x.example now.');
  expect(await addressOf()).toBe('ada@x.example');
});

it('ends the sign-in links that were made before', async () => {
  expect(await signIn(server.first.console_url ?? '')).toBe(401);
});

it('leaves an audit row that names both addresses', async () => {
  const { body } = await server.admin(
    'GET',
    '/audit-logs?start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z',
  );
  const rows = body.records as { resource_type: string; resource_id: string; before: string; after: string }[];
  const row = rows.find(({ resource_type }) => resource_type === 'users');
  expect(row).toMatchObject({ resource_id: server.first.user_id, action: 'update', actor: 'system' });
  expect([row?.before, row?.after].join()).toBe('{"email":"owner@localhost.invalid"},{"email":"ada@x.example"}');
});

it('refuses what is no address, an unknown user, and the address of another user', async () => {
  await expect(run('ada@x.example', 'nothing')).rejects.toThrow('Give two e-mail addresses');
  await expect(run('nobody@x.example', 'new@x.example')).rejects.toThrow('No user has the address');
  await expect(run('ada@x.example', 'ada@x.example')).rejects.toThrow('has the address ada@x.example already');
  expect(await addressOf()).toBe('ada@x.example');
});
