import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { JobRequest } from '../../src/operations/training.ts';
import { vertexAi } from '../../src/providers/vertex-ai/vertex-ai.ts';
import { putFirst, VERTEX_NUMBER } from '../support/upstreams/vertex-ai.ts';
import { context, contextWith, findByName, jobs, SETTINGS, upstream, useVertex } from '../support/vertex-training.ts';
import { requestFor } from './fields/inputs.ts';
import { FIELD_NAMES } from './fields/names.ts';
import { vertexAi as subject } from './fields/vertex-ai.ts';
import { refusal, valueAt, walk } from './support.ts';

useVertex();

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
