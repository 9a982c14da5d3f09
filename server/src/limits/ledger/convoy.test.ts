/** What a busy limit costs the other limits of the same requests. */
import { setImmediate as turn } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { audited, booksStore, type LedgerNode, ledgerNode, limitSpecWith } from '../../../test/support/ledger-node.ts';
import type { Tables } from '../../store/ports.ts';
import type { LimitCharge } from './held-reservation.ts';

const USED = { cost: 0, carry: 0, tokens: 0, requests: 1, unpriced: 0 };

const charge = (ownerId: string, limit: number): LimitCharge => ({
  spec: limitSpecWith({ ownerId, limit, type: 'requests' }),
  amount: 1,
  bounded: true,
});

describe('requests of two limits, one of them busy', () => {
  let tables: Tables;
  let node: LedgerNode;
  /** Transactions that tenants began; while `gate` is there they wait for it. */
  let asked = 0;
  let gate: Promise<void> | null = null;
  beforeAll(async () => {
    tables = await booksStore('sqlite');
    const gated = Object.create(tables) as Tables;
    gated.write = async (tenant, run, options) => {
      asked += 1;
      await gate;
      return tables.write(tenant, run, options);
    };
    gated.systemRead = (run) => tables.systemRead(run);
    gated.systemWrite = (run, options) => tables.systemWrite(run, options);
    node = await ledgerNode(gated, { leaseMs: 600_000 });
  });
  afterAll(async () => {
    await node.close();
    await tables.close();
  });

  /** Closes the store for what `during` starts, and opens it again. */
  async function behindGate<T>(during: () => Promise<T>): Promise<T> {
    let open = () => {};
    gate = new Promise((resolve) => {
      open = resolve;
    });
    try {
      return await during();
    } finally {
      gate = null;
      open();
    }
  }
  const settled = async (ends: readonly ((used: typeof USED) => Promise<void>)[]) => {
    await Promise.all(ends.map((end) => end(USED)));
    await node.drain();
  };

  it('while one limit is asked about at the store, requests of the other one go on from its lease', async () => {
    const far = charge('far', 1_000_000);
    // Too small for a lease ahead: every request asks the store.
    const near = charge('near', 100);
    await settled([await node.reserve([far, near])]);
    const { waiting, beside } = await behindGate(async () => {
      const both = node.reserve([far, near]);
      await turn();
      return { waiting: both, beside: await Promise.all(Array.from({ length: 50 }, () => node.reserve([far]))) };
    });
    await settled([await waiting, ...beside]);
  });

  it('what waited behind a batch is served from the lease that came with it, without asking again', async () => {
    const busy = charge('busy', 25_600);
    const far = charge('far', 1_000_000);
    const before = asked;
    const ends = await behindGate(async () => {
      const first = node.reserve([far, busy]);
      await turn();
      // They find the limit at the store, and queue.
      const later = Array.from({ length: 60 }, () => node.reserve([far, busy]));
      return [first, ...later];
    });
    await settled(await Promise.all(ends));
    expect(asked - before).toBe(1);
  });

  it('a refusal by one limit gives back what was taken from the lease of the other', async () => {
    const far = charge('far', 1_000_000);
    const tight = charge('tight', 3);
    const outcomes = await Promise.allSettled(Array.from({ length: 20 }, () => node.reserve([far, tight])));
    const ends = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
    expect(ends).toHaveLength(3);
    await settled(ends);
    await node.ledger.close();
    await node.drain();
    const rows = await tables.systemRead((tx) => tx.list('usage_buckets'));
    expect(Object.fromEntries(rows.map(({ owner_id, used, reserved }) => [owner_id, { used, reserved }]))).toEqual({
      far: { used: 1 + 51 + 61 + 3, reserved: 0 },
      near: { used: 2, reserved: 0 },
      busy: { used: 61, reserved: 0 },
      tight: { used: 3, reserved: 0 },
    });
    for (const { counters, entries, leased } of await audited(tables)) {
      expect(entries).toEqual(counters);
      expect(leased).toBe(counters.reserved);
    }
  });
});
