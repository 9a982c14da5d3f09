import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { type StrictRoute, type StrictUpstream, sendStream, startStrictUpstream } from '../strict-upstream.ts';
import { sendJson } from '../upstream.ts';

/** Cohere's v2 API as it is published; what it does not know is refused. */

const text = z.string();
const num = z.number();
const object = z.record(text, z.unknown());

const textPart = z.strictObject({ type: z.literal('text'), text });
const thinkingPart = z.strictObject({ type: z.literal('thinking'), thinking: text.min(1) });
const document = z.strictObject({ id: text.optional(), data: z.union([text, object]) });
const call = z.strictObject({
  id: text.min(1),
  type: z.literal('function'),
  function: z.strictObject({
    name: text.min(1),
    arguments: text.refine((value) => typeof JSON.parse(value) === 'object', 'arguments are an object as text'),
  }),
});
const message = z.discriminatedUnion('role', [
  z.strictObject({ role: z.literal('system'), content: z.union([text, z.array(textPart).min(1)]) }),
  z.strictObject({
    role: z.literal('user'),
    content: z.union([
      text,
      z
        .array(
          z.union([
            textPart,
            z.strictObject({
              type: z.literal('image_url'),
              image_url: z.strictObject({
                url: text.regex(/^(https?:|data:image\/)/),
                detail: z.enum(['auto', 'low', 'high']).optional(),
              }),
            }),
          ]),
        )
        .min(1),
    ]),
  }),
  z
    .strictObject({
      role: z.literal('assistant'),
      content: z.union([text.min(1), z.array(z.union([textPart, thinkingPart])).min(1)]).optional(),
      tool_calls: z.array(call).min(1).optional(),
      tool_plan: text.min(1).optional(),
      citations: z.array(object).optional(),
    })
    .refine((one) => one.content !== undefined || one.tool_calls !== undefined, 'an assistant says or calls something'),
  z.strictObject({
    role: z.literal('tool'),
    tool_call_id: text.min(1),
    content: z.union([text, z.array(z.union([textPart, z.strictObject({ type: z.literal('document'), document })]))]),
  }),
]);

export const chatBody = z
  .strictObject({
    model: text.min(1),
    messages: z.array(message).min(1),
    stream: z.boolean(),
    tools: z
      .array(
        z.strictObject({
          type: z.literal('function'),
          function: z.strictObject({ name: text.min(1), description: text.optional(), parameters: object }),
        }),
      )
      .min(1)
      .optional(),
    strict_tools: z.boolean().optional(),
    documents: z.array(z.union([text, document])).optional(),
    citation_options: z.strictObject({ mode: z.enum(['FAST', 'ACCURATE', 'OFF', 'ENABLED', 'DISABLED']) }).optional(),
    response_format: z
      .strictObject({ type: z.enum(['text', 'json_object']), json_schema: object.optional() })
      .optional(),
    safety_mode: z.enum(['CONTEXTUAL', 'STRICT', 'OFF']).optional(),
    max_tokens: num.int().min(0).optional(),
    stop_sequences: z.array(text).max(5).optional(),
    temperature: num.min(0).max(1).optional(),
    seed: num.int().min(0).optional(),
    frequency_penalty: num.min(0).max(1).optional(),
    presence_penalty: num.min(0).max(1).optional(),
    k: num.min(0).max(500).optional(),
    p: num.min(0.01).max(0.99).optional(),
    logprobs: z.boolean().optional(),
    tool_choice: z.enum(['REQUIRED', 'NONE']).optional(),
    thinking: z
      .strictObject({ type: z.enum(['enabled', 'disabled']), token_budget: num.int().min(1).optional() })
      .optional(),
    priority: num.int().min(0).max(999).optional(),
  })
  .refine((body) => body.tool_choice === undefined || body.tools !== undefined, 'tool_choice without tools')
  .refine((body) => body.response_format === undefined || body.tools === undefined, 'response_format beside tools');
type ChatBody = z.infer<typeof chatBody>;

const failure = (_status: number, message: string): unknown => ({ id: 'e-1', message });

/** Answers with the status of a model called `error-429` and the like; true when it was one. */
function failed(model: string, response: ServerResponse): boolean {
  const [, code, blocked] = /^error-(\d{3})(-blocked)?$/.exec(model) ?? [];
  if (code === undefined) return false;
  const status = Number(code);
  const message = blocked ? 'the input was blocked' : status === 498 ? 'invalid api token' : `It is ${status}.`;
  sendJson(response, status, failure(status, message));
  return true;
}

/** What is billed leaves out what the service adds to a prompt. */
export const USAGE = {
  billed_units: { input_tokens: 3, output_tokens: 4 },
  tokens: { input_tokens: 70, output_tokens: 9 },
  cached_tokens: 64,
};
const LOGPROBS = [
  { text: 'You', token_ids: [7], logprobs: [-0.5] },
  { text: ' said', token_ids: [8, 9], logprobs: [-0.25, -0.5] },
];

interface Planned {
  readonly thinking: string | null;
  readonly plan: string | null;
  readonly text: string;
  readonly calls: readonly { readonly id: string; readonly name: string; readonly args: string }[];
  readonly citations: readonly Record<string, unknown>[];
  readonly finish: string;
}

let serial = 0;

/** What the model makes of a body. */
function planned(body: ChatBody): Planned {
  const last = body.messages.at(-1);
  const said =
    typeof last?.content === 'string'
      ? last.content
      : (last?.content ?? []).map((part) => ('text' in part ? part.text : part.type)).join('');
  const none = {
    thinking: body.thinking?.type === 'enabled' ? 'Let me think.' : null,
    plan: null,
    calls: [],
    citations: [],
  };
  if (last?.role === 'tool') return { ...none, text: `The tool says: ${said}`, finish: 'COMPLETE' };
  const [tool] = body.tools ?? [];
  if (tool !== undefined && body.tool_choice !== 'NONE') {
    const cities = said.includes('twice') ? ['Berlin', 'Paris'] : ['Berlin'];
    const bare = said.includes('nothing');
    return {
      ...none,
      plan: 'I will look at the weather.',
      text: '',
      calls: cities.map((city) => ({
        id: `${tool.function.name}_${++serial}`,
        name: tool.function.name,
        args: bare ? '' : JSON.stringify({ city }),
      })),
      finish: 'TOOL_CALL',
    };
  }
  if (body.response_format !== undefined) return { ...none, text: '{"city":"Berlin"}', finish: 'COMPLETE' };
  const finish = /^finish-(\w+)$/.exec(body.model)?.[1] ?? 'COMPLETE';
  const answer = `You said: ${said}`;
  const [first] = body.documents ?? [];
  const citations =
    first === undefined
      ? []
      : [
          {
            start: 0,
            end: 3,
            text: 'You',
            sources: [{ type: 'document', id: 'doc:0', document: first }],
            type: 'TEXT_CONTENT',
          },
        ];
  return { ...none, text: answer, citations, finish };
}

function whole(body: ChatBody, answer: Planned): Record<string, unknown> {
  const { thinking, plan, calls, citations } = answer;
  const content = [
    ...(thinking === null ? [] : [{ type: 'thinking', thinking }]),
    ...(answer.text === '' ? [] : [{ type: 'text', text: answer.text }]),
  ];
  return {
    id: `chat-${++serial}`,
    finish_reason: answer.finish,
    message: {
      role: 'assistant',
      ...(content.length === 0 ? null : { content }),
      ...(plan === null ? null : { tool_plan: plan }),
      ...(calls.length === 0
        ? null
        : {
            tool_calls: calls.map(({ id, name, args }) => ({
              id,
              type: 'function',
              function: { name, arguments: args },
            })),
          }),
      ...(citations.length === 0 ? null : { citations }),
    },
    ...(body.logprobs ? { logprobs: LOGPROBS } : null),
    usage: USAGE,
  };
}

const pieces = (said: string): string[] => said.match(/.{1,5}/gsu) ?? [];

function events(body: ChatBody, answer: Planned): Record<string, unknown>[] {
  const out: Record<string, unknown>[] = [
    {
      id: `chat-${++serial}`,
      type: 'message-start',
      delta: { message: { role: 'assistant', content: [], tool_plan: '', tool_calls: [], citations: [] } },
    },
  ];
  let index = 0;
  const block = (kind: 'text' | 'thinking', said: string): void => {
    out.push({ type: 'content-start', index, delta: { message: { content: { type: kind, [kind]: '' } } } });
    for (const [at, piece] of pieces(said).entries()) {
      out.push({
        type: 'content-delta',
        index,
        delta: { message: { content: { [kind]: piece } } },
        ...(body.logprobs && kind === 'text' && at === 0 ? { logprobs: LOGPROBS[0] } : null),
      });
    }
    out.push({ type: 'content-end', index });
    index += 1;
  };
  if (answer.thinking !== null) block('thinking', answer.thinking);
  for (const piece of pieces(answer.plan ?? '')) {
    out.push({ type: 'tool-plan-delta', delta: { message: { tool_plan: piece } } });
  }
  if (answer.text !== '') block('text', answer.text);
  for (const [at, { id, name, args }] of answer.calls.entries()) {
    const start = { id, type: 'function', function: { name, arguments: '' } };
    out.push({ type: 'tool-call-start', index: at, delta: { message: { tool_calls: start } } });
    for (const piece of pieces(args)) {
      out.push({
        type: 'tool-call-delta',
        index: at,
        delta: { message: { tool_calls: { function: { arguments: piece } } } },
      });
    }
    out.push({ type: 'tool-call-end', index: at });
  }
  for (const [at, citation] of answer.citations.entries()) {
    out.push({ type: 'citation-start', index: at, delta: { message: { citations: citation } } });
    out.push({ type: 'citation-end', index: at });
  }
  const error = answer.finish === 'ERROR' ? { error: 'the generation broke' } : null;
  out.push({ type: 'message-end', delta: { finish_reason: answer.finish, usage: USAGE, ...error } });
  return out;
}

const framed = (event: Record<string, unknown>): string =>
  `${typeof event.type === 'string' ? `event: ${event.type}\n` : ''}data: ${JSON.stringify(event)}\n\n`;

function answerChat(raw: Record<string, unknown>, response: ServerResponse): void {
  const body = chatBody.parse(raw);
  if (failed(body.model, response)) return;
  const answer = planned(body);
  if (!body.stream) {
    sendJson(response, 200, whole(body, answer));
    return;
  }
  const all = events(body, answer);
  const cut = body.model.endsWith('-cut');
  const ended = body.model.endsWith('-ended');
  const broken = body.model.endsWith('-broken')
    ? [failure(500, 'internal server error') as Record<string, unknown>]
    : [];
  sendStream(response, [...(cut || ended || broken.length > 0 ? all.slice(0, -1) : all), ...broken].map(framed), cut);
}

const NUMBERS: Readonly<Record<string, (at: number) => unknown>> = {
  float: (at) => [at, 0.5],
  int8: (at) => [at, -3],
  base64: (at) => Buffer.from(new Float32Array([at, 0.5]).buffer).toString('base64'),
};

const embedBody = z
  .strictObject({
    model: text.min(1),
    input_type: z.enum(['search_document', 'search_query', 'classification', 'clustering', 'image']),
    texts: z.array(text).min(1).max(96).optional(),
    images: z.array(text.startsWith('data:image/')).length(1).optional(),
    inputs: z
      .array(z.strictObject({ content: z.array(object) }))
      .min(1)
      .max(96)
      .optional(),
    embedding_types: z.array(z.enum(['float', 'int8', 'uint8', 'binary', 'ubinary', 'base64'])).min(1),
    output_dimension: z.union([z.literal(256), z.literal(512), z.literal(1024), z.literal(1536)]).optional(),
    truncate: z.enum(['NONE', 'START', 'END']).optional(),
    max_tokens: num.int().optional(),
    priority: num.int().optional(),
  })
  .refine((body) => [body.texts, body.images, body.inputs].filter(Boolean).length === 1, 'one kind of input');

function answerEmbed(raw: Record<string, unknown>, response: ServerResponse): void {
  const body = embedBody.parse(raw);
  if (failed(body.model, response)) return;
  const list = body.texts ?? body.images ?? body.inputs ?? [];
  const [form = 'float'] = body.embedding_types;
  // The number in a text comes back, so that a test sees which embedding belongs to it.
  const numberIn = (one: unknown, at: number): number => Number(/\d+/.exec(String(one))?.[0] ?? at);
  sendJson(response, 200, {
    id: `embed-${++serial}`,
    texts: body.texts ?? [],
    embeddings: { [form]: list.map((one, at) => (NUMBERS[form] ?? NUMBERS.float)?.(numberIn(one, at))) },
    meta: { api_version: { version: '2' }, billed_units: body.images ? { images: 1 } : { input_tokens: list.length } },
    response_type: 'embeddings_by_type',
  });
}

const rerankBody = z.strictObject({
  model: text.min(1),
  query: text.min(1),
  documents: z.array(text).min(1).max(1000),
  top_n: num.int().min(1).optional(),
  max_tokens_per_doc: num.int().optional(),
  priority: num.int().optional(),
});

function answerRerank(raw: Record<string, unknown>, response: ServerResponse): void {
  const body = rerankBody.parse(raw);
  if (failed(body.model, response)) return;
  const results = body.documents
    .map((_, index) => ({ index, relevance_score: 1 - 1 / (index + 2) }))
    .reverse()
    .slice(0, body.top_n ?? body.documents.length);
  sendJson(response, 200, {
    id: `rerank-${++serial}`,
    results,
    meta: { api_version: { version: '2' }, billed_units: { search_units: 1 } },
  });
}

const MODEL = { name: 'command-a-03-2025', endpoints: ['chat'], context_length: 256000 };

const ROUTES: readonly StrictRoute[] = [
  { method: 'POST', path: /^\/v2\/chat$/, body: chatBody, answer: answerChat },
  { method: 'POST', path: /^\/v2\/embed$/, body: embedBody, answer: answerEmbed },
  { method: 'POST', path: /^\/v2\/rerank$/, body: rerankBody, answer: answerRerank },
  {
    method: 'POST',
    path: /^\/v1\/tokenize$/,
    body: z.strictObject({ text: text.min(1), model: text.min(1) }),
    answer: (_, response) => sendJson(response, 200, { tokens: [1, 2], token_strings: ['a', 'b'] }),
  },
  {
    method: 'GET',
    path: /^\/v1\/models$/,
    query: ['page_size', 'page_token', 'endpoint', 'default_only'],
    body: null,
    answer: (_, response) => sendJson(response, 200, { models: [MODEL], next_page_token: '' }),
  },
  {
    method: 'GET',
    path: /^\/v1\/models\/[\w.-]+$/,
    body: null,
    answer: (_, response) => sendJson(response, 200, MODEL),
  },
];

export const COHERE_KEY = 'co-test-key-of-nobody';

/** Cohere's API on loopback. */
export function startCohere(): Promise<StrictUpstream> {
  return startStrictUpstream({
    routes: ROUTES,
    headers: { authorization: new RegExp(`^Bearer ${COHERE_KEY}$`), 'x-client-name': /^[\w -]+$/ },
    optional: ['x-client-name'],
    error: failure,
  });
}
