import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import type { ConvertTarget } from './conversion.ts';
import { conversion } from './index.ts';
import { deepFreeze, refusal, testContext } from './testing.ts';

function toChat(body: JsonObject, target: ConvertTarget = {}): JsonObject {
  const convert = conversion('messages', 'chat', target);
  const given = deepFreeze({ model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'hi' }], ...body });
  const once = convert?.request(given, testContext());
  expect(convert?.request(given, testContext())).toEqual(once);
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

describe('Messages request to chat completions', () => {
  it('joins system blocks to one leading message', () => {
    const out = toChat({
      system: [
        { type: 'text', text: 'a' },
        { type: 'text', text: 'b', cache_control: {} },
      ],
    });
    expect((out.messages as JsonObject[])[0]).toEqual({ role: 'system', content: 'a\n\nb' });
  });

  it('keeps cache marks as parts where the provider knows them', () => {
    const cache_control = { type: 'ephemeral' };
    const out = toChat(
      { system: [{ type: 'text', text: 'a', cache_control }] },
      { extensions: new Set(['cache_control']) },
    );
    expect((out.messages as JsonObject[])[0]?.content).toEqual([{ type: 'text', text: 'a', cache_control }]);
  });

  it('writes one tool message per result before the rest of the user message, and moves images after it', () => {
    const out = toChat({
      messages: [
        { role: 'user', content: 'q' },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 't', signature: 's' },
            { type: 'text', text: 'ok' },
            { type: 'tool_use', id: 'a', name: 'f', input: { x: 1 } },
            { type: 'tool_use', id: 'b', name: 'g', input: {} },
          ],
        },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'here' },
            { type: 'tool_result', tool_use_id: 'a', content: 'ra', is_error: true },
            {
              type: 'tool_result',
              tool_use_id: 'b',
              content: [
                { type: 'text', text: 'rb' },
                { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'QQ==' } },
              ],
            },
          ],
        },
      ],
    });
    expect(out.messages).toEqual([
      { role: 'user', content: 'q' },
      {
        role: 'assistant',
        content: 'ok',
        tool_calls: [
          { id: 'a', type: 'function', function: { name: 'f', arguments: '{"x":1}' } },
          { id: 'b', type: 'function', function: { name: 'g', arguments: '{}' } },
        ],
      },
      { role: 'tool', tool_call_id: 'a', content: 'Error: ra' },
      { role: 'tool', tool_call_id: 'b', content: 'rb' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'here' },
          { type: 'text', text: 'Content of the result of call b:' },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,QQ==' } },
        ],
      },
    ]);
  });

  it('gives reasoning back only to providers that want it', () => {
    const messages = [
      { role: 'user', content: 'q' },
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: 't', signature: '' },
          { type: 'text', text: 'a' },
        ],
      },
    ];
    const wants: ConvertTarget = { reasoning: { field: 'reasoning_content', history: true } };
    expect((toChat({ messages }, wants).messages as JsonObject[])[1]).toMatchObject({ reasoning_content: 't' });
    expect((toChat({ messages }).messages as JsonObject[])[1]).toEqual({ role: 'assistant', content: 'a' });
  });

  it.each<[string, JsonObject, JsonObject]>([
    [
      'an image',
      { type: 'image', source: { type: 'url', url: 'https://a.example/' } },
      { type: 'image_url', image_url: { url: 'https://a.example/' } },
    ],
    [
      'a PDF',
      { type: 'document', title: 't.pdf', source: { type: 'base64', media_type: 'application/pdf', data: 'JVBE' } },
      { type: 'file', file: { filename: 't.pdf', file_data: 'data:application/pdf;base64,JVBE' } },
    ],
    [
      'a search result',
      { type: 'search_result', title: 't', source: 's', content: [{ type: 'text', text: 'x' }] },
      { type: 'text', text: 't\ns\nx' },
    ],
  ])('converts %s', (_name, block, part) => {
    const out = toChat({ messages: [{ role: 'user', content: [{ type: 'text', text: 'a' }, block] }] });
    expect((out.messages as JsonObject[])[0]?.content).toEqual([{ type: 'text', text: 'a' }, part]);
  });

  const tools = [
    { name: 'f', description: 'd', input_schema: { type: 'object' }, cache_control: { type: 'ephemeral' } },
  ];
  it.each<[string, JsonObject, JsonObject]>([
    ['max_tokens', { max_tokens: 7 }, { max_completion_tokens: 7 }],
    [
      'tools',
      { tools },
      { tools: [{ type: 'function', function: { name: 'f', description: 'd', parameters: { type: 'object' } } }] },
    ],
    ['choice any', { tools, tool_choice: { type: 'any' } }, { tool_choice: 'required' }],
    ['choice none', { tools, tool_choice: { type: 'none' } }, { tool_choice: 'none' }],
    [
      'choice tool without parallel use',
      { tools, tool_choice: { type: 'tool', name: 'f', disable_parallel_tool_use: true } },
      { tool_choice: { type: 'function', function: { name: 'f' } }, parallel_tool_calls: false },
    ],
    ['stop sequences', { stop_sequences: ['a'] }, { stop: ['a'] }],
    ['a low budget', { thinking: { type: 'enabled', budget_tokens: 2048 } }, { reasoning_effort: 'low' }],
    ['a medium budget', { thinking: { type: 'enabled', budget_tokens: 8192 } }, { reasoning_effort: 'medium' }],
    ['a high budget', { thinking: { type: 'enabled', budget_tokens: 8193 } }, { reasoning_effort: 'high' }],
    ['effort', { output_config: { effort: 'max' } }, { reasoning_effort: 'max' }],
    [
      'a format',
      { output_config: { format: { type: 'json_schema', schema: { type: 'object' } } } },
      {
        response_format: {
          type: 'json_schema',
          json_schema: { name: 'output', schema: { type: 'object' }, strict: true },
        },
      },
    ],
    ['a user', { metadata: { user_id: 'u' } }, { user: 'u' }],
    ['stream', { stream: true }, { stream: true, stream_options: { include_usage: true } }],
  ])('converts %s', (_name, body, expected) => {
    expect(toChat(body)).toMatchObject(expected);
  });

  it('shortens a user id OpenAI would refuse, always to the same value', () => {
    const long = 'u'.repeat(100);
    const { user } = toChat({ metadata: { user_id: long } });
    expect(user).toHaveLength(64);
    expect(toChat({ metadata: { user_id: long } }).user).toBe(user);
  });

  it('leaves out bookkeeping the provider does not know', () => {
    const out = toChat({ metadata: { user_id: 'u' }, stream: true }, { omit: new Set(['user', 'stream_options']) });
    expect(out).not.toHaveProperty('user');
    expect(out).not.toHaveProperty('stream_options');
  });

  it('leaves adaptive thinking to the model', () => {
    expect(toChat({ thinking: { type: 'adaptive' } })).not.toHaveProperty('reasoning_effort');
  });

  it.each<[string, JsonObject, string]>([
    ['top_k', { top_k: 5 }, 'top_k'],
    ['max_tokens 0', { max_tokens: 0 }, 'max_tokens'],
    ['a server tool', { tools: [{ type: 'web_search_20250305', name: 'web_search' }] }, 'tools[0]'],
    ['MCP servers', { mcp_servers: [{ type: 'url', url: 'x', name: 'y' }] }, 'mcp_servers'],
    ['the fast lane', { speed: 'fast' }, 'speed'],
    ['a container', { container: 'c' }, 'container'],
    [
      'a stored image',
      { messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'file', file_id: 'f' } }] }] },
      'messages[0].content[0].source',
    ],
    [
      'citations',
      {
        messages: [
          {
            role: 'user',
            content: [{ type: 'document', citations: { enabled: true }, source: { type: 'base64', data: '' } }],
          },
        ],
      },
      'messages[0].content[0].citations',
    ],
    [
      'blocks of server tools',
      { messages: [{ role: 'assistant', content: [{ type: 'server_tool_use', id: 'x' }] }] },
      'messages[0].content[0].type',
    ],
  ])('refuses %s by name', (_name, body, param) => {
    expect(refusal(() => toChat(body))).toEqual({ kind: 'unsupported_parameter', param });
  });

  it('lets top_k pass to providers that know it', () => {
    expect(toChat({ top_k: 5 }, { extensions: new Set(['top_k']) }).top_k).toBe(5);
  });

  it('never throws anything but a clear refusal, whatever the body holds', () => {
    fc.assert(
      fc.property(fc.object({ maxDepth: 4 }), fc.array(fc.object({ maxDepth: 3 })), (body, messages) => {
        try {
          conversion('messages', 'chat')?.request({ max_tokens: 1, ...body, messages } as JsonObject, testContext());
        } catch (error) {
          expect(error).toBeInstanceOf(SluiceError);
        }
      }),
    );
  });
});

describe('types that are no texts', () => {
  it.each([
    ['a number no double holds', parseExact('{"type":1e999,"n":12345678901234567890}')],
    ['an object whose toString is no function', { type: { toString: 1 } }],
    ['a very long text', { type: 'x'.repeat(100_000) }],
  ])('%s is refused by its place', (_name, block) => {
    const convert = () => toChat({ messages: [{ role: 'user', content: [block] }] });
    expect(refusal(convert).param).toBe('messages[0].content[0].type');
    expect(convert).toThrow(/^.{1,400}$/);
  });
});

describe('chat to Messages to chat', () => {
  const text = fc.string({ minLength: 1, maxLength: 20 });
  const args = fc.dictionary(
    fc.string({ maxLength: 5 }),
    fc.oneof(fc.integer(), fc.string(), fc.bigInt({ min: 2n ** 64n })),
    {
      maxKeys: 3,
    },
  );
  const argumentText = args.map((value) =>
    JSON.stringify(value, (_key, inner: unknown) => (typeof inner === 'bigint' ? `#${inner}#` : inner)).replace(
      /"#(\d+)#"/g,
      '$1',
    ),
  );
  /** One turn: a question, perhaps calls with their results, an answer. */
  const turn = fc.record({ ask: text, calls: fc.array(argumentText, { maxLength: 3 }), answer: text });

  it('loses nothing both formats can hold', () => {
    fc.assert(
      fc.property(fc.array(turn, { minLength: 1, maxLength: 4 }), fc.option(text), (turns, system) => {
        const messages: JsonObject[] = system === null ? [] : [{ role: 'system', content: system }];
        turns.forEach(({ ask, calls, answer }, t) => {
          messages.push({ role: 'user', content: ask });
          if (calls.length > 0) {
            messages.push(asks(...calls.map((one, c) => call(`call_${t}_${c}`, one))));
            calls.forEach((_, c) => {
              messages.push({ role: 'tool', tool_call_id: `call_${t}_${c}`, content: `r${c}` });
            });
          }
          messages.push({ role: 'assistant', content: answer });
        });
        const body: JsonObject = {
          model: 'model-1',
          messages,
          max_completion_tokens: 50,
          temperature: 0.5,
          top_p: 0.9,
          stop: ['x'],
          reasoning_effort: 'high',
          tools: [fn()],
          tool_choice: 'required',
          parallel_tool_calls: false,
          user: 'u',
          stream: false,
        };
        const middle = conversion('chat', 'messages')?.request(deepFreeze(body), testContext()) ?? {};
        const wire = parseExact(JSON.stringify(middle)) as JsonObject;
        const back = conversion('messages', 'chat')?.request(deepFreeze(wire), testContext()) ?? {};
        expect(JSON.parse(JSON.stringify(back))).toEqual(body);
      }),
    );
  });
});
