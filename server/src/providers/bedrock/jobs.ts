/** Model customization jobs of Bedrock as fine-tuning jobs. */

import { createHash } from 'node:crypto';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asObject, quoted } from '../../operations/convert/fields.ts';
import { errorStatus } from '../../operations/dialects/errors.ts';
import type { FineTuningJob, JobEvent, JobRequest, JobStatus, RowFormat } from '../../operations/training.ts';
import { eachAtOnce } from '../aws/at-once.ts';
import { awsErrorName } from '../aws/errors.ts';
import { bedrockUri, fileId, parseFileId, type S3Place, s3Uri } from '../aws/s3-uri.ts';
import type { AdapterContext, JobsAdapter } from '../training.ts';
import { epochOf, invalidAnswer, Refusals, slicePage, textOf } from '../training-calls.ts';
import {
  accountOfArn,
  bedrockCall,
  bedrockTarget,
  identifierSegment,
  MASKED_AUTHORIZATION,
  modelOfArn,
  requestToken,
  requiredRole,
  tagsOf,
} from './calls.ts';
import { hyperParametersOf, hyperparametersFrom } from './hyperparameters.ts';
import { bridgedPage, type TokenList } from './paging.ts';

const PATH = '/model-customization-jobs';
const KIND = 'model-customization-job';
const GETS_AT_ONCE = 8;
const TITLE = 'Bedrock';

/** Folder of an object: everything up to and with its last slash. */
export const folderOf = (place: S3Place): S3Place => ({
  bucket: place.bucket,
  key: place.key.slice(0, place.key.lastIndexOf('/') + 1),
});

/** Where the output goes when nobody says it: a folder named after the job, beside the input. */
export function derivedOutput(input: S3Place, jobName: string, param: string): string {
  const folder = folderOf(input);
  return s3Uri(bedrockUri(param, s3Uri({ bucket: folder.bucket, key: `${folder.key}${jobName}/` })));
}

export function checkedName(name: string, pattern: RegExp, param: string): string {
  if (name.length <= 63 && pattern.test(name)) return name;
  throw new SluiceError(
    'invalid_request',
    `${param} ${quoted(name)} is no name for Bedrock: 1 to 63 letters, digits and inner hyphens or underscores as its pattern allows.`,
    { param },
  );
}

const JOB_NAME = /^[a-zA-Z0-9](?:-*[a-zA-Z0-9+.])*-*$/;
const MODEL_NAME = /^(?:[0-9a-zA-Z][_-]?)+$/;

/** The body of a create call; throws for what Bedrock cannot take before anything is sent. */
function createBody(job: JobRequest, jobName: string, context: AdapterContext): JsonObject {
  const refusals = new Refusals(TITLE, context);
  if (job.method === 'dpo') {
    // There is no other method to fall back to, so that drop_params cannot help.
    throw new SluiceError('unsupported_parameter', `${TITLE} cannot express method.type = "dpo"; use "supervised".`, {
      param: 'method.type',
    });
  }
  const { beta } = job.hyperparameters;
  refusals.absent({
    [`${job.hyperparametersPath}.beta`]: beta,
    seed: job.seed,
    integrations: job.integrations,
    ...job.extra,
  });
  const training = bedrockUri('training_file', job.training_file);
  const validation = job.validation_file === null ? null : bedrockUri('validation_file', job.validation_file);
  const output =
    job.output_file === null
      ? derivedOutput(training, jobName, 'output_file')
      : s3Uri(bedrockUri('output_file', job.output_file));
  const tags = job.metadata === null ? [] : tagsOf(job.metadata);
  return {
    jobName,
    customModelName: checkedName(job.suffix, MODEL_NAME, 'suffix'),
    roleArn: requiredRole(job.role_arn),
    clientRequestToken: requestToken(context),
    baseModelIdentifier: job.upstreamModel,
    customizationType: 'FINE_TUNING',
    ...(tags.length === 0 ? null : { jobTags: tags }),
    trainingDataConfig: { s3Uri: s3Uri(training) },
    ...(validation === null ? null : { validationDataConfig: { validators: [{ s3Uri: s3Uri(validation) }] } }),
    outputDataConfig: { s3Uri: output },
    hyperParameters: hyperParametersOf(job, refusals),
  };
}

const nameOf = (job: JobRequest, context: AdapterContext): string =>
  job.job_name === null ? `gw-ft-${context.uuid()}` : checkedName(job.job_name, JOB_NAME, 'job_name');

/** The id of an object URI the provider reports; one that we cannot name stays as it came. */
const idOfUri = (uri: string): string => {
  const place = parseFileId(uri);
  return place === null ? uri : fileId(place);
};

/** Status of a stage: present for some kinds of jobs only (W8). */
const stage = (job: JsonObject, name: string): JsonObject => asObject(asObject(job.statusDetails)[name]);

function statusOf(job: JsonObject): JobStatus {
  switch (job.status) {
    case 'Completed':
      return 'succeeded';
    case 'Failed':
      return 'failed';
    case 'Stopping':
    case 'Stopped':
      return 'cancelled';
    case 'InProgress':
      if (['validationDetails', 'dataProcessingDetails'].some((name) => stage(job, name).status === 'InProgress')) {
        return 'validating_files';
      }
      return stage(job, 'trainingDetails').status === 'NotStarted' ? 'queued' : 'running';
    default:
      throw invalidAnswer('a job with a known status', { status: job.status });
  }
}

function errorOf(job: JsonObject): FineTuningJob['error'] {
  const message = textOf(job.failureMessage) ?? 'The job failed; the provider does not say why.';
  const about = message.toLowerCase();
  const param = about.includes('validation data')
    ? 'validation_file'
    : about.includes('training data')
      ? 'training_file'
      : null;
  return { code: 'provider_error', message, param };
}

/** Metric files under the output of a finished job. */
function resultFiles(job: JsonObject, arn: string, validated: boolean): string[] {
  const output = textOf(asObject(job.outputDataConfig).s3Uri);
  const id = arn.slice(arn.lastIndexOf('/') + 1);
  const place = output === null ? null : parseFileId(output);
  if (place === null || id === '') return [];
  const folder = `${place.key}${place.key === '' || place.key.endsWith('/') ? '' : '/'}model-customization-job-${id}/`;
  const files = ['training_artifacts/step_wise_training_metrics.csv'];
  if (validated) files.push('validation_artifacts/post_fine_tuning_validation/validation_metrics.csv');
  return files.map((file) => fileId({ bucket: place.bucket, key: folder + file }));
}

/** A Get answer, or the summary of a list: that one lacks files and hyperparameters. */
function jobOf(job: JsonObject): FineTuningJob {
  const arn = textOf(job.jobArn);
  const created = epochOf(job.creationTime);
  if (arn === null || created === null) throw invalidAnswer('a job with ARN and creation time');
  const status = statusOf(job);
  const base = textOf(job.baseModelArn) ?? '';
  const training = textOf(asObject(job.trainingDataConfig).s3Uri);
  const validation = textOf(asObject(asArray(asObject(job.validationDataConfig).validators)[0]).s3Uri);
  const final = job.status === 'Completed' || job.status === 'Failed' || job.status === 'Stopped';
  const succeeded = status === 'succeeded';
  const extra: JsonObject = {};
  for (const name of [
    'jobName',
    'outputModelName',
    'customizationType',
    'trainingMetrics',
    'validationMetrics',
    'roleArn',
    'outputDataConfig',
  ]) {
    if (job[name] !== undefined && job[name] !== null) extra[name] = job[name];
  }
  return {
    ...extra,
    id: encodeURIComponent(arn),
    object: 'fine_tuning.job',
    created_at: created,
    error: status === 'failed' ? errorOf(job) : null,
    fine_tuned_model: succeeded ? (textOf(job.outputModelArn) ?? textOf(job.customModelArn)) : null,
    finished_at: final ? (epochOf(job.endTime) ?? epochOf(job.lastModifiedTime)) : null,
    hyperparameters: hyperparametersFrom(job.hyperParameters, base),
    model: modelOfArn(base),
    organization_id: accountOfArn(arn),
    result_files: succeeded ? resultFiles(job, arn, validation !== null) : [],
    status,
    trained_tokens: null,
    training_file: training === null ? '' : idOfUri(training),
    validation_file: validation === null ? null : idOfUri(validation),
    integrations: null,
    seed: 0,
    estimated_finish: null,
  };
}

const get = (id: string, context: AdapterContext): Promise<JsonObject> =>
  bedrockCall(context, { method: 'GET', path: `${PATH}/${identifierSegment(id, KIND, context)}` });

const isMissing = (error: unknown): boolean => error instanceof SluiceError && errorStatus(error) === 404;

function listOf(context: AdapterContext): TokenList {
  return {
    arnOf: (row) => textOf(row.jobArn),
    async page({ maxResults, nextToken, before }) {
      const answer = await bedrockCall(context, {
        method: 'GET',
        path: PATH,
        query: { maxResults, nextToken, creationTimeBefore: before, sortBy: 'CreationTime', sortOrder: 'Descending' },
      });
      const rows = asArray(answer.modelCustomizationJobSummaries ?? []);
      if (!rows.every(isObject)) throw invalidAnswer('a list of jobs');
      return { rows, next: textOf(answer.nextToken) };
    },
    async find(after) {
      try {
        const job = await get(after, context);
        const created = Date.parse(textOf(job.creationTime) ?? '');
        const arn = textOf(job.jobArn);
        if (arn === null || Number.isNaN(created)) throw invalidAnswer('a job with ARN and creation time');
        return { arn, created };
      } catch (error) {
        if (isMissing(error)) return null;
        throw error;
      }
    },
  };
}

const STAGES = [
  ['validationDetails', 'Validation of the data'],
  ['dataProcessingDetails', 'Preparation of the data'],
  ['trainingDetails', 'Training'],
] as const;

const STAGE_ENDS: Readonly<Record<string, string>> = {
  Completed: 'completed',
  Stopping: 'is stopping',
  Stopped: 'was stopped',
  Failed: 'failed',
};

/** What status and times say about the course of a job; Bedrock keeps no events. Newest first. */
function eventsOf(job: JsonObject): JobEvent[] {
  const arn = textOf(job.jobArn) ?? '';
  const events: JobEvent[] = [];
  const add = (kind: string, time: JsonValue | undefined, level: JobEvent['level'], message: string): void => {
    const created = epochOf(time);
    if (created === null) return;
    const id = `evt_${createHash('sha256').update(`${arn}\n${kind}`).digest('hex').slice(0, 24)}`;
    events.push({ object: 'fine_tuning.job.event', id, created_at: created, level, message });
  };
  add('created', job.creationTime, 'info', 'The fine-tuning job was created.');
  for (const [name, title] of STAGES) {
    const { status, creationTime, lastModifiedTime } = stage(job, name);
    if (typeof status !== 'string' || status === 'NotStarted') continue;
    add(`${name}:started`, creationTime, 'info', `${title} started.`);
    const end = Object.hasOwn(STAGE_ENDS, status) ? STAGE_ENDS[status] : undefined;
    if (end !== undefined)
      add(`${name}:${status}`, lastModifiedTime, status === 'Failed' ? 'error' : 'info', `${title} ${end}.`);
  }
  const end = job.endTime ?? job.lastModifiedTime;
  if (job.status === 'Completed') add('completed', end, 'info', 'The fine-tuning job succeeded.');
  if (job.status === 'Failed') add('failed', end, 'error', errorOf(job)?.message ?? 'The fine-tuning job failed.');
  if (job.status === 'Stopped') add('stopped', end, 'info', 'The fine-tuning job was cancelled.');
  // A stable sort keeps the course of events that share a second.
  return events
    .map((event, index) => ({ event, index }))
    .sort((a, b) => b.event.created_at - a.event.created_at || b.index - a.index)
    .map(({ event }) => event);
}

function rowFormat({ upstreamModel: model }: Pick<JobRequest, 'upstreamModel'>): RowFormat {
  if (/anthropic\.claude-3-/.test(model)) return 'bedrock-claude-3';
  if (/amazon\.titan-|cohere\.command|meta\.llama(?!3-3)/.test(model)) return 'bedrock-text';
  return 'bedrock-conversation';
}

export const jobs: JobsAdapter = {
  minimumRows: 1,
  rowFormat,

  prepare(job, context) {
    const body = createBody(job, nameOf(job, context), context);
    const { url, headers } = bedrockTarget({ method: 'POST', path: PATH, body }, context);
    return { method: 'POST', url: url.href, headers: [...headers, ...MASKED_AUTHORIZATION], body };
  },

  async create(job, context) {
    const name = nameOf(job, context);
    const body = createBody(job, name, context);
    const answer = await bedrockCall(context, { method: 'POST', path: PATH, body });
    const arn = textOf(answer.jobArn);
    if (arn === null) throw invalidAnswer('the ARN of a job');
    try {
      return { ...jobOf(await get(arn, context)), model: job.model };
    } catch {
      // The job runs: an answer made of the request is better than an error.
      return {
        id: encodeURIComponent(arn),
        object: 'fine_tuning.job',
        created_at: Math.floor(context.now() / 1000),
        error: null,
        fine_tuned_model: null,
        finished_at: null,
        hyperparameters: hyperparametersFrom(body.hyperParameters, job.upstreamModel),
        model: job.model,
        organization_id: accountOfArn(arn),
        result_files: [],
        status: 'validating_files',
        trained_tokens: null,
        training_file: idOfUri(s3Uri(bedrockUri('training_file', job.training_file))),
        validation_file:
          job.validation_file === null ? null : idOfUri(s3Uri(bedrockUri('validation_file', job.validation_file))),
        integrations: null,
        seed: 0,
        estimated_finish: null,
        jobName: name,
      };
    }
  },

  /** Summaries lack half of a job, so each is asked for; one that the provider is too busy for is given as it is. */
  async list(page, context) {
    const { data, has_more } = await bridgedPage(listOf(context), page);
    const all = await eachAtOnce(data, GETS_AT_ONCE, async (row) => {
      try {
        return jobOf(await get(textOf(row.jobArn) ?? '', context));
      } catch (error) {
        if (!(error instanceof SluiceError) || (errorStatus(error) !== 429 && errorStatus(error) < 500)) throw error;
        return jobOf(row);
      }
    });
    return { data: all, has_more };
  },

  retrieve: async (id, context) => jobOf(await get(id, context)),

  async cancel(id, context) {
    const path = `${PATH}/${identifierSegment(id, KIND, context)}/stop`;
    try {
      await bedrockCall(context, { method: 'POST', path });
    } catch (error) {
      if (awsErrorName(error) !== 'ConflictException') throw error;
      throw new SluiceError('validation', 'The job is over already and cannot be cancelled.', { cause: error });
    }
    return { ...jobOf(await get(id, context)), status: 'cancelled', fine_tuned_model: null, result_files: [] };
  },

  events: async (id, page, context) => slicePage(eventsOf(await get(id, context)), page),

  /** Bedrock has none: the loss of each step is in the metrics file among `result_files`. */
  async checkpoints(id, _page, context) {
    await get(id, context);
    return { data: [], has_more: false };
  },

  async findByName(job, context) {
    if (job.job_name === null) return null;
    try {
      const found = await get(job.job_name, context);
      return textOf(found.outputModelName) === job.suffix ? { ...jobOf(found), model: job.model } : null;
    } catch (error) {
      if (isMissing(error)) return null;
      throw error;
    }
  },
};
