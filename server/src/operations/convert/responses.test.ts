import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject, JsonValue } from '../../kernel/json.ts';
import type { StreamEvent } from '../stream.ts';
import type { ConvertContext, ConvertTarget } from './conversion.ts';
import { conversion } from './index.ts';
import { deepFreeze, parsed, refusal, runStream, testContext } from './testing.ts';

function toChat(body: JsonObject, target: ConvertTarget = {}): JsonObject {
  const convert = conversion('responses', 'chat', target);
  const given = deepFreeze({ model: 'm', input: 'hi', ...body });
  const once = convert?.request(given, testContext());
  expect(convert?.request(given, testContext())).toEqual(once);
  return once ?? {};
}

const fnTool = { type: 'function', name: 'f', description: 'd', parameters: { type: 'object' }, strict: true };
const callItem = (call_id: string, text = '{}'): JsonObject => ({
  type: 'function_call',
  call_id,
  name: 'f',
  arguments: text,
});
const output = (call_id: string): JsonObject => ({ type: 'function_call_output', call_id, output: `r-${call_id}` });

describe('Responses request to chat completions', () => {
  it('writes instructions first and a text input as one user message', () => {
    expect(toChat({ instructions: 'Be brief.' }).messages).toEqual([
      { role: 'developer', content: 'Be brief.' },
      { role: 'user', content: 'hi' },
    ]);
  });

  it('joins calls that follow each other, and the text before them, to one assistant message', () => {
    const input = [
      { role: 'user', content: 'q' },
      { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'ok', annotations: [] }] },
      { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'hm' }], encrypted_content: 'x' },
      callItem('a', '{"n":12345678901234567890}'),
      callItem('b'),
      output('a'),
      output('b'),
      callItem('c'),
      output('c'),
    ];
    const call = (id: string, text = '{}'): JsonObject => ({
      id,
      type: 'function',
      function: { name: 'f', arguments: text },
    });
    expect(toChat({ input }).messages).toEqual([
      { role: 'user', content: 'q' },
      { role: 'assistant', content: 'ok', tool_calls: [call('a', '{"n":12345678901234567890}'), call('b')] },
      { role: 'tool', tool_call_id: 'a', content: 'r-a' },
      { role: 'tool', tool_call_id: 'b', content: 'r-b' },
      { role: 'assistant', content: null, tool_calls: [call('c')] },
      { role: 'tool', tool_call_id: 'c', content: 'r-c' },
    ]);
  });

  it.each<[string, JsonObject, JsonObject]>([
    ['text', { type: 'input_text', text: 'x' }, { type: 'text', text: 'x' }],
    [
      'image',
      { type: 'input_image', image_url: 'https://a.example/i.png', detail: 'low' },
      { type: 'image_url', image_url: { url: 'https://a.example/i.png', detail: 'low' } },
    ],
    [
      'file',
      { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBE' },
      { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBE' } },
    ],
  ])('converts a part: %s', (_name, part, expected) => {
    const input = [{ role: 'user', content: [{ type: 'input_text', text: 'a' }, part] }];
    expect((toChat({ input }).messages as JsonObject[])[0]?.content).toEqual([{ type: 'text', text: 'a' }, expected]);
  });

  it.each<[string, JsonObject, JsonObject]>([
    ['max_output_tokens', { max_output_tokens: 50 }, { max_completion_tokens: 50 }],
    [
      'tools',
      { tools: [fnTool] },
      {
        tools: [
          { type: 'function', function: { name: 'f', description: 'd', parameters: { type: 'object' }, strict: true } },
        ],
      },
    ],
    [
      'a named choice',
      { tools: [fnTool], tool_choice: { type: 'function', name: 'f' } },
      { tool_choice: { type: 'function', function: { name: 'f' } } },
    ],
    [
      'allowed tools',
      {
        tools: [fnTool],
        tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'f' }] },
      },
      {
        tool_choice: {
          type: 'allowed_tools',
          allowed_tools: { mode: 'auto', tools: [{ type: 'function', function: { name: 'f' } }] },
        },
      },
    ],
    ['effort', { reasoning: { effort: 'high', summary: 'auto' } }, { reasoning_effort: 'high' }],
    [
      'a schema',
      { text: { format: { type: 'json_schema', name: 'n', schema: { type: 'object' }, strict: true } } },
      {
        response_format: { type: 'json_schema', json_schema: { name: 'n', schema: { type: 'object' }, strict: true } },
      },
    ],
    ['logprobs', { include: ['message.output_text.logprobs'], top_logprobs: 2 }, { logprobs: true, top_logprobs: 2 }],
    ['stream', { stream: true }, { stream: true, stream_options: { include_usage: true } }],
  ])('converts %s', (_name, body, expected) => {
    expect(toChat(body)).toMatchObject(expected);
  });

  it.each<[string, JsonValue]>([
    ['previous_response_id', 'resp_1'],
    ['conversation', 'conv_1'],
    ['background', true],
    ['prompt', { id: 'p' }],
    ['truncation', 'auto'],
    ['max_tool_calls', 3],
    ['context_management', [{ type: 'compaction' }]],
    ['service_tier', 'flex'],
  ])('refuses %s by name', (name, value) => {
    expect(refusal(() => toChat({ [name]: value }))).toEqual({ kind: 'unsupported_parameter', param: name });
  });

  it.each<[string, JsonObject, string]>([
    ['a hosted tool', { tools: [{ type: 'web_search' }] }, 'tools[0]'],
    ['a custom call', { input: [{ type: 'custom_tool_call', call_id: 'x' }] }, 'input[0].type'],
    ['a stored item', { input: [{ type: 'item_reference', id: 'x' }] }, 'input[0].type'],
    [
      'a stored image',
      { input: [{ role: 'user', content: [{ type: 'input_image', file_id: 'f' }] }] },
      'input[0].content[0].file_id',
    ],
  ])('refuses %s', (_name, body, param) => {
    expect(refusal(() => toChat(body))).toEqual({ kind: 'unsupported_parameter', param });
  });

  it('answers 400 to an output without call and to the same call twice', () => {
    expect(refusal(() => toChat({ input: [output('a')] })).param).toBe('input[0].call_id');
    expect(refusal(() => toChat({ input: [callItem('a'), callItem('a')] })).param).toBe('input[1].call_id');
  });

  it('never throws anything but a clear refusal, whatever the body holds', () => {
    fc.assert(
      fc.property(fc.object({ maxDepth: 4 }), fc.array(fc.object({ maxDepth: 3 })), (body, input) => {
        try {
          conversion('responses', 'chat')?.request({ ...body, input } as JsonObject, testContext());
        } catch (error) {
          expect(error).toBeInstanceOf(SluiceError);
        }
      }),
    );
  });
});

const asked: JsonObject = {
  model: 'm',
  input: 'hi',
  instructions: 'Be brief.',
  tools: [fnTool],
  temperature: 0.5,
  metadata: { a: 'b' },
};
const context: Partial<ConvertContext> = { body: asked, stream: true };

describe('chat completion to Responses answer', () => {
  const answer = (message: JsonObject, finish = 'stop'): JsonObject =>
    conversion('responses', 'chat', { reasoning: { field: 'reasoning_content' } })?.response(
      deepFreeze({
        id: 'c1',
        model: 'gpt',
        choices: [{ index: 0, message: { role: 'assistant', ...message }, finish_reason: finish }],
        usage: { prompt_tokens: 8, completion_tokens: 3, completion_tokens_details: { reasoning_tokens: 2 } },
      }),
      testContext({ body: { ...asked, reasoning: { summary: 'auto' } } }),
    ) ?? {};

  it('lists reasoning, text and calls as items and repeats what was asked', () => {
    const out = answer(
      {
        content: 'hello',
        reasoning_content: 'hm',
        tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }],
      },
      'tool_calls',
    );
    expect(out).toMatchObject({
      id: 'resp_c1',
      object: 'response',
      created_at: 1_700_000_000,
      status: 'completed',
      error: null,
      incomplete_details: null,
      instructions: 'Be brief.',
      temperature: 0.5,
      top_p: null,
      metadata: { a: 'b' },
      tools: [fnTool],
      tool_choice: 'auto',
      parallel_tool_calls: true,
      output: [
        { type: 'reasoning', summary: [{ type: 'summary_text', text: 'hm' }] },
        { type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: 'hello' }] },
        { type: 'function_call', call_id: 'call_1', name: 'f', arguments: '{"a":1}', status: 'completed' },
      ],
      usage: {
        input_tokens: 8,
        input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 },
        output_tokens: 3,
        output_tokens_details: { reasoning_tokens: 2 },
        total_tokens: 11,
      },
    });
  });

  it.each([
    ['length', 'max_output_tokens'],
    ['content_filter', 'content_filter'],
  ])('is incomplete after finish reason %s', (finish, reason) => {
    expect(answer({ content: 'a' }, finish)).toMatchObject({ status: 'incomplete', incomplete_details: { reason } });
  });

  it('keeps a refusal as its own part', () => {
    expect(answer({ refusal: 'no' }).output).toMatchObject([{ content: [{ type: 'refusal', refusal: 'no' }] }]);
  });
});

const chunk = (delta: JsonObject, finish: string | null = null): JsonObject => ({
  id: 'c1',
  model: 'gpt',
  choices: [{ index: 0, delta, finish_reason: finish }],
});
const piece = (index: number, text: string, id?: string): JsonObject => ({
  tool_calls: [
    { index, ...(id ? { id } : null), function: { ...(id ? { name: `f${index}` } : null), arguments: text } },
  ],
});

function stream(events: readonly (JsonObject | string)[], more: Partial<ConvertContext> = {}): StreamEvent[] {
  const transform = conversion('responses', 'chat', { reasoning: { field: 'reasoning_content' } })?.stream(
    testContext({ ...context, ...more }),
  );
  if (transform === undefined) throw new Error('no conversion');
  return runStream(transform, events);
}

describe('chat chunks to Responses events', () => {
  it('walks through every event of a text, numbered from 0', () => {
    const out = stream([
      chunk({ role: 'assistant', content: '' }),
      chunk({ content: 'Hel' }),
      chunk({ content: 'lo' }, 'stop'),
      { id: 'c1', choices: [], usage: { prompt_tokens: 8, completion_tokens: 3 } },
      '[DONE]',
    ]);
    const bodies = parsed(out);
    expect(bodies.map(({ type }) => type)).toEqual([
      'response.created',
      'response.in_progress',
      'response.output_item.added',
      'response.content_part.added',
      'response.output_text.delta',
      'response.output_text.delta',
      'response.output_text.done',
      'response.content_part.done',
      'response.output_item.done',
      'response.completed',
    ]);
    expect(bodies.map((body) => body.sequence_number)).toEqual(bodies.map((_, i) => i));
    expect(out.map(({ event }) => event)).toEqual(bodies.map(({ type }) => type));
    expect(bodies.at(-1)).toMatchObject({
      response: {
        status: 'completed',
        instructions: 'Be brief.',
        usage: { input_tokens: 8, output_tokens: 3 },
        output: [{ type: 'message', content: [{ type: 'output_text', text: 'Hello' }] }],
      },
    });
  });

  it('puts every call together from its own events, however the pieces are mixed', () => {
    const args = ['{"a":"}{"}', '{"b":[1]}', ''];
    fc.assert(
      fc.property(fc.array(fc.nat(2), { minLength: 30, maxLength: 30 }), (order) => {
        const left = args.map((text) => [...text]);
        const events: JsonObject[] = [chunk({ content: 'hi' }), ...args.map((_, i) => chunk(piece(i, '', `id${i}`)))];
        for (const i of [...order, ...args.flatMap((_, k) => Array<number>(12).fill(k))]) {
          const text = left[i]?.shift();
          if (text !== undefined) events.push(chunk(piece(i, text)));
        }
        const bodies = parsed(stream([...events, chunk({}, 'tool_calls'), '[DONE]']));
        const final = bodies.at(-1)?.response as JsonObject & { output: JsonObject[] };
        const want = args.map((text, i) => ({
          type: 'function_call',
          call_id: `id${i}`,
          name: `f${i}`,
          arguments: text || '{}',
        }));
        expect(final.output).toMatchObject([{ type: 'message' }, ...want]);
        final.output.forEach((item, at) => {
          const of = bodies.filter((body) => body.output_index === at);
          expect(of.at(0)).toMatchObject({ type: 'response.output_item.added', item: { id: item.id } });
          expect(of.at(-1)).toMatchObject({ type: 'response.output_item.done', item });
          const deltas = of.filter((body) => body.type === 'response.function_call_arguments.delta');
          if (item.type === 'function_call') {
            expect(deltas.map((body) => body.delta).join('') || '{}').toBe(item.arguments);
            expect(of.filter((body) => body.item_id !== undefined && body.item_id !== item.id)).toEqual([]);
          }
        });
      }),
    );
  });

  it('streams reasoning as a summary only when one was asked for', () => {
    const events = [chunk({ reasoning_content: 'hm' }), chunk({ content: 'a' }, 'stop'), '[DONE]'];
    expect(JSON.stringify(parsed(stream(events)))).not.toContain('hm');
    const kinds = parsed(stream(events, { body: { reasoning: { summary: 'auto' } } })).map(({ type }) => type);
    expect(kinds.filter((type) => String(type).includes('reasoning'))).toEqual([
      'response.reasoning_summary_part.added',
      'response.reasoning_summary_text.delta',
      'response.reasoning_summary_text.done',
      'response.reasoning_summary_part.done',
    ]);
  });

  it('ends in an error and without an end event when cut or when an error comes', () => {
    const failed = { error: { message: 'busy', type: 'server_error' } };
    for (const events of [
      [],
      [chunk({ content: 'a' })],
      [chunk({ content: 'a' }), failed, chunk({}, 'stop'), '[DONE]'],
    ]) {
      const bodies = parsed(stream(events));
      expect(bodies.at(-1)).toMatchObject({ type: 'error', sequence_number: bodies.length - 1 });
      expect(bodies.filter(({ type }) => type === 'response.completed')).toEqual([]);
    }
  });

  it('never throws and always ends in exactly one end or error event, whatever comes', () => {
    const anything = fc.array(fc.oneof(fc.object({ maxDepth: 4 }), fc.string(), fc.constant('[DONE]')), {
      maxLength: 6,
    });
    fc.assert(
      fc.property(anything, (events) => {
        const kinds = parsed(stream(events as JsonObject[])).map(({ type }) => type);
        expect(kinds.filter((type) => type === 'response.completed' || type === 'error')).toHaveLength(1);
      }),
    );
  });
});

describe('Responses over Messages', () => {
  const convert = conversion('responses', 'messages');

  it('goes through chat in both directions', () => {
    const body = deepFreeze<JsonObject>({
      model: 'm',
      instructions: 'Be brief.',
      input: 'hi',
      tools: [fnTool],
      max_output_tokens: 99,
      reasoning: { effort: 'low' },
      stream: true,
    });
    expect(convert?.request(body, testContext())).toEqual({
      model: 'model-1',
      max_tokens: 99,
      system: [{ type: 'text', text: 'Be brief.' }],
      messages: [{ role: 'user', content: 'hi' }],
      tools: [{ name: 'f', description: 'd', input_schema: { type: 'object' }, strict: true }],
      output_config: { effort: 'low' },
      stream: true,
    });
    const answer = deepFreeze<JsonObject>({
      id: 'msg_1',
      model: 'claude',
      content: [
        { type: 'thinking', thinking: 'hm', signature: 's' },
        { type: 'text', text: 'hello' },
      ],
      stop_reason: 'end_turn',
      usage: { input_tokens: 1, output_tokens: 2 },
    });
    const shown = convert?.response(answer, testContext({ body: { reasoning: { summary: 'auto' } } }));
    expect(shown?.output).toMatchObject([{ type: 'reasoning' }, { type: 'message' }]);
    expect(convert?.response(answer, testContext())?.output).toMatchObject([{ type: 'message' }]);
  });

  it('streams text and usage, and passes errors on', () => {
    const transform = convert?.stream(testContext({ body: asked }));
    if (transform === undefined) throw new Error('no conversion');
    const bodies = parsed(
      runStream(transform, [
        {
          type: 'message_start',
          message: { id: 'msg_1', model: 'claude', usage: { input_tokens: 4, output_tokens: 1 } },
        },
        { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
        { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'hello' } },
        { type: 'content_block_stop', index: 0 },
        { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 6 } },
        { type: 'message_stop' },
      ]),
    );
    expect(bodies.at(-1)).toMatchObject({
      type: 'response.completed',
      response: { usage: { input_tokens: 4, output_tokens: 6 }, output: [{ content: [{ text: 'hello' }] }] },
    });
    const cut = convert?.stream(testContext({ body: asked }));
    if (cut === undefined) throw new Error('no conversion');
    const error = { type: 'error', error: { type: 'overloaded_error', message: 'busy' } };
    expect(parsed(runStream(cut, [error]))).toEqual([
      { type: 'error', code: 'overloaded', message: 'busy', param: null, sequence_number: 0 },
    ]);
  });
});
