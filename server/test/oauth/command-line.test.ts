/** `sluice login`, `whoami` and `logout` against a whole server. */
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { login, logout, whoami } from '../../src/cli/sign-in.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { type Browser, browserOf } from '../support/oauth.ts';
import { startServer, type TestServer } from '../support/server.ts';

let server: TestServer;
let browser: Browser;
let base = '';
let folder = '';
beforeAll(async () => {
  server = await startServer();
  browser = await browserOf(server);
  base = await mkdtemp(join(tmpdir(), 'sluice-login-'));
  folder = join(base, 'sluice');
});
afterAll(async () => {
  await server.stop();
  await rm(base, { recursive: true, force: true });
});

/** A command line whose user has answered in the browser when it asks for the first time. */
async function signIn(approved: boolean, args = ['--server', server.url]): Promise<string> {
  let said = '';
  const decided = Promise.withResolvers<void>();
  const clock: Clock = {
    ...systemClock,
    after: (_ms, run) => {
      void decided.promise.then(run);
      return () => {};
    },
  };
  const out = (more: string) => {
    said += more;
    const user_code = /\b[A-Z]{4}-[A-Z]{4}\b/.exec(more)?.[0];
    if (user_code !== undefined)
      void browser.call('POST', '/console/api/device/decision', { user_code, approved }).then(() => decided.resolve());
  };
  await login(args, { out, err: () => {} }, { folder, clock });
  return said;
}

const parts = () => ({ folder, clock: systemClock });
const run = async (command: typeof whoami) => {
  let said = '';
  const note = (more: string) => {
    said += more;
  };
  await command([], { out: note, err: note }, parts());
  return said;
};

it('login shows a code and a page, and keeps tokens in a file that only its owner reads; whoami says who it is', async () => {
  const said = await signIn(true);
  expect(said).toContain(`${server.url}/console/device#`);
  expect(said).toContain('as owner@localhost.invalid of My organisation');
  expect(((await stat(join(folder, 'credentials.json'))).mode & 0o777).toString(8)).toBe('600');
  expect(((await stat(folder)).mode & 0o777).toString(8)).toBe('700');
  expect(said).not.toContain('slc_');
  expect(await run(whoami)).toContain('Workspaces: Default');
});

it('whoami renews a token that has ended, and keeps the next pair', async () => {
  const file = join(folder, 'credentials.json');
  const before = JSON.parse(await readFile(file, 'utf8'));
  await writeFile(file, JSON.stringify({ ...before, auth_token: 'ended' }));
  expect(await run(whoami)).toContain('owner@localhost.invalid');
  const after = JSON.parse(await readFile(file, 'utf8'));
  expect(after.refresh_token).not.toBe(before.refresh_token);
  expect(await run(whoami)).toContain('owner@localhost.invalid');
});

it('logout ends the session on the server and forgets the tokens', async () => {
  const { auth_token } = JSON.parse(await readFile(join(folder, 'credentials.json'), 'utf8'));
  expect(await run(logout)).toBe(`Signed out of ${server.url}.\n`);
  const self = await fetch(`${server.url}/v1/auth/self`, { headers: { authorization: `Bearer ${auth_token}` } });
  expect(self.status).toBe(401);
  await expect(run(whoami)).rejects.toThrow('You are not signed in');
});

it('a refusal in the browser keeps nothing, and tokens go to https or this machine only', async () => {
  await expect(signIn(false)).rejects.toThrow('refused in the browser');
  await expect(run(whoami)).rejects.toThrow('You are not signed in');
  for (const address of ['http://sluice.example', 'ftp://127.0.0.1', 'https://sluice.example/console', 'nonsense'])
    await expect(signIn(true, ['--server', address])).rejects.toThrow('--server needs an https address');
  await expect(signIn(true, ['--server', 'http://127.0.0.1:1'])).rejects.toThrow('cannot be reached');
});
