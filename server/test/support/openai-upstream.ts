import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { type StrictRoute, type StrictUpstream, sendStream, startStrictUpstream } from './strict-upstream.ts';
import { sendJson } from './upstream.ts';

/**
 * A small server that behaves like OpenAI's API and refuses what its definition (OpenAPI 2.3.0) does not know.
 * Models: `status-429` answers that status, `cut` breaks a stream off; any other one works.
 */

const text = z.string();
const num = z.number();
const flag = z.boolean();
const object = z.record(text, z.unknown());
const toolCall = z.strictObject({
  id: text,
  type: z.literal('function'),
  function: z.strictObject({ name: text, arguments: text }),
});
const textPart = z.strictObject({ type: z.literal('text'), text });
const parts = z.union([
  text,
  z.array(
    z.union([
      textPart,
      z.strictObject({
        type: z.literal('image_url'),
        image_url: z.strictObject({ url: text, detail: text.optional() }),
      }),
    ]),
  ),
]);
const message = z.discriminatedUnion('role', [
  z.strictObject({ role: z.literal('system'), content: z.union([text, z.array(textPart)]), name: text.optional() }),
  z.strictObject({ role: z.literal('developer'), content: z.union([text, z.array(textPart)]), name: text.optional() }),
  z.strictObject({ role: z.literal('user'), content: parts, name: text.optional() }),
  z.strictObject({
    role: z.literal('assistant'),
    content: z.union([text, z.array(textPart), z.null()]).optional(),
    refusal: text.nullable().optional(),
    name: text.optional(),
    tool_calls: z.array(toolCall).min(1).optional(),
    annotations: z.array(z.unknown()).optional(),
    audio: z.unknown().optional(),
  }),
  z.strictObject({ role: z.literal('tool'), content: z.union([text, z.array(textPart)]), tool_call_id: text }),
]);
const fn = z.strictObject({
  name: z.string().regex(/^[\w-]{1,64}$/),
  description: text.optional(),
  parameters: object.optional(),
  strict: flag.nullable().optional(),
});
const chatBody = z.strictObject({
  model: text.regex(/^[\w.-]+$/),
  messages: z.array(message).min(1),
  max_tokens: num.optional(),
  max_completion_tokens: num.optional(),
  temperature: num.min(0).max(2).optional(),
  top_p: num.optional(),
  n: num.optional(),
  seed: num.optional(),
  stop: z.union([text, z.array(text).max(4)]).optional(),
  stream: flag.optional(),
  stream_options: z.strictObject({ include_usage: flag.optional(), include_obfuscation: flag.optional() }).optional(),
  tools: z.array(z.strictObject({ type: z.literal('function'), function: fn })).optional(),
  tool_choice: z
    .union([
      z.enum(['none', 'auto', 'required']),
      z.strictObject({ type: z.literal('function'), function: z.strictObject({ name: text }) }),
    ])
    .optional(),
  parallel_tool_calls: flag.optional(),
  response_format: z
    .union([
      z.strictObject({ type: z.enum(['text', 'json_object']) }),
      z.strictObject({
        type: z.literal('json_schema'),
        json_schema: z.strictObject({
          name: text,
          description: text.optional(),
          schema: object,
          strict: flag.nullable().optional(),
        }),
      }),
    ])
    .optional(),
  reasoning_effort: z.enum(['none', 'minimal', 'low', 'medium', 'high', 'xhigh']).optional(),
  user: text.max(64).optional(),
  safety_identifier: text.max(64).optional(),
  metadata: z.record(text, text).optional(),
  store: flag.optional(),
});
type Chat = z.infer<typeof chatBody>;

const inputItem = z.union([
  z.strictObject({
    type: z.literal('message').optional(),
    role: z.enum(['user', 'assistant', 'system', 'developer']),
    content: z.union([
      text,
      z.array(
        z.strictObject({
          type: z.enum(['input_text', 'output_text']),
          text,
          annotations: z.array(z.unknown()).optional(),
        }),
      ),
    ]),
    id: text.optional(),
    status: text.optional(),
  }),
  z.strictObject({
    type: z.literal('function_call'),
    call_id: text,
    name: text,
    arguments: text,
    id: text.optional(),
    status: text.optional(),
  }),
  z.strictObject({ type: z.literal('function_call_output'), call_id: text, output: text, id: text.optional() }),
]);
const responseBody = z.strictObject({
  model: text,
  input: z.union([text, z.array(inputItem)]),
  instructions: text.optional(),
  stream: flag.optional(),
  max_output_tokens: num.optional(),
  temperature: num.optional(),
  store: flag.optional(),
  tools: z
    .array(
      z.strictObject({
        type: z.literal('function'),
        name: text,
        description: text.optional(),
        parameters: object,
        strict: flag.nullable(),
      }),
    )
    .optional(),
  tool_choice: z.unknown().optional(),
  text: z.unknown().optional(),
  previous_response_id: text.optional(),
});

const usage = { prompt_tokens: 9, completion_tokens: 4, total_tokens: 13 };
const error = (status: number, message_: string) => ({
  error: {
    message: message_,
    type: status === 429 ? 'rate_limit_error' : status < 500 ? 'invalid_request_error' : 'server_error',
    param: null,
    code: status === 429 ? 'rate_limit_exceeded' : null,
  },
});

/** Answers with the status a model name asks for; true when it did. */
export function failed(
  model: string,
  response: ServerResponse,
  body: (status: number, message: string) => unknown,
): boolean {
  const status = Number(/^status-(\d{3})$/.exec(model)?.[1]);
  if (!status) return false;
  const bytes = Buffer.from(JSON.stringify(body(status, `Told to answer ${status}.`)));
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': bytes.length,
    ...(status === 429 ? { 'retry-after': '7' } : {}),
  });
  response.end(bytes);
  return true;
}

/** What the assistant does: asks for the first tool once, follows a schema, or repeats the last text. */
function chatAnswer(body: Chat): { content: string | null; call: { id: string; name: string; args: string } | null } {
  const last = body.messages.at(-1);
  const said =
    typeof last?.content === 'string'
      ? last.content
      : (last?.content ?? []).map((part) => ('text' in part ? part.text : '')).join('');
  if (last?.role === 'tool') return { content: `The tool says: ${said}`, call: null };
  const tool = body.tool_choice === 'none' ? undefined : body.tools?.[0];
  if (tool) return { content: null, call: { id: 'call_1', name: tool.function.name, args: '{"city":"Berlin"}' } };
  return {
    content: body.response_format?.type === 'json_schema' ? '{"city":"Berlin"}' : `You said: ${said}`,
    call: null,
  };
}

function chat(raw: Record<string, unknown>, response: ServerResponse): void {
  const body = chatBody.parse(raw);
  if (failed(body.model, response, error)) return;
  const { content, call } = chatAnswer(body);
  const finish = call ? 'tool_calls' : 'stop';
  if (!body.stream) {
    const tool_calls = call && [{ id: call.id, type: 'function', function: { name: call.name, arguments: call.args } }];
    sendJson(response, 200, {
      id: 'chatcmpl-1',
      object: 'chat.completion',
      created: 1_767_225_600,
      model: body.model,
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content, refusal: null, ...(tool_calls ? { tool_calls } : {}) },
          logprobs: null,
          finish_reason: finish,
        },
      ],
      usage,
    });
    return;
  }
  const event = (choices: unknown, more = {}) =>
    `data: ${JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1_767_225_600, model: body.model, choices, ...more })}\n\n`;
  const delta = (value: unknown, reason: string | null = null) =>
    event([{ index: 0, delta: value, logprobs: null, finish_reason: reason }]);
  const pieces = [delta({ role: 'assistant', content: call ? null : '' })];
  if (call) {
    pieces.push(
      delta({
        tool_calls: [{ index: 0, id: call.id, type: 'function', function: { name: call.name, arguments: '' } }],
      }),
    );
    for (const piece of call.args.match(/.{1,6}/g) ?? [])
      pieces.push(delta({ tool_calls: [{ index: 0, function: { arguments: piece } }] }));
  } else for (const piece of content?.match(/.{1,5}/gsu) ?? []) pieces.push(delta({ content: piece }));
  if (body.model === 'cut') {
    sendStream(response, pieces, true);
    return;
  }
  pieces.push(delta({}, finish));
  if (body.stream_options?.include_usage) pieces.push(event([], { usage }));
  sendStream(response, [...pieces, 'data: [DONE]\n\n']);
}

function responses(raw: Record<string, unknown>, response: ServerResponse): void {
  const body = responseBody.parse(raw);
  if (failed(body.model, response, error)) return;
  const item = {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    status: 'completed',
    content: [{ type: 'output_text', text: 'You said so', annotations: [], logprobs: [] }],
  };
  const whole = {
    id: 'resp_1',
    object: 'response',
    created_at: 1_767_225_600,
    status: 'completed',
    error: null,
    incomplete_details: null,
    instructions: null,
    model: body.model,
    output: [item],
    parallel_tool_calls: true,
    temperature: 1,
    tool_choice: 'auto',
    tools: [],
    top_p: 1,
    metadata: {},
    usage: {
      input_tokens: 9,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: 4,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: 13,
    },
  };
  if (!body.stream) {
    sendJson(response, 200, whole);
    return;
  }
  const started = { ...whole, status: 'in_progress', output: [], usage: null };
  const at = { item_id: 'msg_1', output_index: 0, content_index: 0 };
  const part = { type: 'output_text', text: '', annotations: [] };
  const events: Record<string, unknown>[] = [
    { type: 'response.created', response: started },
    { type: 'response.in_progress', response: started },
    { type: 'response.output_item.added', output_index: 0, item: { ...item, status: 'in_progress', content: [] } },
    { type: 'response.content_part.added', ...at, part },
    { type: 'response.output_text.delta', ...at, delta: 'You said', logprobs: [] },
    { type: 'response.output_text.delta', ...at, delta: ' so', logprobs: [] },
  ];
  const cut = body.model === 'cut';
  if (!cut)
    events.push(
      { type: 'response.output_text.done', ...at, text: 'You said so', logprobs: [] },
      { type: 'response.content_part.done', ...at, part: { ...part, text: 'You said so' } },
      { type: 'response.output_item.done', output_index: 0, item },
      { type: 'response.completed', response: whole },
    );
  sendStream(
    response,
    events.map((one, index) => `event: ${one.type}\ndata: ${JSON.stringify({ ...one, sequence_number: index })}\n\n`),
    cut,
  );
}

const file = z.strictObject({ bytes: num.min(1) });
const image = { created: 1_767_225_600, data: [{ b64_json: 'aGVsbG8=' }] };
const model = { id: 'gpt-4o', object: 'model', created: 1_767_225_600, owned_by: 'openai' };

export const ROUTES: readonly StrictRoute[] = [
  { method: 'POST', path: /^\/v1\/chat\/completions$/, body: chatBody, answer: chat },
  { method: 'POST', path: /^\/v1\/responses$/, body: responseBody, answer: responses },
  {
    method: 'POST',
    path: /^\/v1\/completions$/,
    body: z.strictObject({ model: text, prompt: z.union([text, z.array(text)]), max_tokens: num.optional() }),
    answer: (body, response) =>
      sendJson(response, 200, {
        id: 'cmpl-1',
        object: 'text_completion',
        created: 1,
        model: body.model,
        choices: [{ text: ' there', index: 0, logprobs: null, finish_reason: 'stop' }],
        usage,
      }),
  },
  {
    method: 'POST',
    path: /^\/v1\/embeddings$/,
    body: z.strictObject({
      model: text,
      input: z.union([text, z.array(text)]),
      encoding_format: z.enum(['float', 'base64']).optional(),
      dimensions: num.optional(),
      user: text.optional(),
    }),
    answer: (body, response) => {
      const inputs = Array.isArray(body.input) ? body.input : [body.input];
      const vector =
        body.encoding_format === 'base64'
          ? Buffer.from(new Float32Array([0.25, -0.5]).buffer).toString('base64')
          : [0.25, -0.5];
      const data = inputs.map((_one, index) => ({ object: 'embedding', index, embedding: vector }));
      sendJson(response, 200, {
        object: 'list',
        data,
        model: body.model,
        usage: { prompt_tokens: 2, total_tokens: 2 },
      });
    },
  },
  {
    method: 'POST',
    path: /^\/v1\/moderations$/,
    body: z.strictObject({ input: z.union([text, z.array(text)]), model: text.optional() }),
    answer: (_body, response) =>
      sendJson(response, 200, {
        id: 'modr-1',
        model: 'omni-moderation',
        results: [{ flagged: false, categories: { hate: false }, category_scores: { hate: 0.1 } }],
      }),
  },
  {
    method: 'POST',
    path: /^\/v1\/images\/generations$/,
    body: z.strictObject({
      prompt: text,
      model: text.optional(),
      n: num.optional(),
      size: text.optional(),
      response_format: text.optional(),
      quality: text.optional(),
    }),
    answer: (_body, response) => sendJson(response, 200, image),
  },
  {
    method: 'POST',
    path: /^\/v1\/images\/edits$/,
    form: true,
    body: z.strictObject({ image: file, prompt: text, model: text.optional(), n: text.optional() }),
    answer: (_body, response) => sendJson(response, 200, image),
  },
  {
    method: 'POST',
    path: /^\/v1\/audio\/speech$/,
    body: z.strictObject({
      model: text,
      input: text,
      voice: text,
      response_format: text.optional(),
      speed: num.optional(),
    }),
    answer: (_body, response) => {
      response.writeHead(200, { 'content-type': 'audio/mpeg', 'transfer-encoding': 'chunked' });
      response.write(Buffer.from([0xff, 0xf3, 0x00]));
      response.end(Buffer.from([1, 2, 3, 0]));
    },
  },
  {
    method: 'POST',
    path: /^\/v1\/audio\/(transcriptions|translations)$/,
    form: true,
    body: z.strictObject({
      file,
      model: text,
      language: text.optional(),
      prompt: text.optional(),
      response_format: text.optional(),
    }),
    answer: (_body, response) => sendJson(response, 200, { text: 'heard' }),
  },
  {
    method: 'GET',
    path: /^\/v1\/models$/,
    body: null,
    answer: (_body, response) => sendJson(response, 200, { object: 'list', data: [model] }),
  },
  {
    method: 'GET',
    path: /^\/v1\/models\/gpt-4o$/,
    body: null,
    answer: (_body, response) => sendJson(response, 200, model),
  },
];

export const OPENAI_KEY = 'sk-openai-upstream';

export function startOpenAiUpstream(): Promise<StrictUpstream> {
  return startStrictUpstream({
    routes: ROUTES,
    headers: { authorization: new RegExp(`^Bearer ${OPENAI_KEY}$`) },
    optional: [],
    error,
  });
}
