/** What the store forgets by itself, and what it never does. On both engines. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { booksStore, limitSpecWith, ORGANISATION, WORKSPACE } from '../../test/support/ledger-node.ts';
import { usagePolicyRow } from '../../test/support/policies.ts';
import { TestClock } from '../kernel/clock.ts';
import { BucketTransaction } from '../limits/ledger/bucket-transaction.ts';
import type { Tables } from '../store/ports.ts';
import { forget } from './retention.ts';

const DAY = 86_400_000;
const PLACE = { organisationId: ORGANISATION, workspaceId: WORKSPACE };

describe.each(['sqlite', 'postgres'] as const)('what is forgotten on %s', (engine) => {
  const clock = new TestClock(Date.UTC(2026, 10, 22));
  let tables: Tables;
  beforeAll(async () => {
    tables = await booksStore(engine, clock);
  });
  afterAll(() => tables.close());

  it('changes of more than a day ago go, in steps; the newest one stays', async () => {
    const tell = (count: number, at: string) =>
      tables.systemWrite(async (tx) => {
        for (let i = 0; i < count; i++) {
          tx.changed({ organisationId: ORGANISATION, workspaceId: null, topic: 'configs', entityId: `${at} ${i}` });
        }
      });
    // The store writes the time of changes by its own clock, so that all of them are of today.
    await tell(1_200, 'old');
    clock.jump(Date.now() - clock.now());
    await forget({ tables });
    expect(await tables.systemRead((tx) => tx.count('changes'))).toBe(1_200);
    clock.jump(2 * DAY);
    await forget({ tables });
    const left = await tables.changesAfter(0, 10);
    expect(left.map(({ entityId }) => entityId)).toEqual(['old 1199']);
    expect(await tables.lastChange()).toBe(left[0]?.seq);
  });

  it('counters that never counted go after a week without use, and those of a policy that was archived; no others', async () => {
    const used = async (ownerId: string, ownerKind: 'policy' | 'key', amount: number, period: string | null = null) =>
      tables.systemWrite(async (tx) => {
        const now = clock.now();
        const transaction = await BucketTransaction.open(
          tx,
          PLACE,
          limitSpecWith({ ownerId, ownerKind, period }),
          clock,
          now,
        );
        await transaction.settle(tx, {
          window: transaction.row.window_no,
          lease: 'none',
          reserved: 0,
          used: amount,
          carry: 0,
          requests: 1,
          unpriced: 0,
          giveBack: false,
        });
        await transaction.close(tx, now);
      });
    const row = { organisation_id: ORGANISATION, workspace_id: WORKSPACE };
    await tables.systemWrite((tx) =>
      tx.insert('usage_policies', {
        ...usagePolicyRow(row, 'archived', []),
        status: 'archived',
        last_updated_at: clock.now(),
      }),
    );
    await tables.systemWrite((tx) =>
      tx.insert('usage_policies', {
        ...usagePolicyRow(row, 'archived-lately', []),
        status: 'archived',
        last_updated_at: clock.now() + 3 * DAY,
      }),
    );
    await used('archived-lately', 'policy', 5);
    await used('reserved', 'policy', 0);
    await tables.systemWrite((tx) => tx.update('usage_buckets', { owner_id: 'reserved' }, { reserved: 1 }));
    await used('unused', 'policy', 0);
    await used('counted', 'policy', 5);
    await used('key', 'key', 0);
    await used('archived', 'policy', 5);
    await used('monthly', 'policy', 0, 'monthly');
    const owners = async () =>
      (await tables.systemRead((tx) => tx.list('usage_buckets'))).map((bucket) => bucket.owner_id).sort();
    clock.jump(6 * DAY);
    await forget({ tables });
    expect(await owners()).toEqual(['archived', 'archived-lately', 'counted', 'key', 'monthly', 'reserved', 'unused']);
    clock.jump(2 * DAY);
    await used('late', 'policy', 0);
    await forget({ tables });
    expect(await owners()).toEqual(['archived-lately', 'counted', 'key', 'late', 'monthly', 'reserved']);
  });
});
