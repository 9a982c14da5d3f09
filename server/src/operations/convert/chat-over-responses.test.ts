import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject, JsonValue } from '../../kernel/json.ts';
import type { ConvertContext, ConvertTarget } from './conversion.ts';
import { conversion } from './index.ts';
import { deepFreeze, refusal, testContext } from './testing.ts';

type From = 'chat' | 'messages';

function toResponses(
  body: JsonObject,
  more: Partial<ConvertContext> = {},
  from: From = 'chat',
  target: ConvertTarget = {},
): JsonObject {
  const convert = conversion(from, 'responses', target);
  const given = deepFreeze({ model: 'm', messages: [{ role: 'user', content: 'hi' }], ...body });
  const once = convert?.request(given, testContext(more));
  expect(convert?.request(given, testContext(more))).toEqual(once);
  return once ?? {};
}

const input = (...messages: JsonObject[]): JsonValue | undefined => toResponses({ messages }).input;
const user = (content: JsonValue): JsonObject => ({ role: 'user', content });
const said = (content: JsonValue): JsonObject => ({ type: 'message', role: 'user', content });
const call = (id: string, args = '{}'): JsonObject => ({
  id,
  type: 'function',
  function: { name: 'f', arguments: args },
});

describe('chat completions request to Responses', () => {
  it('stores nothing unless the caller asks for it', () => {
    expect(toResponses({})).toEqual({ model: 'model-1', input: [said('hi')], store: false });
    expect(toResponses({ store: true, metadata: { a: 'b' } })).toMatchObject({ store: true, metadata: { a: 'b' } });
    expect(toResponses({ store: null })).toMatchObject({ store: false });
  });

  it('keeps instructions where they stand, under the role they have', () => {
    expect(
      input({ role: 'system', content: 'a' }, user('q'), { role: 'developer', content: [{ type: 'text', text: 'b' }] }),
    ).toEqual([
      { type: 'message', role: 'system', content: 'a' },
      said('q'),
      { type: 'message', role: 'developer', content: [{ type: 'input_text', text: 'b' }] },
    ]);
  });

  it.each<[string, JsonObject, JsonObject]>([
    ['a text', { type: 'text', text: 'x', cache_control: { type: 'ephemeral' } }, { type: 'input_text', text: 'x' }],
    [
      'a text with a mark for the cache',
      { type: 'text', text: 'x', prompt_cache_breakpoint: { mode: 'explicit' } },
      { type: 'input_text', text: 'x', prompt_cache_breakpoint: { mode: 'explicit' } },
    ],
    [
      'an image by its address',
      { type: 'image_url', image_url: { url: 'https://a.example/i.png', detail: 'low' } },
      { type: 'input_image', image_url: 'https://a.example/i.png', detail: 'low' },
    ],
    [
      'an image as data, its address not in an object',
      { type: 'image_url', image_url: 'data:image/png;base64,AAAA' },
      { type: 'input_image', image_url: 'data:image/png;base64,AAAA', detail: 'auto' },
    ],
    [
      'a file as data',
      { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBE' } },
      { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBE' },
    ],
    ['a stored file', { type: 'file', file: { file_id: 'file-1' } }, { type: 'input_file', file_id: 'file-1' }],
  ])('converts %s', (_name, part, expected) => {
    expect(input(user([part]))).toEqual([said([expected])]);
  });

  it('writes what the assistant said as its own parts, then its calls, then their results', () => {
    expect(
      input(
        user('q'),
        { role: 'assistant', content: 'Let me see.', tool_calls: [call('a', '{"n":12345678901234567890}'), call('b')] },
        { role: 'tool', tool_call_id: 'b', content: [{ type: 'text', text: 'rb' }] },
        { role: 'tool', tool_call_id: 'a', content: 'ra' },
        { role: 'assistant', content: [{ type: 'text', text: 'Done.' }] },
        { role: 'assistant', content: null, refusal: 'No.' },
        { role: 'assistant', content: '' },
      ),
    ).toEqual([
      said('q'),
      { type: 'message', role: 'assistant', content: 'Let me see.' },
      { type: 'function_call', call_id: 'a', name: 'f', arguments: '{"n":12345678901234567890}' },
      { type: 'function_call', call_id: 'b', name: 'f', arguments: '{}' },
      { type: 'function_call_output', call_id: 'b', output: [{ type: 'input_text', text: 'rb' }] },
      { type: 'function_call_output', call_id: 'a', output: 'ra' },
      {
        type: 'message',
        role: 'assistant',
        content: [{ type: 'output_text', text: 'Done.', annotations: [] }],
      },
      { type: 'message', role: 'assistant', content: [{ type: 'refusal', refusal: 'No.' }] },
    ]);
  });

  it('converts custom tools, their calls and results', () => {
    const grammar = { type: 'grammar', grammar: { syntax: 'lark', definition: 'start: "a"' } };
    const body = toResponses({
      tools: [{ type: 'custom', custom: { name: 'sql', description: 'd', format: grammar } }],
      tool_choice: { type: 'custom', custom: { name: 'sql' } },
      messages: [
        user('q'),
        { role: 'assistant', tool_calls: [{ id: 'c', type: 'custom', custom: { name: 'sql', input: 'select 1' } }] },
        { role: 'tool', tool_call_id: 'c', content: '1' },
      ],
    });
    expect(body).toMatchObject({
      tools: [
        {
          type: 'custom',
          name: 'sql',
          description: 'd',
          format: { type: 'grammar', syntax: 'lark', definition: 'start: "a"' },
        },
      ],
      tool_choice: { type: 'custom', name: 'sql' },
    });
    expect((body.input as JsonObject[]).slice(1)).toEqual([
      { type: 'custom_tool_call', call_id: 'c', name: 'sql', input: 'select 1' },
      { type: 'custom_tool_call_output', call_id: 'c', output: '1' },
    ]);
  });

  it('converts the functions and calls of the older form', () => {
    const body = toResponses({
      functions: [{ name: 'f' }],
      function_call: { name: 'f' },
      messages: [
        user('q'),
        { role: 'assistant', content: null, function_call: { name: 'f', arguments: '' } },
        { role: 'function', name: 'f', content: 'r' },
      ],
    });
    expect(body).toMatchObject({
      tools: [{ type: 'function', name: 'f', parameters: { type: 'object', properties: {} }, strict: false }],
      tool_choice: { type: 'function', name: 'f' },
    });
    expect((body.input as JsonObject[]).slice(1)).toEqual([
      { type: 'function_call', call_id: 'call_legacy_1', name: 'f', arguments: '{}' },
      { type: 'function_call_output', call_id: 'call_legacy_1', output: 'r' },
    ]);
  });

  it('shortens call ids that are too long, in the call and its result alike and in the next turn again', () => {
    const id = 'call_'.padEnd(90, 'x');
    const turn = () =>
      input({ role: 'assistant', tool_calls: [call(id)] }, { role: 'tool', tool_call_id: id, content: 'r' });
    const [made, answered] = turn() as JsonObject[];
    expect(made?.call_id).toMatch(/^[0-9a-f]{64}$/);
    expect(answered?.call_id).toBe(made?.call_id);
    expect(turn()).toEqual(turn());
  });

  it('sends reasoning back that a caller was shown, before the calls it led to', () => {
    const item = { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'gAAA' };
    const others = [{ type: 'reasoning', id: 'rs_2', summary: [] }, { type: 'thinking', thinking: 'x' }, null];
    expect(
      input({
        role: 'assistant',
        content_blocks: [{ ...item, status: 'completed' }, ...others],
        tool_calls: [call('a')],
      }),
    ).toEqual([item, { type: 'function_call', call_id: 'a', name: 'f', arguments: '{}' }]);
  });

  const tool = (more: JsonObject = {}): JsonObject => ({
    type: 'function',
    function: { name: 'f', description: 'd', parameters: { type: 'object' }, ...more },
  });
  const flat = { type: 'function', name: 'f', description: 'd', parameters: { type: 'object' } };

  it.each<[string, JsonObject, JsonObject]>([
    ['max_completion_tokens', { max_completion_tokens: 50, max_tokens: 90 }, { max_output_tokens: 50 }],
    ['max_tokens', { max_tokens: 16 }, { max_output_tokens: 16 }],
    [
      'tools, strict only where chat said so',
      { tools: [tool(), tool({ strict: true })] },
      {
        tools: [
          { ...flat, strict: false },
          { ...flat, strict: true },
        ],
      },
    ],
    ['a choice by its word', { tools: [tool()], tool_choice: 'required' }, { tool_choice: 'required' }],
    [
      'a named choice',
      { tools: [tool()], tool_choice: { type: 'function', function: { name: 'f' } } },
      { tool_choice: { type: 'function', name: 'f' } },
    ],
    [
      'allowed tools',
      {
        tools: [tool()],
        tool_choice: {
          type: 'allowed_tools',
          allowed_tools: { mode: 'required', tools: [{ type: 'function', function: { name: 'f' } }] },
        },
      },
      { tool_choice: { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'f' }] } },
    ],
    ['one call at a time', { tools: [tool()], parallel_tool_calls: false }, { parallel_tool_calls: false }],
    [
      'effort and verbosity',
      { reasoning_effort: 'high', verbosity: 'low' },
      {
        reasoning: { effort: 'high' },
        text: { verbosity: 'low' },
      },
    ],
    [
      'thinking, with a summary',
      { thinking: { type: 'enabled', budget_tokens: 4000 } },
      {
        reasoning: { effort: 'medium', summary: 'auto' },
      },
    ],
    [
      'thinking that nobody is to see',
      { thinking: { type: 'enabled', budget_tokens: 1024, display: 'omitted' } },
      {
        reasoning: { effort: 'low' },
      },
    ],
    [
      'a schema',
      {
        response_format: {
          type: 'json_schema',
          json_schema: { name: 'n', description: 'd', schema: { type: 'object' }, strict: true },
        },
      },
      {
        text: {
          format: { type: 'json_schema', name: 'n', description: 'd', schema: { type: 'object' }, strict: true },
        },
      },
    ],
    [
      'JSON without a schema',
      { response_format: { type: 'json_object' } },
      { text: { format: { type: 'json_object' } } },
    ],
    ['logprobs', { logprobs: true, top_logprobs: 2 }, { top_logprobs: 2, include: ['message.output_text.logprobs'] }],
    [
      'a search',
      {
        web_search_options: {
          search_context_size: 'low',
          user_location: { type: 'approximate', approximate: { country: 'DE', city: 'Berlin' } },
        },
      },
      {
        tools: [
          {
            type: 'web_search',
            search_context_size: 'low',
            user_location: { type: 'approximate', country: 'DE', city: 'Berlin' },
          },
        ],
      },
    ],
    [
      'a stream, its bytes not padded',
      { stream: true, stream_options: { include_usage: true, include_obfuscation: false } },
      {
        stream: true,
        stream_options: { include_obfuscation: false },
      },
    ],
    [
      'what has the same name',
      { temperature: 0.5, top_p: 0.9, user: 'u', safety_identifier: 's', prompt_cache_key: 'k', service_tier: 'flex' },
      { temperature: 0.5, top_p: 0.9, user: 'u', safety_identifier: 's', prompt_cache_key: 'k', service_tier: 'flex' },
    ],
  ])('converts %s', (_name, body, expected) => {
    expect(toResponses(body)).toMatchObject(expected);
  });

  it('searches by the tool that the provider says its model has', () => {
    const target = { searchTool: (model: string) => `search of ${model}` };
    expect(toResponses({ web_search_options: {} }, {}, 'chat', target).tools).toEqual([{ type: 'search of model-1' }]);
  });

  it('asks for reasoning that can be sent back only where the caller may see it', () => {
    const body = { reasoning_effort: 'low' };
    expect(toResponses(body, { strict: false }).include).toEqual(['reasoning.encrypted_content']);
    expect(toResponses(body, { strict: true }).include).toBeUndefined();
    expect(toResponses({}, { strict: false }).include).toBeUndefined();
  });

  it('leaves out what asks for nothing', () => {
    const neutral = {
      n: 1,
      stop: [],
      seed: null,
      frequency_penalty: 0,
      presence_penalty: 0,
      logit_bias: {},
      logprobs: false,
      top_logprobs: 0,
      modalities: ['text'],
      response_format: { type: 'text' },
      verbosity: 'medium',
      tools: [],
      tool_choice: 'none',
      stream_options: { include_usage: true },
    };
    expect(toResponses(neutral)).toEqual(toResponses({}));
  });

  it.each<[string, JsonObject]>([
    ['n', { n: 2 }],
    ['stop', { stop: 'x' }],
    ['seed', { seed: 1 }],
    ['logit_bias', { logit_bias: { 1: 1 } }],
    ['frequency_penalty', { frequency_penalty: 0.1 }],
    ['presence_penalty', { presence_penalty: 0.1 }],
    ['prediction', { prediction: { type: 'content', content: 'x' } }],
    ['modalities', { modalities: ['text', 'audio'] }],
    ['audio', { audio: { voice: 'a', format: 'mp3' } }],
    ['top_k', { top_k: 3 }],
    ['previous_response_id', { previous_response_id: 'resp_1' }],
    ['constructor', { constructor: 1 }],
    ['tools[0]', { tools: [{ type: 'mcp' }] }],
    ['tool_choice', { tools: [{ type: 'custom', custom: { name: 'x' } }], tool_choice: { type: 'mcp' } }],
    ['web_search_options.since', { web_search_options: { since: 1 } }],
    ['messages[0].content[0].type', { messages: [user([{ type: 'input_audio', input_audio: {} }])] }],
    ['messages[0].audio', { messages: [{ role: 'assistant', audio: { id: 'a' } }] }],
    ['messages[0].tool_calls[0]', { messages: [{ role: 'assistant', tool_calls: [{ id: 'a', type: 'mcp' }] }] }],
  ])('refuses by name what has no equivalent: %s', (param, body) => {
    expect(refusal(() => toResponses(body))).toEqual({ kind: 'unsupported_parameter', param });
  });

  it.each<[string, JsonObject]>([
    ['messages', { messages: [] }],
    ['messages[0]', { messages: ['hi'] }],
    ['messages[0].role', { messages: [{ role: 'robot', content: 'x' }] }],
    ['messages[0].content', { messages: [user(null)] }],
    ['messages[0].content[0].image_url', { messages: [user([{ type: 'image_url' }])] }],
    ['messages[0].content[0].file', { messages: [user([{ type: 'file', file: { filename: 'a' } }])] }],
    ['messages[0].tool_calls[0].id', { messages: [{ role: 'assistant', tool_calls: [{ type: 'function' }] }] }],
    ['messages[0].tool_calls[1].id', { messages: [{ role: 'assistant', tool_calls: [call('a'), call('a')] }] }],
    ['messages[0].tool_call_id', { messages: [{ role: 'tool', tool_call_id: 'a', content: 'r' }] }],
    ['max_tokens', { max_tokens: 15 }],
    ['max_completion_tokens', { max_completion_tokens: 1 }],
    ['response_format', { response_format: 'json' }],
  ])('refuses what is wrong in itself: %s', (param, body) => {
    expect(refusal(() => toResponses(body))).toEqual({ kind: 'invalid_request', param });
  });
});

describe('Messages request to Responses', () => {
  const messages = (body: JsonObject, more: Partial<ConvertContext> = {}): JsonObject =>
    toResponses({ max_tokens: 100, ...body }, more, 'messages');

  it('goes through chat: system, images, calls, results, tools', () => {
    const body = messages({
      system: 'Be brief.',
      messages: [
        { role: 'user', content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA' } }] },
        { role: 'assistant', content: [{ type: 'tool_use', id: 't', name: 'f', input: { a: 1 } }] },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't', content: 'r', is_error: true }] },
      ],
      tools: [{ name: 'f', input_schema: { type: 'object' } }],
      tool_choice: { type: 'any', disable_parallel_tool_use: true },
      metadata: { user_id: 'u' },
      stream: true,
    });
    expect(body).toEqual({
      model: 'model-1',
      input: [
        { type: 'message', role: 'system', content: 'Be brief.' },
        said([{ type: 'input_image', image_url: 'data:image/png;base64,AA', detail: 'auto' }]),
        { type: 'function_call', call_id: 't', name: 'f', arguments: '{"a":1}' },
        { type: 'function_call_output', call_id: 't', output: 'Error: r' },
      ],
      max_output_tokens: 100,
      tools: [{ type: 'function', name: 'f', parameters: { type: 'object' }, strict: false }],
      tool_choice: 'required',
      parallel_tool_calls: false,
      user: 'u',
      stream: true,
      store: false,
    });
  });

  it.each<[string, JsonObject, JsonObject]>([
    ['a budget', { thinking: { type: 'enabled', budget_tokens: 9000 } }, { effort: 'high', summary: 'auto' }],
    [
      'an effort',
      { thinking: { type: 'adaptive' }, output_config: { effort: 'low' } },
      { effort: 'low', summary: 'auto' },
    ],
  ])('asks for a summary where thinking is asked for: %s', (_name, body, reasoning) => {
    expect(messages(body, { strict: false })).toMatchObject({ reasoning });
    // Who asks for thinking has thinking blocks, in whose signature it comes back; nobody else has a place for it.
    expect(messages(body).include).toEqual(['reasoning.encrypted_content']);
    expect(messages({ output_config: { effort: 'low' } }, { strict: false }).include).toBeUndefined();
  });

  it('sends back the reasoning that its thinking blocks stand for, and no other', () => {
    const thinking = (signature: string, words = 'hm'): JsonObject => ({
      type: 'thinking',
      thinking: words,
      signature,
    });
    const call = { type: 'tool_use', id: 't', name: 'f', input: {} };
    const content = [
      thinking('responses:rs_1:g:A='),
      thinking(''),
      thinking('EqQB'),
      thinking('responses:rs_2:x', ''),
      call,
    ];
    const result = { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't', content: 'r' }] };
    const body = messages({ messages: [{ role: 'user', content: 'q' }, { role: 'assistant', content }, result] });
    expect((body.input as JsonObject[]).slice(1, -1)).toEqual([
      { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'hm' }], encrypted_content: 'g:A=' },
      { type: 'reasoning', id: 'rs_2', summary: [], encrypted_content: 'x' },
      { type: 'function_call', call_id: 't', name: 'f', arguments: '{}' },
    ]);
  });

  it.each<[string, string, JsonObject]>([
    ['unsupported_parameter', 'stop_sequences', { stop_sequences: ['x'] }],
    ['unsupported_parameter', 'top_k', { top_k: 1 }],
    ['invalid_request', 'max_tokens', { max_tokens: 1 }],
  ])("refuses under the caller's own names: %s %s", (kind, param, body) => {
    expect(refusal(() => messages(body))).toEqual({ kind, param });
  });
});

describe('chat to Responses to chat', () => {
  const text = fc.string({ minLength: 1, maxLength: 12 });
  const part = fc.oneof(
    text.map((words): JsonObject => ({ type: 'text', text: words })),
    fc.constant<JsonObject>({ type: 'image_url', image_url: { url: 'https://a.example/i.png', detail: 'low' } }),
    fc.constant<JsonObject>({
      type: 'file',
      file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBE' },
    }),
  );
  /** Two parts at least: one text alone is the text itself. */
  const asked = fc.oneof(text, fc.array(part, { minLength: 2, maxLength: 3 }));
  const turn = fc.record({
    ask: asked,
    before: fc.option(text),
    calls: fc.array(text, { maxLength: 3 }),
    answer: text,
  });

  it('loses nothing both formats can hold', () => {
    fc.assert(
      fc.property(
        fc.array(turn, { minLength: 1, maxLength: 3 }),
        fc.constantFrom('system', 'developer'),
        (turns, role) => {
          const messages: JsonObject[] = [{ role, content: 'Be brief.' }];
          turns.forEach(({ ask, before, calls, answer }, t) => {
            messages.push({ role: 'user', content: ask });
            if (calls.length > 0) {
              const made = calls.map((args, c) => call(`call_${t}_${c}`, args));
              messages.push({ role: 'assistant', content: before, tool_calls: made });
              calls.forEach((words, c) => {
                messages.push({ role: 'tool', tool_call_id: `call_${t}_${c}`, content: words });
              });
            }
            messages.push({ role: 'assistant', content: answer });
          });
          const body: JsonObject = {
            model: 'model-1',
            messages,
            max_completion_tokens: 50,
            tools: [{ type: 'function', function: { name: 'f', parameters: { type: 'object' }, strict: true } }],
            tool_choice: 'required',
            parallel_tool_calls: false,
            temperature: 0.5,
            top_p: 0.9,
            logprobs: true,
            top_logprobs: 2,
            response_format: {
              type: 'json_schema',
              json_schema: { name: 'n', schema: { type: 'object' }, strict: true },
            },
            verbosity: 'low',
            reasoning_effort: 'high',
            user: 'u',
            service_tier: 'flex',
            stream: false,
          };
          const middle = conversion('chat', 'responses')?.request(deepFreeze(body), testContext()) ?? {};
          const target = { extensions: new Set(['service_tier']) };
          const back = conversion('responses', 'chat', target)?.request(deepFreeze(middle), testContext()) ?? {};
          expect(back).toEqual(body);
        },
      ),
    );
  });

  it('never throws anything but a clear refusal, whatever the body holds', () => {
    fc.assert(
      fc.property(fc.object({ maxDepth: 4 }), fc.array(fc.object({ maxDepth: 3 })), (body, messages) => {
        for (const from of ['chat', 'messages'] as const) {
          try {
            conversion(from, 'responses')?.request({ ...body, messages } as JsonObject, testContext());
          } catch (error) {
            expect(error).toBeInstanceOf(SluiceError);
          }
        }
      }),
    );
  });
});
