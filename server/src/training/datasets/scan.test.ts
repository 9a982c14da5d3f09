import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { DatasetReport, RowKind, ScanOptions } from './report.ts';
import { datasetError, isValid, problemsText, TRAINING_KINDS } from './report.ts';
import { DatasetScan, MAX_LINE } from './scan.ts';

const OPTIONS: ScanOptions = {
  kinds: TRAINING_KINDS,
  format: null,
  emit: false,
  countTokens: false,
  excerpts: false,
  minimumRows: 1,
  badRows: Number.POSITIVE_INFINITY,
};

function scan(data: string | Buffer, options: Partial<ScanOptions> = {}, step = 1 << 16): DatasetReport {
  const bytes = Buffer.from(data as string);
  const one = new DatasetScan({ ...OPTIONS, ...options }, null);
  for (let from = 0; from < bytes.length; from += step) one.push(bytes.subarray(from, from + step));
  one.end();
  return one.report();
}
const lines = (...rows: unknown[]) =>
  rows.map((row) => (typeof row === 'string' ? row : JSON.stringify(row))).join('\n');
const user = (content: unknown = 'q') => ({ role: 'user', content });
const assistant = (content: unknown = 'a') => ({ role: 'assistant', content });
const chat = (...messages: unknown[]) => ({ messages });
const GOOD = chat(user(), assistant());
const TEXT = { prompt: 'p', completion: 'c' };
const PREFERENCE = {
  input: { messages: [user()] },
  preferred_output: [assistant()],
  non_preferred_output: [assistant('b')],
};
const call = (id = 'c1') => ({ id, type: 'function', function: { name: 'f', arguments: '{}' } });
const calls = (...ids: string[]) => ({ role: 'assistant', content: null, tool_calls: ids.map(call) });
const tool = (id = 'c1', content = '') => ({ role: 'tool', tool_call_id: id, content });

describe('rows that are valid', () => {
  it.each<[string, unknown, RowKind]>([
    ['a chat', GOOD, 'chat'],
    [
      'with system and developer text',
      chat({ role: 'system', content: 's' }, { role: 'developer', content: 'd' }, user(), assistant()),
      'chat',
    ],
    ['with weights', chat(user(), { ...assistant(), weight: 0 }, user(), { ...assistant(), weight: 1 }), 'chat'],
    [
      'with nulls, as they are exported',
      chat(user(), { ...assistant(), tool_calls: null, name: null, refusal: null }),
      'chat',
    ],
    [
      'with parts',
      chat(
        user([
          { type: 'text', text: 'x' },
          { type: 'image_url', image_url: { url: 'https://x.io/a.png' } },
        ]),
        assistant([{ type: 'text', text: 'y' }]),
      ),
      'chat',
    ],
    [
      'with an image by plain URL and one inline',
      chat(
        user([
          { type: 'image_url', image_url: 'gs://b/a.png' },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
        ]),
        assistant(),
      ),
      'chat',
    ],
    ['with a tool call and its answer', chat(user(), calls('c1', 'c2'), tool('c2'), tool('c1'), assistant()), 'chat'],
    [
      'that ends with a tool call',
      {
        ...chat(user(), calls('c1')),
        tools: [{ type: 'function', function: { name: 'f' } }],
        parallel_tool_calls: false,
      },
      'chat',
    ],
    ['with a field no rule names', { ...GOOD, note: 1 }, 'chat'],
    ['a preference', PREFERENCE, 'preference'],
    ['prompt and completion', TEXT, 'text'],
  ])('%s', (_title, row, kind) => {
    expect(scan(lines(row))).toMatchObject({ rows: 1, valid: 1, kind, problems: [], totals: {} });
  });
});

describe('rows that are not, each with its reason', () => {
  it.each<[string, unknown, string]>([
    ['no JSON', '{"messages": [', 'invalid_json'],
    ['two objects on a line', '{} {}', 'invalid_json'],
    ['a list', '[]', 'not_object'],
    ['a number', '17', 'not_object'],
    ['a word', 'hello', 'invalid_json'],
    ['a key twice', '{"messages":[{"role":"user","role":"assistant","content":"x"}]}', 'duplicate_key'],
    ['nested too deeply', `{"messages":${'['.repeat(200)}${']'.repeat(200)}}`, 'invalid_json'],
    ['none of the kinds', {}, 'unknown_kind'],
    ['two kinds at once', { ...GOOD, ...TEXT }, 'unknown_kind'],
    ['no messages', chat(), 'messages'],
    ['a message that is a text', chat('hello'), 'messages'],
    ['an unknown role', chat({ role: 'bot', content: 'x' }), 'role'],
    ['the role function', chat({ role: 'function', content: 'x', name: 'f' }, assistant()), 'role'],
    ['no content', chat({ role: 'user' }, assistant()), 'empty_turn'],
    ['an empty turn', chat(user(''), assistant()), 'empty_turn'],
    ['a blank turn', chat(user(), assistant(' \n\u00a0')), 'empty_turn'],
    ['no parts', chat(user([]), assistant()), 'empty_turn'],
    ['an empty part', chat(user([{ type: 'text', text: '' }]), assistant()), 'empty_turn'],
    ['a number as content', chat(user(7), assistant()), 'content'],
    ['an unknown part', chat(user([{ type: 'audio', audio: {} }]), assistant()), 'content'],
    [
      'an image of the assistant',
      chat(user(), assistant([{ type: 'image_url', image_url: 'https://x.io/a.png' }])),
      'content',
    ],
    [
      'an image from nowhere',
      chat(user([{ type: 'image_url', image_url: { url: 'file:///etc/passwd' } }]), assistant()),
      'content',
    ],
    ["the last message is the user's", chat(assistant(), user()), 'last_message'],
    ['a weight of 0.5', chat(user(), { ...assistant(), weight: 0.5 }), 'weight'],
    ['a weight of the user', chat({ ...user(), weight: 1 }, assistant()), 'weight'],
    ['a call without answer', chat(user(), calls('c1', 'c2'), tool('c1'), assistant()), 'tool_pairing'],
    ['an answer without call', chat(user(), tool('c1'), assistant()), 'tool_pairing'],
    ['an answer to another call', chat(user(), calls('c1'), tool('c9'), assistant()), 'tool_pairing'],
    ['two answers to a call', chat(user(), calls('c1'), tool('c1'), tool('c1'), assistant()), 'tool_pairing'],
    ['a late answer', chat(user(), calls('c1'), user(), tool('c1'), assistant()), 'tool_pairing'],
    ['an answer without id', chat(user(), calls('c1'), { role: 'tool', content: 'x' }, assistant()), 'tool_pairing'],
    ['an id on a user message', chat({ ...user(), tool_call_id: 'c1' }, assistant()), 'tool_pairing'],
    ['two calls of one id', chat(user(), calls('c1', 'c1')), 'tool_calls'],
    ['calls of the user', chat({ ...user(), tool_calls: [call()] }, assistant()), 'tool_calls'],
    ['an empty list of calls', chat(user(), { ...assistant(), tool_calls: [] }), 'tool_calls'],
    [
      'arguments that are an object',
      chat(user(), {
        role: 'assistant',
        tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: {} } }],
      }),
      'tool_calls',
    ],
    ['a tool without name', { ...GOOD, tools: [{ type: 'function', function: {} }] }, 'tools'],
    ['tools that are an object', { ...GOOD, tools: {} }, 'tools'],
    ['an input that ends with the assistant', { ...PREFERENCE, input: chat(user(), assistant()) }, 'last_message'],
    ['no answers to choose from', { ...PREFERENCE, preferred_output: [] }, 'outputs'],
    ['an answer of the user', { ...PREFERENCE, non_preferred_output: [user()] }, 'outputs'],
    ['half a preference', { input: chat(user()), preferred_output: [assistant()] }, 'outputs'],
    ['half a text', { prompt: 'p' }, 'text'],
    ['an empty completion', { prompt: 'p', completion: '' }, 'empty_turn'],
  ])('%s', (_title, row, code) => {
    const report = scan(lines(GOOD, row), { kinds: TRAINING_KINDS });
    const mixed = report.problems.every((problem) => problem.code === 'mixed_kinds') ? scan(lines(row)) : report;
    expect(mixed.totals).toEqual({ [code]: 1 });
    expect(mixed.problems).toEqual([{ line: mixed === report ? 2 : 1, code, reason: expect.any(String) }]);
  });

  it('bytes that are not UTF-8', () => {
    const bad = Buffer.concat([
      Buffer.from('{"prompt":"'),
      Buffer.from([0xc3, 0x28]),
      Buffer.from('","completion":"c"}'),
    ]);
    expect(scan(bad)).toMatchObject({ rows: 1, valid: 0, totals: { not_utf8: 1 } });
    expect(scan(Buffer.from(`\ufeff${lines(TEXT)}`, 'utf16le')).totals.not_utf8).toBeGreaterThan(0);
  });

  it('rows of another kind than the first', () => {
    expect(scan(lines(GOOD, TEXT, GOOD, PREFERENCE))).toMatchObject({
      kind: 'chat',
      rows: 4,
      valid: 2,
      totals: { mixed_kinds: 2 },
      problems: [{ line: 2 }, { line: 4 }],
    });
  });

  it('rows of a kind that is not wanted here', () => {
    expect(scan(lines(GOOD), { kinds: ['preference'] })).toMatchObject({ totals: { wrong_kind: 1 } });
  });

  it('too few rows', () => {
    expect(scan(lines(GOOD, GOOD), { minimumRows: 10 })).toMatchObject({
      valid: 2,
      problems: [{ line: null, code: 'too_few_rows', reason: 'the data set has 2 rows and needs at least 10' }],
    });
    expect(scan('')).toMatchObject({ rows: 0, kind: null, totals: { too_few_rows: 1 } });
  });

  it('a line that is longer than any row may be, without keeping it', () => {
    const one = new DatasetScan(OPTIONS, null);
    one.push(Buffer.from(`${lines(GOOD)}\n`));
    const piece = Buffer.alloc(1 << 20, 'x');
    for (let sent = 0; sent <= MAX_LINE; sent += piece.length) one.push(piece);
    one.push(Buffer.from(`\n${lines(GOOD)}\n`));
    one.end();
    expect(one.report()).toMatchObject({ rows: 3, valid: 2, problems: [{ line: 2, code: 'line_too_long' }] });
  });
});

it.each(['[]', '{}', '0', '"a"'])('a row of millions of %s is refused before it takes memory', (value) => {
  const row = `{"messages":[${`${value},`.repeat(10_000_000 / (value.length + 1))}0]}`;
  const before = process.memoryUsage().heapUsed;
  expect(scan(row)).toMatchObject({ valid: 0, totals: { invalid_json: 1 } });
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(100_000_000);
});

it('a row with an image of many megabytes is valid', () => {
  const url = `data:image/png;base64,${'A'.repeat(20_000_000)}`;
  const row = chat(user([{ type: 'image_url', image_url: { url } }]), assistant('word, word. '.repeat(100_000)));
  expect(scan(lines(row))).toMatchObject({ valid: 1 });
});

describe('lines', () => {
  it('may begin with a byte order mark, end with CR LF, and be followed by empty ones', () => {
    expect(scan(`\ufeff${lines(GOOD)}\r\n${lines(TEXT)}`, { kinds: ['chat', 'text'] })).toMatchObject({ rows: 2 });
    expect(scan(`\ufeff${lines(GOOD)}\r\n${lines(GOOD)}\r\n\r\n \n`)).toMatchObject({ rows: 2, valid: 2, totals: {} });
  });

  it('that are empty between rows are problems, each with its number', () => {
    expect(scan(`${lines(GOOD)}\n\n  \n${lines(GOOD)}\n\n`)).toMatchObject({
      rows: 2,
      valid: 2,
      totals: { empty_line: 2 },
      problems: [{ line: 2 }, { line: 3 }],
    });
  });

  it('are the same however the bytes arrive', () => {
    const data = `\ufeff${lines(GOOD, { ...GOOD, note: 'ü€😀' }, '{"x"', TEXT, '')}\r\n\n${lines(GOOD)}`;
    const whole = scan(data);
    for (let step = 1; step < 20; step++) expect(scan(data, {}, step)).toEqual(whole);
  });
});

describe('the report', () => {
  it('names at most a hundred problems and counts all of them', () => {
    const report = scan(lines(...Array.from({ length: 250 }, () => '{}')));
    expect(report.problems).toHaveLength(100);
    expect(report).toMatchObject({ rows: 250, valid: 0, totals: { unknown_kind: 250 } });
  });

  it('counts rows that repeat an earlier one as duplicates, which are valid', () => {
    expect(scan(lines(GOOD, chat(user('x'), assistant()), GOOD, GOOD))).toMatchObject({
      valid: 4,
      duplicates: 2,
      duplicates_complete: true,
    });
  });

  it('shows content only when asked, and never more than 200 characters of it', () => {
    const bad = `{"messages":"${'😀secret '.repeat(100)}"}`;
    expect(JSON.stringify(scan(bad))).not.toContain('secret');
    const [problem] = scan(bad, { excerpts: true }).problems;
    expect(problem?.excerpt).toHaveLength(200);
    expect(problem?.excerpt?.isWellFormed()).toBe(true);
    expect(bad.startsWith(problem?.excerpt?.slice(0, 190) ?? '?')).toBe(true);
  });

  it('never repeats what a row holds, whatever the row is', () => {
    const secret = 'xyzzy';
    fc.assert(
      fc.property(fc.json(), fc.constantFrom('messages', 'prompt', 'input', 'custom_id', secret), (json, name) => {
        const value: unknown = JSON.parse(json);
        const row = { [name]: value, [`${secret}1`]: secret, role: secret };
        for (const format of [null, 'mistral', 'vertex-supervised', 'bedrock-conversation', 'together'] as const)
          expect(JSON.stringify(scan(lines(row, row), { format }))).not.toContain(secret);
      }),
      { numRuns: 200 },
    );
  });

  it('becomes an error that names ten lines and how many more there are', () => {
    const report = scan(lines(GOOD, ...Array.from({ length: 13 }, () => '{}')));
    expect(isValid(report)).toBe(false);
    const error = datasetError(report, 'file');
    expect(error).toMatchObject({ kind: 'invalid_request', param: 'file', reason: 'invalid_dataset_row' });
    expect(error.message.match(/line \d+:/g)).toHaveLength(10);
    expect(error.message).toContain('; and 3 more problems. Correct');
    expect(problemsText(scan(lines(GOOD, '{}')))).toMatch(/^line 2: the row has neither/);
  });
});

it('any bytes at all end in a report', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), fc.integer({ min: 1, max: 50 }), (bytes, step) => {
      const report = scan(Buffer.from(bytes), {}, step);
      expect(report.bytes).toBe(bytes.length);
      expect(report.valid).toBe(0);
      expect(isValid(report)).toBe(false);
    }),
    { numRuns: 500 },
  );
});

it('any JSON in the place of a part of a row ends in a report', () => {
  const anything = fc.jsonValue();
  const message = fc.record(
    {
      role: fc.oneof(fc.constantFrom('user', 'assistant', 'tool', 'system'), anything),
      content: fc.oneof(
        fc.string(),
        fc.array(
          fc.oneof(
            anything,
            fc.record({ type: fc.constantFrom('text', 'image_url'), text: anything, image_url: anything }),
          ),
        ),
        anything,
      ),
      tool_calls: fc.oneof(
        anything,
        fc.array(fc.record({ id: anything, type: fc.constant('function'), function: anything })),
      ),
      tool_call_id: anything,
      weight: anything,
      name: anything,
    },
    { requiredKeys: ['role'] },
  );
  const row = fc.record(
    {
      messages: fc.oneof(anything, fc.array(message)),
      tools: anything,
      functions: anything,
      input: fc.oneof(anything, fc.record({ messages: fc.array(message) })),
      preferred_output: fc.oneof(anything, fc.array(message)),
    },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(
      row,
      fc.constantFrom(null, 'fireworks', 'mistral', 'vertex-supervised', 'vertex-preference', 'bedrock-claude-3'),
      (one, format) => {
        const report = scan(lines(one), { format });
        expect(report.rows).toBe(1);
        expect(report.valid + Object.values(report.totals).reduce((sum, n) => sum + n, 0)).toBe(1);
      },
    ),
    { numRuns: 500 },
  );
});
