/** Files, jobs and batches of the provider inside the process: the life-cycle by an injected clock, then the whole server. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import fc from 'fast-check';
import type OpenAI from 'openai';
import { toFile } from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemTenant } from '../../src/auth/tenant.ts';
import { TestClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { BatchRequest, JobRequest } from '../../src/operations/training.ts';
import { parseModelName } from '../../src/providers/sandbox/model.ts';
import type {
  AdapterContext,
  BatchesAdapter,
  FilesAdapter,
  JobsAdapter,
  TrainingAdapter,
} from '../../src/providers/training.ts';
import { openDiskBlobs } from '../../src/store/disk/blobs.ts';
import type { Blobs } from '../../src/store/ports.ts';
import { sandboxTraining } from '../../src/training/sandbox/sandbox.ts';
import { ENGINES, type JobStore, jobStore } from '../support/job-store.ts';
import { type ObjectServer, startObjectServer } from '../support/object-server.ts';
import { refusal, textOf, walk } from './support.ts';

const row = (i: number) =>
  JSON.stringify({
    messages: [
      { role: 'user', content: `Question ${i}` },
      { role: 'assistant', content: `Answer ${i}` },
    ],
  });
const ROWS = Array.from({ length: 12 }, (_, i) => row(i)).join('\n');
const pair = JSON.stringify({
  input: { messages: [{ role: 'user', content: 'Hello' }] },
  preferred_output: [{ role: 'assistant', content: 'Hi' }],
  non_preferred_output: [{ role: 'assistant', content: 'What?' }],
});
const lineOf = (id: string, model: string, content = id) =>
  JSON.stringify({
    custom_id: id,
    method: 'POST',
    url: '/v1/chat/completions',
    body: { model, messages: [{ role: 'user', content }] },
  });

const jobRequest = (training_file: string, more: Partial<JobRequest> = {}): JobRequest => ({
  shape: 'A',
  model: 'echo',
  upstreamModel: 'echo',
  training_file,
  validation_file: null,
  suffix: 'v1',
  method: 'supervised',
  hyperparameters: { n_epochs: 3, learning_rate_multiplier: 0.5, batch_size: 4 },
  hyperparametersPath: 'method.supervised.hyperparameters',
  job_name: null,
  role_arn: null,
  output_file: null,
  seed: null,
  integrations: null,
  metadata: null,
  extra: {},
  body: {},
  ...more,
});

const batchRequest = (input_file_id: string, more: Partial<BatchRequest> = {}): BatchRequest => ({
  input_file_id,
  endpoint: '/v1/chat/completions',
  completion_window: '24h',
  metadata: null,
  model: null,
  job_name: null,
  role_arn: null,
  output_data_config: null,
  extra: {},
  body: {},
  ...more,
});

describe.each(ENGINES)('the life of sandbox objects on %s', (engine) => {
  const clock = new TestClock();
  let store: JobStore;
  let blobs: Blobs;
  let folder: string;
  let context: AdapterContext;
  let files: FilesAdapter;
  let jobs: JobsAdapter;
  let batches: BatchesAdapter;
  let other: Required<TrainingAdapter>;

  beforeAll(async () => {
    store = await jobStore(engine, clock);
    folder = mkdtempSync(join(tmpdir(), 'sluice-sandbox-'));
    blobs = await openDiskBlobs({ dir: folder });
    const open = (workspace: string) =>
      sandboxTraining(
        { tables: store.tables, blobs, clock, log: silentLog },
        systemTenant('o1', workspace),
      ) as Required<TrainingAdapter>;
    ({ files, jobs, batches } = open('w1'));
    other = open('w2');
    context = {
      credentials: { key: null, settings: {} },
      base: '',
      customHost: false,
      call: () => Promise.reject(new Error('the sandbox calls nobody')),
      header: () => undefined,
      dropParams: new Set(),
      now: () => clock.now(),
      uuid: () => uuidv7(clock),
      tokens: { get: () => Promise.reject(new Error('the sandbox needs no token')), drop: () => undefined },
    };
  });
  afterAll(async () => {
    await store?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  const upload = async (text: string, purpose = 'fine-tune') =>
    (
      await files.upload(
        {
          filename: 'rows.jsonl',
          purpose,
          contentType: 'application/jsonl',
          stream: Readable.from([Buffer.from(text)]),
          bytes: null,
        },
        context,
      )
    ).id;

  it('a job goes through every state by the clock, with one event for each, and says it is the sandbox', async () => {
    const started = clock.now();
    const { id } = await jobs.create(jobRequest(await upload(ROWS)), context);
    const seen: string[] = [];
    const states: [number, string][] = [
      [0, 'validating_files'],
      [499, 'validating_files'],
      [500, 'queued'],
      [1000, 'running'],
      [4999, 'running'],
      [5000, 'succeeded'],
      [86_400_000, 'succeeded'],
    ];
    for (const [at, status] of states) {
      clock.jump(started + at - clock.now());
      const job = await jobs.retrieve(id, context);
      expect(job.status, `after ${at} ms`).toBe(status);
      expect(job.system_fingerprint).toBe('sandbox');
      const final = status === 'succeeded';
      expect(job.finished_at !== null).toBe(final);
      expect(job.fine_tuned_model !== null).toBe(final);
      expect(job.trained_tokens !== null).toBe(final);
      expect(job.estimated_finish !== null).toBe(status === 'running');
      seen.push(status);
    }
    const { data } = await jobs.events(id, { after: null, limit: 100 }, context);
    expect(data.map((event) => event.message).reverse()).toEqual([
      `Created fine-tuning job: ${id}`,
      expect.stringContaining('Validating training file: file-'),
      'Files validated, moving job to queued state',
      'Fine-tuning job started',
      expect.stringMatching(/^Step 3\/9: training loss=\d\.\d\d$/),
      expect.stringMatching(/^Step 6\/9: /),
      expect.stringMatching(/^Step 9\/9: /),
      expect.stringMatching(/^New fine-tuned model created: ft:echo:v1:[0-9a-z]{8}$/),
      'The job has successfully completed',
    ]);
    expect(new Set(data.map((event) => event.id)).size).toBe(data.length);
  });

  it('checkpoints appear one by one with a loss that falls, and the last one is the tuned model', async () => {
    const started = clock.now();
    const hyperparameters = { n_epochs: 10, learning_rate_multiplier: 1, batch_size: 1 } as const;
    const validation_file = await upload(ROWS);
    const { id } = await jobs.create(jobRequest(await upload(ROWS), { hyperparameters, validation_file }), context);
    const counts: number[] = [];
    for (const at of [0, 1000, 1400, 3000, 5000]) {
      clock.jump(started + at - clock.now());
      counts.push((await jobs.checkpoints(id, { after: null, limit: 100 }, context)).data.length);
    }
    expect(counts).toEqual([0, 0, 1, 5, 10]);
    const { data } = await jobs.checkpoints(id, { after: null, limit: 100 }, context);
    const losses = data.map((checkpoint) => checkpoint.metrics.train_loss ?? 0).reverse();
    for (const [i, loss] of losses.entries()) if (i > 0) expect(loss).toBeLessThan(losses[i - 1] ?? 0);
    expect(data[0]?.metrics.valid_loss).toBeGreaterThan(data[0]?.metrics.train_loss ?? 0);
    const job = await jobs.retrieve(id, context);
    expect(data[0]?.fine_tuned_model_checkpoint).toBe(job.fine_tuned_model);
    expect(data[1]?.fine_tuned_model_checkpoint).toBe(`${job.fine_tuned_model}:ckpt-step-108`);
    expect(await walk((page) => jobs.checkpoints(id, page, context), 3)).toEqual(data.map((one) => one.id));
  });

  it('the same request over the same file has the same loss, seed and tokens', async () => {
    const results: unknown[] = [];
    for (let i = 0; i < 2; i++) {
      const { id } = await jobs.create(jobRequest(await upload(ROWS), { upstreamModel: 'echo?train_ms=0' }), context);
      const job = await jobs.retrieve(id, context);
      expect(job.status).toBe('succeeded');
      const [file] = job.result_files;
      const csv = await textOf((await files.content(file ?? '', context)).stream);
      expect(csv.split('\n')[0]).toBe('step,train_loss,train_mean_token_accuracy');
      results.push([job.seed, job.trained_tokens, csv]);
    }
    expect(results[0]).toEqual(results[1]);
    const { id } = await jobs.create(jobRequest(await upload(`${ROWS}\n${row(12)}`), { seed: 7 }), context);
    expect((await jobs.retrieve(id, context)).seed).toBe(7);
  });

  it.each([
    ['a line that is no JSON', `${row(1)}\nnonsense`, 'supervised', 'line 2: the line is not valid JSON.'],
    ['a row without messages', '{"text":"x"}', 'supervised', 'line 1: '],
    ['a chat row for DPO', row(1), 'dpo', 'line 1: '],
    ['an empty file', '\n', 'supervised', 'the data set'],
  ] as const)('%s fails the job, which names the file and the line', async (_title, text, method, fault) => {
    const message = expect.stringMatching(`^training_file cannot be used: ${fault}`);
    const started = clock.now();
    const { id, status } = await jobs.create(jobRequest(await upload(text), { method }), context);
    expect(status).toBe('validating_files');
    clock.jump(started + 500 - clock.now());
    expect(await jobs.retrieve(id, context)).toMatchObject({
      status: 'failed',
      error: { code: 'invalid_training_file', message, param: 'training_file' },
      fine_tuned_model: null,
      result_files: [],
      trained_tokens: 0,
    });
    const [last] = (await jobs.events(id, { after: null, limit: 1 }, context)).data;
    expect(last).toMatchObject({
      level: 'error',
      message: expect.stringMatching(`^The job failed: training_file.*${fault}`),
    });
  });

  it('a preference job trains; a bad validation file is named', async () => {
    const good = await upload(pair);
    const request = { method: 'dpo', upstreamModel: 'echo?train_ms=0' } as const;
    const made = await jobs.create(jobRequest(good, request), context);
    expect((await jobs.retrieve(made.id, context)).status).toBe('succeeded');
    const bad = await jobs.create(jobRequest(good, { ...request, validation_file: await upload('x') }), context);
    expect((await jobs.retrieve(bad.id, context)).error).toMatchObject({
      code: 'invalid_validation_file',
      param: 'validation_file',
    });
  });

  it('a job can be cancelled in every state that is not final, and stays cancelled', async () => {
    const file = await upload(ROWS);
    for (const [at, before] of [
      [0, 'validating_files'],
      [600, 'queued'],
      [3000, 'running'],
    ] as const) {
      const started = clock.now();
      const { id } = await jobs.create(jobRequest(file), context);
      clock.jump(started + at - clock.now());
      expect((await jobs.retrieve(id, context)).status).toBe(before);
      expect((await jobs.cancel(id, context)).status).toBe('cancelled');
      clock.jump(10_000);
      const job = await jobs.retrieve(id, context);
      expect(job).toMatchObject({ status: 'cancelled', fine_tuned_model: null, result_files: [], error: null });
      expect(job.finished_at).toBe(Math.floor((started + at) / 1000));
      const [last] = (await jobs.events(id, { after: null, limit: 1 }, context)).data;
      expect(last?.message).toBe('The job was cancelled');
      expect(await refusal(() => jobs.cancel(id, context))).toMatchObject({ status: 400, code: 'AB01' });
    }
    const { id } = await jobs.create(jobRequest(file, { upstreamModel: 'echo?train_ms=0' }), context);
    expect(await refusal(() => jobs.cancel(id, context))).toMatchObject({ status: 400, code: 'AB01' });
  });

  it('a job never goes back, whatever the clock and the calls do', async () => {
    const file = await upload(ROWS);
    const order = ['validating_files', 'queued', 'running', 'succeeded', 'cancelled'];
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ wait: fc.integer({ min: 0, max: 2000 }), cancel: fc.boolean() }), { maxLength: 6 }),
        async (moves) => {
          const { id } = await jobs.create(jobRequest(file), context);
          let place = 0;
          let events = 0;
          for (const { wait, cancel } of moves) {
            clock.jump(wait);
            if (cancel) await jobs.cancel(id, context).catch(() => null);
            const now = order.indexOf((await jobs.retrieve(id, context)).status);
            const told = (await jobs.events(id, { after: null, limit: 100 }, context)).data.length;
            expect(now).toBeGreaterThanOrEqual(place);
            expect(told).toBeGreaterThanOrEqual(events);
            if (place >= 3) expect(now).toBe(place);
            place = now;
            events = told;
          }
        },
      ),
      { numRuns: 15 },
    );
  });

  it.each([
    ['a field nobody knows', { extra: { flavour: 'mint' } }, 'flavour'],
    ['a suffix that is no part of a model name', { suffix: 'a:b' }, 'suffix'],
    ['a train_ms that is no number', { upstreamModel: 'echo?train_ms=soon' }, 'model'],
    ['a parameter the model does not know', { upstreamModel: 'echo?speed=9' }, 'model'],
    [
      '51 epochs',
      { hyperparameters: { n_epochs: 51, learning_rate_multiplier: 1, batch_size: 1 } },
      'method.supervised.hyperparameters.n_epochs',
    ],
  ] as const)('%s is refused by name before anything is stored', async (_title, more, param) => {
    const job = jobRequest('file-none', more as Partial<JobRequest>);
    expect(await refusal(() => jobs.prepare(job, context))).toMatchObject({ status: 400, param });
    expect(await refusal(() => jobs.create(job, context))).toMatchObject({ status: 400, param });
  });

  it('a field listed in drop_params is left out instead', async () => {
    const job = jobRequest('file-none', { extra: { flavour: 'mint' } });
    expect(jobs.prepare(job, { ...context, dropParams: new Set(['flavour']) })).toMatchObject({ method: 'POST' });
  });

  it('lists page completely, newest first, and another workspace sees nothing', async () => {
    const file = await upload(ROWS);
    const made: string[] = [];
    clock.jump(1);
    for (let i = 0; i < 5; i++) made.push((await jobs.create(jobRequest(file), context)).id);
    for (const limit of [1, 2, 3, 100]) {
      const walked = await walk((page) => jobs.list(page, context), limit);
      expect(walked.slice(0, 5).sort()).toEqual([...made].sort());
      expect(new Set(walked).size).toBe(walked.length);
    }
    expect(await refusal(() => jobs.list({ after: 'ftjob-none', limit: 1 }, context))).toMatchObject({
      status: 400,
      param: 'after',
    });
    expect((await other.jobs.list({ after: null, limit: 100 }, context)).data).toEqual([]);
    expect(await other.files.list(null, context)).toEqual([]);
    for (const call of [
      () => other.jobs.retrieve(made[0] ?? '', context),
      () => other.jobs.cancel(made[0] ?? '', context),
      () => other.jobs.events(made[0] ?? '', { after: null, limit: 1 }, context),
      () => other.files.retrieve(file, context),
      () => other.files.content(file, context),
      () => other.files.remove(file, context),
      () => other.jobs.create(jobRequest(file), context),
    ]) {
      expect(await refusal(call)).toMatchObject({ status: 404 });
    }
  });

  it('a call that is repeated with the same uuid finds what the first one made', async () => {
    const again = { ...context, uuid: () => '00000000-0000-8000-a000-000000000001' };
    const put = (filename: string) =>
      files.upload(
        { filename, purpose: 'fine-tune', contentType: 'x', stream: Readable.from([Buffer.from(ROWS)]), bytes: null },
        again,
      );
    const [first, second, other] = [await put('a.jsonl'), await put('a.jsonl'), await put('b.jsonl')];
    expect(second).toEqual(first);
    expect(other.id).not.toBe(first.id);
    const job = await jobs.create(jobRequest(first.id), again);
    expect((await jobs.create(jobRequest(first.id), again)).id).toBe(job.id);
  });

  it('a file is gone with its bytes once it is deleted', async () => {
    const id = await upload('bytes', 'vision');
    await files.remove(id, context);
    expect(await refusal(() => files.content(id, context))).toMatchObject({ status: 404 });
    expect(await blobs.stat(systemTenant('o1', 'w1'), id)).toBeNull();
    const { id: job } = await jobs.create(
      jobRequest(await upload(ROWS), { upstreamModel: 'echo?train_ms=0' }),
      context,
    );
    const [result = ''] = (await jobs.retrieve(job, context)).result_files;
    expect((await files.list('fine-tune-results', context)).map((file) => file.id)).toContain(result);
    await files.remove(result, context);
    expect((await jobs.retrieve(job, context)).result_files).toEqual([]);
    expect(await refusal(() => files.content(result, context))).toMatchObject({ status: 404 });
  });

  it('a batch is answered by the sandbox itself, failures apart, the same however often it is read', async () => {
    const started = clock.now();
    const input = [lineOf('a', 'echo'), lineOf('b', 'error?status=418&times=1'), '', lineOf('c', 'slow?ttft_ms=60000')];
    const { id } = await batches.create(batchRequest(await upload(input.join('\n'), 'batch')), context);
    for (const [at, status] of [
      [0, 'validating'],
      [400, 'in_progress'],
      [3200, 'finalizing'],
      [4000, 'completed'],
    ] as const) {
      clock.jump(started + at - clock.now());
      expect((await batches.retrieve(id, context)).status).toBe(status);
      if (status !== 'completed') {
        expect(await refusal(() => batches.output(id, context))).toMatchObject({ status: 400 });
      }
    }
    const batch = await batches.retrieve(id, context);
    expect(batch).toMatchObject({
      request_counts: { total: 3, completed: 2, failed: 1 },
      completed_at: Math.floor((started + 4000) / 1000),
      system_fingerprint: 'sandbox',
    });
    const texts = await Promise.all(
      [batches.output(id, context), batches.output(id, context)].map(async (one) => textOf(await one)),
    );
    expect(texts[0]).toBe(texts[1]);
    const lines = (texts[0] ?? '')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines.map((line) => [line.custom_id, line.response.status_code])).toEqual([
      ['a', 200],
      ['c', 200],
      ['b', 418],
    ]);
    expect(lines[0].response.body).toMatchObject({ model: 'echo', choices: [{ message: { content: 'a' } }] });
    const output = await textOf((await files.content(batch.output_file_id ?? '', context)).stream);
    const errors = await textOf((await files.content(batch.error_file_id ?? '', context)).stream);
    expect(output + errors).toBe(texts[0]);
    expect(await files.retrieve(batch.output_file_id ?? '', context)).toMatchObject({ purpose: 'batch_output' });
  });

  it('a batch with faults fails and names each line; a batch under way can be cancelled', async () => {
    const started = clock.now();
    const bad = [lineOf('a', 'echo'), lineOf('a', 'echo'), '{"custom_id":1}', 'x'].join('\n');
    const { id } = await batches.create(batchRequest(await upload(bad, 'batch')), context);
    clock.jump(started + 400 - clock.now());
    const failed = await batches.retrieve(id, context);
    expect(failed.status).toBe('failed');
    expect(failed.errors?.data.map((fault) => [fault.line, fault.code])).toEqual([
      [2, 'duplicate_custom_id'],
      [3, 'invalid_custom_id'],
      [4, 'invalid_json_line'],
    ]);
    const input = await upload(lineOf('a', 'echo'), 'batch');
    const cancelled = await batches.create(batchRequest(input, { metadata: { sandbox_batch_ms: '60000' } }), context);
    clock.jump(30_000);
    expect((await batches.cancel(cancelled.id, context)).status).toBe('cancelling');
    expect((await batches.cancel(cancelled.id, context)).status).toBe('cancelling');
    clock.jump(6_000);
    expect((await batches.retrieve(cancelled.id, context)).status).toBe('cancelled');
    expect(await refusal(() => batches.cancel(cancelled.id, context))).toMatchObject({ status: 400, code: 'AB01' });
    expect(await refusal(() => batches.cancel(id, context))).toMatchObject({ status: 400, code: 'AB01' });
  });
});

describe('names of tuned models', () => {
  it('a tuned model and its checkpoints behave as their base, also one with parameters', () => {
    for (const [name, behaviour, numbers] of [
      ['ft:echo:v1:0a1b2c3d', 'echo', {}],
      ['sandbox/ft:echo::0a1b2c3d', 'echo', {}],
      ['ft:lorem?tokens=7:v1:0a1b2c3d:ckpt-step-12', 'lorem', { tokens: 7 }],
      ['ft:gpt-4o:mine:0a1b2c3d', null, {}],
    ] as const) {
      const model = parseModelName(name);
      expect(model.behaviour).toBe(behaviour);
      expect(model.numbers).toMatchObject(numbers);
      expect(model.name).toBe(name.replace('sandbox/', ''));
    }
    expect(() => parseModelName('ft:lorem?tokens=0:v1:0a1b2c3d')).toThrow('tokens must be');
  });

  it('any text is read without a failure of the reader', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.string().map((text) => `ft:${text}:v:0a1b2c3d`),
        ),
        (name) => {
          try {
            parseModelName(name);
          } catch (error) {
            expect((error as Error).name).toBe('Problem');
          }
        },
      ),
    );
  });
});

describe('with the official client, through the server', () => {
  let server: ObjectServer;
  let client: OpenAI;

  beforeAll(async () => {
    server = await startObjectServer();
    client = server.first_.client('sandbox');
  });
  afterAll(() => server?.stop());

  const upload = async (text: string, purpose: 'fine-tune' | 'batch' = 'fine-tune') =>
    client.files.create({ file: await toFile(Buffer.from(text), 'rows.jsonl'), purpose });
  const job = (training_file: string, more: object = {}) =>
    client.fineTuning.jobs.create({
      model: 'echo?train_ms=0',
      training_file,
      suffix: 'tuned',
      method: {
        type: 'supervised',
        supervised: { hyperparameters: { n_epochs: 2, learning_rate_multiplier: 1, batch_size: 4 } },
      },
      ...more,
    } as never);

  it('a model is trained, followed to its result file and answers as its base on three operations', async () => {
    const file = await upload(ROWS);
    expect(await (await client.files.content(file.id)).text()).toBe(ROWS);
    const made = await job(file.id);
    const done = await client.fineTuning.jobs.retrieve(made.id);
    expect(done).toMatchObject({ status: 'succeeded', training_file: file.id, hyperparameters: { n_epochs: 2 } });
    const events: string[] = [];
    for await (const event of client.fineTuning.jobs.listEvents(made.id, { limit: 2 })) events.push(event.message);
    expect(events.at(-1)).toBe(`Created fine-tuning job: ${made.id}`);
    expect(events[0]).toBe('The job has successfully completed');
    const checkpoints = await client.fineTuning.jobs.checkpoints.list(made.id);
    expect(checkpoints.data.map((one) => one.step_number)).toEqual([6, 3]);
    expect(await (await client.files.content(done.result_files[0] ?? '')).text()).toMatch(/^step,train_loss,/);
    const model = `@sandbox/${done.fine_tuned_model}`;
    const messages = [{ role: 'user' as const, content: 'Hello, tuned model' }];
    const chat = await client.chat.completions.create({ model, messages });
    expect(chat).toMatchObject({ model: done.fine_tuned_model, system_fingerprint: 'sandbox' });
    expect(chat.choices[0]?.message.content).toBe('Hello, tuned model');
    expect((await client.responses.create({ model, input: 'Hello, tuned model' })).output_text).toBe(
      'Hello, tuned model',
    );
    const answer = await server.call('/messages', { model, messages, max_tokens: 50 });
    expect(await answer.json()).toMatchObject({ content: [{ type: 'text', text: 'Hello, tuned model' }] });
  });

  it('a job is cancelled while it is under way', async () => {
    const made = await job((await upload(ROWS)).id, { model: 'echo?train_ms=86400000' });
    expect(made.status).toBe('validating_files');
    expect((await client.fineTuning.jobs.cancel(made.id)).status).toBe('cancelled');
    const listed: string[] = [];
    for await (const one of client.fineTuning.jobs.list({ limit: 1 })) listed.push(one.id);
    expect(listed).toContain(made.id);
  });

  it('a batch of the sandbox runs to its output', async () => {
    const file = await upload([lineOf('one', 'echo'), lineOf('two', 'error')].join('\n'), 'batch');
    const batch = await client.batches.create({
      input_file_id: file.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
      metadata: { sandbox_batch_ms: '0' },
    });
    const done = await client.batches.retrieve(batch.id);
    expect(done).toMatchObject({ status: 'completed', request_counts: { total: 2, completed: 1, failed: 1 } });
    const output = await (await client.files.content(done.output_file_id ?? '')).text();
    expect(JSON.parse(output)).toMatchObject({ custom_id: 'one', response: { status_code: 200 }, error: null });
    const errors = await (await client.files.content(done.error_file_id ?? '')).text();
    expect(JSON.parse(errors)).toMatchObject({ custom_id: 'two', response: { status_code: 500 } });
    const whole = await server.first_.send('GET', `/batches/${batch.id}/output`, { 'x-gateway-provider': '@sandbox' });
    expect(whole.text).toBe(output + errors);
  });

  it('another workspace finds nothing of it', async () => {
    const file = await upload(ROWS);
    const made = await job(file.id);
    const theirs = server.second.client('sandbox', {
      'x-gateway-provider': 'sandbox',
      authorization: 'Bearer none',
      'x-gateway-api-key': server.second.key,
    });
    await expect(theirs.files.retrieve(file.id)).rejects.toMatchObject({ status: 404 });
    await expect(theirs.fineTuning.jobs.retrieve(made.id)).rejects.toMatchObject({ status: 404 });
    await expect(theirs.fineTuning.jobs.cancel(made.id)).rejects.toMatchObject({ status: 404 });
    expect((await theirs.fineTuning.jobs.list()).data).toEqual([]);
  });
});
