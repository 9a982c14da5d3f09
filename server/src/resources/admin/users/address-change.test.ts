/** A user's own address, on a whole server with a real mail server: it changes when the link in the mail is opened. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type MailingServer, startMailingServer } from '../../../../test/support/mailing-server.ts';
import { startServer } from '../../../../test/support/server.ts';

const PUBLIC_URL = 'https://sluice.example';
let server: MailingServer;

beforeAll(async () => {
  server = await startMailingServer(PUBLIC_URL);
});
afterAll(async () => {
  await server?.stop();
});

type Headers = Record<string, string>;
const send: MailingServer['send'] = (...request) => server.send(...request);
const useLink = (link: unknown, on = server.url) =>
  send('POST', '/console/api/session', { token: String(link).split('#')[1] }, {}, on);
async function signIn(id: string, on: Pick<MailingServer, 'admin' | 'url'> = server): Promise<Headers> {
  const made = await on.admin('POST', `/admin/users/${id}/sign-in-link`);
  const answer = await useLink(made.body.sign_in_link, on.url);
  return { cookie: answer.cookie, 'x-csrf-token': (JSON.parse(answer.text) as { csrf_token: string }).csrf_token };
}
let people = 0;
async function member(): Promise<{ id: string; email: string; headers: Headers }> {
  const email = `person${people++}@x.example`;
  const made = await server.admin('POST', '/admin/users/invites', { email, role: 'member', workspaces: [] });
  const token = String(made.body.invite_link).split('#')[1];
  const names = { first_name: 'Ada', last_name: 'Lovelace' };
  const joined = await send('POST', '/console/api/invite/acceptance', { token, ...names });
  const { session } = JSON.parse(joined.text) as { session: { user: { id: string } } };
  return { id: session.user.id, email, headers: await signIn(session.user.id) };
}
const emailOf = async (id: string) => (await server.admin('GET', `/admin/users/${id}`)).body.email;
const put = (id: string, body: unknown, headers: Headers, on = server.url) =>
  send('PUT', `/v1/admin/users/${id}`, body, headers, on);
/** The token of the newest link that was mailed to this address, once so many mails are there. */
async function mailed(email: string, count = 1): Promise<string> {
  return tokenIn((await server.mailed(email, count)).at(-1));
}
const tokenIn = (text = '') => /https:\/\/sluice\.example\/console\/email#(\S+)/.exec(text)?.[1] ?? '';
const confirm = (token: string, headers: Headers) => send('POST', '/console/api/email', { token }, headers);

it('a member changes the own address and name without any scope, and nothing else', async () => {
  const ada = await member();
  expect((await put(ada.id, { first_name: 'Augusta' }, ada.headers)).status).toBe(200);
  expect((await put(ada.id, { email: 'Ada@new.example' }, ada.headers)).status).toBe(200);
  expect(await emailOf(ada.id)).toBe(ada.email);
  const link = await server.admin('POST', `/admin/users/${ada.id}/sign-in-link`);
  const elsewhere = await signIn(ada.id);
  const token = await mailed('ada@new.example');
  const done = await confirm(token, ada.headers);
  expect([done.status, JSON.parse(done.text)]).toEqual([200, { object: 'console_email', email: 'ada@new.example' }]);
  expect(await emailOf(ada.id)).toBe('ada@new.example');
  // This browser stays signed in; others, and links that were not used, have ended.
  expect((await send('GET', '/console/api/session', undefined, ada.headers)).status).toBe(200);
  expect((await send('GET', '/console/api/session', undefined, elsewhere)).status).toBe(401);
  expect((await useLink(link.body.sign_in_link)).status).toBe(401);
  expect((await server.mailed(ada.email))[0]).toContain('ada@new.example');
  expect((await confirm(token, ada.headers)).status).toBe(409);

  const range = 'start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z';
  const { body } = await server.admin('GET', `/audit-logs?${range}`);
  const row = (body.records as Headers[]).find(({ uri }) => uri === '/console/api/email');
  expect(row).toMatchObject({ resource_type: 'users', resource_id: ada.id, user_id: ada.id });
  expect([row?.before, row?.after]).toEqual([`{"email":"${ada.email}"}`, '{"email":"ada@new.example"}']);
  expect(JSON.stringify(body)).not.toContain(token);

  for (const more of [{ role: 'admin' }, { email: 'b@new.example', role: 'admin' }, { workspaces: [] }, {}]) {
    expect((await put(ada.id, more, ada.headers)).status).toBe(403);
  }
});

it('no user and no key changes the address of another user', async () => {
  const [ada, eve] = [await member(), await member()];
  expect((await put(ada.id, { email: 'c@new.example' }, eve.headers)).status).toBe(403);
  expect((await put(ada.id, { email: 'c@new.example' }, await signIn(server.first.user_id))).status).toBe(403);
  const byKey = await server.admin('PUT', `/admin/users/${ada.id}`, { email: 'c@new.example' });
  expect([byKey.status, JSON.stringify(byKey.body)]).toEqual([403, expect.stringContaining('user-email')]);
  expect((await put(ada.id, { email: 'd@new.example' }, ada.headers)).status).toBe(200);
  const token = await mailed('d@new.example');
  expect((await confirm(token, eve.headers)).status).toBe(403);
  expect((await send('POST', '/console/api/email', { token })).status).toBe(401);
  expect(
    (
      await confirm(
        token.replace(/..$/, (last) => (last === 'AA' ? 'BA' : 'AA')),
        ada.headers,
      )
    ).status,
  ).toBe(400);
  expect(await emailOf(ada.id)).toBe(ada.email);
});

it('a newer request ends the link of the one before, and so does any other change', async () => {
  const ada = await member();
  await put(ada.id, { email: 'e@new.example' }, ada.headers);
  const first = await mailed('e@new.example');
  await put(ada.id, { email: 'f@new.example' }, ada.headers);
  const second = await mailed('f@new.example');
  expect((await confirm(first, ada.headers)).status).toBe(409);
  await put(ada.id, { email: ada.email }, ada.headers);
  expect((await confirm(second, ada.headers)).status).toBe(409);
  expect(await emailOf(ada.id)).toBe(ada.email);
});

it('of two users who want one address at the same moment one gets it', async () => {
  const [ada, eve] = [await member(), await member()];
  expect((await put(ada.id, { email: eve.email }, ada.headers)).status).toBe(409);
  for (const one of [ada, eve]) expect((await put(one.id, { email: 'g@new.example' }, one.headers)).status).toBe(200);
  const tokens = (await server.mailed('g@new.example', 2)).map(tokenIn);
  const userOf = (token: string) => JSON.parse(Buffer.from(token.split('.')[0] ?? '', 'base64url').toString()).user_id;
  const answers = await Promise.all(
    [ada, eve].map((one) => confirm(tokens.find((token) => userOf(token) === one.id) ?? '', one.headers)),
  );
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
});

it('the address of an open invite is taken, until the invite is cancelled', async () => {
  const ada = await member();
  const email = 'invited@x.example';
  const { body } = await server.admin('POST', '/admin/users/invites', { email, role: 'member', workspaces: [] });
  const refused = await put(ada.id, { email }, ada.headers);
  expect([refused.status, refused.text]).toEqual([409, expect.stringContaining('Cancel the invite first.')]);
  await server.admin('DELETE', `/admin/users/invites/${body.id}`);
  expect((await put(ada.id, { email }, ada.headers)).status).toBe(200);
});

it('five mails a quarter of an hour are sent for one user', async () => {
  const ada = await member();
  const statuses: number[] = [];
  for (let i = 0; i < 6; i++) statuses.push((await put(ada.id, { email: `h${i}@new.example` }, ada.headers)).status);
  expect(statuses).toEqual([200, 200, 200, 200, 200, 429]);
});

it('without a mail server the answer names the command', async () => {
  const plain = await startServer({ SLUICE_PUBLIC_URL: PUBLIC_URL });
  try {
    const headers = await signIn(plain.first.user_id, plain);
    const answer = await put(plain.first.user_id, { email: 'ada@x.example' }, headers, plain.url);
    expect(answer.status).toBe(400);
    expect(answer.text).toContain('npm run sluice -- user-email owner@localhost.invalid ada@x.example');
  } finally {
    await plain.stop();
  }
});
