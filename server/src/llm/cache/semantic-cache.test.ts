/** Questions as vectors, on both stores. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { migratedDatabase } from '../../../test/support/postgres.ts';
import { temporaryTables } from '../../../test/support/tables.ts';
import { systemTenant } from '../../auth/tenant.ts';
import { TestClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import { organisationRow, workspaceRow } from '../../store/conformance/rows.ts';
import type { Tables } from '../../store/ports.ts';
import { openPostgresTables } from '../../store/postgres/tables.ts';
import { createSemanticCache, purgeVectors } from './semantic-cache.ts';

const HOUR = 3_600_000;
const vector = (...of: number[]) => Float32Array.from(of);
const key = (place: string) => ({ place, secret: Buffer.from(`secret of ${place}`) });

describe.each(['sqlite', 'postgres'] as const)('answered questions, on %s', (engine) => {
  let tables: Tables;
  let runs = 0;

  beforeAll(async () => {
    tables =
      engine === 'sqlite'
        ? await temporaryTables()
        : await openPostgresTables({ url: await migratedDatabase(), log: silentLog });
    await tables.migrate();
  });
  afterAll(() => tables?.close());

  /** Two workspaces of an organisation of this test's own, and one of another. */
  async function world() {
    const run = `o${++runs}`;
    const clock = new TestClock(Date.now());
    await tables.systemWrite(async (tx) => {
      for (const organisation of [run, `${run}-b`]) {
        await tx.insert('organisations', organisationRow(organisation));
        for (const name of ['one', 'two'])
          await tx.insert('workspaces', workspaceRow(organisation, `${organisation}-${name}`));
      }
    });
    const node = (maxBytes?: number) => createSemanticCache({ tables, clock, log: silentLog, maxBytes });
    return {
      clock,
      node,
      one: systemTenant(run, `${run}-one`),
      two: systemTenant(run, `${run}-two`),
      foreign: systemTenant(`${run}-b`, `${run}-b-one`),
    };
  }

  it('are found by every node, the nearest first, and only from the threshold on', async () => {
    const { node, one } = await world();
    const writer = node();
    const reader = node();
    expect(await reader.nearest(one, 's', vector(1, 0), 0)).toBeNull();
    await writer.add(one, 's', vector(1, 0), key('east'), HOUR);
    await writer.add(one, 's', vector(0, 1), key('north'), HOUR);
    const found = await reader.nearest(one, 's', vector(0.6, 0.8), 0.7);
    expect(found?.key).toEqual(key('north'));
    expect(found?.similarity).toBeCloseTo(0.8);
    expect(await reader.nearest(one, 's', vector(0.6, 0.8), 0.81)).toBeNull();
    // What came after the first look is found too.
    await writer.add(one, 's', vector(0.6, 0.8), key('between'), HOUR);
    expect((await reader.nearest(one, 's', vector(0.6, 0.8), 0.99))?.key.place).toBe('between');
  });

  it('are those of one scope, one workspace and one organisation, also with a threshold of zero', async () => {
    const { node, one, two, foreign } = await world();
    const similar = node();
    await similar.add(one, 's', vector(1, 0), key('mine'), HOUR);
    for (const [tenant, scope] of [
      [two, 's'],
      [foreign, 's'],
      [one, 't'],
    ] as const) {
      expect(await similar.nearest(tenant, scope, vector(1, 0), 0)).toBeNull();
      expect(await node().nearest(tenant, scope, vector(1, 0), 0)).toBeNull();
    }
    expect((await similar.nearest(one, 's', vector(1, 0), 0))?.key.place).toBe('mine');
  });

  it('of another length, from another model, are not compared', async () => {
    const { node, one } = await world();
    await node().add(one, 's', vector(1, 0, 0), key('longer'), HOUR);
    expect(await node().nearest(one, 's', vector(1, 0), 0)).toBeNull();
  });

  it('are forgotten when their answers are too old, by nodes that know them and in the store', async () => {
    const { node, one, clock } = await world();
    const similar = node();
    await similar.add(one, 's', vector(1, 0), key('old'), -HOUR);
    await similar.add(one, 's', vector(1, 0), key('new'), HOUR);
    expect((await similar.nearest(one, 's', vector(1, 0), 0))?.key.place).toBe('new');
    await purgeVectors(tables);
    expect(await tables.read(one, (tx) => tx.count('answer_vectors'))).toBe(1);
    clock.advance(HOUR + 1);
    expect(await similar.nearest(one, 's', vector(1, 0), 0)).toBeNull();
  });

  it('are kept at hand within a bound, and are found all the same when they had to make room', async () => {
    const { node, one, clock } = await world();
    const long = (at: number) => Float32Array.from({ length: 1000 }, (_, i) => (i === at ? 1 : 0));
    const writer = node();
    // Room for the questions of about two scopes.
    const similar = node(25_000);
    for (let round = 0; round < 4; round++) {
      for (const scope of ['a', 'b', 'c']) {
        await writer.add(one, scope, long(round), key(`${scope} ${round}`), HOUR);
        await Promise.all(
          ['a', 'b', 'c'].map(async (asked) => {
            const found = await similar.nearest(one, asked, long(round), 0.5);
            if (asked <= scope) expect(found?.key.place).toBe(`${asked} ${round}`);
            else expect(found).toBeNull();
          }),
        );
        expect(similar.bytes).toBeLessThanOrEqual(25_000);
      }
      // All that was asked so far is too old by then.
      clock.advance(HOUR + 1);
    }
    for (const scope of ['a', 'b', 'c']) await similar.nearest(one, scope, long(0), 0.5);
    expect(similar.bytes).toBe(0);
  });

  it('of kinds that nobody has asked about yet take no place, however many are looked for', async () => {
    const { node, one } = await world();
    const similar = node();
    for (let i = 0; i < 100; i++) expect(await similar.nearest(one, `kind ${i}`, vector(1, 0), 0)).toBeNull();
    expect(similar.size).toBe(0);
    await similar.add(one, 'kind 7', vector(1, 0), key('seven'), HOUR);
    expect((await similar.nearest(one, 'kind 7', vector(1, 0), 0))?.key.place).toBe('seven');
    expect(similar.size).toBe(1);
  });

  it('of one kind are compared by their newest 500, and older ones are not kept at hand', async () => {
    const { node, one, clock } = await world();
    const similar = node();
    await similar.add(one, 's', vector(1, 0), key('first'), HOUR);
    clock.jump(20_000);
    const row = (i: number) => ({
      id: `00000000-0000-7000-8000-${String(runs).padStart(4, '0')}${String(i).padStart(8, '0')}`,
      organisation_id: one.organisationId,
      workspace_id: String(one.workspaceId),
      scope: 's',
      vector: Buffer.from(vector(0, 1).buffer).toString('base64'),
      place: `later ${i}`,
      secret: 'c2VjcmV0',
      created_at: clock.now() + i,
      expires_at: clock.now() + HOUR,
    });
    expect((await similar.nearest(one, 's', vector(1, 0), 0.9))?.key.place).toBe('first');
    await tables.write(one, async (tx) => {
      for (let i = 0; i < 500; i++) await tx.insert('answer_vectors', row(i));
    });
    // It is the oldest of 501: found for the last time while they come in.
    await similar.nearest(one, 's', vector(1, 0), 0.9);
    const kept = similar.bytes;
    expect(await similar.nearest(one, 's', vector(1, 0), 0.9)).toBeNull();
    expect(await node().nearest(one, 's', vector(1, 0), 0.9)).toBeNull();
    expect(similar.bytes).toBe(kept);
  });
});
