/** What the providers of the catalog say in their own words: usage of answers, and errors. */

type Fields = Record<string, unknown>;

/** Providers of clouds sign in otherwise, or answer in shapes of their own: each has a suite with a strict upstream. */
export const OWN_SUITE: ReadonlySet<string> = new Set(['bedrock', 'vertex-ai', 'azure-openai', 'azure-ai', 'google']);

export interface UsageRow {
  readonly provider: string;
  /** What the answer, and the last chunk of a stream, say. */
  readonly usage: Fields;
  /** What the record must say. */
  readonly recorded: Fields;
  /** Puts the usage into a chunk, where it does not stand at its top. */
  readonly placed?: (usage: Fields) => Fields;
}

const PLAIN: UsageRow['recorded'] = { input: 40, output: 9, cache_read: 0, reasoning: 0 };
const plain = { prompt_tokens: 40, completion_tokens: 9, total_tokens: 49 };

/** Every provider that is not named here counts as OpenAI does. */
export const USAGE: readonly UsageRow[] = [
  {
    provider: 'deepseek',
    usage: { ...plain, prompt_cache_hit_tokens: 30, prompt_cache_miss_tokens: 10 },
    recorded: { ...PLAIN, cache_read: 30 },
  },
  {
    provider: 'xai',
    usage: {
      ...plain,
      prompt_tokens_details: { cached_tokens: 10 },
      completion_tokens_details: { reasoning_tokens: 20 },
    },
    recorded: { input: 40, output: 29, cache_read: 10, reasoning: 20 },
  },
  {
    provider: 'moonshot',
    usage: { ...plain, cached_tokens: 16 },
    recorded: { ...PLAIN, cache_read: 16 },
    placed: (usage) => ({ choices: [{ index: 0, delta: {}, finish_reason: 'stop', usage }] }),
  },
  {
    provider: 'dashscope',
    usage: { ...plain, prompt_tokens_details: { cached_tokens: 8, cache_creation_input_tokens: 4 } },
    recorded: { ...PLAIN, cache_read: 8, cache_write: 4 },
  },
  {
    provider: 'deepinfra',
    usage: { ...plain, estimated_cost: 0.01, completion_tokens_details: { reasoning_tokens: 20 } },
    recorded: { ...PLAIN, output: 29, reasoning: 20 },
  },
  {
    provider: 'perplexity',
    usage: { ...plain, reasoning_tokens: 5, citation_tokens: 100, num_search_queries: 2, cost: { total_cost: 0.1 } },
    recorded: { ...PLAIN, reasoning: 5 },
  },
  {
    provider: 'groq',
    usage: { ...plain, queue_time: 0.01, total_time: 0.2 },
    recorded: PLAIN,
    placed: (usage) => ({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }], x_groq: { id: 'r', usage } }),
  },
  { provider: 'openrouter', usage: { ...plain, cost: 0.002, is_byok: false }, recorded: PLAIN },
  {
    provider: 'sambanova',
    usage: { ...plain, completion_tokens_per_sec: 400.5, is_last_response: true },
    recorded: PLAIN,
  },
  { provider: 'cerebras', usage: plain, recorded: PLAIN },
];

export const usageRow = (provider: string): UsageRow =>
  USAGE.find((row) => row.provider === provider) ?? { provider, usage: plain, recorded: PLAIN };

/** One status and what it must become; `code` as the table of errors says. */
export const STATUSES: readonly (readonly [status: number, becomes: number, type: string, code: string | null])[] = [
  [400, 400, 'invalid_request_error', null],
  [401, 401, 'authentication_error', 'invalid_api_key'],
  [402, 402, 'billing_error', 'insufficient_quota'],
  [403, 403, 'permission_error', null],
  [404, 404, 'not_found_error', null],
  [409, 409, 'conflict_error', null],
  [413, 413, 'invalid_request_error', 'request_too_large'],
  [422, 400, 'invalid_request_error', null],
  [429, 429, 'rate_limit_error', 'rate_limit_exceeded'],
  [500, 500, 'api_error', null],
  [503, 503, 'api_error', null],
];

/** The message every error body below holds. */
export const SAID = 'It was not to be.';

/** Error bodies by provider, where they are not `{error: {message, type, param, code}}`. */
const BODIES: Readonly<Record<string, (status: number) => unknown>> = {
  cerebras: () => ({ message: SAID, type: 'some_error', param: null, code: null }),
  cohere: () => ({ id: 'e-1', message: SAID }),
  'mistral-ai': (status) =>
    status === 422
      ? { detail: [{ loc: ['body', 'messages', 0], msg: SAID, type: 'value_error' }] }
      : { object: 'error', message: { detail: SAID }, type: 'some_error', param: null, code: null },
  'fireworks-ai': () => ({ error: SAID }),
  xai: () => ({ code: null, error: SAID }),
  perplexity: (status) => ({ error: { code: status, message: SAID, type: 'some_error' } }),
  voyage: () => ({ detail: SAID }),
  jina: () => ({ detail: SAID }),
  ollama: () => ({ error: SAID }),
  vllm: (status) => ({ object: 'error', message: SAID, type: 'SomeError', param: null, code: status }),
  'nvidia-nim': (status) => ({ type: 'urn:error', title: 'Error', status, detail: SAID }),
  huggingface: () => ({ error: SAID }),
  anthropic: () => ({ type: 'error', error: { type: 'some_error', message: SAID }, request_id: 'r' }),
};

export const errorBody = (provider: string, status: number): unknown =>
  BODIES[provider]?.(status) ?? { error: { message: SAID, type: null, param: null, code: null } };

/** What an upstream answers where a binding lets bytes pass: something of its own stands in each. */
export const ANSWERS: Readonly<Record<string, Fields>> = {
  chat: {
    id: 'c',
    object: 'chat.completion',
    created: 1,
    model: 'm',
    choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
    usage: plain,
    x_own: { of: 'the provider' },
  },
  completions: {
    id: 't',
    object: 'text_completion',
    created: 1,
    model: 'm',
    choices: [{ index: 0, text: 'Hi', finish_reason: 'stop' }],
    usage: plain,
    x_own: 1,
  },
  embeddings: {
    object: 'list',
    data: [{ object: 'embedding', index: 0, embedding: [0.5] }],
    model: 'm',
    usage: { prompt_tokens: 40, total_tokens: 40 },
    x_own: 1,
  },
  messages: {
    id: 'm',
    type: 'message',
    role: 'assistant',
    model: 'm',
    content: [{ type: 'text', text: 'Hi' }],
    stop_reason: 'end_turn',
    stop_sequence: null,
    usage: { input_tokens: 40, output_tokens: 9 },
    x_own: 1,
  },
  responses: {
    id: 'r',
    object: 'response',
    created_at: 1,
    status: 'completed',
    model: 'm',
    output: [],
    usage: { input_tokens: 40, output_tokens: 9, total_tokens: 49 },
    x_own: 1,
  },
  images: { created: 1, data: [{ url: 'https://images.example/1.png' }], x_own: 1 },
  rerank: { object: 'list', results: [{ index: 0, relevance_score: 0.5 }], model: 'm', x_own: 1 },
  transcription: { text: 'Hi', x_own: 1 },
  moderations: { id: 'm', model: 'm', results: [{ flagged: false, categories: {}, category_scores: {} }], x_own: 1 },
  models: { object: 'list', data: [{ id: 'm', object: 'model', created: 1, owned_by: 'x' }], x_own: 1 },
  count_tokens: { input_tokens: 40 },
  raw: { id: 'm', object: 'model', created: 1, owned_by: 'x', x_own: 1 },
};
