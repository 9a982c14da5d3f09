/** `sluice user-email now new`, beside a running server: how the owner of the first run gets a real address. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { eventually } from '../../../../test/support/budgets.ts';
import { startServer, type TestServer } from '../../../../test/support/server.ts';
import { consoleLink } from '../../../cli/console-link.ts';
import { userEmailCommand } from '../../../cli/user-email.ts';

let server: TestServer;
/** A link nobody has used before the address changes, and the cookie of a sign-in from before. */
let link: string;
let cookie: string;
beforeAll(async () => {
  server = await startServer();
  const signedIn = await signIn(await newLink());
  expect(signedIn.status).toBe(200);
  cookie = signedIn.headers.get('set-cookie')?.split(';')[0] ?? '';
  expect(await session()).toBe(200);
  link = await newLink();
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
/** By the command: the first run leaves no link where the console is not built. */
async function newLink(): Promise<string> {
  const lines: string[] = [];
  await consoleLink([`--data-dir=${server.dataDir}`], { out: (text) => lines.push(text), err: () => undefined });
  return lines[0]?.trim() ?? '';
}
const signIn = (address: string) =>
  fetch(`${server.url}/console/api/session`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', origin: server.url },
    body: JSON.stringify({ token: address.split('#')[1] }),
  });
const session = async () => (await fetch(`${server.url}/console/api/session`, { headers: { cookie } })).status;
const addressOf = async () => (await server.admin('GET', `/admin/users/${server.first.user_id}`)).body.email;

it('changes the address, in any case, and says whose it is', async () => {
  expect(await run('Owner@localhost.invalid', 'Ada@x.example')).toContain('is ada@x.example now.');
  expect(await addressOf()).toBe('ada@x.example');
});

it('ends the sign-in links that were made before, and the sign-ins', async () => {
  expect((await signIn(link)).status).toBe(401);
  await eventually(session, (status) => status === 401);
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
