/** Fine-tuning jobs as OpenAI defines them (OpenAPI 2.3.0), also for providers that speak nearly the same. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import type {
  FineTuningJob,
  JobCheckpoint,
  JobError,
  JobEvent,
  JobRequest,
  JobStatus,
  Page,
  PageRequest,
} from '../../operations/training.ts';
import type { AdapterContext, JobsAdapter } from '../training.ts';
import { integerOf, invalidAnswer, Refusals, textOf } from '../training-calls.ts';
import { idSegment, type ObjectApi, object, planned, type Query } from './training-api.ts';

export interface JobsOptions {
  readonly api: ObjectApi;
  /** The create request as the provider wants it; throws for a field it cannot express. */
  body(job: JobRequest, context: AdapterContext): JsonObject;
  /** Owner of a job that names none. */
  readonly owner?: (context: AdapterContext) => string;
}

/** The largest seed, and the largest number of pages looked through for a job that was created already. */
const MAX_SEED = 2_147_483_647;
const SEARCHED_PAGES = 3;

const isInteger = (value: unknown, min: number, max: number): boolean =>
  typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max;

interface Bound {
  readonly fits: (value: unknown) => boolean;
  readonly text: string;
  /** The method it belongs to; absent: both. */
  readonly only?: JobRequest['method'];
}

/** Bounds of the hyperparameters, and how to say them. */
const BOUNDS: Readonly<Record<string, Bound>> = {
  n_epochs: { fits: (value) => value === 'auto' || isInteger(value, 1, 50), text: '"auto" or an integer from 1 to 50' },
  batch_size: {
    fits: (value) => value === 'auto' || isInteger(value, 1, 256),
    text: '"auto" or an integer from 1 to 256',
  },
  learning_rate_multiplier: {
    fits: (value) => value === 'auto' || (typeof value === 'number' && value > 0),
    text: '"auto" or a number above 0',
  },
  beta: {
    fits: (value) => value === 'auto' || (typeof value === 'number' && value > 0 && value <= 2),
    text: '"auto" or a number above 0 and at most 2',
    only: 'dpo',
  },
};

/** The caller's own object at `name`, so that members no shape names travel along. */
const objectAt = (body: JsonObject, name: string): JsonObject => {
  const value = body[name];
  return isObject(value) ? value : {};
};

/**
 * The create request of the published definition: everything under its own name, trackers renamed, and members that no
 * shape names passed on, wherever they stand.
 */
export function jobBody(job: JobRequest, context: AdapterContext, title: string): JsonObject {
  const refusals = new Refusals(title, context);
  refuseCloudFields(job, refusals);
  const method = given(objectAt(job.body, 'method'));
  const block = objectAt(method, job.method);
  const older = job.hyperparametersPath === 'hyperparameters';
  const own = objectAt(older ? job.body : block, 'hyperparameters');
  const hyperparameters: JsonObject = { ...own, ...job.hyperparameters };
  for (const [name, { fits, text, only }] of Object.entries(BOUNDS)) {
    const value = hyperparameters[name];
    if (value === undefined || fits(value) || (only !== undefined && only !== job.method)) continue;
    refusals.refuse(`${job.hyperparametersPath}.${name}`, value, `use ${text}`);
    delete hyperparameters[name];
  }
  const out: JsonObject = { ...topLevelExtra(job), model: job.upstreamModel, training_file: job.training_file };
  if (job.validation_file !== null) out.validation_file = job.validation_file;
  if (suffixFits(job.suffix, refusals)) out.suffix = job.suffix;
  out.method = { ...method, type: job.method, [job.method]: { ...block, hyperparameters } };
  if (seedFits(job.seed, refusals)) out.seed = job.seed;
  if (job.integrations !== null) {
    const whole = Array.isArray(job.body.integrations) ? job.body.integrations : [];
    out.integrations = job.integrations.map((one, at) => {
      const raw = whole[at];
      return toUpstreamTracker(isObject(raw) ? raw : (one as unknown as JsonObject));
    });
  }
  if (job.metadata !== null) out.metadata = { ...job.metadata };
  return out;
}

/** Members that say something. */
const given = (value: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(value).filter(([, content]) => content !== null));

/** Members of the body's top that no shape names; deeper ones travel where they stand. */
function topLevelExtra(job: JobRequest): JsonObject {
  return Object.fromEntries(Object.entries(job.extra).filter(([name]) => Object.hasOwn(job.body, name)));
}

/** Fields of shape B, which have no place outside a cloud account. */
export function refuseCloudFields(job: JobRequest, refusals: Refusals): void {
  refusals.absent({ job_name: job.job_name, role_arn: job.role_arn, output_file: job.output_file });
}

function suffixFits(suffix: string, refusals: Refusals): boolean {
  const { length } = [...suffix];
  if (length >= 1 && length <= 64) return true;
  refusals.refuse('suffix', suffix, 'use 1 to 64 characters');
  return false;
}

/** Whether there is a seed to send. */
export function seedFits(seed: number | null, refusals: Refusals): boolean {
  if (seed === null) return false;
  if (isInteger(seed, 0, MAX_SEED)) return true;
  refusals.refuse('seed', seed, `use an integer from 0 to ${MAX_SEED}`);
  return false;
}

/** `tracker` under the provider's own name; its members stay, tags unchanged. */
export function toUpstreamTracker(one: JsonObject): JsonObject {
  const { type: _type, tracker, ...rest } = one;
  return { ...rest, type: 'wandb', wandb: tracker };
}

function fromUpstreamTracker(value: JsonValue): JsonValue {
  if (!isObject(value) || value.type !== 'wandb') return value;
  const { type: _type, wandb, ...rest } = value;
  return { ...rest, type: 'tracker', tracker: wandb };
}

/** States of both API surfaces; what is on its way to work or held counts as queued. */
const STATUS: ReadonlyMap<unknown, JobStatus> = new Map<unknown, JobStatus>([
  ['validating_files', 'validating_files'],
  ['created', 'queued'],
  ['pending', 'queued'],
  ['queued', 'queued'],
  ['resuming', 'queued'],
  ['paused', 'queued'],
  ['running', 'running'],
  ['pausing', 'running'],
  ['succeeded', 'succeeded'],
  ['failed', 'failed'],
  ['cancelled', 'cancelled'],
]);

const NO_REASON: JobError = { code: 'provider_error', message: 'The provider gave no reason.', param: null };

function errorOf(value: JsonValue | undefined): JobError {
  if (!isObject(value)) return NO_REASON;
  const { message } = value;
  return {
    code: textOf(value.code) ?? NO_REASON.code,
    message: typeof message === 'string' && message !== '' ? message : NO_REASON.message,
    param: textOf(value.param),
  };
}

/** Epochs as the job resolved them; older versions write -1 where the service chooses. */
function epochsOf(raw: JsonObject): number | 'auto' {
  const method = objectAt(raw, 'method');
  const block = typeof method.type === 'string' ? objectAt(method, method.type) : {};
  const value = objectAt(raw, 'hyperparameters').n_epochs ?? objectAt(block, 'hyperparameters').n_epochs;
  const epochs = integerOf(value);
  return epochs === null || epochs < 1 ? 'auto' : epochs;
}

/** A job of the provider as callers see it; members it adds are passed on. */
export function toJob(raw: JsonObject, owner = ''): FineTuningJob {
  const { id, organisation_id: british, ...rest } = raw;
  const status = STATUS.get(raw.status);
  const created = integerOf(raw.created_at);
  if (typeof id !== 'string' || created === null) throw invalidAnswer('a fine-tuning job');
  if (status === undefined) throw invalidAnswer('a fine-tuning job in a known state', raw.status);
  return {
    ...rest,
    id,
    object: 'fine_tuning.job',
    created_at: created,
    error: status === 'failed' ? errorOf(raw.error) : null,
    fine_tuned_model: textOf(raw.fine_tuned_model),
    finished_at: integerOf(raw.finished_at),
    hyperparameters: {
      ...objectAt(raw, 'hyperparameters'),
      n_epochs: epochsOf(raw),
    } as FineTuningJob['hyperparameters'],
    model: textOf(raw.model) ?? '',
    organization_id: textOf(raw.organization_id) ?? textOf(british) ?? owner,
    result_files: Array.isArray(raw.result_files) ? raw.result_files.filter((one) => typeof one === 'string') : [],
    status,
    trained_tokens: integerOf(raw.trained_tokens),
    training_file: textOf(raw.training_file) ?? '',
    validation_file: textOf(raw.validation_file),
    seed: integerOf(raw.seed) ?? 0,
    ...(Array.isArray(raw.integrations)
      ? { integrations: raw.integrations.map(fromUpstreamTracker) as unknown as FineTuningJob['integrations'] & object }
      : null),
  };
}

function toEvent(raw: JsonObject): JobEvent {
  const { level } = raw;
  const created = integerOf(raw.created_at);
  if (typeof raw.id !== 'string' || created === null) throw invalidAnswer('a job event');
  return {
    ...raw,
    object: 'fine_tuning.job.event',
    id: raw.id,
    created_at: created,
    level: level === 'error' ? 'error' : level === 'warn' || level === 'warning' ? 'warn' : 'info',
    message: typeof raw.message === 'string' ? raw.message : '',
  };
}

function toCheckpoint(raw: JsonObject, job: string): JobCheckpoint {
  const created = integerOf(raw.created_at);
  const step = integerOf(raw.step_number);
  if (typeof raw.id !== 'string' || created === null || step === null) throw invalidAnswer('a checkpoint');
  return {
    ...raw,
    object: 'fine_tuning.job.checkpoint',
    id: raw.id,
    created_at: created,
    fine_tuned_model_checkpoint: textOf(raw.fine_tuned_model_checkpoint) ?? '',
    step_number: step,
    metrics: objectAt(raw, 'metrics') as JobCheckpoint['metrics'],
    fine_tuning_job_id: textOf(raw.fine_tuning_job_id) ?? job,
  };
}

/** One page of a list of objects. */
export async function listPage<T>(
  api: ObjectApi,
  context: AdapterContext,
  path: string,
  page: PageRequest,
  map: (raw: JsonObject) => T,
  query: Query = {},
): Promise<Page<T>> {
  const answer = await object(api, context, 'GET', path, { query: { after: page.after, limit: page.limit, ...query } });
  if (!Array.isArray(answer.data)) throw invalidAnswer('a list');
  return {
    data: answer.data.map((item) => {
      if (!isObject(item)) throw invalidAnswer('a list of objects');
      return map(item);
    }),
    has_more: answer.has_more === true,
  };
}

export function openAiJobs(options: JobsOptions): JobsAdapter {
  const { api } = options;
  const read = (raw: JsonObject, context: AdapterContext): FineTuningJob => toJob(raw, options.owner?.(context));
  const act = async (id: string, action: string, context: AdapterContext): Promise<FineTuningJob> =>
    read(await object(api, context, 'POST', `/fine_tuning/jobs/${idSegment(id)}${action}`), context);
  const list = (page: PageRequest, context: AdapterContext): Promise<Page<FineTuningJob>> =>
    listPage(api, context, '/fine_tuning/jobs', page, (raw) => read(raw, context));
  return {
    prepare: (job, context) => planned(api, context, '/fine_tuning/jobs', options.body(job, context)),
    async create(job, context) {
      const body = options.body(job, context);
      const made = read(await object(api, context, 'POST', '/fine_tuning/jobs', { body }), context);
      return job.upstreamModel === job.model ? made : { ...made, model: job.model };
    },
    list,
    retrieve: async (id, context) =>
      read(await object(api, context, 'GET', `/fine_tuning/jobs/${idSegment(id)}`), context),
    cancel: (id, context) => act(id, '/cancel', context),
    pause: (id, context) => act(id, '/pause', context),
    resume: (id, context) => act(id, '/resume', context),
    events: (id, page, context) => listPage(api, context, `/fine_tuning/jobs/${idSegment(id)}/events`, page, toEvent),
    checkpoints: (id, page, context) =>
      listPage(api, context, `/fine_tuning/jobs/${idSegment(id)}/checkpoints`, page, (raw) => toCheckpoint(raw, id)),
    rowFormat: () => 'openai',
    minimumRows: 10,
    // The training file was uploaded for this one job, so it names the job as surely as an id.
    async findByName(job, context) {
      let after: string | null = null;
      for (let walked = 0; walked < SEARCHED_PAGES; walked++) {
        const page: Page<FineTuningJob> = await list({ after, limit: 100 }, context);
        const found = page.data.find((one) => one.training_file === job.training_file);
        if (found !== undefined) return found;
        after = page.data.at(-1)?.id ?? null;
        if (!page.has_more || after === null) return null;
      }
      return null;
    },
  };
}
