/** Gateway-managed jobs that are cancelled, fail, or lose their node. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { TestClock } from '../../src/kernel/clock.ts';
import { SluiceError } from '../../src/kernel/errors.ts';
import type { FineTuningJob, JobStatus } from '../../src/operations/training.ts';
import type { Tables } from '../../src/store/ports.ts';
import { ENGINES, type JobStore, jobStore } from '../support/job-store.ts';
import {
  BODY,
  clock,
  create,
  DATASET,
  events,
  node,
  parsed,
  retrieve,
  statuses,
  store,
  stored,
  trainer,
  until,
  untilDone,
  useJobs,
} from '../support/managed-jobs.ts';
import {
  type Around,
  down,
  memoryBlobs,
  objectCall,
  PROVIDER_KEY,
  startNode,
  Trainer,
  type TrainerNode,
} from '../support/trainer.ts';
import { refusal } from './support.ts';

// A worker thread that loads a tokeniser takes a second; here a word is a token, and the thread has tests of its own.
vi.mock('../../src/training/datasets/thread.ts', async (actual) => {
  const { DatasetScan } = await import('../../src/training/datasets/scan.ts');
  const original = await actual<typeof import('../../src/training/datasets/thread.ts')>();
  const scanInThread: typeof original.scanInThread = async (input, options, context, write) => {
    if (write !== null) return original.scanInThread(input, options, context, write);
    const scan = new DatasetScan(options, { count: (text) => text.split(' ').length, pieces: () => [] });
    for await (const piece of input) scan.push(Buffer.from(piece));
    scan.end();
    return scan.report();
  };
  return { ...original, scanInThread };
});

/** A node whose every call to the store or the provider fails from the `n`-th effect on, as if it had been killed there. */
function mortal(tables: Tables, n: number): { tables: Tables; around: Around; effects: () => number } {
  let count = 0;
  const die = () => {
    count += 1;
    if (count >= n) throw new Error('killed');
  };
  const writes = new Set(['write', 'systemWrite', 'insert']);
  const proxied = new Proxy(tables, {
    get(target, name: keyof Tables) {
      const member = target[name];
      if (typeof member !== 'function') return member;
      return async (...args: unknown[]) => {
        if (!writes.has(name)) {
          if (count >= n) throw new Error('killed');
          return (member as (...given: unknown[]) => unknown).apply(target, args);
        }
        die();
        const result = await (member as (...given: unknown[]) => unknown).apply(target, args);
        // The commit reached the disk, its word did not reach us.
        die();
        return result;
      };
    },
  });
  return { tables: proxied, around: die, effects: () => count };
}

describe.each(ENGINES)('gateway-managed jobs on %s', (engine) => {
  useJobs(engine);

  const cancel = async (on: TrainerNode, id: string): Promise<FineTuningJob> =>
    parsed(await on.jobs.cancel(objectCall(on, 'finetune_cancel', { id })));

  it('begins nothing at the provider for a key that was revoked or lost its scope meanwhile', async () => {
    for (const change of [{ status: 'archived' as const }, { scopes: ['logs.view'] }]) {
      const on = node();
      const job = await create(on);
      const back = { status: 'active' as const, scopes: ['completions.write'] };
      await store.tables.systemWrite((tx) => tx.update('api_keys', { id: 'key-w1' }, change));
      await untilDone(job.id).finally(() =>
        store.tables.systemWrite((tx) => tx.update('api_keys', { id: 'key-w1' }, back)),
      );
      expect(await retrieve(on, job.id)).toMatchObject({ status: 'failed', error: { code: 'invalid_api_key' } });
      expect([trainer.files.size, trainer.jobs.size]).toEqual([0, 0]);
    }
  });

  describe('cancelling', () => {
    it('before the upload ends the job at once and never calls the provider', async () => {
      const on = node();
      await on.scheduler.close();
      const job = await create(on);
      expect(await cancel(on, job.id)).toMatchObject({ id: job.id, status: 'cancelled', error: null });
      expect(await refusal(() => cancel(on, job.id))).toMatchObject({ status: 400, code: 'AB01' });
      node();
      await untilDone(job.id);
      expect(trainer.calls).toEqual([]);
      expect(statuses(await events(on, job.id))).toEqual(['validating_files', 'cancelled']);
    });

    it('during the upload cuts it and leaves nothing at the provider', async () => {
      let cancelling: Promise<FineTuningJob> | null = null;
      let id = '';
      const around: Around = async (name, when) => {
        if (name !== 'upload part' || when !== 'before' || cancelling !== null) return;
        cancelling = cancel(on, id);
        await cancelling;
      };
      const on = node({ around });
      await on.scheduler.idle();
      ({ id } = await create(on));
      await untilDone(id);
      expect(await (cancelling as unknown as Promise<FineTuningJob>)).toMatchObject({ status: 'cancelled' });
      expect((await retrieve(on, id)).status).toBe('cancelled');
      expect(trainer.jobs.size).toBe(0);
      expect([...trainer.files.keys(), ...trainer.open]).toEqual([]);
      expect(statuses(await events(on, id))).toEqual(['validating_files', 'cancelled']);
    });

    it('after the creation cancels at the provider first, and then removes the files', async () => {
      trainer.script = ['queued', 'running'];
      const on = node();
      const { id } = await create(on);
      await until(async () => (await stored(id)).status === 'running');
      expect(await cancel(on, id)).toMatchObject({ status: 'cancelled' });
      await untilDone(id);
      expect(trainer.get('ftjob-1').job.status).toBe('cancelled');
      expect([...trainer.files.keys()]).toEqual([]);
      expect(statuses(await events(on, id))).toEqual(['validating_files', 'queued', 'running', 'cancelled']);
    });

    it('between the creation and its answer finds the job and cancels it', async () => {
      let id = '';
      let cancelling: Promise<FineTuningJob> | null = null;
      const around: Around = async (name, when) => {
        if (name !== 'create' || when !== 'after' || cancelling !== null) return;
        cancelling = cancel(on, id);
        while (!(await stored(id)).cancel_requested) await new Promise((resolve) => setImmediate(resolve));
        throw down();
      };
      const on = node({ around });
      ({ id } = await create(on));
      await until(async () => (await stored(id)).step === 'done', 1_000);
      expect(await (cancelling as unknown as Promise<FineTuningJob>)).toMatchObject({ status: 'cancelled' });
      expect([...trainer.jobs.values()].map(({ job }) => job.status)).toEqual(['cancelled']);
      expect([...trainer.files.keys()]).toEqual([]);
    });

    it('a job that ended meanwhile is refused, and the job keeps its end', async () => {
      trainer.script = ['running'];
      const on = node();
      const { id } = await create(on);
      await until(async () => (await stored(id)).status === 'running');
      trainer.become('ftjob-1', 'succeeded');
      expect(await refusal(() => cancel(on, id))).toMatchObject({ status: 400, code: 'AB01' });
      await untilDone(id);
      expect(await retrieve(on, id)).toMatchObject({ status: 'succeeded', fine_tuned_model: 'ft:base:ftjob-1' });
    });

    it('says so when the provider does not confirm in time, and does it later', async () => {
      trainer.script = ['running'];
      let away = false;
      const on = node({
        around: (name, when) => {
          if (away && when === 'before' && name === 'cancel') throw down();
        },
      });
      const { id } = await create(on);
      await until(async () => (await stored(id)).status === 'running');
      away = true;
      const asked = refusal(() => cancel(on, id));
      let answered = false;
      void asked.then(() => {
        answered = true;
      });
      await until(() => answered, 500);
      expect(await asked).toMatchObject({ status: 408 });
      away = false;
      await untilDone(id);
      expect((await retrieve(on, id)).status).toBe('cancelled');
    });
  });

  it('keeps trying while the provider is away, for each call of a job', async () => {
    const failures = new Map<string, number>();
    const on = node({
      around: (name, when) => {
        const count = failures.get(`${name} ${when}`) ?? 0;
        failures.set(`${name} ${when}`, count + 1);
        if (count < 3) throw down();
      },
    });
    const { id } = await create(on);
    await untilDone(id, 60_000);
    expect((await retrieve(on, id)).status).toBe('succeeded');
    expect(trainer.jobs.size).toBe(1);
    expect(trainer.files.size).toBe(1);
    expect([...trainer.open]).toEqual([]);
    const list = await events(on, id);
    expect(statuses(list)).toEqual(['validating_files', 'queued', 'running', 'succeeded']);
    expect(list.filter((event) => event.type === 'provider')).toHaveLength(4);
  });

  it('fails a job with a clear error when its provider was removed, after a bounded time', async () => {
    trainer.script = ['running'];
    const on = node();
    const { id } = await create(on);
    await until(async () => (await stored(id)).status === 'running');
    on.revoke();
    const from = clock.now();
    await untilDone(id, 30_000);
    expect(clock.now() - from).toBeLessThan(60 * 60_000);
    const failed = await retrieve(on, id);
    expect(failed).toMatchObject({ status: 'failed', error: { code: 'provider_error', param: null } });
    expect(failed.error?.message).toContain('trainer-prod does not exist in this workspace any more');
  });

  it('fails a job that the provider refuses, says why without the key, and removes what it uploaded', async () => {
    const on = node({
      around: (name, when) => {
        if (name === 'create' && when === 'before') {
          throw new SluiceError('provider_error', `no such model for key ${PROVIDER_KEY}`, {
            provider: { status: 400, type: 'invalid_request_error', code: 'model_not_found' },
          });
        }
      },
    });
    const { id } = await create(on);
    await untilDone(id);
    const failed = await retrieve(on, id);
    expect(failed).toMatchObject({ status: 'failed', error: { code: 'model_not_found' } });
    expect(JSON.stringify([failed, await events(on, id)])).not.toContain(PROVIDER_KEY);
    expect([...trainer.files.keys()]).toEqual([]);
  });

  it('does each transition once and makes one job upstream when two nodes run over one store', async () => {
    const other = await store.another();
    const one = node({ name: 'n1' });
    const two = node({ name: 'n2', tables: other });
    const ids: string[] = [];
    for (let i = 0; i < 6; i++) ids.push((await create(i % 2 === 0 ? one : two)).id);
    for (const id of ids) await untilDone(id);
    expect(trainer.jobs.size).toBe(6);
    expect(trainer.files.size).toBe(6);
    for (const id of ids) {
      const list = await events(one, id);
      expect(statuses(list)).toEqual(['validating_files', 'queued', 'running', 'succeeded']);
      expect(list.filter((event) => event.type === 'provider')).toHaveLength(4);
    }
  });
});

describe('a node that is killed', () => {
  let store: JobStore;
  let clock: TestClock;

  beforeAll(async () => {
    clock = new TestClock();
    store = await jobStore('sqlite', clock);
    await store.tables.systemWrite((tx) =>
      tx.insert('files', {
        id: 'gw_file_train',
        organisation_id: 'o1',
        workspace_id: 'w1',
        filename: 'train.jsonl',
        purpose: 'fine-tune',
        content_type: 'application/jsonl',
        bytes: DATASET.length,
        status: 'uploaded',
        status_details: null,
        created_by: null,
        created_at: clock.now(),
      }),
    );
  });
  afterAll(() => store.close());

  async function life(killAt: number, end: JobStatus): Promise<number> {
    const trainer = new Trainer();
    trainer.script = ['running', end];
    const blobs = memoryBlobs();
    blobs.held.set('gw_file_train', Buffer.from(DATASET));
    const start = (tables: Tables, around?: Around) =>
      startNode({ tables, clock, blobs, trainer, ...(around === undefined ? null : { around }) });
    const calm = start(store.tables);
    await calm.scheduler.close();
    const { id } = parsed(await calm.jobs.create(objectCall(calm, 'finetune_create', { body: BODY })));
    const look = async () => {
      const found = await store.tables.systemRead((tx) => tx.find('training_jobs', { id }));
      if (found === undefined) throw new Error('no such job');
      return found;
    };
    const run = async (on: TrainerNode, stop: () => boolean) => {
      for (let i = 0; i < 60; i++) {
        await on.scheduler.idle();
        if (stop() || (await look()).step === 'done') return;
        await clock.advance(60_000);
      }
    };
    const { tables, around, effects } = mortal(store.tables, killAt);
    const first = start(tables, around);
    await run(first, () => effects() >= killAt);
    const made = effects();
    await first.scheduler.close();
    const second = start(store.tables);
    await run(second, () => false);
    await second.scheduler.close();

    const row = await look();
    expect(row).toMatchObject({ step: 'done', status: end, holder: null });
    expect(trainer.jobs.size).toBe(1);
    expect([...trainer.open]).toEqual([]);
    expect(trainer.files.size).toBe(end === 'succeeded' ? 1 : 0);
    const events = await store.tables.systemRead((tx) =>
      tx.list('training_events', { where: { job_id: id }, orderBy: [['seq', 'asc']] }),
    );
    const entered = events.filter((event) => event.data?.type === 'status').map((event) => event.data?.status);
    // A look whose answer was lost may have been the only one that found the job running.
    if (end === 'succeeded') expect(entered).toEqual(['validating_files', 'queued', 'running', end]);
    else expect([...new Set(entered)]).toEqual(entered);
    expect([entered[0], entered.at(-1)]).toEqual(['validating_files', end]);
    expect(events.filter((event) => event.data?.type === 'provider')).toHaveLength(3);
    expect(events.map((event) => event.seq)).toEqual(events.map((_, index) => index + 1));
    return made;
  }

  it.each(['succeeded', 'failed'] as const)(
    'before or after any of its writes or calls leaves one job upstream, no orphan and each event once (%s)',
    async (end) => {
      let killAt = 1;
      for (; ; killAt++) {
        const made = await life(killAt, end);
        if (made < killAt) break;
      }
      // Claim, three steps to the creation, two looks, results and cleaning, each with a write before and after.
      expect(killAt).toBeGreaterThan(30);
    },
    120_000,
  );
});
