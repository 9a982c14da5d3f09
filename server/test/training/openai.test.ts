import { createHash, randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { BatchRequest, FineTuningJob, JobRequest } from '../../src/operations/training.ts';
import { openai } from '../../src/providers/openai/openai.ts';
import type { ObjectApi } from '../../src/providers/openai/training-api.ts';
import { openAiFiles } from '../../src/providers/openai/training-files.ts';
import type { UploadRequest } from '../../src/providers/training.ts';
import { bearerHeaders } from '../../src/providers/training-calls.ts';
import { adapterContext, type TestContext } from '../support/adapter-context.ts';
import { type OpenAiObjects, openAiError, startOpenAiObjects } from '../support/upstreams/openai.ts';
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

describe('files at OpenAI', () => {
  it('uploads in one streamed body with the purpose before the file', async () => {
    const content = '{"messages":[]}\n';
    const made = await files.upload(upload(content, { filename: 'dä"ta.jsonl' }), context);
    expect(made).toMatchObject({ object: 'file', bytes: content.length, purpose: 'fine-tune', status: 'processed' });
    expect(upstream.state.forms[0]).toMatchObject({
      fields: ['purpose', 'file'],
      filename: 'dä%22ta.jsonl',
      type: 'application/jsonl',
    });
    expect(upstream.received[0]?.headers['content-length']).toBeDefined();
    expect(await files.retrieve(made.id, context)).toEqual(made);
    const read = await files.content(made.id, context);
    expect(read).toMatchObject({ contentType: 'application/octet-stream', bytes: content.length });
    expect(await textOf(read.stream)).toBe(content);
  });

  it('uploads a file of unknown size without holding it', async () => {
    const chunks = Array.from({ length: 50 }, () => randomBytes(10_000));
    const made = await files.upload(upload('', { stream: Readable.from(chunks), bytes: null }), context);
    expect(made.bytes).toBe(500_000);
    expect(upstream.received[0]?.headers['transfer-encoding']).toBe('chunked');
    expect(upstream.state.contents.get(made.id)?.equals(Buffer.concat(chunks))).toBe(true);
  });

  it('refuses a purpose the provider does not know, and lets go of the upload', async () => {
    const file = upload('x', { purpose: 'assistants_output' });
    expect(await refusal(() => files.upload(file, context))).toMatchObject({ status: 400, param: 'purpose' });
    expect(file.stream.destroyed).toBe(true);
    expect(context.calls).toEqual([]);
  });

  it('fails with the reason of the upload when its stream breaks', async () => {
    const stream = Readable.from(
      (async function* () {
        yield Buffer.from('half');
        throw new Error('the client left');
      })(),
    );
    await expect(files.upload(upload('', { stream, bytes: 100 }), context)).rejects.toThrow();
    expect(upstream.state.files.size).toBe(0);
  });

  it('says so when the file is shorter than announced', async () => {
    const file = upload('short', { bytes: 100 });
    expect(await refusal(() => files.upload(file, context))).toMatchObject({ status: 400, param: 'file' });
    expect(upstream.state.files.size).toBe(0);
  });

  it('lists by purpose, newest first, through all pages', async () => {
    for (let i = 0; i < 4; i++) await files.upload(upload('x', { purpose: i % 2 ? 'batch' : 'fine-tune' }), context);
    expect((await files.list(null, context)).map((one) => one.id)).toEqual(['file-4', 'file-3', 'file-2', 'file-1']);
    expect((await files.list('batch', context)).map((one) => one.id)).toEqual(['file-4', 'file-2']);
    expect(upstream.received.at(-1)?.path).toBe('/v1/files?purpose=batch&limit=10000');
    const pages = [
      {
        data: [
          { id: 'f3', created_at: 3 },
          { id: 'f2', created_at: 2 },
        ],
        has_more: true,
      },
      { data: [{ id: 'f1', created_at: 1 }], has_more: false },
    ];
    const asked: (string | null)[] = [];
    const paged = {
      ...context,
      call: (request: { url: URL }) => {
        asked.push(request.url.searchParams.get('after'));
        const text = JSON.stringify(pages[asked.length - 1]);
        const stream = Readable.from([text]);
        return Promise.resolve({
          status: 200,
          headers: {},
          stream,
          text: () => Promise.resolve(text),
          json: () => Promise.resolve(JSON.parse(text)),
        });
      },
    };
    expect((await files.list(null, paged)).map((one) => one.id)).toEqual(['f3', 'f2', 'f1']);
    expect(asked).toEqual([null, 'f2']);
  });

  it('deletes, and answers 404 afterwards', async () => {
    const { id } = await files.upload(upload('x'), context);
    await files.remove(id, context);
    expect(await refusal(() => files.retrieve(id, context))).toMatchObject({ status: 404 });
    expect(await refusal(() => files.remove(id, context))).toMatchObject({ status: 404 });
    expect(await refusal(() => files.content(id, context))).toMatchObject({ status: 404 });
  });

  it('stops reading at the provider when the reader stops', async () => {
    upstream.state.contents.set('file-big', randomBytes(8_000_000));
    const { stream } = await files.content('file-big', context);
    await stream[Symbol.asyncIterator]().next();
    stream.destroy();
    await expect.poll(() => upstream.open).toBe(0);
  });
});

describe('uploads in parts', () => {
  const api: ObjectApi = { title: 'openai', headers: bearerHeaders, plannedHeaders: bearerHeaders };
  const small = openAiFiles({
    api,
    purposes: new Set(['fine-tune', 'batch']),
    list: () => 'pages',
    parts: { above: 1000, size: 400 },
  });
  /** The content in pieces that do not fit the parts. */
  const pieces = (content: Buffer, size: number): Readable =>
    Readable.from(
      (function* () {
        for (let at = 0; at < content.length; at += size) yield content.subarray(at, at + size);
      })(),
    );

  it.each([1001, 1200, 1201, 4000])('send a file of %i bytes whole and in order', async (size) => {
    for (const chunk of [1, 137, 400, 5000]) {
      const content = randomBytes(size);
      const file = upload(content, { stream: pieces(content, chunk), contentType: '' });
      const made = await small.upload(file, context);
      expect(made.bytes).toBe(size);
      const stored = upstream.state.contents.get(made.id) ?? Buffer.alloc(0);
      expect(createHash('sha256').update(stored).digest('hex')).toBe(
        createHash('sha256').update(content).digest('hex'),
      );
      const row = [...upstream.state.uploads.values()].at(-1);
      expect(row).toMatchObject({ status: 'completed', mime_type: 'text/jsonl', bytes: size });
      expect(row?.parts.map((part) => part.length)).toEqual(
        Array.from({ length: Math.ceil(size / 400) }, (_, i) => Math.min(400, size - i * 400)),
      );
    }
  });

  it('are used above the limit only', async () => {
    await small.upload(upload(randomBytes(1000)), context);
    expect(upstream.state.uploads.size).toBe(0);
  });

  it.each([
    ['shorter', 1500],
    ['longer', 2500],
  ])('are taken back when the file is %s than announced', async (_how, size) => {
    const content = randomBytes(size);
    const file = upload(content, { stream: pieces(content, 300), bytes: 2000 });
    expect(await refusal(() => small.upload(file, context))).toMatchObject({ status: 400, param: 'file' });
    expect([...upstream.state.uploads.values()].map((row) => row.status)).toEqual(['cancelled']);
    expect(upstream.state.files.size).toBe(0);
    expect(file.stream.destroyed).toBe(true);
  });

  it('are taken back when the provider refuses a part', async () => {
    const content = randomBytes(2000);
    let calls = 0;
    const failing = {
      ...context,
      call: (request: Parameters<typeof context.call>[0]) => {
        calls++;
        if (calls === 3) upstream.state.fail = { status: 503, body: openAiError('Busy') };
        return context.call(request);
      },
    };
    const file = upload(content, { stream: pieces(content, 300) });
    expect(await refusal(() => small.upload(file, failing))).toMatchObject({ status: 503, message: 'Busy' });
    expect([...upstream.state.uploads.values()].map((row) => row.status)).toEqual(['cancelled']);
  });

  it('need the size beforehand: a longer stream without one is refused with what to send', async () => {
    const content = randomBytes(5000);
    const file = upload('', { stream: pieces(content, 500), bytes: null });
    expect(await refusal(() => small.upload(file, context))).toMatchObject({
      status: 400,
      param: 'x-gateway-file-upload-size',
    });
    expect(upstream.state.files.size).toBe(0);
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
