import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Seeded, seed } from '../../test/support/console.ts';
import { temporaryTables } from '../../test/support/tables.ts';
import { TestClock } from '../kernel/clock.ts';
import type { Tables } from '../store/ports.ts';
import type { Vault } from '../store/vault.ts';
import { ConsoleSessions, createLink } from './console-session.ts';
import { type EndedSessions, endSessions, type NewSession, SESSION_TTL_MS } from './session-rows.ts';

const HOUR = 3_600_000;
/** Seals by turning round, so that what is stored is not what was given. */
const vault: Pick<Vault, 'seal'> = {
  seal: async (_tenant, { row }, value) => `slc1.${row}.${[...value.reveal()].reverse().join('')}`,
};

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
  sessions = new ConsoleSessions({ tables, clock, publicUrl: () => 'http://127.0.0.1:8787', vault });
});

const cookieOf = (token: string) => `sluice_session=${token}`;
const alive = async (token: string) => (await sessions.find(cookieOf(token))) !== null;
const limit = (seconds: number) =>
  tables.systemWrite((tx) =>
    tx.update(
      'organisations',
      { id: people.organisationId },
      {
        settings: { block_inline_config: false, session_settings: { max_session_ttl: seconds } },
      },
    ),
  );
const create = (own: Partial<NewSession> = {}, cookie?: string) =>
  tables.systemWrite((tx) =>
    sessions.createSession(
      tx,
      { organisationId: people.organisationId, userId: people.owner.id, ...own },
      { cookie, userAgent: 'Browser 1' },
    ),
  );
const end = async (by: EndedSessions) => {
  const count = await tables.systemWrite((tx) => endSessions(tx, by));
  sessions.invalidate();
  return count;
};

test('a sign-in gets a new session whatever cookie the browser came with, and ends the one before', async () => {
  const planted = 'A'.repeat(43);
  const first = await create({}, cookieOf(planted));
  expect(first.token).not.toBe(planted);
  expect(await alive(planted)).toBe(false);
  const second = await create({}, cookieOf(first.token));
  sessions.invalidate();
  expect([await alive(first.token), await alive(second.token)]).toEqual([false, true]);
  const { token } = await createLink(tables, clock, people.owner);
  const third = await sessions.exchange(token, { cookie: cookieOf(second.token) });
  expect([third.token === second.token, await alive(second.token), await alive(third.token)]).toEqual([
    false,
    false,
    true,
  ]);
});

test('a session over a session of another organisation ends that one, too', async () => {
  const other = await seed(tables, clock, `Other ${organisations++}`);
  const there = await create({ organisationId: other.organisationId, userId: other.owner.id });
  await create({}, cookieOf(there.token));
  sessions.invalidate();
  expect(await alive(there.token)).toBe(false);
});

describe('a session lasts', () => {
  test('twelve hours from its making, however recent or old the proof is, where there is no limit', async () => {
    const { expiresAt, token } = await create({ authTime: clock.now() - 48 * HOUR });
    expect(expiresAt).toBe(clock.now() + SESSION_TTL_MS);
    await clock.advance(SESSION_TTL_MS - 1);
    expect(await alive(token)).toBe(true);
    await clock.advance(1);
    expect(await alive(token)).toBe(false);
  });

  test('by max_session_ttl from when the user proved who they are, not from when the session was made', async () => {
    await limit(3_600);
    const { expiresAt, token } = await create({ authTime: clock.now() - HOUR / 2 });
    expect(expiresAt).toBe(clock.now() + HOUR / 2);
    await clock.advance(HOUR / 2 - 1);
    expect(await alive(token)).toBe(true);
    await clock.advance(1);
    expect(await alive(token)).toBe(false);
  });

  test('no longer than a limit that was lowered since', async () => {
    const { token } = await create({ authTime: clock.now() - 901_000 });
    expect(await alive(token)).toBe(true);
    await limit(900);
    sessions.invalidate({ topic: 'organisations' });
    expect(await alive(token)).toBe(false);
  });

  test('not at all when the proof is older than the limit: the sign-in is refused', async () => {
    await limit(900);
    const refusal = { kind: 'unauthenticated', message: expect.stringContaining('too long ago') };
    await expect(create({ authTime: clock.now() - 900_000 })).rejects.toMatchObject(refusal);
  });

  test('as if proved now when the provider’s clock is ahead', async () => {
    await limit(900);
    expect((await create({ authTime: clock.now() + HOUR })).expiresAt).toBe(clock.now() + 900_000);
  });
});

test.each([
  ['one session', { session: 'its digest' }, [0]],
  ['a user', { userId: 'owner' }, [0, 1, 2]],
  ['a client', { clientId: 'c1' }, [0, 1]],
  ['a subject at an issuer', { issuer: 'https://a', subject: 's1' }, [0]],
  ['a session of an issuer', { issuer: 'https://a', sid: 'x2' }, [1]],
  ['a session of that name at another issuer', { issuer: 'https://b', sid: 'x2' }, []],
  ['another organisation', { organisationId: 'other', clientId: 'c1' }, []],
] as const)('ends the sessions of %s and no other', async (_title, by, ended) => {
  const made = [
    await create({ clientId: 'c1', issuer: 'https://a', subject: 's1', sid: 'x1' }),
    await create({ clientId: 'c1', issuer: 'https://a', subject: 's2', sid: 'x2' }),
    await create({ clientId: 'c2', issuer: 'https://b', subject: 's1', sid: 'x1' }),
    await create({ userId: people.member.id, clientId: 'c3', issuer: 'https://c', subject: 's1', sid: 'x1' }),
  ];
  for (const { token } of made) expect(await alive(token)).toBe(true);
  const named = {
    organisationId: people.organisationId,
    ...by,
    ...('session' in by && { session: made[0]?.digest ?? '' }),
    ...('userId' in by && { userId: people.owner.id }),
  };
  expect(await end(named)).toBe(ended.length);
  const dead: number[] = [];
  for (const [index, { token }] of made.entries()) if (!(await alive(token))) dead.push(index);
  expect(dead).toEqual(ended);
});

test('what is stored of a session tells where it came from, and the ID token is sealed', async () => {
  const long = 'x'.repeat(16_385);
  const own = { clientId: 'c1', issuer: 'https://a', subject: 's1', sid: 'x1' };
  const { digest, token } = await create({ ...own, idToken: 'header.payload.signature' });
  const row = await tables.systemRead((tx) => tx.find('console_sessions', { digest }));
  expect(row).toMatchObject({
    client_id: 'c1',
    auth_time: clock.now(),
    sid: 'x1',
    user_agent: 'Browser 1',
    id_token: expect.stringMatching(/^slc1\./),
  });
  expect(JSON.stringify(row)).not.toContain('payload');
  expect(JSON.stringify(row)).not.toContain(token);
  const { digest: other } = await create({ idToken: long });
  const without = await tables.systemRead((tx) => tx.find('console_sessions', { digest: other }));
  expect(without?.id_token).toBeNull();
});
