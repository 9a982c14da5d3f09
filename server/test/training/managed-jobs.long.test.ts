/** Fine-tuning jobs that Sluice runs itself, from the create call to the final state, on both engines. */
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { FINAL_JOB, type FineTuningJob, type JobStatus } from '../../src/operations/training.ts';
import type { ObjectAnswer } from '../../src/runtime/object-call.ts';
import { advance } from '../../src/training/managed/job-row.ts';
import { ENGINES } from '../support/job-store.ts';
import {
  addFile,
  BODY,
  blobs,
  clock,
  create,
  DATASET,
  events,
  type Listed,
  node,
  parsed,
  retrieve,
  row,
  statuses,
  store,
  stored,
  trainer,
  until,
  untilDone,
  useJobs,
} from '../support/managed-jobs.ts';
import { type memoryBlobs, objectCall, PROVIDER_KEY } from '../support/trainer.ts';
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

describe.each(ENGINES)('gateway-managed jobs on %s', (engine) => {
  useJobs(engine);

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
