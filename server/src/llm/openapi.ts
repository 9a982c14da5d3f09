import type { JsonObject } from '../kernel/json.ts';
import { OPERATIONS, type Operation } from '../operations/operation.ts';
import { describeObjects } from './openapi-objects.ts';

const TITLES: Readonly<Record<string, string>> = {
  chat: 'Create a chat completion',
  completions: 'Create a completion',
  embeddings: 'Create embeddings',
  messages: 'Create a message (Anthropic shape)',
  count_tokens: 'Count the tokens of a message (Anthropic shape)',
  responses: 'Create a response (Responses shape)',
  response: 'Retrieve a response',
  response_delete: 'Delete a response',
  response_items: 'List the input items of a response',
  moderations: 'Classify text',
  images_generate: 'Generate images',
  images_edit: 'Edit an image',
  images_vary: 'Vary an image',
  speech: 'Create speech',
  transcribe: 'Transcribe audio',
  translate: 'Translate audio',
  rerank: 'Rerank documents',
  models: 'List models',
  model: 'Retrieve a model',
  model_delete: 'Delete a fine-tuned model',
  files_upload: 'Upload a file',
  files: 'List files',
  file: 'Retrieve a file',
  file_delete: 'Delete a file',
  file_content: 'Read the content of a file',
  batch_create: 'Create a batch',
  batches: 'List batches',
  batch: 'Retrieve a batch',
  batch_cancel: 'Cancel a batch',
  batch_output: 'Read the results of a batch',
  finetune_create: 'Create a fine-tuning job',
  finetune_jobs: 'List fine-tuning jobs',
  finetune_job: 'Retrieve a fine-tuning job',
  finetune_cancel: 'Cancel a fine-tuning job',
  finetune_pause: 'Pause a fine-tuning job, where the provider can',
  finetune_resume: 'Resume a fine-tuning job, where the provider can',
  finetune_events: 'List the events of a fine-tuning job',
  finetune_checkpoints: 'List the checkpoints of a fine-tuning job',
};

/** The data plane's part of the OpenAPI document: bodies are the provider's own and stay open. */
export function dataPlanePaths(): JsonObject {
  const out: JsonObject = {};
  for (const operation of Object.values(OPERATIONS)) {
    if (operation.id === 'proxy') continue;
    const path = `/v1${operation.path.replace(/:(\w+)/g, '{$1}')}`;
    const existing = out[path];
    out[path] = {
      ...(typeof existing === 'object' && existing !== null ? existing : {}),
      [operation.method.toLowerCase()]:
        operation.family === 'J'
          ? describeObjects(operation, TITLES[operation.id] ?? operation.id)
          : describe(operation),
    };
  }
  return out;
}

const DRY_RUN: JsonObject = {
  schema: { enum: ['true', 'false'] },
  description:
    'With `true` nothing is called or charged: the answer is the object of `GET /logs/{logId}/decision`, with the request that would be sent.',
};

function describe(operation: Operation): JsonObject {
  const names = [...operation.path.matchAll(/:(\w+)/g)].map((match) => match[1] ?? '');
  const headers = [
    'x-gateway-provider',
    'x-gateway-virtual-key',
    'x-gateway-config',
    'x-gateway-custom-host',
    'x-gateway-trace-id',
    'x-gateway-metadata',
    'x-gateway-forward-headers',
    'x-gateway-request-timeout',
    'x-gateway-strict-open-ai-compliance',
    'x-gateway-dry-run',
  ];
  const media = operation.body === 'multipart' ? 'multipart/form-data' : 'application/json';
  const schema =
    operation.body === 'multipart'
      ? { type: 'object' }
      : {
          type: 'object',
          properties: { model: { type: 'string' }, ...(operation.streams ? { stream: { type: 'boolean' } } : {}) },
        };
  return {
    operationId: `inference.${operation.id}`,
    tags: ['Inference'],
    summary: TITLES[operation.id] ?? operation.id,
    description: 'The body and the answer are those of the provider; unknown fields pass through.',
    security: [{ apiKey: [] }],
    parameters: [
      ...names.map((name) => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
      ...headers.map((name) => ({
        name,
        in: 'header',
        required: false,
        ...(name === 'x-gateway-dry-run' ? DRY_RUN : { schema: { type: 'string' } }),
      })),
    ],
    ...(operation.body === 'none' ? {} : { requestBody: { required: true, content: { [media]: { schema } } } }),
    responses: {
      '200': { description: 'The answer of the provider, streamed when `stream` is true.' },
      default: { description: 'An error in the shape of the route.' },
    },
  };
}
