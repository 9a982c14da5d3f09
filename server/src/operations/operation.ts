/** What can be asked of a provider. The id is what configs, limits, guardrails and records call it. */

/** C chat-like, T text, B binary or form, F files and jobs, P anything passed through. */
export type Family = 'C' | 'T' | 'B' | 'F' | 'P';

/**
 * The wire shape of a body and its answer. Two equal shapes mean bytes pass through; different ones meet in
 * `operations/convert`.
 */
export type Shape =
  | 'chat'
  | 'completions'
  | 'embeddings'
  | 'messages'
  | 'responses'
  | 'moderations'
  | 'images'
  | 'speech'
  | 'transcription'
  | 'rerank'
  | 'models'
  | 'count_tokens'
  | 'raw';

/** Whose error bodies and stream framing the caller expects. */
export type Dialect = 'openai' | 'anthropic' | 'responses';

export interface Operation {
  readonly id: OperationId;
  readonly family: Family;
  readonly shape: Shape;
  readonly dialect: Dialect;
  readonly method: 'GET' | 'POST' | 'DELETE' | 'ANY';
  /** Route under `/v1`, fastify syntax. */
  readonly path: string;
  /** `json`: `model` and `stream` are found in the bytes. `multipart`: `model` is a form field. `none`: no body. */
  readonly body: 'json' | 'multipart' | 'none' | 'any';
  readonly streams: boolean;
  /** Name in conditions, guardrails and logs (api §7.6). */
  readonly requestType: string;
}

export type OperationId =
  | 'chat'
  | 'completions'
  | 'embeddings'
  | 'messages'
  | 'count_tokens'
  | 'responses'
  | 'response'
  | 'response_delete'
  | 'response_items'
  | 'moderations'
  | 'images_generate'
  | 'images_edit'
  | 'images_vary'
  | 'speech'
  | 'transcribe'
  | 'translate'
  | 'rerank'
  | 'models'
  | 'model'
  | 'model_delete'
  | 'proxy';

const op = (operation: Operation): Operation => operation;

export const OPERATIONS: Readonly<Record<OperationId, Operation>> = {
  chat: op({
    id: 'chat',
    family: 'C',
    shape: 'chat',
    dialect: 'openai',
    method: 'POST',
    path: '/chat/completions',
    body: 'json',
    streams: true,
    requestType: 'chatComplete',
  }),
  completions: op({
    id: 'completions',
    family: 'T',
    shape: 'completions',
    dialect: 'openai',
    method: 'POST',
    path: '/completions',
    body: 'json',
    streams: true,
    requestType: 'complete',
  }),
  embeddings: op({
    id: 'embeddings',
    family: 'T',
    shape: 'embeddings',
    dialect: 'openai',
    method: 'POST',
    path: '/embeddings',
    body: 'json',
    streams: false,
    requestType: 'embed',
  }),
  messages: op({
    id: 'messages',
    family: 'C',
    shape: 'messages',
    dialect: 'anthropic',
    method: 'POST',
    path: '/messages',
    body: 'json',
    streams: true,
    requestType: 'messages',
  }),
  count_tokens: op({
    id: 'count_tokens',
    family: 'C',
    shape: 'count_tokens',
    dialect: 'anthropic',
    method: 'POST',
    path: '/messages/count_tokens',
    body: 'json',
    streams: false,
    requestType: 'messages',
  }),
  responses: op({
    id: 'responses',
    family: 'C',
    shape: 'responses',
    dialect: 'responses',
    method: 'POST',
    path: '/responses',
    body: 'json',
    streams: true,
    requestType: 'createModelResponse',
  }),
  response: op({
    id: 'response',
    family: 'F',
    shape: 'raw',
    dialect: 'openai',
    method: 'GET',
    path: '/responses/:id',
    body: 'none',
    streams: true,
    requestType: 'getModelResponse',
  }),
  response_delete: op({
    id: 'response_delete',
    family: 'F',
    shape: 'raw',
    dialect: 'openai',
    method: 'DELETE',
    path: '/responses/:id',
    body: 'none',
    streams: false,
    requestType: 'deleteModelResponse',
  }),
  response_items: op({
    id: 'response_items',
    family: 'F',
    shape: 'raw',
    dialect: 'openai',
    method: 'GET',
    path: '/responses/:id/input_items',
    body: 'none',
    streams: false,
    requestType: 'listResponseInputItems',
  }),
  moderations: op({
    id: 'moderations',
    family: 'T',
    shape: 'moderations',
    dialect: 'openai',
    method: 'POST',
    path: '/moderations',
    body: 'json',
    streams: false,
    requestType: 'moderate',
  }),
  images_generate: op({
    id: 'images_generate',
    family: 'B',
    shape: 'images',
    dialect: 'openai',
    method: 'POST',
    path: '/images/generations',
    body: 'json',
    streams: true,
    requestType: 'imageGenerate',
  }),
  images_edit: op({
    id: 'images_edit',
    family: 'B',
    shape: 'images',
    dialect: 'openai',
    method: 'POST',
    path: '/images/edits',
    body: 'multipart',
    streams: true,
    requestType: 'imageGenerate',
  }),
  images_vary: op({
    id: 'images_vary',
    family: 'B',
    shape: 'images',
    dialect: 'openai',
    method: 'POST',
    path: '/images/variations',
    body: 'multipart',
    streams: false,
    requestType: 'imageGenerate',
  }),
  speech: op({
    id: 'speech',
    family: 'B',
    shape: 'speech',
    dialect: 'openai',
    method: 'POST',
    path: '/audio/speech',
    body: 'json',
    streams: true,
    requestType: 'createSpeech',
  }),
  transcribe: op({
    id: 'transcribe',
    family: 'B',
    shape: 'transcription',
    dialect: 'openai',
    method: 'POST',
    path: '/audio/transcriptions',
    body: 'multipart',
    streams: true,
    requestType: 'createTranscription',
  }),
  translate: op({
    id: 'translate',
    family: 'B',
    shape: 'transcription',
    dialect: 'openai',
    method: 'POST',
    path: '/audio/translations',
    body: 'multipart',
    streams: false,
    requestType: 'createTranslation',
  }),
  rerank: op({
    id: 'rerank',
    family: 'T',
    shape: 'rerank',
    dialect: 'openai',
    method: 'POST',
    path: '/rerank',
    body: 'json',
    streams: false,
    requestType: 'rerank',
  }),
  models: op({
    id: 'models',
    family: 'F',
    shape: 'models',
    dialect: 'openai',
    method: 'GET',
    path: '/models',
    body: 'none',
    streams: false,
    requestType: 'models',
  }),
  model: op({
    id: 'model',
    family: 'F',
    shape: 'raw',
    dialect: 'openai',
    method: 'GET',
    path: '/models/:model',
    body: 'none',
    streams: false,
    requestType: 'models',
  }),
  model_delete: op({
    id: 'model_delete',
    family: 'F',
    shape: 'raw',
    dialect: 'openai',
    method: 'DELETE',
    path: '/models/:model',
    body: 'none',
    streams: false,
    requestType: 'models',
  }),
  proxy: op({
    id: 'proxy',
    family: 'P',
    shape: 'raw',
    dialect: 'openai',
    method: 'ANY',
    path: '/*',
    body: 'any',
    streams: true,
    requestType: 'proxy',
  }),
};
