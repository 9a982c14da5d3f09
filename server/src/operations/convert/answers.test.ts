import { describe, expect, it } from 'vitest';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject, JsonValue } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import type { ConvertContext, ConvertTarget } from './conversion.ts';
import { conversion } from './index.ts';
import { deepFreeze, testContext } from './testing.ts';

const toChat = (body: JsonObject, context: Partial<ConvertContext> = {}): JsonObject =>
  conversion('chat', 'messages')?.response(deepFreeze(body), testContext(context)) ?? {};
const toMessages = (body: JsonObject, context: Partial<ConvertContext> = {}, target: ConvertTarget = {}): JsonObject =>
  conversion('messages', 'chat', target)?.response(deepFreeze(body), testContext(context)) ?? {};

const message = (content: JsonValue[], stop = 'end_turn', more: JsonObject = {}): JsonObject => ({
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'claude',
  content,
  stop_reason: stop,
  stop_sequence: null,
  usage: { input_tokens: 10, cache_read_input_tokens: 5, cache_creation_input_tokens: 1, output_tokens: 7 },
  ...more,
});
const completion = (given: JsonObject, finish = 'stop', more: JsonObject = {}): JsonObject => ({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'gpt',
  choices: [{ index: 0, message: { role: 'assistant', content: null, ...given }, finish_reason: finish }],
  usage: { prompt_tokens: 16, completion_tokens: 7, total_tokens: 23, prompt_tokens_details: { cached_tokens: 5 } },
  ...more,
});
const choice = (body: JsonObject): { message: JsonObject; finish_reason: string; native_finish_reason?: string } =>
  (body.choices as never[])[0] as never;

describe('Messages answer to chat completion', () => {
  it('joins text, turns tool_use into calls and counts cached tokens into the prompt', () => {
    const out = toChat(
      message(
        [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
          { type: 'tool_use', id: 't1', name: 'f', input: { x: [1] } },
          { type: 'tool_use', id: 't2', name: 'g', input: {} },
        ],
        'tool_use',
      ),
    );
    expect(out).toEqual({
      id: 'msg_1',
      object: 'chat.completion',
      created: 1_700_000_000,
      model: 'claude',
      choices: [
        {
          index: 0,
          message: {
            role: 'assistant',
            content: 'ab',
            refusal: null,
            tool_calls: [
              { id: 't1', type: 'function', function: { name: 'f', arguments: '{"x":[1]}' } },
              { id: 't2', type: 'function', function: { name: 'g', arguments: '{}' } },
            ],
          },
          logprobs: null,
          finish_reason: 'tool_calls',
        },
      ],
      usage: {
        prompt_tokens: 16,
        completion_tokens: 7,
        total_tokens: 23,
        prompt_tokens_details: { cached_tokens: 5, cache_write_tokens: 1, audio_tokens: 0 },
        completion_tokens_details: {
          reasoning_tokens: 0,
          audio_tokens: 0,
          accepted_prediction_tokens: 0,
          rejected_prediction_tokens: 0,
        },
      },
    });
  });

  it('has null content when there are only calls', () => {
    const out = toChat(message([{ type: 'tool_use', id: 't', name: 'f', input: {} }], 'tool_use'));
    expect(choice(out).message.content).toBeNull();
  });

  it('keeps big integers of arguments digit by digit', () => {
    const wire = JSON.stringify(message([{ type: 'tool_use', id: 't', name: 'f', input: 'INPUT' }], 'tool_use'));
    const body = parseExact(wire.replace('"INPUT"', '{"id":12345678901234567890}')) as JsonObject;
    expect(choice(toChat(body)).message.tool_calls).toMatchObject([
      { function: { arguments: '{"id":12345678901234567890}' } },
    ]);
  });

  it('shows thinking and the native stop reason only outside strict shape', () => {
    const thinking = { type: 'thinking', thinking: 'hm', signature: 's' };
    const body = message([thinking, { type: 'text', text: 'a' }], 'pause_turn');
    expect(choice(toChat(body)).message).toEqual({ role: 'assistant', content: 'a', refusal: null });
    expect(choice(toChat(body))).not.toHaveProperty('native_finish_reason');
    const shown = choice(toChat(body, { strict: false }));
    expect(shown.message).toMatchObject({ reasoning_content: 'hm', content_blocks: [thinking] });
    expect(shown.native_finish_reason).toBe('pause_turn');
  });

  it.each([
    ['end_turn', 'stop'],
    ['stop_sequence', 'stop'],
    ['pause_turn', 'stop'],
    ['max_tokens', 'length'],
    ['model_context_window_exceeded', 'length'],
    ['tool_use', 'tool_calls'],
    ['refusal', 'content_filter'],
    ['a_reason_of_the_future', 'stop'],
    ['constructor', 'stop'],
  ])('maps stop reason %s to %s', (stop, finish) => {
    expect(choice(toChat(message([{ type: 'text', text: 'a' }], stop))).finish_reason).toBe(finish);
  });

  it('points web citations at the text they belong to', () => {
    const citations = [
      { type: 'web_search_result_location', url: 'https://a.example/', title: 'A', cited_text: 'x' },
      { type: 'char_location', document_index: 0 },
    ];
    const out = toChat(
      message([
        { type: 'text', text: 'abc' },
        { type: 'text', text: 'de', citations },
      ]),
    );
    expect(choice(out).message.annotations).toEqual([
      { type: 'url_citation', url_citation: { url: 'https://a.example/', title: 'A', start_index: 3, end_index: 5 } },
    ]);
  });

  it('unwraps the function that stands for a schema', () => {
    const out = toChat(message([{ type: 'tool_use', id: 't', name: 'json_output_n', input: { a: 1 } }], 'tool_use'));
    expect(choice(out)).toMatchObject({ message: { content: '{"a":1}' }, finish_reason: 'stop' });
    expect(choice(out).message).not.toHaveProperty('tool_calls');
  });

  it('answers 502 to a body without content', () => {
    expect(() => toChat({ type: 'message' })).toThrow(SluiceError);
  });
});

describe('chat completion to Messages answer', () => {
  it('writes text, then calls, and takes cached tokens out of the input', () => {
    const tool_calls = [
      { id: 'c1', type: 'function', function: { name: 'f', arguments: '{"a":12345678901234567890}' } },
    ];
    const out = toMessages(completion({ content: 'hi', tool_calls }, 'tool_calls'));
    expect(JSON.parse(JSON.stringify({ ...out, content: null }))).toEqual({
      id: 'chatcmpl-1',
      type: 'message',
      role: 'assistant',
      model: 'gpt',
      content: null,
      stop_reason: 'tool_use',
      stop_sequence: null,
      usage: { input_tokens: 11, cache_creation_input_tokens: 0, cache_read_input_tokens: 5, output_tokens: 7 },
    });
    expect(JSON.stringify(out.content)).toBe(
      '[{"type":"text","text":"hi"},{"type":"tool_use","id":"c1","name":"f","input":{"a":12345678901234567890}}]',
    );
  });

  it.each([
    ['stop', 'end_turn'],
    ['length', 'max_tokens'],
    ['tool_calls', 'tool_use'],
    ['function_call', 'tool_use'],
    ['content_filter', 'refusal'],
    ['a_reason_of_the_future', 'end_turn'],
  ])('maps finish reason %s to %s', (finish, stop) => {
    expect(toMessages(completion({ content: 'a' }, finish)).stop_reason).toBe(stop);
  });

  it('stops with tool_use when calls were made, whatever the server says', () => {
    const tool_calls = [{ id: 'c', type: 'function', function: { name: 'f', arguments: '' } }];
    expect(toMessages(completion({ tool_calls }, 'stop'))).toMatchObject({
      content: [{ type: 'tool_use', id: 'c', name: 'f', input: {} }],
      stop_reason: 'tool_use',
    });
  });

  it('turns a refusal into text and the stop reason refusal', () => {
    expect(toMessages(completion({ refusal: 'no' }))).toMatchObject({
      content: [{ type: 'text', text: 'no' }],
      stop_reason: 'refusal',
    });
  });

  it('answers an empty answer with no blocks', () => {
    expect(toMessages(completion({ content: '' })).content).toEqual([]);
  });

  it('shows reasoning as thinking only to callers who asked for it', () => {
    const target: ConvertTarget = { reasoning: { field: 'reasoning' } };
    const body = completion({ content: 'a', reasoning: 'hm' });
    expect(toMessages(body, {}, target).content).toEqual([{ type: 'text', text: 'a' }]);
    const asked = { body: { thinking: { type: 'enabled', budget_tokens: 1024 } } };
    expect(toMessages(body, asked, target).content).toEqual([
      { type: 'thinking', thinking: 'hm', signature: '' },
      { type: 'text', text: 'a' },
    ]);
  });

  it('answers 502 model_error to arguments that are no JSON object', () => {
    for (const text of ['{"a":', '[1]', '"x"']) {
      const tool_calls = [{ id: 'c', type: 'function', function: { name: 'f', arguments: text } }];
      expect(() => toMessages(completion({ tool_calls }))).toThrow(
        expect.objectContaining({ kind: 'upstream_invalid', reason: 'model_error' }),
      );
    }
  });

  it('answers 502 to a body without choices', () => {
    expect(() => toMessages({ choices: [] })).toThrow(SluiceError);
  });

  it('reads usage where the provider puts it', () => {
    const body = completion({ content: 'a' }, 'stop', {
      usage: null,
      x: [{ usage: { prompt_tokens: 3, completion_tokens: 4 } }],
    });
    expect(toMessages(body, {}, { usagePath: ['x', '0', 'usage'] }).usage).toMatchObject({
      input_tokens: 3,
      output_tokens: 4,
    });
  });
});
