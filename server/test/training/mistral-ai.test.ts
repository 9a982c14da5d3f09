import { Readable } from 'node:stream';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { BatchRequest, JobRequest } from '../../src/operations/training.ts';
import { mistralAi } from '../../src/providers/mistral-ai/mistral-ai.ts';
import { adapterContext, type TestContext } from '../support/adapter-context.ts';
import { batchRequest, readLines, readText, walk } from '../support/lists.ts';
import { type MistralUpstream, startMistral } from '../support/upstreams/mistral-ai.ts';
import { BASE, requestFor } from './fields/inputs.ts';
import { refusal } from './support.ts';

const { jobs, files, batches } = mistralAi.training ?? {};
if (!jobs || !files || !batches) throw new Error('mistral-ai has lost a part');

let upstream: MistralUpstream;
let context: TestContext;

beforeEach(async () => {
  upstream = await startMistral();
  context = adapterContext({ base: upstream.url });
});

afterEach(async () => {
  await context.close();
  await upstream.stop();
  expect(upstream.faults).toEqual([]);
});

const job = (fields: Partial<JobRequest> = {}): JobRequest => requestFor({ base: fields }, 'training_file');
const neutral = BASE.hyperparameters;
const NEW_YEAR = 1_767_225_600;

const row = (id: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  id,
  object: 'job',
  status: 'RUNNING',
  model: 'base-model',
  created_at: NEW_YEAR,
  modified_at: NEW_YEAR + 60,
  training_files: ['file-train'],
  validation_files: null,
  fine_tuned_model: 'ft:base-model:v1',
  trained_tokens: 99,
  hyperparameters: { learning_rate: 0.0005, epochs: 2 },
  metadata: { estimated_start_time: NEW_YEAR + 10, expected_duration_seconds: 300 },
  events: [],
  checkpoints: [],
  ...more,
});

describe('fine-tuning jobs at Mistral', () => {
  it('creates a job that starts by itself and fails on bad rows', async () => {
    const created = await jobs.create(job({ validation_file: 'file-valid' }), context);
    expect(upstream.last).toEqual({
      model: 'base-model',
      training_files: [{ file_id: 'file-train', weight: 1 }],
      validation_files: ['file-valid'],
      hyperparameters: { epochs: 3 },
      suffix: 'v1',
      job_type: 'completion',
      auto_start: true,
      invalid_sample_skip_percentage: 0,
    });
    expect(created).toMatchObject({
      object: 'fine_tuning.job',
      status: 'queued',
      training_file: 'file-train',
      validation_file: 'file-valid',
      hyperparameters: { n_epochs: 3, learning_rate_multiplier: 1 },
      fine_tuned_model: null,
      finished_at: null,
      trained_tokens: null,
      error: null,
      seed: 0,
      result_files: [],
    });
  });

  it('sends an absolute learning rate inside the documented range, and names the range outside of it', async () => {
    await jobs.create(
      job({ hyperparameters: { ...neutral, learning_rate_multiplier: 0.3, n_epochs: 'auto' } }),
      context,
    );
    expect(upstream.last.hyperparameters).toEqual({ learning_rate: 0.00003 });
    for (const multiplier of [10_001, 0.00001]) {
      const request = job({ hyperparameters: { ...neutral, learning_rate_multiplier: multiplier } });
      await expect(jobs.create(request, context)).rejects.toMatchObject({
        kind: 'unsupported_parameter',
        param: 'method.supervised.hyperparameters.learning_rate_multiplier',
        message: expect.stringContaining('use a number from 0.0001 to 10000'),
      });
    }
  });

  it('refuses a suffix of 19 characters, preference training and batch sizes by name, before any call', async () => {
    const cases: [Partial<JobRequest>, string][] = [
      [{ suffix: 'x'.repeat(19) }, 'suffix'],
      [{ method: 'dpo' }, 'method.type'],
      [{ hyperparameters: { ...neutral, batch_size: 2 } }, 'method.supervised.hyperparameters.batch_size'],
    ];
    for (const [fields, param] of cases) {
      await expect(jobs.create(job(fields), context)).rejects.toMatchObject({ kind: 'unsupported_parameter', param });
    }
    expect(upstream.received).toEqual([]);
    await jobs.create(job({ suffix: 'x'.repeat(18) }), context);
  });

  it.each([
    ['VALIDATING', 'validating_files'],
    ['VALIDATED', 'validating_files'],
    ['QUEUED', 'queued'],
    ['STARTED', 'queued'],
    ['RUNNING', 'running'],
    ['SUCCESS', 'succeeded'],
    ['FAILED_VALIDATION', 'failed'],
    ['FAILED', 'failed'],
    ['CANCELLATION_REQUESTED', 'cancelled'],
    ['CANCELLED', 'cancelled'],
    ['SOMETHING_NEW', 'running'],
  ])('shows %s as %s', async (status, ours) => {
    upstream.jobs.set('job-1', row('job-1', { status }));
    const found = await jobs.retrieve('job-1', context);
    const final = ['succeeded', 'failed', 'cancelled'].includes(ours);
    expect(found).toMatchObject({
      status: ours,
      finished_at: final ? NEW_YEAR + 60 : null,
      trained_tokens: final ? 99 : null,
      fine_tuned_model: ours === 'succeeded' ? 'ft:base-model:v1' : null,
      estimated_finish: ours === 'running' ? NEW_YEAR + 310 : null,
      hyperparameters: { n_epochs: 2, learning_rate_multiplier: 5 },
    });
    expect(found.error === null).toBe(ours !== 'failed');
    if (status === 'FAILED_VALIDATION') expect(found.error?.param).toBe('training_file');
  });

  it('finds events and checkpoints inside the job, with ids that stay when more are added', async () => {
    const event = (second: number, data: object): object => ({ name: 'status-updated', data, created_at: second });
    const stored = row('job-1', {
      status: 'FAILED',
      events: [event(3, { error: 'disk full' }), event(2, { status: 'RUNNING' }), event(1, { status: 'QUEUED' })],
      checkpoints: [10, 20].map((step) => ({
        step_number: step,
        created_at: NEW_YEAR + step,
        metrics: { train_loss: 1 / step, valid_loss: null },
      })),
    });
    upstream.jobs.set('job-1', stored);
    const first = await jobs.events('job-1', { after: null, limit: 2 }, context);
    expect(first).toMatchObject({
      has_more: true,
      data: [
        { id: 'job-1:2', level: 'error', message: 'status-updated: disk full', created_at: 3 },
        { id: 'job-1:1', level: 'info', message: 'status-updated: RUNNING', created_at: 2 },
      ],
    });
    expect((await jobs.retrieve('job-1', context)).error).toEqual({
      code: 'provider_error',
      message: 'disk full',
      param: null,
    });
    stored.events = [event(4, { status: 'FAILED' }), ...(stored.events as object[])];
    const second = await jobs.events('job-1', { after: 'job-1:1', limit: 2 }, context);
    expect(second.data.map(({ id }) => id)).toEqual(['job-1:0']);
    const points = await jobs.checkpoints('job-1', { after: null, limit: 5 }, context);
    expect(points.data).toEqual([
      {
        object: 'fine_tuning.job.checkpoint',
        id: 'job-1:20',
        created_at: NEW_YEAR + 20,
        fine_tuned_model_checkpoint: 'job-1:20',
        step_number: 20,
        metrics: { step: 20, train_loss: 0.05 },
        fine_tuning_job_id: 'job-1',
      },
      expect.objectContaining({ id: 'job-1:10' }),
    ]);
    stored.status = 'SUCCESS';
    const done = await jobs.checkpoints('job-1', { after: null, limit: 1 }, context);
    expect(done.data[0]?.fine_tuned_model_checkpoint).toBe('ft:base-model:v1');
  });

  it('walks the whole list in any page size while jobs are added, also when many share a second', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(3), { maxLength: 20 }), fc.integer({ min: 1, max: 7 }), async (times, limit) => {
        upstream.jobs.clear();
        const add = (second: number): void => {
          const id = `job-${upstream.jobs.size}`;
          upstream.jobs.set(id, row(id, { created_at: NEW_YEAR + second }));
        };
        times.forEach(add);
        const before = [...upstream.jobs.keys()];
        const seen = await walk((after) => {
          if (after !== null && upstream.jobs.size < 50) add(9);
          return jobs.list({ after, limit }, context);
        });
        expect(new Set(seen).size).toBe(seen.length);
        expect(before.filter((id) => !seen.includes(id))).toEqual([]);
      }),
      { numRuns: 25 },
    );
    expect(await refusal(() => jobs.list({ after: 'job-gone', limit: 3 }, context))).toMatchObject({
      status: 400,
      param: 'after',
    });
  });

  it('reaches past the first page of the provider', async () => {
    for (let i = 0; i < 250; i++) upstream.jobs.set(`job-${i}`, row(`job-${i}`, { created_at: NEW_YEAR + i }));
    const seen = await walk((after) => jobs.list({ after, limit: 100 }, context));
    expect(seen).toHaveLength(250);
    expect(seen[0]).toBe('job-249');
    expect((await jobs.findByName?.(job({ training_file: 'file-train' }), context))?.id).toBe('job-249');
    expect(await jobs.findByName?.(job({ training_file: 'file-new' }), context)).toBeNull();
  });

  it('cancels a job, and says 400 for one that has ended', async () => {
    upstream.jobs.set('job-1', row('job-1'));
    expect((await jobs.cancel('job-1', context)).status).toBe('cancelled');
    upstream.jobs.set('job-2', row('job-2', { status: 'SUCCESS' }));
    expect(await refusal(() => jobs.cancel('job-2', context))).toMatchObject({ status: 400 });
  });

  it('answers 501 once the provider has no such routes, and 404 while only the job is missing', async () => {
    expect(await refusal(() => jobs.retrieve('job-none', context))).toMatchObject({ status: 404 });
    upstream.gone = true;
    for (const call of [jobs.create(job(), context), jobs.list({ after: null, limit: 5 }, context)]) {
      await expect(call).rejects.toMatchObject({ kind: 'unsupported_operation' });
    }
  });

  it('reads validation errors of the provider', async () => {
    upstream.answer = (_, response) => {
      response.writeHead(422, { 'content-type': 'application/json' });
      response.end('{"detail":[{"loc":["body","model"],"msg":"unknown model","type":"value_error"}]}');
    };
    expect(await refusal(() => jobs.create(job(), context))).toMatchObject({
      status: 400,
      type: 'invalid_request_error',
      message: 'unknown model',
      param: 'model',
    });
  });
});

describe('files at Mistral', () => {
  it('uploads a stream of known and of unknown size, and gives the bytes back', async () => {
    for (const bytes of [14, null]) {
      const stream = Readable.from([Buffer.from('{"mess'), Buffer.from('ages":1}')]);
      const made = await files.upload(
        { filename: 'rows "1".jsonl', purpose: 'fine-tune', contentType: 'application/jsonl', stream, bytes },
        context,
      );
      expect(made).toMatchObject({ object: 'file', bytes: 14, purpose: 'fine-tune', status: 'processed' });
      upstream.contents.set(made.id, Buffer.from('stored'));
      expect(await readText((await files.content(made.id, context)).stream)).toBe('stored');
      await files.remove(made.id, context);
      expect(await refusal(() => files.retrieve(made.id, context))).toMatchObject({ status: 404 });
    }
  });

  it('lists every page by purpose under our names and hides files of other products', async () => {
    const put = (id: string, more: object): void => {
      upstream.files.set(id, { id, bytes: 1, created_at: 1, filename: id, sample_type: 'instruct', ...more });
    };
    for (let i = 0; i < 210; i++) put(`file-${i}`, { purpose: 'fine-tune', created_at: i });
    put('in', { purpose: 'batch', sample_type: 'batch_request', created_at: 1000 });
    put('out', { purpose: 'batch', sample_type: 'batch_result', created_at: 1001 });
    put('err', { purpose: 'batch', sample_type: 'batch_error', created_at: 1002 });
    put('ocr', { purpose: 'ocr', created_at: 1003 });
    expect((await files.list(null, context)).slice(0, 4).map(({ id }) => id)).toEqual(['err', 'out', 'in', 'file-209']);
    expect(await files.list('fine-tune', context)).toHaveLength(210);
    expect((await files.list('batch_output', context)).map(({ id }) => id)).toEqual(['err', 'out']);
    expect((await files.list('batch', context)).map(({ id }) => id)).toEqual(['in']);
    const calls = upstream.received.length;
    expect(await files.list('vision', context)).toEqual([]);
    expect(upstream.received).toHaveLength(calls);
    expect(await refusal(() => files.retrieve('ocr', context))).toMatchObject({ status: 404 });
  });

  it('refuses purposes it does not keep, by name', async () => {
    const stream = Readable.from([Buffer.from('x')]);
    const upload = { filename: 'a', purpose: 'assistants', contentType: 'text/plain', stream, bytes: 1 };
    await expect(files.upload(upload, context)).rejects.toMatchObject({
      kind: 'unsupported_parameter',
      param: 'purpose',
    });
  });
});

describe('batches at Mistral', () => {
  const batch = (fields: Partial<BatchRequest> = {}): BatchRequest => batchRequest({ model: 'm-1', ...fields });

  it('creates a batch for one model with its metadata, and shows counts and times', async () => {
    const made = await batches.create(batch({ metadata: { team: 'search' } }), context);
    expect(upstream.last).toEqual({
      input_files: ['file-in'],
      endpoint: '/v1/chat/completions',
      model: 'm-1',
      metadata: { team: 'search' },
      timeout_hours: 24,
    });
    Object.assign(upstream.batches.get(made.id) ?? {}, {
      status: 'TIMEOUT_EXCEEDED',
      started_at: 10,
      completed_at: 20,
      succeeded_requests: 2,
      failed_requests: 1,
      errors: [{ message: 'too slow', count: 1 }],
    });
    expect(await batches.retrieve(made.id, context)).toMatchObject({
      object: 'batch',
      status: 'expired',
      in_progress_at: 10,
      expired_at: 20,
      input_file_id: 'file-in',
      metadata: { team: 'search' },
      request_counts: { total: 3, completed: 2, failed: 1 },
      errors: { object: 'list', data: [{ message: 'too slow' }] },
    });
  });

  it.each([
    ['QUEUED', 'validating'],
    ['RUNNING', 'in_progress'],
    ['SUCCESS', 'completed'],
    ['FAILED', 'failed'],
    ['TIMEOUT_EXCEEDED', 'expired'],
    ['CANCELLATION_REQUESTED', 'cancelling'],
    ['CANCELLED', 'cancelled'],
    ['SOMETHING_NEW', 'in_progress'],
  ])('shows %s as %s', async (status, ours) => {
    const { id } = await batches.create(batch(), context);
    Object.assign(upstream.batches.get(id) ?? {}, { status });
    expect((await batches.retrieve(id, context)).status).toBe(ours);
  });

  it('needs a model, and refuses what it cannot express by name', async () => {
    expect(await refusal(() => batches.create(batch({ model: null }), context))).toMatchObject({
      status: 400,
      param: 'model',
    });
    const cases: [Partial<BatchRequest>, string][] = [
      [{ endpoint: '/v1/completions' }, 'endpoint'],
      [{ completion_window: 'immediate' }, 'completion_window'],
      [{ role_arn: 'arn' }, 'role_arn'],
      [{ job_name: 'n' }, 'job_name'],
      [{ output_data_config: 's3://b' }, 'output_data_config'],
      [{ extra: { timeout_hours: 3 } }, 'timeout_hours'],
    ];
    for (const [fields, param] of cases) {
      await expect(batches.create(batch(fields), context)).rejects.toMatchObject({
        kind: 'unsupported_parameter',
        param,
      });
    }
    expect(upstream.received).toEqual([]);
  });

  it('walks lists over the pages of the provider, cancels, and finds a batch by its input', async () => {
    const ids: string[] = [];
    for (let i = 0; i < 130; i++) {
      const id = `b-${String(i).padStart(3, '0')}`;
      upstream.batches.set(id, { id, created_at: i, status: 'QUEUED', input_files: [`f${i}`] });
      ids.unshift(id);
    }
    expect(await walk((after) => batches.list({ after, limit: 40 }, context))).toEqual(ids);
    expect((await batches.cancel('b-000', context)).status).toBe('cancelling');
    expect((await batches.findByName?.(batch({ input_file_id: 'f3' }), context))?.id).toBe('b-003');
    expect(await batches.findByName?.(batch({ input_file_id: 'none' }), context)).toBeNull();
    upstream.batches.set('done', { id: 'done', created_at: 1, status: 'SUCCESS' });
    expect(await refusal(() => batches.cancel('done', context))).toMatchObject({ status: 400 });
  });

  it('gives answers under our names, line by line', async () => {
    const { id } = await batches.create(batch(), context);
    const answer = {
      id: 'c',
      model: 'm-1',
      choices: [{ index: 0, finish_reason: 'model_length', message: { content: [{ type: 'text', text: 'hi' }] } }],
    };
    upstream.files.set('out', { id: 'out' });
    upstream.contents.set(
      'out',
      Buffer.from(
        `${JSON.stringify({ id: 'r1', custom_id: 'a', response: { status_code: 200, body: answer }, error: null })}\n`,
      ),
    );
    Object.assign(upstream.batches.get(id) ?? {}, { status: 'SUCCESS', output_file: 'out' });
    expect(await readLines(await batches.output(id, context))).toEqual([
      {
        id: 'r1',
        custom_id: 'a',
        response: {
          status_code: 200,
          request_id: null,
          body: { ...answer, choices: [{ index: 0, finish_reason: 'length', message: { content: 'hi' } }] },
        },
        error: null,
      },
    ]);
  });

  it('writes input lines without what the batch says, as a single call would be written', () => {
    const line = {
      custom_id: 'a',
      method: 'POST',
      url: '/v1/chat/completions',
      body: { model: 'other', messages: [{ role: 'user', content: 'x' }], seed: 3, tool_choice: 'required' },
    };
    expect(batches.inputLine?.(line, batch())).toEqual({
      custom_id: 'a',
      body: { messages: [{ role: 'user', content: 'x' }], random_seed: 3, tool_choice: 'any' },
    });
    expect(() => batches.inputLine?.({ ...line, body: { ...line.body, logprobs: true } }, batch())).toThrow('logprobs');
    expect(() => batches.inputLine?.({ ...line, priority: 1 }, batch())).toThrow('priority');
  });
});
