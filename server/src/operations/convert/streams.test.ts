import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../kernel/json.ts';
import type { StreamEvent } from '../stream.ts';
import type { ConvertContext, ConvertTarget } from './conversion.ts';
import { conversion } from './index.ts';
import { parsed, runStream, testContext } from './testing.ts';

function toChat(events: readonly (JsonObject | string)[], context: Partial<ConvertContext> = {}): StreamEvent[] {
  const transform = conversion('chat', 'messages')?.stream(testContext({ stream: true, ...context }));
  if (transform === undefined) throw new Error('no conversion');
  return runStream(transform, events);
}

function toMessages(
  events: readonly (JsonObject | string)[],
  context: Partial<ConvertContext> = {},
  target: ConvertTarget = {},
): StreamEvent[] {
  const transform = conversion('messages', 'chat', target)?.stream(testContext({ stream: true, ...context }));
  if (transform === undefined) throw new Error('no conversion');
  return runStream(transform, events);
}

const start: JsonObject = {
  type: 'message_start',
  message: { id: 'msg_1', model: 'claude', content: [], usage: { input_tokens: 10, output_tokens: 1 } },
};
const open = (index: number, block: JsonObject): JsonObject => ({
  type: 'content_block_start',
  index,
  content_block: block,
});
const piece = (index: number, delta: JsonObject): JsonObject => ({ type: 'content_block_delta', index, delta });
const close = (index: number): JsonObject => ({ type: 'content_block_stop', index });
const stop = (reason: string, usage: JsonObject = { output_tokens: 9 }): JsonObject => ({
  type: 'message_delta',
  delta: { stop_reason: reason, stop_sequence: null },
  usage,
});
const end: JsonObject = { type: 'message_stop' };

/** The choice of each chunk, and what else came. */
const deltas = (events: readonly StreamEvent[]): unknown[] =>
  parsed(events).map((chunk) => {
    const choices = chunk.choices as JsonObject[] | undefined;
    const [choice] = choices ?? [];
    if (choice === undefined) return chunk.usage ?? chunk.done ?? chunk.error;
    return choice.finish_reason ?? choice.delta;
  });

describe('Messages events to chat chunks', () => {
  it('streams text, then the finish reason, then [DONE]', () => {
    const out = toChat([
      start,
      { type: 'ping' },
      open(0, { type: 'text', text: '' }),
      piece(0, { type: 'text_delta', text: 'Hel' }),
      piece(0, { type: 'text_delta', text: 'lo' }),
      close(0),
      stop('end_turn'),
      end,
    ]);
    expect(deltas(out)).toEqual([
      { role: 'assistant', content: '' },
      { content: 'Hel' },
      { content: 'lo' },
      'stop',
      true,
    ]);
    expect(parsed(out)[0]).toMatchObject({
      id: 'msg_1',
      object: 'chat.completion.chunk',
      created: 1_700_000_000,
      model: 'claude',
    });
    expect(out.every(({ event }) => event === null)).toBe(true);
  });

  it('numbers calls by their own order and sends {} for a call without arguments', () => {
    const out = toChat([
      start,
      open(0, { type: 'thinking', thinking: '' }),
      piece(0, { type: 'thinking_delta', thinking: 'hm' }),
      piece(0, { type: 'signature_delta', signature: 's' }),
      close(0),
      open(1, { type: 'tool_use', id: 'a', name: 'f', input: {} }),
      piece(1, { type: 'input_json_delta', partial_json: '' }),
      piece(1, { type: 'input_json_delta', partial_json: '{"x":' }),
      piece(1, { type: 'input_json_delta', partial_json: '1}' }),
      close(1),
      open(2, { type: 'tool_use', id: 'b', name: 'g', input: {} }),
      close(2),
      stop('tool_use'),
      end,
    ]);
    const call = (index: number, rest: JsonObject): JsonObject => ({ tool_calls: [{ index, ...rest }] });
    expect(deltas(out)).toEqual([
      { role: 'assistant', content: '' },
      call(0, { id: 'a', type: 'function', function: { name: 'f', arguments: '' } }),
      call(0, { function: { arguments: '{"x":' } }),
      call(0, { function: { arguments: '1}' } }),
      call(1, { id: 'b', type: 'function', function: { name: 'g', arguments: '' } }),
      call(1, { function: { arguments: '{}' } }),
      'tool_calls',
      true,
    ]);
  });

  it('sends the usage chunk only to callers who asked, with the last cumulative counts', () => {
    const events = [start, stop('end_turn', { output_tokens: 9 }), stop('end_turn', { output_tokens: 20 }), end];
    expect(JSON.stringify(parsed(toChat(events)))).not.toContain('usage');
    for (const context of [{ includeUsage: true }, { body: { stream_options: { include_usage: true } } }]) {
      const chunks = parsed(toChat(events, context));
      expect(chunks.at(-2)).toMatchObject({
        choices: [],
        usage: { prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 },
      });
      expect(chunks.slice(0, -2).every((chunk) => chunk.usage === null)).toBe(true);
    }
  });

  it('shows thinking only outside strict shape', () => {
    const events = [
      start,
      open(0, { type: 'thinking' }),
      piece(0, { type: 'thinking_delta', thinking: 'hm' }),
      close(0),
      stop('end_turn'),
      end,
    ];
    expect(JSON.stringify(parsed(toChat(events)))).not.toContain('hm');
    expect(JSON.stringify(parsed(toChat(events, { strict: false })))).toContain('"reasoning_content":"hm"');
  });

  it('unwraps the function that stands for a schema', () => {
    const out = toChat([
      start,
      open(0, { type: 'tool_use', id: 'a', name: 'json_output_n', input: {} }),
      piece(0, { type: 'input_json_delta', partial_json: '{"a":1}' }),
      close(0),
      stop('tool_use'),
      end,
    ]);
    expect(deltas(out)).toEqual([{ role: 'assistant', content: '' }, { content: '{"a":1}' }, 'stop', true]);
  });

  it('ends in an error and without [DONE] when the stream is cut anywhere', () => {
    const events = [
      start,
      open(0, { type: 'text', text: '' }),
      piece(0, { type: 'text_delta', text: 'a' }),
      close(0),
      stop('end_turn'),
      end,
    ];
    for (let n = 0; n < events.length; n++) {
      const out = parsed(toChat(events.slice(0, n)));
      expect(out.at(-1)).toMatchObject({ error: { code: 'upstream_stream_cut' } });
      expect(out.filter((chunk) => chunk.done)).toEqual([]);
    }
  });

  it('passes an error in mid-stream on, and nothing after it', () => {
    const error = { type: 'error', error: { type: 'overloaded_error', message: 'busy' } };
    const out = parsed(toChat([start, error, open(0, { type: 'text', text: 'late' }), end]));
    expect(out).toHaveLength(2);
    expect(out[1]).toEqual({
      error: { message: 'busy', type: 'overloaded_error', param: null, code: 'overloaded' },
    });
  });

  it('ends in an error when an event is no JSON', () => {
    expect(parsed(toChat([start, '{"type":'])).at(-1)).toHaveProperty('error');
  });
});

const chunk = (delta: JsonObject, finish: string | null = null, more: JsonObject = {}): JsonObject => ({
  id: 'chatcmpl-1',
  object: 'chat.completion.chunk',
  created: 1,
  model: 'gpt',
  choices: [{ index: 0, delta, finish_reason: finish }],
  ...more,
});
const usageChunk: JsonObject = { ...chunk({}), choices: [], usage: { prompt_tokens: 8, completion_tokens: 3 } };
const callPiece = (index: number, text: string, id?: string, name?: string): JsonObject => ({
  index,
  ...(id === undefined ? null : { id, type: 'function' }),
  function: { ...(name === undefined ? null : { name }), arguments: text },
});

/** Blocks as a client puts them together, and the rest of the message. */
function assemble(events: readonly StreamEvent[]): {
  blocks: JsonObject[];
  stop: unknown;
  usage: unknown;
  ended: boolean;
  error: unknown;
} {
  const blocks: JsonObject[] = [];
  const out = { blocks, stop: null as unknown, usage: null as unknown, ended: false, error: null as unknown };
  let openIndex = -1;
  for (const { event, data } of events) {
    const body = JSON.parse(data) as JsonObject & { index: number; delta: JsonObject; content_block: JsonObject };
    expect(event).toBe(body.type);
    expect(out.ended || out.error !== null).toBe(false);
    if (body.type === 'content_block_start') {
      expect(openIndex).toBe(-1);
      expect(body.index).toBe(blocks.length);
      openIndex = body.index;
      blocks.push({ ...body.content_block, ...(body.content_block.type === 'tool_use' ? { input: '' } : null) });
    } else if (body.type === 'content_block_delta') {
      expect(body.index).toBe(openIndex);
      const block = blocks[body.index] ?? {};
      if (typeof body.delta.text === 'string') block.text = `${block.text}${body.delta.text}`;
      if (typeof body.delta.thinking === 'string') block.thinking = `${block.thinking}${body.delta.thinking}`;
      if (typeof body.delta.partial_json === 'string') block.input = `${block.input}${body.delta.partial_json}`;
    } else if (body.type === 'content_block_stop') {
      expect(body.index).toBe(openIndex);
      openIndex = -1;
    } else if (body.type === 'message_delta') {
      expect(openIndex).toBe(-1);
      out.stop = body.delta.stop_reason;
      out.usage = body.usage;
    } else if (body.type === 'message_stop') out.ended = true;
    else if (body.type === 'error') out.error = body.error;
  }
  return out;
}

describe('chat chunks to Messages events', () => {
  it('streams text and waits for the usage chunk before it stops', () => {
    const out = toMessages([
      chunk({ role: 'assistant', content: '' }),
      chunk({ content: 'Hel' }),
      chunk({ content: 'lo' }),
      chunk({}, 'stop'),
      usageChunk,
      '[DONE]',
    ]);
    expect(parsed(out).map(({ type }) => type)).toEqual([
      'message_start',
      'content_block_start',
      'content_block_delta',
      'content_block_delta',
      'content_block_stop',
      'message_delta',
      'message_stop',
    ]);
    expect(assemble(out)).toMatchObject({
      blocks: [{ type: 'text', text: 'Hello' }],
      stop: 'end_turn',
      usage: { input_tokens: 8, output_tokens: 3 },
      ended: true,
    });
  });

  it('ends well without [DONE] once a finish reason came', () => {
    expect(assemble(toMessages([chunk({ content: 'a' }, 'length')]))).toMatchObject({
      stop: 'max_tokens',
      ended: true,
    });
  });

  it('never interleaves blocks, however the pieces of parallel calls are mixed', () => {
    const args = ['{"a":"}{"}', '{"b":[1,{"c":2}]}', '{}'];
    const cut = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 20, maxLength: 20 });
    fc.assert(
      fc.property(cut, fc.array(fc.nat(2), { minLength: 60, maxLength: 60 }), (sizes, order) => {
        const left = args.map((text) => {
          const pieces: string[] = [];
          let at = 0;
          for (const size of sizes) {
            if (at >= text.length) break;
            pieces.push(text.slice(at, at + size));
            at += size;
          }
          if (at < text.length) pieces.push(text.slice(at));
          return pieces;
        });
        const events: JsonObject[] = args.map((_, i) => chunk({ tool_calls: [callPiece(i, '', `id${i}`, `f${i}`)] }));
        for (const i of [...order, ...args.flatMap((_, k) => Array<number>(20).fill(k))]) {
          const text = left[i]?.shift();
          if (text !== undefined) events.push(chunk({ tool_calls: [callPiece(i, text)] }));
        }
        const out = assemble(toMessages([...events, chunk({}, 'tool_calls'), '[DONE]']));
        expect(out.blocks).toEqual(args.map((input, i) => ({ type: 'tool_use', id: `id${i}`, name: `f${i}`, input })));
        expect(out).toMatchObject({ stop: 'tool_use', ended: true });
      }),
    );
  });

  it('streams the first of sequential calls at once and each next one when the one before is complete', () => {
    const events: StreamEvent[] = [];
    const transform = conversion('messages', 'chat')?.stream(testContext({ stream: true }));
    const send = (body: JsonObject): number => {
      transform?.event({ event: null, data: JSON.stringify(body) }, (event) => {
        events.push(event);
      });
      return events.length;
    };
    const first = send(chunk({ tool_calls: [callPiece(0, '{"a"', 'a', 'f')] }));
    const second = send(chunk({ tool_calls: [callPiece(0, ':1}')] }));
    const third = send(chunk({ tool_calls: [callPiece(1, '{"b"', 'b', 'g')] }));
    expect(second).toBeGreaterThan(first);
    expect(third).toBeGreaterThan(second);
    expect(JSON.stringify(parsed(events).at(-1))).toContain('{\\"b\\"');
  });

  it('holds a call back until its id and name are known', () => {
    const out = toMessages([
      chunk({ tool_calls: [{ index: 0, function: { arguments: '{' } }] }),
      chunk({ tool_calls: [{ index: 0, function: { name: 'f', arguments: '}' } }] }),
      chunk({ tool_calls: [{ index: 0, id: 'a' }] }),
      chunk({}, 'tool_calls'),
      '[DONE]',
    ]);
    expect(assemble(out).blocks).toEqual([{ type: 'tool_use', id: 'a', name: 'f', input: '{}' }]);
  });

  it('starts a new call at a new id, even when every index is zero or missing', () => {
    for (const index of [0, undefined]) {
      const bare = (id: string | undefined, text: string): JsonObject => ({
        ...(index === undefined ? null : { index }),
        ...(id === undefined ? null : { id }),
        function: { ...(id === undefined ? null : { name: 'f' }), arguments: text },
      });
      const out = toMessages([
        chunk({ tool_calls: [bare('a', '{"x"')] }),
        chunk({ tool_calls: [bare(undefined, ':1}')] }),
        chunk({ tool_calls: [bare('b', '{}')] }),
        chunk({}, 'stop'),
        '[DONE]',
      ]);
      expect(assemble(out).blocks.map(({ input }) => input)).toEqual(['{"x":1}', '{}']);
      expect(assemble(out).stop).toBe('tool_use');
    }
  });

  it('keeps text that comes in the middle of a call', () => {
    const out = toMessages([
      chunk({ tool_calls: [callPiece(0, '{"a"', 'a', 'f')] }),
      chunk({ content: 'meanwhile' }),
      chunk({ tool_calls: [callPiece(0, ':1}')] }),
      chunk({}, 'tool_calls'),
      '[DONE]',
    ]);
    expect(assemble(out).blocks).toEqual([
      { type: 'tool_use', id: 'a', name: 'f', input: '{"a":1}' },
      { type: 'text', text: 'meanwhile' },
    ]);
  });

  it('shows reasoning as thinking only to callers who asked, with an empty signature', () => {
    const target: ConvertTarget = { reasoning: { field: 'reasoning_content' } };
    const events = [chunk({ reasoning_content: 'hm' }), chunk({ content: 'a' }, 'stop'), '[DONE]'];
    expect(assemble(toMessages(events, {}, target)).blocks).toEqual([{ type: 'text', text: 'a' }]);
    const asked = { body: { thinking: { type: 'enabled', budget_tokens: 1024 } } };
    expect(assemble(toMessages(events, asked, target)).blocks).toEqual([
      { type: 'thinking', thinking: 'hm', signature: '' },
      { type: 'text', text: 'a' },
    ]);
  });

  it('ends in an error and without message_stop when cut before a finish reason', () => {
    for (const events of [[], [chunk({ content: 'a' })], [chunk({ tool_calls: [callPiece(0, '{', 'a', 'f')] })]]) {
      const out = assemble(toMessages(events));
      expect(out.ended).toBe(false);
      expect(out.error).toMatchObject({ type: 'api_error' });
    }
  });

  it('passes an error in mid-stream on, and nothing after it', () => {
    const failed = { error: { message: 'busy', type: 'server_error', code: 529 } };
    const out = assemble(toMessages([chunk({ content: 'a' }), failed, chunk({ content: 'b' }, 'stop'), '[DONE]']));
    expect(out).toMatchObject({ error: { type: 'overloaded_error', message: 'busy' }, ended: false });
  });

  it('turns a streamed refusal into text and the stop reason refusal', () => {
    const out = assemble(toMessages([chunk({ refusal: 'no' }), chunk({}, 'stop'), '[DONE]']));
    expect(out).toMatchObject({ blocks: [{ type: 'text', text: 'no' }], stop: 'refusal' });
  });

  it('never throws and always ends in exactly one of message_stop and error, whatever comes', () => {
    const anything = fc.array(fc.oneof(fc.object({ maxDepth: 4 }), fc.string(), fc.constant('[DONE]')), {
      maxLength: 6,
    });
    fc.assert(
      fc.property(anything, (events) => {
        const kinds = parsed(toMessages(events as JsonObject[])).map(({ type }) => type);
        expect(kinds.filter((type) => type === 'message_stop' || type === 'error')).toHaveLength(1);
      }),
    );
  });
});

describe('a stream without end', () => {
  const MEGABYTE = 'x'.repeat(1024 * 1024);
  const chunk = (delta: JsonObject) => ({ id: 'c', model: 'm', choices: [{ index: 0, delta }] });
  const call = (index: number, text: string) =>
    chunk({ tool_calls: [{ index, id: `id-${index}`, type: 'function', function: { name: 'f', arguments: text } }] });
  const from = (caller: 'chat' | 'messages' | 'responses', shape: 'chat' | 'messages') =>
    conversion(caller, shape)?.stream(testContext({ stream: true }));

  it.each([
    ['text', 'responses', 'chat', () => chunk({ content: MEGABYTE }), 100],
    ['refusals', 'responses', 'chat', () => chunk({ refusal: MEGABYTE }), 100],
    ['arguments', 'responses', 'chat', () => call(0, MEGABYTE), 100],
    ['arguments', 'messages', 'chat', () => call(0, MEGABYTE), 100],
    ['calls', 'responses', 'chat', (i: number) => call(i, '{}'), 10_000],
    ['calls', 'messages', 'chat', (i: number) => call(i, '{}'), 10_000],
    ['sources', 'chat', 'messages', () => piece(0, { type: 'citations_delta', citation: { url: MEGABYTE } }), 100],
  ] as const)(
    'of %s is an error for callers of %s before it has taken the memory',
    (_what, caller, shape, next, most) => {
      const transform = from(caller, shape);
      if (transform === undefined) throw new Error('no conversion');
      const out: StreamEvent[] = [];
      const say = (data: JsonObject) =>
        transform.event({ event: null, data: JSON.stringify(data) }, (e) => out.push(e));
      if (shape === 'messages') for (const data of [start, open(0, { type: 'text', text: 'a' })]) say(data);
      let n = 0;
      for (; n < most && !out.some(({ data }) => data.includes('too large to convert')); n++) {
        out.length = 0;
        say(next(n));
      }
      expect(n).toBeLessThan(most);
      expect(n).toBeGreaterThan(50);
    },
  );
});
