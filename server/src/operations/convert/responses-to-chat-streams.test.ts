import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../kernel/json.ts';
import { streamedError } from '../dialects/provider-error.ts';
import type { StreamEvent } from '../stream.ts';
import type { ConvertContext } from './conversion.ts';
import { conversion } from './index.ts';
import { parsed, runStream, testContext } from './testing.ts';
import { call, message, response, text, thought } from './testing-responses.ts';

type From = 'chat' | 'messages';

function stream(
  events: readonly (JsonObject | string)[],
  context: Partial<ConvertContext> = {},
  from: From = 'chat',
): StreamEvent[] {
  const transform = conversion(from, 'responses')?.stream(testContext({ stream: true, ...context }));
  if (transform === undefined) throw new Error('no conversion');
  return runStream(transform, events);
}

const created: JsonObject = {
  type: 'response.created',
  response: response([], { status: 'in_progress', usage: null }),
};
const added = (output_index: number, item: JsonObject): JsonObject => ({
  type: 'response.output_item.added',
  output_index,
  item,
});
const done = (output_index: number, item: JsonObject): JsonObject => ({
  type: 'response.output_item.done',
  output_index,
  item,
});
const says = (output_index: number, delta: string, more: JsonObject = {}): JsonObject => ({
  type: 'response.output_text.delta',
  item_id: 'msg_1',
  output_index,
  content_index: 0,
  delta,
  logprobs: [],
  obfuscation: 'xxxx',
  ...more,
});
const args = (output_index: number, delta: string): JsonObject => ({
  type: 'response.function_call_arguments.delta',
  item_id: 'fc',
  output_index,
  delta,
});
const completed = (more: JsonObject = {}): JsonObject => ({
  type: 'response.completed',
  response: response([], { output: [], ...more }),
});

/** What each chunk says: its delta, its finish reason, its usage, its error, or that it is the end. */
const told = (events: readonly StreamEvent[]): unknown[] =>
  parsed(events).map((chunk) => {
    const [one] = (chunk.choices as JsonObject[] | undefined) ?? [];
    if (one === undefined) return chunk.usage ?? chunk.done ?? chunk.error;
    return one.finish_reason ?? one.delta;
  });
const ROLE = { role: 'assistant', content: '' };

describe('Responses events to chat chunks', () => {
  it('streams text, then the finish reason, then [DONE]', () => {
    const out = stream([
      created,
      { type: 'response.in_progress', response: {} },
      added(0, { ...message(), content: [] }),
      { type: 'response.content_part.added', output_index: 0, content_index: 0, part: text('') },
      says(0, 'Hel'),
      says(0, 'lo'),
      { type: 'response.output_text.done', output_index: 0, content_index: 0, text: 'Hello' },
      done(0, message(text('Hello'))),
      completed({ output: [message(text('Hello'))], service_tier: 'default' }),
      '[DONE]',
    ]);
    expect(told(out)).toEqual([ROLE, { content: 'Hel' }, { content: 'lo' }, 'stop', true]);
    expect(parsed(out)[1]).toEqual({
      id: 'resp_1',
      object: 'chat.completion.chunk',
      created: 1_690_000_000,
      model: 'gpt-5-pro-2025-10-06',
      choices: [{ index: 0, delta: { content: 'Hel' }, logprobs: null, finish_reason: null }],
    });
    expect(parsed(out)[3]).toMatchObject({ service_tier: 'default' });
  });

  it('tells usage once, at the end, to who asked for it', () => {
    const out = parsed(stream([created, says(0, 'a'), completed()], { includeUsage: true }));
    expect(out.map(({ usage }) => (usage as JsonObject | undefined)?.total_tokens ?? usage)).toEqual([
      null,
      null,
      null,
      42,
      undefined,
    ]);
    expect(out[3]).toMatchObject({
      choices: [],
      usage: { prompt_tokens_details: { cached_tokens: 20 }, completion_tokens_details: { reasoning_tokens: 7 } },
    });
    const asked = { body: { stream_options: { include_usage: true } } };
    expect(parsed(stream([created, completed()], asked))).toHaveLength(4);
  });

  it('puts parallel calls together from their own events, however they are mixed', () => {
    const out = stream([
      created,
      added(1, call('a', '')),
      args(1, '{"x":'),
      added(2, call('b', '')),
      args(2, '{"y"'),
      args(1, '1}'),
      args(2, ':2}'),
      done(1, call('a', '{"x":1}')),
      done(2, call('b', '{"y":2}')),
      completed(),
    ]);
    const begun = (index: number, id: string): JsonObject => ({
      tool_calls: [{ index, id, type: 'function', function: { name: 'f', arguments: '' } }],
    });
    const piece = (index: number, part: string): JsonObject => ({
      tool_calls: [{ index, function: { arguments: part } }],
    });
    expect(told(out)).toEqual([
      ROLE,
      begun(0, 'a'),
      piece(0, '{"x":'),
      begun(1, 'b'),
      piece(1, '{"y"'),
      piece(0, '1}'),
      piece(1, ':2}'),
      'tool_calls',
      true,
    ]);
  });

  it('tells custom calls, refusals, sources and log probabilities', () => {
    const item = { type: 'custom_tool_call', id: 'ctc', call_id: 'c', name: 'sql', input: '' };
    const cited = { type: 'url_citation', url: 'https://a.example', title: 'A', start_index: 0, end_index: 1 };
    const probable = { token: 'b', logprob: -1, bytes: [98], top_logprobs: [] };
    const out = stream([
      created,
      says(0, 'abc'),
      says(0, 'b', { content_index: 1, logprobs: [probable] }),
      { type: 'response.output_text.annotation.added', output_index: 0, content_index: 1, annotation: cited },
      { type: 'response.refusal.delta', output_index: 0, content_index: 2, delta: 'No.' },
      added(1, item),
      { type: 'response.custom_tool_call_input.delta', output_index: 1, delta: 'select' },
      done(1, { ...item, input: 'select 1' }),
      completed(),
    ]);
    expect(told(out)).toEqual([
      ROLE,
      { content: 'abc' },
      { content: 'b' },
      {
        annotations: [
          {
            type: 'url_citation',
            url_citation: { url: 'https://a.example', title: 'A', start_index: 3, end_index: 4 },
          },
        ],
      },
      { refusal: 'No.' },
      { tool_calls: [{ index: 0, id: 'c', type: 'custom', custom: { name: 'sql', input: '' } }] },
      { tool_calls: [{ index: 0, custom: { input: 'select' } }] },
      { tool_calls: [{ index: 0, custom: { input: ' 1' } }] },
      'tool_calls',
      true,
    ]);
    expect(parsed(out)[2]).toMatchObject({ choices: [{ logprobs: { content: [probable], refusal: null } }] });
  });

  it('shows reasoning outside strict shape only, its parts apart', () => {
    const part = (summary_index: number, delta: string): JsonObject[] => [
      { type: 'response.reasoning_summary_part.added', output_index: 0, summary_index },
      { type: 'response.reasoning_summary_text.delta', output_index: 0, summary_index, delta },
    ];
    const portable = thought('a|b', { encrypted_content: 'gAAA' });
    const events = [
      created,
      added(0, thought('')),
      ...part(0, 'a'),
      ...part(1, 'b'),
      done(0, portable),
      added(1, thought('')),
      done(1, thought('c')),
      says(2, 'x'),
      completed(),
    ];
    expect(told(stream(events, { strict: false }))).toEqual([
      ROLE,
      { reasoning_content: 'a' },
      { reasoning_content: '\n\n' },
      { reasoning_content: 'b' },
      { content_blocks: [{ index: 0, content_block: portable }] },
      { reasoning_content: '\n\nc' },
      { content: 'x' },
      'stop',
      true,
    ]);
    expect(told(stream(events))).toEqual([ROLE, { content: 'x' }, 'stop', true]);
  });

  it('loses nothing of a server that tells items, or the response, only whole', () => {
    const items = [message(text('Hi', { logprobs: [] })), call('a', '{"x":1}')];
    const expected = [
      ROLE,
      { content: 'Hi' },
      { tool_calls: [{ index: 0, id: 'a', type: 'function', function: { name: 'f', arguments: '' } }] },
      { tool_calls: [{ index: 0, function: { arguments: '{"x":1}' } }] },
      'tool_calls',
      true,
    ];
    expect(told(stream([created, ...items.map((item, i) => done(i, item)), completed()]))).toEqual(expected);
    expect(told(stream([completed({ output: items })]))).toEqual(expected);
    // Told twice, it is said once.
    expect(told(stream([...items.map((item, i) => done(i, item)), completed({ output: items })]))).toEqual(expected);
  });

  it.each<[string, JsonObject, string]>([
    [
      'the largest length',
      { type: 'response.incomplete', response: { incomplete_details: { reason: 'max_output_tokens' } } },
      'length',
    ],
    [
      'a filter',
      {
        type: 'response.incomplete',
        response: { status: 'incomplete', incomplete_details: { reason: 'content_filter' } },
      },
      'content_filter',
    ],
    [
      'an end whose status was not brought up to date',
      { type: 'response.completed', response: { status: 'in_progress' } },
      'stop',
    ],
  ])('ends early for %s', (_name, event, finish) => {
    expect(told(stream([created, says(0, 'a'), event]))).toEqual([ROLE, { content: 'a' }, finish, true]);
  });

  it.each<[string, JsonObject | null, string | null, number]>([
    [
      'a failure',
      {
        type: 'response.failed',
        response: response([], { status: 'failed', error: { code: 'server_error', message: 'It broke.' } }),
      },
      'server_error',
      500,
    ],
    [
      'a limit',
      { type: 'response.failed', response: { error: { code: 'rate_limit_exceeded', message: 'It broke.' } } },
      'rate_limit_exceeded',
      429,
    ],
    [
      'a bad prompt',
      { type: 'response.failed', response: { error: { code: 'invalid_prompt', message: 'It broke.' } } },
      'invalid_prompt',
      400,
    ],
    [
      'an image',
      { type: 'response.failed', response: { error: { code: 'invalid_image', message: 'It broke.' } } },
      'invalid_image',
      400,
    ],
    [
      'an error event',
      { type: 'error', code: 'insufficient_quota', message: 'It broke.', param: null },
      'insufficient_quota',
      429,
    ],
    ['an error event with an object', { type: 'error', error: { code: null, message: 'It broke.' } }, null, 502],
    ['a cancelled response', { type: 'response.completed', response: { status: 'cancelled' } }, 'model_error', 502],
    ['a cut', null, 'upstream_stream_cut', 502],
  ])('ends in one error event, and nothing after it: %s', (_name, event, code, status) => {
    const out = stream([
      created,
      says(0, 'a'),
      ...(event === null ? [] : [event]),
      ...(event === null ? [] : [says(0, 'b')]),
    ]);
    expect(out).toHaveLength(3);
    const last = parsed(out)[2] ?? {};
    expect(last).toMatchObject({ error: { code } });
    if (event?.type !== 'response.completed' && event !== null)
      expect(last).toMatchObject({ error: { message: 'It broke.' } });
    expect(streamedError(last)?.status).toBe(status);
  });

  it('takes [DONE] before the end for a cut, and events without places as they follow each other', () => {
    expect(told(stream([created, says(0, 'a'), '[DONE]'])).at(-1)).toMatchObject({ code: 'upstream_stream_cut' });
    const bare = (event: JsonObject): JsonObject => {
      const { output_index: _, ...rest } = event;
      return rest;
    };
    expect(told(stream([says(0, 'a'), added(1, call('a', '')), args(1, '{}'), completed()].map(bare)))).toEqual([
      ROLE,
      { content: 'a' },
      { tool_calls: [{ index: 0, id: 'a', type: 'function', function: { name: 'f', arguments: '' } }] },
      { tool_calls: [{ index: 0, function: { arguments: '{}' } }] },
      'tool_calls',
      true,
    ]);
  });

  it('never throws and always ends in exactly one end or error event, whatever comes', () => {
    const type = fc.constantFrom(
      'response.created',
      'response.output_item.added',
      'response.output_item.done',
      'response.output_text.delta',
      'response.function_call_arguments.delta',
      'response.completed',
    );
    const item = fc.record({ type: fc.constantFrom('message', 'reasoning', 'function_call'), content: fc.anything() });
    const event = fc.record({ type, item, delta: fc.anything(), output_index: fc.anything(), response: fc.anything() });
    const anything = fc.array(fc.oneof(event, fc.object({ maxDepth: 4 }), fc.string(), fc.constant('[DONE]')), {
      maxLength: 6,
    });
    fc.assert(
      fc.property(anything, (events) => {
        const out = parsed(stream(JSON.parse(JSON.stringify(events)) as JsonObject[]));
        expect(out.filter((one) => one.done === true || one.error !== undefined)).toHaveLength(1);
      }),
    );
  });

  it('becomes Messages events through chat, with one usage and the stop reason of the calls', () => {
    const events = [
      created,
      { type: 'response.reasoning_summary_text.delta', output_index: 0, summary_index: 0, delta: 'hm' },
      says(1, 'Hi'),
      added(2, call('a', '')),
      args(2, '{"x":1}'),
      completed(),
    ];
    const asked = { body: { thinking: { type: 'enabled', budget_tokens: 2000 } } };
    const out = parsed(stream(events, asked, 'messages'));
    expect(
      out.map((event) => (event.content_block as JsonObject)?.type ?? (event.delta as JsonObject)?.type ?? event.type),
    ).toEqual([
      'message_start',
      'thinking',
      'thinking_delta',
      'signature_delta',
      'content_block_stop',
      'text',
      'text_delta',
      'content_block_stop',
      'tool_use',
      'input_json_delta',
      'content_block_stop',
      'message_delta',
      'message_stop',
    ]);
    expect(out.at(-2)).toMatchObject({
      delta: { stop_reason: 'tool_use' },
      usage: { input_tokens: 6, cache_read_input_tokens: 20, cache_creation_input_tokens: 4, output_tokens: 12 },
    });
    const failed = {
      type: 'response.failed',
      response: { error: { code: 'rate_limit_exceeded', message: 'Slower.' } },
    };
    expect(parsed(stream([created, failed], {}, 'messages')).at(-1)).toEqual({
      type: 'error',
      error: { type: 'rate_limit_error', message: 'Slower.' },
    });
  });

  it('becomes thinking blocks whose signatures are what the model wants back', () => {
    const summary = { type: 'response.reasoning_summary_text.delta', output_index: 0, summary_index: 0, delta: 'a' };
    const events = [
      created,
      summary,
      done(0, thought('a', { encrypted_content: 'gAAA' })),
      added(1, thought('')),
      done(1, thought('', { id: 'rs_2', encrypted_content: 'gBBB' })),
      says(2, 'x'),
      completed(),
    ];
    const signed = (signature: string): JsonObject => ({ type: 'signature_delta', signature });
    const deltas = (more: Partial<ConvertContext>): unknown[] =>
      parsed(stream(events, more, 'messages'))
        .filter(({ type }) => type === 'content_block_delta')
        .map(({ index, delta }) => [index, delta]);
    expect(deltas({ body: { thinking: { type: 'adaptive' } } })).toEqual([
      [0, { type: 'thinking_delta', thinking: 'a' }],
      [0, signed('responses:rs_1:gAAA')],
      [1, signed('responses:rs_2:gBBB')],
      [2, { type: 'text_delta', text: 'x' }],
    ]);
    expect(deltas({})).toEqual([[0, { type: 'text_delta', text: 'x' }]]);
  });
});
