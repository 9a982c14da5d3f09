import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import type { ConvertContext } from './conversion.ts';
import { conversion } from './index.ts';
import { deepFreeze, testContext } from './testing.ts';
import { call, message, response, text, thought } from './testing-responses.ts';

type From = 'chat' | 'messages';

function answer(body: JsonObject, more: Partial<ConvertContext> = {}, from: From = 'chat'): JsonObject {
  return conversion(from, 'responses')?.response(deepFreeze(body), testContext(more)) ?? {};
}

const choice = (body: JsonObject): JsonObject => (body.choices as JsonObject[])[0] ?? {};

describe('Responses answer to chat completion', () => {
  it('carries text, identity, time, tier and every count of tokens', () => {
    expect(answer(response([message(text('Hel'), text('lo')), message(text('!'))], { service_tier: 'flex' }))).toEqual({
      id: 'resp_1',
      object: 'chat.completion',
      created: 1_690_000_000,
      model: 'gpt-5-pro-2025-10-06',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: 'Hello!', refusal: null },
          logprobs: null,
          finish_reason: 'stop',
        },
      ],
      usage: {
        prompt_tokens: 30,
        completion_tokens: 12,
        total_tokens: 42,
        prompt_tokens_details: { cached_tokens: 20, cache_write_tokens: 4, audio_tokens: 0 },
        completion_tokens_details: {
          reasoning_tokens: 7,
          audio_tokens: 0,
          accepted_prediction_tokens: 0,
          rejected_prediction_tokens: 0,
        },
      },
      service_tier: 'flex',
    });
  });

  it('tells calls by their call ids, with the text of their arguments as it is', () => {
    const custom = { type: 'custom_tool_call', id: 'ctc_1', call_id: 'c', name: 'sql', input: 'select 1' };
    const made = choice(answer(response([thought('hm'), call('a', '{"n":12345678901234567890}'), custom])));
    expect(made).toEqual({
      index: 0,
      message: {
        role: 'assistant',
        content: null,
        refusal: null,
        tool_calls: [
          { id: 'a', type: 'function', function: { name: 'f', arguments: '{"n":12345678901234567890}' } },
          { id: 'c', type: 'custom', custom: { name: 'sql', input: 'select 1' } },
        ],
      },
      logprobs: null,
      finish_reason: 'tool_calls',
    });
  });

  it('tells a refusal, sources and log probabilities', () => {
    expect(choice(answer(response([message({ type: 'refusal', refusal: 'No.' })]))).message).toEqual({
      role: 'assistant',
      content: null,
      refusal: 'No.',
    });
    const cited = { type: 'url_citation', url: 'https://a.example', title: 'A', start_index: 1, end_index: 2 };
    const probable = { token: 'b', logprob: -1, bytes: [98], top_logprobs: [] };
    const others: JsonObject[] = [
      { type: 'file_citation', file_id: 'f' },
      { type: 'web_search_call', id: 'ws_1' },
    ];
    const parts = message(text('abc'), text('bcd', { annotations: [cited, ...others], logprobs: [probable] }));
    expect(choice(answer(response([{ type: 'web_search_call', id: 'ws_1' }, parts])))).toMatchObject({
      message: {
        content: 'abcbcd',
        annotations: [
          {
            type: 'url_citation',
            url_citation: { url: 'https://a.example', title: 'A', start_index: 4, end_index: 5 },
          },
        ],
      },
      logprobs: { content: [probable], refusal: null },
    });
  });

  it.each<[string, JsonObject, string, string]>([
    ['an end', {}, 'stop', 'completed'],
    ['no status, as some servers answer', { status: null }, 'stop', 'completed'],
    [
      'the largest length',
      { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } },
      'length',
      'max_output_tokens',
    ],
    [
      'a filter',
      { status: 'incomplete', incomplete_details: { reason: 'content_filter' } },
      'content_filter',
      'content_filter',
    ],
    ['a reason of the future', { status: 'incomplete', incomplete_details: { reason: 'x' } }, 'stop', 'x'],
  ])('tells why it ended: %s', (_name, more, finish, native) => {
    const body = response([message(text('a'))], more);
    expect(choice(answer(body)).finish_reason).toBe(finish);
    expect(choice(answer(body))).not.toHaveProperty('native_finish_reason');
    expect(choice(answer(body, { strict: false })).native_finish_reason).toBe(native);
  });

  it('shows reasoning outside strict shape, and what of it can be sent back', () => {
    const portable = thought('a|b', { encrypted_content: 'gAAA' });
    const body = response([portable, thought('c'), message(text('x'))]);
    expect(choice(answer(body, { strict: false })).message).toMatchObject({
      reasoning_content: 'a\n\nb\n\nc',
      content_blocks: [portable],
    });
    expect(Object.keys(choice(answer(body)).message as JsonObject)).toEqual(['role', 'content', 'refusal']);
    const open = thought('', { content: [{ type: 'reasoning_text', text: 'raw' }] });
    expect(choice(answer(response([open]), { strict: false })).message).toMatchObject({ reasoning_content: 'raw' });
  });

  it.each<[string, JsonObject, string, number, string]>([
    ['server_error', {}, 'provider_error', 502, 'server_error'],
    ['rate_limit_exceeded', {}, 'provider_error', 429, 'rate_limit_exceeded'],
    ['invalid_prompt', {}, 'provider_error', 400, 'invalid_prompt'],
    ['image_too_large', {}, 'provider_error', 400, 'image_too_large'],
  ])('fails as the response says: %s', (code, more, kind, status, told) => {
    const body = response([], { status: 'failed', error: { code, message: 'It broke.', ...more } });
    const run = () => answer(body);
    expect(run).toThrow('It broke.');
    expect(caught(run)).toMatchObject({ kind, provider: { status, code: told } });
  });

  it.each<[string, JsonObject]>([
    ['cancelled', response([], { status: 'cancelled' })],
    ['queued', response([], { status: 'queued' })],
    ['in_progress', response([], { status: 'in_progress' })],
    ['without output', response(null)],
    ['of another kind', { choices: [] }],
  ])('is no answer: %s', (_name, body) => {
    expect(caught(() => answer(body))).toMatchObject({ kind: 'upstream_invalid' });
  });

  it('never throws anything but a clear error, whatever the answer holds', () => {
    const output = fc.array(
      fc.oneof(
        fc.object({ maxDepth: 3 }),
        fc.record({
          type: fc.constantFrom('message', 'reasoning', 'function_call'),
          content: fc.anything(),
          summary: fc.anything(),
        }),
      ),
    );
    fc.assert(
      fc.property(fc.object({ maxDepth: 3 }), output, (body, items) => {
        try {
          answer({ ...body, output: items } as JsonObject);
        } catch (error) {
          expect(error).toBeInstanceOf(SluiceError);
        }
      }),
    );
  });

  it('becomes a Messages answer through chat, with the summary as thinking', () => {
    const body = response([thought('hm'), message(text('Let me see.')), call('a', '{"x":1}')]);
    const asked = { thinking: { type: 'enabled', budget_tokens: 2000 } };
    expect(answer(body, { body: asked }, 'messages')).toEqual({
      id: 'resp_1',
      type: 'message',
      role: 'assistant',
      model: 'gpt-5-pro-2025-10-06',
      content: [
        { type: 'thinking', thinking: 'hm', signature: '' },
        { type: 'text', text: 'Let me see.' },
        { type: 'tool_use', id: 'a', name: 'f', input: { x: 1 } },
      ],
      stop_reason: 'tool_use',
      stop_sequence: null,
      usage: {
        input_tokens: 6,
        cache_creation_input_tokens: 4,
        cache_read_input_tokens: 20,
        output_tokens: 12,
        output_tokens_details: { thinking_tokens: 7 },
      },
    });
  });

  it('gives what its model wants back as the signature of thinking blocks, to who asked for thinking', () => {
    const items = [
      thought('a|b', { encrypted_content: 'gAAA' }),
      thought('', { id: 'rs_2', encrypted_content: 'gBBB' }),
    ];
    const body = response([...items, message(text('x'))]);
    const asked = { thinking: { type: 'adaptive' } };
    expect(answer(body, { body: asked }, 'messages').content).toEqual([
      { type: 'thinking', thinking: 'a\n\nb', signature: 'responses:rs_1:gAAA' },
      { type: 'thinking', thinking: '', signature: 'responses:rs_2:gBBB' },
      { type: 'text', text: 'x' },
    ]);
    expect(answer(body, {}, 'messages').content).toEqual([{ type: 'text', text: 'x' }]);
  });
});

function caught(run: () => unknown): unknown {
  try {
    run();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
}
