/**
 * Fine-tuning at Mistral, by the last definition that was published: the vendor has declared the routes
 * deprecated. Where they are gone callers get 501, like everywhere that does not train.
 */

import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asObject } from '../../operations/convert/fields.ts';
import { errorStatus } from '../../operations/dialects/errors.ts';
import {
  FINAL_JOB,
  type FineTuningJob,
  type JobCheckpoint,
  type JobError,
  type JobEvent,
  type JobRequest,
  type JobStatus,
} from '../../operations/training.ts';
import { takePage, tokenItems } from '../token-pages.ts';
import type { AdapterContext, AdapterRequest, JobsAdapter, PreparedCall } from '../training.ts';
import {
  bearerHeaders,
  cancelled,
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
  unknownAfter,
  unknownMethodMembers,
  urlOf,
} from '../training-calls.ts';

const PATH = '/fine_tuning/jobs';
/** Documented default and range of `learning_rate`; a multiplier of 1 stands for the default. */
const BASE_RATE = 1e-4;
const MIN_RATE = 1e-8;
const MAX_RATE = 1;
const MAX_SUFFIX = 18;
const PAGE_SIZE = 100;
/** A job that was created a moment ago is among these. */
const NEWEST = 500;

const STATUS: Readonly<Record<string, JobStatus>> = {
  VALIDATING: 'validating_files',
  VALIDATED: 'validating_files',
  QUEUED: 'queued',
  STARTED: 'queued',
  RUNNING: 'running',
  SUCCESS: 'succeeded',
  FAILED_VALIDATION: 'failed',
  FAILED: 'failed',
  CANCELLATION_REQUESTED: 'cancelled',
  CANCELLED: 'cancelled',
};

/** A state nobody knows yet is not an end: it must neither break lists nor pretend that the job is over. */
function statusOf(value: JsonValue | undefined): JobStatus {
  return typeof value === 'string' && Object.hasOwn(STATUS, value) ? (STATUS[value] ?? 'running') : 'running';
}

function createBody(job: JobRequest, context: AdapterContext): JsonObject {
  const refusals = new Refusals('mistral-ai', context);
  const at = job.hyperparametersPath;
  const { n_epochs: epochs, learning_rate_multiplier: multiplier, batch_size: batch, beta } = job.hyperparameters;
  if (job.method === 'dpo') {
    // Not for drop_params to decide: rows of preferences cannot be trained as something else.
    throw new SluiceError('unsupported_parameter', 'mistral-ai cannot express method.type = "dpo"; use "supervised"', {
      param: 'method.type',
    });
  }
  if (batch !== 1 && batch !== 'auto') refusals.refuse(`${at}.batch_size`, batch, 'use 1');
  if (beta !== undefined) refusals.refuse(`${at}.beta`, beta, 'leave it out');
  let rate = multiplier === 'auto' || multiplier === 1 ? null : rateOf(multiplier, BASE_RATE);
  if (rate !== null && (rate < MIN_RATE || rate > MAX_RATE)) {
    const bounds = `use a number from ${multiplierOf(MIN_RATE, BASE_RATE)} to ${multiplierOf(MAX_RATE, BASE_RATE)}`;
    refusals.refuse(`${at}.learning_rate_multiplier`, multiplier, bounds);
    rate = null;
  }
  const named = job.suffix.length <= MAX_SUFFIX;
  if (!named) refusals.refuse('suffix', job.suffix, `use at most ${MAX_SUFFIX} characters`);
  // A tracker run wants the tracker's own key there, which nobody here has.
  refusals.absent({
    integrations: filled(job.integrations),
    metadata: filled(job.metadata),
    job_name: job.job_name,
    role_arn: job.role_arn,
    output_file: job.output_file,
    seed: job.seed,
    ...unknownMethodMembers(job),
    ...job.extra,
  });
  return {
    model: job.upstreamModel,
    training_files: [{ file_id: job.training_file, weight: 1 }],
    ...(job.validation_file === null ? null : { validation_files: [job.validation_file] }),
    hyperparameters: {
      ...(epochs === 'auto' ? null : { epochs }),
      ...(rate === null ? null : { learning_rate: rate }),
    },
    ...(named ? { suffix: job.suffix } : null),
    job_type: 'completion',
    // By default a job waits for a separate call to start it.
    auto_start: true,
    // By default part of the rows may be wrong and is left out without a word.
    invalid_sample_skip_percentage: 0,
  };
}

/** The provider lists events newest first; whatever its order, an event's number must not change when more are added. */
function oldestFirst(list: JsonValue | undefined): JsonObject[] {
  const events = asArray(list).filter(isObject);
  const first = integerOf(events[0]?.created_at) ?? 0;
  const last = integerOf(events.at(-1)?.created_at) ?? 0;
  return first < last ? events : events.reverse();
}

const failureIn = (event: JsonObject): string | null => {
  const { error } = asObject(event.data);
  return textOf(error) ?? (isObject(error) ? (textOf(error.message) ?? JSON.stringify(error)) : null);
};

function errorOf(body: JsonObject): JobError {
  const invalid = body.status === 'FAILED_VALIDATION';
  const messages = oldestFirst(body.events).map(failureIn);
  return {
    code: invalid ? 'invalid_training_file' : 'provider_error',
    message:
      messages.findLast((message) => message !== null) ??
      'The provider reports that the job failed and gives no reason.',
    param: invalid ? 'training_file' : null,
  };
}

/** Files of a job are ids, in older jobs objects that hold one. */
const fileIn = (list: JsonValue | undefined): string | null => {
  const [first] = asArray(list);
  return textOf(first) ?? (isObject(first) ? textOf(first.file_id) : null);
};

function estimate(body: JsonObject): number | null {
  const { estimated_start_time: start, expected_duration_seconds: duration } = asObject(body.metadata);
  const from = integerOf(start);
  const length = integerOf(duration);
  return from === null || length === null ? null : from + length;
}

function jobOf(body: JsonObject): FineTuningJob {
  const id = textOf(body.id);
  if (id === null) throw invalidAnswer('a fine-tuning job', body);
  const status = statusOf(body.status);
  const final = FINAL_JOB.has(status);
  const created = integerOf(body.created_at) ?? 0;
  const { epochs, learning_rate: rate } = asObject(body.hyperparameters);
  return {
    id,
    object: 'fine_tuning.job',
    created_at: created,
    error: status === 'failed' ? errorOf(body) : null,
    fine_tuned_model: status === 'succeeded' ? textOf(body.fine_tuned_model) : null,
    finished_at: final ? (integerOf(body.modified_at) ?? created) : null,
    hyperparameters: {
      n_epochs: typeof epochs === 'number' ? epochs : 'auto',
      ...(typeof rate === 'number' ? { learning_rate_multiplier: multiplierOf(rate, BASE_RATE) } : null),
    },
    model: textOf(body.model) ?? '',
    organization_id: '',
    result_files: [],
    status,
    trained_tokens: final ? integerOf(body.trained_tokens) : null,
    training_file: fileIn(body.training_files) ?? '',
    validation_file: fileIn(body.validation_files),
    seed: 0,
    estimated_finish: status === 'running' ? estimate(body) : null,
    ...(textOf(body.suffix) === null ? null : { suffix: body.suffix }),
  };
}

/** A route that is gone answers like every path the server never had; an object that is missing says what is missing. */
function isGone(error: unknown): boolean {
  if (!(error instanceof SluiceError) || error.kind !== 'provider_error') return false;
  const status = errorStatus(error);
  return status === 410 || (status === 404 && /^(not found|no route\b.*)\.?$/i.test(error.message));
}

async function send(context: AdapterContext, request: AdapterRequest): Promise<JsonObject> {
  try {
    return await sentObject(context, request);
  } catch (error) {
    if (!isGone(error)) throw error;
    throw new SluiceError(
      'unsupported_operation',
      'Mistral AI no longer offers fine-tuning jobs to this account; use another provider.',
      { cause: error },
    );
  }
}

async function detail(id: string, context: AdapterContext): Promise<JsonObject> {
  const url = urlOf(context.base, `${PATH}/${idSegment(id)}`);
  return sentObject(context, jsonRequest('GET', url, bearerHeaders(context)));
}

/** Jobs in the provider's order, newest first; `before`: only those created before this second. */
function jobItems(before: number | null, context: AdapterContext): AsyncGenerator<FineTuningJob> {
  return tokenItems(async (token) => {
    const number = Number(token ?? 0);
    const url = urlOf(context.base, PATH, {
      page: number,
      page_size: PAGE_SIZE,
      created_before: before === null ? null : new Date(before * 1000).toISOString(),
    });
    const { data, total } = await send(context, jsonRequest('GET', url, bearerHeaders(context)));
    if (!Array.isArray(data)) throw invalidAnswer('a list');
    const rows = data.filter(isObject);
    const known = integerOf(total);
    const more = rows.length > 0 && (known === null ? rows.length === PAGE_SIZE : (number + 1) * PAGE_SIZE < known);
    return { items: rows.map(jobOf), next: more ? String(number + 1) : null };
  });
}

function prepare(job: JobRequest, context: AdapterContext): PreparedCall {
  const body = createBody(job, context);
  const { method, url, headers } = jsonRequest('POST', urlOf(context.base, PATH), bearerHeaders(context), body);
  return { method, url: url.href, headers, body };
}

export const jobs: JobsAdapter = {
  minimumRows: 1,
  rowFormat: () => 'mistral',
  prepare,
  async create(job, context) {
    const { url, body } = prepare(job, context);
    return jobOf(await send(context, jsonRequest('POST', new URL(url), bearerHeaders(context), body)));
  },
  async list(page, context) {
    if (page.after === null) return takePage(jobItems(null, context), page);
    let last: FineTuningJob;
    try {
      last = jobOf(await detail(page.after, context));
    } catch (error) {
      if (error instanceof SluiceError && errorStatus(error) === 404) throw unknownAfter();
      throw error;
    }
    // Jobs of the same second are asked for too: the one named is among them and those before it are skipped.
    return takePage(jobItems(last.created_at + 1, context), page);
  },
  async retrieve(id, context) {
    return jobOf(await detail(id, context));
  },
  async cancel(id, context) {
    const url = urlOf(context.base, `${PATH}/${idSegment(id)}/cancel`);
    return cancelled(jobOf(await sentObject(context, jsonRequest('POST', url, bearerHeaders(context)))));
  },
  async events(id, page, context) {
    const events = oldestFirst((await detail(id, context)).events).map((event, index): JobEvent => {
      const failure = failureIn(event);
      const what = failure ?? textOf(asObject(event.data).status);
      const name = textOf(event.name) ?? 'event';
      return {
        object: 'fine_tuning.job.event',
        id: `${id}:${index}`,
        created_at: integerOf(event.created_at) ?? 0,
        level: failure === null ? 'info' : 'error',
        message: what === null ? name : `${name}: ${what}`,
      };
    });
    return slicePage(events.reverse(), page);
  },
  async checkpoints(id, page, context) {
    const body = await detail(id, context);
    const model = statusOf(body.status) === 'succeeded' ? textOf(body.fine_tuned_model) : null;
    const all = asArray(body.checkpoints)
      .filter(isObject)
      .map((one): JobCheckpoint => {
        const step = integerOf(one.step_number) ?? 0;
        const metrics: Record<string, number> = { step };
        for (const [name, value] of Object.entries(asObject(one.metrics))) {
          if (typeof value === 'number') metrics[name] = value;
        }
        return {
          object: 'fine_tuning.job.checkpoint',
          id: `${id}:${step}`,
          created_at: integerOf(one.created_at) ?? 0,
          fine_tuned_model_checkpoint: `${id}:${step}`,
          step_number: step,
          metrics,
          fine_tuning_job_id: id,
        };
      })
      .sort((a, b) => b.step_number - a.step_number);
    // Only the model as it ended can be called; checkpoints on the way have no name at the provider.
    const named = all.map((one, i) =>
      i === 0 && model !== null ? { ...one, fine_tuned_model_checkpoint: model } : one,
    );
    return slicePage(named, page);
  },
  async findByName(job, context) {
    // The file was uploaded for this job alone, so it names the job.
    let looked = 0;
    for await (const one of jobItems(null, context)) {
      if (one.training_file === job.training_file) return one;
      if (++looked === NEWEST) break;
    }
    return null;
  },
};
