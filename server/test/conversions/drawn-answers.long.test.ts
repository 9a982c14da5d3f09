/** Whatever a model answers, in whatever shape and pieces: every caller is told all of it, streamed or not, and nothing else. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/kernel/json.ts';
import { asArray, asObject } from '../../src/operations/convert/fields.ts';
import { awsFrame, providerOf } from './cases.ts';
import { readStream } from './clients.ts';
import { AWS, boundOf, CALLERS, type Caller, JSON_TYPE, Relayed, SSE } from './relayed.ts';

interface Call {
  readonly id: string;
  readonly name: string;
  readonly input: JsonObject;
}
interface Tokens {
  /** With what was read from and written to a cache. */
  readonly input: number;
  readonly read: number;
  readonly written: number;
  /** With what was thought. */
  readonly output: number;
  readonly thought: number;
}
interface Answer {
  readonly pieces: readonly string[];
  readonly calls: readonly Call[];
  readonly end: 'stop' | 'length' | 'filter';
  readonly tokens: Tokens;
}

const answer: fc.Arbitrary<Answer> = fc.record({
  pieces: fc.array(
    fc.oneof(
      fc.string({ unit: 'grapheme', maxLength: 8 }),
      fc.constantFrom('ü😀', '\n\n', 'data: [DONE]', '"', '\u2028'),
    ),
    { maxLength: 5 },
  ),
  calls: fc
    .array(
      fc.record({
        name: fc.constantFrom('weather', 'clock'),
        input: fc.dictionary(fc.constantFrom('a', 'ä'), fc.jsonValue({ maxDepth: 2 }), {
          maxKeys: 2,
        }) as fc.Arbitrary<JsonObject>,
      }),
      { maxLength: 3 },
    )
    .map((calls) => calls.map((call, i) => ({ ...call, id: `call_${i}` }))),
  end: fc.constantFrom('stop', 'stop', 'length', 'filter'),
  tokens: fc
    .record({ fresh: fc.nat(99), read: fc.nat(99), written: fc.nat(99), said: fc.nat(99), thought: fc.nat(99) })
    .map(({ fresh, read, written, said, thought }) => ({
      input: fresh + read + written,
      read,
      written,
      output: said + thought,
      thought,
    })),
});

/** Arguments as they stream: in two pieces, cut anywhere. */
const halves = (input: JsonObject): string[] => {
  const text = JSON.stringify(input);
  return [text.slice(0, text.length >> 1), text.slice(text.length >> 1)];
};
const sse = (events: readonly JsonObject[], named = false): Buffer =>
  Buffer.from(events.map((one) => `${named ? `event: ${one.type}\n` : ''}data: ${JSON.stringify(one)}\n\n`).join(''));

interface Shape {
  readonly provider: string;
  readonly model: string;
  /** What it cannot say of tokens. */
  readonly untold: readonly ('written' | 'thought')[];
  whole(answer: Answer): JsonObject;
  stream(answer: Answer): Buffer;
}

const ENDS = {
  chat: { stop: 'stop', length: 'length', filter: 'content_filter' },
  messages: { stop: 'end_turn', length: 'max_tokens', filter: 'refusal' },
  gemini: { stop: 'STOP', length: 'MAX_TOKENS', filter: 'SAFETY' },
  converse: { stop: 'end_turn', length: 'max_tokens', filter: 'content_filtered' },
} as const;

const chatUsage = ({ input, read, written, output, thought }: Tokens): JsonObject => ({
  prompt_tokens: input,
  completion_tokens: output,
  total_tokens: input + output,
  prompt_tokens_details: { cached_tokens: read, cache_write_tokens: written },
  completion_tokens_details: { reasoning_tokens: thought },
});
const chatCall = ({ id, name, input }: Call): JsonObject => ({
  id,
  type: 'function',
  function: { name, arguments: JSON.stringify(input) },
});
const chatEnd = ({ calls, end }: Answer): string =>
  end === 'stop' && calls.length > 0 ? 'tool_calls' : ENDS.chat[end];
const messagesUsage = ({ input, read, written, output, thought }: Tokens): JsonObject => ({
  input_tokens: input - read - written,
  cache_read_input_tokens: read,
  cache_creation_input_tokens: written,
  output_tokens: output,
  output_tokens_details: { thinking_tokens: thought },
});
const toolEnd = (shape: 'messages' | 'converse', { calls, end }: Answer): string =>
  end === 'stop' && calls.length > 0 ? 'tool_use' : ENDS[shape][end];
const converseUsage = ({ input, read, written, output }: Tokens): JsonObject => ({
  inputTokens: input - read - written,
  outputTokens: output,
  totalTokens: input + output,
  cacheReadInputTokens: read,
  cacheWriteInputTokens: written,
});
const geminiUsage = ({ input, read, output, thought }: Tokens): JsonObject => ({
  promptTokenCount: input,
  cachedContentTokenCount: read,
  candidatesTokenCount: output - thought,
  thoughtsTokenCount: thought,
});
const responsesUsage = ({ input, read, written, output, thought }: Tokens): JsonObject => ({
  input_tokens: input,
  input_tokens_details: { cached_tokens: read, cache_write_tokens: written },
  output_tokens: output,
  output_tokens_details: { reasoning_tokens: thought },
  total_tokens: input + output,
});

const chunk = (delta: JsonObject, finish: string | null = null): JsonObject => ({
  id: 'c-1',
  object: 'chat.completion.chunk',
  created: 1,
  model: 'deepseek-chat',
  choices: [{ index: 0, delta, finish_reason: finish }],
});

const chat: Shape = {
  provider: 'deepseek',
  model: 'deepseek-chat',
  untold: [],
  whole: (one) => ({
    id: 'c-1',
    object: 'chat.completion',
    created: 1,
    model: 'deepseek-chat',
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: one.pieces.join(''),
          ...(one.calls.length === 0 ? null : { tool_calls: one.calls.map(chatCall) }),
        },
        finish_reason: chatEnd(one),
      },
    ],
    usage: chatUsage(one.tokens),
  }),
  stream: (one) =>
    Buffer.concat([
      sse([
        chunk({ role: 'assistant', content: '' }),
        ...one.pieces.map((content) => chunk({ content })),
        ...one.calls.map(({ id, name }, index) =>
          chunk({ tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] }),
        ),
        // Pieces of all calls take turns.
        ...[0, 1].flatMap((half) =>
          one.calls.map(({ input }, index) =>
            chunk({ tool_calls: [{ index, function: { arguments: halves(input)[half] ?? '' } }] }),
          ),
        ),
        { ...chunk({}, chatEnd(one)), usage: chatUsage(one.tokens) },
      ]),
      Buffer.from('data: [DONE]\n\n'),
    ]),
};

const message = (one: Answer, more: JsonObject): JsonObject => ({
  id: 'm-1',
  type: 'message',
  role: 'assistant',
  model: 'claude-opus-4-6',
  stop_sequence: null,
  ...more,
  usage: { ...messagesUsage(one.tokens), ...asObject(more.usage) },
});

const messages: Shape = {
  provider: 'anthropic',
  model: 'claude-opus-4-6',
  untold: [],
  whole: (one) =>
    message(one, {
      content: [
        ...one.pieces.map((text) => ({ type: 'text', text })),
        ...one.calls.map(({ id, name, input }) => ({ type: 'tool_use', id, name, input })),
      ],
      stop_reason: toolEnd('messages', one),
    }),
  stream: (one) =>
    sse(
      [
        {
          type: 'message_start',
          message: message(one, {
            content: [],
            stop_reason: null,
            usage: { output_tokens: 0, output_tokens_details: null },
          }),
        },
        { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
        ...one.pieces.map((text) => ({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })),
        { type: 'content_block_stop', index: 0 },
        ...one.calls.flatMap(({ id, name, input }, i) => [
          { type: 'content_block_start', index: i + 1, content_block: { type: 'tool_use', id, name, input: {} } },
          { type: 'ping' },
          ...halves(input).map((partial_json) => ({
            type: 'content_block_delta',
            index: i + 1,
            delta: { type: 'input_json_delta', partial_json },
          })),
          { type: 'content_block_stop', index: i + 1 },
        ]),
        {
          type: 'message_delta',
          delta: { stop_reason: toolEnd('messages', one), stop_sequence: null },
          usage: messagesUsage(one.tokens),
        },
        { type: 'message_stop' },
      ] as JsonObject[],
      true,
    ),
};

const geminiParts = ({ pieces, calls }: Answer): JsonObject[] => [
  ...pieces.map((text) => ({ text })),
  ...calls.map(({ id, name, input }) => ({ functionCall: { id, name, args: input } })),
];
const candidate = (parts: JsonObject[], more: JsonObject = {}): JsonObject => ({
  candidates: [{ index: 0, content: { role: 'model', parts }, ...more }],
  modelVersion: 'gemini-3-pro-preview',
  responseId: 'g-1',
});

const gemini: Shape = {
  provider: 'google',
  model: 'gemini-3-pro-preview',
  untold: ['written'],
  whole: (one) => ({
    ...candidate(geminiParts(one), { finishReason: ENDS.gemini[one.end] }),
    usageMetadata: geminiUsage(one.tokens),
  }),
  stream: (one) =>
    sse([
      ...geminiParts(one).map((part) => candidate([part])),
      { ...candidate([{ text: '' }], { finishReason: ENDS.gemini[one.end] }), usageMetadata: geminiUsage(one.tokens) },
    ]),
};

const converse: Shape = {
  provider: 'bedrock',
  model: 'us.amazon.nova-pro-v1:0',
  untold: ['thought'],
  whole: (one) => ({
    output: {
      message: {
        role: 'assistant',
        content: [
          ...one.pieces.map((text) => ({ text })),
          ...one.calls.map(({ id, name, input }) => ({ toolUse: { toolUseId: id, name, input } })),
        ],
      },
    },
    stopReason: toolEnd('converse', one),
    usage: converseUsage(one.tokens),
  }),
  stream: (one) =>
    Buffer.concat(
      [
        ['messageStart', { role: 'assistant' }],
        ...one.pieces.map((text) => ['contentBlockDelta', { contentBlockIndex: 0, delta: { text } }]),
        ['contentBlockStop', { contentBlockIndex: 0 }],
        ...one.calls.flatMap(({ id, name, input }, i) => [
          ['contentBlockStart', { contentBlockIndex: i + 1, start: { toolUse: { toolUseId: id, name } } }],
          ...halves(input).map((half) => [
            'contentBlockDelta',
            { contentBlockIndex: i + 1, delta: { toolUse: { input: half } } },
          ]),
          ['contentBlockStop', { contentBlockIndex: i + 1 }],
        ]),
        ['messageStop', { stopReason: toolEnd('converse', one) }],
        ['metadata', { usage: converseUsage(one.tokens) }],
      ].map(([type, payload]) => awsFrame(type as string, payload as JsonObject)),
    ),
};

const REASONS = { stop: null, length: 'max_output_tokens', filter: 'content_filter' } as const;
const response = (one: Answer, output: JsonObject[]): JsonObject => ({
  id: 'r-1',
  object: 'response',
  created_at: 1,
  model: 'gpt-5-mini',
  output,
  status: one.end === 'stop' ? 'completed' : 'incomplete',
  incomplete_details: REASONS[one.end] === null ? null : { reason: REASONS[one.end] },
  usage: responsesUsage(one.tokens),
});
const said = (one: Answer): JsonObject => ({
  type: 'message',
  id: 'msg',
  role: 'assistant',
  status: 'completed',
  content: [{ type: 'output_text', text: one.pieces.join(''), annotations: [], logprobs: [] }],
});
const callItem = ({ id, name, input }: Call): JsonObject => ({
  type: 'function_call',
  id: `fc_${id}`,
  call_id: id,
  name,
  arguments: JSON.stringify(input),
  status: 'completed',
});

const responses: Shape = {
  provider: 'responses',
  model: 'gpt-5-mini',
  untold: [],
  whole: (one) => response(one, [said(one), ...one.calls.map(callItem)]),
  stream: (one) =>
    sse(
      (
        [
          { type: 'response.created', response: { ...response(one, []), status: 'in_progress', usage: null } },
          { type: 'response.output_item.added', output_index: 0, item: { ...said(one), content: [] } },
          {
            type: 'response.content_part.added',
            item_id: 'msg',
            output_index: 0,
            content_index: 0,
            part: { type: 'output_text', text: '', annotations: [], logprobs: [] },
          },
          ...one.pieces.map((delta) => ({
            type: 'response.output_text.delta',
            item_id: 'msg',
            output_index: 0,
            content_index: 0,
            delta,
          })),
          { type: 'response.output_item.done', output_index: 0, item: said(one) },
          ...one.calls.flatMap((call, i) => [
            { type: 'response.output_item.added', output_index: i + 1, item: { ...callItem(call), arguments: '' } },
            ...halves(call.input).map((delta) => ({
              type: 'response.function_call_arguments.delta',
              item_id: `fc_${call.id}`,
              output_index: i + 1,
              delta,
            })),
            { type: 'response.output_item.done', output_index: i + 1, item: callItem(call) },
          ]),
          {
            type: one.end === 'stop' ? 'response.completed' : 'response.incomplete',
            response: response(one, [said(one), ...one.calls.map(callItem)]),
          },
        ] as JsonObject[]
      ).map((event, sequence_number) => ({ ...event, sequence_number })),
      true,
    ),
};

interface Facts {
  text: string;
  calls: unknown[];
  end: unknown;
  usage: Partial<Tokens>;
}

const parse = (text: unknown): unknown => JSON.parse(String(text));

/** What a caller is told, from its answer in one piece. */
function factsOf(caller: Caller, body: JsonObject): Facts {
  const usage = asObject(body.usage);
  if (caller === 'chat') {
    const { message: told, finish_reason: end } = asObject(asArray(body.choices)[0]);
    const { content, tool_calls } = asObject(told);
    const calls = asArray(tool_calls).map((call) => {
      const { id, function: called } = asObject(call);
      return { id, name: asObject(called).name, input: parse(asObject(called).arguments) };
    });
    const [prompt, completion] = [asObject(usage.prompt_tokens_details), asObject(usage.completion_tokens_details)];
    return {
      text: String(content ?? ''),
      calls,
      end,
      usage: {
        input: Number(usage.prompt_tokens),
        output: Number(usage.completion_tokens),
        read: Number(prompt.cached_tokens),
        written: Number(prompt.cache_write_tokens),
        thought: Number(completion.reasoning_tokens),
      },
    };
  }
  if (caller === 'messages') {
    const blocks = asArray(body.content).map(asObject);
    const [read, written] = [Number(usage.cache_read_input_tokens), Number(usage.cache_creation_input_tokens)];
    return {
      text: blocks.map(({ type, text }) => (type === 'text' ? text : '')).join(''),
      calls: blocks.filter(({ type }) => type === 'tool_use').map(({ id, name, input }) => ({ id, name, input })),
      end: body.stop_reason,
      usage: {
        input: Number(usage.input_tokens) + read + written,
        output: Number(usage.output_tokens),
        read,
        written,
        thought: Number(asObject(usage.output_tokens_details).thinking_tokens ?? 0),
      },
    };
  }
  const items = asArray(body.output).map(asObject);
  const [into, out] = [asObject(usage.input_tokens_details), asObject(usage.output_tokens_details)];
  return {
    text: items.flatMap(({ content }) => asArray(content).map((part) => asObject(part).text)).join(''),
    calls: items
      .filter(({ type }) => type === 'function_call')
      .map(({ call_id: id, name, arguments: text }) => ({ id, name, input: parse(text) })),
    end: asObject(body.incomplete_details).reason ?? null,
    usage: {
      input: Number(usage.input_tokens),
      output: Number(usage.output_tokens),
      read: Number(into.cached_tokens),
      written: Number(into.cache_write_tokens),
      thought: Number(out.reasoning_tokens),
    },
  };
}

function expected(caller: Caller, shape: Shape, one: Answer): Facts {
  const called = one.end === 'stop' && one.calls.length > 0;
  const ends = {
    chat: called ? 'tool_calls' : ENDS.chat[one.end],
    messages: called ? 'tool_use' : ENDS.messages[one.end],
    responses: REASONS[one.end],
  };
  const untold = Object.fromEntries(shape.untold.map((name) => [name, 0]));
  return { text: one.pieces.join(''), calls: [...one.calls], end: ends[caller], usage: { ...one.tokens, ...untold } };
}

const HELLO: Record<Caller, JsonObject> = {
  chat: { messages: [], stream_options: { include_usage: true } },
  messages: { messages: [], max_tokens: 9 },
  responses: { input: '' },
};

describe.each(Object.entries({ chat, messages, gemini, converse, responses }))('an answer of %s', (_name, shape) => {
  const way = (caller: Caller, stream: boolean) => ({
    caller,
    provider: providerOf(shape.provider),
    asked: { model: shape.model, ...HELLO[caller], ...(stream ? { stream: true } : null) },
  });
  for (const caller of CALLERS) {
    if (boundOf(way(caller, false)) === null) continue;
    it(`is told to ${caller} whole`, () => {
      const relayed = new Relayed(way(caller, false));
      fc.assert(
        fc.property(answer, (one) => {
          const told = relayed.answer([Buffer.from(JSON.stringify(shape.whole(one)))], JSON_TYPE);
          expect(factsOf(caller, JSON.parse(told.text) as JsonObject)).toEqual(expected(caller, shape, one));
        }),
        { numRuns: 60 },
      );
    });
    it(`streams to ${caller} whole, whatever its pieces and wherever they are cut`, async () => {
      const [relayed, unary] = [new Relayed(way(caller, true)), new Relayed(way(caller, false))];
      await fc.assert(
        fc.asyncProperty(answer, fc.array(fc.nat(), { maxLength: 4 }), async (one, cuts) => {
          const bytes = shape.stream(one);
          const places = [0, ...cuts.map((cut) => cut % bytes.length).sort((a, b) => a - b), bytes.length];
          const chunks = places.slice(1).map((to, i) => bytes.subarray(places[i], to));
          const told = relayed.answer(chunks, shape === converse ? AWS : SSE);
          expect(told.outcome).toBe('ok');
          const whole = unary.answer([Buffer.from(JSON.stringify(shape.whole(one)))], JSON_TYPE);
          expect(told.usage).toEqual(whole.usage);
          const { text, calls, end } = expected(caller, shape, one);
          expect(saidBy(caller, await readStream(caller, told.text))).toEqual({ content: text, calls, end });
        }),
        { numRuns: 40 },
      );
    });
  }
});

/** Text and calls that an official client has read from a stream. */
function saidBy(caller: Caller, read: unknown): { content: unknown; calls: unknown[]; end: unknown } {
  if (caller === 'chat') {
    const choice = asObject(asArray((read as JsonObject).message)[0]);
    const calls = asArray(choice.calls).map((call) => {
      const { id, name, arguments: input } = asObject(call);
      return { id, name, input };
    });
    return { content: choice.content, calls, end: choice.finish_reason };
  }
  if (caller === 'messages') {
    const blocks = asArray((read as JsonObject).blocks).map(asObject);
    return {
      content: blocks.map(({ type, text }) => (type === 'text' ? text : '')).join(''),
      calls: blocks.filter(({ type }) => type === 'tool_use').map(({ id, name, input }) => ({ id, name, input })),
      end: (read as JsonObject).stop_reason,
    };
  }
  const items = asArray((read as JsonObject).items).map(asObject);
  return {
    end: asObject((read as JsonObject).incomplete_details).reason ?? null,
    content: items.flatMap(({ content }) => asArray(content).map((part) => asObject(part).text)).join(''),
    calls: items
      .filter(({ type }) => type === 'function_call')
      .map(({ call_id: id, name, arguments: input }) => ({ id, name, input })),
  };
}
