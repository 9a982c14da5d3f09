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
const addressOf = async () => (await server.admin('GET', `/admin/users/${server.first.user_id}`)).body.email;

it('changes the address, in any case, and says whose it is', async () => {
  expect(await run('Owner@localhost.invalid', 'Ada@x.example')).toContain('is ada@x.example now.');
  expect(await addressOf()).toBe('ada@x.example');
});

it('refuses what is no address, an unknown user, and the address of another user', async () => {
  await expect(run('ada@x.example', 'nothing')).rejects.toThrow('Give two e-mail addresses');
  await expect(run('nobody@x.example', 'new@x.example')).rejects.toThrow('No user has the address');
  await expect(run('ada@x.example', 'ada@x.example')).rejects.toThrow('has the address ada@x.example already');
  expect(await addressOf()).toBe('ada@x.example');
});
