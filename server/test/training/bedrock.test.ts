import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { JobRequest } from '../../src/operations/training.ts';
import { bedrock } from '../../src/providers/bedrock/bedrock.ts';
import type { AdapterContext } from '../../src/providers/training.ts';
import { type AdapterContextOptions, adapterContext, type TestContext } from '../support/adapter-context.ts';
import {
  AWS_KEYS,
  BEDROCK_KEY,
  BEDROCK_REGION,
  type BedrockUpstream,
  type Fields,
  ROLE,
  ROLE_KEYS,
  startBedrock,
} from '../support/upstreams/bedrock.ts';
import { bedrock as subject } from './fields/bedrock.ts';
import { requestFor } from './fields/inputs.ts';
import { FIELD_NAMES } from './fields/names.ts';
import { refusal, valueAt, walk } from './support.ts';

const { jobs } = bedrock.training ?? {};
if (!jobs?.findByName) throw new Error('a part is missing');
const { findByName } = jobs;

const NOW = Date.parse('2026-11-21T12:00:00.250Z');
const KEYS = { aws_access_key_id: AWS_KEYS.accessKeyId, aws_secret_access_key: AWS_KEYS.secretAccessKey };
const SETTINGS = { aws_auth_type: 'accessKey', aws_region: BEDROCK_REGION, ...KEYS };

let now = NOW;
let upstream: BedrockUpstream;
let context: TestContext;
const opened: TestContext[] = [];

function contextWith(options: Partial<AdapterContextOptions>): TestContext {
  const made = adapterContext({ base: upstream.url, key: null, settings: SETTINGS, now: () => now, ...options });
  opened.push(made);
  return made;
}

beforeEach(async () => {
  now = NOW;
  upstream = await startBedrock({ now: () => now });
  context = contextWith({});
});

afterEach(async () => {
  await Promise.all(opened.splice(0).map((one) => one.close()));
  await upstream.stop();
  expect(upstream.faults).toEqual([]);
});

const job = (more: Partial<JobRequest> = {}): JobRequest =>
  requestFor({ base: { ...subject.base, ...more } }, 'training_file');
const tuned = (model: string, hyperparameters: JobRequest['hyperparameters']): JobRequest =>
  job({ upstreamModel: model, hyperparameters });
const withoutToken = (body: Fields): Fields => ({ ...body, clientRequestToken: null });

describe('every field of a create request', () => {
  it.each(FIELD_NAMES)('%s reaches Bedrock, or is refused by name before any call', async (name) => {
    const request = requestFor(subject, name);
    const fate = subject.table[name];
    if ('place' in fate) {
      await jobs.create(request, context);
      expect(valueAt(upstream.last, fate.place)).toEqual(fate.value);
      expect(withoutToken(jobs.prepare(request, context).body)).toEqual(withoutToken(upstream.last));
    } else {
      expect(await refusal(() => jobs.create(request, context))).toMatchObject({
        status: 400,
        code: 'unsupported_parameter',
        param: fate.refused,
      });
      expect(await refusal(() => jobs.prepare(request, context))).toMatchObject({ param: fate.refused });
      expect(context.calls).toEqual([]);
    }
  });

  it('leaves out what drop_params lists instead of refusing it', async () => {
    const dropping = contextWith({ dropParams: ['seed', 'batch_size', 'flavour'] });
    const hyperparameters = { n_epochs: 3, learning_rate_multiplier: 1, batch_size: 4 } as const;
    await jobs.create(job({ seed: 3, hyperparameters, extra: { flavour: 'x' } }), dropping);
    expect(upstream.last.hyperParameters).toEqual({ epochCount: '3' });
  });
});

describe('hyperparameters by model family', () => {
  const NOVA = 'amazon.nova-micro-v1:0:128k';
  const at = 'method.supervised.hyperparameters';
  it.each([
    [NOVA, { n_epochs: 5, learning_rate_multiplier: 3, batch_size: 1 }, { epochCount: '5', learningRate: '0.00003' }],
    [
      NOVA,
      { n_epochs: 1, learning_rate_multiplier: 0.1, batch_size: 'auto' },
      { epochCount: '1', learningRate: '0.000001' },
    ],
    [NOVA, { n_epochs: 1, learning_rate_multiplier: 'auto', batch_size: 1 }, { epochCount: '1' }],
    [
      'amazon.titan-text-premier-v1:0',
      { n_epochs: 5, learning_rate_multiplier: 0.5, batch_size: 1 },
      { epochCount: '5', batchSize: '1', learningRate: '5e-7' },
    ],
    [
      'amazon.titan-text-express-v1',
      { n_epochs: 10, learning_rate_multiplier: 1, batch_size: 64 },
      { epochCount: '10', batchSize: '64' },
    ],
    [
      'amazon.titan-embed-image-v1',
      { n_epochs: 'auto', learning_rate_multiplier: 1, batch_size: 576 },
      { epochCount: 'Auto', batchSize: '576' },
    ],
    [
      'anthropic.claude-3-haiku-20240307-v1:0:200k',
      { n_epochs: 10, learning_rate_multiplier: 0.5, batch_size: 32 },
      { epochCount: '10', batchSize: '32', learningRateMultiplier: '0.5' },
    ],
    [
      'anthropic.claude-3-haiku-20240307-v1:0:200k',
      { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 4 },
      { epochCount: '1', batchSize: '4', learningRateMultiplier: '1' },
    ],
    [
      'cohere.command-text-v14:7:4k',
      { n_epochs: 100, learning_rate_multiplier: 2, batch_size: 8 },
      { epochCount: '100', batchSize: '8', learningRate: '0.00002' },
    ],
    [
      'cohere.command-light-text-v14:7:4k',
      { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 32 },
      { epochCount: '1', batchSize: '32' },
    ],
    [
      'meta.llama3-1-8b-instruct-v1:0:128k',
      { n_epochs: 10, learning_rate_multiplier: 10, batch_size: 1 },
      { epochCount: '10', batchSize: '1', learningRate: '0.001' },
    ],
    [
      `arn:aws:bedrock:${BEDROCK_REGION}::foundation-model/${NOVA}`,
      { n_epochs: 2, learning_rate_multiplier: 2, batch_size: 1 },
      { epochCount: '2', learningRate: '0.00002' },
    ],
    [
      `arn:aws:bedrock:${BEDROCK_REGION}:123456789012:custom-model/${NOVA}/abcdef123456`,
      { n_epochs: 2, learning_rate_multiplier: 2, batch_size: 1 },
      { epochCount: '2', learningRate: '0.00002' },
    ],
    [
      'vendor.new-model-v1',
      { n_epochs: 70, learning_rate_multiplier: 1, batch_size: 3 },
      { epochCount: '70', batchSize: '3' },
    ],
  ] as const)('%s %o is sent as texts', (model, hyperparameters, expected) => {
    expect(jobs.prepare(tuned(model, hyperparameters), context).body.hyperParameters).toEqual(expected);
  });

  it.each([
    [NOVA, { n_epochs: 6, learning_rate_multiplier: 1, batch_size: 1 }, 'n_epochs'],
    [NOVA, { n_epochs: 'auto', learning_rate_multiplier: 1, batch_size: 1 }, 'n_epochs'],
    [NOVA, { n_epochs: 1, learning_rate_multiplier: 11, batch_size: 1 }, 'learning_rate_multiplier'],
    [NOVA, { n_epochs: 1, learning_rate_multiplier: 0.05, batch_size: 1 }, 'learning_rate_multiplier'],
    [NOVA, { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 2 }, 'batch_size'],
    ['amazon.nova-canvas-v1:0', { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 1 }, 'n_epochs'],
    ['amazon.titan-image-generator-v2:0', { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 8 }, 'n_epochs'],
    ['amazon.titan-embed-image-v1', { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 8 }, 'batch_size'],
    [
      'anthropic.claude-3-haiku-20240307-v1:0',
      { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 1 },
      'batch_size',
    ],
    [
      'anthropic.claude-3-haiku-20240307-v1:0',
      { n_epochs: 1, learning_rate_multiplier: 2.5, batch_size: 4 },
      'learning_rate_multiplier',
    ],
    ['meta.llama3-1-8b-instruct-v1:0', { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 2 }, 'batch_size'],
    ['vendor.new-model-v1', { n_epochs: 1, learning_rate_multiplier: 2, batch_size: 1 }, 'learning_rate_multiplier'],
    ['vendor.new-model-v1', { n_epochs: 'auto', learning_rate_multiplier: 1, batch_size: 1 }, 'n_epochs'],
  ] as const)('%s %o is refused by name', async (model, hyperparameters, field) => {
    expect(await refusal(() => jobs.prepare(tuned(model, hyperparameters), context))).toMatchObject({
      status: 400,
      code: 'unsupported_parameter',
      param: `${at}.${field}`,
    });
  });

  it('come back under the names they were given with', async () => {
    for (const [model, hyperparameters] of [
      ['amazon.nova-lite-v1:0:300k', { n_epochs: 2, learning_rate_multiplier: 3 }],
      ['anthropic.claude-3-haiku-20240307-v1:0:200k', { n_epochs: 3, learning_rate_multiplier: 0.3, batch_size: 8 }],
      ['meta.llama3-1-8b-instruct-v1:0:128k', { n_epochs: 4, learning_rate_multiplier: 7, batch_size: 1 }],
    ] as const) {
      const made = await jobs.create(
        tuned(model, { batch_size: 1, ...hyperparameters }),
        contextWith({ uuid: () => `u-${model.length}` }),
      );
      expect(made.hyperparameters).toEqual(hyperparameters);
      upstream.jobs.length = 0;
    }
  });
});

describe('creating a job', () => {
  it('answers the job as the provider has it, under the name the caller gave the model', async () => {
    const made = await jobs.create(job({ model: 'my-alias' }), context);
    expect(made).toMatchObject({
      object: 'fine_tuning.job',
      created_at: Math.floor(NOW / 1000),
      error: null,
      fine_tuned_model: null,
      finished_at: null,
      model: 'my-alias',
      organization_id: '123456789012',
      result_files: [],
      status: 'running',
      trained_tokens: null,
      training_file: 's3%3A%2F%2Fmy-bucket%2Fdata%2Ftrain.jsonl',
      validation_file: null,
      seed: 0,
    });
    expect(decodeURIComponent(made.id)).toBe(upstream.jobs[0]?.jobArn);
  });

  it('derives the output from the training file and makes a name when none is given', async () => {
    const made = jobs.prepare(job({ job_name: null }), contextWith({ uuid: () => 'u1' }));
    expect(made.url).toBe(`${upstream.url}/model-customization-jobs`);
    expect(made.body).toMatchObject({
      jobName: 'gw-ft-u1',
      outputDataConfig: { s3Uri: 's3://my-bucket/data/gw-ft-u1/' },
    });
    const top = jobs.prepare(job({ training_file: 's3://my-bucket/train.jsonl' }), context);
    expect(top.body.outputDataConfig).toEqual({ s3Uri: 's3://my-bucket/job-0/' });
    expect(JSON.stringify(made)).not.toContain(AWS_KEYS.secretAccessKey);
  });

  it('reports a created job although it cannot be read yet', async () => {
    upstream.fail = (call) =>
      call.startsWith('GET ') ? { status: 500, name: 'InternalServerException', message: 'later' } : null;
    expect(await jobs.create(job(), context)).toMatchObject({
      status: 'validating_files',
      training_file: 's3%3A%2F%2Fmy-bucket%2Fdata%2Ftrain.jsonl',
      hyperparameters: { n_epochs: 3 },
    });
  });

  it('a repeated idempotency key starts nothing a second time, whatever its characters', async () => {
    for (const key of ['order-1', 'order 2 / ü', 'x'.repeat(300)]) {
      const repeating = contextWith({ headers: { 'idempotency-key': key } });
      const name = `n${upstream.jobs.length}`;
      const first = await jobs.create(job({ job_name: name }), repeating);
      expect((await jobs.create(job({ job_name: name }), repeating)).id).toBe(first.id);
    }
    expect(upstream.jobs).toHaveLength(3);
  });

  it.each([
    ['role_arn', { role_arn: null }],
    ['role_arn', { role_arn: 'arn:aws:iam::1:user/me' }],
    ['suffix', { suffix: 'has space' }],
    ['suffix', { suffix: `${'a'.repeat(64)}` }],
    ['suffix', { suffix: '' }],
    ['job_name', { job_name: '-starts-wrong' }],
    ['training_file', { training_file: 'file-123' }],
    ['training_file', { training_file: 's3://my-bucket/with space.jsonl' }],
    ['training_file', { training_file: 's3://My_Bucket/a.jsonl' }],
    ['training_file', { training_file: 's3://my-bucket/../a.jsonl' }],
    ['training_file', { training_file: '%E0%A4%A' }],
    ['validation_file', { validation_file: 's3://my-bucket/ü.jsonl' }],
    ['output_file', { output_file: 'gs://my-bucket/out' }],
    ['metadata', { metadata: { 'a;b': 'x' } }],
    ['metadata', { metadata: { a: 'x'.repeat(257) } }],
    ['metadata', { metadata: Object.fromEntries(Array.from({ length: 51 }, (_, i) => [`k${i}`, 'v'])) }],
  ] as const)('names %s when Bedrock could not take %o', async (param, wrong) => {
    expect(await refusal(() => jobs.create(job(wrong as Partial<JobRequest>), context))).toMatchObject({
      status: 400,
      param,
    });
    expect(context.calls).toEqual([]);
  });

  it('is found again by its name, unless another model was made under it', async () => {
    await jobs.create(job({ job_name: 'again', suffix: 'v9' }), context);
    expect((await findByName(job({ job_name: 'again', suffix: 'v9' }), context))?.id).toContain('arn%3Aaws%3A');
    expect(await findByName(job({ job_name: 'again', suffix: 'other' }), context)).toBeNull();
    expect(await findByName(job({ job_name: 'never' }), context)).toBeNull();
    expect(await findByName(job({ job_name: null }), context)).toBeNull();
  });
});

describe('reading jobs', () => {
  const ended = { endTime: '2026-11-21T11:00:00.900Z' };
  it.each([
    [{ status: 'InProgress' }, 'running'],
    [{ status: 'InProgress', statusDetails: { validationDetails: { status: 'InProgress' } } }, 'validating_files'],
    [{ status: 'InProgress', statusDetails: { dataProcessingDetails: { status: 'InProgress' } } }, 'validating_files'],
    [{ status: 'InProgress', statusDetails: { trainingDetails: { status: 'NotStarted' } } }, 'queued'],
    [{ status: 'InProgress', statusDetails: { trainingDetails: { status: 'InProgress' } } }, 'running'],
    [{ status: 'Completed', ...ended }, 'succeeded'],
    [{ status: 'Failed', ...ended }, 'failed'],
    [{ status: 'Stopping' }, 'cancelled'],
    [{ status: 'Stopped', ...ended }, 'cancelled'],
  ] as const)('%o is %s', async (fields, status) => {
    const { jobArn } = upstream.addJob(fields);
    const read = await jobs.retrieve(encodeURIComponent(String(jobArn)), context);
    expect(read.status).toBe(status);
    expect(read.finished_at).toBe('endTime' in fields ? Date.parse('2026-11-21T11:00:00Z') / 1000 : null);
    expect(read.error === null).toBe(status !== 'failed');
  });

  it('answers by encoded ARN, plain ARN and job name, and 404 for anything else without asking', async () => {
    const { jobArn, jobName } = upstream.addJob({});
    for (const id of [encodeURIComponent(String(jobArn)), String(jobArn), String(jobName)]) {
      expect(decodeURIComponent((await jobs.retrieve(id, context)).id)).toBe(jobArn);
    }
    const asked = context.calls.length;
    for (const id of [
      '../secrets',
      'a/b',
      '',
      '%zz',
      'arn:aws:bedrock:us-east-1:123456789012:model-customization-job/x/abc',
    ]) {
      expect(await refusal(() => jobs.retrieve(id, context))).toMatchObject({ status: 404 });
    }
    expect(context.calls).toHaveLength(asked);
    expect(await refusal(() => jobs.retrieve('unknown-name', context))).toMatchObject({
      status: 404,
      type: 'not_found_error',
    });
  });

  it('a finished job has its model and the files of its metrics, a failed one its reason', async () => {
    const done = upstream.addJob({
      ...ended,
      status: 'Completed',
      outputModelArn: 'arn:aws:bedrock:eu-central-1:123456789012:custom-model/x',
      validationDataConfig: { validators: [{ s3Uri: 's3://my-bucket/valid.jsonl' }] },
    });
    const id = String(done.jobArn).split('/').at(-1);
    const folder = `s3://my-bucket/out/model-customization-job-${id}`;
    const read = await jobs.retrieve(String(done.jobArn), context);
    expect(read).toMatchObject({
      fine_tuned_model: done.outputModelArn,
      validation_file: encodeURIComponent('s3://my-bucket/valid.jsonl'),
    });
    expect(read.result_files.map(decodeURIComponent)).toEqual([
      `${folder}/training_artifacts/step_wise_training_metrics.csv`,
      `${folder}/validation_artifacts/post_fine_tuning_validation/validation_metrics.csv`,
    ]);
    const failed = upstream.addJob({ ...ended, status: 'Failed', failureMessage: 'The training data has no rows.' });
    expect((await jobs.retrieve(String(failed.jobArn), context)).error).toEqual({
      code: 'provider_error',
      message: 'The training data has no rows.',
      param: 'training_file',
    });
  });

  it('the list is walked completely with any page size, also when jobs share a moment or are added meanwhile', async () => {
    for (let i = 0; i < 23; i++) {
      upstream.addJob({ creationTime: new Date(NOW - Math.floor(i / 3) * 1000).toISOString() });
    }
    const expected = (await jobs.list({ after: null, limit: 100 }, context)).data.map((one) => one.id);
    expect(new Set(expected).size).toBe(23);
    for (const limit of [1, 2, 5, 7, 22, 23, 24, 100]) {
      expect(await walk((page) => jobs.list(page, context), limit)).toEqual(expected);
    }
    let added = 0;
    const growing = await walk(async (page) => {
      const answer = await jobs.list(page, context);
      upstream.addJob({ creationTime: new Date(NOW + ++added * 1000).toISOString() });
      return answer;
    }, 4);
    expect(growing).toEqual(expected);
  });

  it('an unknown cursor is 400, and never a token of the provider', async () => {
    upstream.addJob({});
    expect(await refusal(() => jobs.list({ after: 'nobody', limit: 5 }, context))).toMatchObject({
      status: 400,
      code: 'AB01',
      param: 'after',
    });
  });

  it('a list is answered from summaries where the provider is too busy for the details', async () => {
    const { jobArn } = upstream.addJob({});
    upstream.fail = (call) =>
      call.includes('/arn') ? { status: 429, name: 'ThrottlingException', message: 'slow down' } : null;
    const { data } = await jobs.list({ after: null, limit: 5 }, context);
    expect(data).toMatchObject([
      { id: encodeURIComponent(String(jobArn)), training_file: '', hyperparameters: { n_epochs: 'auto' } },
    ]);
  });
});

describe('the course of a job', () => {
  it('cancel stops it at the provider and answers it cancelled; a finished one is 400', async () => {
    const { jobArn } = upstream.addJob({});
    expect(await jobs.cancel(String(jobArn), context)).toMatchObject({ status: 'cancelled', finished_at: null });
    expect(upstream.jobs[0]?.status).toBe('Stopping');
    const done = upstream.addJob({ status: 'Completed' });
    expect(await refusal(() => jobs.cancel(String(done.jobArn), context))).toMatchObject({ status: 400, code: 'AB01' });
  });

  it('events say what status and times say, newest first, with ids that stay', async () => {
    const { jobArn } = upstream.addJob({
      creationTime: '2026-11-21T10:00:00Z',
      endTime: '2026-11-21T11:00:00Z',
      status: 'Failed',
      failureMessage: 'out of luck',
      statusDetails: {
        validationDetails: {
          status: 'Completed',
          creationTime: '2026-11-21T10:01:00Z',
          lastModifiedTime: '2026-11-21T10:02:00Z',
        },
        trainingDetails: { status: 'NotStarted' },
      },
    });
    const read = async (after: string | null, limit: number) =>
      (await jobs.events(String(jobArn), { after, limit }, context)).data;
    const all = await read(null, 20);
    expect(all.map(({ level, message, created_at }) => [level, message, created_at])).toEqual([
      ['error', 'out of luck', Date.parse('2026-11-21T11:00:00Z') / 1000],
      ['info', 'Validation of the data completed.', Date.parse('2026-11-21T10:02:00Z') / 1000],
      ['info', 'Validation of the data started.', Date.parse('2026-11-21T10:01:00Z') / 1000],
      ['info', 'The fine-tuning job was created.', Date.parse('2026-11-21T10:00:00Z') / 1000],
    ]);
    expect(await walk((page) => jobs.events(String(jobArn), page, context), 1)).toEqual(all.map(({ id }) => id));
    expect(await read(all[1]?.id ?? '', 1)).toEqual([all[2]]);
  });

  it('there are no checkpoints, and no job without checkpoints either', async () => {
    const { jobArn } = upstream.addJob({});
    expect(await jobs.checkpoints(String(jobArn), { after: null, limit: 10 }, context)).toEqual({
      data: [],
      has_more: false,
    });
    expect(await refusal(() => jobs.checkpoints('nobody', { after: null, limit: 10 }, context))).toMatchObject({
      status: 404,
    });
  });

  it.each([
    ['amazon.nova-lite-v1:0', 'bedrock-conversation'],
    ['anthropic.claude-3-haiku-20240307-v1:0', 'bedrock-claude-3'],
    ['amazon.titan-text-express-v1', 'bedrock-text'],
    ['meta.llama3-1-8b-instruct-v1:0', 'bedrock-text'],
    ['meta.llama3-3-70b-instruct-v1:0', 'bedrock-conversation'],
  ] as const)('rows for %s are %s', (upstreamModel, format) => {
    expect(jobs.rowFormat({ upstreamModel, method: 'supervised' })).toBe(format);
  });
});

describe('errors of the provider', () => {
  it.each([
    [403, 'AccessDeniedException', 403, 'permission_error', null],
    [403, 'UnrecognizedClientException', 403, 'authentication_error', 'invalid_api_key'],
    [403, 'ExpiredTokenException', 403, 'authentication_error', 'invalid_api_key'],
    [400, 'ValidationException', 400, 'invalid_request_error', 'validation_exception'],
    [400, 'ServiceQuotaExceededException', 429, 'rate_limit_error', 'insufficient_quota'],
    [429, 'ThrottlingException', 429, 'rate_limit_error', 'rate_limit_exceeded'],
    [500, 'InternalServerException', 500, 'api_error', null],
  ] as const)('%i %s is %i %s %s', async (status, name, expected, type, code) => {
    upstream.fail = () => ({ status, name, message: 'said so' });
    expect(await refusal(() => jobs.create(job(), context))).toMatchObject({
      status: expected,
      type,
      code,
      message: 'said so',
    });
  });
});

describe('signing in', () => {
  const list = (with_: AdapterContext) => jobs.list({ after: null, limit: 5 }, with_);
  const region = { aws_region: BEDROCK_REGION };

  it('a Bedrock API key goes out as it is', async () => {
    expect(
      (await list(contextWith({ key: BEDROCK_KEY, settings: { aws_auth_type: 'apiKey', ...region } }))).data,
    ).toEqual([]);
  });

  it('a role is assumed once, also by calls that come together, and again before it ends', async () => {
    const role = contextWith({
      settings: {
        ...SETTINGS,
        aws_auth_type: 'assumedRole',
        aws_role_arn: ROLE,
        aws_external_id: 'ext-1',
        aws_sts_endpoint: upstream.url,
      },
    });
    await Promise.all([list(role), list(role), list(role)]);
    expect(upstream.roles).toMatchObject([{ RoleArn: ROLE, ExternalId: 'ext-1', Action: 'AssumeRole' }]);
    now += 50 * 60_000;
    await list(role);
    expect(upstream.roles).toHaveLength(1);
    now += 6 * 60_000;
    await list(role);
    expect(upstream.roles).toHaveLength(2);
  });

  it('nobody gets the session of another account by knowing its access key id', async () => {
    const settings = { ...SETTINGS, aws_auth_type: 'assumedRole', aws_role_arn: ROLE, aws_sts_endpoint: upstream.url };
    const owner = contextWith({ settings });
    await list(owner);
    const thief = { ...owner, credentials: { key: null, settings: { ...settings, aws_secret_access_key: 'guessed' } } };
    expect(await refusal(() => list(thief))).toMatchObject({ status: 400 });
    expect(upstream.faults.splice(0)).toHaveLength(1);
  });

  it('a role that is not given is 403 in the words of AWS', async () => {
    const role = contextWith({
      settings: {
        ...SETTINGS,
        aws_auth_type: 'assumedRole',
        aws_role_arn: ROLE,
        aws_external_id: 'wrong-id',
        aws_sts_endpoint: upstream.url,
      },
    });
    expect(await refusal(() => list(role))).toMatchObject({
      status: 403,
      type: 'permission_error',
      message: 'The caller & role do not match',
    });
  });

  it("the server's own identity is used only where the operator gave it", async () => {
    const settings = { aws_auth_type: 'serviceRole', ...region };
    expect(await refusal(() => list(contextWith({ settings })))).toMatchObject({ status: 400, param: 'aws_auth_type' });
    const variables: Record<string, string> = {
      AWS_ACCESS_KEY_ID: AWS_KEYS.accessKeyId,
      AWS_SECRET_ACCESS_KEY: AWS_KEYS.secretAccessKey,
    };
    const ambient = { variable: (name: string) => variables[name], file: () => Promise.reject(new Error('no file')) };
    expect((await list({ ...contextWith({ settings }), ambient })).data).toEqual([]);
  });

  it('an identity token of the platform is shown to AWS only, and becomes a session', async () => {
    const variables: Record<string, string> = {
      AWS_WEB_IDENTITY_TOKEN_FILE: '/var/run/token',
      AWS_ROLE_ARN: ROLE,
    };
    const ambient = {
      variable: (name: string) => variables[name],
      file: (path: string) => Promise.resolve(`token of ${path}\n`),
    };
    const context = contextWith({
      settings: { aws_auth_type: 'serviceRole', aws_sts_endpoint: 'https://elsewhere.example', ...region },
      redirect: { [`sts.${BEDROCK_REGION}.amazonaws.com`]: upstream.url },
    });
    await list({ ...context, ambient });
    expect(upstream.roles).toMatchObject([
      { Action: 'AssumeRoleWithWebIdentity', WebIdentityToken: 'token of /var/run/token' },
    ]);
  });

  it.each([
    [{ aws_auth_type: 'accessKey', ...KEYS }, 'aws_region'],
    [{ aws_auth_type: 'accessKey', ...KEYS, aws_region: 'evil.example/' }, 'aws_region'],
    [{ aws_auth_type: 'accessKey', ...region }, null],
    [{ aws_auth_type: 'accessKey', ...region, aws_access_key_id: 'A' }, null],
    [{ aws_auth_type: 'assumedRole', ...region, ...KEYS }, 'aws_role_arn'],
    [{ aws_auth_type: 'assumedRole', ...region, ...KEYS, aws_role_arn: ROLE }, 'aws_sts_endpoint'],
    [{ aws_auth_type: 'kerberos', ...region }, 'aws_auth_type'],
    [{ aws_auth_type: 'apiKey', ...region }, null],
  ] as const)('%o says what is missing, and asks nobody', async (settings, param) => {
    const incomplete = contextWith({ settings });
    const refused = await refusal(() => list(incomplete));
    expect(refused).toMatchObject({ status: 400, param });
    expect(refused.message).not.toContain(AWS_KEYS.secretAccessKey);
    expect(incomplete.calls).toEqual([]);
  });

  it('the host follows the region, and is nowhere without one', () => {
    const at = (aws_region: string | undefined) => bedrock.baseUrl({ key: null, settings: { aws_region } });
    expect(at('eu-central-1')).toBe('https://bedrock.eu-central-1.amazonaws.com');
    expect(at('us-gov-west-1')).toBe('https://bedrock.us-gov-west-1.amazonaws.com');
    expect(at('cn-north-1')).toBe('https://bedrock.cn-north-1.amazonaws.com.cn');
    for (const wrong of [undefined, '', 'evil.example', 'eu-central-1.evil.example#-1', 'EU-central-1']) {
      expect(at(wrong)).toBeNull();
    }
  });

  it('temporary keys sign with their session token', async () => {
    const settings = {
      ...region,
      aws_auth_type: 'accessKey',
      aws_access_key_id: ROLE_KEYS.accessKeyId,
      aws_secret_access_key: ROLE_KEYS.secretAccessKey,
      aws_session_token: ROLE_KEYS.sessionToken,
    };
    expect((await list(contextWith({ settings }))).data).toEqual([]);
  });
});
