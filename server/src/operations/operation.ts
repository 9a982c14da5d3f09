/** What can be asked of a provider. The id is what configs, limits, guardrails and records call it. */

/**
 * C chat-like, T text, B binary or form, F small reads (models, stored responses), J files, batches and fine-tuning jobs
 * (run by `training/`), P anything passed through.
 */
export type Family = 'C' | 'T' | 'B' | 'F' | 'J' | 'P';

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
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE' | 'ANY';
  /** Route under `/v1`, fastify syntax. */
  readonly path: string;
  /**
   * `json`: `model` and `stream` are found in the bytes. `multipart`: `model` is a form field. `none`: no body.
   * `optional`: JSON or nothing. `stream`: never buffered, read by the step that stores or forwards it.
   */
  readonly body: 'json' | 'multipart' | 'none' | 'optional' | 'stream' | 'any';
  readonly streams: boolean;
  /** Name in conditions, guardrails and logs. */
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
  | 'files_upload'
  | 'files'
  | 'file'
  | 'file_delete'
  | 'file_content'
  | 'batch_create'
  | 'batches'
  | 'batch'
  | 'batch_cancel'
  | 'batch_output'
  | 'finetune_create'
  | 'finetune_jobs'
  | 'finetune_job'
  | 'finetune_cancel'
  | 'finetune_pause'
  | 'finetune_resume'
  | 'finetune_events'
  | 'finetune_checkpoints'
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
  files_upload: op({
    id: 'files_upload',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'POST',
    path: '/files',
    body: 'stream',
    streams: false,
    requestType: 'uploadFile',
  }),
  files: op({
    id: 'files',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'GET',
    path: '/files',
    body: 'none',
    streams: false,
    requestType: 'listFiles',
  }),
  file: op({
    id: 'file',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'GET',
    path: '/files/:file_id',
    body: 'none',
    streams: false,
    requestType: 'retrieveFile',
  }),
  file_delete: op({
    id: 'file_delete',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'DELETE',
    path: '/files/:file_id',
    body: 'none',
    streams: false,
    requestType: 'deleteFile',
  }),
  file_content: op({
    id: 'file_content',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'GET',
    path: '/files/:file_id/content',
    body: 'none',
    streams: false,
    requestType: 'retrieveFileContent',
  }),
  batch_create: op({
    id: 'batch_create',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'POST',
    path: '/batches',
    body: 'json',
    streams: false,
    requestType: 'createBatch',
  }),
  batches: op({
    id: 'batches',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'GET',
    path: '/batches',
    body: 'none',
    streams: false,
    requestType: 'listBatches',
  }),
  batch: op({
    id: 'batch',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'GET',
    path: '/batches/:batch_id',
    body: 'none',
    streams: false,
    requestType: 'retrieveBatch',
  }),
  batch_cancel: op({
    id: 'batch_cancel',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'POST',
    path: '/batches/:batch_id/cancel',
    body: 'optional',
    streams: false,
    requestType: 'cancelBatch',
  }),
  batch_output: op({
    id: 'batch_output',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'GET',
    path: '/batches/:batch_id/output',
    body: 'none',
    streams: false,
    requestType: 'getBatchOutput',
  }),
  finetune_create: op({
    id: 'finetune_create',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'POST',
    path: '/fine_tuning/jobs',
    body: 'json',
    streams: false,
    requestType: 'createFinetune',
  }),
  finetune_jobs: op({
    id: 'finetune_jobs',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'GET',
    path: '/fine_tuning/jobs',
    body: 'none',
    streams: false,
    requestType: 'listFinetunes',
  }),
  finetune_job: op({
    id: 'finetune_job',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'GET',
    path: '/fine_tuning/jobs/:fine_tuning_job_id',
    body: 'none',
    streams: false,
    requestType: 'retrieveFinetune',
  }),
  finetune_cancel: op({
    id: 'finetune_cancel',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'POST',
    path: '/fine_tuning/jobs/:fine_tuning_job_id/cancel',
    body: 'optional',
    streams: false,
    requestType: 'cancelFinetune',
  }),
  finetune_pause: op({
    id: 'finetune_pause',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'POST',
    path: '/fine_tuning/jobs/:fine_tuning_job_id/pause',
    body: 'optional',
    streams: false,
    requestType: 'pauseFinetune',
  }),
  finetune_resume: op({
    id: 'finetune_resume',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'POST',
    path: '/fine_tuning/jobs/:fine_tuning_job_id/resume',
    body: 'optional',
    streams: false,
    requestType: 'resumeFinetune',
  }),
  finetune_events: op({
    id: 'finetune_events',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'GET',
    path: '/fine_tuning/jobs/:fine_tuning_job_id/events',
    body: 'none',
    streams: false,
    requestType: 'listFinetuneEvents',
  }),
  finetune_checkpoints: op({
    id: 'finetune_checkpoints',
    family: 'J',
    shape: 'raw',
    dialect: 'openai',
    method: 'GET',
    path: '/fine_tuning/jobs/:fine_tuning_job_id/checkpoints',
    body: 'none',
    streams: false,
    requestType: 'listFinetuneCheckpoints',
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
