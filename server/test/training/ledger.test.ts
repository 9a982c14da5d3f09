import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemTenant } from '../../src/auth/tenant.ts';
import { systemClock, TestClock } from '../../src/kernel/clock.ts';
import type { Tables } from '../../src/store/ports.ts';
import { ObjectOwnership } from '../../src/training/object-ownership.ts';
import { ENGINES, type JobStore, jobStore } from '../support/job-store.ts';

describe.each(ENGINES)('the ledger on %s', (engine) => {
  let store: JobStore;
  let tables: Tables;
  const clock = new TestClock(systemClock.now());

  beforeAll(async () => {
    store = await jobStore(engine, clock);
    tables = store.tables;
  });
  afterAll(async () => {
    await store?.close();
  });

  const ledger = (workspace: string, account = 'a1') =>
    new ObjectOwnership({
      tables,
      clock,
      account,
      provider: 'openai',
      owner: { tenant: systemTenant('o1', workspace), createdBy: null },
    });

  it('knows an object of its workspace by either spelling, and of no other workspace or account', async () => {
    const id = 's3://bucket/a b.jsonl';
    expect(await ledger('w1').claim('file', [id])).toEqual([]);
    expect(await ledger('w1').find('file', encodeURIComponent(id))).toBe(id);
    expect(await ledger('w1').find('batch', id)).toBe(null);
    expect(await ledger('w2').find('file', id)).toBe(null);
    expect(await ledger('w1', 'a2').find('file', id)).toBe(null);
    expect([await ledger('w1').foreign('file', id), await ledger('w2').foreign('file', id)]).toEqual([false, true]);
    expect(await ledger('w2').claim('file', [id, 'other'])).toEqual([id]);
    expect([...(await ledger('w2').owned('file', [id, 'other']))]).toEqual(['other']);
    await ledger('w2').forget('file', id);
    expect(await ledger('w1').find('file', id)).toBe(id);
    await ledger('w1').forget('file', id);
    expect(await ledger('w1').find('file', id)).toBe(null);
  });

  it('has one owner for an object that many note at the same moment', async () => {
    const outcomes = await Promise.all(
      Array.from({ length: 12 }, (_, i) => ledger(i % 2 === 0 ? 'w1' : 'w2').claim('job', ['raced'])),
    );
    const owners = await Promise.all(['w1', 'w2'].map((workspace) => ledger(workspace).find('job', 'raced')));
    expect(owners.filter((one) => one !== null)).toEqual(['raced']);
    expect(outcomes.filter((foreign) => foreign.length === 0).length).toBe(6);
  });

  it('counts what may still come after an object in a list, newest first', async () => {
    for (const id of ['b1', 'b2', 'b3']) {
      await ledger('w1').claim('batch', [id]);
      clock.jump(60 * 60_000);
    }
    expect(await ledger('w1').count('batch')).toBe(3);
    expect(await ledger('w1').count('batch', 'b3')).toBe(2);
    expect(await ledger('w1').count('batch', 'b1')).toBe(0);
    expect(await ledger('w2').count('batch')).toBe(0);
  });
});
