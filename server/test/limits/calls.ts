/** How each operation is asked for in the matrix of limits, and what its upstream answers. */
import type { ServerResponse } from 'node:http';
import { OPERATIONS, type Operation, type OperationId } from '../../src/operations/operation.ts';
import { type Received, sendEvents, sendJson } from '../support/upstream.ts';

export const BASES = ['openai', 'anthropic', 'cohere'] as const;
export type Base = (typeof BASES)[number];

interface Call {
  /** Who has the operation; `openai` unless told. */
  readonly base?: Base;
  /** Why it costs nothing against any limit; absent: it counts. */
  readonly free?: string;
  /** Why no usage limit concerns it: whoever has used one up must still be able to do it. */
  readonly ends?: string;
  /** Fields of the JSON body, or of the form. */
  readonly fields?: Readonly<Record<string, unknown>>;
  /** Fields that make it a stream. */
  readonly streamed?: Readonly<Record<string, unknown>>;
  /** Methods, for what takes any. */
  readonly methods?: readonly string[];
  readonly path?: string;
}

const READ = 'only reads';
const STOP = 'stops work';
const REMOVE = 'removes';
const messages = [{ role: 'user', content: 'Hello' }];
const talk = { model: 'gpt-4o', messages, max_tokens: 5 };
const stream = { stream: true };

/** An operation without a line here fails to compile, and its test. */
export const CALLS: Readonly<Record<OperationId, Call>> = {
  chat: { fields: talk, streamed: { ...stream, stream_options: { include_usage: true } } },
  completions: { fields: { model: 'gpt-3.5-turbo-instruct', prompt: 'Hello' }, streamed: stream },
  embeddings: { fields: { model: 'text-embedding-3-small', input: 'Hello' } },
  messages: { fields: talk, streamed: stream },
  count_tokens: { base: 'anthropic', fields: { model: 'claude-sonnet-4-5', messages } },
  responses: { fields: { model: 'gpt-4o', input: 'Hello' }, streamed: stream },
  response: { free: READ, path: '/responses/resp_1' },
  response_delete: { ends: REMOVE, path: '/responses/resp_1' },
  response_items: { free: READ, path: '/responses/resp_1/input_items' },
  moderations: { fields: { model: 'omni-moderation-latest', input: 'Hello' } },
  images_generate: { fields: { model: 'gpt-image-1', prompt: 'A cat' }, streamed: stream },
  images_edit: { fields: { model: 'gpt-image-1', prompt: 'A cat', image: someFile() }, streamed: { stream: 'true' } },
  images_vary: { fields: { model: 'dall-e-2', image: someFile() } },
  speech: {
    fields: { model: 'gpt-4o-mini-tts', input: 'Hello', voice: 'alloy' },
    streamed: { stream_format: 'sse' },
  },
  transcribe: { fields: { model: 'gpt-4o-transcribe', file: someFile() }, streamed: { stream: 'true' } },
  translate: { fields: { model: 'whisper-1', file: someFile() } },
  rerank: { base: 'cohere', fields: { model: 'rerank-v3.5', query: 'Hello', documents: ['Hello'] } },
  models: { free: READ },
  model: { free: READ, path: '/models/gpt-4o' },
  model_delete: { ends: REMOVE, path: '/models/ft-gpt-4o' },
  files_upload: { fields: { purpose: 'batch', file: someFile() } },
  files: { free: READ },
  file: { free: READ, path: '/files/file-1' },
  file_content: { free: READ, path: '/files/file-1/content' },
  batch_create: {
    fields: { input_file_id: 'file-1', endpoint: '/v1/chat/completions', completion_window: '24h' },
  },
  batches: { free: READ },
  batch: { free: READ, path: '/batches/batch_1' },
  batch_cancel: { ends: STOP, path: '/batches/batch_1/cancel' },
  batch_output: { free: READ, path: '/batches/batch_1/output' },
  finetune_create: {
    fields: {
      model: 'gpt-4o-mini-2024-07-18',
      training_file: 'file-1',
      suffix: 'mine',
      method: {
        type: 'supervised',
        supervised: { hyperparameters: { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 1 } },
      },
    },
  },
  finetune_jobs: { free: READ },
  finetune_job: { free: READ, path: '/fine_tuning/jobs/ftjob-1' },
  finetune_events: { free: READ, path: '/fine_tuning/jobs/ftjob-1/events' },
  finetune_checkpoints: { free: READ, path: '/fine_tuning/jobs/ftjob-1/checkpoints' },
  finetune_pause: { ends: STOP, path: '/fine_tuning/jobs/ftjob-1/pause' },
  finetune_resume: { path: '/fine_tuning/jobs/ftjob-1/resume' },
  finetune_cancel: { ends: STOP, path: '/fine_tuning/jobs/ftjob-1/cancel' },
  file_delete: { ends: REMOVE, path: '/files/file-1' },
  proxy: {
    path: '/vector_stores/vs_1',
    methods: ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'],
    fields: { model: 'gpt-4o', name: 'Store' },
    streamed: stream,
  },
};

function someFile(): Blob {
  return new Blob(['{"custom_id":"1"}\n']);
}

/** One line of the matrix. */
export interface Line {
  readonly title: string;
  readonly operation: Operation;
  readonly method: string;
  readonly path: string;
  readonly base: Base;
  readonly free: string | null;
  readonly ends: string | null;
  readonly fields: Readonly<Record<string, unknown>> | null;
}

/** Every operation as a whole answer and, where it can, as a stream; pass-through by every method. */
export const LINES: readonly Line[] = Object.entries(CALLS).flatMap(([id, call]) => {
  const operation = OPERATIONS[id as OperationId];
  const line = (title: string, method: string, fields: Line['fields']): Line => ({
    title,
    operation,
    method,
    path: call.path ?? operation.path,
    base: call.base ?? 'openai',
    free: call.free ?? (method === 'GET' ? READ : null),
    ends: call.ends ?? (method === 'DELETE' ? REMOVE : null),
    fields: method === 'GET' ? null : fields,
  });
  const { fields = null, streamed } = call;
  if (operation.method !== 'ANY') {
    const whole = line(id, operation.method, fields);
    return streamed === undefined
      ? [whole]
      : [whole, line(`${id}, streamed`, operation.method, { ...fields, ...streamed })];
  }
  return [
    ...(call.methods ?? []).map((method) => line(`${id} ${method}`, method, fields)),
    line(`${id} POST, streamed`, 'POST', { ...fields, ...streamed }),
    { ...line(`${id} POST, cancels`, 'POST', null), path: '/vector_stores/vs_1/batches/b_1/cancel', ends: STOP },
  ];
});

const TOKENS = { input_tokens: 5, output_tokens: 2, total_tokens: 7 };
const CHAT_TOKENS = { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 };
const event = (data: unknown, name?: string) =>
  `${name === undefined ? '' : `event: ${name}\n`}data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`;
const typed = (data: { readonly type: string; readonly [name: string]: unknown }) => event(data, data.type);

const RESPONSE = {
  id: 'resp_1',
  object: 'response',
  created_at: 1,
  status: 'completed',
  model: 'gpt-4o',
  output: [],
  usage: TOKENS,
};
const JOB = {
  id: 'ftjob-1',
  object: 'fine_tuning.job',
  created_at: 1,
  finished_at: null,
  fine_tuned_model: null,
  model: 'gpt-4o-mini-2024-07-18',
  organization_id: 'org',
  result_files: [],
  status: 'running',
  trained_tokens: null,
  training_file: 'file-1',
  validation_file: null,
  seed: 1,
  hyperparameters: {},
  error: null,
};
const BATCH = {
  id: 'batch_1',
  object: 'batch',
  endpoint: '/v1/chat/completions',
  input_file_id: 'file-1',
  completion_window: '24h',
  status: 'completed',
  output_file_id: 'file-1',
  error_file_id: null,
  created_at: 1,
  request_counts: { total: 1, completed: 1, failed: 0 },
  metadata: null,
};
const UPLOADED = {
  id: 'file-1',
  object: 'file',
  bytes: 18,
  created_at: 1,
  filename: 'lines.jsonl',
  purpose: 'batch',
  status: 'processed',
};
const LIST = { object: 'list', data: [], has_more: false };
const chunk = (more: object) =>
  event({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'gpt-4o', ...more });
const text = (more: object) => event({ id: 'c', object: 'text_completion', created: 1, model: 'gpt-4o', ...more });

/** By path: a whole answer, and one for whoever asks for a stream. Usage is told wherever the published API tells it. */
const ANSWERS: readonly (readonly [path: RegExp, whole: unknown, events?: readonly string[]])[] = [
  [
    /\/chat\/completions$/,
    {
      id: 'c',
      object: 'chat.completion',
      created: 1,
      model: 'gpt-4o',
      choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
      usage: CHAT_TOKENS,
    },
    [
      chunk({ choices: [{ index: 0, delta: { role: 'assistant', content: 'Hi' }, finish_reason: null }] }),
      chunk({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }),
      chunk({ choices: [], usage: CHAT_TOKENS }),
      event('[DONE]'),
    ],
  ],
  [
    /\/completions$/,
    {
      id: 'c',
      object: 'text_completion',
      created: 1,
      model: 'gpt-3.5-turbo-instruct',
      choices: [{ index: 0, text: 'Hi', finish_reason: 'stop' }],
      usage: CHAT_TOKENS,
    },
    [
      text({ choices: [{ index: 0, text: 'Hi', finish_reason: 'stop' }] }),
      text({ choices: [], usage: CHAT_TOKENS }),
      event('[DONE]'),
    ],
  ],
  [
    /\/embeddings$/,
    {
      object: 'list',
      data: [{ object: 'embedding', index: 0, embedding: [0.1] }],
      model: 'text-embedding-3-small',
      usage: { prompt_tokens: 7, total_tokens: 7 },
    },
  ],
  [/\/messages\/count_tokens$/, { input_tokens: 5 }],
  [/\/input_items$/, LIST],
  [
    /\/responses(\/|$)/,
    RESPONSE,
    [
      typed({ type: 'response.created', response: { ...RESPONSE, status: 'in_progress', usage: null } }),
      typed({ type: 'response.completed', response: RESPONSE }),
    ],
  ],
  [
    /\/moderations$/,
    { id: 'm', model: 'omni-moderation', results: [{ flagged: false, categories: {}, category_scores: {} }] },
  ],
  [
    /\/images\//,
    {
      created: 1,
      data: [{ b64_json: 'aGk=' }],
      usage: { ...TOKENS, input_tokens_details: { text_tokens: 5, image_tokens: 0 } },
    },
    [typed({ type: 'image_generation.completed', b64_json: 'aGk=', usage: TOKENS })],
  ],
  [
    /\/audio\/speech$/,
    Buffer.from([1, 2, 3]),
    [typed({ type: 'speech.audio.delta', audio: 'aGk=' }), typed({ type: 'speech.audio.done', usage: TOKENS })],
  ],
  [
    /\/audio\/transcriptions$/,
    { text: 'heard', usage: { type: 'tokens', ...TOKENS } },
    [
      typed({ type: 'transcript.text.delta', delta: 'heard' }),
      typed({ type: 'transcript.text.done', text: 'heard', usage: { type: 'tokens', ...TOKENS } }),
    ],
  ],
  [/\/audio\/translations$/, { text: 'heard' }],
  [
    /\/rerank$/,
    { id: 'r', results: [{ index: 0, relevance_score: 0.9 }], meta: { billed_units: { search_units: 1 } } },
  ],
  [/\/files\/[^/]+\/content$/, Buffer.from('{"custom_id":"1"}\n')],
  [/\/files(\/|\?|$)/, UPLOADED],
  [/\/batches(\/|\?|$)/, BATCH],
  [/\/(events|checkpoints)(\?|$)/, LIST],
  [/\/fine_tuning\/jobs(\/|\?|$)/, JOB],
  [/\/models$/, LIST],
  [/\/models\//, { id: 'gpt-4o', object: 'model', created: 1, owned_by: 'openai' }],
  [/\/vector_stores\//, { id: 'vs_1', object: 'vector_store' }, [event({ id: 'vs_1' }), event('[DONE]')]],
];

export function answerOf(request: Received, response: ServerResponse): void {
  const body = request.body.toString('latin1');
  const streams = /"stream":\s*true|name="stream"|"stream_format"/.test(body);
  const found = ANSWERS.find(([path]) => path.test(request.path));
  const whole = found?.[1] ?? { object: 'unknown' };
  const events = found?.[2];
  if (streams && events !== undefined) {
    sendEvents(response, events);
    return;
  }
  if (Buffer.isBuffer(whole)) {
    response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': whole.length });
    response.end(whole);
    return;
  }
  const { method, path } = request;
  if (method === 'DELETE') {
    sendJson(response, 200, { ...(whole as object), deleted: true });
    return;
  }
  if (method === 'GET' && status.batch === 'cancelling') status.batch = 'completed';
  if (method === 'POST') {
    if (path.endsWith('/batches')) status.batch = 'in_progress';
    if (path.endsWith('/batch_1/cancel')) status.batch = 'cancelling';
    if (path.endsWith('/ftjob-1/cancel')) status.job = 'cancelled';
    if (path.endsWith('/jobs') || path.endsWith('/resume')) status.job = 'running';
    if (path.endsWith('/pause')) status.job = 'paused';
  }
  const now =
    whole === BATCH ? { ...BATCH, status: status.batch } : whole === JOB ? { ...JOB, status: status.job } : whole;
  sendJson(response, 200, method === 'GET' && /\/(files|batches|jobs)(\?|$)/.test(path) ? LIST : now);
}

/** Of the one batch and the one job: a batch is done once it was cancelled, so that it has an output. */
const status = { batch: '', job: '' };
