import { describe, expect, it } from 'vitest';
import { messageAttributes } from './gen-ai-messages.ts';

const attributes = (request: object | null, response: object | null) =>
  Object.fromEntries(
    messageAttributes({ request, response }).map(({ name, value }) => [name, JSON.parse(String(value))]),
  );
const text = (content: string) => ({ type: 'text', content });

describe('kept bodies as messages', () => {
  it('of chat completions, with calls of tools', () => {
    const messages = [
      { role: 'system', content: 'be brief' },
      { role: 'user', content: [{ type: 'text', text: 'hi' }] },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'c1', type: 'function', function: { name: 'f', arguments: '{}' } }],
      },
      { role: 'tool', tool_call_id: 'c1', content: 'done' },
    ];
    const choices = [{ message: { role: 'assistant', content: 'ok' }, finish_reason: 'stop' }];
    expect(attributes({ messages }, { choices })).toEqual({
      'gen_ai.input.messages': [
        { role: 'system', parts: [text('be brief')] },
        { role: 'user', parts: [text('hi')] },
        { role: 'assistant', parts: [{ type: 'tool_call', id: 'c1', name: 'f', arguments: '{}' }] },
        { role: 'tool', parts: [{ type: 'tool_call_response', id: 'c1', response: 'done' }] },
      ],
      'gen_ai.output.messages': [{ role: 'assistant', parts: [text('ok')], finish_reason: 'stop' }],
    });
  });

  it('of messages, with what is above them', () => {
    const request = { system: 'be brief', messages: [{ role: 'user', content: 'hi' }] };
    const response = { role: 'assistant', content: [{ type: 'text', text: 'ok' }], stop_reason: 'end_turn' };
    expect(attributes(request, response)).toEqual({
      'gen_ai.system_instructions': [text('be brief')],
      'gen_ai.input.messages': [{ role: 'user', parts: [text('hi')] }],
      'gen_ai.output.messages': [{ role: 'assistant', parts: [text('ok')], finish_reason: 'end_turn' }],
    });
  });

  it('of responses, and of streams of each shape', () => {
    const output = [{ type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'ok' }] }];
    const wanted = [{ role: 'assistant', parts: [text('ok')] }];
    expect(attributes({ input: 'hi', instructions: 'be brief' }, { output })).toEqual({
      'gen_ai.system_instructions': [text('be brief')],
      'gen_ai.input.messages': [{ role: 'user', parts: [text('hi')] }],
      'gen_ai.output.messages': wanted,
    });
    const stop = { finish_reason: 'stop' };
    for (const [events, finish] of [
      [
        [{ choices: [{ delta: { content: 'o' } }] }, { choices: [{ delta: { content: 'k' }, ...stop }] }, '[DONE]'],
        stop,
      ],
      [[{ type: 'content_block_delta', delta: { text: 'ok' } }, { delta: { stop_reason: 'stop' } }], stop],
      [
        [
          { type: 'response.output_text.delta', delta: 'ok' },
          { type: 'response.completed', response: { output } },
        ],
        {},
      ],
    ] as const) {
      expect(attributes(null, { events })).toEqual({ 'gen_ai.output.messages': [{ ...wanted[0], ...finish }] });
    }
  });

  it('of other shapes whole, and of nothing not at all', () => {
    expect(attributes({ query: 'q' }, null)).toEqual({
      'gen_ai.input.messages': [{ role: 'user', parts: [text('{"query":"q"}')] }],
    });
    expect(attributes(null, null)).toEqual({});
  });
});
