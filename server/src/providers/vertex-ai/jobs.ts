/** Tuning jobs of Vertex AI, API v1. */
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { asObject } from '../../operations/convert/fields.ts';
import {
  FINAL_JOB,
  type FineTuningJob,
  type JobCheckpoint,
  type JobError,
  type JobEvent,
  type JobRequest,
  type JobStatus,
} from '../../operations/training.ts';
import { googleHeaders } from '../google/credentials.ts';
import { insideBucket, isPattern, PATTERN, parseUri, uriOf } from '../google/storage.ts';
import { pageSize, takePage, tokenItems } from '../token-pages.ts';
import type { AdapterContext, JobsAdapter, PreparedCall } from '../training.ts';
import {
  cancelled,
  epochOf,
  filled,
  integerOf,
  invalidAnswer,
  jsonRequest,
  namedIn,
  Refusals,
  sent,
  sentJson,
  slicePage,
  textOf,
  unknownMethodMembers,
  urlOf,
} from '../training-calls.ts';
import { labelsOf, placeOf, projectIn, resourcePath, rpcStatus, shortId } from './place.ts';

const COLLECTION = 'tuningJobs';
const LARGEST_PAGE = 100;
const MODEL_RESOURCE = /^projects\/[^/]+\/locations\/[^/]+\/models\/[^/]+$/;
const ENDPOINT_RESOURCE = /^projects\/[^/]+\/locations\/[^/]+\/endpoints\/[^/]+$/;
const DATASET_RESOURCE = /^projects\/[^/]+\/locations\/[^/]+\/datasets\/[^/]+$/;

const STATUS: Readonly<Record<string, JobStatus>> = {
  JOB_STATE_UNSPECIFIED: 'queued',
  JOB_STATE_QUEUED: 'queued',
  JOB_STATE_PENDING: 'queued',
  JOB_STATE_PAUSED: 'queued',
  JOB_STATE_RUNNING: 'running',
  JOB_STATE_UPDATING: 'running',
  JOB_STATE_SUCCEEDED: 'succeeded',
  JOB_STATE_PARTIALLY_SUCCEEDED: 'succeeded',
  JOB_STATE_FAILED: 'failed',
  JOB_STATE_EXPIRED: 'failed',
  // May still end as succeeded or failed upstream, and a state of ours never goes back.
  JOB_STATE_CANCELLING: 'running',
  JOB_STATE_CANCELLED: 'cancelled',
};

/** `state` as a status; a state added later is neither waiting nor final. */
const statusOf = (state: unknown): JobStatus => namedIn(STATUS, state) ?? 'running';

/** The URI upstream reads: an object, or for supervised jobs a dataset resource. */
function source(text: string, param: string, job: JobRequest, context: AdapterContext): string {
  if (job.method === 'supervised' && DATASET_RESOURCE.test(text)) return text;
  const place = parseUri(text);
  if (place === null || place.name === '') {
    throw new SluiceError('invalid_request', `${param} must be the id of an uploaded file or a gs:// URI here.`, {
      param,
    });
  }
  if (isPattern(place)) throw new SluiceError('invalid_request', PATTERN, { param });
  insideBucket(context, place.bucket, param);
  return uriOf(place);
}

function hyperParameters(job: JobRequest, refusals: Refusals): JsonObject {
  const { n_epochs, learning_rate_multiplier, batch_size, beta } = job.hyperparameters;
  const path = job.hyperparametersPath;
  const out: JsonObject = {};
  // int64 in the JSON mapping of the API: a text.
  if (n_epochs !== 'auto') out.epochCount = String(n_epochs);
  if (learning_rate_multiplier !== 'auto') out.learningRateMultiplier = learning_rate_multiplier;
  if (batch_size !== 'auto' && batch_size !== 1) refusals.refuse(`${path}.batch_size`, batch_size, 'use 1');
  if (beta !== undefined && beta !== 'auto') {
    if (job.method === 'dpo') out.beta = beta;
    else refusals.refuse(`${path}.beta`, beta, 'leave it out');
  }
  return out;
}

function modelOf(model: string): JsonObject {
  if (ENDPOINT_RESOURCE.test(model)) {
    throw new SluiceError(
      'invalid_request',
      'model names an endpoint, which cannot be tuned further; use the "tuned_model" of its job.',
      { param: 'model' },
    );
  }
  return MODEL_RESOURCE.test(model) ? { preTunedModel: { tunedModelName: model } } : { baseModel: model };
}

function createBody(job: JobRequest, context: AdapterContext): JsonObject {
  const refusals = new Refusals('vertex-ai', context);
  refusals.absent({
    job_name: job.job_name,
    role_arn: job.role_arn,
    output_file: job.output_file,
    seed: job.seed,
    integrations: filled(job.integrations),
    ...unknownMethodMembers(job),
    ...job.extra,
  });
  if ([...job.suffix].length > 128) {
    throw new SluiceError('invalid_request', 'suffix may have at most 128 characters here.', { param: 'suffix' });
  }
  const labels = labelsOf(job.metadata);
  const hyper = hyperParameters(job, refusals);
  const spec: JsonObject = {
    trainingDatasetUri: source(job.training_file, 'training_file', job, context),
    ...(job.validation_file === null
      ? null
      : { validationDatasetUri: source(job.validation_file, 'validation_file', job, context) }),
    ...(Object.keys(hyper).length === 0 ? null : { hyperParameters: hyper }),
  };
  return {
    ...modelOf(job.upstreamModel),
    ...(job.suffix === '' ? null : { tunedModelDisplayName: job.suffix }),
    [job.method === 'dpo' ? 'preferenceOptimizationSpec' : 'supervisedTuningSpec']: spec,
    ...(Object.keys(labels).length === 0 ? null : { labels }),
  };
}

/** The part of a job that names its data: supervised or preference. */
function specOf(raw: JsonObject): JsonObject {
  for (const spec of [raw.supervisedTuningSpec, raw.preferenceOptimizationSpec]) if (isObject(spec)) return spec;
  return {};
}

function statsOf(raw: JsonObject): JsonObject {
  const all = asObject(raw.tuningDataStats);
  for (const stats of [all.supervisedTuningDataStats, all.preferenceOptimizationDataStats]) {
    if (isObject(stats)) return stats;
  }
  return {};
}

function fileOf(uri: unknown): string | null {
  const text = textOf(uri);
  if (text === null) return null;
  return text.startsWith('gs://') ? encodeURIComponent(text) : text;
}

function errorOf(raw: JsonObject): JobError {
  if (raw.state === 'JOB_STATE_EXPIRED') {
    return { code: 'provider_error', message: 'The job ran out of time at the provider.', param: null };
  }
  const { code, message } = rpcStatus(asObject(raw.error));
  const about = message.toLowerCase();
  if (code === 'invalid_argument' && about.includes('dataset')) {
    return about.includes('validation')
      ? { code: 'invalid_validation_file', message, param: 'validation_file' }
      : { code: 'invalid_training_file', message, param: 'training_file' };
  }
  if (code === 'resource_exhausted') return { code: 'quota_exceeded', message, param: null };
  if (code === 'not_found' && about.includes('model')) return { code: 'unsupported_model', message, param: null };
  return { code: 'provider_error', message, param: null };
}

function toJob(value: unknown): FineTuningJob {
  const raw: JsonObject = isObject(value) ? value : {};
  const name = textOf(raw.name);
  const created = epochOf(raw.createTime);
  if (name === null || created === null) throw invalidAnswer('a tuning job');
  const status = statusOf(raw.state);
  const final = FINAL_JOB.has(status);
  const spec = specOf(raw);
  const hyper = asObject(spec.hyperParameters);
  const tuned = asObject(raw.tunedModel);
  const base = asObject(raw.preTunedModel);
  return {
    id: shortId(name),
    object: 'fine_tuning.job',
    created_at: created,
    error: status === 'failed' ? errorOf(raw) : null,
    // The registry entry (`tunedModel.model`) cannot be called; the endpoint can.
    fine_tuned_model: status === 'succeeded' ? textOf(tuned.endpoint) : null,
    finished_at: final ? (epochOf(raw.endTime) ?? epochOf(raw.updateTime)) : null,
    hyperparameters: {
      n_epochs: integerOf(hyper.epochCount) ?? 'auto',
      ...(typeof hyper.learningRateMultiplier === 'number'
        ? { learning_rate_multiplier: hyper.learningRateMultiplier }
        : null),
      ...(typeof hyper.beta === 'number' ? { beta: hyper.beta } : null),
    },
    model: textOf(raw.baseModel) ?? textOf(base.baseModel) ?? textOf(base.tunedModelName) ?? '',
    organization_id: projectIn(name),
    result_files: [],
    status,
    trained_tokens: final ? integerOf(statsOf(raw).totalBillableTokenCount) : null,
    training_file: fileOf(spec.trainingDatasetUri) ?? '',
    validation_file: fileOf(spec.validationDatasetUri),
    seed: 0,
    estimated_finish: null,
    ...(isObject(raw.labels) ? { metadata: raw.labels } : null),
    ...(textOf(raw.experiment) === null ? null : { experiment: raw.experiment }),
    ...(textOf(tuned.model) === null ? null : { tuned_model: tuned.model }),
    ...(isObject(raw.tuningDataStats) ? { tuning_data_stats: raw.tuningDataStats } : null),
  };
}

/** What upstream reports of a job, told as events: it keeps no log. Oldest first. */
function eventsOf(raw: JsonObject, job: FineTuningJob): JobEvent[] {
  const out: JobEvent[] = [];
  const add = (what: string, at: number, level: JobEvent['level'], message: string): void => {
    out.push({ object: 'fine_tuning.job.event', id: `${job.id}:${what}`, created_at: at, level, message });
  };
  add('created', job.created_at, 'info', 'Created fine-tuning job.');
  const started = epochOf(raw.startTime);
  if (started !== null) add('started', started, 'info', 'Fine-tuning job started.');
  const stats = statsOf(raw);
  const truncated = integerOf(stats.totalTruncatedExampleCount) ?? 0;
  const reasons = Array.isArray(stats.droppedExampleReasons)
    ? stats.droppedExampleReasons.map(textOf).filter((reason) => reason !== null)
    : [];
  if (truncated > 0 || reasons.length > 0) {
    const why = reasons.length === 0 ? '' : `: ${reasons.slice(0, 20).join('; ')}`;
    const message = `${truncated} examples were dropped or cut by the provider${why}`;
    add('examples', started ?? job.created_at, 'warn', message);
  }
  const ended = job.finished_at ?? epochOf(raw.updateTime) ?? job.created_at;
  if (job.status === 'succeeded') add('succeeded', ended, 'info', 'The job has successfully completed.');
  if (job.status === 'cancelled') add('cancelled', ended, 'info', 'The job has been cancelled.');
  if (job.status === 'failed') add('failed', ended, 'error', job.error?.message ?? 'The job has failed.');
  return out;
}

function checkpointsOf(raw: JsonObject, job: FineTuningJob): JobCheckpoint[] {
  const tuned = asObject(raw.tunedModel);
  const at = epochOf(raw.endTime) ?? epochOf(raw.updateTime) ?? job.created_at;
  const rows = Array.isArray(tuned.checkpoints) ? tuned.checkpoints.filter(isObject) : [];
  return rows
    .flatMap((row): JobCheckpoint[] => {
      const id = textOf(row.checkpointId);
      const endpoint = textOf(row.endpoint);
      const step = integerOf(row.step);
      // Without an endpoint a checkpoint cannot be called, so it is none for a caller.
      if (id === null || endpoint === null || step === null) return [];
      const epoch = integerOf(row.epoch);
      return [
        {
          object: 'fine_tuning.job.checkpoint',
          id: `${job.id}:${id}`,
          created_at: at,
          fine_tuned_model_checkpoint: endpoint,
          step_number: step,
          metrics: { step },
          fine_tuning_job_id: job.id,
          ...(epoch === null ? null : { epoch }),
        },
      ];
    })
    .sort((a, b) => b.step_number - a.step_number);
}

async function fetched(id: string, context: AdapterContext): Promise<JsonObject> {
  const url = urlOf(context.base, resourcePath(context, COLLECTION, id));
  // A failed job carries an `error`: the body is the job all the same.
  const body = await sentJson(context, jsonRequest('GET', url, await googleHeaders(context)));
  if (!isObject(body)) throw invalidAnswer('a tuning job');
  return body;
}

/** Tuning jobs as upstream lists them, newest first, with the id that the walk needs. */
function rawJobs(size: number, context: AdapterContext): AsyncGenerator<{ id: string; raw: JsonObject }> {
  return tokenItems(async (pageToken) => {
    const url = urlOf(context.base, `/${placeOf(context).parent}/${COLLECTION}`, { pageSize: size, pageToken });
    const body = await sentJson(context, jsonRequest('GET', url, await googleHeaders(context)));
    if (!isObject(body)) throw invalidAnswer('a list of tuning jobs');
    const rows = Array.isArray(body.tuningJobs) ? body.tuningJobs.filter(isObject) : [];
    return {
      items: rows.map((raw) => ({ id: shortId(textOf(raw.name) ?? ''), raw })),
      next: textOf(body.nextPageToken),
    };
  });
}

function prepare(job: JobRequest, context: AdapterContext): PreparedCall {
  return {
    method: 'POST',
    url: urlOf(context.base, `/${placeOf(context).parent}/${COLLECTION}`).href,
    headers: ['authorization', 'Bearer ***', 'accept', 'application/json', 'content-type', 'application/json'],
    body: createBody(job, context),
  };
}

function isOf(raw: JsonObject, job: JobRequest, body: JsonObject): boolean {
  const labels = asObject(raw.labels);
  return (
    specOf(raw).trainingDatasetUri === specOf(body).trainingDatasetUri &&
    (textOf(raw.tunedModelDisplayName) ?? '') === job.suffix &&
    Object.entries(job.metadata ?? {}).every(([key, value]) => labels[key] === value)
  );
}

export const jobs: JobsAdapter = {
  minimumRows: 1,
  rowFormat: (job) => (job.method === 'dpo' ? 'vertex-preference' : 'vertex-supervised'),
  prepare,
  async create(job, context) {
    const { method, url, body } = prepare(job, context);
    const answer = await sentJson(
      context,
      jsonRequest(method as 'POST', new URL(url), await googleHeaders(context), body),
    );
    return { ...toJob(answer), model: job.model };
  },
  async list(page, context) {
    const { data, has_more } = await takePage(rawJobs(pageSize(page, LARGEST_PAGE), context), page);
    return { data: data.map(({ raw }) => toJob(raw)), has_more };
  },
  async retrieve(id, context) {
    return toJob(await fetched(id, context));
  },
  async cancel(id, context) {
    const path = resourcePath(context, COLLECTION, id);
    const answer = await sent(
      context,
      jsonRequest('POST', urlOf(context.base, `${path}:cancel`), await googleHeaders(context), {}),
    );
    answer.stream.destroy();
    const job = cancelled(toJob(await fetched(id, context)));
    // Until upstream is there, the answer is ahead of it.
    return { ...job, status: 'cancelled', finished_at: job.finished_at ?? Math.floor(context.now() / 1000) };
  },
  async events(id, page, context) {
    const raw = await fetched(id, context);
    return slicePage(eventsOf(raw, toJob(raw)).reverse(), page);
  },
  async checkpoints(id, page, context) {
    const raw = await fetched(id, context);
    return slicePage(checkpointsOf(raw, toJob(raw)), page);
  },
  async findByName(job, context) {
    const body = createBody(job, context);
    // One page of the newest: a job that was just made is among them.
    let looked = 0;
    for await (const { raw } of rawJobs(LARGEST_PAGE, context)) {
      if (isOf(raw, job, body)) return { ...toJob(raw), model: job.model };
      if (++looked === LARGEST_PAGE) break;
    }
    return null;
  },
};
