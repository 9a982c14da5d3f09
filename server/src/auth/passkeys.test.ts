import { afterAll, beforeAll, expect, test } from 'vitest';
import { plainVault } from '../../test/support/admin.ts';
import { type Seeded, seed } from '../../test/support/console.ts';
import { temporaryTables } from '../../test/support/tables.ts';
import { TestClock } from '../kernel/clock.ts';
import type { Tables } from '../store/ports.ts';
import { ConsoleSessions, createLink } from './console-session.ts';
import { type PasskeyDeps, registrationOptions, signInOptions, signInWithPasskey } from './passkeys.ts';

let tables: Tables;
let clock: TestClock;
let people: Seeded;

beforeAll(async () => {
  tables = await temporaryTables();
  clock = new TestClock();
  people = await seed(tables, clock);
});
afterAll(() => tables.close());

function depsOf(publicUrl: string): PasskeyDeps & { readonly sessions: ConsoleSessions } {
  const sessions = new ConsoleSessions({ tables, clock, publicUrl: () => publicUrl });
  return { tables, vault: plainVault, clock, sessions, publicUrl: () => publicUrl };
}

/** Answers to a challenge as a passkey that is not registered. */
function answer(deps: PasskeyDeps, challenge: string, browser: string | null) {
  const clientDataJSON = Buffer.from(JSON.stringify({ type: 'webauthn.get', challenge })).toString('base64url');
  const response = {
    id: 'unknown',
    rawId: 'unknown',
    type: 'public-key',
    response: { clientDataJSON, authenticatorData: '', signature: '' },
    clientExtensionResults: {},
  } as const;
  const nothing = async () => undefined;
  return signInWithPasskey(deps, { browser }, response, { within: nothing, onRefused: nothing });
}

test('a challenge is good for five minutes, for signing in, in the browser that asked for it', async () => {
  const deps = depsOf('https://sluice.example');
  const late = { kind: 'unauthenticated', message: expect.stringContaining('took too long') };
  // As far as the look-up of the passkey: the challenge was good.
  const good = { kind: 'unauthenticated', message: expect.stringContaining('does not sign you in') };
  const { challenge } = await signInOptions(deps, 'browser 1');
  await expect(answer(deps, challenge, 'browser 1')).rejects.toMatchObject(good);
  for (const browser of ['browser 2', null]) await expect(answer(deps, challenge, browser)).rejects.toMatchObject(late);
  for (const forged of ['', 'nothing', `${challenge.slice(0, -2)}AA`, Buffer.from('1.2.3.4').toString('base64url')]) {
    await expect(answer(deps, forged, 'browser 1')).rejects.toMatchObject(late);
  }
  const { token } = await createLink(tables, clock, people.owner);
  const { session } = await deps.sessions.exchange(token);
  const other = await registrationOptions(deps, session, 'browser 1');
  await expect(answer(deps, other.challenge, 'browser 1')).rejects.toMatchObject(late);
  await clock.advance(5 * 60_000 - 1);
  await expect(answer(deps, challenge, 'browser 1')).rejects.toMatchObject(good);
  await clock.advance(1);
  await expect(answer(deps, challenge, 'browser 1')).rejects.toMatchObject(late);
});

test.each([
  ['https://sluice.example', 'sluice.example'],
  ['https://sluice.example:8443/', 'sluice.example'],
  ['http://localhost:8787', 'localhost'],
  ['http://127.0.0.1:8787', null],
  ['http://sluice.example', null],
  ['https://192.0.2.1', null],
  ['https://[2001:db8::1]', null],
])('of %s passkeys are for %s', async (publicUrl, host) => {
  const deps = depsOf(publicUrl);
  expect(deps.sessions.passkeyHost).toBe(host);
  if (host !== null) expect((await signInOptions(deps, 'b')).rpId).toBe(host);
  else await expect(signInOptions(deps, 'b')).rejects.toMatchObject({ kind: 'forbidden' });
});
