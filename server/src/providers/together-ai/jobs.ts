/** Fine-tuning at Together. The list has no pages there: each of ours is cut from the whole of it. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asObject } from '../../operations/convert/fields.ts';
import {
  FINAL_JOB,
  type FineTuningJob,
  type JobCheckpoint,
  type JobError,
  type JobEvent,
  type JobRequest,
  type JobStatus,
} from '../../operations/training.ts';
import type { AdapterContext, JobsAdapter, PreparedCall } from '../training.ts';
import {
  bearerHeaders,
  cancelled,
  epochOf,
  filled,
  idSegment,
  integerOf,
  invalidAnswer,
  jsonRequest,
  multiplierOf,
  Refusals,
  rateOf,
  sentObject,
  slicePage,
  textOf,
  unknownMethodMembers,
  urlOf,
} from '../training-calls.ts';

/** Documented default of `learning_rate`, which a multiplier of 1 stands for. */
const BASE_RATE = 1e-5;
const MAX_SUFFIX = 64;

const STATUS: Readonly<Record<string, JobStatus>> = {
  pending: 'queued',
  queued: 'queued',
  running: 'running',
  compressing: 'running',
  uploading: 'running',
  completed: 'succeeded',
  error: 'failed',
  user_error: 'failed',
  cancel_requested: 'cancelled',
  cancelled: 'cancelled',
};

/** A state nobody knows yet is not an end: it must neither break lists nor pretend that the job is over. */
function statusOf(value: JsonValue | undefined): JobStatus {
  return typeof value === 'string' && Object.hasOwn(STATUS, value) ? (STATUS[value] ?? 'running') : 'running';
}

const LEVELS: Readonly<Record<string, JobEvent['level']>> = {
  warning: 'warn',
  legacy_warning: 'warn',
  legacy_iwarning: 'warn',
  error: 'error',
  legacy_error: 'error',
};

const levelOf = (value: JsonValue | undefined): JobEvent['level'] =>
  typeof value === 'string' && Object.hasOwn(LEVELS, value) ? (LEVELS[value] ?? 'info') : 'info';

/** The learning rate to send: nothing for 1, which is the default there, and for "auto", which leaves it to them. */
function learningRate(multiplier: number | 'auto'): JsonObject {
  return multiplier === 'auto' || multiplier === 1 ? {} : { learning_rate: rateOf(multiplier, BASE_RATE) };
}

function createBody(job: JobRequest, context: AdapterContext): JsonObject {
  const refusals = new Refusals('together-ai', context);
  const at = job.hyperparametersPath;
  const { n_epochs: epochs, learning_rate_multiplier: multiplier, batch_size: batch, beta } = job.hyperparameters;
  if (epochs === 'auto') refusals.refuse(`${at}.n_epochs`, epochs, 'use a whole number');
  if (job.suffix.length > MAX_SUFFIX) {
    refusals.refuse('suffix', job.suffix, `use at most ${MAX_SUFFIX} characters`);
  }
  if (beta !== undefined && job.method !== 'dpo') refusals.absent({ [`${at}.beta`]: beta });
  // A tracker run wants the tracker's own key there, which nobody here has.
  refusals.absent({
    integrations: filled(job.integrations),
    metadata: filled(job.metadata),
    job_name: job.job_name,
    role_arn: job.role_arn,
    output_file: job.output_file,
    ...unknownMethodMembers(job),
    ...job.extra,
  });
  return {
    model: job.upstreamModel,
    training_file: job.training_file,
    // Without an evaluation the file would be stored and never looked at.
    ...(job.validation_file === null ? null : { validation_file: job.validation_file, n_evals: 1 }),
    ...(job.suffix.length > MAX_SUFFIX ? null : { suffix: job.suffix }),
    ...(epochs === 'auto' ? null : { n_epochs: epochs }),
    ...(batch === 'auto' ? null : { batch_size: batch }),
    ...learningRate(multiplier),
    ...(job.seed === null ? null : { random_seed: job.seed }),
    training_method:
      job.method === 'dpo'
        ? { method: 'dpo', ...(beta === undefined || beta === 'auto' ? null : { dpo_beta: beta }) }
        : { method: 'sft', train_on_inputs: 'auto' },
  };
}

/** Events in the order they happened; the provider states none. */
function oldestFirst(list: JsonValue | undefined): JsonObject[] {
  const events = asArray(list).filter(isObject);
  const first = epochOf(events[0]?.created_at);
  const last = epochOf(events.at(-1)?.created_at);
  return first !== null && last !== null && first > last ? events.reverse() : events;
}

function errorOf(events: readonly JsonObject[]): JobError {
  const failure = events.findLast((event) => levelOf(event.level) === 'error');
  const message = textOf(failure?.message) ?? 'The provider reports that the job failed and gives no reason.';
  return { code: 'provider_error', message, param: null };
}

/** `events`: those of a failed job when they were fetched; lists have only what the job itself carries. */
function jobOf(body: JsonObject, context: AdapterContext, events: readonly JsonObject[] | null = null): FineTuningJob {
  const id = textOf(body.id);
  if (id === null) throw invalidAnswer('a fine-tuning job', body);
  const status = statusOf(body.status);
  const final = FINAL_JOB.has(status);
  const created = epochOf(body.created_at) ?? 0;
  const progress = asObject(body.progress);
  const left = progress.estimate_available === true ? integerOf(progress.seconds_remaining) : null;
  const rate = typeof body.learning_rate === 'number' ? body.learning_rate : null;
  return {
    id,
    object: 'fine_tuning.job',
    created_at: created,
    error: status === 'failed' ? errorOf(events ?? oldestFirst(body.events)) : null,
    // The name is known from the start; a model of this name is not.
    fine_tuned_model: status === 'succeeded' ? textOf(body.model_output_name) : null,
    finished_at: final ? (epochOf(body.updated_at) ?? created) : null,
    hyperparameters: {
      n_epochs: integerOf(body.n_epochs) ?? 'auto',
      ...(body.batch_size === undefined ? null : { batch_size: body.batch_size === 'max' ? 'auto' : body.batch_size }),
      ...(rate === null ? null : { learning_rate_multiplier: multiplierOf(rate, BASE_RATE) }),
    },
    model: textOf(body.model) ?? '',
    organization_id: textOf(body.user_id) ?? textOf(body.owner_address) ?? '',
    result_files: [],
    status,
    trained_tokens: final ? integerOf(body.token_count) : null,
    training_file: textOf(body.training_file) ?? '',
    validation_file: textOf(body.validation_file),
    seed: integerOf(body.random_seed) ?? 0,
    estimated_finish: status === 'running' && left !== null ? Math.floor(context.now() / 1000) + left : null,
    ...(textOf(body.suffix) === null ? null : { suffix: body.suffix }),
  };
}

const pathOf = (id: string, rest = ''): string => `/fine-tunes/${idSegment(id)}${rest}`;

const get = (path: string, context: AdapterContext): Promise<JsonObject> =>
  sentObject(context, jsonRequest('GET', urlOf(context.base, path), bearerHeaders(context)));

async function listOf(path: string, context: AdapterContext): Promise<JsonObject[]> {
  const { data } = await get(path, context);
  if (!Array.isArray(data)) throw invalidAnswer('a list');
  return data.filter(isObject);
}

/** Newest first; jobs of one instant stay in one order. */
async function allJobs(context: AdapterContext): Promise<JsonObject[]> {
  const at = (job: JsonObject): number => Date.parse(textOf(job.created_at) ?? '') || 0;
  const id = (job: JsonObject): string => textOf(job.id) ?? '';
  return (await listOf('/fine-tunes', context)).sort((a, b) => at(b) - at(a) || (id(a) < id(b) ? 1 : -1));
}

async function withReason(body: JsonObject, context: AdapterContext): Promise<FineTuningJob> {
  const failed = statusOf(body.status) === 'failed' && !asArray(body.events).some((event) => isObject(event));
  const id = textOf(body.id);
  const events = failed && id !== null ? oldestFirst(await listOf(pathOf(id, '/events'), context)) : null;
  return jobOf(body, context, events);
}

function checkpointsOf(id: string, list: readonly JsonObject[]): JobCheckpoint[] {
  const taken = new Set<string>();
  const out: JobCheckpoint[] = [];
  for (const one of list) {
    const step = integerOf(one.step) ?? 0;
    // The last step is stored merged and as an adapter: both are checkpoints, and a cursor must tell them apart.
    let name = `${id}:${step}`;
    if (taken.has(name)) name = `${name}:${textOf(one.checkpoint_type) ?? 'other'}`;
    if (taken.has(name)) name = `${name}:${out.length}`;
    taken.add(name);
    out.push({
      object: 'fine_tuning.job.checkpoint',
      id: name,
      created_at: epochOf(one.created_at) ?? 0,
      fine_tuned_model_checkpoint: textOf(one.path) ?? name,
      step_number: step,
      metrics: { step },
      fine_tuning_job_id: id,
      ...(textOf(one.checkpoint_type) === null ? null : { checkpoint_type: one.checkpoint_type }),
    });
  }
  return out.sort((a, b) => b.step_number - a.step_number);
}

function prepare(job: JobRequest, context: AdapterContext): PreparedCall {
  const body = createBody(job, context);
  const { method, url, headers } = jsonRequest(
    'POST',
    urlOf(context.base, '/fine-tunes'),
    bearerHeaders(context),
    body,
  );
  return { method, url: url.href, headers, body };
}

export const jobs: JobsAdapter = {
  minimumRows: 1,
  rowFormat: () => 'together',
  prepare,
  async create(job, context) {
    const { url, body } = prepare(job, context);
    const request = jsonRequest('POST', new URL(url), bearerHeaders(context), body);
    return withReason(await sentObject(context, request), context);
  },
  async list(page, context) {
    const all = await allJobs(context);
    return slicePage(
      all.map((body) => jobOf(body, context)),
      page,
    );
  },
  async retrieve(id, context) {
    return withReason(await get(pathOf(id), context), context);
  },
  async cancel(id, context) {
    const request = jsonRequest('POST', urlOf(context.base, pathOf(id, '/cancel')), bearerHeaders(context));
    return cancelled(jobOf(await sentObject(context, request), context));
  },
  async events(id, page, context) {
    const events = oldestFirst(await listOf(pathOf(id, '/events'), context)).map(
      (event, index): JobEvent => ({
        object: 'fine_tuning.job.event',
        // The provider numbers nothing, but its order is stable and it only appends.
        id: `${id}:${index}`,
        created_at: epochOf(event.created_at) ?? 0,
        level: levelOf(event.level),
        message: textOf(event.message) ?? '',
        ...(textOf(event.type) === null ? null : { type: event.type }),
      }),
    );
    return slicePage(events.reverse(), page);
  },
  async checkpoints(id, page, context) {
    return slicePage(checkpointsOf(id, await listOf(pathOf(id, '/checkpoints'), context)), page);
  },
  async findByName(job, context) {
    // The file was uploaded for this job alone, so it names the job.
    const found = (await allJobs(context)).find(
      (one) => one.training_file === job.training_file && (one.suffix ?? job.suffix) === job.suffix,
    );
    return found === undefined ? null : jobOf(found, context);
  },
};
