import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../kernel/json.ts';
import { OPERATIONS, type OperationId } from '../../operations/operation.ts';
import { rewriteStream, type StreamPiece, StreamTexts } from './stream-texts.ts';
import { answerTexts, applyReplacements, ReplacementError, type SaidPart } from './texts.ts';

const sse = (data: unknown, event?: string) =>
  Buffer.from(
    `${event === undefined ? '' : `event: ${event}\n`}data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`,
  );
const typed = (data: JsonObject) => sse(data, String(data.type));

/** A text in pieces of the given sizes. */
function cut(text: string, sizes: readonly number[]): string[] {
  const out: string[] = [];
  let at = 0;
  for (let i = 0; at < text.length; i++) {
    const end = Math.min(text.length, at + Math.max(1, sizes[i % sizes.length] ?? 1));
    out.push(text.slice(at, end));
    at = end;
  }
  return out;
}

interface Said {
  readonly text: string;
  readonly reasoning: string;
  readonly calls: readonly { readonly name: string; readonly input: Record<string, string> }[];
}
interface Told {
  readonly id: OperationId;
  readonly answer: JsonObject;
  readonly events: readonly Buffer[];
}

function chat({ text, reasoning, calls }: Said, sizes: readonly number[]): Told {
  const message: JsonObject = { role: 'assistant', content: text, reasoning_content: reasoning };
  if (calls.length > 0) {
    message.tool_calls = calls.map(({ name, input }, i) => ({
      id: `call_${i}`,
      type: 'function',
      function: { name, arguments: JSON.stringify(input) },
    }));
  }
  const chunk = (delta: JsonObject, finish: string | null = null) =>
    sse({
      id: 'c',
      object: 'chat.completion.chunk',
      created: 1_700_000_000,
      model: 'm',
      choices: [
        {
          index: 0,
          delta,
          finish_reason: finish,
          logprobs: delta.content === undefined ? null : { content: [{ token: delta.content }] },
        },
      ],
      obfuscation: 'zzz',
    });
  const events = [
    chunk({ role: 'assistant', content: '' }),
    ...cut(reasoning, sizes).map((piece) => chunk({ reasoning_content: piece })),
    ...cut(text, sizes).map((piece) => chunk({ content: piece })),
    ...calls.flatMap(({ name, input }, index) => [
      chunk({ tool_calls: [{ index, id: `call_${index}`, type: 'function', function: { name, arguments: '' } }] }),
      ...cut(JSON.stringify(input), sizes).map((piece) =>
        chunk({ tool_calls: [{ index, function: { arguments: piece } }] }),
      ),
    ]),
    chunk({}, 'stop'),
    sse('[DONE]'),
  ];
  return {
    id: 'chat',
    answer: { object: 'chat.completion', choices: [{ index: 0, message, finish_reason: 'stop' }] },
    events,
  };
}

function messages({ text, reasoning, calls }: Said, sizes: readonly number[]): Told {
  const content: JsonObject[] = [
    { type: 'thinking', thinking: reasoning, signature: 'c2lnbmF0dXJlc2lnbmF0dXJl' },
    { type: 'text', text },
    ...calls.map(({ name, input }, i) => ({ type: 'tool_use', id: `toolu_${i}`, name, input })),
  ];
  const block = (index: number, empty: JsonObject, deltas: readonly JsonObject[]) => [
    typed({ type: 'content_block_start', index, content_block: empty }),
    ...deltas.map((delta) => typed({ type: 'content_block_delta', index, delta })),
    typed({ type: 'content_block_stop', index }),
  ];
  const events = [
    typed({
      type: 'message_start',
      message: { id: 'm', type: 'message', role: 'assistant', model: 'm', content: [], stop_reason: null },
    }),
    typed({ type: 'ping' }),
    ...block(0, { type: 'thinking', thinking: '', signature: '' }, [
      ...cut(reasoning, sizes).map((thinking) => ({ type: 'thinking_delta', thinking })),
      { type: 'signature_delta', signature: 'c2lnbmF0dXJlc2lnbmF0dXJl' },
    ]),
    ...block(
      1,
      { type: 'text', text: '' },
      cut(text, sizes).map((piece) => ({ type: 'text_delta', text: piece })),
    ),
    ...calls.flatMap(({ name, input }, i) =>
      block(
        i + 2,
        { type: 'tool_use', id: `toolu_${i}`, name, input: {} },
        cut(JSON.stringify(input), sizes).map((piece) => ({ type: 'input_json_delta', partial_json: piece })),
      ),
    ),
    typed({
      type: 'message_delta',
      delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: 5 },
    }),
    typed({ type: 'message_stop' }),
  ];
  return { id: 'messages', answer: { type: 'message', role: 'assistant', content }, events };
}

function responses({ text, reasoning, calls }: Said, sizes: readonly number[]): Told {
  const output: JsonObject[] = [
    { type: 'reasoning', id: 'rs', summary: [{ type: 'summary_text', text: reasoning }] },
    {
      type: 'message',
      id: 'msg',
      role: 'assistant',
      status: 'completed',
      content: [{ type: 'output_text', text, annotations: [] }],
    },
    ...calls.map(({ name, input }, i) => ({
      type: 'function_call',
      id: `fc_${i}`,
      call_id: `c_${i}`,
      name,
      arguments: JSON.stringify(input),
    })),
  ];
  const response = (done: boolean): JsonObject => ({
    object: 'response',
    instructions: 'rules',
    output: done ? output : [],
  });
  const at = { output_index: 1, content_index: 0, item_id: 'msg' };
  const events = [
    typed({ type: 'response.created', response: response(false) }),
    typed({ type: 'response.output_item.added', output_index: 0, item: { type: 'reasoning', id: 'rs', summary: [] } }),
    typed({
      type: 'response.reasoning_summary_part.added',
      output_index: 0,
      summary_index: 0,
      part: { type: 'summary_text', text: '' },
    }),
    ...cut(reasoning, sizes).map((delta) =>
      typed({
        type: 'response.reasoning_summary_text.delta',
        output_index: 0,
        summary_index: 0,
        delta,
        obfuscation: 'zz',
      }),
    ),
    typed({ type: 'response.reasoning_summary_text.done', output_index: 0, summary_index: 0, text: reasoning }),
    typed({ type: 'response.output_item.done', output_index: 0, item: output[0] ?? null }),
    typed({
      type: 'response.output_item.added',
      output_index: 1,
      item: { type: 'message', id: 'msg', role: 'assistant', content: [] },
    }),
    typed({ type: 'response.content_part.added', ...at, part: { type: 'output_text', text: '', annotations: [] } }),
    ...cut(text, sizes).map((delta) =>
      typed({ type: 'response.output_text.delta', ...at, delta, logprobs: [{ token: delta }] }),
    ),
    typed({ type: 'response.output_text.done', ...at, text, logprobs: [{ token: text }] }),
    typed({
      type: 'response.content_part.done',
      ...at,
      part: { type: 'output_text', text, annotations: [], logprobs: [{ token: text }] },
    }),
    typed({ type: 'response.output_item.done', output_index: 1, item: output[1] ?? null }),
    ...calls.flatMap(({ name, input }, i) => [
      typed({
        type: 'response.output_item.added',
        output_index: i + 2,
        item: { type: 'function_call', id: `fc_${i}`, call_id: `c_${i}`, name, arguments: '' },
      }),
      ...cut(JSON.stringify(input), sizes).map((delta) =>
        typed({ type: 'response.function_call_arguments.delta', output_index: i + 2, item_id: `fc_${i}`, delta }),
      ),
      typed({
        type: 'response.function_call_arguments.done',
        output_index: i + 2,
        item_id: `fc_${i}`,
        arguments: JSON.stringify(input),
      }),
      typed({ type: 'response.output_item.done', output_index: i + 2, item: output[i + 2] ?? null }),
    ]),
    typed({ type: 'response.completed', response: response(true) }),
  ];
  return { id: 'responses', answer: response(true), events };
}

const DIALECTS = [chat, messages, responses] as const;
const line = ({ path, role, text }: SaidPart) => `${path} ${role}: ${text}`;

function read({ id, events }: Told): { stream: StreamTexts; pieces: StreamPiece[] } {
  const stream = new StreamTexts(OPERATIONS[id]);
  return { stream, pieces: events.flatMap((event) => stream.push(event)) };
}
/** Whether the path is of something in a text that holds JSON: streams give that with its escapes undone. */
const isInside = (path: string, whole: readonly SaidPart[]) =>
  /\.input[.{]/.test(path) ||
  whole.some((other) => path.startsWith(other.path) && /^[.{#[]/.test(path.slice(other.path.length)));
function byPath(pieces: readonly StreamPiece[]): Map<string, string> {
  const out = new Map<string, string>();
  for (const { path, text } of pieces) out.set(path, (out.get(path) ?? '') + text);
  return out;
}

const inputs = fc.dictionary(fc.stringMatching(/^[a-z]{1,5}$/), fc.string({ maxLength: 20 }), {
  maxKeys: 3,
  noNullPrototype: true,
});
const anything: fc.Arbitrary<Said> = fc.record({
  text: fc.string({ unit: 'grapheme', maxLength: 60 }),
  reasoning: fc.string({ maxLength: 30 }),
  calls: fc.array(fc.record({ name: fc.stringMatching(/^[a-z]{1,8}$/), input: inputs }), { maxLength: 3 }),
});
const pieceSizes = fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 1, maxLength: 5 });

describe.each(DIALECTS.map((dialect) => [dialect.name, dialect] as const))('a stream of %s', (_name, dialect) => {
  it('says what the whole answer says, however it is cut', () => {
    fc.assert(
      fc.property(anything, pieceSizes, (said, sizes) => {
        const told = dialect(said, sizes);
        const { stream, pieces } = read(told);
        const whole = answerTexts(OPERATIONS[told.id], told.answer);
        expect(stream.assembled().map(line).sort()).toEqual(whole.map(line).sort());
        expect(stream.callsTools).toBe(said.calls.length > 0);
        const texts = byPath(pieces);
        for (const { path, text } of whole) {
          if (isInside(path, whole)) continue;
          expect(texts.get(path)).toBe(text);
        }
        expect(pieces.every(({ unreadable }) => unreadable === undefined)).toBe(true);
      }),
      { numRuns: 60 },
    );
  });

  it('gives arguments of tools with their escapes undone from the first one on', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 20 }), pieceSizes, (value, sizes) => {
        const told = dialect(
          { text: 'a', reasoning: 'b', calls: [{ name: 'f', input: { q: `${value}"swordfish\n` } }] },
          sizes,
        );
        const decoded = [...byPath(read(told).pieces)].filter(([path]) => /\.(?:arguments|input)#decoded$/.test(path));
        expect(decoded).toHaveLength(1);
        expect(decoded[0]?.[1]).toBe(`{"q":"${value}"swordfish\n"}`);
      }),
      { numRuns: 40 },
    );
  });

  it('tells changed texts in every event that held them, and leaves the others as they are', () => {
    fc.assert(
      fc.property(anything, pieceSizes, (said, sizes) => {
        const SECRET = 'swordfish';
        const told = dialect(
          {
            ...said,
            text: `${said.text}${SECRET}.`,
            calls: [...said.calls, { name: 'f', input: { q: `x ${SECRET}` } }],
          },
          sizes,
        );
        const op = OPERATIONS[told.id];
        const { stream } = read(told);
        const found = stream.assembled().filter(({ text }) => text.includes(SECRET));
        const changed = applyReplacements(
          op,
          stream.answer(),
          found.map(({ path, text }) => ({ path, text: text.replaceAll(SECRET, '[GONE]') })),
        );
        const events = rewriteStream(op, told.events, changed);
        expect(events).toHaveLength(told.events.length);
        const again = read({ ...told, events });
        expect(again.stream.assembled().map(line)).toEqual(answerTexts(op, changed).map(line));
        for (const text of byPath(again.pieces).values()) expect(text).not.toContain(SECRET);
        const bytes = Buffer.concat(events).toString();
        expect(bytes).not.toContain(SECRET);
        // The tokens of what was changed are gone as well.
        expect(bytes).not.toContain('"token"');
        if (told.id === 'messages') expect(events[0]).toBe(told.events[0]);
        expect(events.at(-1)?.toString().slice(0, 24)).toBe(told.events.at(-1)?.toString().slice(0, 24));
      }),
      { numRuns: 60 },
    );
  });

  it('is the same where nothing has changed', () => {
    const told = dialect({ text: 'abc', reasoning: 'r', calls: [{ name: 'f', input: { q: 'v' } }] }, [2]);
    const { stream } = read(told);
    const events = rewriteStream(OPERATIONS[told.id], told.events, stream.answer());
    expect(events.every((event, i) => event === told.events[i])).toBe(true);
  });

  it('cannot tell an answer of another form', () => {
    const told = dialect({ text: 'abc', reasoning: 'r', calls: [] }, [2]);
    expect(() =>
      rewriteStream(OPERATIONS[told.id], told.events, { choices: [{ message: { content: 'a', more: 'b' } }] }),
    ).toThrow(ReplacementError);
  });

  it('says that an event cannot be read that is no JSON or belongs nowhere', () => {
    const { id } = dialect({ text: '', reasoning: '', calls: [] }, [1]);
    for (const event of [sse('{"half'), sse('[1]'), Buffer.from('data: secret\n\n')]) {
      expect(new StreamTexts(OPERATIONS[id]).push(event).map(({ unreadable }) => unreadable)).toEqual(['bounds']);
    }
    expect(new StreamTexts(OPERATIONS[id]).push(Buffer.from(': comment\n\n'))).toEqual([]);
  });
});

it('a text that comes in parts of a list goes on in the last of them', () => {
  const part = (piece: string) => ({ type: 'text', text: piece });
  const thinks = (piece: string) => ({ content: [{ type: 'thinking', thinking: [part(piece)] }] });
  const says = (piece: string) => ({ content: [part(piece)] });
  const deltas: JsonObject[] = [
    thinks('sword'),
    thinks('fish'),
    says('more '),
    says('words'),
    { content: [{ type: 'image_url' }] },
    says('end'),
  ];
  const stream = new StreamTexts(OPERATIONS.chat);
  for (const delta of deltas) stream.push(sse({ choices: [{ index: 0, delta }] }));
  expect(stream.assembled().map(({ text }) => text)).toEqual(['swordfish', 'more words', 'end']);
});

it.each([{ choices: { 0: { delta: { content: 'a' } } } }, { choices: [{ delta: 'a' }] }])(
  'an event that is none of its dialect is said to be unreadable',
  (event) => {
    const stream = new StreamTexts(OPERATIONS.chat);
    expect(stream.push(sse(event)).at(-1)).toMatchObject({ unreadable: 'bounds' });
  },
);

describe('pieces of a stream', () => {
  it('of JSON that an answer says are given without escapes, from its beginning', () => {
    const say = (content: string) => ({ choices: [{ index: 0, delta: { content } }] });
    const { pieces } = push('chat', say('{"a":"swo'), say('\\u00'), say('72dfish"}'));
    expect(pieces).toEqual([
      ['choices[0].message.content: {"a":"swo'],
      ['choices[0].message.content: \\u00', 'choices[0].message.content#decoded: {"a":"swo'],
      ['choices[0].message.content: 72dfish"}', 'choices[0].message.content#decoded: rdfish"}'],
    ]);
    expect(push('chat', say('a path: C:\\new')).pieces).toEqual([['choices[0].message.content: a path: C:\\new']]);
  });

  const push = (id: OperationId, ...events: unknown[]) => {
    const stream = new StreamTexts(OPERATIONS[id]);
    return {
      stream,
      pieces: events.map((event) =>
        stream
          .push(sse(event))
          .map((piece) => `${piece.path}: ${piece.text}${piece.whole === null ? '' : ` (${piece.whole})`}`),
      ),
    };
  };
  it('of completions and of several choices stand at their own paths', () => {
    const { stream, pieces } = push(
      'completions',
      { choices: [{ index: 1, text: 'b' }] },
      {
        choices: [
          { index: 0, text: 'a' },
          { index: 1, text: 'B' },
        ],
      },
    );
    expect(pieces).toEqual([['choices[1].text: b'], ['choices[0].text: a', 'choices[1].text: B']]);
    expect(stream.assembled().map(({ text }) => text)).toEqual(['a', 'bB']);
  });
  it('that repeat what was said add nothing, and what they add to it counts', () => {
    const at = { output_index: 0, content_index: 0 };
    const delta = { type: 'response.output_text.delta', ...at, delta: 'ab' };
    expect(push('responses', delta, { type: 'response.output_text.done', ...at, text: 'ab' }).pieces[1]).toEqual([
      'output[0].content[0].text:  (ab)',
    ]);
    expect(push('responses', delta, { type: 'response.output_text.done', ...at, text: 'abc' }).pieces[1]).toEqual([
      'output[0].content[0].text: c (abc)',
    ]);
    expect(push('responses', delta, { type: 'response.output_text.done', ...at, text: 'xyz' }).pieces[1]).toEqual([
      'output[0].content[0].text: xyz (xyz)',
    ]);
  });
  it('are the same text as often as they come', () => {
    const say = (content: string) => ({ choices: [{ index: 0, delta: { content } }] });
    expect(
      push('chat', say('ha'), say('ha'))
        .stream.assembled()
        .map(({ text }) => text),
    ).toEqual(['haha']);
  });
  it('are a tool’s name once, where it comes with each piece of its arguments', () => {
    const call = (args: string) => ({
      choices: [{ index: 0, delta: { tool_calls: [{ index: 0, function: { name: 'find', arguments: args } }] } }],
    });
    const { stream } = push('chat', call('{"a"'), call(':1}'));
    expect(stream.answer()).toEqual({
      choices: [{ index: 0, message: { tool_calls: [{ function: { name: 'find', arguments: '{"a":1}' } }] } }],
    });
  });
  it('are annotations, citations, results of searches and whatever nobody has heard of', () => {
    expect(
      push('messages', {
        type: 'content_block_start',
        index: 0,
        content_block: { type: 'web_search_tool_result', content: [{ type: 'web_search_result', title: 'T' }] },
      }).pieces,
    ).toEqual([['content[0].content[0].title: T']]);
    expect(
      push('messages', {
        type: 'content_block_delta',
        index: 0,
        delta: { type: 'citations_delta', citation: { cited_text: 'c' } },
      }).pieces,
    ).toEqual([['content[0].citations[0].cited_text: c']]);
    expect(
      push('responses', {
        type: 'response.output_text.annotation.added',
        output_index: 0,
        content_index: 0,
        annotation_index: 0,
        annotation: { type: 'url_citation', title: 'T' },
      }).pieces,
    ).toEqual([['output[0].content[0].annotations[0].title: T (T)']]);
    expect(
      push(
        'chat',
        { choices: [{ index: 0, delta: { annotations: [{ title: 'a' }] } }] },
        { choices: [{ index: 0, delta: { annotations: [{ title: 'b' }], new_thing: 'n' } }] },
      ).pieces,
    ).toEqual([
      ['choices[0].message.annotations[0].title: a'],
      ['choices[0].message.new_thing: n', 'choices[0].message.annotations[1].title: b'],
    ]);
    expect(push('responses', { type: 'response.new.event', words: 'hello you' }).pieces).toEqual([
      ['events[0].words: hello you (hello you)'],
    ]);
    expect(push('messages', { type: 'error', error: { type: 'api_error', message: 'oh no' } }).pieces).toEqual([
      ['events[0].error.message: oh no (oh no)'],
    ]);
  });
  it('of places that no answer has cannot be read', () => {
    for (const index of [-1, 1.5, 1e9, 'x']) {
      const stream = new StreamTexts(OPERATIONS.chat);
      expect(
        stream.push(sse({ choices: [{ index, delta: { content: 'a' } }] })).map(({ unreadable }) => unreadable),
      ).toContain('bounds');
    }
    const stream = new StreamTexts(OPERATIONS.chat);
    expect(
      stream
        .push(sse('{"choices":[{"index":0,"delta":{"__proto__":{"content":"a"}}}]}'))
        .map(({ unreadable }) => unreadable),
    ).toContain('bounds');
  });
  it('of ten thousand events are read in linear time', () => {
    const told = chat({ text: 'word '.repeat(10_000), reasoning: '', calls: [] }, [5]);
    const from = process.threadCpuUsage();
    const { stream } = read(told);
    stream.assembled();
    expect(process.threadCpuUsage(from).user / 1_000).toBeLessThan(1_000);
  });
});
