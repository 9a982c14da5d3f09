import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../kernel/json.ts';
import { SHAPES } from './shapes/index.ts';
import { mergeUsage, NO_TOKENS, type TokenUsage } from './usage.ts';

describe('reading usage', () => {
  it('counts cached tokens inside the prompt of a chat answer', () => {
    const usage = {
      prompt_tokens: 100,
      completion_tokens: 50,
      prompt_tokens_details: { cached_tokens: 60, cache_write_tokens: 10, audio_tokens: 3 },
      completion_tokens_details: { reasoning_tokens: 20, audio_tokens: 1 },
    };
    expect(SHAPES.chat.usage.read(usage)).toEqual({
      input: 100,
      output: 50,
      cache_read: 60,
      cache_write: 10,
      reasoning: 20,
      audio_input: 3,
      audio_output: 1,
    });
  });

  it('adds both cache classes to the input of a Messages answer', () => {
    const usage = { input_tokens: 10, cache_read_input_tokens: 60, cache_creation_input_tokens: 30, output_tokens: 5 };
    expect(SHAPES.messages.usage.read(usage)).toMatchObject({ input: 100, cache_read: 60, cache_write: 30, output: 5 });
  });

  it('reads cache writes that are only given per lifetime', () => {
    const usage = {
      input_tokens: 1,
      output_tokens: 1,
      cache_creation: { ephemeral_5m_input_tokens: 7, ephemeral_1h_input_tokens: 2 },
    };
    expect(SHAPES.messages.usage.read(usage)).toMatchObject({ input: 10, cache_write: 9 });
  });

  it('reads the details of a Responses answer', () => {
    const usage = {
      input_tokens: 12,
      input_tokens_details: { cached_tokens: 4, cache_write_tokens: 2 },
      output_tokens: 8,
      output_tokens_details: { reasoning_tokens: 6 },
      total_tokens: 20,
    };
    expect(SHAPES.responses.usage.read(usage)).toMatchObject({
      input: 12,
      cache_read: 4,
      cache_write: 2,
      reasoning: 6,
    });
  });

  it('takes total_tokens for embeddings and rerank when nothing else is given', () => {
    expect(SHAPES.embeddings.usage.read({ total_tokens: 9 })).toEqual({ ...NO_TOKENS, input: 9 });
    expect(SHAPES.rerank.usage.read({ total_tokens: 9 })).toEqual({ ...NO_TOKENS, input: 9 });
    expect(SHAPES.rerank.usage.read({ search_units: 1 })).toBeNull();
  });

  it('knows no usage where no count was given', () => {
    for (const shape of ['chat', 'completions', 'messages', 'responses', 'embeddings', 'rerank'] as const) {
      expect(SHAPES[shape].usage.read({})).toBeNull();
      expect(SHAPES[shape].usage.read({ prompt_tokens: null, input_tokens: null })).toBeNull();
    }
  });

  it('lets no negative, absurd or non-numeric count lower or inflate what is counted', () => {
    const odd = fc.oneof(
      fc.integer({ max: -1 }),
      fc.constantFrom(1e300, Number.NaN, Number.POSITIVE_INFINITY, '5', null, true, [], {}),
    );
    fc.assert(
      fc.property(odd, odd, (a, b) => {
        const usage = {
          prompt_tokens: 40,
          completion_tokens: 7,
          prompt_tokens_details: { cached_tokens: a as number },
          completion_tokens_details: { reasoning_tokens: b as number },
        };
        expect(SHAPES.chat.usage.read(usage)).toEqual({ ...NO_TOKENS, input: 40, output: 7 });
      }),
    );
  });

  it('never reports a total below its parts', () => {
    const count = fc.nat(1_000_000);
    fc.assert(
      fc.property(count, count, count, count, (prompt, cached, completion, reasoning) => {
        const read = SHAPES.chat.usage.read({
          prompt_tokens: prompt,
          completion_tokens: completion,
          prompt_tokens_details: { cached_tokens: cached },
          completion_tokens_details: { reasoning_tokens: reasoning },
        });
        expect(read?.input).toBe(Math.max(prompt, cached));
        expect(read?.output).toBe(Math.max(completion, reasoning));
      }),
    );
  });
});

describe('writing usage', () => {
  const usages = fc
    .record({ rest: fc.nat(1e6), read: fc.nat(1e6), write: fc.nat(1e6), plain: fc.nat(1e6), reasoning: fc.nat(1e6) })
    .map(
      ({ rest, read, write, plain, reasoning }): TokenUsage => ({
        ...NO_TOKENS,
        input: rest + read + write,
        cache_read: read,
        cache_write: write,
        output: plain + reasoning,
        reasoning,
      }),
    );

  it('writes a usage object that reads back the same, in every shape that has all classes', () => {
    fc.assert(
      fc.property(
        usages,
        fc.constantFrom('chat' as const, 'messages' as const, 'responses' as const),
        (usage, shape) => {
          expect(SHAPES[shape].usage.read(SHAPES[shape].usage.write(usage) ?? {})).toEqual(usage);
        },
      ),
    );
  });

  it('writes every detail of a chat usage as a number', () => {
    const details = SHAPES.chat.usage.write(NO_TOKENS)?.prompt_tokens_details as JsonObject;
    expect(Object.values(details).every((value) => value === 0)).toBe(true);
  });
});

describe('mergeUsage', () => {
  it('takes the last valid value of each field and adds nothing up', () => {
    const first = { input_tokens: 10, output_tokens: 1, cache_read_input_tokens: 5 };
    const second = { output_tokens: 20, input_tokens: null };
    const third = { output_tokens: 31 };
    expect(mergeUsage(mergeUsage(mergeUsage(null, first), second), third)).toEqual({
      input_tokens: 10,
      output_tokens: 31,
      cache_read_input_tokens: 5,
    });
  });

  it('is never lowered by a later null, zero, negative or absurd value', () => {
    const odd = fc.constantFrom(null, 0, -5, 1e300, 3);
    fc.assert(
      fc.property(fc.array(odd, { maxLength: 5 }), (later) => {
        let usage = mergeUsage(null, { output_tokens: 9, details: { a: 4 } });
        for (const value of later) usage = mergeUsage(usage, { output_tokens: value, details: { a: value } });
        expect(usage).toEqual({ output_tokens: 9, details: { a: 4 } });
      }),
    );
  });

  it('changes neither argument', () => {
    const first = Object.freeze({ a: 1, d: Object.freeze({ b: 1 }) });
    const second = Object.freeze({ a: 2, d: Object.freeze({ b: 2 }) });
    expect(mergeUsage(first, second)).toEqual({ a: 2, d: { b: 2 } });
  });
});
