import { crc32, deflateSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { OPERATIONS, type OperationId } from '../../../operations/operation.ts';
import { answerTexts, applyReplacements, ReplacementError, requestTexts, type SaidPart } from '../texts.ts';

const line = ({ path, role, text, unreadable }: SaidPart) => `${path} ${role}: ${unreadable ?? text}`;
const asked = (id: OperationId, body: unknown) => requestTexts(OPERATIONS[id], body, 'all').map(line);
const text = (value: string) => Buffer.from(value).toString('base64');

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(crc32(body), body.length + 4);
  return out;
}
const png = (...chunks: Buffer[]) =>
  Buffer.concat([
    Buffer.from('89504e470d0a1a0a', 'hex'),
    chunk('IHDR', Buffer.alloc(13)),
    ...chunks,
    chunk('IDAT', Buffer.from(Array.from({ length: 64 }, (_, i) => i * 37))),
    chunk('IEND', Buffer.alloc(0)),
  ]);
const jpeg = (comment: string) => {
  const data = Buffer.from(comment);
  const length = Buffer.alloc(2);
  length.writeUInt16BE(data.length + 2);
  return Buffer.concat([Buffer.from('ffd8fffe', 'hex'), length, data, Buffer.from('ffda0002aabbccffd9', 'hex')]);
};
const dataUrl = (type: string, bytes: Buffer) => `data:${type};base64,${bytes.toString('base64')}`;

describe('a secret is found and replaced', () => {
  const SECRET = 'swordfish-7';
  const user = (content: unknown) => ({ messages: [{ role: 'user', content }] });
  const escaped = String.raw`{"a":["\u0073wordfish-7"]}`;
  const hidden: [string, OperationId, unknown][] = [
    [
      'in a tool result',
      'chat',
      {
        messages: [
          { role: 'tool', content: SECRET },
          { role: 'user', content: 'hi' },
        ],
      },
    ],
    ['in a nested tool result', 'messages', user([{ type: 'tool_result', content: [{ type: 'text', text: SECRET }] }])],
    [
      'in a second content part',
      'chat',
      user([
        { type: 'text', text: 'a' },
        { type: 'text', text: SECRET },
      ]),
    ],
    [
      'in an earlier message',
      'chat',
      {
        messages: [
          { role: 'user', content: SECRET },
          { role: 'user', content: 'a' },
        ],
      },
    ],
    [
      'in escaped arguments',
      'chat',
      { messages: [{ role: 'assistant', tool_calls: [{ function: { arguments: escaped } }] }] },
    ],
    ['in escaped arguments of an item', 'responses', { input: [{ type: 'function_call', arguments: escaped }] }],
    [
      'in arguments that are one text',
      'chat',
      { messages: [{ tool_calls: [{ function: { arguments: String.raw`"\u0073wordfish-7"` } }] }] },
    ],
    [
      'in arguments with a name twice',
      'chat',
      { messages: [{ tool_calls: [{ function: { arguments: String.raw`{"a":"\u0073wordfish-7","a":"b"}` } }] }] },
    ],
    ['in arguments that are cut', 'responses', { input: [{ type: 'function_call', arguments: escaped.slice(0, -2) }] }],
    ['in lines of JSON', 'chat', { messages: [{ role: 'tool', content: `{}\n${escaped}\n` }] }],
    ['in lines of JSON that are a whole body', 'proxy', Buffer.from(`{}\n${escaped}\n`)],
    ['in JSON in JSON', 'chat', { messages: [{ role: 'tool', content: JSON.stringify({ a: escaped }) }] }],
    ['in a JSON tool result with escapes', 'messages', user([{ type: 'tool_result', content: escaped }])],
    ['as a name in tool input', 'messages', user([{ type: 'tool_use', input: { [SECRET]: 1 } }])],
    [
      'as a name in arguments',
      'chat',
      { messages: [{ tool_calls: [{ function: { arguments: String.raw`{"\u0073wordfish-7":1}` } }] }] },
    ],
    ['as a name of a member', 'chat', { messages: [], [SECRET]: 1 }],
    [
      'in a base64 text file',
      'chat',
      user([{ type: 'file', file: { filename: 'a', file_data: dataUrl('text/plain', Buffer.from(SECRET)) } }]),
    ],
    [
      'in a base64 file that says it is binary',
      'chat',
      user([{ type: 'file', file: { file_data: dataUrl('application/octet-stream', Buffer.from(SECRET)) } }]),
    ],
    [
      'in bare base64',
      'responses',
      { input: [{ role: 'user', content: [{ type: 'input_file', file_data: text(SECRET) }] }] },
    ],
    [
      'in long bare base64',
      'responses',
      {
        input: [{ role: 'user', content: [{ type: 'input_file', file_data: text(`${SECRET} ${'x'.repeat(5_000)}`) }] }],
      },
    ],
    [
      'in a base64 source',
      'messages',
      user([
        { type: 'document', source: { type: 'base64', media_type: 'text/plain', data: text(`${SECRET}. And more.`) } },
      ]),
    ],
    [
      'in a percent-encoded file',
      'chat',
      user([{ type: 'file', file: { file_data: 'data:text/plain,sword%66ish-7' } }]),
    ],
    [
      'in the head of a data URL',
      'chat',
      user([{ type: 'image_url', image_url: { url: `data:image/png;name=${SECRET};base64,AAAA` } }]),
    ],
    [
      'in a data URL that is none',
      'chat',
      user([{ type: 'image_url', image_url: { url: `data:image/png;base64,!${SECRET} (here)` } }]),
    ],
    [
      'in a PNG text',
      'chat',
      user([
        {
          type: 'image_url',
          image_url: { url: dataUrl('image/png', png(chunk('tEXt', Buffer.from(`Comment\0${SECRET}`)))) },
        },
      ]),
    ],
    [
      'in an international PNG text',
      'chat',
      user([
        {
          type: 'image_url',
          image_url: { url: dataUrl('image/png', png(chunk('iTXt', Buffer.from(`Title\0\0\0en\0t\0${SECRET}`)))) },
        },
      ]),
    ],
    [
      'in a compressed PNG text',
      'chat',
      user([
        {
          type: 'image_url',
          image_url: {
            url: dataUrl('image/png', png(chunk('zTXt', Buffer.concat([Buffer.from('T\0\0'), deflateSync(SECRET)])))),
          },
        },
      ]),
    ],
    [
      'behind a PNG',
      'chat',
      user([
        { type: 'image_url', image_url: { url: dataUrl('image/png', Buffer.concat([png(), Buffer.from(SECRET)])) } },
      ]),
    ],
    [
      'in a JPEG comment',
      'messages',
      user([
        { type: 'image', source: { type: 'base64', media_type: 'image/jpeg', data: jpeg(SECRET).toString('base64') } },
      ]),
    ],
    [
      'in a picture that says it is another',
      'messages',
      user([
        { type: 'image', source: { type: 'base64', media_type: 'image/webp', data: jpeg(SECRET).toString('base64') } },
      ]),
    ],
    [
      'in the description of a tool',
      'chat',
      { messages: [], tools: [{ function: { parameters: { properties: { a: { description: SECRET } } } } }] },
    ],
    [
      'as a value that a tool allows',
      'chat',
      { messages: [], tools: [{ function: { parameters: { enum: [SECRET] } } }] },
    ],
    ['in metadata', 'chat', { messages: [], metadata: { a: SECRET } }],
    ['in the name of a speaker', 'chat', { messages: [{ role: 'user', name: SECRET, content: 'a' }] }],
    ['in a stop sequence', 'chat', { messages: [], stop: [SECRET] }],
    ['in a prediction', 'chat', { messages: [], prediction: { type: 'content', content: SECRET } }],
    ['in a member that should be a word', 'chat', { messages: [{ role: `user ${SECRET}`, content: 'a' }] }],
    ['in system blocks', 'messages', { system: [{ type: 'text', text: SECRET }], messages: [] }],
    ['in variables of a stored prompt', 'responses', { prompt: { id: 'p', variables: { a: SECRET } } }],
    [
      'in the output of a computer',
      'responses',
      {
        input: [
          {
            type: 'computer_call_output',
            output: {
              type: 'computer_screenshot',
              image_url: dataUrl('image/png', png(chunk('tEXt', Buffer.from(`a\0${SECRET}`)))),
            },
          },
        ],
      },
    ],
    ['in a document of a reranking', 'rerank', { query: 'q', documents: [{ text: 'a', any: { more: SECRET } }] }],
    ['in the second embedding input', 'embeddings', { input: ['a', SECRET] }],
    [
      'anywhere in what is passed through',
      'proxy',
      { contents: [{ parts: [{ inlineData: { mimeType: 'text/plain', data: text(`${SECRET} and so on`) } }] }] },
    ],
  ];
  it.each(hidden)('%s (%s)', (_where, id, body) => {
    const parts = requestTexts(OPERATIONS[id], body, 'all');
    const found = parts.filter((part) => part.text.includes(SECRET));
    expect(found.length).toBeGreaterThan(0);
    const next = applyReplacements(
      OPERATIONS[id],
      body,
      found.map((part) => ({ path: part.path, text: part.text.replaceAll(SECRET, '[GONE]') })),
    );
    const after = requestTexts(OPERATIONS[id], next, 'all');
    expect(after.filter((part) => part.text.includes(SECRET))).toEqual([]);
    expect(after.some((part) => part.text.includes('[GONE]'))).toBe(true);
    expect(Buffer.isBuffer(next) ? String(next) : JSON.stringify(next)).not.toContain(SECRET);
    expect(parts.every((part) => !part.path.includes(SECRET))).toBe(true);
  });

  it('and what cannot be read is said', () => {
    const pdf = Buffer.from('%PDF-1.7 \u0000\u0001\u00ff', 'latin1');
    expect(asked('chat', user([{ type: 'file', file: { file_data: dataUrl('application/pdf', pdf) } }]))).toEqual([
      'messages[0].content[0].file.file_data user: file',
    ]);
    expect(
      asked('responses', { input: [{ role: 'user', content: [{ type: 'input_file', file_id: 'file-1' }] }] }),
    ).toEqual(['input[0].content[0].file_id user: file']);
    expect(
      asked('responses', { input: [{ role: 'user', content: [{ type: 'input_image', file_id: 'file-1' }] }] }),
    ).toEqual([]);
    const bomb = chunk('zTXt', Buffer.concat([Buffer.from('T\0\0'), deflateSync(Buffer.alloc(1_000_000))]));
    expect(asked('chat', user([{ type: 'image_url', image_url: { url: dataUrl('image/png', png(bomb)) } }]))).toEqual([
      'messages[0].content[0].image_url.url user: bounds',
    ]);
    expect(
      asked(
        'chat',
        user([
          { type: 'input_audio', input_audio: { data: Buffer.alloc(5_000, 0xfb).toString('base64'), format: 'wav' } },
        ]),
      ),
    ).toEqual([]);
  });
});

describe('replacements', () => {
  const chat = OPERATIONS.chat;
  it('share what they do not change', () => {
    const body = {
      messages: [
        { role: 'user', content: 'a' },
        { role: 'user', content: 'b' },
      ],
      tools: [{ a: 1 }],
    };
    const next = applyReplacements(chat, body, [{ path: 'messages[1].content', text: 'c' }]) as typeof body;
    expect(next).toEqual({
      messages: [
        { role: 'user', content: 'a' },
        { role: 'user', content: 'c' },
      ],
      tools: [{ a: 1 }],
    });
    expect(next.messages[0]).toBe(body.messages[0]);
    expect(next.tools).toBe(body.tools);
    expect(body.messages[1]?.content).toBe('b');
    expect(applyReplacements(chat, body, [{ path: 'messages[1].content', text: 'b' }])).toBe(body);
  });
  it('of a path that is not there are refused', () => {
    expect(() => applyReplacements(chat, { messages: [] }, [{ path: 'messages[0].content', text: 'c' }])).toThrow(
      ReplacementError,
    );
    expect(() => applyReplacements(chat, { messages: [] }, [{ path: '__proto__.x', text: 'c' }])).toThrow(
      ReplacementError,
    );
  });
  it('in arguments and in what they hold are both made', () => {
    const raw = String.raw`{"mail":"a@b.example","\u0070ath":"\u0061@b.example"}`;
    const body = { messages: [{ tool_calls: [{ function: { arguments: raw } }] }] };
    const at = 'messages[0].tool_calls[0].function.arguments';
    const next = applyReplacements(chat, body, [
      { path: at, text: raw.replace('a@b.example', '[MAIL]') },
      { path: `${at}.mail`, text: '[MAIL]' },
      { path: `${at}.path`, text: '[MAIL]' },
    ]) as typeof body;
    expect(JSON.parse(next.messages[0]?.tool_calls[0]?.function.arguments ?? '')).toEqual({
      mail: '[MAIL]',
      path: '[MAIL]',
    });
  });
  it('that contradict each other are refused where one of them could uncover what the other covers', () => {
    const at = 'messages[0].tool_calls[0].function.arguments';
    const body = (raw: string) => ({ messages: [{ tool_calls: [{ function: { arguments: raw } }] }] });
    const both = (raw: string, next: string) =>
      applyReplacements(chat, body(raw), [
        { path: at, text: next },
        { path: `${at}.a`, text: '[X]' },
      ]);
    expect(() => both(String.raw`{"n":4155550123,"a":"\u0078"}`, String.raw`{"n":[N],"a":"\u0078"}`)).toThrow(
      ReplacementError,
    );
    expect(both('{"n":4155550123,"a":"x"}', '{"n":[N],"a":"[X]"}')).toEqual(body('{"n":[N],"a":"[X]"}'));
  });
  it('empty the tokens that tell a changed text', () => {
    const body = { choices: [{ message: { content: 'a' }, logprobs: { content: [{ token: 'a' }] } }] };
    expect(applyReplacements(chat, body, [{ path: 'choices[0].message.content', text: 'b' }])).toEqual({
      choices: [{ message: { content: 'b' }, logprobs: null }],
    });
  });
  it('keep integers that no double holds', () => {
    const body = { messages: [{ tool_calls: [{ function: { arguments: '{"n":12345678901234567890,"a":"x"}' } }] }] };
    expect(
      applyReplacements(chat, body, [{ path: 'messages[0].tool_calls[0].function.arguments.a', text: 'y' }]),
    ).toEqual({ messages: [{ tool_calls: [{ function: { arguments: '{"n":12345678901234567890,"a":"y"}' } }] }] });
  });
  it('of two names by the same lose no value', () => {
    const body = { messages: [{ content: [{ type: 'tool_use', input: { 'a@b': 1, 'c@d': 2 } }] }] };
    const paths = requestTexts(chat, body, 'all').map(({ path }) => path);
    const next = applyReplacements(
      chat,
      body,
      paths.map((path) => ({ path, text: '[M]' })),
    );
    expect(next).toEqual({ messages: [{ content: [{ type: 'tool_use', input: { '[M]': 1, '[M]_2': 2 } }] }] });
  });

  const names = fc.oneof(
    fc.constantFrom(
      'messages',
      'content',
      'text',
      'role',
      'input',
      'arguments',
      'tools',
      'metadata',
      'data',
      'type',
      '__proto__',
      'logprobs',
    ),
    fc.string({ maxLength: 6 }),
  );
  const { value: json } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 6 },
      fc.string(),
      fc.constantFrom(
        '{"a":"b\\n"}',
        '["\\u0041"]',
        'user',
        'tool_use',
        'data:text/plain;base64,aGk=',
        'aGVsbG8gd29ybGQ=',
      ),
      fc.integer(),
      fc.constant(null),
      fc.array(tie('value'), { maxLength: 4 }),
      fc.array(fc.tuple(names, tie('value')), { maxLength: 4 }).map((entries) => Object.fromEntries(entries)),
    ),
  }));
  const anyOperation = fc.constantFrom<OperationId>('chat', 'messages', 'responses', 'completions', 'proxy', 'rerank');

  it('by the same text give an equal body, of any body', () => {
    fc.assert(
      fc.property(anyOperation, json, (id, body) => {
        const before = JSON.stringify(body);
        for (const parts of [requestTexts(OPERATIONS[id], body, 'all'), answerTexts(OPERATIONS[id], body)]) {
          const readable = parts.filter(({ unreadable }) => unreadable === undefined);
          expect(new Set(readable.map(({ path }) => path)).size).toBe(readable.length);
          expect(applyReplacements(OPERATIONS[id], body, readable)).toBe(body);
        }
        expect(JSON.stringify(body)).toBe(before);
      }),
      { numRuns: 1_000 },
    );
  });
  it('by a marker put it at exactly that path, of any body', () => {
    fc.assert(
      fc.property(anyOperation, json, fc.nat(), (id, body, seed) => {
        const parts = requestTexts(OPERATIONS[id], body, 'all').filter(({ unreadable }) => unreadable === undefined);
        const part = parts[seed % Math.max(1, parts.length)];
        if (part === undefined) return;
        // With what JSON escapes: other texts with JSON in them are not looked into.
        const MARK = 'Mark "1"';
        const next = applyReplacements(OPERATIONS[id], body, [{ path: part.path, text: MARK }]);
        const after = requestTexts(OPERATIONS[id], next, 'all');
        const marked = after.filter(({ text: now }) => now === MARK).map(({ path }) => path);
        // A name that is none of a program's is written by its position.
        if (part.path.endsWith('#name')) expect(marked.some((path) => path.endsWith('#name'))).toBe(true);
        else expect(marked).toContain(part.path.replace('#decoded', ''));
        // Nothing else that can be read on its own has changed.
        const others = (list: readonly SaidPart[], path: string) =>
          list
            .filter(
              (other) =>
                !other.path.includes('logprobs') && !other.path.startsWith(path) && !path.startsWith(other.path),
            )
            .map(line);
        if (!part.path.endsWith('#name') && !/#|(?:^|\.)(?:role|type)$/.test(part.path))
          expect(
            others(
              after.filter(({ unreadable }) => unreadable === undefined),
              part.path,
            ),
          ).toEqual(others(parts, part.path));
      }),
      { numRuns: 1_000 },
    );
  });
});

describe('bounds', () => {
  it('hold for bodies of any depth and number of texts, which are said to be unreadable', () => {
    let deep: unknown = 'x';
    for (let i = 0; i < 100_000; i++) deep = [deep];
    expect(asked('proxy', { a: deep, b: 'seen' }).map((seen) => seen.replace(/(\[0\])+/, '…'))).toEqual([
      'a… null: bounds',
      'b null: seen',
    ]);
    const wide = requestTexts(OPERATIONS.proxy, { a: Array.from({ length: 200_000 }, () => 'x') }, 'all');
    expect(wide.at(-1)?.unreadable).toBe('bounds');
    expect(wide.length).toBeLessThan(110_000);
  });
  it('hold for arguments of any depth', () => {
    const value = `${'['.repeat(100_000)}12345678901234567890,"\\u0061"${']'.repeat(100_000)}`;
    const parts = requestTexts(OPERATIONS.responses, { input: [{ type: 'function_call', arguments: value }] }, 'all');
    expect(parts.at(-1)?.unreadable).toBe('bounds');
  });
  it('of time: ten thousand parts in a megabyte take at most 20 ms of work', () => {
    const body = {
      messages: [
        {
          role: 'user',
          content: Array.from({ length: 10_000 }, (_, i) => ({ type: 'text', text: `${i} ${'word '.repeat(16)}` })),
        },
      ],
    };
    const run = () => {
      const from = process.threadCpuUsage();
      requestTexts(OPERATIONS.chat, body, 'all');
      const { user, system } = process.threadCpuUsage(from);
      return (user + system) / 1_000;
    };
    expect(Math.min(run(), run(), run(), run(), run())).toBeLessThan(20);
  });
});
