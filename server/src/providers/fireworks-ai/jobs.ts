/** Fine-tuning at Fireworks: supervised and DPO jobs are two resources there. */
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { asObject } from '../../operations/convert/fields.ts';
import {
  FINAL_JOB,
  type FineTuningJob,
  type JobError,
  type JobEvent,
  type JobRequest,
  type JobStatus,
} from '../../operations/training.ts';
import { pageSize, takePage } from '../token-pages.ts';
import type { AdapterContext, JobsAdapter, PreparedCall } from '../training.ts';
import {
  bearerHeaders,
  cancelled,
  epochOf,
  failureOf,
  filled,
  idSegment,
  integerOf,
  invalidAnswer,
  jsonRequest,
  namedIn,
  Refusals,
  sentObject,
  slicePage,
  textOf,
  unknownMethodMembers,
  urlOf,
} from '../training-calls.ts';
import { LARGEST_PAGE, type Listed, listed, merged } from './lists.ts';
import { accountOf, checkedId, controlPlane, failureIn, modelName, modelOf, resourceName, shortId } from './place.ts';

const SUPERVISED = 'supervisedFineTuningJobs';
const DPO = 'dpoJobs';
/** Tells ids of DPO jobs from those of supervised jobs, which have no prefix. */
const DPO_PREFIX = 'dpo:';

const STATUS: Readonly<Record<string, JobStatus>> = {
  JOB_STATE_VALIDATING: 'validating_files',
  JOB_STATE_CREATING_INPUT_DATASET: 'validating_files',
  JOB_STATE_UNSPECIFIED: 'queued',
  JOB_STATE_CREATING: 'queued',
  JOB_STATE_PENDING: 'queued',
  JOB_STATE_RE_QUEUEING: 'queued',
  JOB_STATE_PAUSED: 'queued',
  JOB_STATE_IDLE: 'queued',
  JOB_STATE_RUNNING: 'running',
  JOB_STATE_WRITING_RESULTS: 'running',
  JOB_STATE_COMPLETED: 'succeeded',
  JOB_STATE_EARLY_STOPPED: 'succeeded',
  JOB_STATE_FAILED: 'failed',
  JOB_STATE_EXPIRED: 'failed',
  JOB_STATE_CANCELLING: 'cancelled',
  JOB_STATE_CANCELLED: 'cancelled',
  JOB_STATE_DELETING: 'cancelled',
  JOB_STATE_DELETING_CLEANING_UP: 'cancelled',
};

/** `model` under the name upstream wants: what the account tuned itself is continued, everything else is a base. */
function startOf(model: string, context: AdapterContext): JsonObject {
  const own = model.startsWith(`accounts/${accountOf(context)}/models/`);
  return own ? { warmStartFrom: model } : { baseModel: modelName(model) };
}

function settingsOf(job: JobRequest, refusals: Refusals): JsonObject {
  const { n_epochs: epochs, learning_rate_multiplier: rate, batch_size: batch } = job.hyperparameters;
  if (rate !== 'auto' && rate !== 1) {
    refusals.refuse(`${job.hyperparametersPath}.learning_rate_multiplier`, rate, 'use 1');
  }
  return {
    ...(epochs === 'auto' ? null : { epochs }),
    // `batchSize` counts tokens of a packed batch; this one counts samples.
    ...(batch === 'auto' ? null : { batchSizeSamples: batch }),
  };
}

function lossOf(job: JobRequest): JsonObject {
  const { beta } = job.hyperparameters;
  // The published descriptions disagree about the default method.
  if (beta === undefined || beta === 'auto') return { method: 'DPO' };
  if (beta <= 0 || beta >= 0.5) {
    const param = `${job.hyperparametersPath}.beta`;
    throw new SluiceError('invalid_request', `${param} must be above 0 and below 0.5 here.`, { param });
  }
  return { method: 'DPO', dpo: { beta } };
}

function createBody(job: JobRequest, context: AdapterContext): JsonObject {
  const refusals = new Refusals('fireworks-ai', context);
  const dpo = job.method === 'dpo';
  refusals.absent({
    // A tracker run wants the tracker's own key there, which nobody here has.
    integrations: filled(job.integrations),
    metadata: filled(job.metadata),
    role_arn: job.role_arn,
    output_file: job.output_file,
    seed: job.seed,
    ...(dpo
      ? { validation_file: job.validation_file }
      : { [`${job.hyperparametersPath}.beta`]: job.hyperparameters.beta }),
    ...unknownMethodMembers(job),
    ...job.extra,
  });
  const dataset = resourceName(context, 'datasets', job.training_file);
  const named = job.suffix === '' ? {} : { displayName: job.suffix };
  const settings = {
    ...startOf(job.upstreamModel, context),
    ...(job.suffix === '' ? null : { outputModel: resourceName(context, 'models', checkedId(job.suffix, 'suffix')) }),
    ...settingsOf(job, refusals),
  };
  if (dpo) return { dataset, ...named, lossConfig: lossOf(job), trainingConfig: settings };
  return {
    dataset,
    ...(job.validation_file === null
      ? null
      : { evaluationDataset: resourceName(context, 'datasets', job.validation_file) }),
    ...named,
    ...settings,
  };
}

function errorOf(raw: JsonObject): JobError {
  if (raw.state === 'JOB_STATE_EXPIRED') {
    return { code: 'provider_error', message: 'The job ran out of time at the provider.', param: null };
  }
  const { code, message } = failureIn(raw) ?? { code: 'unknown', message: 'The provider gave no reason.' };
  const about = message.toLowerCase();
  if (code === 'invalid_argument' && about.includes('dataset')) {
    return about.includes('eval')
      ? { code: 'invalid_validation_file', message, param: 'validation_file' }
      : { code: 'invalid_training_file', message, param: 'training_file' };
  }
  if (code === 'resource_exhausted') return { code: 'quota_exceeded', message, param: null };
  if (code === 'not_found' && about.includes('model')) return { code: 'unsupported_model', message, param: null };
  return { code: 'provider_error', message, param: null };
}

function toJob({ id, raw }: Listed, context: AdapterContext): FineTuningJob {
  const created = epochOf(raw.createTime);
  if (textOf(raw.name) === null || created === null) throw invalidAnswer('a fine-tuning job');
  // DPO jobs keep their settings one level deeper.
  const settings = id.startsWith(DPO_PREFIX) ? asObject(raw.trainingConfig) : raw;
  // A state nobody knows yet is not an end.
  const status = namedIn(STATUS, raw.state) ?? 'running';
  const final = FINAL_JOB.has(status);
  const batch = integerOf(settings.batchSizeSamples);
  const { beta } = asObject(asObject(raw.lossConfig).dpo);
  const evaluation = textOf(raw.evaluationDataset);
  return {
    id,
    object: 'fine_tuning.job',
    created_at: created,
    error: status === 'failed' ? errorOf(raw) : null,
    fine_tuned_model: status === 'succeeded' ? textOf(settings.outputModel) : null,
    finished_at: final ? (epochOf(raw.completedTime) ?? epochOf(raw.updateTime)) : null,
    hyperparameters: {
      n_epochs: integerOf(settings.epochs) ?? 'auto',
      ...(batch === null ? null : { batch_size: batch }),
      ...(typeof settings.learningRate === 'number' ? { learning_rate: settings.learningRate } : null),
      ...(typeof beta === 'number' ? { beta } : null),
    },
    model: modelOf(textOf(settings.baseModel) ?? textOf(settings.warmStartFrom)),
    organization_id: accountOf(context),
    // What upstream offers is a signed URL to its metrics, which is a secret.
    result_files: [],
    status,
    trained_tokens: null,
    training_file: shortId(textOf(raw.dataset) ?? ''),
    validation_file: evaluation === null ? null : shortId(evaluation),
    seed: 0,
    estimated_finish: null,
  };
}

/** What upstream reports of a job, told as events: it keeps no log. Newest first. */
function eventsOf(job: FineTuningJob): JobEvent[] {
  const event = (what: string, at: number, level: JobEvent['level'], message: string): JobEvent => {
    return { object: 'fine_tuning.job.event', id: `${job.id}:${what}`, created_at: at, level, message };
  };
  const created = event('created', job.created_at, 'info', 'Created fine-tuning job.');
  const ended = job.finished_at ?? job.created_at;
  switch (job.status) {
    case 'succeeded':
      return [event('succeeded', ended, 'info', 'The job has successfully completed.'), created];
    case 'failed':
      return [event('failed', ended, 'error', job.error?.message ?? 'The job has failed.'), created];
    case 'cancelled':
      return [event('cancelled', ended, 'info', 'The job has been cancelled.'), created];
    default:
      // When a job started is not reported, so there is no time to give it.
      return [created];
  }
}

function pathOf(id: string): string {
  if (id.startsWith(DPO_PREFIX)) return `/${DPO}/${idSegment(id.slice(DPO_PREFIX.length))}`;
  return `/${SUPERVISED}/${idSegment(id)}`;
}

async function fetched(id: string, context: AdapterContext): Promise<FineTuningJob> {
  const url = urlOf(controlPlane(context), pathOf(id));
  const raw = await sentObject(context, jsonRequest('GET', url, bearerHeaders(context)));
  return toJob({ id, raw }, context);
}

function prepare(job: JobRequest, context: AdapterContext): PreparedCall {
  const body = createBody(job, context);
  const dpo = job.method === 'dpo';
  const id = job.job_name === null ? null : checkedId(job.job_name, 'job_name');
  const url = urlOf(controlPlane(context), `/${dpo ? DPO : SUPERVISED}`, {
    [dpo ? 'dpoJobId' : 'supervisedFineTuningJobId']: id,
  });
  const { headers } = jsonRequest('POST', url, bearerHeaders(context), body);
  return { method: 'POST', url: url.href, headers, body };
}

const idOf = (raw: JsonObject, dpo: boolean): string => (dpo ? DPO_PREFIX : '') + shortId(textOf(raw.name) ?? '');

/** Answers of a route that does not exist; 404 may also be about the job. */
const NO_ROUTE: ReadonlySet<number> = new Set([404, 405, 501]);

export const jobs: JobsAdapter = {
  minimumRows: 3,
  rowFormat: () => 'fireworks',
  prepare,
  async create(job, context) {
    const { url, body } = prepare(job, context);
    const raw = await sentObject(context, jsonRequest('POST', new URL(url), bearerHeaders(context), body));
    return { ...toJob({ id: idOf(raw, job.method === 'dpo'), raw }, context), model: job.model };
  },
  async list(page, context) {
    const size = pageSize(page, LARGEST_PAGE);
    const both = merged(listed(SUPERVISED, size, context), listed(DPO, size, context, DPO_PREFIX));
    const { data, has_more } = await takePage(both, page);
    return { data: data.map((one) => toJob(one, context)), has_more };
  },
  retrieve: fetched,
  /** Never by DELETE, which removes the record. */
  async cancel(id, context) {
    const url = urlOf(controlPlane(context), `${pathOf(id)}:cancel`);
    const answer = await context.call(jsonRequest('POST', url, bearerHeaders(context), {}));
    if (NO_ROUTE.has(answer.status)) {
      answer.stream.destroy();
      // Throws 404 for a job that is not there; one that is there shows that the route is not.
      await fetched(id, context);
      throw new SluiceError('unsupported_operation', 'Fireworks does not offer to cancel this job.');
    }
    if (answer.status < 200 || answer.status >= 300) throw await failureOf(answer);
    answer.stream.destroy();
    const job = cancelled(await fetched(id, context));
    // Until upstream is there, the answer is ahead of it.
    return { ...job, status: 'cancelled', finished_at: job.finished_at ?? Math.floor(context.now() / 1000) };
  },
  async events(id, page, context) {
    return slicePage(eventsOf(await fetched(id, context)), page);
  },
  /** None are reported; asking for those of a job that is not there is still a mistake. */
  async checkpoints(id, page, context) {
    await fetched(id, context);
    return slicePage([], page);
  },
  async findByName(job, context) {
    const dpo = job.method === 'dpo';
    const dataset = resourceName(context, 'datasets', job.training_file);
    let looked = 0;
    // One page of the newest: a job that was just made is among them.
    for await (const one of listed(dpo ? DPO : SUPERVISED, LARGEST_PAGE, context, dpo ? DPO_PREFIX : '')) {
      const named = job.job_name === null || shortId(textOf(one.raw.name) ?? '') === job.job_name;
      if (named && one.raw.dataset === dataset && (textOf(one.raw.displayName) ?? '') === job.suffix) {
        return { ...toJob(one, context), model: job.model };
      }
      if (++looked === LARGEST_PAGE) break;
    }
    return null;
  },
};
