/** Fine-tuning jobs that Sluice runs itself, from the create call to the final state, on both engines. */
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { TestClock } from '../../src/kernel/clock.ts';
import { SluiceError } from '../../src/kernel/errors.ts';
import { FINAL_JOB, type FineTuningJob, type JobStatus } from '../../src/operations/training.ts';
import type { ObjectAnswer } from '../../src/runtime/object-call.ts';
import type { Blobs, Tables } from '../../src/store/ports.ts';
import { advance } from '../../src/training/managed/job-row.ts';
import { ENGINES, type JobStore, jobStore } from '../support/job-store.ts';
import {
  type Around,
  down,
  memoryBlobs,
  type NodeOptions,
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

const STATES: readonly JobStatus[] = ['validating_files', 'queued', 'running', 'succeeded', 'failed', 'cancelled'];
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  validating_files: ['queued', 'failed', 'cancelled'],
  queued: ['running', 'failed', 'cancelled'],
  running: ['succeeded', 'failed', 'cancelled'],
};

const row = (text: string) =>
  JSON.stringify({
    messages: [
      { role: 'user', content: text },
      { role: 'assistant', content: 'yes' },
    ],
  });
const DATASET = `${[1, 2, 3].map((n) => row(`question ${n}`)).join('\n')}\n`;
const BODY = {
  model: 'base',
  training_file: 'gw_file_train',
  suffix: 'v1',
  method: {
    type: 'supervised',
    supervised: { hyperparameters: { n_epochs: 2, learning_rate_multiplier: 1, batch_size: 1 } },
  },
  gateway_options: { 'x-gateway-virtual-key': 'trainer-prod' },
};

interface Listed<T> {
  readonly data: readonly T[];
  readonly has_more: boolean;
}
interface ShownEvent {
  readonly id: string;
  readonly level: string;
  readonly message: string;
  readonly type?: string;
  readonly status?: string;
}

// biome-ignore lint/suspicious/noExplicitAny: answers are looked into by tests that expect a shape
const parsed = (answer: ObjectAnswer): any => JSON.parse((answer.body as Buffer).toString('utf8'));

describe('the states of a job', () => {
  const first = { status: 'validating_files', created_at: 0, hyperparameters: { n_epochs: 1 } } as FineTuningJob;

  it('never go back, skip none on the way and never leave a final one, whatever a provider reports in whatever order', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...STATES), { maxLength: 30 }), (reported) => {
        let job = first;
        const path: JobStatus[] = ['validating_files'];
        for (const status of reported) {
          const next = advance(job, { status, fine_tuned_model: 'm', trained_tokens: 5, result_files: ['f'] }, 9_000);
          if (FINAL_JOB.has(job.status)) expect(next.job).toBe(job);
          job = next.job;
          path.push(...next.entered);
          expect(job.status).toBe(path.at(-1));
          expect(job.error !== null && job.error !== undefined).toBe(job.status === 'failed');
          expect(job.fine_tuned_model ?? null).toBe(job.status === 'succeeded' ? 'm' : null);
          expect((job.finished_at ?? null) !== null).toBe(FINAL_JOB.has(job.status));
          expect(job.result_files ?? []).toEqual(job.status === 'succeeded' ? ['f'] : []);
        }
        expect(new Set(path).size).toBe(path.length);
        for (let i = 1; i < path.length; i++) expect(ALLOWED[path[i - 1] ?? '']).toContain(path[i]);
      }),
    );
  });
});

describe.each(ENGINES)('gateway-managed jobs on %s', (engine) => {
  let store: JobStore;
  let clock: TestClock;
  let blobs: Blobs;
  let trainer: Trainer;
  const nodes: TrainerNode[] = [];

  beforeAll(async () => {
    clock = new TestClock();
    store = await jobStore(engine, clock);
  });
  afterAll(() => store.close());
  beforeEach(async () => {
    trainer = new Trainer();
    blobs = memoryBlobs();
    await addFile('gw_file_train', DATASET);
    await addFile('gw_file_valid', DATASET);
    await addFile('gw_file_theirs', DATASET, 'w2');
  });
  afterEach(async () => {
    for (const { scheduler } of nodes.splice(0)) await scheduler.close();
    await store.tables.systemWrite(async (tx) => {
      await tx.remove('object_owners', { account: 'acc-1' });
      for (const table of ['training_events', 'training_jobs', 'files'] as const) {
        await tx.remove(table, { id: { gte: '' } });
      }
    });
  });

  async function addFile(id: string, text: string, workspace = 'w1'): Promise<void> {
    const bytes = Buffer.from(text);
    (blobs as ReturnType<typeof memoryBlobs>).held.set(id, bytes);
    await store.tables.systemWrite((tx) =>
      tx.insert('files', {
        id,
        organisation_id: 'o1',
        workspace_id: workspace,
        filename: `${id}.jsonl`,
        purpose: 'fine-tune',
        content_type: 'application/jsonl',
        bytes: bytes.length,
        status: 'uploaded',
        status_details: null,
        created_by: null,
        created_at: clock.now(),
      }),
    );
  }

  function node(options: Partial<NodeOptions> = {}): TrainerNode {
    const made = startNode({ tables: store.tables, clock, blobs, trainer, ...options });
    nodes.push(made);
    return made;
  }

  const create = async (on: TrainerNode, body: object = BODY): Promise<FineTuningJob> =>
    parsed(await on.jobs.create(objectCall(on, 'finetune_create', { body })));
  const retrieve = async (on: TrainerNode, id: string): Promise<FineTuningJob> =>
    parsed(await on.jobs.retrieve(objectCall(on, 'finetune_job', { id })));
  const cancel = async (on: TrainerNode, id: string): Promise<FineTuningJob> =>
    parsed(await on.jobs.cancel(objectCall(on, 'finetune_cancel', { id })));
  const events = async (on: TrainerNode, id: string): Promise<ShownEvent[]> => {
    const answer = await on.jobs.events(objectCall(on, 'finetune_events', { id, query: { limit: '100' } }));
    return [...(parsed(answer) as Listed<ShownEvent>).data].reverse();
  };
  const stored = async (id: string) => {
    const found = await store.tables.systemRead((tx) => tx.find('training_jobs', { id }));
    if (found === undefined) throw new Error('no such job');
    return found;
  };

  /** Lets time pass until `done` holds, for as long as the nodes have work. */
  async function until(done: () => boolean | Promise<boolean>, stepMs = 5_000, steps = 400): Promise<void> {
    for (let i = 0; i < steps; i++) {
      await Promise.all(nodes.map(({ scheduler }) => scheduler.idle()));
      if (await done()) return;
      await clock.advance(stepMs);
    }
    throw new Error('it did not come to that');
  }
  const untilDone = (id: string, stepMs?: number) => until(async () => (await stored(id)).step === 'done', stepMs);

  const statuses = (list: readonly ShownEvent[]) => list.filter((e) => e.type === 'status').map((e) => e.status);

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

  it('runs a job from the create call to its model, each state with one event, results in the file store', async () => {
    const on = node();
    const job = await create(on, { ...BODY, validation_file: 'gw_file_valid', provider_options: { model: 'base:8k' } });
    expect(job).toMatchObject({
      object: 'fine_tuning.job',
      status: 'validating_files',
      model: 'base',
      training_file: 'gw_file_train',
      validation_file: 'gw_file_valid',
      organization_id: 'o1',
      error: null,
      fine_tuned_model: null,
      finished_at: null,
      trained_tokens: null,
      result_files: [],
      estimated_finish: null,
      hyperparameters: { n_epochs: 2 },
    });
    expect(job.id).toMatch(/^gw_ftjob_/);
    const seen = new Set<string>();
    await until(async () => {
      const now = await retrieve(on, job.id);
      seen.add(now.status);
      expect(now.estimated_finish !== null).toBe(now.status === 'running');
      return (await stored(job.id)).step === 'done';
    });
    const done = await retrieve(on, job.id);
    expect(done).toMatchObject({
      id: job.id,
      status: 'succeeded',
      model: 'base',
      seed: 7,
      fine_tuned_model: 'ft:base:8k:ftjob-1',
      trained_tokens: 1234,
      finished_at: Math.max(1_700_000_900, job.created_at),
      error: null,
      estimated_finish: null,
    });
    const [upstream] = [...trainer.jobs.values()];
    expect(trainer.jobs.size).toBe(1);
    expect(upstream?.request).toMatchObject({ upstreamModel: 'base:8k', suffix: 'v1' });
    expect(upstream?.request.body).not.toHaveProperty('gateway_options');
    expect(upstream?.request.body).not.toHaveProperty('provider_options');
    expect(upstream?.request.body.training_file).toBe(upstream?.request.training_file);
    expect([...trainer.files.values()].map(({ text }) => text)).toEqual([DATASET, DATASET]);

    const list = await events(on, job.id);
    expect(statuses(list)).toEqual(['validating_files', 'queued', 'running', 'succeeded']);
    expect(list.find((event) => event.type === 'estimate')?.message).toMatch(/3 rows and \d+ tokens.*2 epochs/);
    expect(list.filter((event) => event.type === 'provider').map((event) => event.message)).toEqual([
      'Created',
      'Now queued',
      'Now running',
      'Now succeeded',
    ]);

    const [result = ''] = done.result_files;
    expect(result).toMatch(/^gw_file_/);
    const file = await store.tables.systemRead((tx) => tx.find('files', { id: result }));
    expect(file).toMatchObject({ purpose: 'fine-tune-results', workspace_id: 'w1', filename: 'metrics.csv' });
    expect((blobs as ReturnType<typeof memoryBlobs>).held.get(result)?.toString()).toBe('step,loss\n1,0.5\n');
    const owners = await store.tables.systemRead((tx) => tx.list('object_owners'));
    expect(owners.map(({ kind, workspace_id }) => `${kind} ${workspace_id}`).sort()).toEqual([
      'file w1',
      'file w1',
      'job w1',
    ]);
  });

  it('refuses before anything is stored or sent what the provider cannot express, and what is not its files', async () => {
    const on = node();
    const refused = (body: object, more: object = {}) =>
      refusal(() => on.jobs.create(objectCall(on, 'finetune_create', { body, ...more })));
    expect(await refused({ ...BODY, role_arn: 'arn:aws:iam::1:role/r' })).toMatchObject({
      status: 400,
      code: 'unsupported_parameter',
      param: 'role_arn',
    });
    expect(await refused({ ...BODY, training_file: 'gw_file_theirs' })).toMatchObject({
      status: 404,
      param: 'training_file',
    });
    expect(await refused({ ...BODY, validation_file: 'gw_file_nowhere' })).toMatchObject({
      status: 404,
      param: 'validation_file',
    });
    expect(await refused({ ...BODY, training_file: 'file-at-the-provider' })).toMatchObject({
      status: 400,
      param: 'training_file',
    });
    expect(await refused({ ...BODY, gateway_options: undefined })).toMatchObject({ status: 400 });
    const options = (more: object) => ({ ...BODY, gateway_options: { ...BODY.gateway_options, ...more } });
    for (const name of [
      'x-gateway-aws-secret-access-key',
      'x-gateway-aws-s3-object-key',
      'x-gateway-provider-file-name',
    ]) {
      expect(await refused(options({ [name]: 'text' }))).toMatchObject({
        status: 400,
        param: `gateway_options.${name}`,
      });
    }
    expect(trainer.calls).toEqual([]);
    expect(await store.tables.systemRead((tx) => tx.count('training_jobs'))).toBe(0);
  });

  it('fails a job whose data set cannot be used with a report of lines and reasons, and asks the provider nothing', async () => {
    const secret = 'the content of a row';
    const bad = JSON.stringify({ messages: [{ role: 'robot', content: secret }] });
    await addFile('gw_file_bad', `${row('fine')}\n${`${bad}\n`.repeat(120)}{"half":`);
    const on = node();
    const job = await create(on, { ...BODY, training_file: 'gw_file_bad' });
    await untilDone(job.id);
    const failed = await retrieve(on, job.id);
    expect(failed).toMatchObject({
      status: 'failed',
      error: { code: 'invalid_training_file', param: 'training_file' },
      fine_tuned_model: null,
    });
    expect(failed.finished_at).not.toBeNull();
    const list = await events(on, job.id);
    const problems = await store.tables.systemRead((tx) => tx.list('training_events', { where: { level: 'error' } }));
    expect(problems.filter((event) => event.data?.type === 'dataset_problem')).toHaveLength(100);
    expect(JSON.stringify(problems)).toContain('training_file line 2: ');
    expect(JSON.stringify([problems, failed])).not.toContain(secret);
    expect(list.at(-1)).toMatchObject({ type: 'status', status: 'failed', level: 'error' });
    expect(trainer.calls).toEqual([]);

    const other = await create(on, { ...BODY, validation_file: 'gw_file_bad' });
    await untilDone(other.id);
    expect((await retrieve(on, other.id)).error).toMatchObject({
      code: 'invalid_validation_file',
      param: 'validation_file',
    });
  });

  it('shows in a dry run the report, tokens, cost, time and the request without its key, and starts nothing', async () => {
    const on = node({ prices: { finetune_config: { pay_per_token: { price: 0.0025 } } } });
    const run = (body: object) =>
      on.jobs.create(objectCall(on, 'finetune_create', { body, dryRun: true })).then(parsed);
    const shown = await run(BODY);
    expect(shown).toMatchObject({
      object: 'dry_run',
      valid: true,
      target: { provider: 'trainer', slug: 'trainer-prod', model: 'base' },
      files: { training_file: { rows: 3, valid: 3, problems: [] }, validation_file: null },
      request: { method: 'POST', url: 'https://trainer.example/v1/jobs', body: { model: 'base', suffix: 'v1' } },
    });
    const { tokens } = shown.files.training_file;
    expect(shown.estimate).toMatchObject({
      tokens,
      epochs: 2,
      trained_tokens: 2 * tokens,
      cost: { usd: (2 * tokens * 25) / 1_000_000, basis: 'finetune_config', usd_per_million_tokens: 25 },
    });
    expect(shown.estimate.seconds).toBeGreaterThan(0);
    expect(JSON.stringify(shown)).not.toContain(PROVIDER_KEY);
    await addFile('gw_file_bad', 'no json');
    const bad = await run({ ...BODY, training_file: 'gw_file_bad' });
    expect(bad).toMatchObject({ valid: false, files: { training_file: { problems: [{ line: 1 }, { line: null }] } } });
    expect(await refusal(() => run({ ...BODY, role_arn: 'r' }))).toMatchObject({ status: 400, param: 'role_arn' });
    expect(trainer.calls).toEqual([]);
    expect(await store.tables.systemRead((tx) => tx.count('training_jobs'))).toBe(0);
  });

  it('is seen by its own workspace only, and has no pause', async () => {
    const on = node();
    const { id } = await create(on);
    const theirs = (run: (call: ReturnType<typeof objectCall>) => Promise<unknown>) =>
      refusal(() => run(objectCall(on, 'finetune_job', { id, workspace: 'w2' })));
    for (const run of [on.jobs.retrieve, on.jobs.cancel, on.jobs.events, on.jobs.checkpoints]) {
      expect(await theirs(run)).toMatchObject({ status: 404, code: 'AB08' });
    }
    const list = parsed(await on.jobs.list(objectCall(on, 'finetune_jobs', { workspace: 'w2' })));
    expect(list).toEqual({ object: 'list', data: [], has_more: false });
    expect(Object.keys(on.jobs)).not.toContain('pause');
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

  it('walks lists of jobs and events completely and without repeats for any page size while more are added', async () => {
    trainer.script = ['running'];
    const on = node();
    const made: string[] = [];
    for (let i = 0; i < 7; i++) {
      made.push((await create(on)).id);
      if (i % 3 === 0) await clock.advance(1);
    }
    const [first = ''] = made;
    await until(async () => (await stored(first)).status === 'running');
    const walk = async (
      list: (query: Record<string, string>) => Promise<ObjectAnswer>,
      limit: number,
      more: () => Promise<unknown>,
    ) => {
      const ids: string[] = [];
      for (;;) {
        const after = ids.at(-1);
        const shown: Listed<{ id: string }> = parsed(
          await list({ limit: String(limit), ...(after === undefined ? null : { after }) }),
        );
        expect(shown.data.length).toBeLessThanOrEqual(limit);
        ids.push(...shown.data.map((one) => one.id));
        if (!shown.has_more) return ids;
        await more();
      }
    };
    const total = (await events(on, first)).map((event) => event.id).reverse();
    let said = 0;
    for (const limit of [1, 2, 3, 5, 100]) {
      const before = [...made].reverse();
      const jobs = await walk(
        (query) => on.jobs.list(objectCall(on, 'finetune_jobs', { query })),
        limit,
        async () => {
          if (made.length < 20) made.push((await create(on)).id);
        },
      );
      expect(new Set(jobs).size).toBe(jobs.length);
      // Jobs of the same millisecond have no order of their own.
      expect(jobs.filter((id) => before.includes(id)).sort()).toEqual(before.sort());

      const seen = await walk(
        (query) => on.jobs.events(objectCall(on, 'finetune_events', { id: first, query })),
        limit,
        async () => {
          trainer.say('ftjob-1', `more ${++said}`);
          await clock.advance(60_000);
          await on.scheduler.idle();
        },
      );
      expect(new Set(seen).size).toBe(seen.length);
      expect(seen.filter((id) => total.includes(id))).toEqual(total);
    }
    expect(said).toBeGreaterThan(0);
    for (const query of [{ after: 'gw_ftjob_none' }, { limit: '0' }, { limit: '101' }] as Record<string, string>[]) {
      expect(await refusal(() => on.jobs.list(objectCall(on, 'finetune_jobs', { query })))).toMatchObject({
        status: 400,
        code: 'AB01',
        param: Object.keys(query)[0],
      });
    }
  });

  it('answers the checkpoints of the provider under its own job id, and none before there are any', async () => {
    trainer.script = ['running'];
    const on = node();
    const { id } = await create(on);
    const checkpoints = async (query: Record<string, string> = {}) =>
      parsed(await on.jobs.checkpoints(objectCall(on, 'finetune_checkpoints', { id, query })));
    expect(await checkpoints()).toEqual({ object: 'list', data: [], first_id: null, last_id: null, has_more: false });
    await until(async () => (await stored(id)).status === 'running');
    for (const step of [1, 2, 3]) {
      trainer.get('ftjob-1').checkpoints.push({
        object: 'fine_tuning.job.checkpoint',
        id: `c${step}`,
        created_at: 1_700_000_000 + step,
        fine_tuned_model_checkpoint: `ft:base:${step}`,
        step_number: step,
        metrics: { step },
        fine_tuning_job_id: 'ftjob-1',
      });
    }
    const shown = await checkpoints({ limit: '2' });
    expect(shown).toMatchObject({ first_id: 'c3', last_id: 'c2', has_more: true });
    expect(shown.data.map((one: { fine_tuning_job_id: string }) => one.fine_tuning_job_id)).toEqual([id, id]);
  });

  it('passes only allowed states for any order of states at the provider', async () => {
    const on = node();
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.constantFrom(...STATES), { minLength: 1, maxLength: 5 }),
        fc.constantFrom<JobStatus>('succeeded', 'failed', 'cancelled'),
        async (reported, end) => {
          trainer.script = [...reported, end];
          const { id } = await create(on);
          const seen: string[] = ['validating_files'];
          await until(async () => {
            const { status } = await retrieve(on, id);
            if (seen.at(-1) !== status) seen.push(status);
            return (await stored(id)).step === 'done';
          }, 60_000);
          const path = statuses(await events(on, id));
          for (let i = 1; i < path.length; i++) expect(ALLOWED[path[i - 1] ?? '']).toContain(path[i]);
          expect(path.at(-1)).toBe([...reported, end].find((status) => FINAL_JOB.has(status)));
          expect(seen.every((status) => path.includes(status))).toBe(true);
        },
      ),
      { numRuns: 12 },
    );
  });
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
