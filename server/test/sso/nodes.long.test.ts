/** Sign-ins through an identity provider on two nodes with one PostgreSQL, and a provider that changes its keys meanwhile. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { compose, type Running } from '../../src/compose.ts';
import { loadConfig } from '../../src/config.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { type FakeProvider, startFakeProvider } from '../support/fake-provider.ts';
import { migratedDatabase } from '../support/postgres.ts';
import { type Browser, browserOf, type SsoWorld, startSsoWorld } from '../support/sso-world.ts';

const PUBLIC = 'https://sluice.example';
let world: SsoWorld;
let two: Running;
let fake: FakeProvider;
let dataDir: string;
beforeAll(async () => {
  const shared = {
    SLUICE_DATABASE_URL: await migratedDatabase(),
    SLUICE_MASTER_KEY: randomBytes(32).toString('base64'),
    SLUICE_PUBLIC_URL: PUBLIC,
    SLUICE_TRUSTED_HOSTS: '127.0.0.1',
    SLUICE_TRUSTED_PROXIES: '127.0.0.1',
  };
  world = await startSsoWorld(shared);
  dataDir = await mkdtemp(join(tmpdir(), 'sluice-node-'));
  const env = { ...shared, SLUICE_DATA_DIR: dataDir, SLUICE_PORT: '0', SLUICE_LOG_LEVEL: 'error' };
  two = await compose(loadConfig([], env, dataDir), silentLog);
  fake = await startFakeProvider();
  await world.client({ issuer: fake.issuer, client_id: fake.clientId });
});
afterAll(async () => {
  await two?.stop({ noticeMs: 0, drainMs: 1_000 });
  await world?.stop();
  await fake?.close();
  await rm(dataDir, { recursive: true, force: true });
});

/** One browser as each of the nodes sees it: a balancer sends its requests to either. */
function browsers(): [Browser, Browser] {
  const one = world.browser();
  const other = browserOf(two.url);
  return [one, other];
}
const carry = (from: Browser, to: Browser) => {
  for (const [name, value] of from.cookies) to.cookies.set(name, value);
};
/** The way back, without the public address, which leads nowhere here. */
const pathOf = (url: string) => {
  expect(url.startsWith(`${PUBLIC}/v2/auth/callback?`)).toBe(true);
  return url.slice(PUBLIC.length);
};

async function signIn(index: number): Promise<string | null> {
  const sub = `user-${index}`;
  fake.current = { claims: (right) => ({ ...right, sub, email: `${sub}@acme.example` }), userinfo: { sub } };
  const [one, other] = index % 2 === 0 ? browsers() : browsers().reverse();
  if (one === undefined || other === undefined) throw new Error('no browser');
  const back = pathOf(await fake.approve(await one.login()));
  carry(one, other);
  return (await other.open(back)).location;
}

it('a sign-in that begins on one node ends on the other, once, and opens both', async () => {
  const [one, other] = browsers();
  const back = pathOf(await fake.approve(await one.login()));
  carry(one, other);
  const both = await Promise.all([one.open(back), other.open(back)]);
  expect(both.map(({ location }) => location).sort()).toEqual(['/console/', '/console/sign-in?error=expired']);
  expect(fake.exchanges).toHaveLength(1);
  const [winner, loser] = both[0]?.location === '/console/' ? [one, other] : [other, one];
  carry(winner, loser);
  expect(await winner.self()).toMatchObject({ email: 'ada@acme.example' });
  expect(await loser.self()).toEqual(await winner.self());
});

it('no sign-in of fifty is lost to a provider that changes its keys, with the old one published or not', async () => {
  const ends: (string | null)[] = [];
  for (let index = 0; index < 50; index++) {
    if (index % 10 === 5) await fake.rotate(index % 20 === 5);
    ends.push(await signIn(index));
  }
  expect(ends.filter((end) => end !== '/console/')).toEqual([]);
  // The key set is read when a key is new to a node, not for each sign-in.
  expect(fake.asked.filter((path) => path === '/jwks').length).toBeLessThanOrEqual(2 + 2 * 5);
});
