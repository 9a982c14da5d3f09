import type { JsonObject, JsonValue } from '../kernel/json.ts';
import type { JobOperation, OperationOf } from '../operations/operation.ts';
import { ANSWER_HEADERS, ANSWERS, ERROR, INTEGRATIONS } from './openapi-answers.ts';

/** The reference of files, batches and fine-tuning jobs: one shape for every provider that has them. */

const text = (description?: string): JsonObject => ({
  type: 'string',
  ...(description === undefined ? {} : { description }),
});
const whole = (minimum: number, maximum = 2_147_483_647): JsonObject => ({ type: 'integer', minimum, maximum });
const object = (properties: JsonObject, required: string[] = [], more: JsonObject = {}): JsonObject => ({
  type: 'object',
  properties,
  ...(required.length === 0 ? {} : { required }),
  ...more,
});

const HYPERPARAMETERS = object(
  {
    n_epochs: whole(1),
    learning_rate_multiplier: { type: 'number', exclusiveMinimum: 0 },
    batch_size: whole(1),
    beta: { type: 'number', exclusiveMinimum: 0, description: 'Preference tuning only.' },
  },
  ['n_epochs', 'learning_rate_multiplier', 'batch_size'],
);
/** The older place, where a number may also be left to the provider. */
const OLDER_HYPERPARAMETERS = object(
  {
    n_epochs: { anyOf: [{ const: 'auto' }, whole(1)] },
    learning_rate_multiplier: { anyOf: [{ const: 'auto' }, { type: 'number', exclusiveMinimum: 0 }] },
    batch_size: { anyOf: [{ const: 'auto' }, whole(1)] },
  },
  ['n_epochs', 'learning_rate_multiplier', 'batch_size'],
  { description: 'Shorthand for a `method` of the type `supervised`.' },
);
const METADATA: JsonObject = {
  type: ['object', 'null'],
  maxProperties: 16,
  additionalProperties: { type: 'string', maxLength: 512 },
};
const GATEWAY_OPTIONS: JsonObject = {
  type: 'object',
  description: 'Headers for the calls to the provider, among them the account.',
  properties: {
    'x-gateway-virtual-key': text('Slug of a virtual key or provider.'),
    'x-gateway-provider': text('`@slug` of a stored provider, in place of the virtual key.'),
    'x-gateway-object-store-bucket': text(),
    'x-gateway-cloud-storage-bucket-name': text(),
  },
  additionalProperties: { type: 'string' },
};

const JOB = object(
  {
    model: text('Base model, or `@slug/model`.'),
    training_file: text('Id of a file of the provider, `gw_file_…`, or an object URI.'),
    validation_file: { type: ['string', 'null'] },
    suffix: text(),
    method: object(
      {
        type: { enum: ['supervised', 'dpo'] },
        supervised: object({ hyperparameters: HYPERPARAMETERS }, ['hyperparameters']),
        dpo: object({ hyperparameters: HYPERPARAMETERS }, ['hyperparameters']),
      },
      ['type'],
    ),
    hyperparameters: OLDER_HYPERPARAMETERS,
    seed: whole(0),
    integrations: INTEGRATIONS,
    metadata: METADATA,
    job_name: text(),
    role_arn: text(),
    output_file: text(),
    gateway_options: GATEWAY_OPTIONS,
    provider_options: object({ job_name: text(), role_arn: text(), output_file: text(), model: text() }),
  },
  ['model', 'training_file', 'suffix'],
  { anyOf: [{ required: ['method'] }, { required: ['hyperparameters'] }] },
);
const BATCH = object(
  {
    input_file_id: text(),
    endpoint: { enum: ['/v1/chat/completions', '/v1/completions', '/v1/embeddings', '/v1/responses'] },
    completion_window: { enum: ['immediate', '24h'] },
    metadata: METADATA,
    model: text(),
    job_name: text(),
    role_arn: text(),
    output_data_config: text(),
    gateway_options: GATEWAY_OPTIONS,
    provider_options: object({ job_name: text(), output_data_config: text(), model: text(), role_arn: text() }),
  },
  ['input_file_id', 'endpoint', 'completion_window'],
);
const UPLOAD = object(
  {
    file: { type: 'string', format: 'binary' },
    purpose: { enum: ['assistants', 'batch', 'fine-tune', 'vision'] },
  },
  ['file', 'purpose'],
);

const page = (fallback: number, maximum = 100): JsonObject => ({
  after: text('Id of the last item of the page before.'),
  limit: { ...whole(1, maximum), default: fallback },
});

/** What a request says beyond its path and the headers of all. */
interface Asked {
  readonly body?: readonly [media: string, schema: JsonObject];
  readonly query?: JsonObject;
  readonly headers?: readonly string[];
}

const PATH_ONLY: Asked = {};
const CREATES = ['x-gateway-dry-run', 'x-gateway-object-store-bucket', 'x-gateway-cloud-storage-bucket-name'];

const ASKED: Readonly<Record<OperationOf<'job'>, Asked>> = {
  files_upload: {
    body: ['multipart/form-data', UPLOAD],
    headers: [
      'x-gateway-file-purpose',
      'x-gateway-file-upload-size',
      'x-gateway-provider-file-name',
      'x-gateway-provider-model',
      'x-gateway-object-store-bucket',
      'x-gateway-aws-s3-object-key',
      'x-gateway-cloud-storage-bucket-name',
      'x-gateway-amz-server-side-encryption',
      'x-gateway-amz-server-side-encryption-aws-kms-key-id',
    ],
  },
  files: { query: { purpose: text(), after: text(), limit: whole(1, 10_000), order: { enum: ['asc', 'desc'] } } },
  file: PATH_ONLY,
  file_delete: PATH_ONLY,
  file_content: PATH_ONLY,
  batch_create: { body: ['application/json', BATCH], headers: CREATES },
  batches: { query: page(20) },
  batch: { query: { include_provider_details: { type: 'boolean', default: false } } },
  batch_cancel: PATH_ONLY,
  batch_output: PATH_ONLY,
  finetune_create: { body: ['application/json', JOB], headers: CREATES },
  finetune_jobs: { query: page(20) },
  finetune_job: PATH_ONLY,
  finetune_cancel: PATH_ONLY,
  finetune_pause: PATH_ONLY,
  finetune_resume: PATH_ONLY,
  finetune_events: { query: page(20, 1000) },
  finetune_checkpoints: { query: page(10) },
};
const ROUTING = [
  'x-gateway-provider',
  'x-gateway-virtual-key',
  'x-gateway-config',
  'x-gateway-custom-host',
  'x-gateway-trace-id',
  'x-gateway-metadata',
  'x-gateway-request-timeout',
];

function tagOf(operation: JobOperation): string {
  if (operation.path.startsWith('/files')) return 'Files';
  return operation.path.startsWith('/batches') ? 'Batches' : 'Fine-tuning';
}

/** Of operations that a signed-in user may ask for, too. */
export const SIGN_IN_SECURITY: JsonValue[] = [{ apiKey: [] }, { session: [] }, { signInToken: [] }];

export const WORKSPACE_PARAMETER: JsonObject = {
  name: 'x-gateway-workspace',
  in: 'header',
  required: false,
  schema: { type: 'string' },
  description:
    'Id or slug of the workspace of a signed-in user; `workspace_id` in the query says the same. A user with one workspace needs neither. API keys and tokens that you sign have theirs.',
};

/** One operation on files, batches or jobs for the OpenAPI document. */
export function describeObjects(operation: JobOperation): JsonObject {
  const names = [...operation.path.matchAll(/:(\w+)/g)].map((match) => match[1] ?? '');
  const { body, query = {}, headers = [] } = ASKED[operation.id];
  const answer = ANSWERS[operation.id];
  const parameters: JsonValue[] = [
    ...names.map((name) => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
    ...Object.entries(query).map(([name, schema]) => ({
      name,
      in: 'query',
      required: false,
      schema: schema ?? {},
    })),
    ...[...ROUTING, ...headers].map((name) => ({
      name,
      in: 'header',
      required: false,
      schema: name === 'x-gateway-dry-run' ? { enum: ['true', 'false'] } : { type: 'string' },
    })),
    WORKSPACE_PARAMETER,
  ];
  return {
    operationId: `objects.${operation.id}`,
    tags: [tagOf(operation)],
    summary: operation.title,
    description:
      'At the provider the request names, or, with `x-gateway-provider: gateway` and for ids that start with `gw_`, at Sluice itself.',
    security: SIGN_IN_SECURITY,
    parameters,
    ...(body === undefined ? {} : { requestBody: { required: true, content: { [body[0]]: { schema: body[1] } } } }),
    responses: {
      '200': {
        description: answer === null ? 'The bytes, as they come.' : 'The object or list.',
        headers: ANSWER_HEADERS,
        content: answer === null ? { 'application/octet-stream': {} } : { 'application/json': { schema: answer } },
      },
      default: {
        description: 'An error.',
        headers: ANSWER_HEADERS,
        content: { 'application/json': { schema: ERROR } },
      },
    },
  };
}
