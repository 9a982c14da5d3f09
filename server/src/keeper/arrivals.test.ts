/** Records in the order in which they come, as a keeper's own process tells of them. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type KeeperUnderTest, recent, recordOfNow, startKeeper } from '../../test/support/log-keeper.ts';
import { systemClock } from '../kernel/clock.ts';
import type { LogArrivals } from '../telemetry/log-query.ts';

let under: KeeperUnderTest;
beforeAll(async () => {
  under = await startKeeper();
});
afterAll(() => under.close());

let seq = 0;
const record = (more: Record<string, unknown> = {}) => recordOfNow(++seq, { organisation_id: 'org-a', ...more });
const arrived = (since: string | null, limit = 100) =>
  under.keeper.arrived(recent(), { columns: ['id', 'status'], since, limit });
const ids = ({ rows }: LogArrivals) => rows.map(({ id }) => id).sort();

describe('records that have come', () => {
  it('are those since the answer before, whatever their times, and of the question only', async () => {
    await under.write(record());
    const begin = await arrived(null);
    expect(begin).toMatchObject({ rows: [], left: 0 });
    const [one, other] = [record(), record({ time: systemClock.now() - 3_600_000 })];
    await under.write(one, record({ organisation_id: 'org-b' }));
    await under.write(other);
    const came = await arrived(begin.next);
    expect([ids(came), came.left]).toEqual([[one.id, other.id].sort(), 0]);
    expect(await arrived(came.next)).toMatchObject({ rows: [], left: 0 });
    // The same place may be asked from again.
    expect(ids(await arrived(begin.next))).toEqual(ids(came));
  });

  it('are not lost when they go to a file between two answers', async () => {
    const begin = await arrived(null);
    const first = record();
    await under.write(first);
    await under.keeper.flush();
    const second = record();
    await under.write(second);
    const came = await arrived(begin.next);
    expect([came.rows.map(({ id }) => id), came.left]).toEqual([[first.id, second.id], 0]);
    await under.keeper.flush();
    const third = record();
    await under.write(third);
    expect((await arrived(came.next)).rows.map(({ id }) => id)).toEqual([third.id]);
  });

  it('above the limit are counted', async () => {
    const begin = await arrived(null);
    await under.write(record(), record(), record());
    const came = await arrived(begin.next, 2);
    expect([came.rows.length, came.left]).toEqual([2, 1]);
    expect(await arrived(came.next)).toMatchObject({ rows: [], left: 0 });
  });

  it('are of unknown number where the keeper died meanwhile, and go on from there', async () => {
    const begin = await arrived(null);
    await under.kill();
    await under.restart();
    const gap = await arrived(begin.next);
    expect([gap.rows, gap.left]).toEqual([[], null]);
    const next = record();
    await under.write(next);
    expect(ids(await arrived(gap.next))).toEqual([next.id]);
  });
});
