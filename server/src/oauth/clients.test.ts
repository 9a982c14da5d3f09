/** What anybody may store by registering clients, and for how long. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { temporaryTables } from '../../test/support/tables.ts';
import { TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { memoryCounters } from '../store/memory/counters.ts';
import type { Tables } from '../store/ports.ts';
import { AddressLimit } from './address-limit.ts';
import { Clients } from './clients.ts';

const DAY_MS = 24 * 3_600_000;
const METADATA = { client_name: 'Editor', redirect_uris: ['https://editor.example/back'] };

let tables: Tables;
beforeAll(async () => {
  tables = await temporaryTables();
});
afterAll(() => tables.close());

it('a client that no user approves is forgotten after a week, and one that is approved 90 days after its last use', async () => {
  const clock = new TestClock();
  const unread = async () => new Response(null, { status: 404 });
  const clients = new Clients({ tables, clock, log: silentLog, documents: { user: unread, anybody: unread } });
  const [idle, approved] = [await clients.register(METADATA), await clients.register(METADATA)];
  await tables.systemWrite((tx) => clients.used(tx, approved.id));
  clock.advance(6 * DAY_MS);
  expect(await clients.known(idle.id)).toBeDefined();
  clock.advance(2 * DAY_MS);
  expect(await clients.known(idle.id)).toBeUndefined();
  await clients.register(METADATA);
  const kept = async (id: string) => (await tables.systemRead((tx) => tx.find('oauth_clients', { id }))) !== undefined;
  expect([await kept(idle.id), await kept(approved.id)]).toEqual([false, true]);
  clock.advance(80 * DAY_MS);
  expect(await clients.known(approved.id)).toBeDefined();
  clock.advance(3 * DAY_MS);
  expect(await clients.known(approved.id)).toBeUndefined();
});

it('an address registers 1,000 clients a day and no more, and the next day again', async () => {
  const clock = new TestClock(1_800_000_000_000);
  const limit = new AddressLimit({ counters: memoryCounters({ clock }), clock, log: silentLog });
  const register = (address: string) =>
    limit.admitRegistration(address).then(
      () => 'admitted',
      (error: { message: string }) => error.message,
    );
  const told: string[] = [];
  for (let i = 0; i < 1_001; i++) {
    clock.advance(1_100);
    told.push(await register('192.0.2.1'));
  }
  expect(new Set(told.slice(0, 1_000))).toEqual(new Set(['admitted']));
  expect(told[1_000]).toContain('1,000 clients today');
  expect(await register('192.0.2.2')).toBe('admitted');
  clock.advance(DAY_MS);
  expect(await register('192.0.2.1')).toBe('admitted');
});
