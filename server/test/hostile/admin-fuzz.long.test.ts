import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AdminHarness, emptyTables, startAdmin } from '../support/admin.ts';
import { fuzzAdmin, fuzzedServices } from './fuzz-admin.ts';

describe.each(['sqlite', 'postgres'] as const)('hostile input to every administration operation on %s', (engine) => {
  let admin: AdminHarness;

  beforeAll(async () => {
    admin = await startAdmin(await emptyTables(engine), { admin: { services: fuzzedServices() } });
  });

  afterAll(async () => {
    await admin?.close();
  });

  it('never answers 5xx, and refuses with the error body', async () => {
    const { statuses } = await fuzzAdmin(admin, 700);
    // The generator is worth something only while part of what it makes is accepted.
    expect(statuses[200]).toBeGreaterThan(15);
    expect(statuses[400]).toBeGreaterThan(50);
  }, 60_000);
});
