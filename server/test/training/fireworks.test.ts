import { Readable } from 'node:stream';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/kernel/json.ts';
import type { BatchRequest, JobRequest } from '../../src/operations/training.ts';
import { fireworksAi } from '../../src/providers/fireworks-ai/fireworks-ai.ts';
import type { UploadRequest } from '../../src/providers/training.ts';
import { type AdapterContextOptions, adapterContext, type TestContext } from '../support/adapter-context.ts';
import { FIREWORKS_ACCOUNT, type FireworksUpstream, startFireworks } from '../support/upstreams/fireworks.ts';
import { fireworksAi as subject } from './fields/fireworks-ai.ts';
import { requestFor } from './fields/inputs.ts';
import { FIELD_NAMES } from './fields/names.ts';
import { refusal, textOf, valueAt, walk } from './support.ts';

const { jobs, files, batches } = fireworksAi.training ?? {};
if (!jobs?.findByName || !files?.abandon || !batches?.inputLine || !batches.findByName) {
  throw new Error('a part is missing');
}
const { findByName } = jobs;
const { abandon } = files;
const { inputLine } = batches;

const SETTINGS = { fireworks_account_id: 'acme' };
const MIB = 1024 * 1024;

let upstream: FireworksUpstream;
let context: TestContext;
const opened: TestContext[] = [];

function contextWith(more: Partial<AdapterContextOptions> = {}): TestContext {
  const made = adapterContext({ base: `${upstream.url}/inference/v1`, settings: SETTINGS, ...more });
  opened.push(made);
  return made;
}

beforeEach(async () => {
  upstream = await startFireworks();
  context = contextWith();
});

afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
  await upstream.stop();
  expect(upstream.faults).toEqual([]);
});

const job = (more: Partial<JobRequest> = {}): JobRequest => requestFor({ base: more }, 'training_file');

const DPO = { method: 'dpo', hyperparametersPath: 'method.dpo.hyperparameters' } as const;

/** Body of the last create call with its query beside it. */
function sentBody(): unknown {
  const url = new URL(upstream.received.at(-1)?.path ?? '', upstream.url);
  return { ...upstream.last, query: Object.fromEntries(url.searchParams) };
}

const tuned = (id: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  name: `${FIREWORKS_ACCOUNT}/supervisedFineTuningJobs/${id}`,
  createTime: '2026-01-01T00:00:00.900Z',
  completedTime: '2026-01-01T02:00:00Z',
  updateTime: '2026-01-01T03:00:00Z',
  state: 'JOB_STATE_RUNNING',
  status: { code: 'OK', message: '' },
  dataset: `${FIREWORKS_ACCOUNT}/datasets/file-train`,
  baseModel: 'accounts/fireworks/models/llama-v3p1-8b-instruct',
  outputModel: `${FIREWORKS_ACCOUNT}/models/v1`,
  displayName: 'v1',
  epochs: 3,
  batchSizeSamples: 8,
  learningRate: 0.0001,
  metricsFileSignedUrl: 'https://store.example/metrics?signature=secret',
  ...more,
});

const preferred = (id: string, more: Record<string, unknown> = {}): Record<string, unknown> => {
  const { baseModel, outputModel, epochs } = tuned(id);
  return {
    name: `${FIREWORKS_ACCOUNT}/dpoJobs/${id}`,
    createTime: '2026-01-01T00:00:00Z',
    state: 'JOB_STATE_RUNNING',
    dataset: `${FIREWORKS_ACCOUNT}/datasets/file-train`,
    lossConfig: { method: 'DPO', dpo: { beta: 0.2 } },
    trainingConfig: { baseModel, outputModel, epochs },
    ...more,
  };
};

describe('every field of a create request', () => {
  it.each(FIELD_NAMES)('%s reaches Fireworks, or is refused by name before any call', async (name) => {
    const request = requestFor(subject, name);
    const fate = subject.table[name];
    if ('place' in fate) {
      await jobs.create(request, context);
      expect(valueAt(sentBody(), fate.place)).toEqual(fate.value);
      expect(jobs.prepare(request, context).body).toEqual(upstream.last);
    } else {
      const refused = { status: 400, code: 'unsupported_parameter', param: fate.refused };
      expect(await refusal(() => jobs.create(request, context))).toMatchObject(refused);
      expect(await refusal(async () => jobs.prepare(request, context))).toMatchObject(refused);
      expect(context.calls).toEqual([]);
    }
  });

  it('writes supervised jobs flat and DPO jobs nested, and nothing beside what was asked for', async () => {
    await jobs.create(job({ validation_file: 'file-valid' }), context);
    expect(sentBody()).toEqual({
      dataset: 'accounts/acme/datasets/file-train',
      evaluationDataset: 'accounts/acme/datasets/file-valid',
      displayName: 'v1',
      baseModel: 'accounts/fireworks/models/base-model',
      outputModel: 'accounts/acme/models/v1',
      epochs: 3,
      batchSizeSamples: 1,
      query: {},
    });
    const created = await jobs.create(job({ ...DPO, job_name: 'prefer-1' }), context);
    expect(sentBody()).toEqual({
      dataset: 'accounts/acme/datasets/file-train',
      displayName: 'v1',
      lossConfig: { method: 'DPO' },
      trainingConfig: {
        baseModel: 'accounts/fireworks/models/base-model',
        outputModel: 'accounts/acme/models/v1',
        epochs: 3,
        batchSizeSamples: 1,
      },
      query: { dpoJobId: 'prefer-1' },
    });
    expect(created).toMatchObject({ id: 'dpo:prefer-1', model: 'base-model', status: 'queued' });
  });

  it('continues a model of the account, and takes full names as they are', async () => {
    await jobs.create(job({ upstreamModel: 'accounts/acme/models/mine' }), context);
    expect(upstream.last).toMatchObject({ warmStartFrom: 'accounts/acme/models/mine' });
    await jobs.create(
      job({ upstreamModel: 'accounts/other/models/base', training_file: 'accounts/other/datasets/d' }),
      context,
    );
    expect(upstream.last).toMatchObject({
      baseModel: 'accounts/other/models/base',
      dataset: 'accounts/other/datasets/d',
    });
  });

  it.each([
    ['suffix', { suffix: 'My Model' }],
    ['job_name', { job_name: 'Nightly_1' }],
    ['validation_file', { ...DPO, validation_file: 'file-valid' }],
    [
      'method.dpo.hyperparameters.beta',
      { ...DPO, hyperparameters: { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 1, beta: 0.5 } },
    ],
    [
      'method.supervised.hyperparameters.beta',
      { hyperparameters: { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 1, beta: 0.1 } },
    ],
  ])('a wrong %s is a 400 that names it, before any call', async (param, more) => {
    expect(await refusal(() => jobs.create(job(more), context))).toMatchObject({ status: 400, param });
    expect(context.calls).toEqual([]);
  });

  it('the account has to be named, and cannot lead elsewhere', async () => {
    for (const fireworks_account_id of [undefined, '', '../x', 'a/b', 'A']) {
      const other = contextWith({ settings: { fireworks_account_id } });
      for (const act of [() => jobs.create(job(), other), () => files.list(null, other)]) {
        expect(await refusal(act)).toMatchObject({ status: 400, param: 'fireworks_account_id' });
      }
      expect(other.calls).toEqual([]);
    }
    const full = contextWith({ settings: { fireworks_account_id: 'accounts/acme' } });
    expect(await files.list(null, full)).toEqual([]);
  });
});

describe('fine-tuning jobs', () => {
  it.each([
    ['JOB_STATE_VALIDATING', 'validating_files'],
    ['JOB_STATE_CREATING_INPUT_DATASET', 'validating_files'],
    ['JOB_STATE_CREATING', 'queued'],
    ['JOB_STATE_PENDING', 'queued'],
    ['JOB_STATE_RE_QUEUEING', 'queued'],
    ['JOB_STATE_RUNNING', 'running'],
    ['JOB_STATE_WRITING_RESULTS', 'running'],
    ['JOB_STATE_COMPLETED', 'succeeded'],
    ['JOB_STATE_EARLY_STOPPED', 'succeeded'],
    ['JOB_STATE_FAILED', 'failed'],
    ['JOB_STATE_EXPIRED', 'failed'],
    ['JOB_STATE_CANCELLING', 'cancelled'],
    ['JOB_STATE_DELETING', 'cancelled'],
    ['JOB_STATE_OF_LATER_YEARS', 'running'],
  ])('%s is %s', async (state, status) => {
    upstream.supervised.set('a', tuned('a', { state }));
    upstream.dpo.set('a', preferred('a', { state }));
    for (const id of ['a', 'dpo:a']) {
      const found = await jobs.retrieve(id, context);
      expect(found).toMatchObject({ id, status, trained_tokens: null });
      expect(found.error === null).toBe(status !== 'failed');
      expect(found.fine_tuned_model).toBe(status === 'succeeded' ? 'accounts/acme/models/v1' : null);
    }
  });

  it('show what was asked for under the unified names, and no signed address', async () => {
    upstream.supervised.set(
      'a',
      tuned('a', { state: 'JOB_STATE_COMPLETED', evaluationDataset: `${FIREWORKS_ACCOUNT}/datasets/v` }),
    );
    const found = await jobs.retrieve('a', context);
    expect(found).toEqual({
      id: 'a',
      object: 'fine_tuning.job',
      created_at: 1_767_225_600,
      error: null,
      fine_tuned_model: 'accounts/acme/models/v1',
      finished_at: 1_767_232_800,
      hyperparameters: { n_epochs: 3, batch_size: 8, learning_rate: 0.0001 },
      model: 'llama-v3p1-8b-instruct',
      organization_id: 'acme',
      result_files: [],
      status: 'succeeded',
      trained_tokens: null,
      training_file: 'file-train',
      validation_file: 'v',
      seed: 0,
      estimated_finish: null,
    });
    upstream.dpo.set('b', preferred('b'));
    expect((await jobs.retrieve('dpo:b', context)).hyperparameters).toEqual({ n_epochs: 3, beta: 0.2 });
  });

  it.each([
    ['INVALID_ARGUMENT', 'The dataset has a bad row', 'invalid_training_file', 'training_file'],
    ['INVALID_ARGUMENT', 'The evaluation dataset is empty', 'invalid_validation_file', 'validation_file'],
    ['RESOURCE_EXHAUSTED', 'No GPUs left', 'quota_exceeded', null],
    ['INTERNAL', 'Broken', 'provider_error', null],
  ])('the failure %s, "%s" is told as %s', async (code, message, told, param) => {
    upstream.supervised.set('a', tuned('a', { state: 'JOB_STATE_FAILED', status: { code, message } }));
    expect((await jobs.retrieve('a', context)).error).toEqual({ code: told, message, param });
    const { data } = await jobs.events('a', { after: null, limit: 10 }, context);
    expect(data.map(({ id, level, message: text }) => [id, level, text])).toEqual([
      ['a:failed', 'error', message],
      ['a:created', 'info', 'Created fine-tuning job.'],
    ]);
  });

  it('both kinds are one list: pages of any size walk it, newest first and each job once, while jobs are added', async () => {
    const seconds = fc.array(fc.integer({ min: 0, max: 5000 }), { maxLength: 120 });
    await fc.assert(
      fc.asyncProperty(seconds, seconds, fc.integer({ min: 1, max: 100 }), async (a, b, limit) => {
        upstream.supervised.clear();
        upstream.dpo.clear();
        const time = (second: number): string => new Date(Date.UTC(2026, 0, 1) + second * 1000).toISOString();
        for (const [i, second] of a.entries())
          upstream.supervised.set(`s${i}`, tuned(`s${i}`, { createTime: time(second) }));
        for (const [i, second] of b.entries())
          upstream.dpo.set(`d${i}`, preferred(`d${i}`, { createTime: time(second) }));
        let added = 0;
        upstream.beforeList = () => {
          if (added < 5 && upstream.received.length % 4 === 0) {
            const id = `new${++added}`;
            upstream.supervised.set(id, tuned(id, { createTime: time(6000 + added) }));
          }
        };
        const seen = (await walk((page) => jobs.list(page, context), limit)).filter((id) => !id.startsWith('new'));
        const wanted = new Map<string, number>([
          ...a.map((second, i) => [`s${i}`, second] as const),
          ...b.map((second, i) => [`dpo:d${i}`, second] as const),
        ]);
        expect([...seen].sort()).toEqual([...wanted.keys()].sort());
        const times = seen.map((id) => wanted.get(id) ?? 0);
        expect(times).toEqual([...times].sort((x, y) => y - x));
      }),
      { numRuns: 15 },
    );
  });

  it('a list of several pages upstream is walked to its end', async () => {
    for (let i = 0; i < 450; i++) {
      const createTime = new Date(Date.UTC(2026, 0, 1) + i * 1000).toISOString();
      upstream.supervised.set(`s${i}`, tuned(`s${i}`, { createTime }));
    }
    const seen = await walk((page) => jobs.list(page, context), 100);
    expect(seen).toEqual(Array.from({ length: 450 }, (_, i) => `s${449 - i}`));
  });

  it('an unknown cursor is a 400 that names "after"', async () => {
    upstream.supervised.set('a', tuned('a'));
    const page = { after: 'nobody', limit: 10 };
    expect(await refusal(() => jobs.list(page, context))).toMatchObject({ status: 400, param: 'after' });
  });

  it.each(['a', 'dpo:a'])('%s is cancelled by the cancel route and never deleted', async (id) => {
    upstream.supervised.set('a', tuned('a', { completedTime: undefined, updateTime: undefined }));
    upstream.dpo.set('a', preferred('a'));
    expect(await jobs.cancel(id, context)).toMatchObject({ id, status: 'cancelled' });
    expect(context.calls.map(({ method }) => method)).toEqual(['POST', 'GET']);
    upstream.cancels = false;
    expect(await refusal(() => jobs.cancel(id, context))).toMatchObject({ status: 501, code: 'unsupported_operation' });
    expect(await refusal(() => jobs.cancel(`${id}-missing`, context))).toMatchObject({ status: 404 });
    expect(context.calls.some(({ method }) => method === 'DELETE')).toBe(false);
  });

  it('have no checkpoints, but those of a job that is not there are a 404', async () => {
    upstream.supervised.set('a', tuned('a'));
    const page = { after: null, limit: 10 };
    expect(await jobs.checkpoints('a', page, context)).toEqual({ data: [], has_more: false });
    expect(await refusal(() => jobs.checkpoints('b', page, context))).toMatchObject({ status: 404 });
    expect(await refusal(() => jobs.retrieve('..', context))).toMatchObject({ status: 404 });
  });

  it.each([{}, DPO])('%j: finds the job it made before it could note the answer, and no other', async (method) => {
    expect(await findByName(job(method), context)).toBeNull();
    const { id } = await jobs.create(job(method), context);
    expect((await findByName(job(method), context))?.id).toBe(id);
    expect(await findByName(job({ ...method, training_file: 'file-other' }), context)).toBeNull();
    expect(await findByName(job({ ...method, job_name: 'other' }), context)).toBeNull();
  });
});

const upload = (content: Buffer | string, more: Partial<UploadRequest> = {}): UploadRequest => ({
  filename: 'My Data (2).jsonl',
  purpose: 'fine-tune',
  contentType: 'application/jsonl',
  stream: Readable.from([Buffer.from(content)]),
  bytes: Buffer.byteLength(content),
  ...more,
});

/** A stream of so many bytes that never holds them all. */
function streamOf(bytes: number): Readable {
  const piece = Buffer.alloc(MIB, 'x');
  return Readable.from(
    (function* () {
      for (let left = bytes; left > 0; left -= MIB) yield left < MIB ? piece.subarray(0, left) : piece;
    })(),
    { objectMode: false },
  );
}

describe('files are datasets', () => {
  it.each([true, false])('that come back as they were sent, size known: %s', async (known) => {
    const content = '{"messages":[]}\n'.repeat(100);
    const file = await files.upload(upload(content, known ? {} : { bytes: null }), context);
    expect(file).toMatchObject({
      object: 'file',
      bytes: content.length,
      filename: 'My Data (2).jsonl',
      purpose: 'fine-tune',
      status: 'processed',
      created_at: 1_767_225_601,
    });
    expect(file.id).toMatch(/^my-data-2-[0-9a-f]{8}$/);
    expect(await files.retrieve(file.id, context)).toEqual({ ...file, bytes: 0 });
    expect(await files.list(null, context)).toEqual([{ ...file, bytes: 0 }]);
    const read = await files.content(file.id, context);
    expect(read.bytes).toBe(content.length);
    expect(await textOf(read.stream)).toBe(content);
    await files.remove(file.id, context);
    expect(await refusal(() => files.content(file.id, context))).toMatchObject({ status: 404 });
  });

  it('that keep what they are for', async () => {
    const purposes = ['batch', 'fine-tune'];
    const ids: string[] = [];
    for (const purpose of purposes) {
      const file = await files.upload(upload('x', { purpose }), context);
      expect((await files.retrieve(file.id, context)).purpose).toBe(purpose);
      ids.push(file.id);
    }
    for (const [i, purpose] of purposes.entries()) {
      expect((await files.list(purpose, context)).map(({ id }) => id)).toEqual([ids[i]]);
    }
    expect(await files.list('vision', context)).toEqual([]);
  });

  it('whose ids are what upstream takes, whatever the file is called', async () => {
    for (const filename of ['', '...', 'ÄÖÜ.jsonl', 'x'.repeat(300), '-a-.JSONL', `${'y'.repeat(49)}-z.jsonl`]) {
      await files.upload(upload('x', { filename: filename === '' ? 'file' : filename }), context);
    }
    expect(upstream.datasets.size).toBe(6);
  });

  it('above 150 MB go to a signed address with their exact size, and no credential', async () => {
    const bytes = 151 * MIB + 7;
    const file = await files.upload(upload('', { stream: streamOf(bytes), bytes }), context);
    expect(file).toMatchObject({ bytes, status: 'processed' });
    expect([...(upstream.contents.get(file.id)?.values() ?? [])][0]?.length).toBe(bytes);
    expect(upstream.store.received.map(({ method }) => method)).toEqual(['PUT']);
    expect(upstream.received.some(({ path }) => path.endsWith(':upload'))).toBe(false);
  });

  it('above 150 MB of unknown size are refused with the header that helps, and leave no dataset', async () => {
    const sent = refusal(() => files.upload(upload('', { stream: streamOf(152 * MIB), bytes: null }), context));
    expect(await sent).toMatchObject({ status: 400, param: 'x-gateway-file-upload-size' });
    expect(upstream.datasets.size).toBe(0);
  });

  it.each([
    ['direct', 10],
    ['signed', 151 * MIB],
  ])('whose %s upload fails are deleted again', async (_how, bytes) => {
    upstream.uploadStatus = 503;
    const sent = refusal(() => files.upload(upload('', { stream: streamOf(bytes), bytes }), context));
    expect((await sent).status).toBe(503);
    expect(upstream.datasets.size).toBe(0);
    expect(context.calls.at(-1)).toMatchObject({ method: 'DELETE', cleanup: true });
  });

  it('whose client leaves are deleted again', async () => {
    const broken = new Readable({ read() {} });
    broken.push('half');
    const sent = files.upload(upload('', { stream: broken, bytes: null }), context);
    broken.destroy(new Error('the client left'));
    await expect(sent).rejects.toThrow();
    expect(upstream.datasets.size).toBe(0);
  });

  it('of which those without content can be cleared away by name, and no others', async () => {
    const ready = await files.upload(upload('x', { filename: 'a.jsonl' }), context);
    const dataset = (id: string, displayName: string) => ({
      name: `${FIREWORKS_ACCOUNT}/datasets/${id}`,
      displayName,
      createTime: '2026-01-01T00:00:00Z',
      state: 'UPLOADING',
    });
    upstream.datasets.set('left-over', dataset('left-over', 'a.jsonl'));
    upstream.datasets.set('other', dataset('other', 'b.jsonl'));
    await abandon('a.jsonl', context);
    expect([...upstream.datasets.keys()]).toEqual([ready.id, 'other']);
  });

  it('with several files are read one after the other', async () => {
    const file = await files.upload(upload('x'), context);
    upstream.contents.set(
      file.id,
      new Map([
        ['b.jsonl', Buffer.from('{"b":1}\n')],
        ['a.jsonl', Buffer.from('{"a":1}')],
      ]),
    );
    const read = await files.content(file.id, context);
    expect(read.bytes).toBeNull();
    expect(await textOf(read.stream)).toBe('{"a":1}\n{"b":1}\n');
  });

  it('that upstream found fault with say so', async () => {
    const file = await files.upload(upload('x'), context);
    Object.assign(upstream.datasets.get(file.id) ?? {}, { status: { code: 'INVALID_ARGUMENT', message: 'row 3' } });
    expect(await files.retrieve(file.id, context)).toMatchObject({ status: 'error', status_details: 'row 3' });
  });
});

const batch = (more: Partial<BatchRequest> = {}): BatchRequest => ({
  input_file_id: 'lines',
  endpoint: '/v1/chat/completions',
  completion_window: '24h',
  metadata: null,
  model: 'llama-v3p1-8b-instruct',
  job_name: null,
  role_arn: null,
  output_data_config: null,
  extra: {},
  body: {},
  ...more,
});

const inference = (id: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  name: `${FIREWORKS_ACCOUNT}/batchInferenceJobs/${id}`,
  createTime: '2026-01-01T00:00:00Z',
  updateTime: '2026-01-01T01:00:00Z',
  state: 'JOB_STATE_COMPLETED',
  status: { code: 'OK', message: '' },
  model: 'accounts/fireworks/models/llama-v3p1-8b-instruct',
  inputDatasetId: `${FIREWORKS_ACCOUNT}/datasets/lines`,
  outputDatasetId: `${FIREWORKS_ACCOUNT}/datasets/results`,
  jobProgress: { totalInputRequests: 3, successfullyProcessedRequests: 2, failedRequests: 1 },
  ...more,
});

describe('batches', () => {
  it('run on datasets under full names', async () => {
    const created = await batches.create(batch({ job_name: 'nightly', output_data_config: 'results' }), context);
    expect(sentBody()).toEqual({
      model: 'accounts/fireworks/models/llama-v3p1-8b-instruct',
      inputDatasetId: 'accounts/acme/datasets/lines',
      outputDatasetId: 'accounts/acme/datasets/results',
      displayName: 'nightly',
      query: { batchInferenceJobId: 'nightly' },
    });
    expect(created).toMatchObject({ id: 'nightly', object: 'batch', status: 'validating', input_file_id: 'lines' });
    expect(created.output_file_id).toBeNull();
  });

  it.each([
    ['endpoint', { endpoint: '/v1/embeddings' }],
    ['role_arn', { role_arn: 'arn' }],
    ['metadata', { metadata: { a: 'b' } }],
    ['flavour', { extra: { flavour: 'x' } }],
    ['completion_window', { completion_window: 'immediate' as const }],
    ['model', { model: null }],
    ['output_data_config', { output_data_config: 's3://bucket/x' }],
  ])('a wrong %s is refused by name, before any call', async (param, more) => {
    expect(await refusal(() => batches.create(batch(more), context))).toMatchObject({ status: 400, param });
    expect(context.calls).toEqual([]);
  });

  it.each([
    ['JOB_STATE_VALIDATING', 'validating'],
    ['JOB_STATE_PENDING', 'validating'],
    ['JOB_STATE_RUNNING', 'in_progress'],
    ['JOB_STATE_WRITING_RESULTS', 'finalizing'],
    ['JOB_STATE_COMPLETED', 'completed'],
    ['JOB_STATE_FAILED', 'failed'],
    ['JOB_STATE_EXPIRED', 'expired'],
    ['JOB_STATE_CANCELLING', 'cancelling'],
    ['JOB_STATE_CANCELLED', 'cancelled'],
  ])('%s is %s', async (state, status) => {
    upstream.batches.set('1', inference('1', { state }));
    expect(await batches.retrieve('1', context)).toMatchObject({
      status,
      model: 'llama-v3p1-8b-instruct',
      request_counts: { total: 3, completed: 2, failed: 1 },
    });
  });

  it('are walked in pages of any size, and found again by their input', async () => {
    for (let i = 0; i < 45; i++) upstream.batches.set(`b${i}`, inference(`b${i}`));
    expect(await walk((page) => batches.list(page, context), 7)).toEqual([...upstream.batches.keys()]);
    const request = batch({ input_file_id: 'mine' });
    expect(await batches.findByName?.(request, context)).toBeNull();
    const { id } = await batches.create(request, context);
    expect((await batches.findByName?.(request, context))?.id).toBe(id);
  });

  it('cannot be cancelled: 501 and no call', async () => {
    expect(await refusal(() => batches.cancel('1', context))).toMatchObject({
      status: 501,
      code: 'unsupported_operation',
    });
    expect(context.calls).toEqual([]);
  });

  it('answer results and errors together, each line under its own id', async () => {
    upstream.batches.set('1', inference('1'));
    upstream.datasets.set('results', { name: `${FIREWORKS_ACCOUNT}/datasets/results` });
    const completion = { id: 'c1', object: 'chat.completion', choices: [], usage: { total_tokens: 3 } };
    const lines = (rows: unknown[]): Buffer => Buffer.from(rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
    upstream.contents.set(
      'results',
      new Map([
        [
          'results.jsonl',
          lines([
            { custom_id: 'a', response: completion },
            { custom_id: 'b', response: { status_code: 200, request_id: 'r', body: completion } },
          ]),
        ],
        [
          'error-data.jsonl',
          lines([{ custom_id: 'c', error: { code: 'too_long', message: 'The prompt is too long' } }]),
        ],
      ]),
    );
    const text = await textOf(await batches.output('1', context));
    const found = text
      .trim()
      .split('\n')
      .map((one) => JSON.parse(one) as unknown);
    expect(found).toEqual([
      { id: '1:c', custom_id: 'c', response: null, error: { code: 'too_long', message: 'The prompt is too long' } },
      { id: '1:a', custom_id: 'a', response: { status_code: 200, request_id: 'c1', body: completion }, error: null },
      { id: '1:b', custom_id: 'b', response: { status_code: 200, request_id: 'r', body: completion }, error: null },
    ]);
  });

  it('have no output before their end', async () => {
    upstream.batches.set('1', inference('1', { state: 'JOB_STATE_RUNNING' }));
    expect(await refusal(() => batches.output('1', context))).toMatchObject({ status: 400 });
  });

  it("take lines whose bodies are those of calls, without the model, which is the job's", () => {
    const line: JsonObject = {
      custom_id: 'a',
      method: 'POST',
      url: '/v1/chat/completions',
      body: { model: 'x', messages: [{ role: 'developer', content: 'Be kind.' }], reasoning_effort: 'xhigh' },
    };
    expect(inputLine(line, batch())).toEqual({
      custom_id: 'a',
      body: { messages: [{ role: 'system', content: 'Be kind.' }], reasoning_effort: 'high' },
    });
    expect(() =>
      inputLine({ ...line, body: { ...(line.body as JsonObject), reasoning_effort: 'max' } }, batch()),
    ).toThrow('reasoning_effort');
  });
});
