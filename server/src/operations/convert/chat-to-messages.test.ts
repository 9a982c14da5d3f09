import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject, JsonValue } from '../../kernel/json.ts';
import type { ConvertContext, ConvertTarget } from './conversion.ts';
import { conversion } from './index.ts';
import { deepFreeze, refusal, testContext } from './testing.ts';

const older: ConvertTarget = {
  traits: () => ({ effort: false, structuredOutput: false, maxOutputTokens: 8192 }),
};

function toMessages(body: JsonObject, target: ConvertTarget = {}, context: Partial<ConvertContext> = {}): JsonObject {
  const convert = conversion('chat', 'messages', target);
  const given = deepFreeze({ model: 'm', messages: [{ role: 'user', content: 'hi' }], ...body });
  const once = convert?.request(given, testContext(context));
  expect(convert?.request(given, testContext(context))).toEqual(once);
  return once ?? {};
}

const call = (id: string, args = '{}', name = 'f'): JsonObject => ({
  id,
  type: 'function',
  function: { name, arguments: args },
});
const asks = (...calls: JsonObject[]): JsonObject => ({ role: 'assistant', content: null, tool_calls: calls });
const fn = (name = 'f'): JsonObject => ({
  type: 'function',
  function: { name, description: 'd', parameters: { type: 'object' }, strict: true },
});
const PNG = 'data:image/png;base64,iVBO Rw0K';

describe('chat completions request to Messages', () => {
  it('moves every system and developer message to system, in order', () => {
    const out = toMessages({
      messages: [
        { role: 'system', content: 'a' },
        { role: 'developer', content: [{ type: 'text', text: 'b', cache_control: { type: 'ephemeral' } }] },
        { role: 'user', content: 'hi' },
        { role: 'system', content: 'c' },
      ],
    });
    expect(out.system).toEqual([
      { type: 'text', text: 'a' },
      { type: 'text', text: 'b', cache_control: { type: 'ephemeral' } },
      { type: 'text', text: 'c' },
    ]);
    expect(out.messages).toEqual([{ role: 'user', content: 'hi' }]);
  });

  it.each<[string, JsonObject, JsonObject]>([
    ['text', { type: 'text', text: 'x' }, { type: 'text', text: 'x' }],
    [
      'inline image',
      { type: 'image_url', image_url: { url: PNG, detail: 'high' } },
      { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0K' } },
    ],
    [
      'image by URL',
      { type: 'image_url', image_url: { url: 'https://a.example/i.png' } },
      { type: 'image', source: { type: 'url', url: 'https://a.example/i.png' } },
    ],
    [
      'PDF',
      { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBE' } },
      { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'JVBE' }, title: 'a.pdf' },
    ],
    [
      'text file',
      { type: 'file', file: { filename: 'a.txt', file_data: 'data:text/plain;base64,aGk=' } },
      { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'hi' }, title: 'a.txt' },
    ],
  ])('converts a part: %s', (_name, part, block) => {
    const out = toMessages({ messages: [{ role: 'user', content: [part] }] });
    expect(out.messages).toEqual([{ role: 'user', content: [block] }]);
  });

  it('puts all results of one turn into one user message, results before text, whatever the order', () => {
    const result = (id: string): JsonObject => ({ type: 'tool_result', tool_use_id: id, content: `r-${id}` });
    const tool = (id: string): JsonObject => ({ role: 'tool', tool_call_id: id, content: `r-${id}` });
    const user: JsonObject = { role: 'user', content: 'and?' };
    for (const order of [
      [tool('a'), tool('b'), user],
      [tool('a'), user, tool('b')],
      [user, tool('a'), tool('b')],
    ]) {
      const out = toMessages({ messages: [{ role: 'user', content: 'q' }, asks(call('a'), call('b')), ...order] });
      expect(out.messages).toEqual([
        { role: 'user', content: 'q' },
        {
          role: 'assistant',
          content: [
            { type: 'tool_use', id: 'a', name: 'f', input: {} },
            { type: 'tool_use', id: 'b', name: 'f', input: {} },
          ],
        },
        { role: 'user', content: [result('a'), result('b'), { type: 'text', text: 'and?' }] },
      ]);
    }
  });

  it('converts legacy function calls with ids of its own', () => {
    const out = toMessages({
      functions: [{ name: 'f', parameters: { type: 'object' } }],
      function_call: { name: 'f' },
      messages: [
        { role: 'user', content: 'q' },
        { role: 'assistant', content: null, function_call: { name: 'f', arguments: '{"a":1}' } },
        { role: 'function', name: 'f', content: 'r' },
      ],
    });
    expect(out.messages).toEqual([
      { role: 'user', content: 'q' },
      { role: 'assistant', content: [{ type: 'tool_use', id: 'call_legacy_1', name: 'f', input: { a: 1 } }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'call_legacy_1', content: 'r' }] },
    ]);
    expect(out.tools).toEqual([{ name: 'f', input_schema: { type: 'object' } }]);
    expect(out.tool_choice).toEqual({ type: 'tool', name: 'f' });
  });

  it('keeps big integers of call arguments digit by digit', () => {
    const out = toMessages({
      messages: [{ role: 'user', content: 'q' }, asks(call('a', '{"id":12345678901234567890}'))],
    });
    expect(JSON.stringify(out)).toContain('"input":{"id":12345678901234567890}');
  });

  it('rewrites a call id only where the target forbids it, and its result alike', () => {
    const out = toMessages({
      messages: [
        { role: 'user', content: 'q' },
        asks(call('a.b:c')),
        { role: 'tool', tool_call_id: 'a.b:c', content: '' },
      ],
    });
    const [, assistant, user] = out.messages as { content: JsonObject[] }[];
    expect(assistant?.content[0]?.id).toMatch(/^[a-zA-Z0-9_-]+$/);
    expect(user?.content[0]?.tool_use_id).toBe(assistant?.content[0]?.id);
  });

  it('leaves out assistant messages that carry nothing at all', () => {
    const out = toMessages({
      messages: [
        { role: 'user', content: 'a' },
        { role: 'assistant', content: '' },
        { role: 'user', content: 'b' },
      ],
    });
    expect(out.messages).toEqual([
      { role: 'user', content: 'a' },
      { role: 'user', content: 'b' },
    ]);
  });

  it('hands thinking blocks it once showed back with their signatures', () => {
    const block = { type: 'thinking', thinking: 't', signature: 's' };
    const out = toMessages({
      messages: [
        { role: 'user', content: 'a' },
        { role: 'assistant', content: 'b', content_blocks: [block] },
      ],
    });
    expect((out.messages as JsonObject[])[1]).toEqual({
      role: 'assistant',
      content: [block, { type: 'text', text: 'b' }],
    });
  });

  it.each<[string, JsonObject, JsonObject]>([
    [
      'tools',
      { tools: [fn()] },
      { tools: [{ name: 'f', description: 'd', input_schema: { type: 'object' }, strict: true }] },
    ],
    [
      'missing parameters',
      { tools: [{ type: 'function', function: { name: 'f' } }] },
      { tools: [{ name: 'f', input_schema: { type: 'object', properties: {} } }] },
    ],
    ['tool_choice auto', { tools: [fn()], tool_choice: 'auto' }, { tool_choice: { type: 'auto' } }],
    ['tool_choice required', { tools: [fn()], tool_choice: 'required' }, { tool_choice: { type: 'any' } }],
    ['tool_choice none', { tools: [fn()], tool_choice: 'none' }, { tool_choice: { type: 'none' } }],
    [
      'a named tool_choice',
      { tools: [fn()], tool_choice: { type: 'function', function: { name: 'f' } } },
      { tool_choice: { type: 'tool', name: 'f' } },
    ],
    [
      'parallel_tool_calls false',
      { tools: [fn()], parallel_tool_calls: false },
      { tool_choice: { type: 'auto', disable_parallel_tool_use: true } },
    ],
    ['max_tokens', { max_tokens: 5 }, { max_tokens: 5 }],
    ['max_completion_tokens first', { max_tokens: 5, max_completion_tokens: 6 }, { max_tokens: 6 }],
    ['a default maximum', {}, { max_tokens: 4096 }],
    ['temperature and top_p', { temperature: 0.5, top_p: 0.9 }, { temperature: 0.5, top_p: 0.9 }],
    ['a stop text', { stop: 'x' }, { stop_sequences: ['x'] }],
    ['stop texts', { stop: ['x', 'y'] }, { stop_sequences: ['x', 'y'] }],
    ['user', { user: 'u' }, { metadata: { user_id: 'u' } }],
    ['safety_identifier', { user: 'u', safety_identifier: 's' }, { metadata: { user_id: 's' } }],
    ['effort', { reasoning_effort: 'xhigh' }, { output_config: { effort: 'xhigh' } }],
    ['effort minimal', { reasoning_effort: 'minimal' }, { output_config: { effort: 'low' } }],
    ['effort none', { reasoning_effort: 'none' }, { thinking: { type: 'disabled' } }],
    ['the thinking extension', { thinking: { type: 'adaptive' } }, { thinking: { type: 'adaptive' } }],
    [
      'a schema',
      {
        response_format: { type: 'json_schema', json_schema: { name: 'n', schema: { type: 'object' }, strict: true } },
      },
      { output_config: { format: { type: 'json_schema', schema: { type: 'object' } } } },
    ],
    ['stream', { stream: true, stream_options: { include_usage: true } }, { stream: true }],
    ['tier auto', { service_tier: 'auto' }, { service_tier: 'auto' }],
    ['tier default', { service_tier: 'default' }, { service_tier: 'standard_only' }],
  ])('converts %s', (_name, body, expected) => {
    expect(toMessages(body)).toMatchObject(expected);
  });

  it('asks the catalogue, then the model, for the default maximum', () => {
    expect(toMessages({}, older).max_tokens).toBe(8192);
    expect(toMessages({}, older, { maxOutputTokens: 123 }).max_tokens).toBe(123);
  });

  it('keeps only the allowed tools of an allowed_tools choice', () => {
    const out = toMessages({
      tools: [fn('a'), fn('b')],
      tool_choice: {
        type: 'allowed_tools',
        allowed_tools: { mode: 'required', tools: [{ type: 'function', function: { name: 'b' } }] },
      },
    });
    expect(out.tools).toHaveLength(1);
    expect(out.tool_choice).toEqual({ type: 'any' });
  });

  it('gives older models a thinking budget below max_tokens and a function for a schema', () => {
    expect(toMessages({ reasoning_effort: 'high', max_tokens: 4000 }, older).thinking).toEqual({
      type: 'enabled',
      budget_tokens: 3999,
    });
    const schema = { type: 'object' };
    const out = toMessages({ response_format: { type: 'json_schema', json_schema: { name: 'n', schema } } }, older);
    expect(out.tools).toEqual([{ name: 'json_output_n', input_schema: schema }]);
    expect(out.tool_choice).toEqual({ type: 'tool', name: 'json_output_n' });
  });

  it.each<[string, JsonValue]>([
    ['n', 2],
    ['seed', 1],
    ['logprobs', true],
    ['top_logprobs', 2],
    ['logit_bias', { a: 1 }],
    ['frequency_penalty', 0.1],
    ['presence_penalty', -1],
    ['prediction', { type: 'content', content: 'x' }],
    ['audio', { voice: 'a', format: 'mp3' }],
    ['modalities', ['text', 'audio']],
    ['web_search_options', {}],
    ['verbosity', 'low'],
    ['temperature', 1.5],
    ['service_tier', 'flex'],
    ['response_format', { type: 'json_object' }],
    ['a_field_of_the_future', 1],
    ['constructor', 1],
  ])('refuses %s by name', (name, value) => {
    expect(refusal(() => toMessages({ [name]: value }))).toEqual({ kind: 'unsupported_parameter', param: name });
  });

  it.each<[string, JsonValue]>([
    ['n', 1],
    ['logprobs', false],
    ['frequency_penalty', 0],
    ['presence_penalty', 0],
    ['logit_bias', {}],
    ['modalities', ['text']],
    ['response_format', { type: 'text' }],
    ['seed', null],
    ['store', true],
    ['metadata', { a: 'b' }],
    ['prompt_cache_key', 'k'],
    ['stream_options', { include_usage: true }],
  ])('lets %s pass where it changes nothing', (name, value) => {
    expect(toMessages({ [name]: value })).not.toHaveProperty(name);
  });

  it.each<[string, JsonObject, string]>([
    ['a custom tool', { tools: [{ type: 'custom', custom: { name: 'x' } }] }, 'tools[0]'],
    [
      'audio input',
      { messages: [{ role: 'user', content: [{ type: 'input_audio' }] }] },
      'messages[0].content[0].type',
    ],
    [
      'a stored file',
      { messages: [{ role: 'user', content: [{ type: 'file', file: { file_id: 'f' } }] }] },
      'messages[0].content[0].file.file_id',
    ],
    [
      'an image type it does not know',
      {
        messages: [
          { role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:image/bmp;base64,QQ==' } }] },
        ],
      },
      'messages[0].content[0].image_url.url',
    ],
  ])('refuses %s', (_name, body, param) => {
    expect(refusal(() => toMessages(body))).toEqual({ kind: 'unsupported_parameter', param });
  });

  it.each<[string, JsonObject[], string]>([
    ['an empty user message', [{ role: 'user', content: '' }], 'messages[0].content'],
    ['a null user message', [{ role: 'user', content: null }], 'messages[0].content'],
    ['a result without call', [{ role: 'tool', tool_call_id: 'x', content: 'r' }], 'messages[0].tool_call_id'],
    ['arguments that are no JSON', [asks(call('a', '{'))], 'messages[0].tool_calls[0].function.arguments'],
    ['the same call id twice', [asks(call('a'), call('a'))], 'messages[0].tool_calls[1].id'],
    ['an unknown role', [{ role: 'robot', content: 'x' }], 'messages[0].role'],
    ['no messages', [], 'messages'],
  ])('answers 400 to %s', (_name, messages, param) => {
    expect(refusal(() => toMessages({ messages }))).toEqual({ kind: 'invalid_request', param });
  });

  it('takes no name of the language itself for a neutral field', () => {
    const body = JSON.parse('{"model":"m","messages":[],"__proto__":{"n":1}}') as JsonObject;
    expect(refusal(() => conversion('chat', 'messages')?.request(body, testContext()))).toMatchObject({
      param: '__proto__',
    });
  });

  it('never throws anything but a clear refusal, whatever the body holds', () => {
    fc.assert(
      fc.property(fc.object({ maxDepth: 4 }), fc.array(fc.object({ maxDepth: 3 })), (body, messages) => {
        try {
          conversion('chat', 'messages')?.request({ ...body, messages } as JsonObject, testContext());
        } catch (error) {
          expect(error).toBeInstanceOf(SluiceError);
        }
      }),
    );
  });
});
