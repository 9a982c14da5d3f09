import { Readable } from 'node:stream';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SluiceError } from '../../src/kernel/errors.ts';
import type { JsonObject } from '../../src/kernel/json.ts';
import { parseExact } from '../../src/kernel/json-exact.ts';
import { errorStatus } from '../../src/operations/dialects/errors.ts';
import type { BatchRequest, FineTuningJob, JobRequest } from '../../src/operations/training.ts';
import { openai } from '../../src/providers/openai/openai.ts';
import { toFile } from '../../src/providers/openai/training-files.ts';
import { toJob } from '../../src/providers/openai/training-jobs.ts';
import type { UploadRequest } from '../../src/providers/training.ts';
import { adapterContext, type TestContext } from '../support/adapter-context.ts';
import { type OpenAiObjects, startOpenAiObjects } from '../support/upstreams/openai.ts';
import { BASE, requestFor } from './fields/inputs.ts';
import { FIELD_NAMES } from './fields/names.ts';
import { openai as subject } from './fields/openai.ts';
import { refusal, textOf, valueAt, walk } from './support.ts';

const { jobs, files, batches } = openai.training ?? {};
if (!jobs || !files || !batches || !jobs.pause || !jobs.resume || !jobs.findByName)
  throw new Error('a part is missing');
const { pause, resume, findByName } = jobs;

let upstream: OpenAiObjects;
let context: TestContext;

beforeEach(async () => {
  upstream = await startOpenAiObjects();
  context = adapterContext({ base: upstream.base });
});

afterEach(async () => {
  await context.close();
  await upstream.stop();
  expect(upstream.faults).toEqual([]);
});

const job = (base: Partial<JobRequest> = {}): JobRequest => requestFor({ base }, 'training_file');

const upload = (content: string | Buffer, more: Partial<UploadRequest> = {}): UploadRequest => {
  const bytes = Buffer.from(content);
  return {
    filename: 'data.jsonl',
    purpose: 'fine-tune',
    contentType: 'application/jsonl',
    stream: Readable.from([bytes]),
    bytes: bytes.length,
    ...more,
  };
};

const batch = (more: Partial<BatchRequest> = {}): BatchRequest => ({
  input_file_id: 'file-in',
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

describe('every field of a create request', () => {
  it.each(FIELD_NAMES)('%s reaches OpenAI, or is refused by name before any call', async (name) => {
    const request = requestFor(subject, name);
    const fate = subject.table[name];
    if ('place' in fate) {
      await jobs.create(request, context);
      expect(valueAt(upstream.last, fate.place)).toEqual(fate.value);
      expect(jobs.prepare(request, context).body).toEqual(upstream.last);
    } else {
      expect(await refusal(() => jobs.create(request, context))).toMatchObject({
        status: 400,
        code: 'unsupported_parameter',
        param: fate.refused,
      });
      expect(await refusal(async () => jobs.prepare(request, context))).toMatchObject({ param: fate.refused });
      expect(context.calls).toEqual([]);
    }
  });

  it("sends nothing beside what was asked for, the gateway's own options least of all", async () => {
    const request = job();
    await jobs.create(
      {
        ...request,
        body: { ...request.body, gateway_options: { 'x-gateway-virtual-key': 'vk' } },
        upstreamModel: 'x:4k',
      },
      context,
    );
    expect(upstream.last).toEqual({
      model: 'x:4k',
      training_file: 'file-train',
      suffix: 'v1',
      method: {
        type: 'supervised',
        supervised: { hyperparameters: { n_epochs: 3, learning_rate_multiplier: 1, batch_size: 1 } },
      },
    });
  });

  it.each([
    ['suffix', { suffix: 'x'.repeat(65) }],
    ['suffix', { suffix: '' }],
    ['seed', { seed: 2_147_483_648 }],
    ['seed', { seed: -1 }],
    ...[0, 51, 1.5].map((n_epochs) => ['method.supervised.hyperparameters.n_epochs', { n_epochs }] as const),
    ...[0, 257].map((batch_size) => ['method.supervised.hyperparameters.batch_size', { batch_size }] as const),
    ['method.supervised.hyperparameters.learning_rate_multiplier', { learning_rate_multiplier: 0 }],
  ] as const)(
    'refuses %s = %j, which the definition does not allow, and leaves it out when drop_params lists it',
    async (param, value) => {
      const inner = param.startsWith('method.');
      const request = job(
        inner ? { hyperparameters: { ...BASE.hyperparameters, ...value } } : (value as Partial<JobRequest>),
      );
      expect(await refusal(() => jobs.create(request, context))).toMatchObject({ status: 400, param });
      expect(context.calls).toEqual([]);
      const lenient = { ...context, dropParams: new Set([param]) };
      await jobs.create(request, lenient);
      expect(valueAt(upstream.last, param)).toBeUndefined();
    },
  );

  it.each([0, 2.1, -1])('refuses a beta of %d', async (beta) => {
    const request = job({
      method: 'dpo',
      hyperparametersPath: 'method.dpo.hyperparameters',
      hyperparameters: { ...BASE.hyperparameters, beta },
    });
    expect(await refusal(() => jobs.create(request, context))).toMatchObject({
      param: 'method.dpo.hyperparameters.beta',
    });
  });

  it('leaves out what it cannot express when drop_params lists it', async () => {
    const lenient = { ...context, dropParams: new Set(['job_name', 'role_arn', 'output_file']) };
    await jobs.create(job({ job_name: 'a', role_arn: 'b', output_file: 'c' }), lenient);
    expect(Object.keys(upstream.last)).toEqual(['model', 'training_file', 'suffix', 'method']);
  });

  it('names the older place of hyperparameters, and sends them under the method', async () => {
    const hyperparameters = { n_epochs: 'auto', learning_rate_multiplier: 'auto', batch_size: 'auto' } as const;
    await jobs.create(job({ hyperparameters, hyperparametersPath: 'hyperparameters' }), context);
    expect(valueAt(upstream.last, 'method.supervised.hyperparameters')).toEqual(hyperparameters);
    const wrong = job({
      hyperparameters: { ...hyperparameters, n_epochs: 99 },
      hyperparametersPath: 'hyperparameters',
    });
    expect(await refusal(() => jobs.create(wrong, context))).toMatchObject({ param: 'hyperparameters.n_epochs' });
  });

  it('passes on members that no shape names, at the top, in the method and in a tracker', async () => {
    const request = job();
    const body = {
      ...request.body,
      flavour: { deep: [1] },
      method: { type: 'supervised', supervised: { hyperparameters: { warm: 1 }, other: true } },
      integrations: [{ type: 'tracker', tracker: { project: 'p', group: 'g' } }],
    };
    const { body: sent } = jobs.prepare(
      {
        ...request,
        integrations: [{ type: 'tracker', tracker: { project: 'p' } }],
        extra: {
          flavour: { deep: [1] },
          'method.supervised.other': true,
          'method.supervised.hyperparameters.warm': 1,
          'integrations[0].tracker.group': 'g',
        },
        body,
      },
      context,
    );
    expect(sent).toEqual({
      model: 'base-model',
      training_file: 'file-train',
      suffix: 'v1',
      flavour: { deep: [1] },
      method: {
        type: 'supervised',
        supervised: { hyperparameters: { warm: 1, ...BASE.hyperparameters }, other: true },
      },
      integrations: [{ type: 'wandb', wandb: { project: 'p', group: 'g' } }],
    });
  });
});

describe('jobs at OpenAI', () => {
  const tracker = { project: 'p', name: null, entity: 'team', tags: ['a', 'b', 'a'] };

  it('renames the tracker both ways and leaves its tags alone', async () => {
    const made = await jobs.create(job({ integrations: [{ type: 'tracker', tracker }] }), context);
    expect(upstream.last.integrations).toEqual([{ type: 'wandb', wandb: tracker }]);
    expect(made.integrations).toEqual([{ type: 'tracker', tracker }]);
    const again = await jobs.retrieve(made.id, context);
    expect(again.integrations).toEqual([{ type: 'tracker', tracker }]);
  });

  it('answers a job with every field of the shape, whatever the provider leaves out', async () => {
    const made = await jobs.create(job({ upstreamModel: 'x:4k' }), context);
    expect(made).toMatchObject({
      object: 'fine_tuning.job',
      status: 'validating_files',
      error: null,
      fine_tuned_model: null,
      finished_at: null,
      trained_tokens: null,
      result_files: [],
      model: 'base-model',
      organization_id: 'org-123',
      validation_file: null,
      seed: 42,
      hyperparameters: { n_epochs: 'auto', batch_size: 'auto' },
    });
    upstream.state.jobs.set('ftjob-bare', { id: 'ftjob-bare', created_at: 5, status: 'failed' });
    expect(await jobs.retrieve('ftjob-bare', context)).toEqual({
      id: 'ftjob-bare',
      object: 'fine_tuning.job',
      created_at: 5,
      error: { code: 'provider_error', message: 'The provider gave no reason.', param: null },
      fine_tuned_model: null,
      finished_at: null,
      hyperparameters: { n_epochs: 'auto' },
      model: '',
      organization_id: '',
      result_files: [],
      status: 'failed',
      trained_tokens: null,
      training_file: '',
      validation_file: null,
      seed: 0,
    });
  });

  it('reports a held job as queued, and keeps every other state', async () => {
    const { id } = await jobs.create(job(), context);
    expect((await pause(id, context)).status).toBe('queued');
    expect((await resume(id, context)).status).toBe('queued');
    const states = ['validating_files', 'queued', 'running', 'succeeded', 'failed', 'cancelled'];
    for (const status of states) {
      upstream.state.jobs.set(id, { ...upstream.state.jobs.get(id), status });
      expect((await jobs.retrieve(id, context)).status).toBe(status);
    }
    upstream.state.jobs.set(id, { ...upstream.state.jobs.get(id), status: 'dreaming' });
    expect(await refusal(() => jobs.retrieve(id, context))).toMatchObject({ status: 502 });
  });

  it('tells why a job failed, with the file at fault', async () => {
    const { id } = await jobs.create(job(), context);
    const error = { code: 'invalid_training_file', message: 'Line 3 is no JSON.', param: 'training_file' };
    upstream.state.jobs.set(id, { ...upstream.state.jobs.get(id), status: 'failed', error });
    expect((await jobs.retrieve(id, context)).error).toEqual(error);
  });

  it.each([1, 2, 3, 7, 100])('walks the whole list in pages of %d', async (limit) => {
    const ids: string[] = [];
    for (let i = 0; i < 7; i++) ids.unshift((await jobs.create(job(), context)).id);
    expect(await walk((page) => jobs.list(page, context), limit)).toEqual(ids);
  });

  it('cancels, and passes the refusal to cancel what has ended', async () => {
    const { id } = await jobs.create(job(), context);
    expect((await jobs.cancel(id, context)).status).toBe('cancelled');
    expect(await refusal(() => jobs.cancel(id, context))).toMatchObject({
      status: 400,
      message: `Job ${id} has ended.`,
    });
  });

  it('walks events and checkpoints', async () => {
    const { id } = await jobs.create(job(), context);
    const events = Array.from({ length: 5 }, (_, i) => ({
      id: `ftevent-${i}`,
      object: 'fine_tuning.job.event',
      created_at: i,
      level: 'info',
      message: `step ${i}`,
      type: 'metrics',
      data: { step: i },
    }));
    const checkpoints = Array.from({ length: 3 }, (_, i) => ({
      id: `ftckpt_${i}`,
      object: 'fine_tuning.job.checkpoint',
      created_at: i,
      fine_tuned_model_checkpoint: `ft:x:${i}`,
      fine_tuning_job_id: id,
      metrics: { step: i, train_loss: 0.5, custom: 1 },
      step_number: i,
    }));
    upstream.state.events.set(id, events);
    upstream.state.checkpoints.set(id, checkpoints);
    expect(await walk((page) => jobs.events(id, page, context), 2)).toEqual(events.map((one) => one.id).reverse());
    expect((await jobs.events(id, { after: null, limit: 1 }, context)).data[0]).toEqual(events[4]);
    expect(await jobs.checkpoints(id, { after: 'ftckpt_2', limit: 1 }, context)).toEqual({
      data: [checkpoints[1]],
      has_more: true,
    });
  });

  it('finds a job again by the file that was uploaded for it', async () => {
    const made: FineTuningJob = await jobs.create(job({ training_file: 'file-mine' }), context);
    for (let i = 0; i < 3; i++) await jobs.create(job(), context);
    expect((await findByName(job({ training_file: 'file-mine' }), context))?.id).toBe(made.id);
    expect(await findByName(job({ training_file: 'file-other' }), context)).toBeNull();
  });

  it("sends the account's organisation and project", async () => {
    const settings = { openai_organization: 'org-a', openai_project: 'proj-b' };
    const other = adapterContext({ base: upstream.base, settings });
    await jobs.list({ after: null, limit: 5 }, other);
    await other.close();
    expect(upstream.received.at(-1)?.headers).toMatchObject({
      'openai-organization': 'org-a',
      'openai-project': 'proj-b',
    });
  });

  it.each([
    [
      401,
      { message: 'Incorrect API key', type: 'invalid_request_error', code: 'invalid_api_key' },
      'authentication_error',
      'invalid_api_key',
    ],
    [404, { message: 'No such job', type: 'invalid_request_error', code: null }, 'not_found_error', null],
    [
      429,
      { message: 'Slow down', type: 'requests', code: 'rate_limit_exceeded' },
      'rate_limit_error',
      'rate_limit_exceeded',
    ],
    [500, { message: 'Oops', type: 'server_error', code: null }, 'api_error', null],
  ] as const)('passes a %i on with its status and message', async (status, error, type, code) => {
    upstream.state.fail = { status, body: { error }, headers: { 'retry-after': '9' } };
    expect(await refusal(() => jobs.retrieve('ftjob-1', context))).toMatchObject({
      status,
      type,
      code,
      message: error.message,
      retryAfter: 9,
    });
  });

  it('never lets an id reach another object', async () => {
    for (const id of ['', '.', '..']) {
      expect(await refusal(() => jobs.retrieve(id, context))).toMatchObject({ status: 400 });
      expect(await refusal(() => files.content(id, context))).toMatchObject({ status: 400 });
    }
    expect(context.calls).toEqual([]);
    const calls: string[] = [];
    const spy = {
      ...context,
      call: (request: { url: URL }) => {
        calls.push(request.url.href);
        return Promise.reject(new Error('not sent'));
      },
    };
    await jobs.cancel('a/../../files?x#y', spy).catch(() => {});
    expect(calls).toEqual([`${upstream.base}/fine_tuning/jobs/a%2F..%2F..%2Ffiles%3Fx%23y/cancel`]);
  });
});

describe('batches at OpenAI', () => {
  it('creates, lists in pages, retrieves and cancels', async () => {
    const made = await batches.create(batch({ metadata: { team: 'search' } }), context);
    expect(upstream.last).toEqual({
      input_file_id: 'file-in',
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
      metadata: { team: 'search' },
    });
    expect(batches.prepare(batch({ metadata: { team: 'search' } }), context)).toMatchObject({
      method: 'POST',
      url: `${upstream.base}/batches`,
      body: upstream.last,
    });
    expect(made).toMatchObject({ object: 'batch', status: 'validating', output_file_id: null });
    await batches.create(batch(), context);
    await batches.create(batch(), context);
    const ids = await walk((page) => batches.list(page, context), 2);
    expect(ids).toHaveLength(3);
    expect(ids.at(-1)).toBe(made.id);
    expect((await batches.cancel(made.id, context)).status).toBe('cancelling');
    expect((await batches.retrieve(made.id, context)).status).toBe('cancelling');
    expect((await batches.findByName?.(batch(), context))?.input_file_id).toBe('file-in');
    expect(await batches.findByName?.(batch({ input_file_id: 'file-none' }), context)).toBeNull();
  });

  it.each(['job_name', 'role_arn', 'output_data_config'] as const)('refuses %s by name', async (param) => {
    expect(await refusal(() => batches.create(batch({ [param]: 'x' }), context))).toMatchObject({ status: 400, param });
    expect(context.calls).toEqual([]);
  });

  it('refuses the window that only the gateway runs', async () => {
    const request = batch({ completion_window: 'immediate' });
    expect(await refusal(() => batches.create(request, context))).toMatchObject({ param: 'completion_window' });
    expect(context.calls).toEqual([]);
  });

  it('takes a model only when it is that of the lines', async () => {
    const line = JSON.stringify({
      custom_id: 'a',
      method: 'POST',
      url: '/v1/chat/completions',
      body: { model: 'm-1' },
    });
    const { id } = await files.upload(upload(`${line}\n${line}\n`, { purpose: 'batch' }), context);
    await batches.create(batch({ input_file_id: id, model: 'm-1' }), context);
    expect(upstream.last).not.toHaveProperty('model');
    for (const wrong of [{ input_file_id: id, model: 'm-2' }]) {
      expect(await refusal(() => batches.create(batch(wrong), context))).toMatchObject({ status: 400, param: 'model' });
    }
    const broken = await files.upload(upload('no json\n', { purpose: 'batch' }), context);
    const request = batch({ input_file_id: broken.id, model: 'm-1' });
    expect(await refusal(() => batches.create(request, context))).toMatchObject({ param: 'model' });
    expect(upstream.state.batches.size).toBe(1);
  });

  it('streams the results and then the errors, each line on its own', async () => {
    const { id } = await batches.create(batch(), context);
    const out = await files.upload(upload('{"custom_id":"a"}\n{"custom_id":"b"}', { purpose: 'batch' }), context);
    const errors = await files.upload(upload('{"custom_id":"c"}\n', { purpose: 'batch' }), context);
    const row = upstream.state.batches.get(id);
    upstream.state.batches.set(id, { ...row, status: 'completed', output_file_id: out.id, error_file_id: errors.id });
    expect(await textOf(await batches.output(id, context))).toBe(
      '{"custom_id":"a"}\n{"custom_id":"b"}\n{"custom_id":"c"}\n',
    );
    upstream.state.batches.set(id, { ...row, status: 'completed', output_file_id: null, error_file_id: errors.id });
    expect(await textOf(await batches.output(id, context))).toBe('{"custom_id":"c"}\n');
  });

  it('answers nothing for a completed batch without files, and asks for none', async () => {
    const { id } = await batches.create(batch(), context);
    upstream.state.batches.set(id, { ...upstream.state.batches.get(id), status: 'completed' });
    const before = context.calls.length;
    expect(await textOf(await batches.output(id, context))).toBe('');
    expect(context.calls.length).toBe(before + 1);
  });

  it.each(['validating', 'in_progress', 'finalizing', 'failed', 'expired', 'cancelling', 'cancelled'])(
    'refuses the output of a batch that is %s',
    async (status) => {
      const { id } = await batches.create(batch(), context);
      upstream.state.batches.set(id, { ...upstream.state.batches.get(id), status });
      expect(await refusal(() => batches.output(id, context))).toMatchObject({ status: 400 });
    },
  );

  it('answers the status of a missing result file before a byte of the answer is sent', async () => {
    const { id } = await batches.create(batch(), context);
    const row = upstream.state.batches.get(id);
    upstream.state.batches.set(id, { ...row, status: 'completed', output_file_id: 'file-gone' });
    expect(await refusal(() => batches.output(id, context))).toMatchObject({ status: 404 });
  });
});

describe('answers of any content', () => {
  const odd = fc.oneof(fc.jsonValue(), fc.constantFrom('dpo', 'failed', '__proto__', 1e300, 'BIG', -1));
  const fields = (names: readonly string[]) =>
    fc.dictionary(fc.constantFrom(...names), odd, { maxKeys: names.length }).map((row) => {
      // A number no double holds, which no JavaScript value stands for.
      const text = JSON.stringify(row).replaceAll('"BIG"', '99999999999999999999');
      return parseExact(text) as JsonObject;
    });
  /** What was made of `row`, or null when it was refused as no answer. */
  const read = <T>(make: () => T): T | null => {
    try {
      return make();
    } catch (error) {
      expect(error).toBeInstanceOf(SluiceError);
      expect(errorStatus(error as SluiceError)).toBe(502);
      return null;
    }
  };

  it('become jobs and files with every field of their shape, or are refused', () => {
    const names = ['status', 'error', 'method', 'hyperparameters', 'integrations', 'result_files', 'seed', 'model'];
    fc.assert(
      fc.property(fields(names), fc.boolean(), (row, failed) => {
        const status = failed ? 'failed' : row.status === undefined ? 'queued' : row.status;
        const job = read(() => toJob({ ...row, id: 'j', created_at: 1, status }));
        if (job === null) return;
        expect(job.error === null).toBe(job.status !== 'failed');
        expect(job.hyperparameters.n_epochs === 'auto' || job.hyperparameters.n_epochs >= 1).toBe(true);
        expect(job.result_files.every((one) => typeof one === 'string')).toBe(true);
        expect([typeof job.seed, typeof job.model]).toEqual(['number', 'string']);
      }),
    );
    fc.assert(
      fc.property(fields(['id', 'created_at', 'status', 'bytes', 'filename', 'purpose']), (row) => {
        const file = read(() => toFile(row));
        if (file === null) return;
        expect([typeof file.id, typeof file.bytes, typeof file.filename]).toEqual(['string', 'number', 'string']);
        expect(['uploaded', 'processed', 'error']).toContain(file.status);
      }),
    );
  });
});
