import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { ENGINES, type JobStore, jobRow, jobStore } from '../../test/support/job-store.ts';
import { TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import type { Tables } from '../store/ports.ts';
import { backOff } from './back-off.ts';
import { type Claim, ClaimEnded, NEVER, takeRow, writeRow } from './claim.ts';
import { startLeader } from './leader.ts';
import { createScheduler, type Scheduler, type Turn } from './scheduler.ts';

type JobClaim = Claim<'training_jobs'>;

describe('back-off', () => {
  it('doubles up to its longest wait, of which at least half is always waited', () => {
    const steps = { first: 1000, most: 60_000, factor: 2 };
    const at = (n: number, random: number) => backOff(steps, n, () => random);
    expect([1, 2, 3, 10, 1000].map((n) => at(n, 0))).toEqual([500, 1000, 2000, 30_000, 30_000]);
    expect([1, 2, 3, 10, 1000].map((n) => at(n, 0.999_999))).toEqual([1000, 2000, 4000, 60_000, 60_000]);
  });
});

describe.each(ENGINES)('work on %s', (engine) => {
  let store: JobStore;
  let clock: TestClock;
  const running: Scheduler[] = [];

  beforeAll(async () => {
    clock = new TestClock();
    store = await jobStore(engine, clock);
  });
  afterAll(() => store.close());
  beforeEach(() =>
    store.tables.systemWrite(async (tx) => void (await tx.remove('training_jobs', { id: { gte: '' } }))),
  );
  afterEach(async () => {
    for (const scheduler of running.splice(0)) await scheduler.close();
  });

  const add = (id: string, due = clock.now()) =>
    store.tables.systemWrite((tx) => tx.insert('training_jobs', jobRow(id, due)));
  const find = async (id: string) => {
    const row = await store.tables.systemRead((tx) => tx.find('training_jobs', { id }));
    if (row === undefined) throw new Error('no such row');
    return row;
  };

  function start(
    run: (claim: JobClaim) => Promise<Turn>,
    options: { node?: string; tables?: Tables; concurrency?: number } = {},
  ): Scheduler {
    const scheduler = createScheduler({
      tables: options.tables ?? store.tables,
      clock,
      log: silentLog,
      node: options.node ?? 'n1',
      random: () => 0,
      leaseMs: 30_000,
      pollMs: 5_000,
    });
    scheduler.add({ table: 'training_jobs', concurrency: options.concurrency ?? 8, run });
    scheduler.start();
    running.push(scheduler);
    return scheduler;
  }

  it('runs a row again when it asked to be, and never after it is done', async () => {
    await add('j1');
    const steps: string[] = [];
    const scheduler = start(async (claim) => {
      steps.push(claim.row.step);
      if (claim.row.step === 'first') {
        await claim.write(async () => ({ step: 'second' }));
        return { again: 1000 };
      }
      return 'done';
    });
    await scheduler.idle();
    expect(steps).toEqual(['first']);
    expect(await find('j1')).toMatchObject({ step: 'second', holder: null, due_at: clock.now() + 1000 });
    await clock.advance(999);
    await scheduler.idle();
    expect(steps).toEqual(['first']);
    await clock.advance(10);
    await scheduler.idle();
    expect(steps).toEqual(['first', 'second']);
    expect(await find('j1')).toMatchObject({ step: 'done', holder: null, held_until: 0, due_at: NEVER });
    await clock.advance(60_000);
    await scheduler.idle();
    expect(steps).toHaveLength(2);
  });

  it('starts at once what it is told about, and within the poll time what it is not', async () => {
    const seen: string[] = [];
    const scheduler = start(async (claim) => {
      seen.push(claim.row.id);
      return 'done';
    });
    await scheduler.idle();
    await add('told');
    scheduler.wake();
    await scheduler.idle();
    expect(seen).toEqual(['told']);
    await add('untold');
    await clock.advance(5_000);
    await scheduler.idle();
    expect(seen).toEqual(['told', 'untold']);
  });

  it('waits longer after each failure, and from the start again after a turn that went well', async () => {
    await add('j1');
    let fails = true;
    const scheduler = start(async () => {
      if (fails) throw new Error('down');
      return { again: 50 };
    });
    const waits: number[] = [];
    for (let i = 0; i < 4; i++) {
      await scheduler.idle();
      const { due_at, failures } = await find('j1');
      expect(failures).toBe(i + 1);
      waits.push(due_at - clock.now());
      fails = i < 2;
      await clock.advance(due_at - clock.now() + 5);
      if (!fails) break;
    }
    await scheduler.idle();
    expect(waits).toEqual([500, 1000, 2000]);
    expect((await find('j1')).failures).toBe(0);
  });

  it('gives each row to one of two nodes, however many are due', async () => {
    const other = await store.another();
    const at = new Map<string, number>();
    const turns = new Map<string, number>();
    let overlaps = 0;
    const work = async ({ row }: JobClaim): Promise<Turn> => {
      if ((at.get(row.id) ?? 0) > 0) overlaps += 1;
      at.set(row.id, (at.get(row.id) ?? 0) + 1);
      await new Promise((resolve) => setImmediate(resolve));
      at.set(row.id, (at.get(row.id) ?? 0) - 1);
      turns.set(row.id, (turns.get(row.id) ?? 0) + 1);
      return 'done';
    };
    const ids = Array.from({ length: 40 }, (_, i) => `j${i}`);
    for (const id of ids) await add(id);
    const one = start(work, { node: 'n1' });
    const two = start(work, { node: 'n2', tables: other });
    while ((await store.tables.systemRead((tx) => tx.count('training_jobs', { where: { step: 'first' } }))) > 0) {
      await Promise.all([one.idle(), two.idle()]);
      await clock.advance(10);
    }
    expect(overlaps).toBe(0);
    expect([...turns.values()].every((count) => count === 1)).toBe(true);
    expect(turns.size).toBe(40);
  });

  it('lets a worker that lost its row neither write nor read through its claim', async () => {
    await add('j1');
    const claim = (token: string) => ({ token, until: clock.now() });
    await takeRow(store.tables, 'training_jobs', await find('j1'), claim('n1/run/1'));
    await takeRow(store.tables, 'training_jobs', await find('j1'), claim('n2/run/1'));
    let asked = 0;
    for (const patch of [{ step: 'wrong' }, {}]) {
      const write = writeRow(store.tables, 'training_jobs', 'j1', 'n1/run/1', async () => {
        asked += 1;
        return patch;
      });
      await expect(write).rejects.toMatchObject({ name: 'ClaimEnded', why: 'lost' });
    }
    expect([asked, (await find('j1')).step]).toEqual([0, 'first']);
  });

  it('hands the row of a node that stopped renewing to another, and lets the first write nothing from then on', async () => {
    const other = await store.another();
    await add('j1');
    let release: () => void = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    let late: unknown = null;
    const entered = new Promise<void>((enter) => {
      // The store of this node stands still after the claim, as behind a network that is gone.
      let frozen = false;
      const stalled = new Proxy(store.tables, {
        get(target, name: keyof Tables) {
          if (name === 'now') return () => (frozen ? held.then(() => clock.now()) : target.now());
          const member = target[name];
          return typeof member === 'function' ? member.bind(target) : member;
        },
      });
      start(
        async (claim) => {
          frozen = true;
          enter();
          await held;
          late = await claim.write(async () => ({ step: 'wrong' })).catch((error: unknown) => error);
          return 'done';
        },
        { node: 'n1', tables: stalled },
      );
    });
    await entered;
    const first = (await find('j1')).holder;
    const taken: (string | null)[] = [];
    const second = start(
      async (claim) => {
        taken.push(claim.row.holder);
        await claim.write(async () => ({ step: 'right' }));
        return { again: 60_000 };
      },
      { node: 'n2', tables: other },
    );
    await second.idle();
    expect(taken).toEqual([]);
    for (let i = 0; i < 8 && taken.length === 0; i++) {
      await clock.advance(5_000);
      await second.idle();
    }
    expect(taken).toHaveLength(1);
    expect(taken[0]).not.toBe(first);
    release();
    await running[0]?.idle();
    expect(late).toBeInstanceOf(ClaimEnded);
    expect(await find('j1')).toMatchObject({ step: 'right' });
  });

  it('takes up at once after a restart what the same node held when it was killed, but not what another node holds', async () => {
    await add('mine');
    await add('theirs');
    const until = clock.now() + 30_000;
    await store.tables.systemWrite(async (tx) => {
      await tx.update('training_jobs', { id: 'mine' }, { holder: 'n1/earlier/1', held_until: until });
      await tx.update('training_jobs', { id: 'theirs' }, { holder: 'n10/run/1', held_until: until });
    });
    const seen: string[] = [];
    const scheduler = start(async (claim) => {
      seen.push(claim.row.id);
      return 'done';
    });
    await scheduler.idle();
    expect(seen).toEqual(['mine']);
  });

  it('keeps a row for as long as the work goes on', async () => {
    const other = await store.another();
    await add('j1');
    let finish: () => void = () => {};
    const work = new Promise<void>((resolve) => {
      finish = resolve;
    });
    let turns = 0;
    const slow = async (): Promise<Turn> => {
      turns += 1;
      await work;
      return 'done';
    };
    start(slow, { node: 'n1' });
    while (turns === 0) await new Promise((resolve) => setImmediate(resolve));
    const second = start(slow, { node: 'n2', tables: other });
    for (let i = 0; i < 24; i++) {
      await clock.advance(5_000);
      await second.idle();
      // The renewal is in the store before time goes on.
      while ((await find('j1')).held_until < clock.now() + 15_000) await new Promise((r) => setImmediate(r));
    }
    expect(turns).toBe(1);
    finish();
  });

  it('tells the worker of a cancellation at once and comes back to the row right after', async () => {
    await add('j1');
    const seen: boolean[] = [];
    const scheduler = start(async (claim) => {
      seen.push(claim.row.cancel_requested);
      if (claim.row.cancel_requested) return 'done';
      await new Promise((_resolve, reject) => claim.cancelled.addEventListener('abort', reject));
      return 'done';
    });
    while (seen.length === 0) await new Promise((resolve) => setImmediate(resolve));
    await store.tables.systemWrite((tx) => tx.update('training_jobs', { id: 'j1' }, { cancel_requested: true }));
    scheduler.wake('j1');
    while ((await find('j1')).step !== 'done') await scheduler.idle();
    expect(seen).toEqual([false, true]);
    expect(await find('j1')).toMatchObject({ failures: 0 });
  });

  it('stops its workers when it closes and leaves their rows free for the next', async () => {
    await add('j1');
    let began = false;
    let reason: unknown = null;
    const scheduler = start(async (claim) => {
      began = true;
      await new Promise((_resolve, reject) => claim.signal.addEventListener('abort', reject));
      return 'done';
    });
    while (!began) await new Promise((resolve) => setImmediate(resolve));
    await scheduler.close().catch((error: unknown) => {
      reason = error;
    });
    expect(reason).toBeNull();
    expect(await find('j1')).toMatchObject({ step: 'first', holder: null, held_until: 0, failures: 0 });
  });

  /** A second of the test's clock is no shorter than the store's writes of it, also where a disk is slow. */
  async function written(tables: Tables): Promise<void> {
    for (let i = 0; i < 5; i++) {
      await tables.systemWrite((tx) => tx.update('leases', { name: 'of nobody' }, { expires_at: 0 }));
    }
  }

  it('lets no node lead for longer than its lease while the store does not answer a renewal', async () => {
    let away = false;
    let back = () => {};
    const answers = new Promise<void>((resolve) => {
      back = resolve;
    });
    const some: Pick<Tables, 'now' | 'systemWrite'> = {
      now: async () => {
        if (away) await answers;
        return store.tables.now();
      },
      systemWrite: (...of) => store.tables.systemWrite(...of),
    };
    const tables = some as Tables;
    let ended: unknown = null;
    let began = false;
    const lead = async (signal: AbortSignal) => {
      began = true;
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
      ended = signal.reason;
    };
    const options = { clock, log: silentLog, name: 'rotation', everyMs: 1_000, leaseMs: 30_000 };
    const leader = startLeader({ ...options, tables, node: 'n1', lead });
    while (!began) await new Promise((resolve) => setImmediate(resolve));
    away = true;
    await clock.advance(29_000);
    expect(ended).toBeNull();
    await clock.advance(1_000);
    expect(String(ended)).toContain('the lease has ended');
    back();
    await leader.close();
  });

  it('lets one of two nodes lead, and the other when the first is gone', async () => {
    const other = await store.another();
    let leaders = 0;
    const led: string[] = [];
    const lead = (node: string) => async (signal: AbortSignal) => {
      led.push(node);
      leaders += 1;
      expect(leaders).toBe(1);
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
      leaders -= 1;
    };
    const options = { clock, log: silentLog, name: 'rotation', everyMs: 1_000, leaseMs: 30_000 };
    const one = startLeader({ ...options, tables: store.tables, node: 'n1', lead: lead('n1') });
    while (led.length === 0) await new Promise((resolve) => setImmediate(resolve));
    const two = startLeader({ ...options, tables: other, node: 'n2', lead: lead('n2') });
    for (let i = 0; i < 60; i++) {
      await clock.advance(1_000);
      await written(store.tables);
    }
    expect(led).toEqual(['n1']);
    await one.close();
    for (let i = 0; i < 100 && led.length === 1; i++) {
      await clock.advance(1_000);
      await written(other);
    }
    expect(led).toEqual(['n1', 'n2']);
    await two.close();
  });
});
