import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { systemTenant } from '../auth/tenant.ts';
import { systemClock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import { silentLog } from '../kernel/log.ts';
import { createOrganisation } from '../resources/organisations.ts';
import { openDiskBlobs } from '../store/disk/blobs.ts';
import type { Blobs, Tables } from '../store/ports.ts';
import { openSqliteTables } from '../store/sqlite/tables.ts';
import { chunkBlob, dayOf } from '../telemetry/bodies/chunk.ts';
import { forgetBodies } from './body-retention.ts';

const DAY_MS = 86_400_000;
let dir: string;
let tables: Tables;
let blobs: Blobs;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'sluice-body-days-'));
  tables = await openSqliteTables({ file: join(dir, 'control.db'), log: silentLog });
  await tables.migrate();
  blobs = await openDiskBlobs({ dir });
});
afterEach(async () => {
  await tables.close();
  await rm(dir, { recursive: true, force: true });
});

const owner = { email: 'o@example.com', first_name: 'O', last_name: 'W' };
const organisation = (name: string) =>
  tables.systemWrite((tx) => createOrganisation(tx, { clock: systemClock, name, owner, blockInlineConfig: true }));

/** A chunk that was begun so many days ago. */
async function chunk(of: { organisation_id: string; workspace_id: string }, days: number): Promise<string> {
  const at = Date.now() - days * DAY_MS;
  const id = uuidv7({ ...systemClock, now: () => at });
  const { organisation_id, workspace_id } = of;
  await blobs.put(systemTenant(organisation_id), chunkBlob(id), Readable.from([Buffer.from('x')]));
  const row = { id, organisation_id, workspace_id, day: dayOf(id), records: 1, bytes: 1, created_at: at };
  await tables.systemWrite((tx) => tx.insert('body_chunks', row));
  return id;
}

const left = async (organisationId: string) => (await readdir(join(dir, 'blobs', organisationId))).sort();
const rows = async () => (await tables.systemRead((tx) => tx.list('body_chunks', {}))).map(({ id }) => id).sort();

it('bodies older than their days go, with their blobs; an organisation and a workspace can say fewer days', async () => {
  const [usual, short, own] = [await organisation('Usual'), await organisation('Short'), await organisation('Own')];
  await tables.systemWrite(async (tx) => {
    await tx.update(
      'organisations',
      { id: short.organisation_id },
      {
        settings: { block_inline_config: true, bodies_days: 3 },
      },
    );
    await tx.update('workspaces', { id: own.workspace_id }, { settings: { bodies_days: 1 } });
  });
  const made = new Map<string, Record<number, string>>();
  for (const of of [usual, short, own]) {
    const ids: Record<number, string> = {};
    for (const days of [0, 2.5, 5, 16]) ids[days] = await chunk(of, days);
    made.set(of.organisation_id, ids);
  }
  await forgetBodies({ tables, blobs, days: 14 });
  const kept = (of: { organisation_id: string }, ...days: number[]) =>
    days.map((each) => made.get(of.organisation_id)?.[each] ?? '');
  const expected = [
    [usual, kept(usual, 0, 2.5, 5)],
    [short, kept(short, 0, 2.5)],
    [own, kept(own, 0)],
  ] as const;
  for (const [of, ids] of expected) expect(await left(of.organisation_id)).toEqual(ids.map(chunkBlob).sort());
  expect(await rows()).toEqual(expected.flatMap(([, ids]) => ids).sort());
});
