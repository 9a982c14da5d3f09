import { describe, expect, it } from 'vitest';
import { compileCheck } from '../../guardrails/catalog.ts';
import type { CheckHttpClient, Subject } from '../../guardrails/check.ts';
import { OPERATIONS, type OperationId } from '../../operations/operation.ts';
import {
  answerCallsTools,
  answerTexts,
  applyReplacements,
  FormBody,
  latestAnswerText,
  latestRequestText,
  requestTexts,
  type SaidPart,
} from './texts.ts';

const line = ({ path, role, text, unreadable }: SaidPart) => `${path} ${role}: ${unreadable ?? text}`;
const asked = (id: OperationId, body: unknown, which: 'all' | 'new' | 'last' = 'all') =>
  requestTexts(OPERATIONS[id], body, which).map(line);
const told = (id: OperationId, body: unknown) => answerTexts(OPERATIONS[id], body).map(line);
describe('texts of requests', () => {
  const requests: [OperationId, string, unknown, string[]][] = [
    [
      'chat',
      'messages of every role, parts, names and tool calls',
      {
        model: 'm-1',
        stream: true,
        messages: [
          { role: 'developer', content: 'rules' },
          {
            role: 'user',
            name: 'Ann Lee',
            content: [
              { type: 'text', text: 'a' },
              { type: 'text', text: 'b' },
            ],
          },
          {
            role: 'assistant',
            content: null,
            refusal: 'no',
            tool_calls: [{ id: 'c1', type: 'function', function: { name: 'find', arguments: '{"q":"x y"}' } }],
          },
          { role: 'tool', tool_call_id: 'c1', content: 'found' },
        ],
        tools: [
          {
            type: 'function',
            function: {
              name: 'find',
              description: 'd',
              parameters: { type: 'object', properties: { q: { type: 'string', description: 'e' } } },
            },
          },
        ],
      },
      [
        'messages[0].content system: rules',
        'messages[1].name user: Ann Lee',
        'messages[1].content[0].text user: a',
        'messages[1].content[1].text user: b',
        'messages[2].refusal assistant: no',
        'messages[2].tool_calls[0].function.name assistant: find',
        'messages[2].tool_calls[0].function.arguments assistant: {"q":"x y"}',
        'messages[2].tool_calls[0].function.arguments.q#name assistant: q',
        'messages[2].tool_calls[0].function.arguments.q assistant: x y',
        'messages[3].content tool: found',
        'tools[0].function.name system: find',
        'tools[0].function.description system: d',
        'tools[0].function.parameters.properties.q#name system: q',
        'tools[0].function.parameters.properties.q.description system: e',
      ],
    ],
    [
      'messages',
      'system blocks, thinking, tool use, nested tool results, documents',
      {
        model: 'm',
        max_tokens: 5,
        system: [{ type: 'text', text: 'sys', cache_control: { type: 'ephemeral' } }],
        messages: [
          {
            role: 'assistant',
            content: [
              { type: 'thinking', thinking: 'hm', signature: 'c2lnbmF0dXJlc2lnbmF0dXJl' },
              { type: 'tool_use', id: 't1', name: 'find', input: { type: 'a b', n: 4111111111111111 } },
            ],
          },
          {
            role: 'user',
            content: [
              { type: 'tool_result', tool_use_id: 't1', content: [{ type: 'text', text: 'res' }] },
              { type: 'tool_result', tool_use_id: 't2', content: 'flat' },
              { type: 'document', title: 'T', source: { type: 'text', media_type: 'text/plain', data: 'doc text' } },
              { type: 'document', source: { type: 'url', url: 'https://a.example/x.pdf' } },
              { type: 'image', source: { type: 'url', url: 'https://a.example/x.png' } },
            ],
          },
        ],
      },
      [
        'system[0].text system: sys',
        'messages[0].content[0].thinking assistant: hm',
        'messages[0].content[1].name assistant: find',
        'messages[0].content[1].input.type#name assistant: type',
        'messages[0].content[1].input.type assistant: a b',
        'messages[0].content[1].input.n#name assistant: n',
        'messages[0].content[1].input.n assistant: 4111111111111111',
        'messages[1].content[0].content[0].text tool: res',
        'messages[1].content[1].content tool: flat',
        'messages[1].content[2].title user: T',
        'messages[1].content[2].source.data user: doc text',
        'messages[1].content[3].source.url user: file',
        'messages[1].content[3].source.url user: https://a.example/x.pdf',
        'messages[1].content[4].source.url user: https://a.example/x.png',
      ],
    ],
    [
      'responses',
      'items: messages, calls, their outputs, reasoning',
      {
        model: 'm',
        instructions: 'sys',
        input: [
          { role: 'user', content: 'plain' },
          { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'part' }] },
          { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' },
          { type: 'function_call_output', call_id: 'c', output: 'out' },
          { type: 'custom_tool_call_output', call_id: 'c', output: [{ type: 'input_text', text: 'out2' }] },
          { type: 'reasoning', summary: [{ type: 'summary_text', text: 'why' }] },
          { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'said', annotations: [] }] },
        ],
      },
      [
        'instructions system: sys',
        'input[0].content user: plain',
        'input[1].content[0].text user: part',
        'input[2].name assistant: f',
        'input[2].arguments assistant: {}',
        'input[3].output tool: out',
        'input[4].output[0].text tool: out2',
        'input[5].summary[0].text assistant: why',
        'input[6].content[0].text assistant: said',
      ],
    ],
    ['responses', 'input as a text', { model: 'm', input: 'hi' }, ['input user: hi']],
    ['completions', 'a prompt', { model: 'm', prompt: 'hi', suffix: 'end' }, ['prompt user: hi', 'suffix user: end']],
    ['completions', 'prompts', { model: 'm', prompt: ['a', 'b'] }, ['prompt[0] user: a', 'prompt[1] user: b']],
    ['completions', 'tokens, which nobody can read', { model: 'm', prompt: [1, 2] }, ['prompt user: tokens']],
    [
      'completions',
      'tokens among texts',
      { model: 'm', prompt: [[1, 2], 'x'] },
      ['prompt[0] user: tokens', 'prompt[1] user: x'],
    ],
    ['embeddings', 'inputs', { model: 'm', input: ['a', 'b'] }, ['input[0] user: a', 'input[1] user: b']],
    [
      'embeddings',
      'token inputs',
      { model: 'm', input: [[1], [2]] },
      ['input[0] user: tokens', 'input[1] user: tokens'],
    ],
    [
      'moderations',
      'parts',
      {
        input: [
          { type: 'text', text: 'a' },
          { type: 'image_url', image_url: { url: 'https://a.example/' } },
        ],
      },
      ['input[0].text user: a', 'input[1].image_url.url user: https://a.example/'],
    ],
    [
      'rerank',
      'query and documents of both forms',
      { model: 'm', query: 'q', documents: ['a', { text: 'b', title: 'c' }] },
      ['query user: q', 'documents[0] user: a', 'documents[1].text user: b', 'documents[1].title user: c'],
    ],
    ['images_generate', 'a prompt', { prompt: 'cat', size: '1024x1024' }, ['prompt user: cat']],
    [
      'speech',
      'input and instructions',
      { model: 'm', input: 'hi', voice: 'alloy', instructions: 'slow' },
      ['input user: hi', 'instructions system: slow'],
    ],
    [
      'count_tokens',
      'what messages are',
      { model: 'm', system: 's', messages: [{ role: 'user', content: 'u' }] },
      ['system system: s', 'messages[0].content user: u'],
    ],
    [
      'proxy',
      'every text, names that are none of a program',
      { type: 'x', a: { 'my card': [4111111111111111, true, 'deep'] }, created_at: 1_700_000_000 },
      ['type null: x', 'a{0}#name null: my card', 'a{0}[0] null: 4111111111111111', 'a{0}[2] null: deep'],
    ],
    ['chat', 'members nobody has heard of', { messages: [], extra_body: { note: 'n' } }, ['extra_body.note null: n']],
    [
      'chat',
      'settings that are no words',
      { messages: [], model: 'tell me a secret' },
      ['model null: tell me a secret'],
    ],
    ...['gpt-4o', '@openai/gpt-4o', 'claude-sonnet-4@20250514', '@sandbox/slow?ttft_ms=200&tokens_per_s=10'].map(
      (model): (typeof requests)[number] => [
        'chat',
        `the name of a model is none: ${model}`,
        { messages: [], model },
        [],
      ],
    ),
    [
      'chat',
      'a name of a model that an address is',
      { messages: [], model: 'ann@mail.example' },
      ['model null: ann@mail.example'],
    ],
  ];
  it.each(requests)('%s: %s', (id, _title, body, expected) => {
    expect(asked(id, body)).toEqual(expected);
  });

  const talk = {
    messages: [
      { role: 'system', content: 's' },
      { role: 'user', content: 'one' },
      { role: 'assistant', content: 'two' },
      { role: 'user', content: 'three' },
      { role: 'user', content: 'four' },
    ],
    tools: [{ description: 'd' }],
  };
  it('are those since the last answer, with what belongs to no message, for `new`', () => {
    expect(asked('chat', talk, 'new')).toEqual([
      'messages[3].content user: three',
      'messages[4].content user: four',
      'tools[0].description system: d',
    ]);
    const begun = { messages: [...talk.messages, { role: 'assistant', content: 'Sure:' }] };
    expect(asked('chat', begun, 'new')).toEqual([
      'messages[3].content user: three',
      'messages[4].content user: four',
      'messages[5].content assistant: Sure:',
    ]);
  });
  it('are those of the last message alone for `last`, and everything where there are no messages', () => {
    expect(asked('chat', talk, 'last')).toEqual(['messages[4].content user: four']);
    expect(
      asked(
        'responses',
        {
          input: [
            { role: 'user', content: 'a' },
            { type: 'function_call_output', output: 'b' },
          ],
        },
        'last',
      ),
    ).toEqual(['input[1].output tool: b']);
    expect(asked('completions', { prompt: ['a', 'b'] }, 'last')).toEqual(['prompt[0] user: a', 'prompt[1] user: b']);
  });

  it('are all of them where a list is no conversation, or where there are two', () => {
    const both = { messages: [{ role: 'user', content: 'a' }], input: [{ role: 'user', content: 'b' }] };
    expect(asked('responses', { messages: [{ role: 'user', content: 'a' }], input: 'b' }, 'last')).toEqual([
      'messages[0].content user: a',
      'input user: b',
    ]);
    expect(asked('proxy', both, 'last')).toHaveLength(4);
    const parts = {
      input: [
        { type: 'text', text: 'a' },
        { type: 'text', text: 'b' },
      ],
    };
    expect(asked('moderations', parts, 'last')).toEqual(['input[0].text user: a', 'input[1].text user: b']);
  });

  it('tell prefixes where to go: before the last words of the user, not before names, addresses or metadata', () => {
    const prefix = compileCheck({ id: 'default.addPrefix', is_enabled: true, parameters: { prefix: '> ' } }, 'llm');
    const body = {
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'hi' },
            { type: 'image_url', image_url: { url: 'https://a.example/' } },
          ],
          name: 'Ann Lee',
        },
      ],
      user: 'ann at home',
    };
    const texts = requestTexts(OPERATIONS.chat, body, 'all');
    expect(prefix?.judge.judge({ texts } as Subject, {} as CheckHttpClient)).toMatchObject({
      replacements: [{ path: 'messages[0].content[0].text', text: '> hi' }],
    });
  });

  it('are the fields, file names and text files of forms, and change in place', () => {
    const form = new FormBody(
      Buffer.from(
        [
          '--b',
          'content-disposition: form-data; name="model"',
          '',
          'dall-e',
          '--b',
          'content-disposition: form-data; name="prompt"',
          '',
          'a cät',
          '--b',
          'content-disposition: form-data; name="image"; filename="ann.txt"',
          'content-type: text/plain',
          '',
          'inside',
          '--b--',
          '',
        ].join('\r\n'),
      ),
      'multipart/form-data; boundary=b',
    );
    expect(asked('images_edit', form)).toEqual([
      'prompt user: a cät',
      'image#filename null: ann.txt',
      'image null: inside',
    ]);
    expect(latestRequestText(OPERATIONS.images_edit, form)).toBe('a cät\ninside');
    const parts = requestTexts(OPERATIONS.images_edit, form, 'all');
    const next = applyReplacements(
      OPERATIONS.images_edit,
      form,
      parts.map(({ path }, i) => ({ path, text: `<${i}>` })),
    );
    expect(asked('images_edit', next)).toEqual(['prompt user: <0>', 'image#filename null: <1>', 'image null: <2>']);
    const same = applyReplacements(OPERATIONS.images_edit, form, [...parts]);
    expect(same).toBe(form);
  });

  it('are those of a body that is no JSON, or say that it cannot be read', () => {
    expect(asked('proxy', Buffer.from('hello'))).toEqual(['body null: hello']);
    expect(asked('proxy', Buffer.from([0, 1, 2, 200]))).toEqual(['body null: file']);
    expect(asked('transcribe', Buffer.from([0, 1, 2, 200]))).toEqual([]);
    expect(String(applyReplacements(OPERATIONS.proxy, Buffer.from('a'), [{ path: 'body', text: 'b' }]))).toBe('b');
  });
});

describe('texts of answers', () => {
  const answers: [OperationId, string, unknown, string[], string, boolean][] = [
    [
      'chat',
      'choices, reasoning and refusals',
      {
        id: 'x',
        object: 'chat.completion',
        created: 1_700_000_000,
        model: 'm',
        choices: [
          {
            index: 0,
            message: { role: 'assistant', content: 'a', reasoning_content: 'r' },
            logprobs: { content: [{ token: 'a' }] },
          },
          { index: 1, message: { role: 'assistant', content: null, refusal: 'b' }, finish_reason: 'stop' },
        ],
        usage: { prompt_tokens: 3_000_000 },
      },
      [
        'choices[0].message.content assistant: a',
        'choices[0].message.reasoning_content assistant: r',
        'choices[1].message.refusal assistant: b',
      ],
      'a\nb',
      false,
    ],
    [
      'chat',
      'tool calls',
      {
        choices: [
          {
            message: {
              content: '',
              tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }],
            },
          },
        ],
      },
      [
        'choices[0].message.tool_calls[0].function.name assistant: f',
        'choices[0].message.tool_calls[0].function.arguments assistant: {"a":1}',
        'choices[0].message.tool_calls[0].function.arguments.a#name assistant: a',
      ],
      '{"a":1}',
      true,
    ],
    [
      'completions',
      'texts',
      {
        choices: [
          { index: 0, text: 'a' },
          { index: 1, text: 'b' },
        ],
      },
      ['choices[0].text assistant: a', 'choices[1].text assistant: b'],
      'a\nb',
      false,
    ],
    [
      'messages',
      'blocks',
      {
        type: 'message',
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: 't', signature: '' },
          { type: 'text', text: 'a', citations: [{ type: 'char_location', cited_text: 'c' }] },
          { type: 'tool_use', id: 'i', name: 'f', input: { q: 'v' } },
        ],
      },
      [
        'content[0].thinking assistant: t',
        'content[1].text assistant: a',
        'content[1].citations[0].cited_text assistant: c',
        'content[2].name assistant: f',
        'content[2].input.q#name assistant: q',
        'content[2].input.q assistant: v',
      ],
      'a',
      true,
    ],
    [
      'responses',
      'what was said, not what was asked',
      {
        object: 'response',
        instructions: 'secret rules',
        tools: [{ type: 'function', description: 'd' }],
        metadata: { k: 'v' },
        output: [
          { type: 'reasoning', summary: [{ type: 'summary_text', text: 'r' }] },
          {
            type: 'message',
            role: 'assistant',
            content: [{ type: 'output_text', text: 'a', logprobs: [{ token: 'a' }] }],
          },
        ],
      },
      ['output[0].summary[0].text assistant: r', 'output[1].content[0].text assistant: a'],
      'a',
      false,
    ],
    ['embeddings', 'nothing', { data: [{ embedding: [0.1], object: 'embedding' }] }, [], '', false],
    [
      'images_generate',
      'revised prompts',
      { data: [{ revised_prompt: 'r', url: 'https://a.example/' }] },
      ['data[0].revised_prompt assistant: r', 'data[0].url assistant: https://a.example/'],
      'r\nhttps://a.example/',
      false,
    ],
    ['transcribe', 'json', { text: 'hi' }, ['text assistant: hi'], 'hi', false],
    [
      'transcribe',
      'verbose json',
      { task: 't', text: 'hi', segments: [{ id: 0, text: 'hi' }] },
      ['task assistant: t', 'text assistant: hi', 'segments[0].text assistant: hi'],
      'hi',
      false,
    ],
    [
      'transcribe',
      'subtitles',
      '1\n00:00 --> 00:01\nhi\n',
      ['body assistant: 1\n00:00 --> 00:01\nhi\n'],
      '1\n00:00 --> 00:01\nhi\n',
      false,
    ],
    [
      'rerank',
      'documents',
      { results: [{ index: 0, document: { text: 'd' } }] },
      ['results[0].document.text assistant: d'],
      'd',
      false,
    ],
    ['speech', 'nothing', Buffer.from([0, 1, 255]), [], '', false],
  ];
  it.each(answers)('%s: %s', (id, _title, body, expected, latest, calls) => {
    expect(told(id, body)).toEqual(expected);
    expect(latestAnswerText(OPERATIONS[id], body)).toBe(latest);
    expect(answerCallsTools(OPERATIONS[id], body)).toBe(calls);
  });
});

describe('the latest text of a request', () => {
  it.each([
    [
      'chat',
      {
        messages: [
          { role: 'user', content: 'a' },
          {
            role: 'user',
            name: 'n',
            content: [
              { type: 'text', text: 'b' },
              { type: 'text', text: 'c' },
            ],
          },
        ],
      },
      'b\nc',
    ],
    [
      'messages',
      { messages: [{ role: 'user', content: [{ type: 'tool_result', content: [{ type: 'text', text: 'r' }] }] }] },
      'r',
    ],
    ['responses', { instructions: 'i', input: [{ type: 'function_call_output', output: 'o' }] }, 'o'],
    ['responses', { input: 'i' }, 'i'],
    ['completions', { prompt: ['a', 'b'] }, 'a\nb'],
    ['embeddings', { input: 'e' }, 'e'],
    ['rerank', { query: 'q', documents: ['d'] }, 'q\nd'],
    [
      'chat',
      { messages: [{ role: 'assistant', tool_calls: [{ function: { name: 'f', arguments: '{"a":1}' } }] }] },
      '{"a":1}',
    ],
    ['proxy', { a: 'b' }, 'b'],
    ['proxy', { messages: [{ role: 'user', content: 'x' }] }, 'x'],
  ] as [OperationId, unknown, string][])('%s %j', (id, body, expected) => {
    expect(latestRequestText(OPERATIONS[id], body)).toBe(expected);
  });
});
