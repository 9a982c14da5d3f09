import type { JsonObject } from '../kernel/json.ts';
import type { OperationOf } from '../operations/operation.ts';
import { FINAL_BATCH } from '../operations/training.ts';

/**
 * What files, batches and fine-tuning jobs look like in answers, for the reference. Fields that a provider adds pass
 * through, so no schema here is closed.
 */

const text: JsonObject = { type: 'string' };
const textOrNull: JsonObject = { type: ['string', 'null'] };
const whole: JsonObject = { type: 'integer' };
const seconds: JsonObject = { type: 'integer', description: 'Unix seconds.' };
const secondsOrNull: JsonObject = { type: ['integer', 'null'], description: 'Unix seconds.' };
const is = (value: string): JsonObject => ({ type: 'string', const: value });
const list = (items: JsonObject): JsonObject => ({ type: 'array', items });
const object = (required: JsonObject, optional: JsonObject = {}): JsonObject => ({
  type: 'object',
  properties: { ...required, ...optional },
  required: Object.keys(required),
});

export const INTEGRATIONS: JsonObject = {
  type: ['array', 'null'],
  maxItems: 5,
  items: object({
    type: is('tracker'),
    tracker: object({ project: text }, { name: textOrNull, entity: textOrNull, tags: list(text) }),
  }),
};

const FILE = object(
  {
    id: { type: 'string', description: '`gw_file_…` for files that Sluice keeps.' },
    object: is('file'),
    bytes: whole,
    created_at: seconds,
    filename: text,
    purpose: text,
    status: { enum: ['uploaded', 'processed', 'error'] },
  },
  { status_details: { type: ['string', 'null'], description: 'Why the status is `error`.' } },
);

const JOB = object(
  {
    id: { type: 'string', description: '`gw_ftjob_…` for jobs that Sluice runs.' },
    object: is('fine_tuning.job'),
    created_at: seconds,
    error: {
      ...object({ code: text, message: text, param: textOrNull }),
      type: ['object', 'null'],
      description: 'Null unless the job failed.',
    },
    fine_tuned_model: { type: ['string', 'null'], description: 'Null until the job succeeded.' },
    finished_at: secondsOrNull,
    hyperparameters: object({
      n_epochs: { anyOf: [{ const: 'auto' }, { type: 'integer', minimum: 1, maximum: 50 }] },
    }),
    model: text,
    organization_id: text,
    result_files: list(text),
    status: { enum: ['validating_files', 'queued', 'running', 'succeeded', 'failed', 'cancelled'] },
    trained_tokens: { type: ['integer', 'null'] },
    training_file: text,
    validation_file: textOrNull,
    seed: whole,
  },
  { integrations: INTEGRATIONS, estimated_finish: secondsOrNull },
);

const EVENT = object({
  id: text,
  object: is('fine_tuning.job.event'),
  created_at: seconds,
  level: { enum: ['info', 'warn', 'error'] },
  message: text,
});

const METRICS = [
  'step',
  'train_loss',
  'train_mean_token_accuracy',
  'valid_loss',
  'valid_mean_token_accuracy',
  'full_valid_loss',
  'full_valid_mean_token_accuracy',
];
const CHECKPOINT = object({
  id: text,
  object: is('fine_tuning.job.checkpoint'),
  created_at: seconds,
  fine_tuned_model_checkpoint: text,
  step_number: whole,
  metrics: object({}, Object.fromEntries(METRICS.map((name) => [name, { type: 'number' }]))),
  fine_tuning_job_id: text,
});

const BATCH_TIMES = [
  'in_progress_at',
  'expires_at',
  'finalizing_at',
  'completed_at',
  'failed_at',
  'expired_at',
  'cancelling_at',
  'cancelled_at',
];
const BATCH = object(
  {
    id: { type: 'string', description: '`gw_batch_…` for batches that Sluice runs.' },
    object: is('batch'),
    endpoint: text,
    input_file_id: text,
    completion_window: text,
    status: {
      enum: [
        'validating',
        'in_progress',
        'finalizing',
        'processing_post_request_guardrails',
        'cancelling',
        ...FINAL_BATCH,
      ],
    },
    created_at: seconds,
  },
  {
    errors: {
      ...object({
        data: list(
          object({ message: text }, { code: textOrNull, param: textOrNull, line: { type: ['integer', 'null'] } }),
        ),
      }),
      type: ['object', 'null'],
    },
    output_file_id: textOrNull,
    error_file_id: { type: ['string', 'null'], description: 'Null when no request failed.' },
    ...Object.fromEntries(BATCH_TIMES.map((name) => [name, secondsOrNull])),
    request_counts: object({ total: whole, completed: whole, failed: whole }),
    metadata: { type: ['object', 'null'], additionalProperties: text },
    model: textOrNull,
  },
);

const page = (item: JsonObject): JsonObject =>
  object({ object: is('list'), data: list(item), has_more: { type: 'boolean' } });
const pageWithEnds = (item: JsonObject): JsonObject =>
  object({
    object: is('list'),
    data: list(item),
    first_id: textOrNull,
    last_id: textOrNull,
    has_more: { type: 'boolean' },
  });

/** Of one name, so that the reference has it once (`admin/openapi-components.ts`). */
const titled = (title: string, schema: JsonObject): JsonObject => ({ title, ...schema });
const NAMED = {
  file: titled('File', FILE),
  job: titled('FineTuningJob', JOB),
  event: titled('FineTuningEvent', EVENT),
  checkpoint: titled('FineTuningCheckpoint', CHECKPOINT),
  batch: titled('Batch', BATCH),
};

/** Schema of the answer; null for operations that answer bytes. */
export const ANSWERS: Readonly<Record<OperationOf<'job'>, JsonObject | null>> = {
  files_upload: NAMED.file,
  files: page(NAMED.file),
  file: NAMED.file,
  file_delete: object({ id: text, object: is('file'), deleted: { type: 'boolean' } }),
  file_content: null,
  finetune_create: NAMED.job,
  finetune_jobs: page(NAMED.job),
  finetune_job: NAMED.job,
  finetune_cancel: NAMED.job,
  finetune_pause: NAMED.job,
  finetune_resume: NAMED.job,
  finetune_events: page(NAMED.event),
  finetune_checkpoints: pageWithEnds(NAMED.checkpoint),
  batch_create: NAMED.batch,
  batches: pageWithEnds(NAMED.batch),
  batch: NAMED.batch,
  batch_cancel: NAMED.batch,
  batch_output: null,
};

/** Errors of an operation, and those of the gateway before it knows which provider is meant. */
export const ERROR: JsonObject = {
  title: 'ObjectError',
  anyOf: [
    object({ error: object({ message: text, type: text, param: textOrNull, code: textOrNull }) }),
    object({
      status: is('failure'),
      message: text,
      error: object({ message: text }, { type: text, param: textOrNull, code: textOrNull, field: text }),
    }),
  ],
};

export const ANSWER_HEADERS: JsonObject = {
  'x-request-id': { schema: text, description: 'Id of the request, as `x-gateway-request-id` says it.' },
  'x-gateway-request-id': { schema: text, description: 'Id of the request, and of its record.' },
  'x-gateway-trace-id': {
    schema: text,
    description: 'The trace the request belongs to; its own id unless it named one.',
  },
  'x-gateway-cost': {
    schema: text,
    description:
      'Cost of the request in US dollars, an exact decimal. A trailer where the head goes out before the cost is known; left out where it is not known.',
  },
};
