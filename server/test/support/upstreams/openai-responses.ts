/**
 * A small server that behaves like OpenAI's Responses API for the models which have no other, and refuses what its
 * definition (OpenAPI 2.3.0) does not know. Chat completions answer as OpenAI does for such a model. The last text of the
 * input says what happens: `status 429`, `fail server_error`, `stop max_output_tokens`, `cut`, `break server_error` (a
 * stream that breaks after its first words), `refuse`, `cite`; anything else is repeated.
 */
import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { type StrictUpstream, sendStream, startStrictUpstream } from '../strict-upstream.ts';
import { sendJson } from '../upstream.ts';

const text = z.string();
const flag = z.boolean();
const object = z.record(text, z.unknown());
const callId = z.string().min(1).max(64);

const inputParts = z.array(
  z.discriminatedUnion('type', [
    z.strictObject({ type: z.literal('input_text'), text }),
    z.strictObject({
      type: z.literal('input_image'),
      image_url: text.regex(/^(?:https?:|data:image\/)/).optional(),
      file_id: text.optional(),
      detail: z.enum(['low', 'high', 'auto', 'original']),
    }),
    z.strictObject({
      type: z.literal('input_file'),
      file_id: text.optional(),
      filename: text.optional(),
      file_data: text.optional(),
    }),
  ]),
);
const outputParts = z.array(
  z.discriminatedUnion('type', [
    z.strictObject({ type: z.literal('output_text'), text, annotations: z.array(z.unknown()) }),
    z.strictObject({ type: z.literal('refusal'), refusal: text }),
  ]),
);
const item = z.union([
  z.strictObject({
    type: z.literal('message'),
    role: z.enum(['user', 'system', 'developer']),
    content: z.union([text, inputParts]),
  }),
  z.strictObject({
    type: z.literal('message'),
    role: z.literal('assistant'),
    content: z.union([text, outputParts]),
  }),
  z.strictObject({ type: z.literal('function_call'), call_id: callId, name: text, arguments: text }),
  z.strictObject({
    type: z.literal('function_call_output'),
    call_id: callId,
    output: z.union([text, inputParts]),
  }),
  z.strictObject({ type: z.literal('reasoning'), id: text, summary: z.array(object), encrypted_content: text }),
]);

const body = z
  .strictObject({
    model: text.regex(/^[\w.-]+$/),
    input: z.array(item).min(1),
    store: z.literal(false),
    stream: flag.optional(),
    max_output_tokens: z.number().int().min(16).optional(),
    temperature: z.number().optional(),
    top_p: z.number().optional(),
    top_logprobs: z.number().optional(),
    user: text.max(64).optional(),
    safety_identifier: text.max(64).optional(),
    metadata: z.record(text, text).optional(),
    service_tier: text.optional(),
    parallel_tool_calls: flag.optional(),
    include: z.array(z.enum(['message.output_text.logprobs', 'reasoning.encrypted_content'])).optional(),
    reasoning: z
      .strictObject({
        effort: z.enum(['none', 'minimal', 'low', 'medium', 'high', 'xhigh']).optional(),
        summary: z.enum(['auto', 'concise', 'detailed']).optional(),
      })
      .optional(),
    text: z
      .strictObject({
        verbosity: text.optional(),
        format: z
          .strictObject({
            type: z.literal('json_schema'),
            name: text,
            schema: object,
            strict: flag.nullable().optional(),
            description: text.optional(),
          })
          .optional(),
      })
      .optional(),
    tools: z
      .array(
        z.strictObject({
          type: z.literal('function'),
          name: text.regex(/^[\w-]{1,64}$/),
          description: text.optional(),
          parameters: object,
          strict: flag,
        }),
      )
      .min(1)
      .optional(),
    tool_choice: z
      .union([z.enum(['none', 'auto', 'required']), z.strictObject({ type: z.literal('function'), name: text })])
      .optional(),
  })
  // Every result answers a call of the same input.
  .refine(({ input }) => {
    const calls = new Set(input.map((one) => (one.type === 'function_call' ? one.call_id : null)));
    return input.every((one) => one.type !== 'function_call_output' || calls.has(one.call_id));
  }, 'No tool call found for function call output');
type Body = z.infer<typeof body>;

const error = (status: number, message: string, code: string | null = null) => ({
  error: { message, type: status === 429 ? 'rate_limit_error' : 'invalid_request_error', param: null, code },
});

function lastText({ input }: Body): string {
  const last = input.at(-1);
  const content =
    last?.type === 'message' ? last.content : last?.type === 'function_call_output' ? last.output : undefined;
  if (typeof content === 'string') return content;
  return (content ?? []).map((part) => ('text' in part ? part.text : '')).join('');
}

export const USAGE = {
  input_tokens: 1000,
  input_tokens_details: { cached_tokens: 400 },
  output_tokens: 100,
  output_tokens_details: { reasoning_tokens: 60 },
  total_tokens: 1100,
};

const CITED = { type: 'url_citation', url: 'https://a.example', title: 'A', start_index: 0, end_index: 3 };

/** What the model does: it thinks, then calls the first tool once, follows a schema, or says something. */
function outputOf(asked: Body, said: string): Record<string, unknown>[] {
  const seen = asked.include?.includes('reasoning.encrypted_content') ? { encrypted_content: 'gAAA' } : {};
  const summary = asked.reasoning?.summary === undefined ? [] : [{ type: 'summary_text', text: 'I should think.' }];
  const thought = { type: 'reasoning', id: 'rs_1', summary, ...seen };
  const answered = asked.input.at(-1)?.type === 'function_call_output';
  const tool = answered || asked.tool_choice === 'none' ? undefined : asked.tools?.[0];
  if (tool !== undefined) {
    const one = (n: number, city: string) => ({
      type: 'function_call',
      id: `fc_${n}`,
      call_id: `call_${n}`,
      name: tool.name,
      arguments: JSON.stringify({ city }),
      status: 'completed',
    });
    const both = asked.parallel_tool_calls !== false && said.includes('and');
    return [thought, one(1, 'Berlin'), ...(both ? [one(2, 'Ålesund')] : [])];
  }
  const words = answered
    ? `The tool says: ${said}`
    : asked.text?.format !== undefined
      ? '{"city":"Berlin"}'
      : `You said: ${said}`;
  const part = said.startsWith('refuse')
    ? { type: 'refusal', refusal: 'I will not.' }
    : { type: 'output_text', text: words, annotations: said.startsWith('cite') ? [CITED] : [], logprobs: [] };
  return [thought, { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content: [part] }];
}

function responses(raw: Record<string, unknown>, response: ServerResponse): void {
  const asked = body.parse(raw);
  const said = lastText(asked);
  const [word = '', what = ''] = said.split(' ');
  if (word === 'status') {
    sendJson(response, Number(what), error(Number(what), `Told to answer ${what}.`));
    return;
  }
  const whole: Record<string, unknown> = {
    id: 'resp_1',
    object: 'response',
    created_at: 1_767_225_600,
    status: 'completed',
    background: false,
    error: null,
    incomplete_details: null,
    instructions: null,
    model: asked.model,
    output: outputOf(asked, said),
    parallel_tool_calls: true,
    service_tier: 'default',
    store: false,
    tool_choice: 'auto',
    tools: [],
    metadata: {},
    usage: USAGE,
  };
  if (word === 'stop') Object.assign(whole, { status: 'incomplete', incomplete_details: { reason: what } });
  const failure = { status: 'failed', error: { code: what, message: `It broke: ${what}.` } };
  if (word === 'fail') Object.assign(whole, failure, { output: [], usage: null });
  if (asked.stream !== true) sendJson(response, 200, whole);
  else stream(response, whole, word, failure);
}

function stream(
  response: ServerResponse,
  whole: Record<string, unknown>,
  word: string,
  failure: Record<string, unknown>,
): void {
  const begun = { ...whole, status: 'in_progress', output: [], usage: null, error: null, incomplete_details: null };
  const events: Record<string, unknown>[] = [
    { type: 'response.created', response: begun },
    { type: 'response.in_progress', response: begun },
  ];
  for (const [output_index, one] of (whole.output as Record<string, unknown>[]).entries()) {
    events.push(...itemEvents(output_index, one));
  }
  let ending: Record<string, unknown> = { type: `response.${String(whole.status)}`, response: whole };
  if (word === 'cut' || word === 'break') {
    const at = events.findIndex(
      ({ type }) => String(type).endsWith('_text.delta') && !String(type).includes('reasoning'),
    );
    events.splice(at + 2);
    ending = { type: 'response.failed', response: { ...whole, ...failure, output: [], usage: null } };
  }
  if (word !== 'cut') events.push(ending);
  sendStream(
    response,
    events.map(
      (one, sequence_number) => `event: ${String(one.type)}\ndata: ${JSON.stringify({ ...one, sequence_number })}\n\n`,
    ),
    word === 'cut',
  );
}

function itemEvents(output_index: number, one: Record<string, unknown>): Record<string, unknown>[] {
  const place = { item_id: one.id, output_index };
  const out: Record<string, unknown>[] = [];
  if (one.type === 'reasoning') {
    out.push({ type: 'response.output_item.added', output_index, item: { ...one, summary: [] } });
    for (const [summary_index, part] of (one.summary as { text: string }[]).entries()) {
      const at = { ...place, summary_index };
      out.push(
        { type: 'response.reasoning_summary_part.added', ...at, part: { type: 'summary_text', text: '' } },
        ...pieces(part.text).map((delta) => ({ type: 'response.reasoning_summary_text.delta', ...at, delta })),
        { type: 'response.reasoning_summary_text.done', ...at, text: part.text },
        { type: 'response.reasoning_summary_part.done', ...at, part },
      );
    }
  } else if (one.type === 'function_call') {
    const args = String(one.arguments);
    out.push(
      { type: 'response.output_item.added', output_index, item: { ...one, status: 'in_progress', arguments: '' } },
      ...pieces(args).map((delta) => ({ type: 'response.function_call_arguments.delta', ...place, delta })),
      { type: 'response.function_call_arguments.done', ...place, name: one.name, arguments: args },
    );
  } else {
    out.push({
      type: 'response.output_item.added',
      output_index,
      item: { ...one, status: 'in_progress', content: [] },
    });
    for (const [content_index, part] of (one.content as Record<string, unknown>[]).entries()) {
      out.push(...partEvents({ ...place, content_index }, part));
    }
  }
  out.push({ type: 'response.output_item.done', output_index, item: one });
  return out;
}

function partEvents(at: Record<string, unknown>, part: Record<string, unknown>): Record<string, unknown>[] {
  const refusal = part.type === 'refusal';
  const words = String(refusal ? part.refusal : part.text);
  const kind = refusal ? 'response.refusal' : 'response.output_text';
  const more = refusal ? {} : { logprobs: [] };
  return [
    { type: 'response.content_part.added', ...at, part: { ...part, [refusal ? 'refusal' : 'text']: '' } },
    ...pieces(words).map((delta) => ({ type: `${kind}.delta`, ...at, delta, ...more, obfuscation: 'aZ9' })),
    ...((part.annotations ?? []) as unknown[]).map((annotation, annotation_index) => ({
      type: 'response.output_text.annotation.added',
      ...at,
      annotation_index,
      annotation,
    })),
    { type: `${kind}.done`, ...at, [refusal ? 'refusal' : 'text']: words, ...more },
    { type: 'response.content_part.done', ...at, part },
  ];
}

const pieces = (words: string): string[] => words.match(/.{1,5}/gsu) ?? [];

export const RESPONSES_KEY = 'sk-openai-responses';

export function startResponses(): Promise<StrictUpstream> {
  return startStrictUpstream({
    routes: [
      { method: 'POST', path: /^\/v1\/responses$/, body, answer: responses },
      {
        method: 'POST',
        path: /^\/v1\/chat\/completions$/,
        body: z.looseObject({}),
        answer: (_body, response) =>
          sendJson(
            response,
            404,
            error(404, 'This model is only supported in v1/responses and not in v1/chat/completions.'),
          ),
      },
    ],
    headers: { authorization: new RegExp(`^Bearer ${RESPONSES_KEY}$`) },
    optional: [],
    error,
  });
}
