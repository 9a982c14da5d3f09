import type { JsonObject } from '../kernel/json.ts';
import { isJob, OPERATIONS, type Operation } from '../operations/operation.ts';
import { describeObjects, SIGN_IN_SECURITY, WORKSPACE_PARAMETER } from './openapi-objects.ts';

/** The data plane's part of the OpenAPI document: bodies are the provider's own and stay open. */
export function dataPlanePaths(): JsonObject {
  const out: JsonObject = {};
  for (const operation of Object.values(OPERATIONS)) {
    if (operation.family === 'proxy') continue;
    const path = `/v1${operation.path.replace(/:(\w+)/g, '{$1}')}`;
    const existing = out[path];
    out[path] = {
      ...(typeof existing === 'object' && existing !== null ? existing : {}),
      [operation.method.toLowerCase()]: isJob(operation) ? describeObjects(operation) : describe(operation),
    };
  }
  return out;
}

const DRY_RUN: JsonObject = {
  // What the page of the reference proposes.
  schema: { enum: ['true', 'false'] },
  example: 'false',
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
  const examples = operation.sample === null ? {} : { examples: { first: { value: operation.sample as JsonObject } } };
  return {
    operationId: `inference.${operation.id}`,
    tags: ['Inference'],
    summary: operation.title,
    description: 'The body and the answer are those of the provider; unknown fields pass through.',
    security: operation.signIn ? SIGN_IN_SECURITY : [{ apiKey: [] }],
    parameters: [
      ...names.map((name) => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
      ...headers.map((name) => ({
        name,
        in: 'header',
        required: false,
        ...(name === 'x-gateway-dry-run' ? DRY_RUN : { schema: { type: 'string' } }),
      })),
      ...(operation.signIn ? [WORKSPACE_PARAMETER] : []),
    ],
    ...(operation.body === 'none'
      ? {}
      : { requestBody: { required: true, content: { [media]: { schema, ...examples } } } }),
    responses: {
      '200': { description: 'The answer of the provider, streamed when `stream` is true.' },
      default: { description: 'An error in the shape of the route.' },
    },
  };
}
