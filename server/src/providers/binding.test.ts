import { describe, expect, it } from 'vitest';
import { contextOf } from '../../test/support/provider-fixtures.ts';
import type { JsonObject } from '../kernel/json.ts';
import { deepFreeze } from '../operations/convert/testing.ts';
import { OPERATIONS, type OperationId } from '../operations/operation.ts';
import { bindingFor } from './binding.ts';
import { providerById } from './catalog.ts';
import type { Provider } from './provider.ts';
import { callIndexRepair } from './quirks.ts';

function provider(id: string): Provider {
  const found = providerById(id);
  if (found === undefined) throw new Error(`no provider ${id}`);
  return found;
}

describe('bindingFor', () => {
  it('lets bytes pass where caller and provider speak the same shape', () => {
    for (const [id, operation] of [
      ['openai', 'chat'],
      ['openai', 'responses'],
      ['anthropic', 'messages'],
    ] as const) {
      const bound = bindingFor(provider(id), operation);
      expect(bound?.convert).toBeNull();
      expect(bound).not.toHaveProperty('request');
      expect(bound).not.toHaveProperty('response');
      expect(bound).not.toHaveProperty('stream');
    }
  });

  it('converts between chat, Messages and Responses where the provider has another of them', () => {
    expect(bindingFor(provider('anthropic'), 'chat')?.binding.shape).toBe('messages');
    expect(bindingFor(provider('anthropic'), 'responses')?.binding.shape).toBe('messages');
    expect(bindingFor(provider('openai'), 'messages')?.binding.shape).toBe('chat');
    expect(bindingFor(provider('deepseek'), 'responses')?.binding.shape).toBe('chat');
  });

  it('serves every chat-like operation with every provider that has one of them', () => {
    for (const id of ['anthropic', 'groq', 'mistral-ai', 'ollama', 'cohere']) {
      for (const operation of ['chat', 'messages', 'responses'] as const) {
        expect(bindingFor(provider(id), operation)).not.toBeNull();
      }
    }
  });

  it('answers null for what a provider cannot do', () => {
    expect(bindingFor(provider('anthropic'), 'embeddings')).toBeNull();
    expect(bindingFor(provider('openai'), 'rerank')).toBeNull();
    expect(bindingFor(provider('voyage'), 'chat')).toBeNull();
  });

  it('is found once per provider and operation', () => {
    expect(bindingFor(provider('openai'), 'messages')).toBe(bindingFor(provider('openai'), 'messages'));
  });

  it('covers every operation but files, batches and jobs with the first provider or refuses it', () => {
    for (const operation of Object.keys(OPERATIONS) as OperationId[]) {
      const bound = bindingFor(provider('openai'), operation);
      const elsewhere = OPERATIONS[operation].family === 'job';
      expect(bound === null).toBe(elsewhere || operation === 'count_tokens' || operation === 'rerank');
    }
  });

  it('applies the provider’s own quirks after the conversion', () => {
    const body: JsonObject = deepFreeze({
      model: 'm',
      max_tokens: 5,
      messages: [{ role: 'user', content: 'hi' }],
      metadata: { user_id: 'u' },
      stream: true,
    });
    const bound = bindingFor(provider('mistral-ai'), 'messages');
    expect(bound?.request?.(body, contextOf('messages', { body }))).toEqual({
      model: 'm',
      max_tokens: 5,
      messages: [{ role: 'user', content: 'hi' }],
      stream: true,
    });
  });

  it('remembers what was asked for the answer, so that a context need not carry the body', () => {
    const bound = bindingFor(provider('together-ai'), 'embeddings');
    const body: JsonObject = { model: 'm', input: 'a', encoding_format: 'base64' };
    const { body: _body, ...context } = contextOf('embeddings', { body });
    bound?.request?.(body, context);
    const answer = bound?.response?.({ data: [{ index: 0, embedding: [1, -2] }] }, context);
    const [row] = (answer?.data ?? []) as { embedding: string }[];
    const bytes = Buffer.from(row?.embedding ?? '', 'base64');
    expect([bytes.readFloatLE(0), bytes.readFloatLE(4)]).toEqual([1, -2]);
  });
});

describe('usage of providers that count in their own way', () => {
  it.each<[string, JsonObject, JsonObject]>([
    ['deepseek', { prompt_tokens: 10, completion_tokens: 2, prompt_cache_hit_tokens: 6 }, { input: 10, cache_read: 6 }],
    [
      'xai',
      { prompt_tokens: 10, completion_tokens: 2, completion_tokens_details: { reasoning_tokens: 30 } },
      { output: 32, reasoning: 30 },
    ],
    [
      'xai',
      { prompt_tokens: 10, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 40 } },
      { input: 50, cache_read: 40 },
    ],
    ['moonshot', { prompt_tokens: 10, completion_tokens: 2, cached_tokens: 4 }, { input: 10, cache_read: 4 }],
    ['perplexity', { prompt_tokens: 10, completion_tokens: 20, reasoning_tokens: 5 }, { output: 20, reasoning: 5 }],
    [
      'deepinfra',
      { prompt_tokens: 10, completion_tokens: 2, completion_tokens_details: { reasoning_tokens: 30 } },
      { output: 32 },
    ],
    [
      'deepinfra',
      { prompt_tokens: 10, completion_tokens: 20, completion_tokens_details: { reasoning_tokens: 5 } },
      { output: 20 },
    ],
  ])('%s: %j', (id, usage, expected) => {
    expect(provider(id).bindings.chat?.usage?.(usage)).toMatchObject(expected);
    expect(provider(id).bindings.chat?.usage?.({})).toBeNull();
    const negative = { ...usage, prompt_tokens: -5, completion_tokens: -5 };
    const read = provider(id).bindings.chat?.usage?.(negative);
    expect(Math.min(0, read?.input ?? 0, read?.output ?? 0)).toBe(0);
  });
});

describe('an overload in the first event of an Anthropic stream', () => {
  const hook = provider('anthropic').bindings.messages?.inspectFirstEvent;

  it('becomes a 529 when the setting asks for it', () => {
    expect(hook?.setting).toBe('anthropic_inspect_stream_for_overloaded_error');
    expect(hook?.find('{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}')).toEqual({
      status: 529,
      message: 'Overloaded',
      type: 'overloaded_error',
      param: null,
      code: 'overloaded',
    });
  });

  it('is not seen in other events', () => {
    for (const data of [
      '{"type":"message_start","message":{}}',
      '{"type":"error","error":{"type":"api_error","message":"overloaded_error"}}',
      'overloaded_error',
    ]) {
      expect(hook?.find(data)).toBeNull();
    }
  });
});

describe('callIndexRepair', () => {
  const run = (...calls: JsonObject[]): unknown[] => {
    const repair = callIndexRepair();
    return calls.map((call) => {
      const chunk = repair({ choices: [{ index: 0, delta: { tool_calls: [call] } }] });
      const [choice] = chunk.choices as { delta: { tool_calls: JsonObject[] } }[];
      return choice?.delta.tool_calls[0]?.index;
    });
  };

  it('numbers calls that all come with index 0', () => {
    expect(run({ index: 0, id: 'a' }, { index: 0 }, { index: 0, id: 'b' }, { index: 0, id: '' })).toEqual([0, 0, 1, 1]);
  });

  it('numbers calls that come without index', () => {
    expect(run({ id: 'a' }, {}, { id: 'b' }, {}, { id: 'a' })).toEqual([0, 0, 1, 1, 0]);
  });

  it('leaves right numbers alone, interleaved or not', () => {
    expect(run({ index: 0, id: 'a' }, { index: 1, id: 'b' }, { index: 0 }, { index: 1 }, { index: 0 })).toEqual([
      0, 1, 0, 1, 0,
    ]);
  });
});
