import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import type { RowFormat } from '../../operations/training.ts';
import { formatOf } from './formats.ts';
import { RowFault } from './report.ts';
import { checkRow, kindOf } from './rows.ts';

const user = (content: JsonValue) => ({ role: 'user', content });
const assistant = (content: JsonValue) => ({ role: 'assistant', content });
const system = (content: JsonValue) => ({ role: 'system', content });
const chat = (...messages: JsonObject[]): JsonObject => ({ messages });
const image = (url: string, more: JsonObject = {}) => ({ type: 'image_url', image_url: { url, ...more } });
const part = (text: string) => ({ type: 'text', text });
const call = (id: string, args = '{"city":"Oslo"}') => ({
  id,
  type: 'function',
  function: { name: 'weather', arguments: args },
});
const tools = [
  { type: 'function', function: { name: 'weather', description: 'd', parameters: { type: 'object', properties: {} } } },
];
const TEXT = { prompt: 'p', completion: 'c' };
const preference = (input: JsonObject, good: JsonObject[] = [assistant('good')], bad = [assistant('bad')]) => ({
  input,
  preferred_output: good,
  non_preferred_output: bad,
});

/** The row as the provider gets it, or why it cannot. */
function convert(format: RowFormat, row: JsonObject): JsonValue | undefined {
  checkRow(row, kindOf(row));
  try {
    return formatOf(format).convert(row, kindOf(row)) ?? row;
  } catch (error) {
    if (error instanceof RowFault) return `${error.code}: ${error.message}`;
    throw error;
  }
}

describe('openai', () => {
  it('gets every row unchanged', () => {
    for (const row of [
      { ...chat(user('q'), { ...assistant('a'), weight: 0 }), tools, note: 1 },
      TEXT,
      preference(chat(user('q'))),
    ])
      expect(formatOf('openai').convert(row, kindOf(row))).toBeNull();
  });
});

describe('together', () => {
  it('gets rows unchanged, with the same columns in all of them', () => {
    const format = formatOf('together');
    expect(format.convert({ messages: [], tools: [] }, 'chat')).toBeNull();
    expect(format.convert({ tools: [], messages: [] }, 'chat')).toBeNull();
    expect(() => format.convert({ messages: [] }, 'chat')).toThrow(/other fields than the first row/);
  });
});

describe('fireworks', () => {
  it('gets rows unchanged, with the system message first', () => {
    const row = { ...chat(system('s'), user('q'), { ...assistant('a'), weight: 1 }), tools };
    expect(formatOf('fireworks').convert(row, 'chat')).toBeNull();
    expect(formatOf('fireworks').convert(preference(chat(user('q'))), 'preference')).toBeNull();
    expect(convert('fireworks', chat({ role: 'developer', content: 's' }, user('q'), assistant('a')))).toEqual(
      chat(system('s'), user('q'), assistant('a')),
    );
    expect(convert('fireworks', TEXT)).toEqual(chat(user('p'), assistant('c')));
    expect(convert('fireworks', chat(user('q'), system('s'), assistant('a')))).toMatch(/^unsupported: messages\[1\]/);
    expect(convert('fireworks', { ...chat(user('q'), assistant('a')), note: 1 })).toMatch(/^unsupported/);
    expect(formatOf('fireworks').maximumRows).toBe(3_000_000);
  });
});

describe('mistral', () => {
  const row = chat(
    user('q'),
    { role: 'assistant', content: null, tool_calls: [call('call_1'), call('abcDEF123')] },
    { role: 'tool', tool_call_id: 'abcDEF123', content: 'x' },
    { role: 'tool', tool_call_id: 'call_1', content: 'y', name: 'weather' },
    { ...assistant('a'), weight: 0 },
  );

  it('gets call ids of nine letters or digits, the same in call and answer', () => {
    const { messages } = convert('mistral', { ...row, tools }) as { messages: JsonObject[] };
    const [, calls, first, second] = messages;
    const ids = ((calls?.tool_calls ?? []) as { id: string }[]).map(({ id }) => id);
    expect(ids[0]).toMatch(/^[a-z0-9]{9}$/);
    expect(ids[1]).toBe('abcDEF123');
    expect([first?.tool_call_id, second?.tool_call_id]).toEqual([ids[1], ids[0]]);
    expect(calls).not.toHaveProperty('content');
    expect(second).toMatchObject({ name: 'weather', content: 'y' });
    expect(messages[4]).toEqual({ ...assistant('a'), weight: 0 });
  });

  it.each<[string, JsonObject]>([
    [
      'content beside calls',
      chat(
        user('q'),
        { ...assistant('x'), tool_calls: [call('c')] },
        { role: 'tool', tool_call_id: 'c', content: '' },
        assistant('a'),
      ),
    ],
    ['calls at the end', chat(user('q'), { role: 'assistant', tool_calls: [call('c')] })],
    ['a name of a user', chat({ ...user('q'), name: 'n' }, assistant('a'))],
    ['functions', { ...chat(user('q'), assistant('a')), functions: [{ name: 'f' }] }],
    ['calls one at a time', { ...chat(user('q'), assistant('a')), tools, parallel_tool_calls: false }],
    ['a preference', preference(chat(user('q')))],
    ['a member no format has', chat(user('q'), { ...assistant('a'), reasoning: 'r' })],
  ])('refuses %s', (_title, given) => {
    expect(convert('mistral', given)).toMatch(/^unsupported: /);
  });
});

describe('vertex-supervised', () => {
  it('gets system text apart, parts, calls as objects, and all answers of a turn in one content', () => {
    expect(
      convert('vertex-supervised', {
        ...chat(
          system('s'),
          { role: 'developer', content: [part('d1'), part('d2')] },
          user([
            part('look'),
            image('data:image/PNG;base64,AAAA'),
            image('gs://b/c.JPG'),
            image('https://x.io/a.webp?v=1', { detail: 'auto' }),
          ]),
          {
            role: 'assistant',
            content: 'let me see',
            tool_calls: [call('c1'), call('c2', '{"n":12345678901234567890}')],
          },
          { role: 'tool', tool_call_id: 'c2', content: '{"t":1}' },
          { role: 'tool', tool_call_id: 'c1', content: [part('rain'), part('y')] },
          user('and?'),
          { ...assistant('done'), weight: 1 },
        ),
        tools,
        parallel_tool_calls: true,
      }),
    ).toEqual({
      systemInstruction: { parts: [{ text: 's' }, { text: 'd1' }, { text: 'd2' }] },
      contents: [
        {
          role: 'user',
          parts: [
            { text: 'look' },
            { inlineData: { mimeType: 'image/png', data: 'AAAA' } },
            { fileData: { mimeType: 'image/jpeg', fileUri: 'gs://b/c.JPG' } },
            { fileData: { mimeType: 'image/webp', fileUri: 'https://x.io/a.webp?v=1' } },
          ],
        },
        {
          role: 'model',
          parts: [
            { text: 'let me see' },
            { functionCall: { name: 'weather', args: { city: 'Oslo' } } },
            { functionCall: { name: 'weather', args: { n: expect.anything() } } },
          ],
        },
        {
          role: 'user',
          parts: [
            { functionResponse: { name: 'weather', response: { t: 1 } } },
            { functionResponse: { name: 'weather', response: { output: 'rainy' } } },
          ],
        },
        { role: 'user', parts: [{ text: 'and?' }] },
        { role: 'model', parts: [{ text: 'done' }] },
      ],
      tools: [
        {
          functionDeclarations: [{ name: 'weather', description: 'd', parameters: { type: 'object', properties: {} } }],
        },
      ],
    });
  });

  it('keeps big integers of arguments digit by digit, and a row without system text', () => {
    const row = chat(user('q'), { role: 'assistant', tool_calls: [call('c', '{"n":12345678901234567890}')] });
    expect(JSON.stringify(convert('vertex-supervised', row))).toBe(
      '{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[{"functionCall":{"name":"weather","args":{"n":12345678901234567890}}}]}]}',
    );
    expect(convert('vertex-supervised', TEXT)).toEqual({
      contents: [
        { role: 'user', parts: [{ text: 'p' }] },
        { role: 'model', parts: [{ text: 'c' }] },
      ],
    });
  });

  it.each<[string, JsonObject]>([
    ['a weight of 0', chat(user('q'), { ...assistant('a'), weight: 0 })],
    ['late system text', chat(user('q'), system('s'), assistant('a'))],
    ['a name', chat({ ...user('q'), name: 'n' }, assistant('a'))],
    ['a name on system text', chat({ ...system('q'), name: 'n' }, user('q'), assistant('a'))],
    ['arguments that are no object', chat(user('q'), { role: 'assistant', tool_calls: [call('c', '[]')] })],
    [
      'arguments that name a key twice',
      chat(user('q'), { role: 'assistant', tool_calls: [call('c', '{"a":1,"a":2}')] }),
    ],
    ['an image without type', chat(user([image('https://x.io/picture')]), assistant('a'))],
    ['the detail of an image', chat(user([image('https://x.io/a.png', { detail: 'high' })]), assistant('a'))],
    [
      'a strict tool',
      { ...chat(user('q'), assistant('a')), tools: [{ type: 'function', function: { name: 'f', strict: true } }] },
    ],
    ['a preference', preference(chat(user('q')))],
  ])('refuses %s', (_title, given) => {
    expect(convert('vertex-supervised', given)).toMatch(/^unsupported: /);
  });
});

describe('vertex-preference', () => {
  it('scores the preferred answer 1 and puts system text before the first user text', () => {
    expect(
      convert(
        'vertex-preference',
        preference(
          chat(
            system('s'),
            { role: 'developer', content: 'd' },
            user([image('gs://b/a.png')]),
            assistant('x'),
            user('q'),
          ),
        ),
      ),
    ).toEqual({
      contents: [
        { role: 'user', parts: [{ text: 's\n\nd' }, { fileData: { mimeType: 'image/png', fileUri: 'gs://b/a.png' } }] },
        { role: 'model', parts: [{ text: 'x' }] },
        { role: 'user', parts: [{ text: 'q' }] },
      ],
      completions: [
        { score: 1, completion: { role: 'model', parts: [{ text: 'good' }] } },
        { score: 0, completion: { role: 'model', parts: [{ text: 'bad' }] } },
      ],
    });
    expect(convert('vertex-preference', preference(chat(system('s'), user('q'))))).toMatchObject({
      contents: [{ role: 'user', parts: [{ text: 's\n\nq' }] }],
    });
  });

  it.each<[string, JsonObject]>([
    ['two messages of an answer', preference(chat(user('q')), [assistant('a'), assistant('b')])],
    ['tools', preference({ ...chat(user('q')), tools })],
    ['a chat', chat(user('q'), assistant('a'))],
    ['system text alone', preference(chat(system('s')))],
  ])('refuses %s', (_title, given) => {
    expect(convert('vertex-preference', given)).toMatch(/^unsupported: /);
  });
});

describe('bedrock', () => {
  const row = chat(
    system('s1'),
    { role: 'developer', content: [part('s2'), part('s3')] },
    user([part('q1'), part('q2')]),
    user('q3'),
    { ...assistant('a'), weight: 1 },
  );

  it('conversation: system joined, blocks for parts, equal roles merged', () => {
    expect(convert('bedrock-conversation', row)).toEqual({
      schemaVersion: 'bedrock-conversation-2024',
      system: [{ text: 's1\n\ns2s3' }],
      messages: [
        { role: 'user', content: [{ text: 'q1' }, { text: 'q2\nq3' }] },
        { role: 'assistant', content: [{ text: 'a' }] },
      ],
    });
    expect(convert('bedrock-conversation', TEXT)).toEqual({
      schemaVersion: 'bedrock-conversation-2024',
      messages: [
        { role: 'user', content: [{ text: 'p' }] },
        { role: 'assistant', content: [{ text: 'c' }] },
      ],
    });
  });

  it('Claude 3: contents are texts', () => {
    expect(convert('bedrock-claude-3', row)).toEqual({
      system: 's1\n\ns2s3',
      messages: [
        { role: 'user', content: 'q1q2\nq3' },
        { role: 'assistant', content: 'a' },
      ],
    });
  });

  it('text: one question with the system text before it, one answer', () => {
    expect(convert('bedrock-text', chat(system('s'), user('q'), assistant('a')))).toEqual({
      prompt: 's\n\nq',
      completion: 'a',
    });
    expect(convert('bedrock-text', TEXT)).toEqual(TEXT);
    expect(convert('bedrock-text', row)).toMatch(/^unsupported: .*one user and one assistant/);
  });

  const refused: [string, JsonObject, RegExp][] = [
    ['late system text', chat(user('q'), assistant('x'), system('s'), user('q'), assistant('a')), /^unsupported/],
    ['a first turn of the assistant', chat(assistant('x'), user('q'), assistant('a')), /^alternation/],
    ['an image', chat(user([image('data:image/png;base64,AAAA')]), assistant('a')), /^unsupported/],
    ['tools', { ...chat(user('q'), assistant('a')), tools }, /^unsupported/],
    ['a tool call', chat(user('q'), { role: 'assistant', tool_calls: [call('c')] }), /^unsupported/],
    ['a weight of 0', chat(user('q'), { ...assistant('a'), weight: 0 }), /^unsupported/],
    ['a name', chat({ ...user('q'), name: 'n' }, assistant('a')), /^unsupported/],
    ['a preference', preference(chat(user('q'))), /^unsupported/],
    ['a field without a place', { ...chat(user('q'), assistant('a')), note: 1 }, /^unsupported/],
  ];
  for (const format of ['bedrock-conversation', 'bedrock-claude-3', 'bedrock-text'] as const)
    it.each(refused)(`${format} refuses %s`, (_title, given, why) => {
      expect(convert(format, given)).toMatch(
        why === refused[1]?.[2] && format === 'bedrock-text' ? /^unsupported/ : why,
      );
    });
});

/** Every text and every call of a row, in order, with who said it: what a conversion may not lose. */
function saidIn(value: JsonValue | undefined): string[] {
  if (Array.isArray(value)) return value.flatMap(saidIn);
  if (!isObject(value)) return [];
  return Object.values(value).flatMap((one) => (typeof one === 'string' ? [one] : saidIn(one)));
}

describe('nothing is lost', () => {
  const word = fc
    .string({ minLength: 1, unit: 'grapheme' })
    .filter((text) => text.trim() !== '' && text.isWellFormed());
  const contents = fc.oneof(
    word,
    fc.array(word, { minLength: 1, maxLength: 3 }).map((texts) => texts.map(part)),
  );
  const turn = fc.tuple(contents, contents).map(([q, a]) => [user(q), assistant(a)]);
  const plain = fc
    .tuple(fc.array(contents, { maxLength: 2 }), fc.array(turn, { minLength: 1, maxLength: 4 }))
    .map(([texts, turns]) => chat(...texts.map(system), ...turns.flat()));
  const textOf = (content: JsonValue | undefined): string =>
    typeof content === 'string'
      ? content
      : saidIn(content)
          .filter((text) => text !== 'text')
          .join('');
  const turnsIn = (row: JsonObject) =>
    (row.messages as JsonObject[])
      .filter(({ role }) => role !== 'system')
      .map(({ role, content }) => ({ role, text: textOf(content) }));
  const systemIn = (row: JsonObject) =>
    (row.messages as JsonObject[]).filter(({ role }) => role === 'system').map(({ content }) => textOf(content));

  it('of a chat in a conversation of Bedrock: reading it back gives the same turns', () => {
    fc.assert(
      fc.property(plain, (row) => {
        const out = convert('bedrock-conversation', row) as JsonObject;
        expect(turnsIn(out)).toEqual(turnsIn(row));
        const said = (out.system as { text: string }[] | undefined)?.[0]?.text ?? '';
        expect(said).toBe(systemIn(row).join('\n\n'));
        const claude = convert('bedrock-claude-3', row) as JsonObject;
        expect(turnsIn(claude)).toEqual(turnsIn(row));
        expect(claude.system ?? '').toBe(said);
      }),
    );
  });

  it('of a chat at Mistral: the same row', () => {
    fc.assert(
      fc.property(plain, (row) => {
        expect(convert('mistral', row)).toEqual(row);
      }),
    );
  });

  it('of a chat with calls at Vertex AI: reading it back gives the same texts, calls and answers', () => {
    const args = fc.dictionary(fc.string(), fc.jsonValue(), { maxKeys: 3 }).map((value) => JSON.stringify(value));
    const answers = fc.array(fc.tuple(args, fc.oneof(word, args)), { minLength: 1, maxLength: 3 });
    const exchange = fc
      .tuple(contents, answers, contents)
      .map(([q, all, a]) => [
        user(q),
        { role: 'assistant', content: null, tool_calls: all.map(([given], i) => call(`c${i}`, given)) },
        ...all.map(([, content], i) => ({ role: 'tool', tool_call_id: `c${i}`, content })),
        assistant(a),
      ]);
    const parsed = (text: string): JsonValue | undefined => {
      try {
        return JSON.parse(text) as JsonValue;
      } catch {
        return undefined;
      }
    };
    fc.assert(
      fc.property(fc.array(fc.oneof(turn, exchange), { minLength: 1, maxLength: 3 }), (turns) => {
        const row = chat(...turns.flat());
        const out = JSON.parse(JSON.stringify(convert('vertex-supervised', row))) as {
          contents: { role: string; parts: JsonObject[] }[];
        };
        const back = out.contents.flatMap(({ role, parts }) =>
          parts.map((one) => {
            if (isObject(one.functionCall)) return { call: one.functionCall.args };
            if (isObject(one.functionResponse)) return { answer: one.functionResponse.response };
            return { role, text: one.text };
          }),
        );
        const given = turns.flat().flatMap((message: JsonObject): object[] => {
          if (Array.isArray(message.tool_calls))
            return (message.tool_calls as ReturnType<typeof call>[]).map((one) => ({
              call: JSON.parse(one.function.arguments),
            }));
          if (message.role === 'tool') {
            const value = parsed(message.content as string);
            return [{ answer: isObject(value) ? value : { output: message.content } }];
          }
          const role = message.role === 'assistant' ? 'model' : 'user';
          const { content } = message;
          return typeof content === 'string'
            ? [{ role, text: content }]
            : (content as { text: string }[]).map(({ text }) => ({ role, text }));
        });
        expect(JSON.stringify(back)).toBe(JSON.stringify(JSON.parse(JSON.stringify(given))));
      }),
    );
  });
});

it('no format fails in another way than with a reason, whatever valid rows look like', () => {
  const formats: RowFormat[] = [
    'together',
    'fireworks',
    'mistral',
    'vertex-supervised',
    'vertex-preference',
    'bedrock-conversation',
    'bedrock-claude-3',
    'bedrock-text',
  ];
  const extra = fc.dictionary(fc.string(), fc.jsonValue(), { maxKeys: 2 });
  const message = fc
    .tuple(extra, fc.constantFrom('user', 'assistant', 'system', 'developer'), fc.string({ minLength: 1 }))
    .map(([more, role, content]) => ({ ...more, role, content: `x${content}` }));
  fc.assert(
    fc.property(fc.array(message, { maxLength: 5 }), extra, fc.constantFrom(...formats), (messages, more, format) => {
      const row = { ...more, messages: [...messages, { role: 'assistant', content: 'a' }] } as JsonObject;
      try {
        checkRow(row, kindOf(row));
      } catch (error) {
        expect(error).toBeInstanceOf(RowFault);
        return;
      }
      const out = convert(format, row);
      // Whole, or refused.
      if (typeof out !== 'string')
        for (const text of messages) expect(JSON.stringify(out)).toContain(JSON.stringify(text.content).slice(1, -1));
    }),
    { numRuns: 500 },
  );
});
