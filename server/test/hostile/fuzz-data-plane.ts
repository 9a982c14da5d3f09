/**
 * Hostile bytes for every data-plane route over real sockets: damaged JSON and
 * forms, wrong framing, odd methods, targets and headers. Whatever comes, there is an answer or a close in time, no
 * failure of the gateway's own, and one record for every request a route took. The short form is
 * `data-plane-fuzz.long.test.ts`, the long one `npm run test:fuzz`.
 */
import fc from 'fast-check';
import { z } from 'zod';
import type { JsonValue } from '../../src/kernel/json.ts';
import { OPERATIONS, type OperationId } from '../../src/operations/operation.ts';
import { exchange } from '../support/raw-exchange.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from '../support/upstream.ts';
import { type Damage, damaged, hostile, TEXTS } from './fuzz-admin.ts';

const TIME_LIMIT_MS = 10_000;
const BATCH = 250;
const CONCURRENCY = 8;
const BOUNDARY = 'x-b0undary';

const messages = [{ role: 'user', content: 'Hello' }];
const tool = { name: 'f', description: 'd', parameters: { type: 'object', properties: { a: { type: 'string' } } } };
/** A body each operation accepts, to be damaged. */
const BODIES: Readonly<Partial<Record<OperationId, Readonly<Record<string, JsonValue>>>>> = {
  chat: {
    messages: [{ role: 'system', content: [{ type: 'text', text: 'Be short' }] }, ...messages],
    temperature: 0.5,
    tools: [{ type: 'function', function: tool }],
    stream: true,
    stream_options: { include_usage: true },
    max_tokens: 20,
  },
  completions: { prompt: 'Hello', max_tokens: 5, stream: false },
  embeddings: { input: ['a', 'b'], encoding_format: 'float' },
  messages: {
    messages: [
      { role: 'user', content: [{ type: 'text', text: 'Hi', cache_control: { type: 'ephemeral' } }] },
      { role: 'assistant', content: [{ type: 'tool_use', id: 't1', name: 'f', input: { a: 'x' } }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't1', content: 'ok' }] },
    ],
    system: 'Be short',
    max_tokens: 20,
    tools: [{ name: 'f', description: 'd', input_schema: tool.parameters }],
    stream: true,
  },
  count_tokens: { messages },
  responses: {
    input: [{ role: 'user', content: [{ type: 'input_text', text: 'Hi' }] }],
    tools: [{ type: 'function', ...tool, strict: false }],
    stream: false,
    max_output_tokens: 20,
  },
  moderations: { input: 'Hello' },
  images_generate: { prompt: 'a cat', n: 1, size: '256x256' },
  speech: { input: 'Hello', voice: 'alloy', response_format: 'wav' },
  rerank: { query: 'q', documents: ['a', { text: 'b' }], top_n: 1 },
  finetune_create: {
    training_file: 'gw_file_x',
    validation_file: null,
    suffix: 'v1',
    method: {
      type: 'supervised',
      supervised: { hyperparameters: { n_epochs: 3, learning_rate_multiplier: 0.5, batch_size: 8 } },
    },
    seed: 7,
    integrations: [{ type: 'tracker', tracker: { project: 'p', name: null, tags: ['a'] } }],
    metadata: { a: 'b' },
    job_name: 'j',
    gateway_options: { 'x-gateway-virtual-key': 'openai-test' },
    provider_options: { model: 'gpt-4o', output_file: 's3://b/o' },
  },
  batch_create: {
    input_file_id: 'gw_file_x',
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
    metadata: { a: 'b' },
    gateway_options: { 'x-gateway-virtual-key': 'sandbox', 'x-gateway-metadata': '{"a":"b"}' },
    provider_options: { job_name: 'j' },
  },
  proxy: { anything: [1, { b: null }] },
};
const MODELS = [
  '@sandbox/echo',
  '@sandbox/lorem?tokens=5',
  '@sandbox/malformed?event=1',
  '@sandbox/cut?after_tokens=1',
  '@openai-test/gpt-4o',
  '@anthropic-test/claude-sonnet-4-5',
  '@nope/x',
  '@',
  '@/',
  'gpt-4o',
];
const HOSTILE_HEADERS: readonly (readonly [string, readonly string[]])[] = [
  ['x-gateway-config', ['{', '{}', '[]', 'pc-none', '{"retry":{"attempts":99}}', '{"provider":"@sandbox"}']],
  ['x-gateway-config', ['{"strategy":{"mode":"loadbalance"},"targets":[]}', '{"targets":[{"provider":"@sandbox"}]}']],
  ['x-gateway-config', [`${'{"targets":['.repeat(30)}{}${']}'.repeat(30)}`, '{"__proto__":{"a":1}}', '{"a":1,"a":2}']],
  ['x-gateway-metadata', ['{', '[]', '{"a":1}', `{"a":"${'x'.repeat(200)}"}`, '{"_user":"u"}', 'null', '{"a":{}}']],
  [
    'x-gateway-provider',
    ['@sandbox', '@openai-test', 'gateway', 'sandbox', 'openai', '@', '', '@nope', 'constructor', '__proto__'],
  ],
  ['x-gateway-virtual-key', ['nope', '', '__proto__']],
  ['x-gateway-custom-host', ['http://169.254.169.254/', 'http://127.0.0.1:1', 'gopher://x', 'x', 'https://a@b/']],
  ['x-gateway-trace-id', ['', 'x'.repeat(5000), '\u00e9\u00ff', '%00']],
  ['x-gateway-forward-headers', ['x-a', 'authorization,host,content-length', ',,,', '\u00ff']],
  ['x-gateway-dry-run', ['true', 'TRUE', '1']],
  ['x-gateway-request-timeout', ['0', '-1', '1e9', 'x', '99999999999999999999']],
  ['x-gateway-file-purpose', ['batch', 'x', '']],
  ['x-gateway-file-upload-size', ['0', '6', '-1', '1e9', '99999999999999']],
  ['range', ['bytes=0-1', 'bytes=5-1', 'bytes=-', 'x']],
  ['x-gateway-models-endpoint', ['provider', 'integrated', 'x']],
  ['x-gateway-unknown', ['1']],
  ['content-encoding', ['gzip', 'br', 'gzip, gzip', 'identity', 'x']],
  ['content-length', ['5', '-1', '0x10', '99999999999999999999']],
  ['transfer-encoding', ['chunked', 'identity', 'chunked, chunked']],
  ['expect', ['100-continue', '200-ok']],
  ['accept', ['', 'text/event-stream', '*/*;q=0', 'x'.repeat(9000)]],
  ['accept-encoding', ['gzip', 'br;q=1', '']],
  ['connection', ['close', 'upgrade', 'keep-alive, x-gateway-api-key']],
  ['upgrade', ['websocket', 'h2c']],
  ['host', ['evil.example', '', 'a b', 'x:99999']],
  ['authorization', ['Bearer', 'Bearer x', 'Basic eDp5', '\u00ff', `Bearer ${'k'.repeat(3000)}`]],
  ['anthropic-version', ['2023-06-01', 'x', '']],
  ['x-a\u0000b', ['1']],
  ['x_y', ['1']],
  [' folded', ['1']],
];
const TYPES = [
  'application/json',
  'application/json; charset=utf-8',
  'application/json; charset=utf-16',
  'APPLICATION/JSON',
  'text/plain',
  'application/x-www-form-urlencoded',
  'multipart/form-data',
  `multipart/form-data; boundary=${BOUNDARY}`,
  `multipart/form-data; boundary="${'b'.repeat(300)}"`,
  'audio/wav',
  '',
  ';',
  'application/json, text/plain',
];
const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS', 'TRACE', 'PROPFIND', 'post', 'BREW', ''];
const TARGETS = [
  '/v1',
  '/v1/',
  '/v1//chat/completions',
  '/v1/chat/completions/',
  '/V1/chat/completions',
  '/v1/chat/../chat/completions',
  '/v1/%2e%2e/chat',
  '/v1/chat%2fcompletions',
  '/v1/chat/completions?',
  '/v1/chat/completions?a=b&a=c&%00',
  '/v1/chat/completions#x',
  '/v1/models?limit=-1',
  '/v1/models?limit=1&limit=2',
  '/v1/models?sort=constructor&order=x',
  '/v1/models/%FF',
  '/v1/models/a%2Fb%2F..%2Fc',
  '/v1/responses/resp_1?stream=true&starting_after=x',
  `/v1/files/${'x'.repeat(3000)}`,
  `/v1/x?${'y'.repeat(9000)}`,
  '*',
  'http://127.0.0.1/v1/models',
  '/v1/files/\u00e9',
  '/v1/files?purpose=batch&purpose=x',
  '/v1/files?after=x&limit=0&order=up',
  '/v1/files/a/b',
  '/v1/files/s3%3A%2F%2Fb%2F..%2Fk',
  '/v1/files/s3%253A%252F%252Fb%252F..%252Fk',
  '/v1/fine_tuning/jobs?limit=999999999999&after=%00',
  '/v1/fine_tuning/jobs/gw_ftjob_x/events?limit=1&limit=1',
  '/v1/fine_tuning',
  '/v1/batches/gw_batch_x/output',
  '/v1/batches/x/y/z',
  '/v1/realtime',
];

/** One request as bytes. */
export interface DataPlaneCase {
  readonly method: string;
  readonly bytes: Buffer;
  /** The sending side closes after the bytes. */
  readonly half: boolean;
}

/** `body` with one damage to its bytes: what a schema-aware damage cannot make. */
function cut(body: Buffer, how: number, at: number): Buffer {
  const place = body.length === 0 ? 0 : at % body.length;
  const splice = (text: string | Buffer) =>
    Buffer.concat([body.subarray(0, place), Buffer.from(text as string, 'latin1'), body.subarray(place)]);
  switch (how % 12) {
    case 0:
      return body.subarray(0, place);
    case 1: {
      const copy = Buffer.from(body);
      if (copy.length > 0) copy[place] = at & 255;
      return copy;
    }
    case 2:
      return splice('\u0000\u00ff\u00fe');
    case 3:
      return Buffer.concat([Buffer.from('{"model":"a","model":"b",'), body.subarray(1)]);
    case 4:
      return Buffer.from(`{"model":"@sandbox/echo","messages":${'['.repeat(at % 60_000)}`);
    case 5:
      return Buffer.from(`{"model":"@openai-test/x","messages":${'{"a":'.repeat(5_000)}1${'}'.repeat(5_000)}}`);
    case 6:
      return Buffer.concat([Buffer.from(`{"n":${'9'.repeat(1 + (at % 5000))},"m":1e${at},`), body.subarray(1)]);
    case 7:
      return Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), body]);
    case 8:
      return Buffer.from(body.toString('utf8'), 'utf16le');
    case 9:
      return Buffer.concat([body, Buffer.from('{}')]);
    case 10:
      return Buffer.concat([Buffer.from('{"\\u006dodel":"@nope/x","stre\\u0061m":true,'), body.subarray(1)]);
    default:
      return splice('\\ud800"\\');
  }
}

/** An upload, its fields in either order. */
function upload(purpose: string, payload: Buffer, first: boolean): Buffer {
  const field = Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n${purpose}\r\n`);
  const head = `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="rows.jsonl"\r\n\r\n`;
  const file = Buffer.concat([Buffer.from(head), payload, Buffer.from('\r\n')]);
  return Buffer.concat([...(first ? [field, file] : [file, field]), Buffer.from(`--${BOUNDARY}--\r\n`)]);
}

function form(model: string, payload: Buffer): Buffer {
  const field = (name: string, value: string) =>
    `--${BOUNDARY}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;
  return Buffer.concat([
    Buffer.from(field('model', model) + field('prompt', 'a cat') + field('response_format', 'json')),
    Buffer.from(
      `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n`,
    ),
    payload,
    Buffer.from(`\r\n--${BOUNDARY}--\r\n`),
  ]);
}

interface Recipe {
  readonly operation: OperationId;
  readonly model: string;
  readonly damage: Damage;
  readonly cuts: readonly (readonly [number, number])[];
  readonly random: Uint8Array | null;
  readonly method: string | null;
  readonly target: string | null;
  readonly segment: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly type: string | null;
  readonly key: number;
  readonly framing: number;
}

const odd = <T>(arbitrary: fc.Arbitrary<T>, freq: number): fc.Arbitrary<T | null> =>
  fc.oneof({ weight: freq, arbitrary: fc.constant(null) }, { weight: 1, arbitrary });

const recipe: fc.Arbitrary<Recipe> = fc.record({
  operation: fc.constantFrom(...(Object.keys(OPERATIONS) as OperationId[])),
  model: fc.oneof(
    { weight: 8, arbitrary: fc.constantFrom(...MODELS) },
    { weight: 1, arbitrary: fc.constantFrom(...TEXTS.filter((text) => text.length < 1000)) },
  ),
  damage: fc.oneof(
    { weight: 1, arbitrary: fc.constant([]) },
    { weight: 2, arbitrary: fc.array(fc.tuple(fc.nat(10_000), hostile), { minLength: 1, maxLength: 2 }) },
  ),
  cuts: fc.oneof(
    { weight: 4, arbitrary: fc.constant([]) },
    { weight: 1, arbitrary: fc.array(fc.tuple(fc.nat(11), fc.nat(100_000)), { minLength: 1, maxLength: 2 }) },
  ),
  random: odd(fc.uint8Array({ maxLength: 200 }), 15),
  method: odd(fc.constantFrom(...METHODS), 12),
  target: odd(fc.constantFrom(...TARGETS), 12),
  segment: fc.constantFrom(
    'gpt-4o',
    'resp_1',
    '%00',
    '%F0%9F%98%80',
    'a:b',
    '~',
    '.',
    '%2E%2E',
    '@sandbox',
    'gw_file_x',
    's3%3A%2F%2Fb%2Fk',
    '%252e',
  ),
  headers: fc.oneof(
    { weight: 2, arbitrary: fc.constant([]) },
    {
      weight: 1,
      arbitrary: fc.array(
        fc
          .constantFrom(...HOSTILE_HEADERS)
          .chain(([name, values]) =>
            fc.tuple(fc.constant(name), fc.oneof(fc.constantFrom(...values), fc.string({ maxLength: 30 }))),
          ),
        { minLength: 1, maxLength: 2 },
      ),
    },
  ),
  type: odd(fc.constantFrom(...TYPES), 8),
  key: fc.nat(30),
  framing: fc.nat(30),
});

function bytesOf(r: Recipe, keys: readonly string[], port: number, trace: string): DataPlaneCase {
  const operation = OPERATIONS[r.operation];
  const fallback = operation.method === 'ANY' ? 'POST' : operation.method;
  const method = r.method ?? fallback;
  const path = operation.path.replace(/:\w+/, r.segment).replace('*', `vector_stores/${r.segment}`);
  const stream = operation.body === 'stream';
  const multipart = operation.body === 'multipart' || stream;
  let body: Buffer;
  if (r.random !== null) body = Buffer.from(r.random);
  else if (stream) {
    const purpose = ['fine-tune', 'batch', 'assistants', 'vision', 'x'][r.model.length % 5] ?? '';
    body = upload(purpose, Buffer.from(`{"messages":[]}\r\n--${r.model}`), r.framing % 2 === 0);
  } else if (operation.body === 'optional') body = Buffer.alloc(0);
  else if (multipart) body = form(r.model, Buffer.from([0, 255, 13, 10, 45, 45]));
  else if (operation.body === 'none') body = Buffer.alloc(0);
  else body = Buffer.from(damaged({ model: r.model, ...BODIES[r.operation] }, r.damage));
  if (operation.body !== 'none') for (const [how, at] of r.cuts) body = cut(body, how, at);
  const type = r.type ?? (multipart ? `multipart/form-data; boundary=${BOUNDARY}` : 'application/json');
  const own = new Set(r.headers.map(([name]) => name));
  const lines = [`${method} ${r.target ?? `/v1${path}`} HTTP/1.1`];
  const header = (name: string, value: string) => {
    if (!own.has(name)) lines.push(`${name}: ${value}`);
  };
  header('host', `127.0.0.1:${port}`);
  const key = r.key < keys.length ? keys[r.key] : keys[0];
  if (key) header('x-gateway-api-key', key);
  header('x-gateway-trace-id', trace);
  if (operation.family === 'job' && operation.body !== 'json') {
    header('x-gateway-provider', ['@openai-test', '@sandbox', 'gateway'][r.model.length % 3] ?? '');
  } else if (operation.body === 'none' || operation.id === 'proxy') header('x-gateway-provider', '@openai-test');
  if (body.length > 0) header('content-type', type);
  // Truncation and excess are rare: each closes the connection.
  let sent = body;
  let half = false;
  if (r.framing === 1 && body.length > 0) {
    lines.push(`transfer-encoding: chunked`);
    const size = (part: Buffer) => Buffer.from(`${part.length.toString(16)}\r\n`);
    const [one, two] = [body.subarray(0, 7), body.subarray(7)];
    const parts = [one, two]
      .filter((part) => part.length > 0)
      .flatMap((part) => [size(part), part, Buffer.from('\r\n')]);
    sent = Buffer.concat([...parts, Buffer.from('0\r\n\r\n')]);
  } else if (r.framing === 2) {
    header('content-length', String(body.length + 10));
    half = true;
  } else if (r.framing === 3) {
    header('content-length', String(Math.max(0, body.length - 3)));
  } else if (r.framing === 4) {
    half = true;
  } else if (body.length > 0 || method === 'POST') header('content-length', String(body.length));
  // A body that is announced in a way of its own may never come whole; the client then says that it is done.
  if (['content-length', 'transfer-encoding', 'expect', ' folded'].some((name) => own.has(name))) half = true;
  for (const [name, value] of r.headers) lines.push(`${name}: ${value}`);
  return { method, half, bytes: Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), sent]) };
}

const text = z.string().min(1);
/** The shapes of `operations/dialects/errors.ts`, of the two families of providers, and of the routes before them. */
const ERROR_BODY = z.union([
  z.strictObject({
    type: z.literal('error').optional(),
    error: z.strictObject({ message: text, type: text, param: z.string().nullable(), code: z.string().nullable() }),
    errors: z
      .array(z.strictObject({ param: text, message: text }))
      .min(2)
      .optional(),
    system_fingerprint: z.string().optional(),
  }),
  z.strictObject({
    type: z.literal('error').optional(),
    status: z.literal('failure'),
    message: text,
    errors: z.array(text).optional(),
    error: z.union([
      z.strictObject({ type: text, message: text }),
      z.strictObject({ message: text, type: text, param: z.string().nullable(), code: z.string().nullable() }),
    ]),
  }),
  z.strictObject({
    type: z.literal('error'),
    error: z.strictObject({ type: text, message: text }),
    request_id: z.string().nullable().optional(),
    system_fingerprint: z.string().optional(),
  }),
]);
const UPSTREAM_REASONS = new Set([501, 502, 503]);

/** What is wrong with an outcome; null when nothing is. */
function fault(outcome: Awaited<ReturnType<typeof exchange>>, method: string): string | null {
  const { answer, hung } = outcome;
  if (hung) return answer === null ? 'no answer and no close' : `the answer ${answer.status} did not end`;
  if (answer === null) return null;
  if (!(answer.status >= 200 && answer.status < 600)) return `status ${answer.status}`;
  if (answer.status >= 500 && !UPSTREAM_REASONS.has(answer.status)) return `status ${answer.status}: ${answer.body}`;
  if (answer.status >= 400 && method !== 'HEAD') {
    let value: unknown;
    try {
      value = JSON.parse(answer.body.toString('utf8'));
    } catch {
      return `the body of ${answer.status} is not JSON: ${answer.body.toString('latin1').slice(0, 300)}`;
    }
    if (!ERROR_BODY.safeParse(value).success)
      return `the body of ${answer.status} has no documented shape: ${answer.body}`;
  }
  return null;
}

export interface DataPlaneTarget {
  readonly server: TestServer;
  readonly upstream: FakeUpstream;
  stop(): Promise<void>;
}

const CHAT = {
  id: 'c',
  object: 'chat.completion',
  created: 1,
  model: 'gpt-4o',
  choices: [{ index: 0, message: { role: 'assistant', content: 'hi' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
};
const FILE = { object: 'file', bytes: 1, created_at: 1, filename: 'f', purpose: 'batch', status: 'processed' };
const MESSAGE = {
  id: 'm',
  type: 'message',
  role: 'assistant',
  model: 'claude-sonnet-4-5',
  content: [{ type: 'text', text: 'hi' }],
  stop_reason: 'end_turn',
  stop_sequence: null,
  usage: { input_tokens: 1, output_tokens: 1 },
};

/** A server with the sandbox and two providers on one lenient upstream. */
export async function startDataPlane(): Promise<DataPlaneTarget> {
  let files = 0;
  const upstream = await startUpstream((request, response) => {
    upstream.received.length = 0;
    const streams = request.body.includes('"stream":true') || request.body.includes('"stream": true');
    if (request.path.startsWith('/v1/messages')) return sendJson(response, 200, MESSAGE);
    if (request.path === '/v1/files' && request.method === 'POST') {
      // Well and badly in turns.
      files += 1;
      return sendJson(response, 200, files % 2 === 0 ? { ...FILE, id: `file-${files}` } : {});
    }
    if (request.path !== '/v1/chat/completions') return sendJson(response, 200, {});
    if (!streams) return sendJson(response, 200, CHAT);
    const chunk = (delta: object, finish: string | null) =>
      `data: ${JSON.stringify({ ...CHAT, object: 'chat.completion.chunk', usage: null, choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
    return sendEvents(response, [chunk({ content: 'hi' }, null), chunk({}, 'stop'), 'data: [DONE]\n\n']);
  });
  const server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
  await server.provider({ id: 'anthropic', host: `${upstream.url}/v1` });
  // The first answers load token tables and compile code, once in the life of a process.
  for (const model of ['@sandbox/echo', '@openai-test/gpt-4o', '@anthropic-test/claude-sonnet-4-5'])
    for (const stream of [false, true])
      await (await server.call('/chat/completions', { model, stream, messages, max_tokens: 5 })).text();
  return {
    server,
    upstream,
    async stop() {
      await server.stop();
      await upstream.stop();
    },
  };
}

export interface DataPlaneResult {
  readonly cases: number;
  readonly statuses: Readonly<Record<string, number>>;
  /** Longest processor time between two turns of the event loop, milliseconds; waiting for a processor is not in it. */
  readonly stall: number;
  /** Longest time to an answer, milliseconds. */
  readonly slowest: number;
}

/** Processor time of this thread that passes while the event loop does not turn. */
function watchStall(): { readonly longest: number; stop(): void } {
  let longest = 0;
  let before = process.threadCpuUsage();
  const timer = setInterval(() => {
    const now = process.threadCpuUsage();
    longest = Math.max(longest, (now.user + now.system - before.user - before.system) / 1000);
    before = now;
  }, 1);
  return {
    get longest() {
      return longest;
    },
    stop: () => clearInterval(timer),
  };
}

const show = (one: DataPlaneCase) =>
  `${JSON.stringify(one.bytes.toString('latin1').slice(0, 3000))}${one.half ? ' and a half close' : ''}`;

/** Sends `cases` generated requests; throws with the first that breaks the rule. */
export async function fuzzDataPlane(target: DataPlaneTarget, cases: number, seed: number): Promise<DataPlaneResult> {
  const { server } = target;
  const port = Number(new URL(server.url).port);
  const { workspace_api_key, admin_api_key } = server.first;
  const keys = [workspace_api_key, '', 'nonsense', `${workspace_api_key.slice(0, -1)}!`, admin_api_key];
  const statuses: Record<string, number> = {};
  let slowest = 0;
  let stall = 0;
  let done = 0;
  for (let batch = 0; done < cases; batch++) {
    const count = Math.min(BATCH, cases - done);
    const made = fc
      .sample(recipe, { numRuns: count, seed: seed + batch })
      .map((one, index) => bytesOf(one, keys, port, `f-${batch}-${index}`));
    const before = await server.recordCount();
    let taken = 0;
    let closed = 0;
    let next = 0;
    // Making the cases is this test's own work and must not count as a stall of the server.
    await new Promise((resolve) => setImmediate(resolve));
    const watch = watchStall();
    const worker = async () => {
      for (let one = made[next++]; one !== undefined; one = made[next++]) {
        const outcome = await exchange(port, one.bytes, {
          method: one.method,
          half: one.half,
          timeoutMs: TIME_LIMIT_MS,
        });
        const wrong = fault(outcome, one.method);
        if (wrong !== null) throw new Error(`${wrong}\nseed ${seed + batch}: ${show(one)}`);
        const { answer } = outcome;
        statuses[answer?.status ?? 'closed'] = (statuses[answer?.status ?? 'closed'] ?? 0) + 1;
        if (answer === null) closed += 1;
        else if (answer.headers['x-gateway-trace-id'] !== undefined) taken += 1;
        else if (one.half) closed += 1;
        slowest = Math.max(slowest, answer?.milliseconds ?? 0);
      }
    };
    await Promise.all(Array.from({ length: CONCURRENCY }, worker));
    stall = Math.max(stall, watch.longest);
    watch.stop();
    done += count;
    const records = (await server.recordCount()) - before;
    if (records < taken || records > taken + closed)
      throw new Error(
        `seed ${seed + batch}: ${taken} requests were taken and ${closed} closed, ${records} have a record`,
      );
    const stored = (await server.records(count)).slice(0, count);
    const traces = stored.map((row) => String(row.trace_id)).filter((trace) => trace.startsWith(`f-${batch}-`));
    if (new Set(traces).size !== traces.length) throw new Error(`seed ${seed + batch}: a request has two records`);
  }
  const healthy = await fetch(`${server.url}/readyz`);
  if (healthy.status !== 200) throw new Error(`not ready afterwards: ${healthy.status}`);
  const works = await server.call('/chat/completions', { model: '@sandbox/echo', messages });
  if (works.status !== 200) throw new Error(`does not answer afterwards: ${works.status} ${await works.text()}`);
  return { cases, statuses, stall, slowest };
}
