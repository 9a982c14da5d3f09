import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { failed } from './openai-upstream.ts';
import { type StrictRoute, type StrictUpstream, sendStream, startStrictUpstream } from './strict-upstream.ts';
import { sendJson } from './upstream.ts';

/** A small server that behaves like Anthropic's API (versions 2023-06-01 and 2026-10-21) and refuses what it does not know. */

const text = z.string();
const num = z.number();
const object = z.record(text, z.unknown());
const cache_control = z.strictObject({ type: z.literal('ephemeral'), ttl: z.enum(['5m', '1h']).optional() }).optional();
const textBlock = z.strictObject({
  type: z.literal('text'),
  text: text.min(1),
  cache_control,
  citations: z.null().optional(),
});
const imageBlock = z.strictObject({
  type: z.literal('image'),
  source: z.union([
    z.strictObject({
      type: z.literal('base64'),
      media_type: z.enum(['image/jpeg', 'image/png', 'image/gif', 'image/webp']),
      data: text,
    }),
    z.strictObject({ type: z.literal('url'), url: text }),
  ]),
  cache_control,
});
const userBlock = z.union([
  textBlock,
  imageBlock,
  z.strictObject({
    type: z.literal('tool_result'),
    tool_use_id: text,
    content: z.union([text, z.array(z.union([textBlock, imageBlock]))]).optional(),
    is_error: z.boolean().optional(),
    cache_control,
  }),
]);
const assistantBlock = z.union([
  textBlock,
  z.strictObject({
    type: z.literal('tool_use'),
    id: text.regex(/^[\w-]+$/),
    name: text,
    input: object,
    cache_control,
    caller: z.unknown().optional(),
  }),
]);
const message = z.discriminatedUnion('role', [
  z.strictObject({ role: z.literal('user'), content: z.union([text.min(1), z.array(userBlock).min(1)]) }),
  z.strictObject({ role: z.literal('assistant'), content: z.union([text.min(1), z.array(assistantBlock).min(1)]) }),
]);
const choice = { disable_parallel_tool_use: z.boolean().optional() };
export const common = {
  model: text.regex(/^[\w.-]+$/),
  messages: z.array(message).min(1),
  system: z.union([text.min(1), z.array(textBlock).min(1)]).optional(),
  tools: z
    .array(
      z.strictObject({
        name: text.regex(/^[\w-]{1,128}$/),
        type: z.literal('custom').optional(),
        description: text.optional(),
        input_schema: z.looseObject({ type: z.literal('object') }),
        strict: z.boolean().optional(),
        cache_control,
      }),
    )
    .optional(),
  tool_choice: z
    .union([
      z.strictObject({ type: z.enum(['auto', 'any']), ...choice }),
      z.strictObject({ type: z.literal('none') }),
      z.strictObject({ type: z.literal('tool'), name: text, ...choice }),
    ])
    .optional(),
  thinking: object.optional(),
  output_config: z
    .strictObject({
      effort: z.enum(['low', 'medium', 'high', 'xhigh', 'max']).optional(),
      format: z.strictObject({ type: z.literal('json_schema'), schema: object }).optional(),
    })
    .optional(),
};
export const messagesBody = z
  .strictObject({
    ...common,
    max_tokens: num.int().min(1),
    stream: z.boolean().optional(),
    temperature: num.min(0).max(1).optional(),
    top_p: num.optional(),
    top_k: num.optional(),
    stop_sequences: z.array(text.regex(/\S/)).optional(),
    metadata: z.strictObject({ user_id: text.nullable().optional() }).optional(),
    service_tier: z.enum(['auto', 'standard_only']).optional(),
  })
  .refine((body) => body.messages[0]?.role === 'user', 'the first message must be of the user')
  .refine(
    (body) =>
      body.messages.every((one, index) => {
        const asked = blocks(one).filter((block) => block.type === 'tool_use');
        const next = body.messages[index + 1];
        const given = next === undefined ? [] : blocks(next).filter((block) => block.type === 'tool_result');
        return asked.every((call) => given.some((result) => result.tool_use_id === call.id));
      }),
    'every tool_use needs its tool_result in the next message',
  );
type Body = z.infer<typeof messagesBody>;

type Block = z.infer<typeof userBlock> | z.infer<typeof assistantBlock>;
const blocks = (one: z.infer<typeof message>): Block[] =>
  typeof one.content === 'string' ? [{ type: 'text', text: one.content }] : one.content;

export const anthropicError = (status: number, message_: string) => ({
  type: 'error',
  error: {
    type:
      { 400: 'invalid_request_error', 401: 'authentication_error', 429: 'rate_limit_error', 529: 'overloaded_error' }[
        status
      ] ?? 'api_error',
    message: message_,
  },
  request_id: 'req_up',
});

function contentOf(body: Body): Record<string, unknown> {
  const last = body.messages.at(-1);
  const given = last === undefined ? [] : blocks(last);
  const result = given.find((block) => block.type === 'tool_result');
  if (result?.type === 'tool_result') {
    const said =
      typeof result.content === 'string'
        ? result.content
        : (result.content ?? []).map((part) => ('text' in part ? part.text : '')).join('');
    return { type: 'text', text: `The tool says: ${said}` };
  }
  const tool = body.tool_choice?.type === 'none' ? undefined : body.tools?.[0];
  if (tool) return { type: 'tool_use', id: 'toolu_1', name: tool.name, input: { city: 'Berlin' } };
  if (body.output_config?.format) return { type: 'text', text: '{"city":"Berlin"}' };
  return {
    type: 'text',
    text: `You said: ${given.map((block) => (block.type === 'text' ? block.text : '')).join('')}`,
  };
}

/** The answer to a body that is not streamed. */
export function messageAnswer(body: Body) {
  const block = contentOf(body);
  return {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: body.model,
    content: [block],
    stop_reason: block.type === 'tool_use' ? 'tool_use' : 'end_turn',
    stop_sequence: null,
    usage: { input_tokens: 9, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 4 },
  };
}

export function messages(raw: Record<string, unknown>, response: ServerResponse): void {
  const body = messagesBody.parse(raw);
  if (failed(body.model, response, anthropicError)) return;
  const block = contentOf(body);
  const whole = messageAnswer(body);
  const { stop_reason } = whole;
  if (!body.stream) {
    sendJson(response, 200, whole);
    return;
  }
  const deltas =
    block.type === 'tool_use'
      ? ['', ...(JSON.stringify(block.input).match(/.{1,6}/g) ?? [])].map((partial_json) => ({
          type: 'input_json_delta',
          partial_json,
        }))
      : (String(block.text).match(/.{1,5}/gsu) ?? []).map((piece) => ({ type: 'text_delta', text: piece }));
  const cut = body.model === 'cut';
  const events: { type: string; [key: string]: unknown }[] = [
    {
      type: 'message_start',
      message: { ...whole, content: [], stop_reason: null, usage: { ...whole.usage, output_tokens: 1 } },
    },
    {
      type: 'content_block_start',
      index: 0,
      content_block: block.type === 'tool_use' ? { ...block, input: {} } : { type: 'text', text: '' },
    },
    { type: 'ping' },
    ...deltas.map((delta) => ({ type: 'content_block_delta', index: 0, delta })),
  ];
  if (!cut)
    events.push(
      { type: 'content_block_stop', index: 0 },
      { type: 'message_delta', delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 4 } },
      { type: 'message_stop' },
    );
  sendStream(
    response,
    events.map((one) => `event: ${one.type}\ndata: ${JSON.stringify(one)}\n\n`),
    cut,
  );
}

const model = { type: 'model', id: 'claude-sonnet-4-5', display_name: 'Claude', created_at: '2026-01-01T00:00:00Z' };
const ROUTES: readonly StrictRoute[] = [
  { method: 'POST', path: /^\/v1\/messages$/, body: messagesBody, answer: messages },
  {
    method: 'POST',
    path: /^\/v1\/messages\/count_tokens$/,
    body: z.strictObject(common),
    answer: (_body, response) => sendJson(response, 200, { input_tokens: 9 }),
  },
  {
    method: 'GET',
    path: /^\/v1\/models$/,
    query: ['limit', 'before_id', 'after_id'],
    body: null,
    answer: (_body, response) =>
      sendJson(response, 200, { data: [model], has_more: false, first_id: model.id, last_id: model.id }),
  },
];

export const ANTHROPIC_KEY = 'sk-ant-upstream';

export function startAnthropicUpstream(): Promise<StrictUpstream> {
  return startStrictUpstream({
    routes: ROUTES,
    headers: {
      'x-api-key': new RegExp(`^${ANTHROPIC_KEY}$`),
      'anthropic-version': /^(2023-06-01|2026-10-21)$/,
      'anthropic-beta': /^[\w,.-]+$/,
    },
    optional: ['anthropic-beta'],
    error: anthropicError,
  });
}
