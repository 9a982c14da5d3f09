import { afterAll, beforeAll, expect, it } from 'vitest';
import { slowness } from '../../test/support/cost.ts';
import { temporaryTables } from '../../test/support/tables.ts';
import { systemClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { createOrganisation } from '../resources/organisations.ts';
import type { Tables } from '../store/ports.ts';
import { createAuthenticator } from './authenticator.ts';
import { readCredential } from './credential.ts';

let tables: Tables;
beforeAll(async () => {
  tables = await temporaryTables();
});
afterAll(() => tables.close());

it('the check of a known key costs at most 15 µs of CPU, from the raw headers to the principal', async () => {
  const { workspace_api_key: key } = await tables.systemWrite((tx) =>
    createOrganisation(tx, {
      name: 'Alpha',
      owner: { email: 'ada@alpha.example', first_name: 'Ada', last_name: 'A' },
      blockInlineConfig: true,
      clock: systemClock,
    }),
  );
  const authenticator = createAuthenticator({ tables, clock: systemClock, log: silentLog });
  const headers = ['Host', 'localhost', 'Content-Type', 'application/json', 'Accept', '*/*'];
  headers.push('X-Gateway-Provider', '@openai', 'User-Agent', 'test', 'Authorization', `Bearer ${key}`);
  const first = await authenticator.authenticate(key);
  const check = () => {
    // Texts of their own, as they come from a socket.
    const raw = headers.map((text) => Buffer.from(text, 'latin1').toString('latin1'));
    const start = process.cpuUsage();
    const checks = 2_000;
    for (let i = 0; i < checks; i++) {
      if (authenticator.authenticate(readCredential(raw) ?? '', '127.0.0.1') !== first) throw new Error('not known');
    }
    const { user, system } = process.cpuUsage(start);
    return (user + system) / checks;
  };
  // The cheapest of many: the compiler, the collector and other processes of the machine only add.
  const cost = Math.min(...Array.from({ length: 40 }, check));
  expect(cost / slowness()).toBeLessThan(15);
});
