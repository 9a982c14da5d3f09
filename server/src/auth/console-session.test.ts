import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { type Seeded, seed } from '../../test/support/console.ts';
import { temporaryTables } from '../../test/support/tables.ts';
import { TestClock } from '../kernel/clock.ts';
import type { Tables } from '../store/ports.ts';
import { ConsoleSessions, createLink, LINK_TTL_MS, linkUrl } from './console-session.ts';
import { SESSION_TTL_MS } from './session-rows.ts';

let tables: Tables;
let clock: TestClock;
let people: Seeded;
let sessions: ConsoleSessions;
let organisations = 0;

beforeAll(async () => {
  tables = await temporaryTables();
});
afterAll(() => tables.close());
beforeEach(async () => {
  clock = new TestClock();
  people = await seed(tables, clock, `Acme ${organisations++}`);
  sessions = on('http://127.0.0.1:8787');
});

const on = (url: string) => new ConsoleSessions({ tables, clock, publicUrl: () => url });
const link = async (user = people.owner) => (await createLink(tables, clock, user)).token;
const rowsOf = (userId: string) =>
  tables.systemRead((tx) => tx.list('console_sessions', { where: { user_id: userId } }));

async function signIn(user = people.owner) {
  const { token, session } = await sessions.exchange(await link(user));
  return { session, cookie: `${sessions.cookieName}=${token}`, token };
}

const refusal = (what: RegExp) => ({ kind: 'unauthenticated', message: expect.stringMatching(what) });

test('a link signs its user in once; the second use is told that it was used and how to get another', async () => {
  const token = await link();
  const { session } = await sessions.exchange(token);
  expect(session.principal).toMatchObject({
    kind: 'user',
    userId: people.owner.id,
    organisationId: people.organisationId,
    workspaceId: null,
    role: 'owner',
  });
  expect(session.principal.scopes.has('configs.create')).toBe(true);
  await expect(sessions.exchange(token)).rejects.toMatchObject(
    refusal(/has been used.*Ask an administrator for a new link.*npm run sluice -- console-link <address>/),
  );
});

test('of twenty simultaneous uses of one link exactly one signs in', async () => {
  const token = await link();
  const results = await Promise.allSettled(Array.from({ length: 20 }, () => on('http://h').exchange(token)));
  expect(results.filter((result) => result.status === 'fulfilled')).toHaveLength(1);
  expect((await rowsOf(people.owner.id)).filter((row) => row.kind === 'session')).toHaveLength(1);
});

test('a link expires after 15 minutes', async () => {
  const early = await link();
  const late = await link();
  await clock.advance(LINK_TTL_MS - 1);
  await expect(sessions.exchange(early)).resolves.toBeDefined();
  await clock.advance(1);
  await expect(sessions.exchange(late)).rejects.toMatchObject(refusal(/has expired/));
});

test('a link that was never made, a damaged one and a session token are refused alike', async () => {
  const token = await link();
  const { token: sessionToken } = await signIn();
  for (const wrong of ['', 'x', `${token}x`, `${token.slice(0, -1)}-`, 'A'.repeat(43), sessionToken, "' OR 1=1 --"]) {
    await expect(sessions.exchange(wrong)).rejects.toMatchObject(refusal(/is not valid/));
  }
  await expect(sessions.exchange(token)).resolves.toBeDefined();
});

test('failed sign-ins of one address are answered 429, and never lock a true link out, from there or elsewhere', async () => {
  for (let i = 0; i < 10; i++) {
    await expect(sessions.exchange('A'.repeat(43), { address: '192.0.2.1' })).rejects.toMatchObject({
      kind: 'unauthenticated',
    });
  }
  for (let i = 0; i < 100; i++) {
    await expect(sessions.exchange('A'.repeat(43), { address: '192.0.2.1' })).rejects.toMatchObject({
      kind: 'throttled',
      retryAfter: expect.any(Number),
    });
  }
  await expect(sessions.exchange(await link(), { address: '192.0.2.1' })).resolves.toBeDefined();
  await expect(sessions.exchange(await link(), { address: '192.0.2.2' })).resolves.toBeDefined();
});

test('the store keeps digests only: neither link nor session token can be read from it', async () => {
  const token = await link();
  const { token: sessionToken } = await sessions.exchange(token);
  const stored = JSON.stringify(await rowsOf(people.owner.id));
  expect(stored).not.toContain(token);
  expect(stored).not.toContain(sessionToken);
  expect(token).toMatch(/^[0-9A-Za-z]{43}$/);
});

test('a session ends after 12 hours and is not prolonged by use', async () => {
  const { cookie } = await signIn();
  await clock.advance(SESSION_TTL_MS - 1);
  expect(await sessions.principalOf(cookie)).not.toBeNull();
  await clock.advance(1);
  expect(await sessions.principalOf(cookie)).toBeNull();
});

test('sign-out ends the session at once here, within a second elsewhere, and is in the change feed', async () => {
  const { session, cookie } = await signIn();
  const elsewhere = on('http://127.0.0.1:8787');
  expect(await elsewhere.principalOf(cookie)).not.toBeNull();
  const seq = await tables.lastChange();
  await sessions.signOut(session);
  expect(await sessions.principalOf(cookie)).toBeNull();
  expect(await tables.changesAfter(seq, 10)).toMatchObject([
    { topic: 'console_sessions', organisationId: people.organisationId },
  ]);
  await clock.advance(1000);
  expect(await elsewhere.principalOf(cookie)).toBeNull();
});

test('a role change, an archived user and a suspended organisation act within a second', async () => {
  const { cookie } = await signIn();
  const change = (patch: object) => tables.systemWrite((tx) => tx.update('users', { id: people.owner.id }, patch));
  await change({ role: 'admin' });
  await clock.advance(1000);
  expect((await sessions.principalOf(cookie))?.role).toBe('admin');
  await change({ status: 'archived' });
  await clock.advance(1000);
  expect(await sessions.principalOf(cookie)).toBeNull();
  await change({ status: 'active' });
  await tables.systemWrite((tx) => tx.update('organisations', { id: people.organisationId }, { status: 'suspended' }));
  await clock.advance(1000);
  await expect(sessions.principalOf(cookie)).rejects.toMatchObject({ kind: 'forbidden' });
});

test('within a second the store is not asked again, unless the change feed names sessions, users or organisations', async () => {
  const { cookie } = await signIn();
  let reads = 0;
  const counting = new ConsoleSessions({
    clock,
    publicUrl: () => 'http://127.0.0.1:8787',
    tables: {
      systemWrite: (run) => tables.systemWrite(run),
      systemRead: (run) => {
        reads += 1;
        return tables.systemRead(run);
      },
    },
  });
  await Promise.all(Array.from({ length: 50 }, () => counting.principalOf(cookie)));
  expect(reads).toBe(1);
  counting.invalidate({ topic: 'configs' });
  await counting.principalOf(cookie);
  expect(reads).toBe(1);
  for (const topic of ['console_sessions', 'users', 'organisations'] as const) {
    const before = reads;
    counting.invalidate({ topic });
    await counting.principalOf(cookie);
    expect(reads).toBe(before + 1);
  }
});

test('a cookie given twice, or of another form, is no sign-in and reaches no store', async () => {
  const { cookie, token } = await signIn();
  let reads = 0;
  const watching = new ConsoleSessions({
    clock,
    publicUrl: () => 'http://127.0.0.1:8787',
    tables: {
      systemWrite: (run) => tables.systemWrite(run),
      systemRead: (run) => {
        reads += 1;
        return tables.systemRead(run);
      },
    },
  });
  for (const header of [
    undefined,
    '',
    'sluice_session',
    'sluice_session=',
    `sluice_session=${token}x`,
    `${cookie}; ${cookie}`,
    `sluice_session="${token}"`,
    `__Host-sluice=${token}`,
    `xsluice_session=${token}`,
  ]) {
    expect(await watching.principalOf(header)).toBeNull();
  }
  expect(reads).toBe(0);
  expect(await watching.principalOf(`a=b; ${cookie}; c=d`)).not.toBeNull();
});

test('over https the cookie is __Host-, Secure, HttpOnly, SameSite=Lax; over http HttpOnly, SameSite=Strict', () => {
  expect(on('https://ai.example').setCookie('t')).toBe(
    '__Host-sluice=t; Path=/; Max-Age=43200; Secure; HttpOnly; SameSite=Lax',
  );
  expect(sessions.setCookie('t')).toBe('sluice_session=t; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict');
  expect(sessions.setCookie(null)).toMatch(/^sluice_session=; Path=\/; Max-Age=0;/);
});

test('a write needs the session’s own CSRF token and the exact origin of SLUICE_PUBLIC_URL', async () => {
  const { session, cookie } = await signIn();
  const other = await signIn();
  const origin = 'http://127.0.0.1:8787';
  const good = { method: 'POST', cookie, origin, csrf: session.csrf };
  expect((await sessions.authenticate(good)).principal.userId).toBe(people.owner.id);
  const forbidden = { kind: 'forbidden' };
  for (const csrf of [undefined, '', 'x', other.session.csrf, `${session.csrf}, ${session.csrf}`]) {
    await expect(sessions.authenticate({ ...good, csrf })).rejects.toMatchObject(forbidden);
  }
  for (const wrong of [
    undefined,
    'null',
    '',
    'http://127.0.0.1:8788',
    'https://127.0.0.1:8787',
    'http://127.0.0.1:8787.attacker.example',
    'http://127.0.0.1:8787/',
    'http://localhost:8787',
    `${origin}, ${origin}`,
  ]) {
    await expect(sessions.authenticate({ ...good, origin: wrong })).rejects.toMatchObject(forbidden);
  }
  await expect(sessions.authenticate({ ...good, cookie: undefined })).rejects.toMatchObject({
    kind: 'unauthenticated',
  });
  const read = { method: 'GET', cookie, origin: undefined, csrf: undefined };
  await expect(sessions.authenticate(read)).resolves.toBeDefined();
});

test('an owner works in every workspace of the organisation, a member only in those joined, nobody in a foreign one', async () => {
  const foreign = await seed(tables, clock, `Other ${organisations++}`);
  const owner = (await signIn()).session.principal;
  const member = (await signIn(people.member)).session.principal;
  const [first, second] = people.workspaces;
  expect((await sessions.describe(owner)).workspaces.map((w) => w.id)).toEqual([first, second]);
  expect((await sessions.describe(member)).workspaces.map((w) => w.id)).toEqual([second]);

  expect((await sessions.inWorkspace(owner, first)).workspaceId).toBe(first);
  const joined = await sessions.inWorkspace(member, second);
  expect(joined.workspaceId).toBe(second);
  expect(joined.scopes.has('completions.write')).toBe(true);
  expect(joined.scopes.has('configs.create')).toBe(false);
  expect(member.scopes.size).toBe(0);

  const missing = await sessions.inWorkspace(owner, '00000000-0000-7000-8000-000000000000').catch((error) => error);
  expect(missing).toMatchObject({ kind: 'unknown_reference' });
  for (const [principal, workspace] of [
    [member, first],
    [owner, foreign.workspaces[0]],
    [member, foreign.workspaces[1]],
  ] as const) {
    await expect(sessions.inWorkspace(principal, workspace)).rejects.toMatchObject({
      kind: 'unknown_reference',
      message: missing.message,
    });
  }
});

test('links and sessions that ended long ago are removed', async () => {
  await link();
  await signIn();
  await clock.advance(25 * 3_600_000);
  await link();
  expect(await rowsOf(people.owner.id)).toHaveLength(1);
});

test('the token of a link stands in the fragment, which is never sent to a server', () => {
  expect(linkUrl('http://127.0.0.1:8787/', 'abc')).toBe('http://127.0.0.1:8787/console/sign-in#abc');
});
