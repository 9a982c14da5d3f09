/** `sluice console-link [e-mail]`, beside a running server: the way in for users who have no other yet. */
import { access, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';
import { consoleLink } from './console-link.ts';

let server: TestServer;

beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server?.stop());

async function printed(...args: string[]): Promise<string> {
  const lines: string[] = [];
  const flags = [`--data-dir=${server.dataDir}`, `--public-url=${server.url}`];
  await consoleLink([...args, ...flags], { out: (text) => lines.push(text), err: () => undefined });
  return lines.join('');
}

const post = (path: string, body: object) =>
  fetch(`${server.url}/console/api/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', origin: server.url },
    body: JSON.stringify(body),
  });

/** Who the link in this text signs in. */
async function signsIn(text: string): Promise<{ email: string; organisation: string }> {
  const token = /\/console\/sign-in#([0-9A-Za-z]{43})$/m.exec(text)?.[1];
  const answer = await post('session', { token });
  const { user, organisation } = (await answer.json()) as { user: { email: string }; organisation: { name: string } };
  return { email: user.email, organisation: organisation.name };
}

/** Invites an address with this key and accepts. */
async function joins(email: string, key?: string): Promise<void> {
  const made = await server.admin('POST', '/admin/users/invites', { email, role: 'member', workspaces: [] }, key);
  const token = String(made.body.invite_link).split('#')[1];
  const accepted = await post('invite/acceptance', { token, first_name: 'Ada', last_name: 'Lovelace' });
  expect(accepted.status).toBe(200);
}

it('without an address signs the first owner in', async () => {
  expect(await signsIn(await printed())).toMatchObject({ email: 'owner@localhost.invalid' });
});

it('with an address, in any case, signs this user in', async () => {
  await joins('ada@x.example');
  const text = await printed('Ada@X.example');
  expect(text).toContain('The link works once, for 15 minutes.');
  expect(await signsIn(text)).toMatchObject({ email: 'ada@x.example' });
});

it('an address that two organisations know gets a link for each, with its name', async () => {
  const owner = { email: 'eve@x.example', first_name: 'Eve', last_name: 'Other' };
  const other = await server.admin(
    'POST',
    '/operator/organisations',
    { name: 'Second', owner },
    server.first.operator_api_key,
  );
  await joins('both@x.example');
  await joins('both@x.example', String(other.body.admin_api_key));
  const parts = (await printed('both@x.example')).split(/^(?=\S.*:\n)/m);
  expect(parts.map((part) => part.split('\n')[0])).toEqual(['My organisation:', 'Second:']);
  expect(await Promise.all(parts.map(signsIn))).toEqual([
    { email: 'both@x.example', organisation: 'My organisation' },
    { email: 'both@x.example', organisation: 'Second' },
  ]);
});

it('an address of nobody, or of somebody who was removed, says so', async () => {
  await expect(printed('nobody@x.example')).rejects.toThrow('No user has the address nobody@x.example');
  const { body } = await server.admin('GET', '/admin/users?email=ada%40x.example');
  const [user] = body.data as { id: string }[];
  expect((await server.admin('DELETE', `/admin/users/${user?.id}`)).status).toBe(200);
  await expect(printed('ada@x.example')).rejects.toThrow('No user has the address');
});

it('in a directory without a store says so, and makes none', async () => {
  const dir = join(server.dataDir, 'elsewhere');
  const quiet = { out: () => undefined, err: () => undefined };
  await expect(consoleLink([`--data-dir=${dir}`], quiet)).rejects.toThrow(`There is no ${join(dir, 'control.db')}`);
  await expect(access(dir)).rejects.toThrow('ENOENT');
});

it('leads to the server that runs, whatever its port', async () => {
  const lines: string[] = [];
  const output = { out: (text: string) => lines.push(text), err: () => undefined };
  await writeFile(join(server.dataDir, 'server-url'), 'http://127.0.0.1:4321\n');
  await consoleLink([`--data-dir=${server.dataDir}`], output);
  expect(lines[0]).toMatch(/^http:\/\/127\.0\.0\.1:4321\/console\/sign-in#/);
  await rm(join(server.dataDir, 'server-url'));
});
