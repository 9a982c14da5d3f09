import { isObject, type JsonObject } from '../../kernel/json.ts';
import type { ConvertTarget } from '../../operations/convert/conversion.ts';
import { asArray, asObject } from '../../operations/convert/fields.ts';
import { type ProviderError, readProviderError } from '../../operations/dialects/provider-error.ts';
import { tokenCount } from '../../operations/usage.ts';
import { compatible } from '../openai-compatible.ts';
import { segment } from '../path.ts';
import type { Binding, CallContext } from '../provider.ts';
import { rankedRows, rerankAsk } from '../rerank.ts';
import { chatCompletion } from './chat-answer.ts';
import { cohereChat } from './chat-request.ts';
import { CohereToChatStream } from './chat-stream.ts';
import { embeddings } from './embeddings.ts';
import { cohereUsage } from './usage.ts';

/** Callers of Messages and Responses are served over this. */
const TARGET: ConvertTarget = {
  extensions: new Set(['thinking', 'top_k']),
  reasoning: { field: 'reasoning_content', history: true },
};

const chat: Binding = {
  shape: 'chat',
  path: () => '/v2/chat',
  ownQuery: true,
  request: (body, context) => cohereChat(body, context.model),
  response: (body, context) =>
    chatCompletion(body, {
      id: `cohere_${context.now()}`,
      model: context.model,
      created: Math.floor(context.now() / 1000),
      strict: context.strict,
    }),
  stream: (context) => new CohereToChatStream(context),
  usage: cohereUsage,
  usagePath: ['delta', 'usage'],
  target: TARGET,
};

function rerankRequest(body: JsonObject, { model }: CallContext): JsonObject {
  const { query, documents, topN } = rerankAsk(body, ['max_tokens_per_doc', 'priority']);
  const { max_tokens_per_doc: most, priority } = body;
  return {
    model,
    query,
    documents: [...documents],
    ...(topN === null ? null : { top_n: topN }),
    ...(most === undefined || most === null ? null : { max_tokens_per_doc: most }),
    ...(priority === undefined || priority === null ? null : { priority }),
  };
}

function rerankAnswer(body: JsonObject, { body: asked, model }: CallContext): JsonObject {
  const units = tokenCount(asObject(asObject(body.meta).billed_units).search_units);
  return {
    object: 'list',
    ...body,
    results: rankedRows(body.results, asked),
    model,
    ...(units === null ? null : { usage: { search_units: units } }),
  };
}

/** Largest page of the list of models, which are twenty to a page otherwise: it then has them all. */
const ALL = 1000;

/** The vendor's own list names models by `name`. */
function modelEntry(model: JsonObject): JsonObject {
  return { ...model, id: model.name ?? '', object: 'model', created: 0, owned_by: 'cohere' };
}

function modelList(body: JsonObject): JsonObject {
  const { models, ...rest } = body;
  return { object: 'list', data: asArray(models).map((row) => (isObject(row) ? modelEntry(row) : row)), ...rest };
}

/** `{message, id}`. 498 stands for a token that is not known, and for an input that was blocked. */
function cohereError(status: number, body: JsonObject | string): ProviderError {
  const found = readProviderError(status, body);
  if (status !== 498) return found;
  return /block/i.test(found.message)
    ? { ...found, status: 400, type: 'invalid_request_error', code: 'content_filter' }
    : { ...found, status: 401 };
}

/** Cohere's own v2 API; sound over the compatible layer on the same host. */
export const cohere = compatible({
  id: 'cohere',
  title: 'Cohere',
  baseUrl: 'https://api.cohere.com',
  statelessPaths: [
    'GET v1/models',
    'GET v1/models/*',
    'POST v1/tokenize',
    'POST v1/detokenize',
    'POST v1/embed',
    'POST v1/rerank',
    'POST v1/classify',
    'POST v2/chat',
    'POST v2/embed',
    'POST v2/rerank',
    'POST compatibility/v1/chat/completions',
    'POST compatibility/v1/embeddings',
    'POST compatibility/v1/audio/transcriptions',
  ],
  chat: false,
  headers(headers, context) {
    const client = context.header('x-client-name');
    if (client !== undefined && client !== '') headers.push('x-client-name', client);
  },
  bindings: {
    chat,
    embeddings,
    transcribe: { path: () => '/compatibility/v1/audio/transcriptions' },
    rerank: { path: () => '/v2/rerank', ownQuery: true, request: rerankRequest, response: rerankAnswer },
    models: { path: () => `/v1/models?page_size=${ALL}`, ownQuery: true, response: modelList },
    model: {
      ownQuery: true,
      path: (context) => `/v1/models/${segment(context.pathParams.model ?? '')}`,
      response: modelEntry,
    },
  },
  error: cohereError,
});
