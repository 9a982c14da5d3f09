/** Model invocation jobs of Bedrock as batches. */

import { Readable } from 'node:stream';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { asArray, asObject, quoted } from '../../operations/convert/fields.ts';
import { errorStatus } from '../../operations/dialects/errors.ts';
import { IN_ITS_STEAD } from '../../operations/dialects/provider-error.ts';
import type { Batch, BatchRequest, BatchStatus } from '../../operations/training.ts';
import { eachAtOnce } from '../aws/at-once.ts';
import { awsErrorName } from '../aws/errors.ts';
import { s3List, s3Sent } from '../aws/s3.ts';
import { bedrockUri, fileId, parseFileId, type S3Place, s3Uri } from '../aws/s3-uri.ts';
import { needsOutput } from '../batch-lines.ts';
import { textSetting } from '../settings.ts';
import type { AdapterContext, BatchesAdapter } from '../training.ts';
import { epochOf, integerOf, invalidAnswer, Refusals, textOf } from '../training-calls.ts';
import { inputLine, outputLines } from './batch-lines.ts';
import {
  bedrockCall,
  bedrockTarget,
  identifierSegment,
  MASKED_AUTHORIZATION,
  modelOfArn,
  requestToken,
  requiredRole,
  tagsOf,
} from './calls.ts';
import { checkedName, derivedOutput } from './jobs.ts';
import { bridgedPage, type TokenList } from './paging.ts';

/** One job is reached by the singular, the list by the plural. */
const PATH = '/model-invocation-job';
const LIST_PATH = '/model-invocation-jobs';
const KIND = 'model-invocation-job';
const TITLE = 'Bedrock';
/** Bedrock does not keep the endpoint of a batch: a tag does. */
const ENDPOINT_TAG = 'gateway-endpoint';
const DEFAULT_ENDPOINT = '/v1/chat/completions';
const JOB_NAME = /^[a-zA-Z0-9](?:-*[a-zA-Z0-9+.])*-*$/;
const TAGS_AT_ONCE = 8;
const MAX_OUTPUT_FILES = 1000;
const KMS_KEY = 'x-gateway-amz-server-side-encryption-aws-kms-key-id';

const INVOCATION: ReadonlyMap<string, string> = new Map([
  ['/v1/chat/completions', 'Converse'],
  ['/v1/completions', 'InvokeModel'],
  ['/v1/embeddings', 'InvokeModel'],
]);

function createBody(batch: BatchRequest, jobName: string, context: AdapterContext): JsonObject {
  const invocation = INVOCATION.get(batch.endpoint);
  const cannot: (param: string, value: string, instead: string) => never = (param, value, instead) => {
    throw new SluiceError('unsupported_parameter', `${TITLE} cannot express ${param} = ${quoted(value)}; ${instead}`, {
      param,
    });
  };
  if (invocation === undefined) cannot('endpoint', batch.endpoint, `use one of ${[...INVOCATION.keys()].join(', ')}`);
  if (batch.completion_window !== '24h') cannot('completion_window', batch.completion_window, 'use 24h');
  new Refusals(TITLE, context).absent(batch.extra);
  if (batch.model === null || batch.model === '') {
    throw new SluiceError('invalid_request', 'A batch of Bedrock is for one model; name it in model.', {
      param: 'model',
    });
  }
  const input = bedrockUri('input_file_id', batch.input_file_id);
  const output =
    batch.output_data_config === null
      ? derivedOutput(input, jobName, 'output_data_config')
      : s3Uri(bedrockUri('output_data_config', batch.output_data_config));
  const kmsKey = context.header(KMS_KEY);
  const tags = [{ key: ENDPOINT_TAG, value: batch.endpoint }, ...tagsOf(batch.metadata ?? {}, 1)];
  return {
    jobName,
    roleArn: requiredRole(batch.role_arn),
    clientRequestToken: requestToken(context),
    modelId: batch.model,
    modelInvocationType: invocation,
    inputDataConfig: { s3InputDataConfig: { s3Uri: s3Uri(input), s3InputFormat: 'JSONL' } },
    outputDataConfig: {
      s3OutputDataConfig: { s3Uri: output, ...(kmsKey === undefined ? null : { s3EncryptionKeyId: kmsKey }) },
    },
    timeoutDurationInHours: 24,
    tags,
  };
}

const nameOf = (batch: BatchRequest, context: AdapterContext): string =>
  batch.job_name === null ? `gw-batch-${context.uuid()}` : checkedName(batch.job_name, JOB_NAME, 'job_name');

interface StatusRow {
  readonly status: BatchStatus;
  /** Where the time of the end is written. */
  readonly at?: string;
}

const STATUS: ReadonlyMap<unknown, StatusRow> = new Map<unknown, StatusRow>([
  ['Submitted', { status: 'validating' }],
  ['Validating', { status: 'validating' }],
  ['Scheduled', { status: 'validating' }],
  ['InProgress', { status: 'in_progress' }],
  ['Completed', { status: 'completed', at: 'completed_at' }],
  // Time ran out, and what was done until then is there.
  ['PartiallyCompleted', { status: 'expired', at: 'expired_at' }],
  ['Expired', { status: 'expired', at: 'expired_at' }],
  ['Failed', { status: 'failed', at: 'failed_at' }],
  ['Stopping', { status: 'cancelling' }],
  ['Stopped', { status: 'cancelled', at: 'cancelled_at' }],
]);

const hasOutput = (job: JsonObject): boolean => job.status === 'Completed' || job.status === 'PartiallyCompleted';

const inputOf = (job: JsonObject): string | null =>
  textOf(asObject(asObject(job.inputDataConfig).s3InputDataConfig).s3Uri);

/** The folder that a job writes: named after the last part of its ARN. */
function outputFolder(job: JsonObject): S3Place {
  const uri = textOf(asObject(asObject(job.outputDataConfig).s3OutputDataConfig).s3Uri);
  const place = uri === null ? null : parseFileId(uri);
  const id = jobIdOf(job);
  if (place === null || id === '') throw invalidAnswer('a batch with a place for its output');
  const slash = place.key === '' || place.key.endsWith('/') ? '' : '/';
  return { bucket: place.bucket, key: `${place.key}${slash}${id}/` };
}

function jobIdOf(job: JsonObject): string {
  const arn = textOf(job.jobArn) ?? '';
  return arn.slice(arn.lastIndexOf('/') + 1);
}

/** The one file a batch of one input file wrote; null for folders and while there is none. */
function outputFile(job: JsonObject): string | null {
  const input = inputOf(job);
  if (!hasOutput(job) || input === null || input.endsWith('/')) return null;
  const { bucket, key } = outputFolder(job);
  return fileId({ bucket, key: `${key}${input.slice(input.lastIndexOf('/') + 1)}.out` });
}

interface Tagged {
  readonly endpoint: string;
  readonly metadata: Readonly<Record<string, string>> | null;
}

/** Endpoint and metadata of a batch, which Bedrock keeps as tags only. */
async function tagged(arn: string, context: AdapterContext): Promise<Tagged> {
  let answer: JsonObject;
  try {
    answer = await bedrockCall(context, { method: 'POST', path: '/listTagsForResource', body: { resourceARN: arn } });
  } catch (error) {
    // Tags are a separate right that an account may lack.
    if (error instanceof SluiceError && errorStatus(error) === 403)
      return { endpoint: DEFAULT_ENDPOINT, metadata: null };
    throw error;
  }
  let endpoint = DEFAULT_ENDPOINT;
  const metadata: Record<string, string> = {};
  for (const tag of asArray(answer.tags)) {
    const { key, value } = asObject(tag);
    if (typeof key !== 'string' || typeof value !== 'string') continue;
    if (key === ENDPOINT_TAG) endpoint = value;
    else Object.defineProperty(metadata, key, { value, enumerable: true });
  }
  return { endpoint, metadata: Object.keys(metadata).length === 0 ? null : metadata };
}

function batchOf(job: JsonObject, { endpoint, metadata }: Tagged): Batch {
  const arn = textOf(job.jobArn);
  const row = STATUS.get(job.status);
  const created = epochOf(job.submitTime);
  if (arn === null || row === undefined || created === null) {
    throw invalidAnswer('a batch with ARN, time and known status', { status: job.status });
  }
  const input = inputOf(job);
  const place = input === null ? null : parseFileId(input);
  const expires = epochOf(job.jobExpirationTime);
  const ended = row.at === undefined ? null : (epochOf(job.endTime) ?? epochOf(job.lastModifiedTime));
  const total = integerOf(job.totalRecordCount);
  const message = textOf(job.message);
  return {
    id: encodeURIComponent(arn),
    object: 'batch',
    endpoint,
    model: modelOfArn(textOf(job.modelId) ?? ''),
    input_file_id: place === null ? (input ?? '') : fileId(place),
    completion_window: '24h',
    status: row.status,
    created_at: created,
    ...(expires === null ? null : { expires_at: expires }),
    ...(row.at === undefined || ended === null ? null : { [row.at]: ended }),
    output_file_id: outputFile(job),
    error_file_id: null,
    errors:
      row.status === 'failed'
        ? {
            object: 'list',
            data: [
              {
                code: 'provider_error',
                message: message ?? 'The batch failed; the provider does not say why.',
                param: null,
                line: null,
              },
            ],
          }
        : null,
    ...(total === null
      ? null
      : {
          request_counts: {
            total,
            completed: integerOf(job.successRecordCount) ?? 0,
            failed: integerOf(job.errorRecordCount) ?? 0,
          },
        }),
    metadata,
    jobName: textOf(job.jobName),
  };
}

const get = (id: string, context: AdapterContext): Promise<JsonObject> =>
  bedrockCall(context, { method: 'GET', path: `${PATH}/${identifierSegment(id, KIND, context)}` });

async function complete(job: JsonObject, context: AdapterContext): Promise<Batch> {
  const arn = textOf(job.jobArn);
  if (arn === null) throw invalidAnswer('a batch with an ARN');
  return batchOf(job, await tagged(arn, context));
}

async function summaries(
  context: AdapterContext,
  query: Readonly<Record<string, string | null>>,
): Promise<{ readonly rows: readonly JsonObject[]; readonly next: string | null }> {
  const answer = await bedrockCall(context, {
    method: 'GET',
    path: LIST_PATH,
    query: { ...query, sortBy: 'CreationTime', sortOrder: 'Descending' },
  });
  const rows = asArray(answer.invocationJobSummaries ?? []);
  if (!rows.every(isObject)) throw invalidAnswer('a list of batches');
  return { rows, next: textOf(answer.nextToken) };
}

function listOf(context: AdapterContext): TokenList {
  return {
    arnOf: (row) => textOf(row.jobArn),
    page: ({ maxResults, nextToken, before }) =>
      summaries(context, { maxResults, nextToken, submitTimeBefore: before }),
    async find(after) {
      try {
        const job = await get(after, context);
        const created = Date.parse(textOf(job.submitTime) ?? '');
        const arn = textOf(job.jobArn);
        if (arn === null || Number.isNaN(created)) throw invalidAnswer('a batch with ARN and time');
        return { arn, created };
      } catch (error) {
        if (error instanceof SluiceError && errorStatus(error) === 404) return null;
        throw error;
      }
    },
  };
}

export const batches: BatchesAdapter = {
  inputLine,

  prepare(batch, context) {
    const body = createBody(batch, nameOf(batch, context), context);
    const { url, headers } = bedrockTarget({ method: 'POST', path: PATH, body }, context);
    return { method: 'POST', url: url.href, headers: [...headers, ...MASKED_AUTHORIZATION], body };
  },

  async create(batch, context) {
    const name = nameOf(batch, context);
    const body = createBody(batch, name, context);
    const answer = await bedrockCall(context, { method: 'POST', path: PATH, body });
    const arn = textOf(answer.jobArn);
    if (arn === null) throw invalidAnswer('the ARN of a batch');
    const about: Tagged = { endpoint: batch.endpoint, metadata: batch.metadata };
    try {
      return batchOf(await get(arn, context), about);
    } catch {
      // The batch runs: an answer made of the request is better than an error.
      const submitTime = new Date(context.now()).toISOString();
      return batchOf({ ...body, jobArn: arn, submitTime, status: 'Submitted' }, about);
    }
  },

  async list(page, context) {
    const { data, has_more } = await bridgedPage(listOf(context), page);
    return { data: await eachAtOnce(data, TAGS_AT_ONCE, (row) => complete(row, context)), has_more };
  },

  retrieve: async (id, context) => complete(await get(id, context), context),

  async cancel(id, context) {
    const path = `${PATH}/${identifierSegment(id, KIND, context)}/stop`;
    try {
      await bedrockCall(context, { method: 'POST', path });
    } catch (error) {
      if (awsErrorName(error) !== 'ConflictException') throw error;
      throw new SluiceError('validation', 'The batch is over already and cannot be cancelled.', { cause: error });
    }
    return { ...(await complete(await get(id, context), context)), status: 'cancelling' };
  },

  /** Reads every file the job wrote, one after the other; the manifest holds no lines. */
  async output(id, context) {
    const job = await get(id, context);
    if (!hasOutput(job)) needsOutput(batchOf(job, { endpoint: '', metadata: null }), []);
    const folder = outputFolder(job);
    const own = textSetting(context.credentials, 'aws_s3_bucket');
    if (own !== undefined && own !== folder.bucket) {
      throw new SluiceError(
        'provider_error',
        `The output lies in the bucket ${folder.bucket}, which this account may not read.`,
        {
          provider: IN_ITS_STEAD.forbidden,
        },
      );
    }
    const found = (await s3List(context, folder, MAX_OUTPUT_FILES))
      .map(({ key }) => key)
      .filter((key) => key.endsWith('.out') && !key.endsWith('/manifest.json.out'));
    const about = {
      jobId: jobIdOf(job),
      model: modelOfArn(textOf(job.modelId) ?? ''),
      created: epochOf(job.endTime) ?? Math.floor(context.now() / 1000),
    };
    async function* lines(): AsyncGenerator<Buffer> {
      for (const key of found) {
        const answer = await s3Sent(context, { method: 'GET', place: { bucket: folder.bucket, key } });
        yield* outputLines(answer.stream, about);
      }
    }
    return Readable.from(lines(), { objectMode: false });
  },

  async findByName(batch, context) {
    if (batch.job_name === null) return null;
    let nextToken: string | null = null;
    do {
      const page: Awaited<ReturnType<typeof summaries>> = await summaries(context, {
        maxResults: '100',
        nameContains: batch.job_name,
        nextToken,
      });
      const row = page.rows.find((one) => one.jobName === batch.job_name);
      if (row !== undefined) return batchOf(row, { endpoint: batch.endpoint, metadata: batch.metadata });
      nextToken = page.next;
    } while (nextToken !== null);
    return null;
  },
};
