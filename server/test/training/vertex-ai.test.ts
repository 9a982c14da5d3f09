import { Readable } from 'node:stream';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SluiceError } from '../../src/kernel/errors.ts';
import type { JsonObject } from '../../src/kernel/json.ts';
import { errorStatus } from '../../src/operations/dialects/errors.ts';
import type { BatchRequest, JobRequest } from '../../src/operations/training.ts';
import type { UploadRequest } from '../../src/providers/training.ts';
import { vertexAi } from '../../src/providers/vertex-ai/vertex-ai.ts';
import { type AdapterContextOptions, adapterContext, type TestContext } from '../support/adapter-context.ts';
import { putFirst, startVertex, VERTEX_NUMBER, type VertexUpstream } from '../support/upstreams/vertex-ai.ts';
import { requestFor } from './fields/inputs.ts';
import { FIELD_NAMES } from './fields/names.ts';
import { vertexAi as subject } from './fields/vertex-ai.ts';
import { refusal, textOf, valueAt, walk } from './support.ts';

const { jobs, files, batches } = vertexAi.training ?? {};
if (!jobs?.findByName || !files || !batches?.inputLine || !batches.findByName) throw new Error('a part is missing');
const { findByName } = jobs;
const { inputLine } = batches;

const SETTINGS = { vertex_region: 'us-central1', vertex_project_id: 'test-project' };
const BUCKET = { 'x-gateway-cloud-storage-bucket-name': 'bucket' };

let upstream: VertexUpstream;
let context: TestContext;
const opened: TestContext[] = [];

function contextWith(more: Partial<AdapterContextOptions> = {}): TestContext {
  const made = adapterContext({ base: `${upstream.url}/v1`, settings: SETTINGS, headers: BUCKET, ...more });
  opened.push(made);
  return made;
}

beforeEach(async () => {
  upstream = await startVertex();
  upstream.storage.buckets.set('bucket', new Map());
  context = contextWith();
});

afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
  await upstream.stop();
  expect(upstream.faults).toEqual([]);
});

const job = (more: Partial<JobRequest> = {}): JobRequest =>
  requestFor({ base: { ...subject.base, ...more } }, 'training_file');

const tuning = (id: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  name: `${VERTEX_NUMBER}/tuningJobs/${id}`,
  state: 'JOB_STATE_RUNNING',
  createTime: '2026-01-01T00:00:00.900Z',
  startTime: '2026-01-01T00:01:00Z',
  updateTime: '2026-01-01T00:02:00Z',
  baseModel: 'gemini-2.5-flash',
  tunedModelDisplayName: 'v1',
  supervisedTuningSpec: {
    trainingDatasetUri: 'gs://bucket/train.jsonl',
    hyperParameters: { epochCount: '3', learningRateMultiplier: 0.5 },
  },
  ...more,
});

const ENDED = { endTime: '2026-01-01T02:00:00Z' };

describe('every field of a create request', () => {
  it.each(FIELD_NAMES)('%s reaches Vertex AI, or is refused by name before any call', async (name) => {
    const request = requestFor(subject, name);
    const fate = subject.table[name];
    if ('place' in fate) {
      await jobs.create(request, context);
      expect(valueAt(upstream.last, fate.place)).toEqual(fate.value);
      expect(jobs.prepare(request, context).body).toEqual(upstream.last);
    } else {
      const refused = { status: 400, code: 'unsupported_parameter', param: fate.refused };
      expect(await refusal(() => jobs.create(request, context))).toMatchObject(refused);
      expect(await refusal(async () => jobs.prepare(request, context))).toMatchObject(refused);
      expect(context.calls).toEqual([]);
    }
  });

  it('writes one spec and nothing beside what was asked for', async () => {
    await jobs.create(
      job({ suffix: 'v1', hyperparameters: { n_epochs: 4, learning_rate_multiplier: 0.5, batch_size: 1 } }),
      context,
    );
    expect(upstream.last).toEqual({
      baseModel: 'gemini-2.5-flash',
      tunedModelDisplayName: 'v1',
      supervisedTuningSpec: {
        trainingDatasetUri: 'gs://bucket/train.jsonl',
        hyperParameters: { epochCount: '4', learningRateMultiplier: 0.5 },
      },
    });
  });

  it('leaves out what drop_params lists instead of refusing it', async () => {
    const lenient = contextWith({ dropParams: ['seed', 'batch_size', 'flavour'] });
    const hyperparameters = { n_epochs: 3, learning_rate_multiplier: 1, batch_size: 8 };
    await jobs.create(job({ seed: 7, hyperparameters, extra: { flavour: 'vanilla' } }), lenient);
    expect(Object.keys(upstream.last)).toEqual(['baseModel', 'tunedModelDisplayName', 'supervisedTuningSpec']);
  });

  it('tunes a tuned model further, and says what to name instead of its endpoint', async () => {
    const model = 'projects/test-project/locations/us-central1/models/77@2';
    const created = await jobs.create(job({ upstreamModel: model, model: 'mine' }), context);
    expect(upstream.last).toMatchObject({ preTunedModel: { tunedModelName: model } });
    expect(created.model).toBe('mine');
    const endpoint = 'projects/test-project/locations/us-central1/endpoints/9';
    const refused = await refusal(() => jobs.create(job({ upstreamModel: endpoint }), context));
    expect(refused).toMatchObject({ status: 400, param: 'model' });
    expect(refused.message).toContain('tuned_model');
  });

  it.each([
    ['suffix', { suffix: 'x'.repeat(129) }],
    ['training_file', { training_file: 'file-123' }],
    ['training_file', { training_file: 'gs://bucket/' }],
    ['validation_file', { validation_file: 's3://bucket/valid.jsonl' }],
    ['metadata.Team', { metadata: { Team: 'search' } }],
    ['metadata.team', { metadata: { team: 'Search & Co' } }],
    [
      'method.supervised.hyperparameters.gamma',
      { body: { method: { type: 'supervised', supervised: { hyperparameters: { gamma: 1 } } } } },
    ],
  ])('a wrong %s is a 400 that names it, before any call', async (param, more) => {
    expect(await refusal(() => jobs.create({ ...job(), ...more }, context))).toMatchObject({ status: 400, param });
    expect(context.calls).toEqual([]);
  });

  it('a training file outside the named bucket is forbidden', async () => {
    const request = job({ training_file: 'gs://other-bucket/train.jsonl' });
    expect(await refusal(() => jobs.create(request, context))).toMatchObject({ status: 403, param: 'training_file' });
    expect(context.calls).toEqual([]);
  });

  it('a pattern is no training file: it may mean what others keep in the bucket', async () => {
    for (const name of ['*', 'in/*.jsonl', 'in/mine?.jsonl', 'in/[ab].jsonl']) {
      for (const training_file of [`gs://bucket/${name}`, encodeURIComponent(`gs://bucket/${name}`)]) {
        expect(await refusal(() => jobs.create(job({ training_file }), context))).toMatchObject({
          status: 400,
          param: 'training_file',
        });
      }
    }
    expect(context.calls).toEqual([]);
  });

  it('region and project are checked before they become part of an address', async () => {
    for (const [param, settings] of [
      ['vertex_region', { ...SETTINGS, vertex_region: 'evil.example/' }],
      ['vertex_region', { vertex_project_id: 'test-project' }],
      ['vertex_project_id', { ...SETTINGS, vertex_project_id: '../x' }],
      ['vertex_project_id', { vertex_region: 'us-central1' }],
    ] as const) {
      expect(await refusal(() => jobs.create(job(), contextWith({ settings })))).toMatchObject({ status: 400, param });
    }
    expect(vertexAi.baseUrl({ key: null, settings: SETTINGS })).toBe(
      'https://us-central1-aiplatform.googleapis.com/v1',
    );
    expect(vertexAi.baseUrl({ key: null, settings: { vertex_region: 'eu' } })).toBe(
      'https://aiplatform.eu.rep.googleapis.com/v1',
    );
    expect(() => vertexAi.baseUrl({ key: null, settings: { vertex_region: 'a.b' } })).toThrow('vertex_region');
  });
});

describe('tuning jobs', () => {
  it.each([
    ['JOB_STATE_QUEUED', 'queued'],
    ['JOB_STATE_PENDING', 'queued'],
    ['JOB_STATE_PAUSED', 'queued'],
    ['JOB_STATE_RUNNING', 'running'],
    ['JOB_STATE_UPDATING', 'running'],
    ['JOB_STATE_CANCELLING', 'running'],
    ['JOB_STATE_SUCCEEDED', 'succeeded'],
    ['JOB_STATE_PARTIALLY_SUCCEEDED', 'succeeded'],
    ['JOB_STATE_FAILED', 'failed'],
    ['JOB_STATE_EXPIRED', 'failed'],
    ['JOB_STATE_CANCELLED', 'cancelled'],
    ['JOB_STATE_OF_LATER_YEARS', 'running'],
  ])('%s is %s', async (state, status) => {
    upstream.jobs.set('1', tuning('1', { state, ...ENDED }));
    const found = await jobs.retrieve('1', context);
    expect(found.status).toBe(status);
    expect(found.error === null).toBe(status !== 'failed');
    expect(found.finished_at === null).toBe(!['succeeded', 'failed', 'cancelled'].includes(status));
  });

  it('a finished job names the callable endpoint, its times in seconds and the tokens that were billed', async () => {
    upstream.jobs.set(
      '1',
      tuning('1', {
        state: 'JOB_STATE_SUCCEEDED',
        ...ENDED,
        labels: { team: 'search' },
        tunedModel: { model: `${VERTEX_NUMBER}/models/5@1`, endpoint: `${VERTEX_NUMBER}/endpoints/6` },
        tuningDataStats: { supervisedTuningDataStats: { totalBillableTokenCount: '123456' } },
      }),
    );
    expect(await jobs.retrieve('1', context)).toMatchObject({
      id: '1',
      created_at: 1_767_225_600,
      finished_at: 1_767_232_800,
      fine_tuned_model: `${VERTEX_NUMBER}/endpoints/6`,
      tuned_model: `${VERTEX_NUMBER}/models/5@1`,
      hyperparameters: { n_epochs: 3, learning_rate_multiplier: 0.5 },
      organization_id: '123456789',
      trained_tokens: 123_456,
      training_file: 'gs%3A%2F%2Fbucket%2Ftrain.jsonl',
      validation_file: null,
      result_files: [],
      metadata: { team: 'search' },
    });
  });

  it.each([
    [{ code: 3, message: 'Dataset row 4 is malformed' }, 'invalid_training_file', 'training_file'],
    [{ code: 3, message: 'Validation dataset is empty' }, 'invalid_validation_file', 'validation_file'],
    [{ code: 8, message: 'Out of quota' }, 'quota_exceeded', null],
    [{ code: 5, message: 'Base model not found' }, 'unsupported_model', null],
    [{ code: 13, message: 'Internal' }, 'provider_error', null],
  ])('the error %j of a job is told as %s', async (error, code, param) => {
    upstream.jobs.set('1', tuning('1', { state: 'JOB_STATE_FAILED', ...ENDED, error }));
    expect((await jobs.retrieve('1', context)).error).toEqual({ code, message: error.message, param });
  });

  it('a full resource name is taken only inside the own project and region', async () => {
    upstream.jobs.set('1', tuning('1'));
    const own = await jobs.retrieve('projects/test-project/locations/us-central1/tuningJobs/1', context);
    expect(own.id).toBe('1');
    for (const id of [
      'projects/other-project/locations/us-central1/tuningJobs/1',
      `${VERTEX_NUMBER}/batchPredictionJobs/1`,
    ]) {
      expect(await refusal(() => jobs.retrieve(id, context))).toMatchObject({ status: 400 });
    }
    for (const id of ['..', '1?x', 'missing']) {
      expect(await refusal(() => jobs.retrieve(id, context))).toMatchObject({ status: 404 });
    }
  });

  it('pages of any size walk the whole list, each job once, while jobs are added', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: 130 }), fc.integer({ min: 1, max: 100 }), async (count, limit) => {
        upstream.jobs.clear();
        const all = Array.from({ length: count }, (_, i) => String(500 - i));
        for (const id of all) upstream.jobs.set(id, tuning(id));
        let added = 1000;
        upstream.beforeList = () => {
          if (added < 1005 && upstream.received.length % 3 === 0) {
            putFirst(upstream.jobs, String(++added), tuning(String(added)));
          }
        };
        const seen = await walk((page) => jobs.list(page, context), limit);
        expect(new Set(seen).size).toBe(seen.length);
        expect(seen.filter((id) => Number(id) <= 500)).toEqual(all);
      }),
      { numRuns: 15 },
    );
  });

  it('an unknown cursor is a 400 that names "after"', async () => {
    upstream.jobs.set('1', tuning('1'));
    const page = { after: 'nobody', limit: 10 };
    expect(await refusal(() => jobs.list(page, context))).toMatchObject({ status: 400, param: 'after' });
  });

  it('says "cancelled" at once, asks upstream to cancel, and refuses for a job that has ended', async () => {
    upstream.jobs.set('1', tuning('1'));
    expect(await jobs.cancel('1', context)).toMatchObject({ status: 'cancelled', finished_at: 1_767_225_600 });
    expect(upstream.jobs.get('1')?.state).toBe('JOB_STATE_CANCELLING');
    upstream.jobs.set('2', tuning('2', { state: 'JOB_STATE_SUCCEEDED', ...ENDED }));
    expect(await refusal(() => jobs.cancel('2', context))).toMatchObject({
      status: 400,
      type: 'invalid_request_error',
    });
  });

  it('tells what upstream reports as events, newest first, with ids that stay', async () => {
    upstream.jobs.set(
      '1',
      tuning('1', {
        state: 'JOB_STATE_FAILED',
        ...ENDED,
        error: { code: 13, message: 'It broke' },
        tuningDataStats: {
          supervisedTuningDataStats: { totalTruncatedExampleCount: '2', droppedExampleReasons: ['too long'] },
        },
      }),
    );
    const page = await jobs.events('1', { after: null, limit: 3 }, context);
    expect(page.data.map(({ id, level, created_at }) => [id, level, created_at])).toEqual([
      ['1:failed', 'error', 1_767_232_800],
      ['1:examples', 'warn', 1_767_225_660],
      ['1:started', 'info', 1_767_225_660],
    ]);
    expect(page.data[1]?.message).toContain('too long');
    expect(page.has_more).toBe(true);
    const rest = await jobs.events('1', { after: '1:started', limit: 3 }, context);
    expect(rest).toMatchObject({ data: [{ id: '1:created' }], has_more: false });
  });

  it('shows the checkpoints that can be called, newest first, and none when only the last was kept', async () => {
    upstream.jobs.set('1', tuning('1'));
    const all = { after: null, limit: 10 };
    expect(await jobs.checkpoints('1', all, context)).toEqual({ data: [], has_more: false });
    const checkpoints = [1, 2].map((n) => ({
      checkpointId: String(n),
      epoch: String(n),
      step: String(n * 10),
      endpoint: `${VERTEX_NUMBER}/endpoints/${n}`,
    }));
    upstream.jobs.set('1', tuning('1', { state: 'JOB_STATE_SUCCEEDED', ...ENDED, tunedModel: { checkpoints } }));
    const { data } = await jobs.checkpoints('1', all, context);
    expect(data).toEqual([
      {
        object: 'fine_tuning.job.checkpoint',
        id: '1:2',
        created_at: 1_767_232_800,
        fine_tuned_model_checkpoint: `${VERTEX_NUMBER}/endpoints/2`,
        step_number: 20,
        metrics: { step: 20 },
        fine_tuning_job_id: '1',
        epoch: 2,
      },
      expect.objectContaining({ id: '1:1', step_number: 10 }),
    ]);
  });

  it('finds the job it made before it could note the answer, and no other', async () => {
    const request = job({ metadata: { run: 'a1' } });
    expect(await findByName(request, context)).toBeNull();
    const { id } = await jobs.create(request, context);
    expect((await findByName(request, context))?.id).toBe(id);
    for (const other of [{ suffix: 'v9' }, { metadata: { run: 'b2' } }, { training_file: 'gs://bucket/other.jsonl' }]) {
      expect(await findByName(job({ metadata: { run: 'a1' }, ...other }), context)).toBeNull();
    }
  });

  it('gives the errors of Google their status, type and code', async () => {
    const stranger = contextWith({ settings: { ...SETTINGS, vertex_project_id: 'test-project' }, key: 'test-key' });
    expect(await refusal(() => jobs.retrieve('404', stranger))).toMatchObject({
      status: 404,
      kind: 'provider_error',
      type: 'not_found_error',
    });
  });
});

const upload = (content: string, more: Partial<UploadRequest> = {}): UploadRequest => ({
  filename: 'data.jsonl',
  purpose: 'fine-tune',
  contentType: 'application/jsonl',
  stream: Readable.from([Buffer.from(content)]),
  bytes: Buffer.byteLength(content),
  ...more,
});

const idOf = (name: string): string => encodeURIComponent(`gs://bucket/${name}`);

describe('files in Cloud Storage', () => {
  it.each([true, false])('come back as they were sent, size known: %s', async (known) => {
    const content = '{"contents":[]}\r\n--x\r\n'.repeat(1000);
    const file = await files.upload(upload(content, known ? {} : { bytes: null }), context);
    expect(file).toMatchObject({
      object: 'file',
      bytes: content.length,
      purpose: 'fine-tune',
      status: 'processed',
      created_at: 1_767_225_601,
    });
    expect(file.id).toMatch(/^gs%3A%2F%2Fbucket%2F[0-9a-f-]{36}\.jsonl$/);
    // Clients encode an id once more; routers decode once.
    for (const id of [file.id, decodeURIComponent(file.id)]) {
      expect(await files.retrieve(id, context)).toEqual(file);
      const read = await files.content(id, context);
      expect(read).toMatchObject({ contentType: 'application/jsonl', bytes: content.length });
      expect(await textOf(read.stream)).toBe(content);
    }
    await files.remove(file.id, context);
    expect(await refusal(() => files.retrieve(file.id, context))).toMatchObject({ status: 404 });
  });

  it('go under the name that was asked for, in place of an earlier upload but of nothing else', async () => {
    const named = contextWith({ headers: { ...BUCKET, 'x-gateway-provider-file-name': 'a b/ü?#.jsonl' } });
    expect(files.plannedId?.('data.jsonl', named)).toBe(idOf('a b/ü?#.jsonl'));
    for (const content of ['one', 'two']) {
      const file = await files.upload(upload(content), named);
      expect(file).toMatchObject({ id: idOf('a b/ü?#.jsonl'), filename: 'ü?#.jsonl' });
      expect(await textOf((await files.content(file.id, named)).stream)).toBe(content);
    }
    putRows('taken.jsonl', [{ mine: true }]);
    const taken = contextWith({ headers: { ...BUCKET, 'x-gateway-provider-file-name': 'taken.jsonl' } });
    expect(await refusal(() => files.upload(upload('three'), taken))).toMatchObject({
      status: 409,
      type: 'conflict_error',
      param: 'x-gateway-provider-file-name',
    });
    expect(await textOf((await files.content(idOf('taken.jsonl'), taken)).stream)).toBe('{"mine":true}\n');
  });

  it('are listed newest first and by purpose, over all pages, without objects of others', async () => {
    upstream.storage.listPage = 2;
    const ids: string[] = [];
    for (const purpose of ['batch', 'fine-tune', 'batch', 'fine-tune', 'batch']) {
      ids.unshift((await files.upload(upload('x', { purpose }), context)).id);
    }
    const foreign = {
      content: Buffer.from('y'),
      contentType: 'text/plain',
      metadata: {},
      timeCreated: '2026-01-02T00:00:00Z',
    };
    upstream.storage.buckets.get('bucket')?.set('0-foreign.txt', foreign);
    expect((await files.list(null, context)).map((file) => file.id)).toEqual(ids);
    expect((await files.list('batch', context)).map((file) => file.id)).toEqual([ids[0], ids[2], ids[4]]);
    expect(await files.list('vision', context)).toEqual([]);
  });

  it('live in the named bucket only', async () => {
    const bare = contextWith({ headers: {} });
    const missing = { status: 400, param: 'x-gateway-cloud-storage-bucket-name' };
    expect(await refusal(() => files.upload(upload('x'), bare))).toMatchObject(missing);
    expect(await refusal(() => files.content(idOf('x'), bare))).toMatchObject(missing);
    expect(await refusal(() => files.list(null, bare))).toMatchObject(missing);
    const other = encodeURIComponent('gs://other-bucket/x.jsonl');
    for (const act of [files.retrieve, files.remove, files.content]) {
      expect(await refusal(() => act(other, context))).toMatchObject({ status: 403, type: 'permission_error' });
    }
    for (const name of ['UPPER', 'a', '10.0.0.1', 'a/b', '..']) {
      const wrong = contextWith({ headers: { 'x-gateway-cloud-storage-bucket-name': name } });
      expect(await refusal(() => files.list(null, wrong))).toMatchObject(missing);
    }
    expect(bare.calls).toEqual([]);
  });

  it('have no ids that leave the place of objects', async () => {
    for (const id of [
      'gs://bucket/..',
      'gs://bucket/.',
      'gs://bucket/',
      'gs://bucket',
      'gs://bucket/a\nb',
      'file-1',
      '%',
    ]) {
      expect(await refusal(() => files.remove(id, context))).toMatchObject({ status: 404 });
    }
    expect(context.calls).toEqual([]);
  });

  it('an upload that breaks off leaves nothing behind', async () => {
    const broken = new Readable({ read() {} });
    broken.push('first half');
    const sent = files.upload(upload('', { stream: broken, bytes: null }), context);
    broken.destroy(new Error('the client left'));
    await expect(sent).rejects.toThrow();
    expect(upstream.storage.buckets.get('bucket')?.size).toBe(0);
  });

  it('an object that arrived short is removed again', async () => {
    upstream.storage.lose = 3;
    expect(await refusal(() => files.upload(upload('0123456789'), context))).toMatchObject({
      kind: 'upstream_invalid',
    });
    expect(upstream.storage.buckets.get('bucket')?.size).toBe(0);
  });
});

const batch = (more: Partial<BatchRequest> = {}): BatchRequest => ({
  input_file_id: idOf('in/lines.jsonl'),
  endpoint: '/v1/chat/completions',
  completion_window: '24h',
  metadata: null,
  model: 'gemini-2.5-flash',
  job_name: null,
  role_arn: null,
  output_data_config: null,
  extra: {},
  body: {},
  ...more,
});

const line = (body: JsonObject, url = '/v1/chat/completions'): JsonObject => ({
  custom_id: 'row-1',
  method: 'POST',
  url,
  body: { model: 'gemini-2.5-flash', ...body },
});

const prediction = (id: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  name: `${VERTEX_NUMBER}/batchPredictionJobs/${id}`,
  displayName: 'batch-1',
  model: 'publishers/google/models/gemini-2.5-flash',
  state: 'JOB_STATE_SUCCEEDED',
  createTime: '2026-01-01T00:00:00Z',
  startTime: '2026-01-01T00:01:00Z',
  endTime: '2026-01-01T01:00:00Z',
  inputConfig: { instancesFormat: 'jsonl', gcsSource: { uris: ['gs://bucket/in/lines.jsonl'] } },
  outputInfo: { gcsOutputDirectory: 'gs://bucket/in/prediction-1' },
  labels: { 'gateway-endpoint': 'chat-completions', team: 'search' },
  completionStats: { successfulCount: '2', failedCount: '1', incompleteCount: '-1' },
  ...more,
});

function putRows(name: string, rows: readonly unknown[]): void {
  const content = Buffer.from(rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const object = { content, contentType: 'application/jsonl', metadata: {}, timeCreated: '2026-01-01T00:00:00Z' };
  upstream.storage.buckets.get('bucket')?.set(name, object);
}

const outputOf = async (id: string): Promise<unknown[]> => {
  const text = await textOf(await batches.output(id, context));
  return text.split('\n').flatMap((one) => (one === '' ? [] : [JSON.parse(one) as unknown]));
};

describe('batches', () => {
  it('read from and write to the bucket, beside their input unless told otherwise', async () => {
    const created = await batches.create(batch({ metadata: { team: 'search' }, job_name: 'nightly' }), context);
    expect(upstream.last).toEqual({
      displayName: 'nightly',
      model: 'publishers/google/models/gemini-2.5-flash',
      inputConfig: { instancesFormat: 'jsonl', gcsSource: { uris: ['gs://bucket/in/lines.jsonl'] } },
      outputConfig: { predictionsFormat: 'jsonl', gcsDestination: { outputUriPrefix: 'gs://bucket/in/' } },
      labels: { team: 'search', 'gateway-endpoint': 'chat-completions' },
    });
    expect(created).toMatchObject({
      object: 'batch',
      status: 'validating',
      endpoint: '/v1/chat/completions',
      input_file_id: idOf('in/lines.jsonl'),
      metadata: { team: 'search' },
      model: 'gemini-2.5-flash',
      output_file_id: null,
    });
    await batches.create(
      batch({ output_data_config: 'gs://bucket/out', endpoint: '/v1/embeddings', model: 'google/text-embedding-005' }),
      context,
    );
    expect(upstream.last).toMatchObject({
      model: 'publishers/google/models/text-embedding-005',
      instanceConfig: { excludedFields: ['custom_id'] },
      outputConfig: { gcsDestination: { outputUriPrefix: 'gs://bucket/out' } },
    });
    expect(upstream.last.displayName).toMatch(/^gw-batch-[0-9a-f-]{36}$/);
  });

  it.each([
    ['endpoint', 'unsupported_parameter', { endpoint: '/v1/completions' }],
    ['role_arn', 'unsupported_parameter', { role_arn: 'arn' }],
    ['flavour', 'unsupported_parameter', { extra: { flavour: 'x' } }],
    ['completion_window', 'unsupported_parameter', { completion_window: 'immediate' as const }],
    ['model', null, { model: null }],
    ['model', null, { model: 'publishers/anthropic/models/claude-sonnet-4-5' }],
    ['input_file_id', null, { input_file_id: 'file-1' }],
    ['input_file_id', null, { input_file_id: idOf('in/*') }],
    ['metadata.Bad', null, { metadata: { Bad: 'x' } }],
  ])('a wrong %s is refused by name, before any call', async (param, code, more) => {
    expect(await refusal(() => batches.create(batch(more), context))).toMatchObject({ status: 400, param, code });
    expect(context.calls).toEqual([]);
  });

  it.each([
    ['JOB_STATE_PENDING', 'validating'],
    ['JOB_STATE_RUNNING', 'in_progress'],
    ['JOB_STATE_SUCCEEDED', 'completed'],
    ['JOB_STATE_PARTIALLY_SUCCEEDED', 'completed'],
    ['JOB_STATE_FAILED', 'failed'],
    ['JOB_STATE_CANCELLING', 'cancelling'],
    ['JOB_STATE_CANCELLED', 'cancelled'],
    ['JOB_STATE_EXPIRED', 'expired'],
  ])('%s is %s', async (state, status) => {
    upstream.batches.set('1', prediction('1', { state }));
    const found = await batches.retrieve('1', context);
    expect(found).toMatchObject({ status, in_progress_at: 1_767_225_660, metadata: { team: 'search' } });
    expect(found.request_counts).toEqual({ total: 3, completed: 2, failed: 1 });
    if (status !== 'in_progress')
      expect(found[`${status}_at`]).toBe(
        ['completed', 'failed', 'cancelled', 'expired'].includes(status) ? 1_767_229_200 : undefined,
      );
  });

  it('are walked in pages of any size, and found again by their input', async () => {
    for (let i = 130; i > 0; i--) upstream.batches.set(String(i), prediction(String(i)));
    const seen = await walk((page) => batches.list(page, context), 7);
    expect(seen).toEqual([...upstream.batches.keys()]);
    const request = batch({ input_file_id: idOf('in/mine.jsonl') });
    expect(await batches.findByName?.(request, context)).toBeNull();
    const { id } = await batches.create(request, context);
    expect((await batches.findByName?.(request, context))?.id).toBe(id);
  });

  it('are cancelled, and refuse it after their end', async () => {
    upstream.batches.set('1', prediction('1', { state: 'JOB_STATE_RUNNING' }));
    expect((await batches.cancel('1', context)).status).toBe('cancelling');
    upstream.batches.set('2', prediction('2'));
    expect(await refusal(() => batches.cancel('2', context))).toMatchObject({ status: 400 });
  });

  it('answer every row of every file under its own id, in the shape of chat completions', async () => {
    upstream.batches.set('9', prediction('9'));
    const usage = { promptTokenCount: 5, candidatesTokenCount: 7, thoughtsTokenCount: 2, cachedContentTokenCount: 1 };
    putRows('in/prediction-1/predictions_0001.jsonl', [
      {
        custom_id: 'a',
        status: '',
        request: {},
        response: {
          responseId: 'r1',
          modelVersion: 'gemini-2.5-flash',
          createTime: '2026-01-01T00:30:00Z',
          candidates: [
            {
              content: { parts: [{ text: 'think', thought: true }, { text: 'Hello ' }, { text: 'you' }] },
              finishReason: 'STOP',
            },
          ],
          usageMetadata: usage,
        },
      },
      {
        custom_id: 'b',
        status: 'Bad Request: {"error": {"code": 400, "message": "Too long", "status": "INVALID_ARGUMENT"}}',
      },
    ]);
    putRows('in/prediction-1/predictions_0002.jsonl', [
      { custom_id: 'c', status: 'Something broke' },
      { custom_id: 'd', response: { promptFeedback: { blockReason: 'SAFETY' } } },
      {
        custom_id: 'e',
        response: {
          candidates: [
            { content: { parts: [{ functionCall: { name: 'f', args: { x: 1 } }, thoughtSignature: 'sig' }] } },
          ],
        },
      },
    ]);
    putRows('in/prediction-1/incremental.txt', [{ not: 'rows' }]);
    putRows('in/prediction-12/other.jsonl', [{ custom_id: 'of another batch' }]);
    const [a, b, c, d, e, ...more] = await outputOf('9');
    expect(more).toEqual([]);
    expect(a).toEqual({
      id: '9-a',
      custom_id: 'a',
      response: {
        status_code: 200,
        request_id: '9',
        body: {
          id: 'r1',
          object: 'chat.completion',
          created: 1_767_227_400,
          model: 'gemini-2.5-flash',
          choices: [
            {
              index: 0,
              message: { role: 'assistant', content: 'Hello you', refusal: null },
              logprobs: null,
              finish_reason: 'stop',
            },
          ],
          usage: {
            prompt_tokens: 5,
            completion_tokens: 9,
            total_tokens: 14,
            prompt_tokens_details: { cached_tokens: 1, cache_write_tokens: 0, audio_tokens: 0 },
            completion_tokens_details: {
              reasoning_tokens: 2,
              audio_tokens: 0,
              accepted_prediction_tokens: 0,
              rejected_prediction_tokens: 0,
            },
          },
        },
      },
      error: null,
    });
    expect(b).toMatchObject({
      custom_id: 'b',
      response: { status_code: 400, body: { error: { message: 'Too long' } } },
      error: null,
    });
    expect(c).toEqual({
      id: '9-c',
      custom_id: 'c',
      response: null,
      error: { code: 'provider_error', message: 'Something broke' },
    });
    expect(valueAt(d, 'response.body.choices.0.finish_reason')).toBe('content_filter');
    expect(valueAt(e, 'response.body.choices.0')).toMatchObject({
      finish_reason: 'tool_calls',
      message: {
        content: null,
        tool_calls: [
          {
            type: 'function',
            function: { name: 'f', arguments: '{"x":1}' },
            extra_content: { google: { thought_signature: 'sig' } },
          },
        ],
      },
    });
  });

  it('answer embeddings as lists of numbers', async () => {
    upstream.batches.set(
      '9',
      prediction('9', {
        labels: { 'gateway-endpoint': 'embeddings' },
        model: 'publishers/google/models/text-embedding-005',
      }),
    );
    putRows('in/prediction-1/000000000000.jsonl', [
      {
        instance: { content: 'x' },
        custom_id: 'a',
        predictions: [{ embeddings: { values: [0.5, -1], statistics: { token_count: 3 } } }],
        status: '',
      },
    ]);
    expect(await outputOf('9')).toMatchObject([
      {
        custom_id: 'a',
        response: {
          body: {
            object: 'list',
            model: 'text-embedding-005',
            data: [{ object: 'embedding', index: 0, embedding: [0.5, -1] }],
            usage: { prompt_tokens: 3, total_tokens: 3 },
          },
        },
      },
    ]);
  });

  it('have no output before their end, and an empty one when nothing was written', async () => {
    upstream.batches.set('1', prediction('1', { state: 'JOB_STATE_RUNNING' }));
    expect(await refusal(() => batches.output('1', context))).toMatchObject({ status: 400 });
    upstream.batches.set('2', prediction('2'));
    expect(await outputOf('2')).toEqual([]);
    upstream.batches.set('3', prediction('3', { outputInfo: { gcsOutputDirectory: 'gs://other-bucket/x' } }));
    expect(await refusal(() => batches.output('3', context))).toMatchObject({ status: 403 });
  });
});

describe('lines of a batch', () => {
  it('become rows that carry the whole request', () => {
    const schema = { type: 'object', properties: { city: { type: 'string' } } };
    const row = inputLine(
      line({
        messages: [
          { role: 'system', content: 'Be kind.' },
          {
            role: 'user',
            content: [
              { type: 'text', text: 'Look' },
              { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
            ],
          },
          { role: 'user', content: [{ type: 'image_url', image_url: { url: 'https://a.example/b.jpg?x=1' } }] },
          {
            role: 'assistant',
            content: null,
            tool_calls: [{ id: 'c1', type: 'function', function: { name: 'weather', arguments: '{"city":"Ulm"}' } }],
          },
          { role: 'tool', tool_call_id: 'c1', content: '{"sky":"blue"}' },
          { role: 'developer', content: 'Be brief.' },
        ],
        max_completion_tokens: 50,
        temperature: 0.5,
        stop: 'END',
        seed: 7,
        user: 'somebody',
        reasoning_effort: 'low',
        tools: [{ type: 'function', function: { name: 'weather', description: 'Sky', parameters: schema } }],
        tool_choice: { type: 'function', function: { name: 'weather' } },
        response_format: { type: 'json_schema', json_schema: { name: 'x', schema } },
      }),
      batch(),
    );
    expect(row).toEqual({
      custom_id: 'row-1',
      request: {
        systemInstruction: { parts: [{ text: 'Be kind.' }, { text: 'Be brief.' }] },
        contents: [
          {
            role: 'user',
            parts: [
              { text: 'Look' },
              { inlineData: { mimeType: 'image/png', data: 'AAAA' } },
              { fileData: { mimeType: 'image/jpeg', fileUri: 'https://a.example/b.jpg?x=1' } },
            ],
          },
          { role: 'model', parts: [{ functionCall: { name: 'weather', args: { city: 'Ulm' } } }] },
          { role: 'user', parts: [{ functionResponse: { name: 'weather', response: { sky: 'blue' } } }] },
        ],
        generationConfig: {
          maxOutputTokens: 50,
          temperature: 0.5,
          stopSequences: ['END'],
          seed: 7,
          thinkingConfig: { thinkingBudget: 1024 },
          responseMimeType: 'application/json',
          responseJsonSchema: schema,
        },
        tools: [{ functionDeclarations: [{ name: 'weather', description: 'Sky', parametersJsonSchema: schema }] }],
        toolConfig: { functionCallingConfig: { mode: 'ANY', allowedFunctionNames: ['weather'] } },
      },
    });
    const embedding = inputLine(line({ input: ['Hello'] }, '/v1/embeddings'), batch({ endpoint: '/v1/embeddings' }));
    expect(embedding).toEqual({ custom_id: 'row-1', content: 'Hello' });
  });

  const hello = { messages: [{ role: 'user', content: 'Hi' }] };
  it.each<[string, JsonObject]>([
    ['parallel_tool_calls', { ...hello, parallel_tool_calls: false }],
    ['logit_bias', { ...hello, logit_bias: { 5: 1 } }],
    ['nonsense', { ...hello, nonsense: 1 }],
    ['reasoning_effort', { ...hello, reasoning_effort: 'max' }],
    [
      'messages[0].content[0].image_url',
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'https://a.example/b' } }] }] },
    ],
    ['messages[1].tool_call_id', { messages: [...hello.messages, { role: 'tool', tool_call_id: 'x', content: 'y' }] }],
    ['messages[0]', { messages: [{ role: 'user', content: '' }] }],
    ['messages', { messages: [] }],
  ])('are refused with the name of what a row cannot hold: %s', async (param, body) => {
    expect(await refusal(async () => inputLine(line(body), batch()))).toMatchObject({ status: 400, param });
  });

  it('are rows or refusals, whatever they hold', async () => {
    const anything = fc.jsonValue() as fc.Arbitrary<JsonObject[string]>;
    const message = fc.record(
      {
        role: fc.constantFrom('system', 'user', 'assistant', 'tool', 'other'),
        content: anything,
        tool_calls: anything,
        tool_call_id: fc.constantFrom('c1', 'c2'),
      },
      { requiredKeys: ['role'] },
    );
    const body = fc.record(
      {
        messages: fc.oneof(fc.array(message), anything),
        tools: anything,
        tool_choice: anything,
        stop: anything,
        response_format: anything,
        reasoning_effort: anything,
      },
      { requiredKeys: ['messages'] },
    );
    await fc.assert(
      fc.asyncProperty(body, async (given) => {
        try {
          expect(inputLine(line(given as JsonObject), batch()).custom_id).toBe('row-1');
        } catch (error) {
          expect(error).toBeInstanceOf(SluiceError);
          expect(errorStatus(error as SluiceError)).toBe(400);
        }
      }),
    );
  });
});
